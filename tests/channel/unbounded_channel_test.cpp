#include "support/alloc.hpp"
#include "support/channel_waits.hpp"
#include "support/counted.hpp"
#include "support/platforms.hpp"
#include "support/test.hpp"

#include <bide/channel/unbounded_channel.hpp>

namespace {

using bide::errc;
using test::channel_waits::ints;
using test::channel_waits::is;
using channel = bide::unbounded_channel<int>;

struct any {
    static channel& a() noexcept;
};
static_assert(!std::is_copy_constructible_v<channel> && !std::is_move_constructible_v<channel>);
static_assert(std::is_nothrow_default_constructible_v<channel>);
static_assert(noexcept(any::a().try_recv()) && noexcept(any::a().close()) &&
              noexcept(any::a().size()));
static_assert(std::ranges::input_range<channel>);

// The number of items that lie together.
template <class T>
constexpr int segment =
    static_cast<int>(bide::detail::basic_segment_queue<T, test::native>::segment_size);

// One that is not to go on.
template <class T> test::held ignore(test::manual_executor& on, bide::unbounded_channel<T>& ch) {
    const std::optional<T> got = co_await ch.async_recv().resume_on(on);
    static_cast<void>(got);
}
template <class T>
test::held ignore_many(test::manual_executor& on, bide::unbounded_channel<T>& ch,
                       std::vector<T>& out) {
    const std::size_t got = co_await ch.async_recv_n(out, 5).resume_on(on);
    static_cast<void>(got);
}

// Larger than a thread's stack.
struct huge {
    std::array<std::byte, (std::size_t{16} << 20)> bytes;
};

} // namespace

TEST_CASE("unbounded_channel: first in, first out, over many segments and again") {
    channel ch;
    CHECK(ch.empty());
    int next_in = 0;
    int next_out = 0;
    bool in_order = true;
    // Every number of items up to some segments is inside at some time.
    for (int round = 0; round < 2; ++round) {
        for (int n = 1; n < 4 * segment<int>; n += 7) {
            for (int i = 0; i < n; ++i) {
                REQUIRE(ch.send(next_in++));
                REQUIRE_FALSE(ch.empty()); // seen at once
            }
            REQUIRE(ch.size() == static_cast<std::size_t>(next_in - next_out));
            for (int i = 0; i < n - round; ++i) {
                in_order = in_order && ch.recv() == next_out++;
            }
        }
    }
    CHECK(in_order);
    while (auto got = ch.try_recv()) {
        in_order = in_order && *got == next_out++;
    }
    CHECK(in_order);
    CHECK(next_in == next_out);
    CHECK(ch.empty());
}

TEST_CASE("unbounded_channel: its capacity is the largest, and it is never full") {
    channel ch;
    static_assert(channel::unbounded == std::numeric_limits<std::size_t>::max());
    CHECK(ch.capacity() == channel::unbounded);
    CHECK_FALSE(ch.is_full());
    REQUIRE(ch.send(1));
    CHECK_FALSE(ch.is_full());
}

TEST_CASE("unbounded_channel: an item larger than the stack does not go over the stack") {
    bide::unbounded_channel<huge> ch;
    {
        std::vector<huge> one(1);
        one[0].bytes.back() = std::byte{42};
        REQUIRE(ch.try_send_n(one) == 1);
    }
    std::vector<huge> out;
    REQUIRE(ch.recv_n(out, 1) == 1);
    CHECK(out[0].bytes.back() == std::byte{42});
    REQUIRE(ch.try_send_n(out) == 1); // is destroyed with the channel
}

TEST_CASE("unbounded_channel: where sends and receives keep up, nothing is allocated") {
    if (!test::counts_allocations()) {
        return;
    }
    const std::size_t before = test::allocations_here();
    channel ch;
    CHECK(test::allocations_here() == before);
    for (int i = 0; i < segment<int> / 2; ++i) {
        static_cast<void>(ch.send(i));
    }
    CHECK(test::allocations_here() == before + 1);
    bool good = true;
    for (int i = 0; i < 20 * segment<int>; ++i) {
        good = good && ch.send(i) && ch.recv();
    }
    CHECK(good);
    CHECK(test::allocations_here() == before + 2); // the one that is filled, and the one emptied
    while (ch.try_recv()) {
    }
    for (int i = 0; i < 20 * segment<int>; ++i) {
        good = good && ch.send(i) && ch.recv();
        good = good && is(ch.try_recv_for(-1s), errc::timeout);
    }
    CHECK(good);
    CHECK(test::allocations_here() == before + 2);
}

TEST_CASE("unbounded_channel: an item that came to a destroyed receiver goes back unless closed or "
          "out of memory",
          "[promise.item-of-destroyed-coroutine]") {
    using item = test::counted_once;
    const bool many = GENERATE(false, true); // async_recv_n()
    test::tally t;
    test::manual_executor later;
    {
        bide::unbounded_channel<item> ch;
        std::vector<item> out;
        out.emplace_back(t, 90);
        const auto granted = [&](int number) {
            auto r = many ? ignore_many(later, ch, out) : ignore(later, ch);
            r.start();
            REQUIRE(ch.send(item(t, number)));
            REQUIRE(ch.empty());
            later.drop_all();
            return r;
        };
        const auto numbers_inside = [&ch] {
            ints all;
            while (const auto got = ch.try_recv()) {
                all.push_back(got->number());
            }
            return all;
        };
        const int stays = many ? 1 : 0; // where it cannot go back it stays in the vector

        if (test::counts_allocations()) {
            SECTION("no memory, and room only behind the other items") {
                auto one = granted(1);
                REQUIRE(ch.send(item(t, 2)));
                {
                    const test::out_of_memory now;
                    one.destroy();
                }
                CHECK(t.alive() == 3);
                CHECK(out.size() == 1);
                CHECK(numbers_inside() == ints{2, 1});
            }
            SECTION("no memory, and no room") {
                auto one = granted(1);
                for (int i = 0; i < segment<item>; ++i) {
                    REQUIRE(ch.send(item(t, i)));
                }
                {
                    const test::out_of_memory now;
                    one.destroy();
                }
                CHECK(t.alive() == 1 + segment<item> + stays);
                CHECK(ch.size() == static_cast<std::size_t>(segment<item>));
                CHECK(ch.recv()->number() == 0);
            }
        }
    }
    CHECK(t.alive() == 0);
    CHECK(t.copied == 0);
}

TEST_CASE("unbounded_channel: a thread that has sent can receive at once, beside other threads") {
    channel ch;
    std::atomic<int> empty{0};
    test::run_threads(4, [&](int) {
        for (int i = 0; i < 5'000; ++i) {
            static_cast<void>(ch.send(i));
            empty += ch.try_recv() ? 0 : 1;
        }
    });
    CHECK(empty == 0);
    CHECK(ch.empty());
}
