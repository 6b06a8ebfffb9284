// The protocols between the threads of durable locks: a waiter for a change is told of every change
// that its read has not seen, also if all waiters of a process share one descriptor; a fence_gate
// admits no token after a larger one.

#include <bide/durable/detail/background.hpp>
#include <bide/durable/fence_gate.hpp>
#include <model/sync_support.hpp>
#include <support/test.hpp>

using namespace sync_model;

namespace {

using change_signal = bide::detail::basic_change_signal<platform>;
using fence_gate = bide::basic_fence_gate<platform>;

// A record whose store is relaxed: only the signal orders it.
struct place {
    platform::atomic<int> record{0};
    change_signal changes;
    // All of them are kept up to the end: how the standard library counts references is not checked
    // here.
    std::vector<std::shared_ptr<change_signal::event>> taken;

    void change(int to) {
        record.store(to, std::memory_order_relaxed);
        changes.signal();
    }
    void await(int wanted) {
        for (;;) {
            const auto change = taken.emplace_back(changes.next());
            if (record.load(std::memory_order_relaxed) >= wanted) {
                return;
            }
            change->wait();
        }
    }
};

// The wake socket of a process or its file events, as poll(2) and a one-shot epoll(7) report it.
struct kernel {
    bide::basic_mutex<platform> lock;
    bool is_readable = false, is_armed = false; // under lock
    std::shared_ptr<change_signal> told;        // under lock; nullptr: no process has the name
    bide::basic_semaphore<platform> epoll{0};   // wakes the monitor to check the socket

    void make_readable() {
        const std::lock_guard held(lock);
        is_readable = told != nullptr;
        if (is_readable && is_armed) {
            epoll.release();
        }
    }
    void arm() {
        const std::lock_guard held(lock);
        is_armed = true;
        if (is_readable) {
            epoll.release();
        }
    }
    // What the lease monitor does when epoll_wait(2) returns.
    void tell() {
        std::shared_ptr<change_signal> to;
        {
            const std::lock_guard held(lock);
            if (!is_readable || !is_armed) {
                return; // drained meanwhile
            }
            is_armed = false;
            to = told;
        }
        to->signal();
    }
    // The thread of the lease monitor.
    void monitor(const platform::atomic<bool>& over) {
        for (epoll.acquire(); !over.load(std::memory_order_acquire); epoll.acquire()) {
            tell();
        }
    }
};

// The lease monitor of a process, up to the end of the scope. Threads that need it end before.
class lease_monitor {
public:
    explicit lease_monitor(kernel& of) : of_(of), thread_([this] { of_.monitor(over_); }) {}
    ~lease_monitor() {
        over_.store(true, std::memory_order_release);
        of_.epoll.release();
    }

private:
    kernel& of_;
    platform::atomic<bool> over_{false};
    model::thread thread_;
};

struct model_system {
    using signal = change_signal;
    struct descriptors {
        kernel* of = nullptr;

