#include "support/alloc.hpp"
#include "support/channel_waits.hpp"
#include "support/coroutines.hpp"
#include "support/counted.hpp"
#include "support/gate.hpp"
#include "support/platforms.hpp"
#include "support/stop.hpp"
#include "support/test.hpp"

#include <bide/channel/channel.hpp>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BIDE_TESTS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define BIDE_TESTS_SANITIZED 1
#endif
#endif
#if !defined(BIDE_TESTS_SANITIZED)
#define BIDE_TESTS_SANITIZED 0
#endif

using namespace std::chrono_literals;
using namespace test::channel_waits;

namespace {

// The face, and what of it cannot throw.
struct any {
    static channel& a() noexcept;
};
static_assert(!std::is_copy_constructible_v<channel> && !std::is_move_constructible_v<channel>);
static_assert(!std::is_default_constructible_v<channel>);
static_assert(!std::is_convertible_v<std::size_t, channel>);
static_assert(std::is_same_v<channel::value_type, int>);
static_assert(std::is_same_v<decltype(any::a().send(1)), sent<int>>);
static_assert(std::is_same_v<decltype(any::a().send(std::stop_token(), 1)), sent<int>>);
static_assert(std::is_same_v<decltype(any::a().try_send(1)), sent<int>>);
static_assert(std::is_same_v<decltype(any::a().try_send_for(1, 1s)), sent<int>>);
static_assert(std::is_same_v<decltype(any::a().try_send_until(1, steady_clock::now())), sent<int>>);
static_assert(std::is_same_v<decltype(any::a().async_send(1)), bide::async_op<sent<int>>>);
static_assert(std::is_same_v<decltype(any::a().recv()), std::optional<int>>);
static_assert(std::is_same_v<decltype(any::a().recv(std::stop_token())), bide::result<int>>);
static_assert(std::is_same_v<decltype(any::a().try_recv()), bide::result<int>>);
static_assert(std::is_same_v<decltype(any::a().try_recv_for(1s)), bide::result<int>>);
static_assert(
    std::is_same_v<decltype(any::a().try_recv_until(steady_clock::now())), bide::result<int>>);
static_assert(std::is_same_v<decltype(any::a().async_recv()), bide::async_op<std::optional<int>>>);
static_assert(noexcept(any::a().try_send(1)) && noexcept(any::a().try_recv()));
static_assert(noexcept(any::a().try_send_n(std::span<int>())));
static_assert(noexcept(any::a().close()) && noexcept(any::a().is_closed()));
static_assert(noexcept(any::a().capacity()) && noexcept(any::a().size()));

static_assert(std::input_iterator<bide::channel<int>::iterator>);
static_assert(std::sentinel_for<std::default_sentinel_t, bide::channel<int>::iterator>);
static_assert(std::ranges::input_range<bide::channel<int>>);
using tried = decltype(std::declval<bide::channel<std::unique_ptr<int>>&>().try_iter());
static_assert(std::ranges::input_range<tried> && std::movable<tried>);
static_assert(std::is_same_v<std::ranges::range_reference_t<tried>, std::unique_ptr<int>&>);
static_assert(std::input_iterator<bide::channel<std::unique_ptr<int>>::iterator>);

// Coroutines that wait, in the hand of the test.
template <class Channel> test::held send_one(Channel& ch, int value, bool& ok) {
    const auto got = co_await ch.async_send(value);
    ok = got.has_value();
}
template <class Channel> test::detached send_all(Channel& ch, int from, int to) {
    for (int i = from; i < to; ++i) {
        const auto got = co_await ch.async_send(i);
        if (!got) {
            co_return;
        }
    }
}
template <class Channel> test::detached recv_all(Channel& ch, ints& out) {
    for (;;) {
        const std::optional<int> got = co_await ch.async_recv();
        if (!got) {
            co_return;
        }
        out.push_back(*got);
    }
}

} // namespace

// ---- Capacity

