#include "support/alloc.hpp"
#include "support/death.hpp"
#include "support/fake_clock.hpp"
#include "support/last_touch.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/test.hpp"
#include "support/waiting.hpp"

#include <bide/sched/scheduler.hpp>
#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/condition_variable.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/shared_mutex.hpp>

static_assert(sizeof(bide::condition_variable) == 16 || sizeof(void*) != 8);
static_assert(!std::is_copy_constructible_v<bide::condition_variable>);
static_assert(!std::is_move_constructible_v<bide::condition_variable>);
static_assert(std::is_nothrow_default_constructible_v<bide::condition_variable>);
static_assert(noexcept(std::declval<bide::condition_variable&>().notify_one()));
static_assert(noexcept(std::declval<bide::condition_variable&>().notify_all()));

namespace {

using counts = std::vector<int>;

constinit bide::condition_variable ready_at_start;

// The locks that it waits with.
template <class P, template <class> class Mutex, template <class> class Lock = std::unique_lock>
struct waits_with {
    using base = P;
    using platform = test::observing<P>;
    using mutex = Mutex<platform>;
    using lock = Lock<mutex>;
};
template <class P> using with_mutex = waits_with<P, bide::basic_mutex>;
template <class P> using with_adaptive_mutex = waits_with<P, bide::basic_adaptive_mutex>;
template <class P> using with_shared_mutex = waits_with<P, bide::basic_shared_mutex>;
template <class P>
using with_shared_lock = waits_with<P, bide::basic_shared_mutex, std::shared_lock>;

template <class Kind> struct guarded {
    typename Kind::mutex mutex;
    bide::basic_condition_variable<typename Kind::platform> changed;
    bool ready = false;

    // Takes the mutex exclusively, which comes after all that wait for it now.
    void set(bool value = true) {
        const std::lock_guard held(mutex);
        ready = value;
        changed.notify_all();
    }
    bool is_free() {
        const bool free = mutex.try_lock();
        if (free) {
            mutex.unlock();
        }
        return free;
    }
};

enum class what { nothing_yet, notified, stopped, timeout };

template <class Result> what of(const Result& got) {
    return got                                  ? what::notified
           : got.error() == bide::errc::stopped ? what::stopped
                                                : what::timeout;
}

// A coroutine that has the lock while it notes its turn.
template <class Kind, class Lock = typename Kind::lock>
test::detached note_turn(guarded<Kind>& g, test::journal& turns, int name) {
    Lock lock(g.mutex);
    co_await g.changed.async_wait(lock);
    turns.add(lock.owns_lock() && !g.is_free() ? name : -1);
}
template <class Kind, class... Predicate>
test::held wait_for_it(test::manual_executor& on, guarded<Kind>& g, bool& through,
                       Predicate... is_ready) {
    typename Kind::lock lock(g.mutex);
    co_await g.changed.async_wait(lock, is_ready...).resume_on(on);
    through = lock.owns_lock() && !g.is_free();
}
// A coroutine that notes the outcome of begin(lock), if it has the lock then.
template <class Kind, class Begin>
test::detached note_end(guarded<Kind>& g, Begin begin, std::atomic<what>& end) {
    typename Kind::lock lock(g.mutex);
    const auto got = co_await begin(lock).as_result();
    const bool held = lock.owns_lock() && !g.is_free();
    lock.unlock();
    end = held ? of(got) : what::nothing_yet;
}
template <class Kind>
void note_stopped(guarded<Kind>& g, std::stop_token token, std::atomic<what>& end) {
    const auto begin = [&g, token](auto& l) { return g.changed.async_wait(l).with_stop(token); };
    note_end(g, begin, end);
}
template <class Kind, class Until>
void note_late(guarded<Kind>& g, Until until, std::atomic<what>& end) {
    const auto begin = [&g, until](auto& l) {
        return g.changed.async_wait(l).with_deadline(until);
    };
    note_end(g, begin, end);
}

bool ends(const std::atomic<what>& end, what expected) {
    return test::eventually([&] { return end != what::nothing_yet; }) && end == expected;
}

} // namespace

#define EACH_LOCK                                                                                  \
    with_mutex<test::native>, with_adaptive_mutex<test::native>, with_shared_mutex<test::native>,  \
        with_shared_lock<test::native>

