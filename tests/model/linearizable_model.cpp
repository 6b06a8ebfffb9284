// Objects against specifications (model/linearizable.hpp): right ones, broken ones, and what a report says of these.

#include <bide/model/linearizable.hpp>
#include <bide/model/standard.hpp>
#include <model/check.hpp>
#include <support/test.hpp>

namespace histories {

namespace {

using model::failure;
using model::linearizable;
namespace spec = model::spec;
using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;

constexpr auto push = [](auto& q, int value) { q.push(value); };
constexpr auto try_pop = [](auto& q) { return q.try_pop(); };
constexpr auto pop = [](auto& q) { return q.pop(); };
constexpr auto add = [](auto& c) { return c.add(); };
constexpr auto lock = [](auto& m) { m.lock(); };
constexpr auto unlock = [](auto& m) { m.unlock(); };

std::string report_of(const model::body& run) {
    const auto found = model::explore({}, run);
    CHECK(found.what == failure::not_linearizable);
    return found.report.substr(0, found.report.find("\n\n\n"));
}

bool contains(const std::string& text, const std::string& part) {
    const bool is_there = text.find(part) != text.npos;
    if (!is_there) {
        FAIL_CHECK(text);
    }
    return is_there;
}

// ---- A counter

template <bool Whole> struct counter {
    long long add() {
        if (Whole) {
            return value.fetch_add(1, memory_order_relaxed);
        }
        const long long was = value.load(memory_order_relaxed);
        value.store(was + 1, memory_order_relaxed);
        return was;
    }
    model::atomic<long long> value{0};
};

template <bool Whole> void three_count() {
    counter<Whole> c;
    linearizable checked(c, spec::counter(), "c");
    const auto once = [&] { checked.call("add", add); };
    model::thread first(once);
    model::thread second(once);
    once();
}

} // namespace

TEST_CASE("linearizable: increments of three threads are those of a counter") {
    model::check("counter", three_count<true>);
}

TEST_CASE("linearizable: a lost increment is drawn") {
    const std::string report = report_of(three_count<false>);
    CHECK(contains(report, R"(Calls of c that have no order which the specification allows:

    T0  |- (add() -> 0) -|
    T1  |- add() -> 1 ---|
    T2  |- add() -> 1 ---|
The results of the calls in brackets do not matter.
After T0's add(), T1's add(), by the specification, T2's add() returns 2.

)"));
}

// ---- A queue that loses an item if two threads push at once

namespace {

template <bool Whole> struct array_queue {
    void push(int value) {
        unsigned at = 0;
        if (Whole) {
            at = tail.fetch_add(1, memory_order_relaxed);
        } else {
            at = tail.load(memory_order_relaxed);
            tail.store(at + 1, memory_order_relaxed);
        }
        slots[at].store(value, memory_order_release);
    }
    // For one thread.
    std::optional<int> try_pop() {
        const int value = slots[head].load(memory_order_acquire);
        head += value != 0 ? 1 : 0;
        return value != 0 ? std::optional<int>(value) : std::nullopt;
    }
    std::array<model::atomic<int>, 3> slots{};
    model::atomic<unsigned> tail{0};
    unsigned head = 0;
};

template <bool Whole> void two_push() {
    array_queue<Whole> q;
    linearizable checked(q, spec::queue<int>(), "queue");
    {
        model::thread first([&] { checked.call("push", push, 1); });
        model::thread second([&] { checked.call("push", push, 2); });
    }
    checked.call("try_pop", try_pop);
    checked.call("try_pop", try_pop);
}

} // namespace

TEST_CASE("linearizable: a queue that loses an item has no order") {
    model::check("queue", two_push<true>);
    const std::string report = report_of(two_push<false>);
    CHECK(contains(report, R"(
    T0                  |- (try_pop() -> 2) -| |- try_pop() -> none -|
    T1  |- (push(1)) -|
    T2  |- (push(2)) -|
The results of the calls in brackets do not matter.
T1's push(1) happens before T0's try_pop().
T2's push(2) happens before T0's try_pop().
)"));
}

// ---- A stack of three nodes that go back into it: ABA

namespace {

struct node_stack {
    static constexpr int none = 3;

    void push(int node) {
        int top = head.load(memory_order_relaxed);
        do {
            below[static_cast<std::size_t>(node)].store(top, memory_order_relaxed);
        } while (
            !head.compare_exchange_strong(top, node, memory_order_release, memory_order_relaxed));
    }
    std::optional<int> try_pop() {
        int top = head.load(memory_order_acquire);
        while (top != none) {
            const int next = below[static_cast<std::size_t>(top)].load(memory_order_relaxed);
            if (head.compare_exchange_strong(top, next, memory_order_acquire,
                                             memory_order_acquire)) {
                return top;
            }
        }
        return std::nullopt;
    }
    std::array<model::atomic<int>, 3> below{1, none, none};
    model::atomic<int> head{0};
};

template <bool GoesBack> void two_pop() {
    node_stack nodes;
    spec::stack<int> initial;
    initial.push(1);
    initial.push(0);
    linearizable checked(nodes, initial);
    {
        model::thread other([&] { checked.call("try_pop", try_pop); });
        const auto first = checked.call("try_pop", try_pop);
        checked.call("try_pop", try_pop);
        if (GoesBack && first.has_value()) {
            checked.call("push", push, *first);
        }
    }
    checked.call("try_pop", try_pop);
}

} // namespace

TEST_CASE("linearizable: a stack with ABA gives a node twice") {
    model::check("stack without ABA", two_pop<false>);
    const std::string report = report_of(two_pop<true>);
    CHECK(contains(report, R"(
    T0  |- (try_pop() -> 0) -| |- (try_pop() -> 1) -| |- (push(0)) -| |- try_pop() -> 1 -|
    T1  |- (try_pop() -> 0) ----------------------------------------|
)"));
}

// ---- Locks

namespace {

enum class way { right, two_in, relaxed };

template <way How> struct spinlock {
    void lock() {
        if (How == way::two_in) { // looks, then locks
            while (held.load(memory_order_acquire) != 0) {
                model::platform::pause();
            }
            held.store(1, memory_order_relaxed);
            return;
        }
        while (held.exchange(1, memory_order_acquire) != 0) {
            model::platform::pause();
        }
    }
    void unlock() {
        held.store(0, How == way::relaxed ? memory_order_relaxed : memory_order_release);
    }
    model::atomic<int> held{0};
};

template <way How> void two_lock() {
    spinlock<How> m;
    linearizable checked(m, spec::mutex(), "m");
    const auto both = [&] {
        checked.call("lock", lock);
        checked.call("unlock", unlock);
    };
    model::thread other(both);
    both();
}

} // namespace

TEST_CASE("linearizable: a lock that lets two in has no order") {
    model::check("spinlock", two_lock<way::right>);
    const std::string report = report_of(two_lock<way::two_in>);
    CHECK(contains(report, R"(
    T0  |- lock() -| |- (unlock()) ------------------|
    T1  |- lock() ------------------| |- (unlock()) -|
)"));
    CHECK(contains(report, "T1's lock() waits until T0's unlock() happens before its return."));
}

TEST_CASE("linearizable: an unlock() that does not synchronise has no order") {
    const auto found = model::explore({}, two_lock<way::relaxed>);
    CHECK(found.what == failure::not_linearizable);
    CHECK(contains(model::stronger_orders(found, {}, two_lock<way::relaxed>),
                   "release in place of relaxed"));
}

namespace {

template <bool Fifo> struct ticket_lock {
    void arrive(int who) {
        tickets[static_cast<std::size_t>(who)] = next.fetch_add(1, memory_order_acq_rel);
    }
    void lock(int who) {
        const int mine = tickets[static_cast<std::size_t>(who)];
        if (!Fifo) {
            while (held.exchange(true, memory_order_acquire)) {
                model::platform::pause();
            }
        } else {
            while (serving.load(memory_order_acquire) != mine) {
                model::platform::pause();
            }
        }
    }
    void unlock() {
        Fifo ? serving.store(serving.load(memory_order_relaxed) + 1, memory_order_release)
             : held.store(false, memory_order_release);
    }
    using order = std::memory_order;
    static constexpr order memory_order_acq_rel = order::acq_rel;
    std::array<int, 2> tickets{};
    model::atomic<int> next{0};
    model::atomic<int> serving{0};
    model::atomic<bool> held{false};
};

template <bool Fifo> void two_arrive() {
    ticket_lock<Fifo> m;
    linearizable checked(m, spec::mutex(), "m");
    const auto all = [&](int who) {
        checked.call("arrive", [](auto& l, int i) { l.arrive(i); }, who);
        checked.call("lock", [](auto& l, int i) { l.lock(i); }, who);
        checked.call("unlock", unlock);
    };
    checked.call("arrive", [](auto& l, int i) { l.arrive(i); }, 0);
    model::thread other([&] { all(1); });
    checked.call("lock", [](auto& l, int i) { l.lock(i); }, 0);
    checked.call("unlock", unlock);
}

} // namespace

TEST_CASE("linearizable: a lock that is FIFO by arrival") {
    model::check("ticket lock", two_arrive<true>);
    const std::string report = report_of(two_arrive<false>);
    CHECK(contains(report, R"(
    T0  |- (arrive(0)) -| |- (lock(0)) -----------------|
    T1                    |- (arrive(1)) -| |- lock(1) -|
)"));
}

// ---- What "before" means

namespace {

// What is stored becomes visible at the next store.
struct late_variable {
    void store(int value) { shared.store(std::exchange(own, value), memory_order_release); }
    int load() { return shared.load(memory_order_acquire); }
    int own = 0;
    model::atomic<int> shared{0};
};

template <std::memory_order Publish> void store_and_tell() {
    late_variable v;
    model::atomic<bool> told{false};
    linearizable checked(v, spec::variable<int>(), "v");
    model::thread writer([&] {
        checked.call("store", [](auto& o, int value) { o.store(value); }, 1);
        told.store(true, Publish);
    });
    if (told.load(memory_order_acquire)) {
        checked.call("load", [](auto& o) { return o.load(); });
    }
}

} // namespace

TEST_CASE("linearizable: a call comes before another one if it happens before it") {
    const std::string report = report_of(store_and_tell<memory_order_release>);
    CHECK(contains(report, R"(
    T0                   |- load() -> 0 -|
    T1  |- (store(1)) -|
The results of the calls in brackets do not matter.
T1's store(1) happens before T0's load().
After T1's store(1), by the specification, T0's load() returns 1.
)"));
    model::check("told, and not in order", store_and_tell<memory_order_relaxed>);
}

// ---- Threads that wait

namespace {

template <bool Tells> struct waiting_queue {
    void push(int value) {
        slot.store(value, memory_order_release);
        if (Tells) {
            slot.notify_one();
        }
    }
    int pop() {
        for (;;) {
            slot.wait(0, memory_order_acquire);
            if (const int value = slot.exchange(0, memory_order_acquire); value != 0) {
                return value;
            }
        }
    }
    model::atomic<int> slot{0};
};

template <bool Tells, int Pops> void wait_for_items() {
    waiting_queue<Tells> q;
    linearizable checked(q, spec::queue<int>(1), "q");
    model::thread other([&] { checked.call("push", push, 7); });
    for (int i = 0; i < Pops; ++i) {
        checked.call("pop", pop);
    }
}

} // namespace

TEST_CASE("linearizable: of threads that wait for ever, the report says whether they have to") {
    model::check("wait for an item", wait_for_items<true, 1>);
    const auto missed = model::explore({}, wait_for_items<false, 1>);
    CHECK(missed.what == failure::lost_wakeup);
    CHECK(contains(missed.report, R"(
    T0  |- pop() ----...
    T1  |- push(7) -|
By the specification, one of these calls returns: T0's pop().
)"));
    const auto too_few = model::explore({}, wait_for_items<true, 2>);
    CHECK(too_few.what == failure::lost_wakeup);
    CHECK(contains(too_few.report,
                   "By the specification, too, these calls wait for ever: T0's pop().\n"));
}

// ---- Calls that may fail, and calls in a loop

namespace {

struct weak_mutex : spec::mutex {
    bool try_lock() { return !spec::maybe() && spec::mutex::try_lock(); }
};

struct real_weak_mutex {
    bool try_lock() {
        int free = 0;
        return held.compare_exchange_weak(free, 1, memory_order_acquire, memory_order_relaxed);
    }
    void unlock() { held.store(0, memory_order_release); }
    model::atomic<int> held{0};
};

template <class Specification> void try_to_lock() {
    real_weak_mutex m;
    linearizable checked(m, Specification());
    const auto attempt = [&] {
        if (checked.call("try_lock", [](auto& l) { return l.try_lock(); })) {
            checked.call("unlock", unlock);
        }
    };
    model::thread other(attempt);
    attempt();
}

} // namespace

TEST_CASE("linearizable: a specification may have several results") {
    model::check("try_lock", {}, try_to_lock<spec::mutex>);
    model::check("try_lock, weak", {.weak_failures = 1}, try_to_lock<weak_mutex>);
    CHECK(model::explore({.weak_failures = 1}, try_to_lock<spec::mutex>).what ==
          failure::not_linearizable);
}

TEST_CASE("linearizable: a thread that calls until it succeeds waits") {
    const auto found = model::explore({}, [] {
        array_queue<true> q;
        linearizable checked(q, spec::queue<int>());
        model::thread other([&] { checked.call("push", push, 1); });
        while (!checked.call("try_pop", try_pop).has_value()) {
        }
    });
    CHECK(found.what == failure::none);
    CHECK(found.executions == 2); // at once, or behind a call that finds nothing
}

#if BIDE_EXCEPTIONS
namespace {

// take() throws if nothing is there. So does its specification.
struct throwing_counter {
    model::atomic<int> left{0};
    void put() { left.fetch_add(1, memory_order_relaxed); }
    void take() {
        if (left.load(memory_order_relaxed) == 0) {
            throw std::runtime_error("empty");
        }
        left.fetch_sub(1, memory_order_relaxed);
    }
};
struct sequential_counter {
    int left = 0;
    void put() { ++left; }
    void take() {
        if (left == 0) {
            throw std::runtime_error("empty");
        }
        --left;
    }
    friend bool operator==(const sequential_counter&, const sequential_counter&) = default;
};
// Two threads take.
void put_and_take(int puts) {
    throwing_counter c;
    linearizable checked(c, sequential_counter(), "c");
    const auto take = [&] {
        try {
            checked.call("take", [](auto& of) { of.take(); });
        } catch (const std::runtime_error&) {
        }
    };
    for (int i = 0; i < puts; ++i) {
        checked.call("put", [](auto& of) { of.put(); });
    }
    model::thread other(take);
    take();
    other.join();
}

} // namespace

TEST_CASE("linearizable: a call may throw, and so may the specification") {
    model::check("as many as are taken", [] { put_and_take(2); });
    model::check("none", [] { put_and_take(0); });
    const std::string report = report_of([] { put_and_take(1); }); // both may see the one
    CHECK(contains(report, "take() throws an exception."));
}
#endif

TEST_CASE("linearizable: a history has at most 64 calls") {
    const auto found = model::explore({.may_share_nothing = true}, [] {
        counter<true> c;
        linearizable checked(c, spec::counter(), "c");
        for (int i = 0; i < 65; ++i) {
            checked.call("add", add);
        }
    });
    CHECK(found.what == failure::too_large);
    CHECK(contains(found.message, "more than 64 calls of c"));
}

TEST_CASE("linearizable: a set, a map, a semaphore and a channel behind a lock") {
    const auto run = [](auto initial, auto first, auto second) {
        struct locked {
            decltype(initial) object;
            model::mutex m{};
        };
        model::check("behind a lock", [=] {
            locked o{initial};
            linearizable checked(o, initial);
            const auto call = [&](auto what) {
                const auto on_object = [what](locked& l) {
                    const std::lock_guard guard(l.m);
                    return what(l.object);
                };
                checked.call("call", on_object, what);
            };
            model::thread one([&] { call(first); });
            model::thread two([&] { call(first); });
            call(second);
            call(first);
        });
    };
    run(spec::set<int>(), [](auto& s) { return s.insert(1); }, [](auto& s) { return s.erase(1); });
    run(
        spec::map<int, int>(), [](auto& m) { return m.insert(1, 2); },
        [](auto& m) { return m.find(1); });
    run(spec::semaphore(1), [](auto& s) { return s.try_acquire(); }, [](auto& s) { s.release(); });
    run(
        spec::channel<int>(1), [](auto& c) { return c.try_send(1); },
        [](auto& c) { return c.try_receive(); });
    run(spec::channel<int>(1), [](auto& c) { return c.try_send(1); }, [](auto& c) { c.close(); });
}

} // namespace histories