TEST_CASE(
    "channel: its capacity is exact, its size counts its items, and it is first in, first out",
    "[promise.channel-capacity]") {
    for (std::size_t capacity = 1; capacity <= 9; ++capacity) {
        channel ch(capacity);
        REQUIRE(ch.capacity() == capacity);
        for (int lap = 0; lap < 4; ++lap) {
            REQUIRE(ch.empty());
            const int first = lap * 10;
            const int end = first + static_cast<int>(capacity);
            for (int i = first; i < end; ++i) {
                REQUIRE(ch.size() == static_cast<std::size_t>(i - first));
                REQUIRE_FALSE(ch.is_full());
                REQUIRE(ch.try_send(i));
                REQUIRE_FALSE(ch.empty());
            }
            REQUIRE(ch.is_full());
            REQUIRE(ch.size() == capacity);
            REQUIRE(came_back(ch.try_send(99), errc::full, 99));
            REQUIRE(take_all(ch) == numbers(first, end));
            REQUIRE(is(ch.try_recv(), errc::empty));
        }
    }
}

// ---- No capacity

TEST_CASE("channel: without a capacity it is empty and full at any time",
          "[promise.channel-capacity]") {
    channel ch(0);
    const auto nothing_inside = [&] {
        return ch.size() == 0 && ch.empty() && ch.is_full() && ch.capacity() == 0;
    };
    CHECK(nothing_inside());
    CHECK(came_back(ch.try_send(1), errc::full, 1));
    CHECK(is(ch.try_recv(), errc::empty));
    bool ok = false;
    auto sender = send_one(ch, 5, ok);
    sender.start();
    CHECK(nothing_inside());
    CHECK(came_back(ch.try_send(1), errc::full, 1)); // another sender is no receiver
    CHECK(ch.try_recv().value() == 5);
    CHECK(ok);
    CHECK(nothing_inside());
    CHECK(is(ch.try_recv(), errc::empty));
}

// ---- Closing

// ---- Batches

TEST_CASE("channel: try_send_n moves a prefix and leaves the rest unchanged") {
    for (std::size_t capacity = 1; capacity <= 5; ++capacity) {
        for (std::size_t before = 0; before < 2 * capacity; ++before) { // where in the ring
            bide::channel<std::unique_ptr<int>> ch(capacity);
            for (std::size_t i = 0; i < before; ++i) {
                REQUIRE(ch.try_send(nullptr));
                REQUIRE(ch.try_recv());
            }
            for (std::size_t n = 0; n <= 7; ++n) {
                std::vector<std::unique_ptr<int>> items;
                for (std::size_t i = 0; i < n; ++i) {
                    items.push_back(std::make_unique<int>(static_cast<int>(i)));
                }
                const std::size_t fit = std::min(n, capacity);
                REQUIRE(ch.try_send_n(items) == fit);
                REQUIRE(ch.size() == fit);
                for (std::size_t i = 0; i < n; ++i) {
                    REQUIRE((items[i] == nullptr) == (i < fit));
                    const auto got = i < fit ? *ch.try_recv() : std::move(items[i]);
                    REQUIRE(*got == static_cast<int>(i));
                }
            }
        }
    }
}

TEST_CASE("channel: try_recv_n appends what there is, at most as many as asked for") {
    channel ch(5);
    ints out{-1};
    CHECK(ch.try_recv_n(out, 3) == 0);
    int next = 0;
    int taken = 0;
    for (std::size_t round = 0; round < 30; ++round) {
        while (ch.try_send(next)) {
            ++next;
        }
        const std::size_t max = round % 7;
        const std::size_t n = ch.try_recv_n(out, max);
        REQUIRE(n == std::min<std::size_t>(max, 5));
        taken += static_cast<int>(n);
        REQUIRE(out.size() == static_cast<std::size_t>(taken) + 1);
    }
    while (ch.try_send(next)) {
        ++next;
    }
    // A number that no memory has room for asks for what there is.
    CHECK(ch.try_recv_n(out, std::numeric_limits<std::size_t>::max()) == 5);
    CHECK(ch.empty());
    CHECK(out.front() == -1);
    out.erase(out.begin());
    CHECK(out == numbers(0, next));
}

TEST_CASE("channel: recv_n takes the items that are there, and none if none is asked for") {
    channel ch(3);
    ints out{7};
    CHECK(ch.recv_n(out, 0) == 0); // it does not wait for nothing
    for (int i = 0; i < 3; ++i) {
        REQUIRE(ch.try_send(i));
    }
    CHECK(ch.recv_n(out, 0) == 0);
    CHECK(ch.recv_n(out, 2) == 2);
    CHECK(ch.recv_n(out, std::numeric_limits<std::size_t>::max()) == 1);
    CHECK(out == ints{7, 0, 1, 2});
    ch.close();
    CHECK(ch.recv_n(out, 2) == 0);
    CHECK(ch.recv_n(out, 0) == 0);
}

