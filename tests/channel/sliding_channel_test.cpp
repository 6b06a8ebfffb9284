#include "support/alloc.hpp"
#include "support/channel_waits.hpp"
#include "support/counted.hpp"
#include "support/test.hpp"

#include <bide/channel/select.hpp>
#include <bide/channel/sliding_channel.hpp>

using namespace test::channel_waits;

namespace {

using sliding = bide::sliding_channel<int>;
static_assert(!std::is_copy_constructible_v<sliding> && !std::is_move_constructible_v<sliding>);
static_assert(noexcept(std::declval<sliding&>().replace(1)));

} // namespace

TEST_CASE("sliding_channel: no form of send waits, and each displaces the oldest item",
          "[promise.sliding-displaces]") {
    sliding ch;
    CHECK(ch.capacity() == 1);
    CHECK(ch.send(1));
    CHECK(ch.send(std::stop_token(), 2));
    CHECK(ch.try_send(3));
    CHECK(ch.try_send_for(4, 0s));
    CHECK(ch.try_send_until(5, steady_clock::time_point::min()));
    send_ending now;
    let_go(ch.async_send(6), now);
    CHECK(is_sent(now));
    int mine = 7;
    auto s = bide::select(bide::on_send(ch, mine));
    CHECK(s.get<0>());
    ints batch{8, 9, 10};
    CHECK(ch.try_send_n(batch) == 3);
    CHECK_FALSE(ch.is_full());
    CHECK(ch.recv() == 10);
    CHECK(is(ch.try_recv(), errc::empty));
}

TEST_CASE("sliding_channel: replace returns the item that made room, and send destroys it",
          "[promise.sliding-displaces]") {
    using item = std::unique_ptr<int>;
    bide::sliding_channel<item> ch;
    auto first = ch.replace(std::make_unique<int>(1));
    REQUIRE(first);
    CHECK_FALSE(*first);
    auto second = ch.replace(std::make_unique<int>(2));
    REQUIRE((second && *second));
    CHECK(***second == 1);
    ch.close();
    auto third = ch.replace(std::make_unique<int>(3));
    REQUIRE_FALSE(third);
    CHECK(third.error().code == errc::closed);
    CHECK(*third.error().value == 3);
    CHECK(**ch.recv() == 2);
    CHECK_FALSE(ch.recv());

    test::tally t;
    {
        bide::sliding_channel<test::counted_once> counts(2);
        for (int i = 0; i < 10; ++i) {
            REQUIRE(counts.send(test::counted_once(t, i)));
            REQUIRE(t.alive() == std::min(i + 1, 2));
        }
    }
    CHECK(t.alive() == 0);
    CHECK(t.copied == 0);
}

TEST_CASE("sliding_channel: a constructor allocates and rejects a capacity, and nothing else") {
    CHECK_THROWS_AS(sliding(0), std::invalid_argument);
    CHECK_THROWS_AS(sliding((std::numeric_limits<std::size_t>::max)()), std::length_error);
    CHECK_THROWS_AS(bide::make_sliding_channel<int>(0), std::invalid_argument);
    if (!test::counts_allocations()) {
        return;
    }
    const std::size_t before = test::allocations_here();
    sliding ch(3);
    CHECK(test::allocations_here() == before + 1);
    for (int i = 0; i < 100; ++i) {
        static_cast<void>(ch.send(i));
    }
    CHECK(test::allocations_here() == before + 1);
}

TEST_CASE("sliding_channel: its handles close it when a side has gone") {
    auto [tx, rx] = bide::make_sliding_channel<int>();
    CHECK(tx.send(1));
    CHECK_FALSE(tx.is_full());
    CHECK(tx.send(2));
    {
        const auto gone = std::move(tx);
    }
    CHECK(rx.recv() == 2);
    CHECK_FALSE(rx.recv());
    CHECK(came_back(tx.send(3), errc::closed, 3)); // moved from
}
