#include "support/alloc.hpp"
#include "support/channel_waits.hpp"
#include "support/counted.hpp"
#include "support/platforms.hpp"
#include "support/stop.hpp"
#include "support/test.hpp"

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

using namespace test::channel_waits;

namespace {

// The face, and what of it cannot throw.
struct any {
    static channel& a() noexcept;
    static ints& out() noexcept;
    static test::manual_executor& elsewhere() noexcept;
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
static_assert(std::input_iterator<bide::channel<std::unique_ptr<int>>::iterator>);

// What the options make of the three operations.
template <class Op> using limited = decltype(std::declval<Op>().with_timeout(1s));
using send_op = decltype(any::a().async_send(1));
using recv_op = decltype(any::a().async_recv());
using recv_n_op = decltype(any::a().async_recv_n(any::out(), 1));
static_assert(std::is_same_v<limited<send_op>, send_op>); // its result has room for every error
static_assert(std::is_same_v<limited<recv_op>, bide::async_op<bide::result<std::optional<int>>>>);
static_assert(std::is_same_v<limited<recv_n_op>, bide::async_op<bide::result<std::size_t>>>);
static_assert(std::is_same_v<recv_n_op, bide::async_op<std::size_t>>);
static_assert(std::is_same_v<decltype(any::a().async_recv().with_stop(std::stop_token())),
                             bide::async_op<bide::result<std::optional<int>>, 1>>);
static_assert(std::is_same_v<decltype(any::a().async_recv().as_result()), limited<recv_op>>);
static_assert(std::is_same_v<decltype(any::a().async_recv().with_deadline(steady_clock::now())),
                             limited<recv_op>>);
static_assert(std::is_same_v<decltype(any::a().async_recv().resume_on(any::elsewhere())), recv_op>);

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
}

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

TEST_CASE("channel: a time-out is not early, by its own clock, and leaves nothing") {
    const std::size_t capacity = GENERATE(0u, 1u);
    channel ch(capacity);
    fill(ch);
    channel none(capacity);
    const auto start = steady_clock::now();
    CHECK(came_back(ch.try_send_for(5, 10'000'000ns), errc::timeout, 5));
    CHECK(steady_clock::now() >= start + 10ms);
    const auto system = std::chrono::system_clock::now() + 10ms;
    CHECK(came_back(ch.try_send_until(5, system), errc::timeout, 5));
    CHECK(std::chrono::system_clock::now() >= system);
    const auto steady = steady_clock::now() + 10ms;
    CHECK(is(none.try_recv_until(steady), errc::timeout));
    CHECK(steady_clock::now() >= steady);
    const auto before = steady_clock::now();
    CHECK(is(none.try_recv_for(10ms), errc::timeout));
    CHECK(steady_clock::now() >= before + 10ms);

    send_ending send;
    limited_ending recv;
    const auto now = steady_clock::now();
    let_go(ch.async_send(6).with_timeout(10ms), send);
    let_go(none.async_recv().with_deadline(now + 10ms), recv);
    REQUIRE(ends(send));
    REQUIRE(ends(recv));
    CHECK(steady_clock::now() >= now + 10ms);
    CHECK(is_back(send, errc::timeout, 6));
    CHECK(is(*recv.out, errc::timeout));
    CHECK(take_all(ch) == numbers(0, static_cast<int>(capacity)));
    CHECK(is(ch.try_recv(), errc::empty)); // no value came in later
    if (capacity > 0) {
        CHECK(none.try_send(1));
        CHECK(none.size() == 1); // it was not received
    } else {
        CHECK(came_back(none.try_send(1), errc::full, 1)); // there are no waiters
    }
}

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