// ---- Iteration

TEST_CASE("channel: a loop over it receives until it is closed and drained") {
    const std::size_t capacity = GENERATE(0u, 1u, 4u);
    bide::channel<std::unique_ptr<int>> ch(capacity);
    bool all_went = true;
    test::team sending(1, [&](int) {
        for (int i = 0; i < 100; ++i) {
            all_went = ch.send(std::make_unique<int>(i)).has_value() && all_went;
        }
        ch.close();
    });
    ints out;
    for (std::unique_ptr<int> item : ch) {
        out.push_back(*item);
    }
    sending.join();
    CHECK(all_went);
    CHECK(out == numbers(0, 100));
    for ([[maybe_unused]] const auto& item : ch) {
        FAIL("nothing comes after the end");
    }
}

TEST_CASE("channel: try_iter() gives present items and new ones, and ends without waiting") {
    bide::channel<std::unique_ptr<int>> ch(4);
    ints out;
    const auto send = [&ch](int i) { return ch.try_send(std::make_unique<int>(i)).has_value(); };
    REQUIRE((send(1) && send(2)));
    for (auto& item : ch.try_iter()) {
        out.push_back(*item);
        if (*item == 2) {
            REQUIRE(send(3));
        }
    }
    CHECK(out == ints{1, 2, 3});
    CHECK_FALSE(ch.is_closed());
    REQUIRE((send(4) && send(5) && send(6)));
    auto left = ch.try_iter();
    const auto is_five = [](const auto& item) { return *item == 5; };
    CHECK(std::ranges::find_if(left, is_five) != left.end());
    CHECK(ch.size() == 1);
    ch.close();
    std::ranges::for_each(left, [&out](auto& item) { out.push_back(*item); });
    CHECK(out == ints{1, 2, 3, 6});
    CHECK(left.begin() == left.end());
}

TEST_CASE("channel: a loop that ends early has received only the items that it saw") {
    channel ch(4);
    for (int i = 0; i < 4; ++i) {
        REQUIRE(ch.try_send(i));
    }
    for (const int i : ch) {
        if (i == 1) {
            break;
        }
    }
    CHECK(ch.size() == 2);
    int sum = 0;
    for (const int i : ch.try_iter() | std::views::take(1)) {
        sum += i;
    }
    CHECK(sum == 2);
    CHECK(ch.size() == 1);
}

// ---- Lifetimes

TEST_CASE("channel: the items in it are destroyed with it, once") {
    for (std::size_t capacity = 1; capacity <= 6; ++capacity) {
        for (std::size_t inside = 0; inside <= capacity; ++inside) {
            for (std::size_t before = 0; before <= capacity; ++before) { // where in the ring
                for (const bool closed : {false, true}) {
                    test::tally in;
                    {
                        bide::channel<test::counted_once> ch(capacity);
                        for (std::size_t i = 0; i < before; ++i) {
                            REQUIRE(ch.try_send(test::counted_once(in, 0)));
                            REQUIRE(ch.try_recv());
                        }
                        for (std::size_t i = 0; i < inside; ++i) {
                            REQUIRE(ch.try_send(test::counted_once(in, 1)));
                        }
                        if (closed) {
                            ch.close();
                        }
                        REQUIRE(in.alive() == static_cast<int>(inside));
                    }
                    REQUIRE(in.alive() == 0);
                    REQUIRE(in.copied == 0);
                }
            }
        }
    }
}

// ---- Stamps of 16 bits

// A coroutine that sends all the time finds the channel full at each position in turn, one that
// receives finds it empty there.
TEST_CASE("channel: waiters are served at every position, also when 16-bit stamps wrap") {
    for (std::size_t capacity = 0; capacity <= 9; ++capacity) {
        CAPTURE(capacity);
        constexpr int n = 40'000; // a lap of 9 has 32 positions: 2,048 laps, 18,432 items
        {
            bide::basic_channel<int, test::native, std::uint16_t> ch(capacity);
            send_all(ch, 0, n);
            bool good = true;
            for (int i = 0; i < n && good; ++i) {
                const auto left = static_cast<std::size_t>(n - i);
                good = ch.size() == std::min(capacity, left);
                const auto got = ch.try_recv();
                good = good && got && *got == i;
            }
            REQUIRE(good);
        }
        bide::basic_channel<int, test::native, std::uint16_t> ch(capacity);
        ints out;
        recv_all(ch, out);
        bool good = true;
        for (int i = 0; i < n && good; ++i) {
            good = ch.try_send(i) && ch.empty();
        }
        REQUIRE(good);
        REQUIRE(out == numbers(0, n));
        ch.close();
    }
}