TEMPLATE_TEST_CASE(
    "condition_variable: threads and coroutines are notified in the order in which they came",
    "[promise.condition-wakes-as-owner]", with_mutex<test::native>,
    with_adaptive_mutex<test::native>, with_shared_mutex<test::native>) {
    using base = typename TestType::base;
    const bool all = GENERATE(false, true);
    const bool under_lock = GENERATE(false, true);
    guarded<TestType> g;
    test::journal turns;
    const auto come = [&](int name) {
        typename TestType::lock lock(g.mutex);
        g.changed.wait(lock);
        turns.add(lock.owns_lock() && !g.is_free() ? name : -1);
    };
    test::team first(1, [&](int) { come(0); });
    REQUIRE(test::are_asleep<base>(1));
    note_turn(g, turns, 1);
    test::team second(1, [&](int) { come(2); });
    REQUIRE(test::are_asleep<base>(2));
    note_turn(g, turns, 3);
    if (all) {
        std::unique_lock lock(g.mutex);
        if (!under_lock) {
            lock.unlock();
        }
        g.changed.notify_all();
    } else {
        for (std::size_t n = 1; n <= 4; ++n) {
            std::unique_lock lock(g.mutex);
            if (!under_lock) {
                lock.unlock();
            }
            g.changed.notify_one();
            if (under_lock) {
                CHECK(turns.size() == n - 1); // not before the unlock
                lock.unlock();
            }
            REQUIRE(turns.reaches(n));
        }
    }
    first.join();
    second.join();
    REQUIRE(turns.reaches(4));
    CHECK(turns.entries() == counts{0, 1, 2, 3});
    g.changed.notify_all();
    CHECK(g.is_free());
}

TEST_CASE("condition_variable: readers that are notified have the lock side by side") {
    guarded<with_shared_lock<test::native>> g;
    test::rendezvous inside(3);
    std::atomic<bool> have_it{true};
    test::team waiting(3, [&](int) {
        std::shared_lock lock(g.mutex);
        g.changed.wait(lock);
        have_it = have_it && lock.owns_lock() && !g.is_free();
        inside.meet();
    });
    REQUIRE(test::are_asleep<test::native>(3));
    CHECK(g.is_free());
    g.changed.notify_all();
    waiting.join();
    CHECK(have_it);
    CHECK(g.is_free());
}

TEST_CASE("condition_variable: readers and writers of a set follow each other") {
    using kind = with_shared_mutex<test::native>;
    guarded<kind> g;
    test::journal turns;
    for (int i = 0; i < 6; ++i) {
        if (i % 3 == 0) {
            note_turn(g, turns, i);
        } else {
            note_turn<kind, std::shared_lock<kind::mutex>>(g, turns, i);
        }
    }
    g.changed.notify_all();
    CHECK(turns.entries() == counts{0, 1, 2, 3, 4, 5});
    CHECK(g.is_free());
}

TEST_CASE("condition_variable: a notification without waiters is not kept") {
    using kind = with_mutex<test::native>;
    ready_at_start.notify_one();
    ready_at_start.notify_all();
    guarded<kind> g;
    g.changed.notify_one();
    g.changed.notify_all();
    kind::lock lock(g.mutex);
    CHECK_FALSE(g.changed.wait_for(lock, 1ms));
    CHECK(lock.owns_lock());
    CHECK_FALSE(g.is_free());
}

TEST_CASE(
    "condition_variable: a notification under the lock wakes no thread, and the unlock wakes one",
    "[promise.condition-wakes-as-owner]") {
    struct tag {};
    using kind = with_mutex<test::counting<tag>>;
    guarded<kind> g;
    std::atomic<int> inside{0};
    std::atomic<bool> alone{true};
    test::team waiting(3, [&](int) {
        std::unique_lock lock(g.mutex);
        g.changed.wait(lock);
        alone = alone && ++inside == 1;
        --inside;
    });
    REQUIRE(test::are_asleep<kind::base>(3));
    {
        const std::lock_guard lock(g.mutex);
        const int before = kind::base::wakes;
        g.changed.notify_all();
        CHECK(kind::base::wakes == before);
    }
    waiting.join();
    CHECK(alone);
}

