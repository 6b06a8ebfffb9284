#include "support/catch.hpp"
#include "support/coroutines.hpp"
#include "support/death.hpp"
#include "support/event_waits.hpp"
#include "support/gate.hpp"
#include "support/jitter.hpp"
#include "support/last_touch.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/waiting.hpp"

#include <bide/sync/latch.hpp>
#include <bide/task/task.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using namespace test::event_waits;

static_assert(sizeof(bide::latch) == 16 || sizeof(void*) != 8);
static_assert(!std::is_copy_constructible_v<bide::latch>);
static_assert(!std::is_move_constructible_v<bide::latch>);
static_assert(!std::is_move_assignable_v<bide::latch>);
static_assert(!std::is_default_constructible_v<bide::latch>);
static_assert(!std::is_convertible_v<std::ptrdiff_t, bide::latch>);
static_assert(noexcept(std::declval<const bide::latch&>().try_wait()));
static_assert(bide::latch::max() >= std::numeric_limits<std::ptrdiff_t>::max() / 8);

namespace {

using std::chrono::steady_clock;
using counts = std::vector<int>;

constinit bide::latch two_at_start(2);
constinit bide::latch open_at_start(0);

} // namespace

// ---- Counting

TEST_CASE("latch: it can be constant-initialised") {
    CHECK(open_at_start.try_wait());
    CHECK_FALSE(two_at_start.try_wait());
    two_at_start.count_down(2);
    CHECK(two_at_start.try_wait());
}

TEMPLATE_TEST_CASE("latch: it opens when the count is zero, and not before", "", test::native,
                   test::portable) {
    const test::watchdog guard;
    bide::basic_latch<TestType> l(5);
    CHECK_FALSE(l.try_wait());
    l.count_down();
    l.count_down(3);
    CHECK_FALSE(l.try_wait());
    CHECK_FALSE(l.wait_for(0s));
    l.count_down(0); // nothing
    CHECK_FALSE(l.try_wait());
    l.arrive_and_wait();
    CHECK(l.try_wait());

    // It stays open, in every way.
    std::stop_source stop;
    stop.request_stop();
    l.wait();
    l.count_down(0);
    l.arrive_and_wait(0);
    CHECK(l.wait_for(-1h));
    CHECK(l.wait_until(steady_clock::time_point::min()));
    CHECK(l.wait(std::stop_token()));
    CHECK(l.wait(stop.get_token()));
    std::atomic<what> ends[2] = {};
    note_stopped(l, stop.get_token(), ends[0]);
    note_late(l, -1s, ends[1]);
    CHECK(ends[0] == what::through);
    CHECK(ends[1] == what::through);
    bool through = false;
    auto c = pass(l, through);
    c.start();
    CHECK(c.done());
    CHECK(through);
    CHECK(l.try_wait());
}

TEMPLATE_TEST_CASE("latch: with a count of 0 it is open at once", "", test::native,
                   test::portable) {
    const test::watchdog guard;
    bide::basic_latch<TestType> l(0);
    CHECK(l.try_wait());
    l.wait();
    CHECK_THROWS_AS(l.count_down(), std::invalid_argument);
    CHECK(l.try_wait());
}

TEMPLATE_TEST_CASE("latch: a count outside [0, max()] is refused and changes nothing", "",
                   test::native, test::portable) {
    using latch = bide::basic_latch<TestType>;
    const bool has_waiter = GENERATE(false, true);
    CAPTURE(has_waiter);
    const test::watchdog guard;
    latch l(2);
    bool through = false;
    auto c = pass(l, through);
    if (has_waiter) {
        c.start();
    }
    for (const std::ptrdiff_t n : {std::ptrdiff_t{-1}, std::numeric_limits<std::ptrdiff_t>::min(),
                                   latch::max() + 1, std::numeric_limits<std::ptrdiff_t>::max()}) {
        CAPTURE(n);
        CHECK_THROWS_AS(std::make_unique<latch>(n), std::invalid_argument);
        CHECK_THROWS_AS(l.count_down(n), std::invalid_argument);
        CHECK_THROWS_AS(l.arrive_and_wait(n), std::invalid_argument);
        CHECK_FALSE(l.try_wait());
    }
    l.count_down();
    CHECK_FALSE(l.try_wait());
    CHECK_FALSE(through);
    l.count_down();
    CHECK(l.try_wait());
    CHECK(through == has_waiter);
}

