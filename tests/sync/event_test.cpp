#include "support/alloc.hpp"
#include "support/catch.hpp"
#include "support/coroutines.hpp"
#include "support/death.hpp"
#include "support/gate.hpp"
#include "support/jitter.hpp"
#include "support/last_touch.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/waiting.hpp"

#include <bide/sync/event.hpp>
#include <bide/task/task.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

static_assert(sizeof(bide::event) == 16 || sizeof(void*) != 8);
static_assert(!std::is_copy_constructible_v<bide::event>);
static_assert(!std::is_move_constructible_v<bide::event>);
static_assert(!std::is_move_assignable_v<bide::event>);
static_assert(!std::is_convertible_v<bool, bide::event>);
static_assert(std::is_nothrow_default_constructible_v<bide::event>);
static_assert(noexcept(std::declval<bide::event&>().set()));
static_assert(noexcept(std::declval<bide::event&>().reset()));
static_assert(noexcept(std::declval<const bide::event&>().is_set()));

namespace {

using std::chrono::steady_clock;
using counts = std::vector<int>;

constinit bide::event unset_at_start;
constinit bide::event set_at_start(true);

// What became of a wait.
enum class what { nothing_yet, through, stopped, timeout };

what of(const bide::result<void>& got) {
    return got ? what::through : got.error() == bide::errc::stopped ? what::stopped : what::timeout;
}

bool is(const bide::result<void>& got, bide::errc error) { return !got && got.error() == error; }

template <class Event> test::detached note_turn(Event& e, test::journal& turns, int name) {
    co_await e.async_wait();
    turns.add(name);
}
template <class Event>
test::detached note_stopped(Event& e, std::stop_token t, std::atomic<what>& end) {
    const auto got = co_await e.async_wait().with_stop(t);
    end = of(got);
}
template <class Event>
test::detached note_late(Event& e, std::chrono::nanoseconds rest, std::atomic<what>& end) {
    const auto got = co_await e.async_wait().with_timeout(rest);
    end = of(got);
}
template <class Event> test::held pass(Event& e, bool& through) {
    co_await e.async_wait();
    through = true;
}
template <class Event> test::held pass_on(test::manual_executor& on, Event& e, bool& through) {
    co_await e.async_wait().resume_on(on);
    through = true;
}
template <class Event>
test::held pass_on_until_stopped(test::manual_executor& on, Event& e, std::stop_token t,
                                 what& end) {
    const auto got = co_await e.async_wait().with_stop(t).resume_on(on);
    end = of(got);
}
template <class Event>
test::held pass_on_until(test::manual_executor& on, Event& e, steady_clock::time_point when,
                         what& end) {
    const auto got = co_await e.async_wait().with_deadline(when).resume_on(on);
    end = of(got);
}

} // namespace

// ---- The flag

TEST_CASE("event: it can be constant-initialised") {
    CHECK_FALSE(unset_at_start.is_set());
    CHECK(set_at_start.is_set());
    unset_at_start.set();
    CHECK(unset_at_start.is_set());
    unset_at_start.reset();
}

TEMPLATE_TEST_CASE("event: it is set from set() to reset(), however often each is called", "",
                   test::native, test::portable) {
    using event = bide::basic_event<TestType>;
    const test::watchdog guard;
    event e;
    event begun_unset(false);
    event begun_set(true);
    CHECK_FALSE(e.is_set());
    CHECK_FALSE(begun_unset.is_set());
    CHECK(begun_set.is_set());
    for (int round = 0; round < 3; ++round) {
        for (int again = 0; again < 3; ++again) {
            e.reset();
            CHECK_FALSE(e.is_set());
            CHECK_FALSE(e.wait_for(0s));
        }
        for (int again = 0; again < 3; ++again) {
            e.set();
            CHECK(e.is_set());
            e.wait();
        }
    }
    begun_set.reset();
    CHECK_FALSE(begun_set.is_set());
}

