#include "support/alloc.hpp"
#include "support/catch.hpp"
#include "support/coroutines.hpp"
#include "support/counted.hpp"
#include "support/gate.hpp"
#include "support/jitter.hpp"
#include "support/platforms.hpp"
#include "support/stop.hpp"

#include <bide/channel/channel.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <limits>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <ranges>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

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

namespace {

using bide::errc;
using std::chrono::steady_clock;
using ints = std::vector<int>;
using channel = bide::channel<int>;
template <class T> using sent = bide::result<void, bide::send_error<T>>;

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
static_assert(noexcept(any::a().capacity()) && noexcept(any::a().size()) &&
              noexcept(any::a().empty()));

static_assert(std::input_iterator<bide::channel<int>::iterator>);
static_assert(std::sentinel_for<std::default_sentinel_t, bide::channel<int>::iterator>);
static_assert(std::ranges::input_range<bide::channel<int>>);
using tried = decltype(std::declval<bide::channel<std::unique_ptr<int>>&>().try_iter());
static_assert(std::ranges::input_range<tried> && std::movable<tried>);
static_assert(std::is_same_v<std::ranges::range_reference_t<tried>, std::unique_ptr<int>&>);
static_assert(std::input_iterator<bide::channel<std::unique_ptr<int>>::iterator>);

ints numbers(int from, int to) {
    ints all(static_cast<std::size_t>(to - from));
    std::iota(all.begin(), all.end(), from);
    return all;
}

// Everything that is inside, without waiting.
template <class Channel> auto take_all(Channel& ch) {
    std::vector<typename Channel::value_type> out;
    while (auto got = ch.try_recv()) {
        out.push_back(std::move(*got));
    }
    return out;
}

template <class R> bool is(const R& got, errc why) { return !got && got.error() == why; }

template <class T> bool came_back(const sent<T>& got, errc why, const T& value) {
    return !got && got.error().code == why && got.error().value == value;
}

// Coroutines that wait, in the hand of the test.
template <class Channel> test::held send_one(Channel& ch, int value, bool& ok) {
    const auto got = co_await ch.async_send(value);
    ok = got.has_value();
}
template <class Channel, class T> test::held recv_one(Channel& ch, std::optional<T>& out) {
    out = co_await ch.async_recv();
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

TEMPLATE_TEST_CASE(
    "channel: its capacity is exact, its size counts its items, and it is first in, first out",
    "[promise.channel-capacity]", test::native, test::portable) {
    for (std::size_t capacity = 1; capacity <= 9; ++capacity) {
        bide::basic_channel<int, TestType> ch(capacity);
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

TEST_CASE("channel: no form of send or recv waits if it can succeed at once") {
    const test::watchdog guard;
    channel ch(3);
    std::stop_source stopped = test::new_stop();
    stopped.request_stop();
    const auto past = steady_clock::time_point::min();
    for (int round = 0; round < 5; ++round) { // at every place of the ring
        CHECK(ch.send(1));
        CHECK(ch.send(stopped.get_token(), 2)); // ready first, stopped or not
        CHECK(ch.try_send(3));
        CHECK(ch.recv() == 1);
        CHECK(ch.recv(stopped.get_token()).value() == 2);
        CHECK(ch.try_recv().value() == 3);
        CHECK(ch.try_send_for(4, -1h)); // ready first, late or not
        CHECK(ch.try_send_until(5, past));
        CHECK(ch.send(std::stop_token(), 6));
        CHECK(ch.try_recv_for(0s).value() == 4);
        CHECK(ch.try_recv_until(past).value() == 5);
        CHECK(ch.recv(std::stop_token()).value() == 6);
        CHECK(ch.empty());
    }
}

TEST_CASE("channel: an item that is not sent comes back, and an empty channel gives none, in every "
          "form",
          "[promise.unsent-returns]") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 3u);
    bide::channel<std::string> ch(capacity);
    std::stop_source stopped = test::new_stop();
    stopped.request_stop();
    const std::string text(100, 'x');
    for (std::size_t i = 0; i < capacity; ++i) {
        REQUIRE(ch.try_send("inside"));
    }
    CHECK(came_back(ch.try_send(text), errc::full, text));
    CHECK(came_back(ch.try_send_for(text, 0s), errc::timeout, text));
    CHECK(came_back(ch.try_send_for(text, 1ms), errc::timeout, text));
    CHECK(came_back(ch.try_send_until(text, steady_clock::now()), errc::timeout, text));
    CHECK(came_back(ch.send(stopped.get_token(), text), errc::stopped, text));
    std::array<std::string, 2> batch{text, text};
    CHECK(ch.try_send_n(batch) == 0);
    CHECK(batch == std::array<std::string, 2>{text, text});
    CHECK(ch.size() == capacity);
    CHECK(take_all(ch).size() == capacity);

    CHECK(is(ch.try_recv(), errc::empty));
    CHECK(is(ch.try_recv_for(0s), errc::timeout));
    CHECK(is(ch.try_recv_for(1ms), errc::timeout));
    CHECK(is(ch.try_recv_until(steady_clock::now()), errc::timeout));
    CHECK(is(ch.recv(stopped.get_token()), errc::stopped));
    std::vector<std::string> out;
    CHECK(ch.try_recv_n(out, 3) == 0);
    CHECK(out.empty());
}

// ---- No capacity

TEMPLATE_TEST_CASE("channel: without a capacity it is empty and full at any time",
                   "[promise.channel-capacity]", test::native, test::portable) {
    bide::basic_channel<int, TestType> ch(0);
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

TEMPLATE_TEST_CASE("channel: without a capacity a try_send succeeds if a receiver waits, and a "
                   "try_recv if a sender does",
                   "", test::native, test::portable) {
    bide::basic_channel<int, TestType> ch(0);
    std::optional<int> first;
    std::optional<int> second;
    auto receiver = recv_one(ch, first);
    auto other = recv_one(ch, second);
    receiver.start();
    other.start();
    CHECK(is(ch.try_recv(), errc::empty)); // another receiver is no sender
    CHECK(ch.try_send(1));
    CHECK(first == 1);
    CHECK_FALSE(second);
    CHECK(ch.try_send_for(2, 0s));
    CHECK(second == 2);
    CHECK(came_back(ch.try_send(3), errc::full, 3));

    send_all(ch, 10, 13);
    CHECK(ch.try_recv().value() == 10);
    CHECK(ch.try_recv_for(-1s).value() == 11);
    CHECK(ch.recv() == 12);
    CHECK(is(ch.try_recv(), errc::empty));
}

// ---- Closing

TEMPLATE_TEST_CASE("channel: only the first close() returns true, and it stays closed", "",
                   test::native, test::portable) {
    const std::size_t capacity = GENERATE(0u, 1u, 2u, 7u);
    bide::basic_channel<int, TestType> ch(capacity);
    CHECK_FALSE(ch.is_closed());
    CHECK(ch.close());
    CHECK(ch.is_closed());
    for (int i = 0; i < 3; ++i) {
        CHECK_FALSE(ch.close());
        CHECK(ch.is_closed());
    }
    CHECK(ch.capacity() == capacity);
}

TEST_CASE(
    "channel: a send after close brings the value back, in every form, though there is room") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 3u);
    const std::size_t inside = GENERATE(0u, 1u);
    bide::channel<std::unique_ptr<int>> ch(capacity);
    if (inside < capacity) {
        REQUIRE(ch.try_send(std::make_unique<int>(0)));
    }
    ch.close();
    const auto before = ch.size();
    const auto fails = [](const sent<std::unique_ptr<int>>& got, int value) {
        return !got && got.error().code == errc::closed && got.error().value != nullptr &&
               *got.error().value == value;
    };
    CHECK(fails(ch.send(std::make_unique<int>(1)), 1));
    CHECK(fails(ch.send(std::stop_token(), std::make_unique<int>(2)), 2));
    CHECK(fails(ch.try_send(std::make_unique<int>(3)), 3));
    CHECK(fails(ch.try_send_for(std::make_unique<int>(4), 1h), 4));
    CHECK(fails(ch.try_send_for(std::make_unique<int>(5), -1h), 5));
    CHECK(fails(ch.try_send_until(std::make_unique<int>(6), steady_clock::time_point::max()), 6));
    std::array<std::unique_ptr<int>, 2> batch{std::make_unique<int>(7), std::make_unique<int>(8)};
    CHECK(ch.try_send_n(batch) == 0);
    CHECK((*batch[0] == 7 && *batch[1] == 8));
    CHECK(ch.size() == before);
}

TEST_CASE("channel: receives after close give the items that are left, then closed",
          "[promise.closed-channel-drains]") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 2u, 3u, 6u);
    channel ch(capacity);
    for (std::size_t i = 0; i < capacity; ++i) {
        REQUIRE(ch.try_send(static_cast<int>(i)));
    }
    ch.close();
    CHECK(ch.size() == capacity);
    for (std::size_t i = 0; i < capacity; ++i) {
        const int next = static_cast<int>(i);
        switch (i) {
        case 0: CHECK(ch.recv() == next); break;
        case 1: CHECK(ch.recv(std::stop_token()).value() == next); break;
        case 2: CHECK(ch.try_recv().value() == next); break;
        case 3: CHECK(ch.try_recv_for(1h).value() == next); break;
        case 4: CHECK(ch.try_recv_until(steady_clock::now()).value() == next); break;
        default: {
            ints out;
            CHECK(ch.recv_n(out, 10) == 1);
            CHECK(out == ints{next});
        }
        }
        CHECK(ch.size() == capacity - i - 1); // closed or not
    }
    for (int again = 0; again < 2; ++again) {
        CHECK_FALSE(ch.recv());
        CHECK(is(ch.recv(std::stop_token()), errc::closed));
        CHECK(is(ch.try_recv(), errc::closed));
        CHECK(is(ch.try_recv_for(1h), errc::closed));
        CHECK(is(ch.try_recv_for(0s), errc::closed)); // and not a time-out
        CHECK(is(ch.try_recv_until(steady_clock::now()), errc::closed));
        ints out{1};
        CHECK(ch.recv_n(out, 3) == 0);
        CHECK(ch.try_recv_n(out, 3) == 0);
        CHECK(out == ints{1});
    }
}

