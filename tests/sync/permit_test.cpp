#include "support/jitter.hpp"
#include "support/test.hpp"
#include "support/waiting.hpp"

#include <bide/sync/semaphore.hpp>

using namespace bide;

static_assert(sizeof(permit) <= 2 * sizeof(void*));
static_assert(!std::is_copy_constructible_v<permit>);
static_assert(!std::is_copy_assignable_v<permit>);
static_assert(std::is_nothrow_default_constructible_v<permit>);
static_assert(std::is_nothrow_move_constructible_v<permit>);
static_assert(std::is_nothrow_move_assignable_v<permit>);
static_assert(std::is_nothrow_constructible_v<permit, semaphore&, std::try_to_lock_t>);
static_assert(std::is_nothrow_constructible_v<permit, semaphore&, std::adopt_lock_t, int>);
static_assert(!std::is_nothrow_constructible_v<permit, semaphore&>);
static_assert(!std::is_convertible_v<semaphore&, permit>);
static_assert(!std::is_convertible_v<permit, bool>); // explicitly only

namespace {

test::held_on<test::manual_executor> acquire_on(test::manual_executor&, semaphore& s) {
    const auto one = co_await s.async_acquire();
}

} // namespace

TEST_CASE("permit: an empty one owns nothing and gives nothing back") {
    permit none;
    CHECK_FALSE(none);
    CHECK(none.count() == 0);
    none.reset();
    none.forget();
    permit part = none.split(0);
    CHECK_FALSE(part);
    CHECK_THROWS_AS(none.split(1), std::invalid_argument);
    permit moved = std::move(none);
    CHECK_FALSE(moved);
    moved = permit();
    CHECK_FALSE(moved);
}

TEST_CASE("permit: its constructor waits in the queue") {
    semaphore s(0);
    std::ptrdiff_t got = 0;
    test::team waiting(1, [&](int) {
        const permit two(s, 2);
        got = two.count();
    });
    REQUIRE(test::has_waiters(s, 1));
    s.release(2);
    waiting.join();
    CHECK(got == 2);
    CHECK(s.available() == 2);
}

TEST_CASE("permit: its try constructor takes all or nothing") {
    semaphore s(2);
    const permit three(s, std::try_to_lock, 3);
    CHECK_FALSE(three);
    CHECK(three.count() == 0);
    const permit two(s, std::try_to_lock, 2);
    CHECK(two);
    CHECK(two.count() == 2);
    const permit one(s, std::try_to_lock);
    CHECK_FALSE(one);
    CHECK(s.available() == 0);
}

TEST_CASE("permit: an adopted one gives back what its maker acquired") {
    semaphore s(3);
    s.acquire(3);
    {
        const permit adopted(s, std::adopt_lock, 2);
        CHECK(adopted.count() == 2);
        CHECK(s.available() == 0);
    }
    CHECK(s.available() == 2);
    {
        const permit adopted(s, std::adopt_lock);
    }
    CHECK(s.available() == 3);
}

TEST_CASE("permit: one of 0 permits belongs to its semaphore") {
    semaphore s(0);
    {
        permit none(s, 0);
        CHECK(none);
        CHECK(none.count() == 0);
        semaphore other(1);
        CHECK_THROWS_AS(none.merge(permit(other)), std::invalid_argument);
        CHECK(other.available() == 1);
    }
    CHECK(s.available() == 0);
}

TEST_CASE("permit: forgotten permits vanish") {
    semaphore s(3);
    {
        permit two(s, 2);
        two.forget();
        CHECK_FALSE(two);
        CHECK(two.count() == 0);
    }
    CHECK(s.available() == 1);
}

TEST_CASE("permit: a split moves permits and changes no count") {
    semaphore s(5);
    {
        permit whole(s, 5);
        permit part = whole.split(2);
        CHECK(whole.count() == 3);
        CHECK(part.count() == 2);
        const permit nothing = whole.split(0);
        CHECK(nothing.count() == 0);
        const permit rest = whole.split(3);
        CHECK(whole.count() == 0);
        CHECK(rest.count() == 3);
        CHECK(s.available() == 0);
        part.reset();
        CHECK(s.available() == 2);
    }
    CHECK(s.available() == 5);
}

TEST_CASE("permit: a split outside [0, count()] is refused and changes nothing") {
    semaphore s(3);
    permit whole(s, 3);
    for (const std::ptrdiff_t n :
         {std::ptrdiff_t{-1}, std::ptrdiff_t{4}, std::numeric_limits<std::ptrdiff_t>::min(),
          std::numeric_limits<std::ptrdiff_t>::max()}) {
        CAPTURE(n);
        CHECK_THROWS_AS(whole.split(n), std::invalid_argument);
        CHECK(whole.count() == 3);
        CHECK(s.available() == 0);
    }
}

