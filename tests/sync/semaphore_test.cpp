#include "support/death.hpp"
#include "support/last_touch.hpp"
#include "support/platforms.hpp"
#include "support/test.hpp"
#include "support/waiting.hpp"

#include <bide/sync/semaphore.hpp>

static_assert(sizeof(bide::semaphore) == 16 || sizeof(void*) != 8);
static_assert(sizeof(bide::semaphore::waiter) <= 64 || sizeof(void*) != 8);
static_assert(!std::is_move_constructible_v<bide::semaphore>);
static_assert(!std::is_move_assignable_v<bide::semaphore>);
static_assert(!std::is_move_constructible_v<bide::semaphore::waiter>);
static_assert(!std::is_convertible_v<std::ptrdiff_t, bide::semaphore>);
static_assert(!std::is_default_constructible_v<bide::semaphore>);

namespace {

constinit bide::semaphore ready_at_start(3);

} // namespace

TEST_CASE("semaphore: it can be constant-initialised") {
    CHECK(ready_at_start.available() == 3);
    ready_at_start.acquire(3);
    CHECK_FALSE(ready_at_start.try_acquire());
    ready_at_start.release(3);
}

TEST_CASE("semaphore: an acquired permit is not free until it is released") {
    bide::semaphore s(5);
    CHECK(s.available() == 5);
    CHECK(s.waiters() == 0);
    CHECK_FALSE(s.is_closed());

    s.acquire();
    CHECK(s.try_acquire(2));
    CHECK(s.available() == 2);
    CHECK_FALSE(s.try_acquire(3));
    CHECK(s.available() == 2);
    CHECK(s.try_acquire_for(1s, 2));
    CHECK_FALSE(s.try_acquire());

    s.release(4);
    s.release();
    CHECK(s.available() == 5);
    s.release(2); // more than was taken: they are added
    CHECK(s.try_acquire_until(steady_clock::now(), 7));
    CHECK(s.acquire(std::stop_token(), 0));
    CHECK(s.available() == 0);
}

TEST_CASE("semaphore: it counts up to max()") {
    using bide::semaphore;
    constexpr std::ptrdiff_t max = semaphore::max();
    STATIC_REQUIRE(max >= std::numeric_limits<std::int32_t>::max() / 4);

    semaphore full(max);
    CHECK(full.available() == max);
    CHECK_THROWS_AS(full.release(), std::overflow_error);
    CHECK_THROWS_AS(full.release(max), std::overflow_error);
    full.release(0);
    CHECK(full.available() == max);
    full.acquire(max);
    CHECK(full.available() == 0);
    full.release(max - 1);
    CHECK_THROWS_AS(full.release(2), std::overflow_error);
    CHECK(full.available() == max - 1);
    full.release(1);
    CHECK(full.available() == max);

    // If there are waiters, the permits that are left count.
    semaphore s(0);
    test::foreign head(s, 1);
    head.start();
    s.release(max);
    CHECK(head.is_complete());
    CHECK(s.available() == max - 1);
    CHECK_THROWS_AS(s.release(2), std::overflow_error);

    s.close();
    CHECK_THROWS_AS(s.release(2), std::overflow_error);
    CHECK(s.available() == max - 1);
}

