// The waits that an event and a latch have in common: each is a gate of detail/gate.hpp.

#include "support/alloc.hpp"
#include "support/catch.hpp"
#include "support/coroutines.hpp"
#include "support/event_waits.hpp"
#include "support/gate.hpp"
#include "support/jitter.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/waiting.hpp"

#include <bide/core/timer.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/latch.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using namespace test::event_waits;

namespace {

using std::chrono::steady_clock;

// An event, and a latch of one arrival, with one interface.
template <class Platform> struct an_event {
    using platform = Platform;
    template <class P> struct gate : bide::basic_event<P> {
        void open() { this->set(); }
        bool is_open() const { return this->is_set(); }
    };
};
template <class Platform> struct a_latch {
    using platform = Platform;
    template <class P> struct gate : bide::basic_latch<P> {
        gate() : bide::basic_latch<P>(1) {}
        void open() { this->count_down(); }
        bool is_open() const { return this->try_wait(); }
    };
};
template <class Kind> using gate_of = typename Kind::template gate<typename Kind::platform>;

} // namespace

// ---- Deadlines

TEMPLATE_TEST_CASE("event and latch: zero, negative and past times mean one attempt", "",
                   an_event<test::native>, an_event<test::portable>, a_latch<test::native>,
                   a_latch<test::portable>) {
    using std::chrono::duration;
    const test::watchdog guard(20s);
    gate_of<TestType> g;
    CHECK_FALSE(g.wait_for(0s));
    CHECK_FALSE(g.wait_for(-1ns));
    CHECK_FALSE(g.wait_for(std::chrono::hours::min()));
    CHECK_FALSE(g.wait_for(duration<double>(-1e300)));
    CHECK_FALSE(g.wait_until(steady_clock::now()));
    CHECK_FALSE(g.wait_until(steady_clock::time_point::min()));
    CHECK_FALSE(g.wait_until(std::chrono::system_clock::now() - 24h));
    std::atomic<what> ends[2] = {};
    note_late(g, 0s, ends[0]);
    note_late(g, -1h, ends[1]);
    CHECK(ends[0] == what::timeout); // without suspending
    CHECK(ends[1] == what::timeout);
    CHECK_FALSE(g.is_open());
    g.open();
    CHECK(g.wait_for(0s));
}

TEMPLATE_TEST_CASE("event and latch: a time-out is not early, by its own clock", "",
                   an_event<test::native>, an_event<test::portable>, a_latch<test::native>,
                   a_latch<test::portable>) {
    gate_of<TestType> g;
    const auto start = steady_clock::now();
    CHECK_FALSE(g.wait_for(15'000'000ns));
    CHECK(steady_clock::now() >= start + 15ms);
    const auto steady = steady_clock::now() + 15ms;
    CHECK_FALSE(g.wait_until(steady));
    CHECK(steady_clock::now() >= steady);
    const auto system = std::chrono::system_clock::now() + 15ms;
    CHECK_FALSE(g.wait_until(system));
    CHECK(std::chrono::system_clock::now() >= system);
    std::atomic<what> end{};
    const auto before = steady_clock::now();
    note_late(g, 15ms, end);
    REQUIRE(test::eventually([&] { return end != what::nothing_yet; }));
    CHECK(end == what::timeout);
    CHECK(steady_clock::now() >= before + 15ms);
}

TEMPLATE_TEST_CASE("event and latch: a huge time-out never ends the wait, the opening does", "",
                   an_event<test::native>, an_event<test::portable>, a_latch<test::native>,
                   a_latch<test::portable>) {
    using platform = test::observing<typename TestType::platform>;
    typename TestType::template gate<platform> g;
    bool got[4] = {};
    test::team waiting(4, [&](int i) {
        switch (i) {
        case 0: got[i] = g.wait_for(std::chrono::hours::max()); break;
        case 1: got[i] = g.wait_for(std::chrono::duration<double>(1e300)); break;
        case 2: got[i] = g.wait_until(steady_clock::time_point::max()); break;
        default: got[i] = g.wait_until(std::chrono::system_clock::time_point::max());
        }
    });
    REQUIRE(test::are_asleep<typename TestType::platform>(4));
    g.open();
    waiting.join();
    for (const bool through : got) {
        CHECK(through);
    }
}

// ---- Stops