TEMPLATE_TEST_CASE("event: who comes while it is set does not wait", "", test::native,
                   test::portable) {
    const test::watchdog guard;
    bide::basic_event<TestType> e(true);
    std::stop_source stop;
    stop.request_stop();
    e.wait();
    CHECK(e.wait_for(-1h));
    CHECK(e.wait_until(steady_clock::time_point::min()));
    CHECK(e.wait(std::stop_token()));
    CHECK(e.wait(stop.get_token()));
    std::atomic<what> ends[2] = {};
    note_stopped(e, stop.get_token(), ends[0]);
    note_late(e, -1s, ends[1]);
    CHECK(ends[0] == what::through);
    CHECK(ends[1] == what::through);
    test::journal turns;
    note_turn(e, turns, 7);
    CHECK(turns.entries() == counts{7});
    CHECK(e.is_set()); // by hand alone
}

TEMPLATE_TEST_CASE("event: set() lets through all who wait, of every kind", "", test::native,
                   test::portable) {
    using platform = test::observing<TestType>;
    const test::watchdog guard;
    bide::basic_event<platform> e;
    std::stop_source never;
    test::journal turns;
    std::atomic<what> ends[2] = {};
    bool good[4] = {};
    for (int i = 0; i < 3; ++i) {
        note_turn(e, turns, i);
    }
    test::team threads(4, [&](int i) {
        switch (i) {
        case 0: e.wait(), good[i] = true; break;
        case 1: good[i] = e.wait_for(1h); break;
        case 2: good[i] = e.wait_until(steady_clock::now() + 1h); break;
        default: good[i] = e.wait(never.get_token()).has_value(); break;
        }
    });
    REQUIRE(test::are_asleep<TestType>(4));
    note_stopped(e, never.get_token(), ends[0]);
    note_late(e, 1h, ends[1]);
    note_turn(e, turns, 3);
    CHECK(turns.size() == 0);
    e.set();
    CHECK(e.is_set());
    CHECK(turns.entries() == counts{0, 1, 2, 3}); // in the order they came
    CHECK(ends[0] == what::through);
    CHECK(ends[1] == what::through);
    threads.join();
    for (const bool g : good) {
        CHECK(g);
    }
}

TEMPLATE_TEST_CASE("event: whoever was let through stays let through, however soon the reset", "",
                   test::native, test::portable) {
    using platform = test::observing<TestType>;
    const test::watchdog guard;
    bide::basic_event<platform> e;
    for (int round = 0; round < 20; ++round) {
        bool through[3] = {};
        bool in_time = false;
        test::manual_executor later;
        bool resumed = false;
        auto c = pass_on(later, e, resumed);
        c.start();
        test::team threads(3, [&](int i) {
            if (i == 0) {
                e.wait();
                through[i] = true;
            } else if (i == 1) {
                through[i] = e.wait_for(1h);
            } else {
                through[i] = e.wait(std::stop_token()).has_value();
            }
        });
        in_time = test::are_asleep<TestType>(3);
        e.set();
        e.reset();
        REQUIRE(in_time);
        REQUIRE_FALSE(e.is_set());
        threads.join();
        for (const bool t : through) {
            REQUIRE(t);
        }
        REQUIRE_FALSE(resumed);
        REQUIRE(later.run_all() == 1);
        REQUIRE(resumed);
        REQUIRE_FALSE(e.wait_for(0s)); // who comes now waits
    }
}

TEMPLATE_TEST_CASE("event: a reset lets nobody through and turns nobody away", "", test::native,
                   test::portable) {
    const test::watchdog guard;
    bide::basic_event<TestType> e;
    bool through = false;
    auto c = pass(e, through);
    c.start();
    for (int i = 0; i < 3; ++i) {
        e.reset();
        CHECK_FALSE(through);
        CHECK_FALSE(e.is_set());
    }
    e.set(); // one is enough, however many resets there were
    CHECK(through);
    CHECK(e.is_set());
}