        bool add(int, const std::shared_ptr<signal>& who) const {
            of->told = who;
            of->arm();
            return true;
        }
        void rearm(int) const { of->arm(); }
        void remove(int) const {
            const std::lock_guard held(of->lock);
            of->is_armed = false;
        }
    };
    static descriptors& monitor() {
        static descriptors one;
        return one;
    }
    struct wake_socket {
        static int open(std::int64_t) { return 0; }
    };
    static int file_events() { return 0; }
    static bool drain(int) {
        kernel& k = *monitor().of;
        const std::lock_guard held(k.lock);
        k.is_readable = false;
        return true;
    }
    static bool is_silent(int) {
        kernel& k = *monitor().of;
        const std::lock_guard held(k.lock);
        return !k.is_readable;
    }
    static void close(int) {}
};

struct watched_slot : bide::slot {
    bide::result<bide::slot_snapshot, std::error_code> load() override {
        return bide::slot_snapshot{};
    }
    bide::cas_result compare_exchange(std::uint64_t, std::string_view) override { return {}; }
    bool watch(int) const override { return true; }
};

constexpr std::int64_t our_mark = 5;

// A process of this machine and its network.
bide::durable::origin of_us() {
    bide::durable::origin from{"host", "boot", 1, 1, 1};
    from.network = 1;
    return from;
}
// A record whose holder is a process that tells a waiter of this process what concerns it.
bide::durable::record held_by_us() {
    bide::durable::record r;
    r.clock = bide::lock_clock::boottime;
    bide::durable::holder& h = r.holders.emplace_back();
    h.from = of_us();
    bide::durable::waiter& w = r.waiters.emplace_back();
    w.from = of_us();
    w.from.mark = our_mark;
    w.lease_ms = 1;
    return r;
}

// A process that waits for the changes of other processes, by its wake socket or its file events.
struct process {
    kernel files;
    platform::atomic<int> record{0};
    bide::basic_mutex<platform> turn;
    std::shared_ptr<change_signal> changes = std::make_shared<change_signal>();
    std::vector<std::shared_ptr<change_signal::event>> taken; // under turn; up to the end
    bide::detail::basic_change_watch<model_system> watch{changes, true};
    watched_slot slot;
    const std::int64_t mark; // 0: it has no socket

    explicit process(std::int64_t its_mark = our_mark) : mark(its_mark) {
        model_system::monitor().of = &files;
        watch.open(mark);
    }
    ~process() { watch.leave(); }

    // A change by another process: first the record, then the socket.
    void change(int to) {
        record.store(to, std::memory_order_release);
        files.make_readable();
    }
    // Returns true if the record is as wanted; otherwise there is an event to wait for.
    bool look(int wanted, std::shared_ptr<change_signal::event>& until) {
        until = changes->next();
        const std::lock_guard held(turn);
        taken.push_back(until);
        watch.drain(slot, mark);
        const int found = record.load(std::memory_order_acquire);
        if (found >= wanted) {
            return true;
        }
        watch.follow(held_by_us(), of_us());
        MODEL_REQUIRE(watch.hears(mark));
        return false;
    }
    void await(int wanted) {
        for (std::shared_ptr<change_signal::event> change; !look(wanted, change);) {
            change->wait();
        }
    }
};

// One waiter waits for the last of `changes`, while `others` waiters read once each.
void look_after(int others, int changes, std::int64_t mark = our_mark) {
    process p(mark);
    const lease_monitor monitor(p.files);
    model::thread changing([&] {
        for (int i = 1; i <= changes; ++i) {
            p.change(i);
        }
    });
    model::thread looking([&] {
        for (int i = 0; i < others; ++i) {
            std::shared_ptr<change_signal::event> change;
            p.look(1000, change);
        }
    });
    p.await(changes);
}

// The queue of a lock, and its waiters of one process. The record is the number of grants to those
// that have entered it.
struct queue {
    process waiting;
    bide::basic_mutex<platform> store; // orders the changes, as the store does
    int entered = 0;                   // under store
    int granted = 0;                   // under store
    int free = 0;                      // under store

    // A waiter enters the queue if no permit is free, and waits until another process grants it one.
    void acquire() {
        std::shared_ptr<change_signal::event> change = waiting.changes->next();
        int mine = 0;
        {
            const std::lock_guard turn(waiting.turn);
            waiting.taken.push_back(change);
            waiting.watch.drain(waiting.slot, waiting.mark);
            const std::lock_guard held(store);
            if (free != 0) {
                --free;
                return;
            }
            waiting.watch.follow(held_by_us(), of_us());
            mine = ++entered;
        }
        for (change->wait(); !waiting.look(mine, change);) {
            change->wait();
        }
    }
    // Another process frees a permit. It goes to the first waiter, which is told.
    void pass_on() {
        {
            const std::lock_guard held(store);
            if (granted == entered) {
                ++free;
                return;
            }
            waiting.record.store(++granted, std::memory_order_release);
        }
        waiting.files.make_readable();
    }
};

// `waiters` wait, and two other processes pass on.
void grant_to(int waiters) {
    queue q;
    const lease_monitor monitor(q.waiting.files);
    model::thread one([&] { q.pass_on(); });
    model::thread other([&] { q.pass_on(); });
    model::thread second([&] {
        if (waiters == 2) {
            q.acquire();
        }
    });
    q.acquire();
}

} // namespace

