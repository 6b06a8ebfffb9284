#include "support/event_waits.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/test.hpp"

#include <bide/sync/event.hpp>

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

constinit bide::event unset_at_start;
constinit bide::event set_at_start(true);

} // namespace

TEST_CASE("event: it can be constant-initialised") {
    CHECK_FALSE(unset_at_start.is_set());
    CHECK(set_at_start.is_set());
    unset_at_start.set();
    CHECK(unset_at_start.is_set());
    unset_at_start.reset();
}

TEST_CASE("event: it is set from set() to reset(), however often each is called") {
    using bide::event;
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

TEST_CASE("event: a waiter that was let through stays let through after a reset") {
    using platform = test::observing<test::native>;
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
        in_time = test::are_asleep<test::native>(3);
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

TEST_CASE("event: a reset neither lets waiters through nor ends their waits") {
    bide::event e;
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

TEST_CASE("event: a consumer that resets, looks and waits misses no set() of two producers",
          "[promise.event-set-before-reset]") {
    constexpr int items = 2'000;
    bide::event e;
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