TEST_CASE("event: who waits again after a reset inside set() waits for the next") {
    const test::watchdog guard;
    bide::event e;
    int passed = 0;
    auto c = [](bide::event& at, int& n) -> test::held {
        for (;;) {
            co_await at.async_wait();
            ++n;
            at.reset();
        }
    }(e, passed);
    c.start();
    for (int i = 1; i <= 100; ++i) {
        e.set();
        REQUIRE(passed == i);
        REQUIRE_FALSE(e.is_set());
    }
}

TEMPLATE_TEST_CASE("event: each set ends a round of two threads that reset for each other", "",
                   test::native, test::portable) {
    using event = bide::basic_event<TestType>;
    constexpr int rounds = 3'000;
    event there;
    event back;
    int ball = 0; // plain: a sanitizer sees whether it is ordered
    bool in_step[2] = {true, true};
    test::run_threads(2, [&](int i) {
        for (int round = 0; round < rounds; ++round) {
            if (i == 0) {
                in_step[i] = in_step[i] && ball == 2 * round;
                ++ball;
                there.set();
                back.wait();
                back.reset();
            } else {
                there.wait();
                there.reset();
                in_step[i] = in_step[i] && ball == 2 * round + 1;
                ++ball;
                back.set();
            }
        }
    });
    CHECK(in_step[0]);
    CHECK(in_step[1]);
    CHECK(ball == 2 * rounds);
}

TEMPLATE_TEST_CASE("event: nobody is left behind by sets and resets that race", "", test::native,
                   test::portable) {
    using event = bide::basic_event<TestType>;
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    for (int round = 0; round < 300; ++round) {
        event e;
        std::atomic<int> setting{2};
        int passed[2] = {};
        test::run_threads(4, [&](int i) {
            test::jitter pause(test::run_seed() + static_cast<std::uint32_t>(round * 4 + i));
            if (i < 2) {
                for (int n = 0; n < 20; ++n) {
                    pause();
                    e.set();
                    if (n % 2 == i) {
                        e.reset();
                    }
                }
                if (--setting == 0) {
                    e.set(); // the last word
                }
            } else {
                for (int n = 0; n < 10; ++n) {
                    pause();
                    if (n % 3 == 0) {
                        e.wait();
                        ++passed[i - 2];
                    } else if (n % 3 == 1) {
                        passed[i - 2] += e.wait(std::stop_token()) ? 1 : 0;
                    } else {
                        passed[i - 2] += e.wait_for(1h) ? 1 : 0;
                    }
                }
            }
        });
        REQUIRE(e.is_set());
        REQUIRE(passed[0] == 10);
        REQUIRE(passed[1] == 10);
    }
}

TEMPLATE_TEST_CASE("event: what came before set() is seen by who was let through, or saw it set",
                   "", test::native, test::portable) {
    for (int round = 0; round < 200; ++round) {
        bide::basic_event<TestType> e;
        int news = 0;
        int seen[2] = {};
        test::run_threads(3, [&](int i) {
            if (i == 0) {
                news = 42;
                e.set();
            } else if (i == 1) {
                e.wait();
                seen[0] = news;
            } else if (test::eventually([&] { return e.is_set(); })) {
                seen[1] = news;
            }
        });
        REQUIRE(seen[0] == 42);
        REQUIRE(seen[1] == 42);
    }
}