// ---- Bad input

TEST_CASE("channel: a capacity that no memory can hold throws") {
    using large = std::array<int, 16'384>;
    using pages = bide::channel<large>;
    using small = bide::basic_channel<int, test::native, std::uint16_t>;
    constexpr auto most = std::numeric_limits<std::size_t>::max();
    CHECK_THROWS_AS(channel(most), std::length_error);
    CHECK_THROWS_AS(channel(most / 2 + 1), std::length_error);
    CHECK_THROWS_AS(pages(most / sizeof(large)), std::length_error);
    CHECK_THROWS_AS(small(4'095), std::length_error);
    CHECK_THROWS_AS(small(65'536), std::length_error); // 0, in 16 bits
    CHECK(small(4'094).capacity() == 4'094);
#if !BIDE_TESTS_SANITIZED // a sanitizer ends the process instead
    CHECK_THROWS_AS(channel(bide::basic_ring<int>::max_capacity()), std::bad_alloc);
    CHECK_THROWS_AS(pages(std::size_t{1} << 45), std::bad_alloc);
#endif
}

TEST_CASE("channel: durations that are not numbers, negative or beyond all time are one attempt or "
          "for ever") {
    using seconds = std::chrono::duration<double>;
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const std::size_t capacity = GENERATE(0u, 1u);
    channel ch(capacity);
    for (const double rest : {nan, 0.0, -0.0, -1e-9, -1e300, -infinity}) {
        CHECK(is(ch.try_recv_for(seconds(rest)), errc::timeout));
    }
    CHECK(is(ch.try_recv_for(std::chrono::hours::min()), errc::timeout));
    CHECK(is(ch.try_recv_for(std::chrono::nanoseconds::min()), errc::timeout));
    CHECK(is(ch.try_recv_until(steady_clock::time_point::min()), errc::timeout));
    CHECK(is(ch.try_recv_until(std::chrono::system_clock::time_point::min()), errc::timeout));
    while (ch.try_send(1)) {
    }
    for (const double rest : {nan, 0.0, -0.0, -1e-9, -1e300, -infinity}) {
        CHECK(came_back(ch.try_send_for(5, seconds(rest)), errc::timeout, 5));
    }
    CHECK(came_back(ch.try_send_for(5, std::chrono::hours::min()), errc::timeout, 5));
    CHECK(came_back(ch.try_send_until(5, steady_clock::time_point::min()), errc::timeout, 5));

    ch.close();
    take_all(ch);
    CHECK(is(ch.try_recv_for(seconds(infinity)), errc::closed));
    CHECK(is(ch.try_recv_for(std::chrono::hours::max()), errc::closed));
}

// ---- Allocation

TEST_CASE("channel: only the constructor and the vectors of batches allocate",
          "[promise.no-wait-allocates]") {
    const std::size_t capacity = GENERATE(0u, 1u, 3u, 64u);
    const std::size_t at_first = test::allocations_here();
    channel ch(capacity);
    CHECK(test::allocations_here() - at_first <= 1);
    ints out;
    out.reserve(4 * 64);
    ints items = numbers(0, 64);
    const std::stop_source never = test::new_stop();
    const std::size_t before = test::allocations_here();
    for (int round = 0; round < 3; ++round) {
        static_cast<void>(ch.try_send(1));
        static_cast<void>(ch.try_send_for(2, 1us));
        static_cast<void>(ch.try_send_n(items));
        static_cast<void>(ch.try_send(3));
        static_cast<void>(ch.size());
        static_cast<void>(ch.try_recv_for(1us));
        static_cast<void>(ch.try_recv());
        static_cast<void>(ch.try_recv_n(out, 64));
        static_cast<void>(ch.try_recv());
    }
    ch.close();
    const std::size_t made = test::allocations_here() - before;
    CHECK(made == 0);
}