TEMPLATE_TEST_CASE(
    "condition_variable: of two notified, the second waits for the unlock of the first", "",
    with_mutex<test::native>, with_adaptive_mutex<test::native>) {
    guarded<TestType> g;
    test::manual_executor later;
    bool through[2] = {};
    auto first = wait_for_it(later, g, through[0]);
    auto second = wait_for_it(later, g, through[1]);
    first.start();
    second.start();
    g.changed.notify_all();
    CHECK_FALSE(g.is_free());
    CHECK(later.size() == 1);
    CHECK(later.run_one()); // it ends, and unlocks
    CHECK(through[0]);
    CHECK_FALSE(g.is_free());
    CHECK(later.run_one());
    CHECK(through[1]);
    CHECK(later.size() == 0);
    CHECK(g.is_free());
}

TEMPLATE_TEST_CASE("condition_variable: a predicate runs in the waiter, with the lock",
                   "[promise.condition-predicate]", EACH_LOCK, with_mutex<test::portable>) {
    guarded<TestType> g;
    std::atomic<bool> good[3] = {true, true, true};
    std::atomic<int> calls{0};
    test::team waiting(3, [&](int i) {
        const auto mine = std::this_thread::get_id();
        const auto is_ready = [&] {
            ++calls;
            good[i] = good[i] && std::this_thread::get_id() == mine && !g.is_free();
            return g.ready;
        };
        typename TestType::lock lock(g.mutex);
        switch (i) {
        case 0: g.changed.wait(lock, is_ready); break;
        case 1: good[i] = g.changed.wait_for(lock, 1h, is_ready) && good[i]; break;
        default: good[i] = g.changed.wait(lock, std::stop_token(), is_ready) && good[i]; break;
        }
        good[i] = good[i] && lock.owns_lock() && g.ready;
    });
    REQUIRE(test::are_asleep<typename TestType::base>(3));
    CHECK(g.is_free());
    CHECK(calls == 3);
    g.set(false);
    REQUIRE(test::eventually([&] { return calls == 6; }));
    REQUIRE(test::are_asleep<typename TestType::base>(3));
    g.set();
    waiting.join();
    CHECK(g.is_free());
    CHECK(calls == 9);
    for (const auto& g_i : good) {
        CHECK(g_i);
    }
}

TEMPLATE_TEST_CASE("condition_variable: a coroutine resumes only when its predicate is true", "",
                   with_adaptive_mutex<test::native>, with_shared_mutex<test::native>) {
    guarded<TestType> g;
    int calls = 0;
    std::atomic<what> ended[2] = {};
    const auto is_ready = [&] {
        ++calls;
        return g.ready;
    };
    const auto begin = [&](auto& lock) { return g.changed.async_wait(lock, is_ready); };
    note_end(g, begin, ended[0]);
    CHECK(calls == 1);
    CHECK(g.is_free());
    for (int i = 2; i < 10; ++i) {
        g.set(false);
        CHECK(calls == i);
        CHECK(ended[0] == what::nothing_yet);
        CHECK(g.is_free());
    }
    g.set();
    CHECK(calls == 10);
    CHECK(ended[0] == what::notified);
    CHECK(g.is_free());
    note_end(g, begin, ended[1]); // without suspending
    CHECK(ended[1] == what::notified);
    CHECK(g.is_free());
}

TEST_CASE("condition_variable: the predicate of a coroutine runs on the coroutine's executor",
          "[promise.condition-predicate]") {
    using kind = with_mutex<test::native>;
    guarded<kind> g;
    test::manual_executor later;
    int calls = 0;
    std::atomic<what> end{};
    const auto is_ready = [&] {
        ++calls;
        return g.ready;
    };
    const auto begin = [&](auto& lock) {
        return g.changed.async_wait(lock, is_ready).with_timeout(1h).resume_on(later);
    };
    note_end(g, begin, end);
    for (int i = 1; i < 4; ++i) {
        g.set(false);
        CHECK(calls == i);
        CHECK_FALSE(g.is_free()); // it has the lock, and has not looked
        CHECK(later.run_all() == 1);
        CHECK(calls == i + 1);
        CHECK(g.is_free());
    }
    g.set();
    CHECK(end == what::nothing_yet);
    CHECK(later.run_all() == 1);
    CHECK(end == what::notified);

    // It may be destroyed before it has looked again.
    bool never = false;
    g.ready = false;
    auto destroyed = wait_for_it(later, g, never, is_ready);
    destroyed.start();
    g.set();
    CHECK_FALSE(g.is_free());
    later.drop_all();
    destroyed.destroy();
    CHECK(g.is_free());
    CHECK_FALSE(never);
}