TEST_CASE(
    "durable: a change that one reader drains is signalled to the other waiters of the process") {
    model::check("durable: one waits, another looks", random(10'000), [] { look_after(1, 1); });
    model::check("durable: the other looks twice", random(10'000), [] { look_after(2, 1); });
    model::check("durable: there are two changes", random(10'000), [] { look_after(1, 2); });
    model::check("durable: file events, one waits, another looks", random(10'000),
                 [] { look_after(1, 1, 0); });
    model::check("durable: file events, there are two changes", random(10'000),
                 [] { look_after(1, 2, 0); });
}

TEST_CASE("durable: a waiter in the queue is told by the process that grants it its permits",
          "[promise.durable-directed-wake]") {
    model::check("durable: one waits, two pass on", random(10'000), [] { grant_to(1); });
    model::check("durable: two wait, two pass on", random(10'000), [] { grant_to(2); });
}

TEST_CASE("durable: a waiter is told of each change that its read has not seen") {
    model::check("durable: one waits, one changes", [] {
        place p;
        model::thread changing([&] { p.change(1); });
        p.await(1);
    });
    using method = model::options::method;
    const model::options few{.how = method::bounded, .preemptions = 1};
    const model::options some{.how = method::pct, .runs = 20'000};
    model::check("durable: one waits for the second of two changes", few, [] {
        place p;
        model::thread changing([&] {
            p.change(1);
            p.change(2);
        });
        p.await(2);
    });
    model::check("durable: two wait, one changes", some, [] {
        place p;
        model::thread other([&] { p.await(1); });
        model::thread changing([&] { p.change(1); });
        p.await(1);
    });
}

TEST_CASE("durable: fence_gate admits no token after a larger one") {
    model::check("durable: two at a gate", {.weak_failures = 1}, [] {
        fence_gate gate;
        model::thread older([&] {
            if (!gate.admit(1)) {
                MODEL_REQUIRE(gate.highest() == 2);
            }
        });
        MODEL_REQUIRE(gate.admit(2));
        MODEL_REQUIRE(gate.highest() == 2);
        MODEL_REQUIRE(!gate.admit(1));
        older.join();
        MODEL_REQUIRE(gate.highest() == 2);
    });
}

TEST_CASE("durable: a caller of fence_gate sees what was done before earlier admissions") {
    const auto next_one = [](bool came_before) {
        return [came_before] {
            fence_gate gate;
            var<int> data{0};
            platform::atomic<int> was_in{0};
            model::thread older([&] {
                if (came_before) {
                    gate.admit(1);
                }
                data = 1;
                if (gate.admit(1)) {
                    was_in.store(1, std::memory_order_relaxed);
                }
            });
            gate.admit(2);
            MODEL_REQUIRE(was_in.load(std::memory_order_relaxed) == 0 || data == 1);
            older.join();
        };
    };
    model::check("durable: the next one sees it", {.weak_failures = 1}, next_one(false));
    model::check("durable: what was done before the same token came again, too", next_one(true));
    const auto asks = [](auto is_newer_in) {
        return [is_newer_in] {
            fence_gate gate;
            var<int> data{0};
            model::thread newer(model::after_writing(data, [&] { gate.admit(2); }));
            MODEL_REQUIRE(!is_newer_in(gate) || data == 1);
            newer.join();
        };
    };
    model::check("durable: a refused caller sees it", {.weak_failures = 1},
                 asks([](fence_gate& g) { return !g.admit(1); }));
    model::check("durable: a caller of highest() sees it",
                 asks([](fence_gate& g) { return g.highest() == 2; }));
}
