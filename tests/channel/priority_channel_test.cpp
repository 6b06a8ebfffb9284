#include "support/alloc.hpp"
#include "support/channel_waits.hpp"
#include "support/counted.hpp"
#include "support/jitter.hpp"
#include "support/test.hpp"

#include <bide/channel/priority_channel.hpp>
#include <bide/channel/select.hpp>

using namespace test::channel_waits;

namespace {

using priority = bide::priority_channel<int>;
static_assert(!std::is_copy_constructible_v<priority> && !std::is_move_constructible_v<priority>);
static_assert(!std::is_default_constructible_v<priority>);
static_assert(std::is_same_v<priority::value_compare, std::less<>>);
static_assert(noexcept(std::declval<priority&>().try_send(1)));

// Its tens are its priority; its ones say when it was sent.
struct by_tens {
    bool operator()(int a, int b) const noexcept { return a / 10 < b / 10; }
};
using tens = bide::priority_channel<int, by_tens>;

} // namespace

TEST_CASE("priority_channel: a comparison decides, also one that std defines") {
    bide::priority_channel<std::string, std::greater<std::string>> least(3);
    for (const char* s : {"b", "a", "c"}) {
        CHECK(least.send(s));
    }
    CHECK(least.recv() == "a");
    CHECK(least.recv() == "b");
    int asked = 0;
    auto count = [&asked](int a, int b) noexcept {
        ++asked;
        return a < b;
    };
    bide::priority_channel<int, decltype(count)> counts(2, count);
    CHECK(counts.send(1));
    CHECK(asked == 0);
    CHECK(counts.send(2));
    CHECK(asked == 1);
    CHECK(counts.recv() == 2);
}

TEST_CASE("priority_channel: a comparison that is no order loses no item",
          "[promise.bad-comparison]") {
    test::jitter chance(test::run_seed());
    auto any = [&chance](const test::counted_once&, const test::counted_once&) noexcept {
        return chance.below(2) == 0;
    };
    test::tally t;
    {
        bide::priority_channel<test::counted_once, decltype(any)> ch(50, any);
        ints seen(400);
        for (int i = 0; i < 400; ++i) {
            while (!ch.try_send(test::counted_once(t, i))) {
                ++seen[static_cast<std::size_t>(ch.recv()->number())];
            }
        }
        while (auto got = ch.try_recv()) {
            ++seen[static_cast<std::size_t>(got->number())];
        }
        CHECK(std::count(seen.begin(), seen.end(), 1) == 400);
    }
    CHECK(t.alive() == 0);
    CHECK(t.copied == 0);
}

TEST_CASE("priority_channel: a select sends to it and receives from it, and never from itself") {
    priority ch(1);
    priority other(1);
    int mine = 7;
    {
        auto s = bide::select(bide::on_recv(ch), bide::on_send(ch, mine));
        REQUIRE(s.index() == 1); // it has room and no item
        auto r = bide::select(bide::on_recv(ch), bide::on_recv(other));
        REQUIRE(r.index() == 0);
        CHECK(r.get<0>() == 7);
    }
    // A select that waits with a case on each side of a channel, and one elsewhere.
    REQUIRE(ch.send(1));
    std::atomic<int> chosen{-1};
    [](priority& full, priority& empty, std::atomic<int>& out) -> test::detached {
        int value = 5;
        auto op = bide::async_select(bide::on_send(full, value), bide::on_recv(empty));
        auto s = co_await std::move(op);
        out = static_cast<int>(s.index());
    }(ch, other, chosen);
    CHECK(chosen == -1);
    CHECK(ch.recv() == 1);
    CHECK(chosen == 0);
    CHECK(other.send(2)); // its node is gone: the item stays
    CHECK(other.size() == 1);
    CHECK(take_all(ch) == ints{5});
}

TEST_CASE(
    "priority_channel: a coroutine that is resumed by a send, a receive or a close may use it") {
    priority ch(1);
    ints got;
    [](priority& from, ints& out) -> test::detached {
        for (;;) {
            const std::optional<int> item = co_await from.async_recv();
            if (!item) {
                out.push_back(static_cast<int>(from.size()));
                co_return;
            }
            out.push_back(*item);
        }
    }(ch, got);
    CHECK(ch.send(1));
    CHECK(ch.send(2));
    ch.close();
    CHECK(got == ints{1, 2, 0});
    priority full(1);
    CHECK(full.send(0));
    send_each(full, {1, 2, 3});
    CHECK(take_all(full) == ints{0, 1, 2, 3});
}

TEST_CASE("priority_channel: its handles close it when a side has gone") {
    auto [tx, rx] = bide::make_priority_channel<int>(2);
    CHECK(tx.send(1));
    auto copy = tx;
    CHECK(copy.send(2));
    CHECK(tx.is_full());
    CHECK(rx.capacity() == 2);
    {
        const auto gone = std::move(tx);
        const auto gone_too = std::move(copy);
    }
    CHECK(came_back(tx.send(3), errc::closed, 3)); // moved from
    CHECK(rx.recv() == 2);
    CHECK(rx.recv() == 1);
    CHECK_FALSE(rx.recv());
    CHECK_THROWS_AS(bide::make_priority_channel<int>(0), std::invalid_argument);
}

TEST_CASE("priority_channel: handles take a comparison of their own") {
    struct nearest {
        int to = 0;
        bool operator()(int a, int b) const noexcept { return std::abs(a - to) > std::abs(b - to); }
    };
    auto [tx, rx] = bide::make_priority_channel<int>(4, nearest{10});
    for (const int n : {1, 9, 13, 12}) {
        CHECK(tx.send(n));
    }
    ints got;
    CHECK(rx.recv_n(got, 3) == 3);
    CHECK(got == ints{9, 12, 13});
}

TEST_CASE("priority_channel: it allocates in its constructor, which rejects what it cannot keep") {
    CHECK_THROWS_AS(priority(0), std::invalid_argument);
    CHECK_THROWS_AS(priority((std::numeric_limits<std::size_t>::max)()), std::length_error);
    if (!test::counts_allocations()) {
        return;
    }
    const std::size_t before = test::allocations_here();
    priority ch(100);
    CHECK(test::allocations_here() == before + 1);
    for (int round = 0; round < 2; ++round) {
        for (int i = 0; i < 100; ++i) {
            static_cast<void>(ch.try_send(i % 7));
        }
        while (ch.try_recv()) {
        }
    }
    CHECK(test::allocations_here() == before + 1);
}