TEMPLATE_TEST_CASE("latch: to count down more than is left is refused and changes nothing", "",
                   test::native, test::portable) {
    using latch = bide::basic_latch<TestType>;
    const bool has_waiter = GENERATE(false, true);
    CAPTURE(has_waiter);
    const test::watchdog guard;
    latch l(2);
    bool through = false;
    auto c = pass(l, through);
    if (has_waiter) {
        c.start();
    }
    for (const std::ptrdiff_t n : {std::ptrdiff_t{3}, std::ptrdiff_t{4}, latch::max()}) {
        CAPTURE(n);
        CHECK_THROWS_AS(l.count_down(n), std::invalid_argument);
        CHECK_THROWS_AS(l.arrive_and_wait(n), std::invalid_argument);
        CHECK_FALSE(l.try_wait());
        CHECK_FALSE(through);
    }
    l.count_down();
    CHECK_THROWS_AS(l.count_down(2), std::invalid_argument);
    CHECK_FALSE(l.try_wait());
    l.count_down();
    CHECK(through == has_waiter);
    CHECK_THROWS_AS(l.count_down(), std::invalid_argument);
    CHECK_THROWS_AS(l.arrive_and_wait(), std::invalid_argument);
    CHECK(l.try_wait());
}

TEMPLATE_TEST_CASE("latch: it counts down from max()", "", test::native, test::portable) {
    using latch = bide::basic_latch<TestType>;
    const bool has_waiter = GENERATE(false, true);
    CAPTURE(has_waiter);
    latch all(latch::max());
    latch most(latch::max());
    bool through[2] = {};
    auto first = pass(all, through[0]);
    auto second = pass(most, through[1]);
    if (has_waiter) {
        first.start();
        second.start();
    }
    all.count_down(latch::max());
    CHECK(all.try_wait());
    most.count_down(latch::max() - 1);
    CHECK_FALSE(most.try_wait());
    CHECK_FALSE(through[1]);
    most.count_down();
    CHECK(most.try_wait());
    CHECK(through[0] == has_waiter);
    CHECK(through[1] == has_waiter);
}

// ---- Waiting

TEMPLATE_TEST_CASE("latch: the last arrival lets every waiter through, of every kind", "",
                   test::native, test::portable) {
    using platform = test::observing<TestType>;
    const test::watchdog guard;
    bide::basic_latch<platform> l(3);
    std::stop_source never;
    std::atomic<int> through{0};
    test::journal turns;
    std::atomic<what> ends[2] = {};
    bool good[5] = {};
    for (int i = 0; i < 3; ++i) {
        note_turn(l, turns, i);
    }
    test::team threads(5, [&](int i) {
        switch (i) {
        case 0: l.wait(), good[i] = true; break;
        case 1: good[i] = l.wait_for(1h); break;
        case 2: good[i] = l.wait_until(steady_clock::now() + 1h); break;
        case 3: good[i] = l.wait(never.get_token()).has_value(); break;
        default: l.arrive_and_wait(), good[i] = true; break;
        }
        ++through;
    });
    REQUIRE(test::are_asleep<TestType>(5));
    note_stopped(l, never.get_token(), ends[0]);
    note_late(l, 1h, ends[1]);
    note_turn(l, turns, 3);

    l.count_down(); // one is missing still
    CHECK(through == 0);
    CHECK(turns.size() == 0);
    CHECK_FALSE(l.try_wait());
    l.count_down();
    CHECK(l.try_wait());
    CHECK(turns.entries() == counts{0, 1, 2, 3}); // in the order they came
    CHECK(ends[0] == what::through);
    CHECK(ends[1] == what::through);
    threads.join();
    for (const bool g : good) {
        CHECK(g);
    }
}