TEST_CASE("semaphore: a count outside [0, max()] is refused and changes nothing") {
    using bide::semaphore;
    using permit = bide::permit;
    const bool has_waiter = GENERATE(false, true);
    CAPTURE(has_waiter);

    semaphore s(2);
    test::foreign head(s, 5);
    if (has_waiter) {
        head.start();
    }
    for (const std::ptrdiff_t n :
         {std::ptrdiff_t{-1}, std::numeric_limits<std::ptrdiff_t>::min(), semaphore::max() + 1,
          std::numeric_limits<std::ptrdiff_t>::max()}) {
        CAPTURE(n);
        CHECK_THROWS_AS(std::make_unique<semaphore>(n), std::invalid_argument);
        CHECK_THROWS_AS(s.acquire(n), std::invalid_argument);
        CHECK_THROWS_AS(s.acquire(std::stop_token(), n), std::invalid_argument);
        CHECK_THROWS_AS(s.try_acquire_for(0s, n), std::invalid_argument);
        CHECK_THROWS_AS(s.try_acquire_until(steady_clock::now(), n), std::invalid_argument);
        CHECK_THROWS_AS(s.async_acquire(n), std::invalid_argument);
        CHECK_THROWS_AS(s.release(n), std::invalid_argument);
        CHECK_THROWS_AS(permit(s, n), std::invalid_argument);

        CHECK_FALSE(s.try_acquire(n));
        CHECK_FALSE(permit(s, std::try_to_lock, n));
        CHECK(s.forget_permits(n) == 0);
        test::foreign refused(s, n);
        CHECK_FALSE(refused.start());
        CHECK_FALSE(refused.is_complete());

        CHECK(s.available() == (has_waiter ? 0 : 2));
        CHECK(s.waiters() == (has_waiter ? 1 : 0));
    }
    s.release(3);
    CHECK(s.available() == (has_waiter ? 0 : 5));
    CHECK(head.is_complete() == has_waiter);
}

TEMPLATE_TEST_CASE(
    "semaphore: what came before a release is seen by the waiter that it lets through",
    "[promise.release-visible]", test::native, test::portable) {
    using semaphore = bide::basic_semaphore<TestType>;
    // Plain data: ThreadSanitizer sees whether it is ordered. Each of the two releases brings its
    // own part, whichever way it takes.
    for (int round = 0; round < 200; ++round) {
        semaphore s(0);
        int parts[2] = {0, 0};
        int sum = 0;
        test::run_threads(3, [&](int i) {
            if (i < 2) {
                parts[i] = 1 + i;
                s.release();
            } else {
                s.acquire(2);
                sum = parts[0] + parts[1];
            }
        });
        REQUIRE(sum == 3);
    }
}

TEST_CASE("semaphore: close fails every waiter, and partial grants return",
          "[promise.close-semaphore]") {
    using bide::semaphore;
    semaphore s(0);
    test::foreign head(s, 5);
    head.start();
    s.release(3);

    int closed = 0; // by coroutines
    [](semaphore& from, int& n) -> test::detached {
        try {
            static_cast<void>(co_await from.async_acquire());
        } catch (const bide::closed_error& e) {
            n += e.code() == bide::errc::closed ? 1 : 0;
        }
    }(s, closed);
    [](semaphore& from, int& n) -> test::detached {
        const auto got = co_await from.async_acquire().as_result();
        n += !got && got.error() == bide::errc::closed ? 1 : 0;
    }(s, closed);
    bool failed[3] = {};
    test::team threads(3, [&](int i) {
        if (i == 0) {
            try {
                s.acquire();
            } catch (const bide::closed_error& e) {
                failed[i] = e.code() == bide::errc::closed;
            }
        } else if (i == 1) {
            const bide::result<void> got = s.acquire(std::stop_token());
            failed[i] = !got && got.error() == bide::errc::closed;
        } else {
            failed[i] = !s.try_acquire_for(1h);
        }
    });
    REQUIRE(test::has_waiters(s, 6));

    CHECK(s.close());
    CHECK(s.is_closed());
    CHECK(s.available() == 3);
    CHECK(s.waiters() == 0);
    REQUIRE(head.is_complete());
    CHECK_FALSE(head.outcome().has_value());
    CHECK(head.outcome().error() == bide::errc::closed);
    CHECK(head.wakes() == 1);
    CHECK_FALSE(head.cancel());
    CHECK(closed == 2);
    threads.join();
    for (const bool f : failed) {
        CHECK(f);
    }
}

TEST_CASE("semaphore: only the first close() returns true") {
    bide::semaphore s(1);
    STATIC_REQUIRE(noexcept(s.close()));
    CHECK(s.close());
    CHECK_FALSE(s.close());
    CHECK_FALSE(s.close());

    for (int round = 0; round < 100; ++round) {
        bide::semaphore contended(0);
        std::atomic<int> firsts{0};
        test::run_threads(3, [&](int) { firsts += contended.close() ? 1 : 0; });
        REQUIRE(firsts == 1);
    }
}