TEST_CASE("condition_variable: zero, negative and past times end a wait at once") {
    using kind = with_mutex<test::native>;
    guarded<kind> g;
    kind::lock lock(g.mutex);
    int calls = 0;
    const auto never = [&] { return ++calls < 0; };
    CHECK_FALSE(g.changed.wait_for(lock, 0s));
    CHECK_FALSE(g.changed.wait_for(lock, -1h));
    CHECK_FALSE(g.changed.wait_until(lock, steady_clock::now()));
    CHECK_FALSE(g.changed.wait_until(lock, std::chrono::system_clock::now() - 24h));
    CHECK_FALSE(g.changed.wait_for(lock, 0s, never));
    CHECK(calls == 2);
    CHECK(g.changed.wait_for(lock, -1s, [] { return true; }));
    CHECK(g.changed.wait_until(lock, steady_clock::time_point::min(), [] { return true; }));
    lock.unlock();
    std::atomic<what> end{};
    note_late(g, steady_clock::now(), end);
    CHECK(end == what::timeout);
    CHECK(g.is_free());
}

TEST_CASE("condition_variable: a time-out is not early, and returns with the lock") {
    using kind = with_mutex<test::native>;
    guarded<kind> g;
    {
        kind::lock lock(g.mutex);
        const auto start = steady_clock::now();
        CHECK_FALSE(g.changed.wait_for(lock, 15ms));
        CHECK(steady_clock::now() >= start + 15ms);
        CHECK(lock.owns_lock());
        CHECK_FALSE(g.is_free());
        CHECK_FALSE(g.changed.wait_until(lock, start + 20ms, [] { return false; }));
        CHECK(steady_clock::now() >= start + 20ms);
    }
    std::atomic<what> end{};
    note_late(g, steady_clock::now() + 5ms, end);
    CHECK(ends(end, what::timeout));
    CHECK(g.is_free());
}

TEST_CASE("condition_variable: a notification that leaves the predicate false ends no limit of the "
          "wait") {
    using kind = with_mutex<test::native>;
    guarded<kind> g;
    std::stop_source stop;
    std::atomic<what> ended[2] = {};
    const auto wait = [&](std::chrono::nanoseconds rest, std::stop_token token, auto& end) {
        const auto begin = [&g, rest, token](auto& lock) {
            const auto is_ready = [&g] { return g.ready; };
            return g.changed.async_wait(lock, is_ready).with_timeout(rest).with_stop(token);
        };
        note_end(g, begin, end);
    };
    wait(20ms, std::stop_token(), ended[0]);
    wait(1h, stop.get_token(), ended[1]);
    g.set(false);
    g.set(false);
    CHECK(ends(ended[0], what::timeout));
    CHECK(ended[1] == what::nothing_yet);
    g.set(false);
    stop.request_stop();
    CHECK(ends(ended[1], what::stopped));
    CHECK(g.is_free());
}

TEST_CASE("condition_variable: the limit that ended a wait is its outcome, also if the "
          "other one comes then") {
    using kind = with_mutex<test::native>;
    guarded<kind> g;
    std::stop_source stop;
    std::atomic<what> end{};
    std::atomic<int> calls{0};
    SECTION("a time-out, then a stop") {
        const auto stops = [&] {
            if (++calls == 2) { // the time is over
                stop.request_stop();
            }
            return false;
        };
        const auto begin = [&](auto& lock) {
            return g.changed.async_wait(lock, stops).with_timeout(1ms).with_stop(stop.get_token());
        };
        note_end(g, begin, end);
        CHECK(ends(end, what::timeout));
    }
    SECTION("a stop, then the deadline") {
        const auto until = steady_clock::now() + 20ms;
        const auto waits = [&] {
            while (++calls > 1 && steady_clock::now() < until + 1ms) {
            }
            return false;
        };
        const auto begin = [&](auto& lock) {
            const std::stop_token token = stop.get_token();
            return g.changed.async_wait(lock, waits).with_deadline(until).with_stop(token);
        };
        note_end(g, begin, end);
        const bool early = steady_clock::now() < until;
        stop.request_stop();
        const bool in_time = early && steady_clock::now() < until;
        CHECK((ends(end, what::stopped) || !in_time));
    }
    CHECK(g.is_free());
}

