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

#include <bide/sync/event.hpp>
#include <bide/task/task.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using namespace test::event_waits;

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

TEMPLATE_TEST_CASE("event: a wait while it is set returns at once", "", test::native,
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

TEMPLATE_TEST_CASE("event: set() lets every waiter through, of every kind", "", test::native,
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

TEMPLATE_TEST_CASE("event: a waiter that was let through stays let through after a reset", "",
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
        REQUIRE_FALSE(e.wait_for(0s)); // a later wait has to wait
    }
}

TEMPLATE_TEST_CASE("event: a reset neither lets waiters through nor ends their waits", "",
                   test::native, test::portable) {
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

TEST_CASE("event: a coroutine that resets it inside set() waits for the next set()") {
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

TEMPLATE_TEST_CASE("event: sets and resets that race leave no waiter behind", "", test::native,
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

TEMPLATE_TEST_CASE(
    "event: what came before set() is seen by a waiter that it lets through, or that sees it set",
    "[promise.release-visible]", test::native, test::portable) {
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

TEMPLATE_TEST_CASE(
    "event: a consumer that resets, looks and waits misses no set() of two producers",
    "[promise.event-set-before-reset]", test::native, test::portable) {
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

// ---- Coroutines

TEST_CASE("event: after its last waiter has left, it is set and reset as before") {
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

TEST_CASE("event: a chain of sets takes constant stack space") {
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

// ---- Destruction

#if BIDE_TESTS_CAN_DIE

TEST_CASE(
    "event: destroying it while there are waiters terminates with its name and their number") {
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

TEST_CASE("event: destroying it without waiters is allowed, set or not") {
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

TEMPLATE_TEST_CASE("event: a thread that sees it set may destroy it before set() returns",
                   "[promise.destroy-after-success]", test::native, test::portable) {
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