TEMPLATE_TEST_CASE("event: two that set are both seen by one that resets, looks and waits", "",
                   test::native, test::portable) {
    constexpr int items = 2'000;
    bide::basic_event<TestType> e;
    std::atomic<int> stored[2] = {};
    std::atomic<int> taken[2] = {};
    int seen = 0;
    test::run_threads(3, [&](int i) {
        if (i < 2) {
            for (int n = 1; n <= items; ++n) {
                e.set();
                stored[i].store(n, std::memory_order_relaxed);
                e.set();
                while (taken[i].load(std::memory_order_relaxed) != n) {
                    std::this_thread::yield();
                }
            }
            return;
        }
        while (seen < 2 * items) {
            e.reset();
            bool found = false;
            for (int from = 0; from < 2; ++from) {
                const int n = stored[from].load(std::memory_order_relaxed);
                if (n != taken[from].load(std::memory_order_relaxed)) {
                    taken[from].store(n, std::memory_order_relaxed);
                    found = true;
                    ++seen;
                }
            }
            if (!found) {
                e.wait();
            }
        }
    });
    CHECK(seen == 2 * items);
}

// ---- Deadlines

TEMPLATE_TEST_CASE("event: zero, negative and past times mean one look", "", test::native,
                   test::portable) {
    using std::chrono::duration;
    const test::watchdog guard(20s);
    bide::basic_event<TestType> e;
    CHECK_FALSE(e.wait_for(0s));
    CHECK_FALSE(e.wait_for(-1ns));
    CHECK_FALSE(e.wait_for(std::chrono::hours::min()));
    CHECK_FALSE(e.wait_for(duration<double>(-1e300)));
    CHECK_FALSE(e.wait_until(steady_clock::now()));
    CHECK_FALSE(e.wait_until(steady_clock::time_point::min()));
    CHECK_FALSE(e.wait_until(std::chrono::system_clock::now() - 24h));
    std::atomic<what> ends[2] = {};
    note_late(e, 0s, ends[0]);
    note_late(e, -1h, ends[1]);
    CHECK(ends[0] == what::timeout); // without suspending
    CHECK(ends[1] == what::timeout);
    CHECK_FALSE(e.is_set());
    e.set();
    CHECK(e.wait_for(0s));
}

TEMPLATE_TEST_CASE("event: a time-out is not early, by its own clock", "", test::native,
                   test::portable) {
    bide::basic_event<TestType> e;
    const auto start = steady_clock::now();
    CHECK_FALSE(e.wait_for(15'000'000ns));
    CHECK(steady_clock::now() >= start + 15ms);
    const auto steady = steady_clock::now() + 15ms;
    CHECK_FALSE(e.wait_until(steady));
    CHECK(steady_clock::now() >= steady);
    const auto system = std::chrono::system_clock::now() + 15ms;
    CHECK_FALSE(e.wait_until(system));
    CHECK(std::chrono::system_clock::now() >= system);
    std::atomic<what> end{};
    const auto before = steady_clock::now();
    note_late(e, 15ms, end);
    REQUIRE(test::eventually([&] { return end != what::nothing_yet; }));
    CHECK(end == what::timeout);
    CHECK(steady_clock::now() >= before + 15ms);
}

TEMPLATE_TEST_CASE("event: a huge time is for ever, and the wait ends by a set", "", test::native,
                   test::portable) {
    using platform = test::observing<TestType>;
    bide::basic_event<platform> e;
    bool got[4] = {};
    test::team waiting(4, [&](int i) {
        switch (i) {
        case 0: got[i] = e.wait_for(std::chrono::hours::max()); break;
        case 1: got[i] = e.wait_for(std::chrono::duration<double>(1e300)); break;
        case 2: got[i] = e.wait_until(steady_clock::time_point::max()); break;
        default: got[i] = e.wait_until(std::chrono::system_clock::time_point::max());
        }
    });
    REQUIRE(test::are_asleep<TestType>(4));
    e.set();
    waiting.join();
    for (const bool through : got) {
        CHECK(through);
    }
}

// ---- Stops

TEMPLATE_TEST_CASE("event: a stop that was requested before ends a wait that has to wait", "",
                   test::native, test::portable) {
    const test::watchdog guard;
    bide::basic_event<TestType> e;
    std::stop_source stop;
    stop.request_stop();
    CHECK(is(e.wait(stop.get_token()), bide::errc::stopped));
    std::atomic<what> end{};
    note_stopped(e, stop.get_token(), end);
    REQUIRE(test::eventually([&] { return end != what::nothing_yet; }));
    CHECK(end == what::stopped);
    e.set();
    CHECK(e.wait(stop.get_token())); // ready first
}