TEMPLATE_TEST_CASE("latch: each arrival counts, while other threads arrive, wait and give up", "",
                   test::native, test::portable) {
    using latch = bide::basic_latch<TestType>;
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    for (int round = 0; round < 300; ++round) {
        latch l(6);
        int parts[3] = {};
        int sums[3] = {};
        bool early[3] = {};
        test::run_threads(3, [&](int i) {
            test::jitter pause(test::run_seed() + static_cast<std::uint32_t>(round * 3 + i));
            early[i] = early[i] || l.try_wait();
            pause();
            l.count_down();
            pause();
            early[i] = early[i] || l.wait_for(std::chrono::nanoseconds(pause.below(20'000)));
            parts[i] = 1 + i; // plain: a sanitizer sees whether it is ordered
            l.arrive_and_wait();
            sums[i] = parts[0] + parts[1] + parts[2];
        });
        for (int i = 0; i < 3; ++i) {
            REQUIRE_FALSE(early[i]);
            REQUIRE(sums[i] == 6);
        }
        REQUIRE(l.try_wait());
    }
}

TEMPLATE_TEST_CASE(
    "latch: what came before an arrival is seen by a thread that sees the count at zero", "",
    test::native, test::portable) {
    for (int round = 0; round < 200; ++round) {
        bide::basic_latch<TestType> l(2);
        int parts[2] = {};
        int sums[2] = {};
        test::run_threads(4, [&](int i) {
            if (i < 2) {
                parts[i] = 1 + i;
                l.count_down();
            } else if (i == 2) {
                l.wait();
                sums[0] = parts[0] + parts[1];
            } else if (test::eventually([&] { return l.try_wait(); })) {
                sums[1] = parts[0] + parts[1];
            }
        });
        REQUIRE(sums[0] == 3);
        REQUIRE(sums[1] == 3);
    }
}

// ---- Coroutines

TEST_CASE("latch: after its last waiter has left, it counts as before") {
    const test::watchdog guard;
    bide::latch l(2);
    bool through = false;
    auto gone = pass(l, through);
    gone.start();
    l.count_down();
    gone.destroy();
    CHECK_FALSE(l.wait_for(1ms));
    CHECK_THROWS_AS(l.count_down(2), std::invalid_argument);
    l.count_down();
    CHECK(l.try_wait());
    CHECK_FALSE(through);
}

TEMPLATE_TEST_CASE("latch: threads and sync_wait pass it together", "", test::native,
                   test::portable) {
    bide::basic_latch<TestType> l(4);
    bool through[4] = {};
    test::run_threads(4, [&](int i) {
        if (i % 2 == 0) {
            l.arrive_and_wait();
        } else {
            l.count_down();
            bide::sync_wait([](bide::basic_latch<TestType>& at) -> bide::task<void> {
                co_await at.async_wait();
            }(l));
        }
        through[i] = l.try_wait();
    });
    for (const bool t : through) {
        CHECK(t);
    }
}

// ---- Destruction

#if BIDE_TESTS_CAN_DIE

TEST_CASE(
    "latch: destroying it while there are waiters terminates with its name and their number") {
    const std::string said = test::dies([] {
        bool through = false;
        std::optional<bide::latch> l(std::in_place, 2);
        auto first = pass(*l, through);
        auto second = pass(*l, through);
        auto third = pass(*l, through);
        first.start();
        second.start();
        third.start();
        second.destroy();
        l->count_down();
        l.reset();
    });
    CHECK(test::contains(said, "latch"));
    CHECK(test::contains(said, "2 waiting"));
}

TEST_CASE("latch: destroying it without waiters is allowed, open or not") {
    CHECK(test::contains(test::dies([] {
                             bool through = false;
                             std::optional<bide::latch> l(std::in_place, 2);
                             auto c = pass(*l, through);
                             c.start();
                             c.destroy();
                             l->count_down();
                             l.emplace(1);
                             auto d = pass(*l, through);
                             d.start();
                             l->count_down();
                             l.reset();
                         }),
                         "[it lives on]"));
}

#endif

TEST_CASE("latch: a coroutine that was let through does not access it again, wherever it resumes") {
    const test::watchdog guard;
    test::manual_executor later;
    std::stop_source stop;
    what end = what::nothing_yet;
    alignas(bide::latch) unsigned char place[sizeof(bide::latch)];
    unsigned char pattern[sizeof place];
    std::memset(pattern, 0x5a, sizeof pattern); // as a lock that is free, with a sleeper
    auto* const l = ::new (static_cast<void*>(place)) bide::latch(1);
    auto c = pass_on_until_stopped(later, *l, stop.get_token(), end);
    c.start();
    l->count_down();
    REQUIRE(l->try_wait()); // so it may be destroyed
    l->~basic_latch();
    std::memcpy(place, pattern, sizeof place);
    SECTION("resumed") { CHECK(later.run_all() == 1); }
    SECTION("stopped, and resumed") {
        stop.request_stop();
        CHECK(later.run_all() == 1);
    }
    SECTION("destroyed") {
        later.drop_all();
        c.destroy();
    }
    CHECK(end != what::stopped);
    CHECK(std::memcmp(place, pattern, sizeof place) == 0);
}

TEMPLATE_TEST_CASE(
    "latch: a thread that sees it at zero may destroy it before the calls of count_down() return",
    "[promise.destroy-after-success]", test::native, test::portable) {
    using latch = bide::basic_latch<TestType>;
    constexpr int arriving = 3;
    const auto make = [](void* at, int round) {
        return ::new (at) latch(arriving + (round % 5 == 0 ? 1 : 0));
    };
    const auto arrive = [](latch& l) { l.count_down(); };
    const auto pass_it = [](latch& l, int round) {
        switch (round % 5) {
        case 0: l.arrive_and_wait(); break;
        case 1: l.wait(); break;
        case 2:
            while (!l.wait_for(std::chrono::nanoseconds(round % 1'000))) {
            }
            break;
        case 3: // with a look
            while (!l.try_wait()) {
                bide::native_platform::pause();
            }
            break;
        default:
            bide::sync_wait([](latch& at) -> bide::task<void> { co_await at.async_wait(); }(l));
        }
    };
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    CHECK(test::late_touches<latch>(arriving, 3'000, make, arrive, pass_it) == 0);
}