TEMPLATE_TEST_CASE("condition_variable: a stop ends the waits it is for and no other", "",
                   EACH_LOCK) {
    using base = typename TestType::base;
    guarded<TestType> g;
    std::stop_source stop;
    std::stop_source other;
    std::atomic<what> ended[4] = {};
    note_stopped(g, stop.get_token(), ended[0]);
    note_stopped(g, other.get_token(), ended[1]);
    test::team threads(2, [&](int i) {
        const std::stop_token token = i == 0 ? stop.get_token() : other.get_token();
        typename TestType::lock lock(g.mutex);
        const auto got = g.changed.wait(lock, token);
        ended[2 + i] = lock.owns_lock() && !g.is_free() ? of(got) : what::nothing_yet;
    });
    REQUIRE(test::are_asleep<base>(2));
    stop.request_stop();
    CHECK(ends(ended[0], what::stopped));
    CHECK(ends(ended[2], what::stopped));
    CHECK(ended[1] == what::nothing_yet);
    CHECK(ended[3] == what::nothing_yet);
    g.changed.notify_all();
    CHECK(ends(ended[1], what::notified));
    threads.join();
    CHECK(ended[3] == what::notified);
    other.request_stop();
    {
        typename TestType::lock lock(g.mutex); // a stop that was requested before
        CHECK_FALSE(g.changed.wait(lock, stop.get_token()));
        CHECK_FALSE(g.changed.wait(lock, stop.get_token(), [] { return false; }));
        CHECK(g.changed.wait(lock, stop.get_token(), [] { return true; }));
        int calls = 0; // what was true last counts
        CHECK(g.changed.wait(lock, stop.get_token(), [&calls] { return ++calls == 2; }));
        CHECK(lock.owns_lock());
    }
    std::atomic<what> end{};
    note_stopped(g, stop.get_token(), end);
    CHECK(end == what::stopped);
    CHECK(g.is_free());
}

TEMPLATE_TEST_CASE("condition_variable: a thread waits with a stop token and a limit of time", "",
                   EACH_LOCK) {
    guarded<TestType> g;
    std::stop_source stop;
    const auto never = [] { return false; };
    typename TestType::lock lock(g.mutex);
    CHECK(of(g.changed.wait_for(lock, stop.get_token(), 1ms, never)) == what::timeout);
    CHECK(of(g.changed.wait_for(lock, stop.get_token(), -1ms, never)) == what::timeout);
    CHECK(g.changed.wait_until(lock, stop.get_token(), steady_clock::now(), [] { return true; }));
    lock.unlock();
    std::atomic<what> ended[2] = {};
    test::team waiting(2, [&](int i) {
        typename TestType::lock mine(g.mutex);
        const auto is_ready = [&] { return i == 1 && g.ready; };
        ended[i] = of(g.changed.wait_for(mine, stop.get_token(), 1h, is_ready));
    });
    REQUIRE(test::are_asleep<typename TestType::base>(2));
    g.set();
    CHECK(ends(ended[1], what::notified));
    CHECK(ended[0] == what::nothing_yet);
    stop.request_stop();
    waiting.join();
    CHECK(ended[0] == what::stopped);
    CHECK(g.is_free());
}