TEMPLATE_TEST_CASE("event: a stop ends the waits it is for and no other", "", test::native,
                   test::portable) {
    using platform = test::observing<TestType>;
    const test::watchdog guard;
    bide::basic_event<platform> e;
    std::stop_source stop;
    std::stop_source other;
    std::atomic<what> ends[4] = {};
    note_stopped(e, stop.get_token(), ends[0]);
    note_stopped(e, other.get_token(), ends[1]);
    test::team threads(2, [&](int i) {
        const std::stop_token token = i == 0 ? stop.get_token() : other.get_token();
        ends[2 + i] = of(e.wait(token));
    });
    REQUIRE(test::are_asleep<TestType>(2));
    stop.request_stop();
    REQUIRE(test::eventually(
        [&] { return ends[0] != what::nothing_yet && ends[2] != what::nothing_yet; }));
    CHECK(ends[0] == what::stopped);
    CHECK(ends[2] == what::stopped);
    CHECK(ends[1] == what::nothing_yet);
    CHECK(ends[3] == what::nothing_yet);
    e.set();
    threads.join();
    CHECK(ends[1] == what::through);
    CHECK(ends[3] == what::through);
    other.request_stop(); // too late for anything
}

TEST_CASE("event: a stop resumes nobody on the thread that requests it") {
    const test::watchdog guard;
    bide::event e;
    std::stop_source stop;
    std::thread::id on;
    std::atomic<bool> over{false};
    [](bide::event& at, std::stop_token t, std::thread::id& id,
       std::atomic<bool>& end) -> test::detached {
        const auto got = co_await at.async_wait().with_stop(t);
        id = test::this_thread();
        end = !got;
    }(e, stop.get_token(), on, over);
    stop.request_stop();
    REQUIRE(test::eventually([&] { return over.load(); }));
    CHECK(on != test::this_thread());
}

TEST_CASE("event: a coroutine that was let through stays let through") {
    const test::watchdog guard;
    test::manual_executor later;
    bide::event e;
    what end = what::nothing_yet;
    SECTION("whatever is stopped afterwards") {
        std::stop_source stop;
        auto c = pass_on_until_stopped(later, e, stop.get_token(), end);
        c.start();
        e.set();
        stop.request_stop();
        REQUIRE(later.run_all() == 1);
        CHECK(c.done());
    }
    SECTION("whatever the clock says afterwards") {
        const auto when = steady_clock::now() + 200ms;
        auto c = pass_on_until(later, e, when, end);
        c.start();
        e.set();
        REQUIRE(later.size() == 1); // else it has taken 200 ms to come here
        REQUIRE(test::eventually([&] { return steady_clock::now() > when + 20ms; }));
        REQUIRE(later.run_all() == 1);
        CHECK(c.done());
    }
    CHECK(end == what::through);
}

TEMPLATE_TEST_CASE("event: a stop and set() at once end a wait once, as one of the two", "",
                   test::native, test::portable) {
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    for (int round = 0; round < 500; ++round) {
        bide::basic_event<TestType> e;
        std::stop_source stop;
        std::atomic<int> ended{0};
        std::atomic<what> end{};
        what of_thread = what::nothing_yet;
        [](bide::basic_event<TestType>& at, std::stop_token t, std::atomic<what>& out,
           std::atomic<int>& n) -> test::detached {
            const auto got = co_await at.async_wait().with_stop(t);
            out = of(got);
            ++n;
        }(e, stop.get_token(), end, ended);
        test::run_threads(3, [&](int i) {
            test::jitter pause(test::run_seed() + static_cast<std::uint32_t>(round * 3 + i));
            pause();
            if (i == 0) {
                e.set();
            } else if (i == 1) {
                stop.request_stop();
            } else {
                of_thread = of(e.wait(stop.get_token()));
            }
        });
        REQUIRE(test::eventually([&] { return ended != 0; }));
        REQUIRE(ended == 1);
        REQUIRE((end == what::through || end == what::stopped));
        REQUIRE((of_thread == what::through || of_thread == what::stopped));
        REQUIRE(e.is_set());
    }
}

