#include "support/event_waits.hpp"
#include "support/test.hpp"

#include <bide/sync/latch.hpp>

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

using counts = std::vector<int>;

constinit bide::latch two_at_start(2);
constinit bide::latch open_at_start(0);

} // namespace

TEST_CASE("latch: it can be constant-initialised") {
    CHECK(open_at_start.try_wait());
    CHECK_FALSE(two_at_start.try_wait());
    two_at_start.count_down(2);
    CHECK(two_at_start.try_wait());
}

TEST_CASE("latch: it opens when the count is zero, and not before") {
    bide::latch l(5);
    CHECK_FALSE(l.try_wait());
    l.count_down();
    l.count_down(3);
    CHECK_FALSE(l.try_wait());
    l.count_down(0); // nothing
    CHECK_FALSE(l.try_wait());
    l.arrive_and_wait();
    CHECK(l.try_wait());
    l.count_down(0); // it stays open
    l.arrive_and_wait(0);
    CHECK(l.try_wait());
    bide::latch none(0); // open at once
    none.wait();
    CHECK_THROWS_AS(none.count_down(), std::invalid_argument);
    CHECK(none.try_wait());
}

TEST_CASE(
    "latch: a count outside [0, max()], or above what is left, is refused and changes nothing") {
    using bide::latch;
    const bool has_waiter = GENERATE(false, true);
    CAPTURE(has_waiter);
    latch l(2);
    bool through = false;
    auto c = pass(l, through);
    if (has_waiter) {
        c.start();
    }
    const auto refuses = [&l](std::ptrdiff_t n) {
        CAPTURE(n);
        const bool before = l.try_wait();
        CHECK_THROWS_AS(l.count_down(n), std::invalid_argument);
        CHECK_THROWS_AS(l.arrive_and_wait(n), std::invalid_argument);
        CHECK(l.try_wait() == before);
    };
    for (const std::ptrdiff_t n : {std::ptrdiff_t{-1}, std::numeric_limits<std::ptrdiff_t>::min(),
                                   latch::max() + 1, std::numeric_limits<std::ptrdiff_t>::max()}) {
        CHECK_THROWS_AS(std::make_unique<latch>(n), std::invalid_argument);
        refuses(n);
    }
    for (const std::ptrdiff_t n : {std::ptrdiff_t{3}, std::ptrdiff_t{4}, latch::max()}) {
        refuses(n);
    }
    l.count_down();
    refuses(2);
    CHECK_FALSE(through);
    l.count_down();
    CHECK(l.try_wait());
    CHECK(through == has_waiter);
    refuses(1);
}

TEST_CASE("latch: it counts down from max()") {
    using bide::latch;
    const bool has_waiter = GENERATE(false, true);
    const bool at_once = GENERATE(false, true);
    CAPTURE(has_waiter, at_once);
    latch l(latch::max());
    bool through = false;
    auto c = pass(l, through);
    if (has_waiter) {
        c.start();
    }
    if (at_once) {
        l.count_down(latch::max());
    } else {
        l.count_down(latch::max() - 1);
        CHECK_FALSE(l.try_wait());
        CHECK_FALSE(through);
        l.count_down();
    }
    CHECK(l.try_wait());
    CHECK(through == has_waiter);
}