TEMPLATE_TEST_CASE("condition_variable: once notified, no stop and no time-out changes the outcome",
                   "[promise.condition-wakes-as-owner]", EACH_LOCK) {
    struct tag;
    using clock = test::fake_clock<tag>;
    clock::set(10s);
    const typename clock::time_point until(10s + 1ms);
    guarded<TestType> g;
    std::stop_source stop;
    std::atomic<what> ended[2] = {};
    bool in_time = false;
    note_stopped(g, stop.get_token(), ended[0]);
    note_late(g, until, ended[1]);
    test::team thread(1, [&](int) {
        typename TestType::lock lock(g.mutex);
        in_time = g.changed.wait_until(lock, until);
    });
    REQUIRE(test::are_asleep<typename TestType::base>(1));
    {
        const std::lock_guard lock(g.mutex);
        g.changed.notify_all();
        stop.request_stop();
        clock::set(11s);
        const auto start = steady_clock::now();
        while (steady_clock::now() < start + 10ms) { // meanwhile the service looks at the clock
        }
    }
    thread.join();
    CHECK(in_time);
    CHECK(ends(ended[0], what::notified));
    CHECK(ends(ended[1], what::notified));
    CHECK(g.is_free());
}

TEMPLATE_TEST_CASE("condition_variable: a stopped wait waits for the lock behind the others",
                   "[promise.condition-wakes-as-owner]", with_mutex<test::native>,
                   with_adaptive_mutex<test::native>) {
    guarded<TestType> g;
    std::stop_source stop;
    std::atomic<what> end{};
    note_stopped(g, stop.get_token(), end);
    std::unique_lock lock(g.mutex);
    stop.request_stop();
    CHECK(end == what::nothing_yet); // this thread has the lock
    bool locked = false;
    [](guarded<TestType>& of, bool& has) -> test::detached {
        const auto mine = co_await of.mutex.async_lock();
        has = true;
    }(g, locked);
    lock.unlock();
    CHECK(ends(end, what::stopped));
    CHECK(test::eventually([&] { return g.is_free(); }));
    CHECK(locked);
}

TEMPLATE_TEST_CASE(
    "condition_variable: a coroutine that is destroyed while it waits leaves no trace", "",
    with_mutex<test::native>, with_adaptive_mutex<test::native>, with_shared_mutex<test::native>) {
    guarded<TestType> g;
    test::manual_executor later;
    bool through[3] = {};
    auto a = wait_for_it(later, g, through[0]);
    auto b = wait_for_it(later, g, through[1]);
    auto c = wait_for_it(later, g, through[2]);
    a.start();
    b.start();
    c.start();
    SECTION("for a notification") {
        a.destroy();
        c.destroy();
        CHECK(g.is_free());
        g.changed.notify_one();
        CHECK(later.run_all() == 1);
        CHECK(through[1]);
    }
    SECTION("for the lock, after its notification") {
        std::unique_lock lock(g.mutex);
        g.changed.notify_all();
        b.destroy();
        lock.unlock();
        CHECK(later.run_all() == 2);
        CHECK(through[0]);
        CHECK(through[2]);
    }
    SECTION("to resume, with the lock") {
        g.changed.notify_all();
        CHECK(later.size() == 1);
        later.drop_all();
        a.destroy();
        CHECK(later.run_all() == 2);
        CHECK(through[1]);
        CHECK(through[2]);
    }
    a.destroy();
    b.destroy();
    c.destroy();
    CHECK(g.is_free());
}

TEST_CASE(
    "condition_variable: a cancelled task gets the lock back, and is told that it was stopped") {
    const bool conditional = GENERATE(false, true);
    bide::mutex mutex;
    bide::condition_variable changed;
    std::atomic<bool> waits{false};
    bool held = false;
    bide::scheduler workers;
    const auto wait = [&](auto... never) -> bide::task<> {
        auto lock = co_await mutex.async_lock();
        waits = true;
        const auto got = co_await changed.async_wait(lock, never...).as_result();
        held = !got && lock.owns_lock() && !mutex.try_lock();
    };
    auto waiting = workers.spawn(conditional ? wait([] { return false; }) : wait());
    REQUIRE(test::eventually([&] { return waits.load(); }));
    {
        const std::lock_guard after_it_waits(mutex);
        if (conditional) {
            changed.notify_all(); // which leaves the predicate false
        }
    }
    waiting.cancel();
    std::move(waiting).join();
    CHECK(held);
    CHECK(mutex.try_lock());
    mutex.unlock();
}