TEST_CASE("channel: closed comes before stopped") {
    channel ch(1);
    ch.close();
    std::stop_source stopped = test::new_stop();
    stopped.request_stop();
    CHECK(came_back(ch.send(stopped.get_token(), 1), errc::closed, 1));
    CHECK(is(ch.recv(stopped.get_token()), errc::closed));
}

// ---- Batches

TEMPLATE_TEST_CASE("channel: try_send_n moves a prefix and leaves the rest unchanged", "",
                   test::native, test::portable) {
    for (std::size_t capacity = 1; capacity <= 5; ++capacity) {
        for (std::size_t before = 0; before < 2 * capacity; ++before) { // where in the ring
            bide::basic_channel<std::unique_ptr<int>, TestType> ch(capacity);
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
                const auto got = take_all(ch);
                for (std::size_t i = 0; i < n; ++i) {
                    REQUIRE((items[i] == nullptr) == (i < fit));
                    REQUIRE(*(i < fit ? got : items)[i] == static_cast<int>(i));
                }
            }
        }
    }
}

TEMPLATE_TEST_CASE("channel: try_recv_n appends what there is, at most as many as asked for", "",
                   test::native, test::portable) {
    bide::basic_channel<int, TestType> ch(5);
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

TEMPLATE_TEST_CASE("channel: recv_n takes the items that are there, and none if none is asked for",
                   "", test::native, test::portable) {
    const test::watchdog guard;
    bide::basic_channel<int, TestType> ch(3);
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

TEMPLATE_TEST_CASE("channel: batches serve the waiters of the other side", "", test::native,
                   test::portable) {
    const std::size_t capacity = GENERATE(0u, 1u, 2u);
    bide::basic_channel<int, TestType> ch(capacity);
    ints got;
    for (int i = 0; i < 3; ++i) { // each for one
        [](bide::basic_channel<int, TestType>& from, ints& out) -> test::detached {
            const std::optional<int> one = co_await from.async_recv();
            out.push_back(one.value_or(-1));
        }(ch, got);
    }
    ints items = numbers(0, 8);
    CHECK(ch.try_send_n(items) == 3 + capacity);
    CHECK(got == ints{0, 1, 2});

    send_all(ch, 3 + static_cast<int>(capacity), 10);
    ints out;
    CHECK(ch.try_recv_n(out, 4) == 4);
    CHECK(ch.try_recv_n(out, 9) == 3);
    CHECK(out == numbers(3, 10));
}

// ---- Iteration

TEST_CASE("channel: a loop over it receives until it is closed and drained") {
    const test::watchdog guard;
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
    CHECK(ch.try_recv().value() == 2);
}

// ---- Elements

namespace {

struct no_default {
    explicit no_default(std::unique_ptr<std::string> s) noexcept : text(std::move(s)) {}
    std::unique_ptr<std::string> text;
};
struct alignas(128) over_aligned {
    explicit over_aligned(int n) noexcept : number(n), here(this) {}
    over_aligned(over_aligned&& other) noexcept : number(other.number), here(this) {}
    int number;
    const void* here;
    bool is_aligned() const noexcept {
        return here == this && reinterpret_cast<std::uintptr_t>(this) % 128 == 0;
    }
};
struct large {
    explicit large(int n) noexcept { words.fill(n); }
    bool is(int n) const noexcept {
        return std::all_of(words.begin(), words.end(), [n](int w) { return w == n; });
    }
    std::array<int, 16'384> words;
};
static_assert(sizeof(large) == 65'536);
struct three_bytes {
    explicit three_bytes(int n) noexcept
        : bytes{static_cast<char>(n), static_cast<char>(n + 1), static_cast<char>(n + 2)} {}
    bool operator==(const three_bytes&) const = default;
    char bytes[3];
};
struct nothing {
    explicit nothing(int) noexcept {}
    bool operator==(const nothing&) const = default;
};

template <class T> T make(int n) { return T(n); }
template <> bool make<bool>(int n) { return n % 2 == 0; }
template <> std::string make<std::string>(int n) { return std::string(40, static_cast<char>(n)); }

} // namespace

TEMPLATE_TEST_CASE("channel: attempts and sends of elements of every size succeed, fail and arrive",
                   "", bool, std::int32_t, std::int64_t, three_bytes, nothing, std::string) {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 2u);
    bide::channel<TestType> ch(capacity);
    CHECK(is(ch.try_recv(), errc::empty));
    for (int n = 0; n < 5; ++n) {
        const TestType value = make<TestType>(n);
        for (std::size_t i = 0; i < capacity; ++i) {
            REQUIRE(ch.try_send(value));
        }
        CHECK(came_back(ch.try_send(value), errc::full, value));
        for (std::size_t i = 0; i < capacity; ++i) {
            const auto got = ch.try_recv();
            REQUIRE(got);
            CHECK(*got == value);
        }
        CHECK(is(ch.try_recv(), errc::empty));

        std::optional<TestType> out; // to a waiter
        auto waiting = recv_one(ch, out);
        waiting.start();
        CHECK(ch.try_send(value));
        REQUIRE(out);
        CHECK(*out == value);
    }
}

TEST_CASE("channel: elements may be move-only, without a default constructor, aligned, and large") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 3u);
    bide::channel<no_default> texts(capacity);
    bide::channel<over_aligned> lines(capacity);
    bide::channel<large> pages(capacity);
    constexpr int n = 12;
    bool sent[3] = {true, true, true};
    test::team sending(1, [&](int) {
        for (int i = 0; i < n; ++i) {
            auto text = std::make_unique<std::string>(std::to_string(i));
            sent[0] = texts.send(no_default(std::move(text))).has_value() && sent[0];
            sent[1] = lines.send(over_aligned(i)).has_value() && sent[1];
            sent[2] = pages.send(large(i)).has_value() && sent[2];
        }
    });
    for (int i = 0; i < n; ++i) {
        const auto text = texts.recv();
        REQUIRE(text);
        CHECK(*text->text == std::to_string(i));
        const auto line = lines.recv();
        REQUIRE(line);
        CHECK(line->number == i);
        CHECK(line->is_aligned());
        const auto page = pages.recv();
        REQUIRE(page);
        CHECK(page->is(i));
    }
    sending.join();
    CHECK((sent[0] && sent[1] && sent[2]));
    const auto back = lines.try_send_for(over_aligned(5), 0s);
    if (!back) {
        CHECK(back.error().value.is_aligned());
    }
}