// ---- Coroutines

TEST_CASE("event: a coroutine that is destroyed while it waits is not waited for") {
    const test::watchdog guard;
    const int leaves = GENERATE(0, 1, 2);
    CAPTURE(leaves);
    bide::event e;
    bool through[3] = {};
    std::vector<test::held> waiting;
    for (bool& t : through) {
        waiting.push_back(pass(e, t));
        waiting.back().start();
    }
    waiting[static_cast<std::size_t>(leaves)].destroy();
    e.set();
    for (int i = 0; i < 3; ++i) {
        CHECK(through[i] == (i != leaves));
    }
}

TEST_CASE("event: with the last of its waiters gone it is set and reset as before") {
    const test::watchdog guard;
    bide::event e;
    bool through = false;
    auto gone = pass(e, through);
    gone.start();
    gone.destroy();
    CHECK_FALSE(e.is_set());
    CHECK_FALSE(e.wait_for(1ms));
    e.set();
    CHECK(e.is_set());
    e.reset();
    CHECK_FALSE(e.is_set());
    CHECK_FALSE(through);
}

TEST_CASE("event: one that is let through may destroy another that is") {
    bide::event e;
    bool through = false;
    auto second = pass(e, through);
    auto first = [](bide::event& at, test::held& victim) -> test::held {
        co_await at.async_wait();
        victim.destroy();
    }(e, second);
    first.start();
    second.start();
    e.set();
    CHECK(first.done());
    CHECK_FALSE(through);
}

TEST_CASE("event: a coroutine goes on where it asked to, else inside set()") {
    test::manual_executor later;
    bide::event e;
    bool there = false;
    bool here = false;
    auto first = pass_on(later, e, there);
    auto second = pass(e, here);
    first.start();
    second.start();
    e.set();
    CHECK(here);
    CHECK_FALSE(there);
    CHECK(later.run_all() == 1);
    CHECK(there);
}

TEST_CASE("event: a chain of sets costs no stack") {
    constexpr std::size_t length = 20'000;
    std::vector<bide::event> chain(length + 1);
    for (std::size_t i = 0; i < length; ++i) {
        [](bide::event& mine, bide::event& next) -> test::detached {
            co_await mine.async_wait();
            next.set();
        }(chain[i], chain[i + 1]);
    }
    chain[0].set();
    CHECK(chain[length].is_set());
}

// ---- Allocation