TEST_CASE("semaphore: after close every acquire fails and releases still count",
          "[promise.close-semaphore]") {
    using bide::semaphore;
    using permit = bide::permit;
    semaphore s(4);
    permit kept(s, 2);
    s.close();
    for (const int n : {0, 1, 2, 3}) {
        CAPTURE(n);
        CHECK_THROWS_AS(s.acquire(n), bide::closed_error);
        CHECK_FALSE(s.try_acquire(n));
        CHECK_FALSE(s.try_acquire_for(1h, n));
        CHECK_FALSE(s.try_acquire_until(steady_clock::time_point::max(), n));
        const bide::result<void> got = s.acquire(std::stop_token(), n);
        CHECK((!got && got.error() == bide::errc::closed));
        CHECK_THROWS_AS(permit(s, n), bide::closed_error);
        CHECK_FALSE(permit(s, std::try_to_lock, n));
        test::foreign late(s, n);
        CHECK(late.start());
        REQUIRE(late.is_complete());
        CHECK(late.outcome().error() == bide::errc::closed);
        CHECK(late.wakes() == 0);
        int error = 0;
        [](semaphore& from, std::ptrdiff_t m, int& e) -> test::detached {
            const auto result = co_await from.async_acquire(m).as_result();
            e = result ? -1 : static_cast<int>(result.error());
        }(s, n, error);
        CHECK(error == static_cast<int>(bide::errc::closed));
    }
    // Whatever the limits: nothing is to be waited for any longer.
    std::stop_source stop;
    stop.request_stop();
    std::vector<bide::errc> errors;
    [](semaphore& from, std::stop_token t, std::vector<bide::errc>& e) -> test::detached {
        const auto stopped = co_await from.async_acquire().with_stop(t);
        e.push_back(stopped.error());
        const auto in_time = co_await from.async_acquire().with_timeout(1h);
        e.push_back(in_time.error());
        const auto late = co_await from.async_acquire().with_timeout(0s);
        e.push_back(late.error());
    }(s, stop.get_token(), errors);
    CHECK(errors == std::vector<bide::errc>(3, bide::errc::closed));
    CHECK(s.available() == 2);
    s.release();
    CHECK(s.available() == 3);
    kept.reset(); // held permits stay valid
    CHECK(s.available() == 5);
    CHECK(s.forget_permits(1) == 1);
}

TEST_CASE("semaphore: a coroutine that is granted inside release may destroy it there") {
    using bide::semaphore;
    auto s = std::make_unique<semaphore>(0);
    SECTION("a coroutine") {
        [](std::unique_ptr<semaphore>& from) -> test::detached {
            auto got = co_await from->async_acquire(2);
            got.forget();
            from.reset();
        }(s);
        s->release();
        s->release();
    }
    SECTION("a foreign waker") {
        struct owner {
            std::unique_ptr<semaphore>& mine;
            static void wake(void* self) noexcept { static_cast<owner*>(self)->mine.reset(); }
        } destroyer{s};
        typename semaphore::waiter w(1, bide::waker(&owner::wake, &destroyer));
        s->acquire_wait(w);
        s->release();
    }
    SECTION("one that closing fails") {
        [](std::unique_ptr<semaphore>& from) -> test::detached {
            static_cast<void>(co_await from->async_acquire().as_result());
            from.reset();
        }(s);
        CHECK(s->close());
    }
    CHECK(s == nullptr);
}

TEMPLATE_TEST_CASE("semaphore: a thread that acquired may destroy it before the releases return",
                   "[promise.destroy-after-success]", test::native, test::portable) {
    using semaphore = bide::basic_semaphore<TestType>;
    constexpr int releasers = 3;
    const auto make = [](void* at, int round) {
        return ::new (at) semaphore(round % 3 == 0 ? 1 : 0);
    };
    const auto release = [](semaphore& s) { s.release(); };
    const auto acquire_all = [](semaphore& s, int round) {
        const int all = releasers + (round % 3 == 0 ? 1 : 0);
        if (round % 2 == 0) {
            s.acquire(all);
        } else {
            for (int i = 0; i < all; ++i) {
                s.acquire();
            }
        }
    };
    CHECK(test::late_touches<semaphore>(releasers, 3'000, make, release, acquire_all) == 0);
}