// ---- Lifetimes

TEMPLATE_TEST_CASE("channel: the items in it are destroyed with it, once", "", test::native,
                   test::portable) {
    for (std::size_t capacity = 1; capacity <= 6; ++capacity) {
        for (std::size_t inside = 0; inside <= capacity; ++inside) {
            for (std::size_t before = 0; before <= capacity; ++before) { // where in the ring
                for (const bool closed : {false, true}) {
                    test::tally in;
                    {
                        bide::basic_channel<test::counted_once, TestType> ch(capacity);
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

TEST_CASE("channel: each item is destroyed, and never copied, whatever the result of its send") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 3u);
    test::tally in;
    std::stop_source stopped = test::new_stop();
    stopped.request_stop();
    {
        bide::channel<test::counted_once> ch(capacity);
        std::vector<test::counted_once> items;
        items.reserve(4);
        for (const bool closed : {false, true}) {
            const errc full = closed ? errc::closed : errc::full;
            const errc late = closed ? errc::closed : errc::timeout;
            const errc stop = closed ? errc::closed : errc::stopped;
            while (ch.try_send(test::counted_once(in, 1))) {
            }
            if (closed) {
                ch.close();
            }
            REQUIRE(in.alive() == static_cast<int>(capacity));
            const auto came_back_from = [](const auto& got, errc why) {
                return !got && got.error().code == why && got.error().value.number() == 2;
            };
            CHECK(came_back_from(ch.try_send(test::counted_once(in, 2)), full));
            CHECK(came_back_from(ch.try_send_for(test::counted_once(in, 2), 1us), late));
            CHECK(came_back_from(ch.send(stopped.get_token(), test::counted_once(in, 2)), stop));
            CHECK(in.alive() == static_cast<int>(capacity));
            items.emplace_back(in, 2);
            CHECK(ch.try_send_n(items) == 0);
            CHECK(items[0].number() == 2);
            items.clear();
            if (!closed && capacity > 0) {
                CHECK(ch.try_recv().value().number() == 1);
                CHECK(ch.try_recv_n(items, 3) == capacity - 1);
                CHECK(in.alive() == static_cast<int>(capacity) - 1);
                items.clear();
            }
        }
    }
    CHECK(in.alive() == 0);
    CHECK(in.copied == 0);
}

// The destructor of an item may come back to its channel: with everything that does not wait, and,
// once it is closed, with everything.
namespace {

class meddler {
public:
    using home = bide::channel<meddler>;
    meddler(home* ch, int& died) noexcept : home_(ch), died_(&died) {}
    meddler(meddler&& other) noexcept
        : home_(std::exchange(other.home_, nullptr)), died_(std::exchange(other.died_, nullptr)) {}
    ~meddler() {
        if (died_ != nullptr) {
            ++*died_;
        }
        if (home_ != nullptr) {
            static_cast<void>(home_->size());
            static_cast<void>(home_->empty());
            static_cast<void>(home_->is_closed());
            static_cast<void>(home_->try_send(meddler(nullptr, *died_)));
            static_cast<void>(home_->try_recv());
            home_->close();
            static_cast<void>(home_->try_send_for(meddler(nullptr, *died_), 1h));
            static_cast<void>(home_->try_recv_for(1h));
        }
    }

private:
    home* home_;
    int* died_;
};

} // namespace

TEST_CASE("channel: the destructors of items that are left inside may use the channel") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(1u, 2u, 3u, 5u);
    const bool closed = GENERATE(false, true);
    int died = 0;
    {
        meddler::home ch(capacity);
        for (std::size_t i = 0; i < capacity; ++i) {
            REQUIRE(ch.try_send(meddler(&ch, died)));
        }
        if (closed) {
            ch.close();
        }
        REQUIRE(died == 0);
    }
    CHECK(died == 3 * static_cast<int>(capacity)); // each, and the two that it tried to send
}

TEST_CASE("channel: the destructor of an item that came out, or back, may use the channel") {
    const test::watchdog guard;
    int died = 0;
    meddler::home ch(1);
    SECTION("that was received") {
        REQUIRE(ch.try_send(meddler(&ch, died)));
        static_cast<void>(ch.try_recv());
        CHECK(died == 3);
    }
    SECTION("that came back") {
        REQUIRE(ch.try_send(meddler(nullptr, died)));
        static_cast<void>(ch.try_send(meddler(&ch, died)));
        CHECK(died == 4); // it receives the one that was in its way
    }
    SECTION("that a loop went past") {
        REQUIRE(ch.try_send(meddler(&ch, died)));
        for ([[maybe_unused]] const meddler& it : ch) {
        }
        CHECK(died == 3);
    }
    SECTION("whose send was never awaited") {
        {
            [[maybe_unused]] const auto send = ch.async_send(meddler(&ch, died));
        }
        CHECK(died == 3);
    }
    CHECK(ch.is_closed());
    CHECK(ch.empty());
}

// ---- Stamps of 16 bits

// A coroutine that sends all the time finds the channel full at each position in turn, one that
// receives finds it empty there.
TEST_CASE("channel: waiters are served at every position, also when 16-bit stamps wrap") {
    const test::watchdog guard;
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

TEST_CASE("channel: a random walk of attempts does what a deque does, whatever the capacity") {
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    for (const std::size_t capacity : {1u, 2u, 3u, 5u, 6u, 7u, 64u, 1'000u}) {
        CAPTURE(capacity);
        bide::basic_channel<int, test::native, std::uint16_t> ch(capacity);
        std::deque<int> inside;
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(capacity));
        int next = 0;
        bool good = true;
        for (int step = 0; step < 20'000 && good; ++step) {
            const std::size_t n = chance.below(step % 64 == 0 ? 1'500 : 4);
            switch (chance.below(4)) {
            case 0: {
                const bool room = inside.size() < capacity;
                good = ch.try_send(next).has_value() == room;
                if (room) {
                    inside.push_back(next++);
                }
                break;
            }
            case 1: {
                const auto got = ch.try_recv();
                good = got.has_value() == !inside.empty() && (!got || *got == inside.front());
                if (got) {
                    inside.pop_front();
                }
                break;
            }
            case 2: {
                ints items = numbers(next, next + static_cast<int>(n));
                const std::size_t went = ch.try_send_n(items);
                good = went == std::min(n, capacity - inside.size());
                for (std::size_t i = 0; i < went; ++i) {
                    inside.push_back(next++);
                }
                break;
            }
            default: {
                ints out;
                const std::size_t came = ch.try_recv_n(out, n);
                good = came == std::min(n, inside.size()) && came == out.size();
                for (std::size_t i = 0; i < came && good; ++i) {
                    good = out[i] == inside.front();
                    inside.pop_front();
                }
            }
            }
            good = good && ch.size() == inside.size() && ch.empty() == inside.empty();
        }
        REQUIRE(good);
    }
}

// ---- Bad input

TEST_CASE("channel: a capacity that no memory can hold throws") {
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
    const test::watchdog guard;
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

TEST_CASE("channel: try_iter() receives no item that is not looked at") {
    bide::channel<int> ch(4);
    for (int i = 0; i < 4; ++i) {
        REQUIRE(ch.try_send(i));
    }
    int sum = 0;
    for (const int i : ch.try_iter() | std::views::take(2)) {
        sum += i;
    }
    CHECK(sum == 1);
    CHECK(ch.size() == 2);
}