TEMPLATE_TEST_CASE("event: no wait allocates", "", test::native, test::portable) {
    using platform = test::observing<TestType>;
    using event = bide::basic_event<platform>;
    const test::watchdog guard;
    event e;
    std::stop_source stop;
    std::stop_source never;
    const std::stop_token token = stop.get_token();
    const std::stop_token idle = never.get_token();
    bide::timer_service<platform>(); // its thread, once

    SECTION("of a thread") {
        std::size_t made[3] = {1, 1, 1};
        bool good[3] = {};
        std::atomic<bool> timed_out{false};
        test::team waiting(3, [&](int i) {
            const std::size_t before = test::allocations_here();
            if (i == 0) {
                timed_out = !e.wait_for(1ms);
                good[i] = e.wait_for(1h) && timed_out;
            } else if (i == 1) {
                good[i] = !e.wait(token) && e.wait(idle);
            } else {
                e.wait();
                good[i] = true;
            }
            made[i] = test::allocations_here() - before;
        });
        const bool all =
            test::eventually([&] { return timed_out.load(); }) && test::are_asleep<TestType>(3);
        const std::size_t before = test::allocations_here();
        stop.request_stop();
        e.set();
        const std::size_t here = test::allocations_here() - before;
        CHECK(here == 0);
        CHECK(all);
        waiting.join();
        for (int i = 0; i < 3; ++i) {
            CHECK(good[i]);
            CHECK(made[i] == 0);
        }
    }
    SECTION("of a coroutine") {
        event start;
        std::atomic<int> ended{0};
        [](event& first, event& at, std::stop_token t, std::atomic<int>& end) -> test::detached {
            co_await first.async_wait();
            const auto stopped = co_await at.async_wait().with_stop(t);
            const auto late = co_await at.async_wait().with_timeout(1ms);
            end = !stopped && !late ? 1 : -1;
        }(start, e, token, ended);
        bool through = false;
        auto other = pass(e, through);
        const std::size_t before = test::allocations();
        other.start();
        start.set();
        stop.request_stop();
        const bool in_time = test::eventually([&] { return ended != 0; });
        e.set();
        const std::size_t made = test::allocations() - before;
        CHECK(made == 0);
        CHECK(in_time);
        CHECK(ended == 1);
        CHECK(through);
    }
}

// ---- Destruction

#if BIDE_TESTS_CAN_DIE

TEST_CASE("event: to destroy it while somebody waits terminates with its name and the count") {
    const std::string said = test::dies([] {
        bool through = false;
        std::optional<bide::event> e(std::in_place);
        auto first = pass(*e, through);
        auto second = pass(*e, through);
        auto third = pass(*e, through);
        first.start();
        second.start();
        third.start();
        second.destroy();
        e->reset();
        e.reset();
    });
    CHECK(test::contains(said, "event"));
    CHECK(test::contains(said, "2 waiting"));
}

TEST_CASE("event: to destroy it in peace is nobody's business, set or not") {
    CHECK(test::contains(test::dies([] {
                             bool through = false;
                             std::optional<bide::event> e(std::in_place);
                             auto c = pass(*e, through);
                             c.start();
                             c.destroy();
                             e.emplace(false);
                             auto d = pass(*e, through);
                             d.start();
                             e->set();
                             e->reset();
                             e.emplace(true);
                             e.reset();
                         }),
                         "[it lives on]"));
}

#endif

TEST_CASE("event: who is let through inside set() may destroy it there") {
    auto e = std::make_unique<bide::event>();
    int through = 0;
    // The first of three: the others are through, too, and have not run.
    [](std::unique_ptr<bide::event>& at, int& n) -> test::detached {
        co_await at->async_wait();
        at.reset();
        ++n;
    }(e, through);
    for (int i = 0; i < 2; ++i) {
        [](bide::event& at, int& n) -> test::detached {
            co_await at.async_wait();
            ++n;
        }(*e, through);
    }
    e->set();
    CHECK(e == nullptr);
    CHECK(through == 3);
}

TEMPLATE_TEST_CASE("event: who saw it set may destroy it at once, whatever the setter does", "",
                   test::native, test::portable) {
    using event = bide::basic_event<TestType>;
    const auto make = [](void* at, int) { return ::new (at) event; };
    const auto set = [](event& e) { e.set(); };
    const auto pass_it = [](event& e, int round) {
        switch (round % 5) {
        case 0: static_cast<void>(e.wait(std::stop_token())); break;
        case 1: e.wait(); break;
        case 2:
            while (!e.wait_for(std::chrono::nanoseconds(round % 1'000))) {
            }
            break;
        case 3: // with a look
            while (!e.is_set()) {
                bide::native_platform::pause();
            }
            break;
        default:
            bide::sync_wait([](event& at) -> bide::task<void> { co_await at.async_wait(); }(e));
        }
    };
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    CHECK(test::late_touches<event>(1, 4'000, make, set, pass_it) == 0);
}
