#include "support/is_free.hpp"
#include "support/test.hpp"

#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/scoped_lock.hpp>
#include <bide/sync/shared_mutex.hpp>

static_assert(!std::is_copy_constructible_v<bide::scoped_lock<bide::mutex>>);
static_assert(std::is_nothrow_move_constructible_v<bide::scoped_lock<bide::mutex, std::mutex>>);

TEST_CASE("scoped_lock: locks mutexes of several kinds, in any order, and unlocks them") {
    bide::mutex a;
    bide::adaptive_mutex b;
    bide::shared_mutex c;
    std::mutex d;
    {
        const bide::scoped_lock held(d, b, a, c);
        CHECK(held);
        CHECK_FALSE(test::is_free(a));
        CHECK_FALSE(test::is_free(b));
        CHECK_FALSE(test::is_free(c));
        CHECK_FALSE(test::is_free(d));
    }
    {
        bide::scoped_lock held(a);
        bide::scoped_lock other(std::move(held));
        CHECK_FALSE(held);
        CHECK(other);
        CHECK_FALSE(test::is_free(a));
        other.unlock();
        other.unlock();
        CHECK_FALSE(other);
        CHECK(test::is_free(a));
    }
    a.lock();
    c.lock();
    {
        bide::scoped_lock held(std::adopt_lock, a, c);
        CHECK(held);
        held = bide::scoped_lock(std::try_to_lock, a, c); // not free: locks none, and unlocks both
        CHECK_FALSE(held);
    }
    CHECK(test::is_free(a));
    CHECK(test::is_free(b));
    CHECK(test::is_free(c));
    CHECK(test::is_free(d));
}

TEST_CASE("scoped_lock: a mutex that is in the list twice is refused, and nothing is locked",
          "[promise.misuse-refused]") {
    bide::mutex a;
    bide::mutex b;
    CHECK_THROWS_AS(bide::scoped_lock(a, a), std::invalid_argument);
    CHECK_THROWS_AS(bide::scoped_lock(a, b, a), std::invalid_argument);
    CHECK_THROWS_AS(bide::scoped_lock(b, a, a), std::invalid_argument);
    CHECK_THROWS_AS(bide::scoped_lock(std::try_to_lock, b, a, b), std::invalid_argument);
    CHECK(test::is_free(a));
    CHECK(test::is_free(b));
}

TEST_CASE("scoped_lock: a try, a time-out and a stop lock all of them or none",
          "[promise.several-locks]") {
    bide::mutex m[3];
    const int taken = GENERATE(0, 1, 2);
    CAPTURE(taken);
    m[taken].lock();
    std::stop_source stop;
    stop.request_stop();
    const auto none = [&](auto&&... how) {
        const bide::scoped_lock held(how..., m[2], m[0], m[1]);
        bool free = true;
        for (int i = 0; i < 3; ++i) {
            free = free && (test::is_free(m[i]) || i == taken);
        }
        return !held && free;
    };
    CHECK(none(std::try_to_lock));
    CHECK(none(1ms));
    CHECK(none(0s));
    CHECK(none(std::chrono::steady_clock::now() + 1ms));
    CHECK(none(stop.get_token()));
    m[taken].unlock();
    const auto all = [&](auto&&... how) {
        const bide::scoped_lock held(how..., m[2], m[0], m[1]);
        return static_cast<bool>(held) && !test::is_free(m[0]) && !test::is_free(m[1]) &&
               !test::is_free(m[2]);
    };
    CHECK(all(std::try_to_lock));
    CHECK(all(0s));
    CHECK(all(std::chrono::hours::max()));
    CHECK(all(std::chrono::steady_clock::now() + 1h));
    CHECK(all(stop.get_token()));
    CHECK(all());
    for (auto& each : m) {
        CHECK(test::is_free(each));
    }
}

TEST_CASE("scoped_lock: an exception of a lock unlocks the mutexes before it") {
    struct thrower {
        void lock() { throw std::runtime_error("no"); }
        void unlock() {}
    };
    struct {
        bide::mutex first;
        thrower second;
        bide::mutex third;
    } m;
    CHECK_THROWS_AS(bide::scoped_lock(m.third, m.second, m.first), std::runtime_error);
    CHECK(test::is_free(m.first));
    CHECK(test::is_free(m.third));
}

TEST_CASE("scoped_lock: gets its turn while other threads never leave its mutexes free",
          "[promise.several-locks]") {
    bide::mutex a;
    bide::mutex b;
    std::atomic<bool> over{false};
    test::team busy(4, [&](int i) {
        while (!over) {
            const std::scoped_lock held(i % 2 == 0 ? a : b);
        }
    });
    for (int i = 0; i < 100; ++i) {
        const bide::scoped_lock held(a, b);
    }
    over = true;
    busy.join();
    CHECK(test::is_free(a));
    CHECK(test::is_free(b));
}