TEMPLATE_TEST_CASE("event and latch: a stop that was requested before ends a wait that has to wait",
                   "", an_event<test::native>, an_event<test::portable>, a_latch<test::native>,
                   a_latch<test::portable>) {
    const test::watchdog guard;
    gate_of<TestType> g;
    std::stop_source stop;
    stop.request_stop();
    CHECK(is(g.wait(stop.get_token()), bide::errc::stopped));
    std::atomic<what> end{};
    note_stopped(g, stop.get_token(), end);
    REQUIRE(test::eventually([&] { return end != what::nothing_yet; }));
    CHECK(end == what::stopped);
    g.open();
    CHECK(g.wait(stop.get_token())); // ready first
}

TEMPLATE_TEST_CASE("event and latch: a stop ends the waits it is for and no other", "",
                   an_event<test::native>, an_event<test::portable>, a_latch<test::native>,
                   a_latch<test::portable>) {
    using platform = test::observing<typename TestType::platform>;
    const test::watchdog guard;
    typename TestType::template gate<platform> g;
    std::stop_source stop;
    std::stop_source other;
    std::atomic<what> ends[4] = {};
    note_stopped(g, stop.get_token(), ends[0]);
    note_stopped(g, other.get_token(), ends[1]);
    test::team threads(2, [&](int i) {
        const std::stop_token token = i == 0 ? stop.get_token() : other.get_token();
        ends[2 + i] = of(g.wait(token));
    });
    REQUIRE(test::are_asleep<typename TestType::platform>(2));
    stop.request_stop();
    REQUIRE(test::eventually(
        [&] { return ends[0] != what::nothing_yet && ends[2] != what::nothing_yet; }));
    CHECK(ends[0] == what::stopped);
    CHECK(ends[2] == what::stopped);
    CHECK(ends[1] == what::nothing_yet);
    CHECK(ends[3] == what::nothing_yet);
    g.open();
    threads.join();
    CHECK(ends[1] == what::through);
    CHECK(ends[3] == what::through);
    other.request_stop(); // too late for anything
}

TEMPLATE_TEST_CASE("event and latch: a stop resumes no coroutine on the thread that requests it",
                   "", an_event<test::native>, a_latch<test::native>) {
    const test::watchdog guard;
    gate_of<TestType> g;
    std::stop_source stop;
    std::thread::id on;
    std::atomic<bool> over{false};
    [](gate_of<TestType>& at, std::stop_token t, std::thread::id& id,
       std::atomic<bool>& end) -> test::detached {
        const auto got = co_await at.async_wait().with_stop(t);
        id = test::this_thread();
        end = !got;
    }(g, stop.get_token(), on, over);
    stop.request_stop();
    REQUIRE(test::eventually([&] { return over.load(); }));
    CHECK(on != test::this_thread());
}

TEMPLATE_TEST_CASE("event and latch: a coroutine that was let through stays let through", "",
                   an_event<test::native>, a_latch<test::native>) {
    const test::watchdog guard;
    test::manual_executor later;
    gate_of<TestType> g;
    what end = what::nothing_yet;
    SECTION("whatever is stopped afterwards") {
        std::stop_source stop;
        auto c = pass_on_until_stopped(later, g, stop.get_token(), end);
        c.start();
        g.open();
        stop.request_stop();
        REQUIRE(later.run_all() == 1);
        CHECK(c.done());
    }
    SECTION("whatever the clock says afterwards") {
        const auto when = steady_clock::now() + 200ms;
        auto c = pass_on_until(later, g, when, end);
        c.start();
        g.open();
        REQUIRE(later.size() == 1); // else it has taken 200 ms to come here
        REQUIRE(test::eventually([&] { return steady_clock::now() > when + 20ms; }));
        REQUIRE(later.run_all() == 1);
        CHECK(c.done());
    }
    CHECK(end == what::through);
}

TEMPLATE_TEST_CASE(
    "event and latch: a stop and the opening at once end a wait once, as one of the two", "",
    an_event<test::native>, an_event<test::portable>, a_latch<test::native>,
    a_latch<test::portable>) {
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    for (int round = 0; round < 500; ++round) {
        gate_of<TestType> g;
        std::stop_source stop;
        std::atomic<int> ended{0};
        std::atomic<what> end{};
        what of_thread = what::nothing_yet;
        [](gate_of<TestType>& at, std::stop_token t, std::atomic<what>& out,
           std::atomic<int>& n) -> test::detached {
            const auto got = co_await at.async_wait().with_stop(t);
            out = of(got);
            ++n;
        }(g, stop.get_token(), end, ended);
        test::run_threads(3, [&](int i) {
            test::jitter pause(test::run_seed() + static_cast<std::uint32_t>(round * 3 + i));
            pause();
            if (i == 0) {
                g.open();
            } else if (i == 1) {
                stop.request_stop();
            } else {
                of_thread = of(g.wait(stop.get_token()));
            }
        });
        REQUIRE(test::eventually([&] { return ended != 0; }));
        REQUIRE(ended == 1);
        REQUIRE((end == what::through || end == what::stopped));
        REQUIRE((of_thread == what::through || of_thread == what::stopped));
        REQUIRE(g.is_open());
    }
}