TEST_CASE("permit: a merge of another semaphore's is refused and changes nothing") {
    semaphore s(2);
    semaphore other(2);
    {
        permit mine(s, 2);
        permit foreign(other, 1);
        CHECK_THROWS_AS(mine.merge(std::move(foreign)), std::invalid_argument);
        CHECK(mine.count() == 2);
        CHECK(foreign.count() == 1);
        CHECK(other.available() == 1);
    }
    CHECK(s.available() == 2);
    CHECK(other.available() == 2);
}

TEST_CASE(
    "permit: what does not fit after a release by others is dropped, and the count stays max()",
    "[promise.permit-fits-max]") {
    const auto max = bide::semaphore::max();
    bide::semaphore s(10);
    {
        bide::permit a(s, 3);
        bide::permit b(s, 2);
        bide::permit c(s, 1);
        bide::permit part = a.split(1);
        s.release(max - s.available()); // more than were taken
        REQUIRE(s.available() == max);
        a.reset();
        CHECK(s.available() == max);
        b = bide::permit();
        CHECK(s.available() == max);
        part.merge(std::move(c));
        CHECK(part.count() == 2);
        REQUIRE(s.try_acquire(1));
    } // `part`: one of its two fits
    CHECK(s.available() == max);
}

TEST_CASE(
    "permit: a grant that a destroyed coroutine leaves behind is dropped if it does not fit") {
    const auto max = bide::semaphore::max();
    bide::semaphore s(0);
    test::manual_executor e;
    {
        auto waits = acquire_on(e, s);
        waits.start();
        s.release(1); // to the coroutine, which is not resumed
        s.release(max);
        REQUIRE(s.available() == max);
    }
    CHECK(s.available() == max);
}

TEST_CASE("permit: a merge past max() is refused and changes nothing") {
    const auto max = bide::semaphore::max();
    bide::semaphore s(max);
    bide::permit all(s, max);
    s.release(1); // one too many
    bide::permit one(s);
    REQUIRE_THROWS_AS(all.merge(std::move(one)), std::overflow_error);
    CHECK(all.count() == max);
    CHECK(one.count() == 1);
    all.reset();
    one.reset();
    CHECK(s.available() == max);
}

TEST_CASE("permit: a count outside [0, max()] is not adopted") {
    bide::semaphore s(1);
    CHECK_FALSE(bide::permit(s, std::adopt_lock, -1));
    CHECK_FALSE(bide::permit(s, std::adopt_lock, bide::semaphore::max() + 1));
    CHECK(s.available() == 1);
}

TEST_CASE("permit: what it gives back goes to the waiters") {
    semaphore s(2);
    permit held(s, 2);
    test::foreign next(s, 1);
    test::foreign last(s, 1);
    next.start();
    last.start();
    held.split(1).reset();
    CHECK(next.is_complete());
    CHECK_FALSE(last.is_complete());
    CHECK(s.available() == 0);
    held.reset();
    CHECK(last.is_complete());
}

TEST_CASE("permit: splits, merges, moves and resets at random lose none") {
    const std::uint32_t seed = test::run_seed();
    INFO("BIDE_TEST_SEED=" << seed);
    test::jitter chance(seed);
    constexpr std::ptrdiff_t all = 100;
    semaphore s(all);
    {
        std::vector<permit> held(8);
        for (int step = 0; step < 20'000; ++step) {
            permit& a = held[chance.below(8)];
            permit& b = held[chance.below(8)];
            const auto some = [&](std::ptrdiff_t n) {
                return static_cast<std::ptrdiff_t>(chance.below(static_cast<std::uint32_t>(n) + 1));
            };
            switch (chance.below(6)) {
            case 0: a = permit(s, std::try_to_lock, some(10)); break;
            case 1:
                a.merge(std::move(b));
                REQUIRE((!b || &a == &b));
                break;
            case 2: a.merge(b.split(some(b.count()))); break;
            case 3: a = b.split(some(b.count())); break;
            case 4:
                a = std::move(b);
                REQUIRE((!b || &a == &b));
                break;
            default: a.reset(); REQUIRE_FALSE(a);
            }
            std::ptrdiff_t sum = s.available();
            for (const permit& p : held) {
                sum += p.count();
                REQUIRE((p || p.count() == 0));
            }
            REQUIRE(sum == all);
        }
    }
    CHECK(s.available() == all);
}