TEST_CASE("condition_variable: no wait allocates", "[promise.no-wait-allocates]") {
    if (!test::counts_allocations()) {
        return;
    }
    guarded<with_mutex<test::native>> g;
    std::stop_source stop; // allocates
    const std::stop_token token = stop.get_token();
    static_cast<void>(bide::deadline::after(1h));
    const std::size_t before = test::allocations_here();
    {
        std::unique_lock lock(g.mutex);
        CHECK_FALSE(g.changed.wait_for(lock, 1ns));
        CHECK_FALSE(g.changed.wait_for(lock, 1us, [] { return false; }));
    }
    stop.request_stop();
    {
        std::unique_lock lock(g.mutex);
        CHECK_FALSE(g.changed.wait(lock, token));
    }
    g.changed.notify_all();
    CHECK(test::allocations_here() == before);
}

#if BIDE_TESTS_CAN_DIE

namespace {

test::held wait_at(bide::mutex& m, bide::condition_variable& cv) {
    std::unique_lock lock(m);
    co_await cv.async_wait(lock);
}

} // namespace

TEST_CASE(
    "condition_variable: destroying it with waiters terminates with its name and their number") {
    const std::string said = test::dies([] {
        bide::mutex m;
        std::optional<bide::condition_variable> cv(std::in_place);
        auto a = wait_at(m, *cv);
        auto b = wait_at(m, *cv);
        auto c = wait_at(m, *cv);
        a.start();
        b.start();
        c.start();
        cv->notify_one();
        cv.reset();
    });
    CHECK(test::contains(said, "condition_variable"));
    CHECK(test::contains(said, "2 waiting"));
}

TEST_CASE("condition_variable: waiting with an unlocked lock terminates and names it",
          "[promise.misuse-refused]") {
    const std::string thread = test::dies([] {
        bide::mutex m;
        bide::condition_variable cv;
        std::unique_lock lock(m, std::defer_lock);
        cv.wait(lock);
    });
    CHECK(test::contains(thread, "condition_variable"));
    CHECK(test::contains(thread, "not locked"));
    const std::string coroutine = test::dies([] {
        bide::mutex m;
        bide::condition_variable cv;
        std::unique_lock<bide::mutex> lock;
        static_cast<void>(cv.async_wait(lock));
    });
    CHECK(test::contains(coroutine, "not locked"));
}

TEST_CASE("condition_variable: waiting with locks of two mutexes terminates and names it") {
    const std::string said = test::dies([] {
        bide::mutex one;
        bide::mutex other;
        bide::condition_variable cv;
        auto a = wait_at(one, cv);
        a.start();
        std::unique_lock lock(other);
        cv.wait(lock);
    });
    CHECK(test::contains(said, "condition_variable"));
    CHECK(test::contains(said, "two mutexes"));
}

TEST_CASE("condition_variable: it may be destroyed when its waiters wait for the lock only") {
    CHECK(test::contains(test::dies([] {
                             bide::mutex m;
                             std::optional<bide::condition_variable> cv(std::in_place);
                             auto a = wait_at(m, *cv);
                             a.start();
                             std::unique_lock lock(m);
                             cv->notify_all();
                             cv.reset();
                             lock.unlock();
                         }),
                         "[it lives on]"));
}

#endif

TEST_CASE(
    "condition_variable: a waiter that is notified may destroy it before notify_one() returns",
    "[promise.destroy-after-success]") {
    bide::mutex mutex;
    std::atomic<bool> waits{false};
    const auto make = [&](void* at, int) {
        waits = false;
        return ::new (at) bide::condition_variable;
    };
    const auto notify = [&](bide::condition_variable& changed) {
        while (!waits) {
            std::this_thread::yield();
        }
        mutex.lock(); // after the waiter has begun to wait
        mutex.unlock();
        changed.notify_one();
    };
    const auto wait = [&](bide::condition_variable& changed, int round) {
        std::unique_lock lock(mutex);
        waits = true;
        switch (round % 3) {
        case 0: changed.wait(lock); break;
        case 1: static_cast<void>(changed.wait(lock, std::stop_token())); break;
        default: static_cast<void>(changed.wait_for(lock, 1h)); break;
        }
    };
    CHECK(test::late_touches<bide::condition_variable>(1, 4'000, make, notify, wait) == 0);
}