// ---- Coroutines

TEMPLATE_TEST_CASE("event and latch: a coroutine that is destroyed while it waits leaves the queue",
                   "", an_event<test::native>, a_latch<test::native>) {
    const test::watchdog guard;
    const int leaves = GENERATE(0, 1, 2);
    CAPTURE(leaves);
    gate_of<TestType> g;
    bool through[3] = {};
    std::vector<test::held> waiting;
    for (bool& t : through) {
        waiting.push_back(pass(g, t));
        waiting.back().start();
    }
    waiting[static_cast<std::size_t>(leaves)].destroy();
    g.open();
    for (int i = 0; i < 3; ++i) {
        CHECK(through[i] == (i != leaves));
    }
}

TEMPLATE_TEST_CASE("event and latch: one that is let through may destroy another that is", "",
                   an_event<test::native>, a_latch<test::native>) {
    gate_of<TestType> g;
    bool through = false;
    auto second = pass(g, through);
    auto first = [](gate_of<TestType>& at, test::held& victim) -> test::held {
        co_await at.async_wait();
        victim.destroy();
    }(g, second);
    first.start();
    second.start();
    g.open();
    CHECK(first.done());
    CHECK_FALSE(through);
}

TEMPLATE_TEST_CASE(
    "event and latch: a coroutine resumes where it asked to, else inside the opening", "",
    an_event<test::native>, a_latch<test::native>) {
    test::manual_executor later;
    gate_of<TestType> g;
    bool there = false;
    bool here = false;
    auto first = pass_on(later, g, there);
    auto second = pass(g, here);
    first.start();
    second.start();
    g.open();
    CHECK(here);
    CHECK_FALSE(there);
    CHECK(later.run_all() == 1);
    CHECK(there);
}

// ---- Allocation

TEMPLATE_TEST_CASE("event and latch: no wait allocates", "[promise.no-wait-allocates]",
                   an_event<test::native>, an_event<test::portable>, a_latch<test::native>,
                   a_latch<test::portable>) {
    using platform = test::observing<typename TestType::platform>;
    using gate = typename TestType::template gate<platform>;
    const test::watchdog guard;
    gate g;
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
                timed_out = !g.wait_for(1ms);
                good[i] = g.wait_for(1h) && timed_out;
            } else if (i == 1) {
                good[i] = !g.wait(token) && g.wait(idle);
            } else {
                g.wait();
                good[i] = true;
            }
            made[i] = test::allocations_here() - before;
        });
        const bool all = test::eventually([&] { return timed_out.load(); }) &&
                         test::are_asleep<typename TestType::platform>(3);
        const std::size_t before = test::allocations_here();
        stop.request_stop();
        g.open();
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
        gate start;
        std::atomic<int> ended{0};
        [](gate& first, gate& at, std::stop_token t, std::atomic<int>& end) -> test::detached {
            co_await first.async_wait();
            const auto stopped = co_await at.async_wait().with_stop(t);
            const auto late = co_await at.async_wait().with_timeout(1ms);
            end = !stopped && !late ? 1 : -1;
        }(start, g, token, ended);
        bool through = false;
        auto other = pass(g, through);
        const std::size_t before = test::allocations();
        other.start();
        start.open();
        stop.request_stop();
        const bool in_time = test::eventually([&] { return ended != 0; });
        g.open();
        const std::size_t made = test::allocations() - before;
        CHECK(made == 0);
        CHECK(in_time);
        CHECK(ended == 1);
        CHECK(through);
    }
}

// ---- Destruction

TEMPLATE_TEST_CASE(
    "event and latch: a coroutine that is let through by the opening may destroy it there", "",
    an_event<test::native>, a_latch<test::native>) {
    auto g = std::make_unique<gate_of<TestType>>();
    int through = 0;
    // The first of three: the other two are let through, too, and have not run.
    [](std::unique_ptr<gate_of<TestType>>& at, int& n) -> test::detached {
        co_await at->async_wait();
        at.reset();
        ++n;
    }(g, through);
    for (int i = 0; i < 2; ++i) {
        [](gate_of<TestType>& at, int& n) -> test::detached {
            co_await at.async_wait();
            ++n;
        }(*g, through);
    }
    g->open();
    CHECK(g == nullptr);
    CHECK(through == 3);
}
