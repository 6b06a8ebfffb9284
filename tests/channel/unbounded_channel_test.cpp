#include "support/alloc.hpp"
#include "support/catch.hpp"
#include "support/coroutines.hpp"
#include "support/counted.hpp"
#include "support/death.hpp"
#include "support/gate.hpp"
#include "support/last_touch.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/stop.hpp"

#include <bide/channel/unbounded_channel.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <ranges>
#include <span>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

using bide::errc;
using std::chrono::steady_clock;
using ints = std::vector<int>;
using channel = bide::unbounded_channel<int>;
template <class T> using sent = bide::result<void, bide::send_error<T>>;

struct any {
    static channel& a() noexcept;
};
static_assert(!std::is_copy_constructible_v<channel> && !std::is_move_constructible_v<channel>);
static_assert(std::is_nothrow_default_constructible_v<channel>);
static_assert(std::is_same_v<channel::value_type, int>);
static_assert(std::is_same_v<decltype(any::a().send(1)), sent<int>>);
static_assert(std::is_same_v<decltype(any::a().send(std::stop_token(), 1)), sent<int>>);
static_assert(std::is_same_v<decltype(any::a().try_send(1)), sent<int>>);
static_assert(std::is_same_v<decltype(any::a().try_send_for(1, 1s)), sent<int>>);
static_assert(std::is_same_v<decltype(any::a().try_send_until(1, steady_clock::now())), sent<int>>);
static_assert(std::is_same_v<decltype(any::a().async_send(1)), bide::async_op<sent<int>>>);
static_assert(std::is_same_v<decltype(any::a().async_recv()), bide::async_op<std::optional<int>>>);
static_assert(noexcept(any::a().try_recv()) && noexcept(any::a().close()) &&
              noexcept(any::a().size()));
static_assert(std::ranges::input_range<channel>);

// The number of items that lie together.
template <class T>
constexpr int segment =
    static_cast<int>(bide::detail::basic_segment_queue<T, test::native>::segment_size);

template <class R> bool is(const R& got, errc why) { return !got && got.error() == why; }

template <class T> bool came_back(const sent<T>& got, const T& value) {
    return !got && got.error().code == errc::closed && got.error().value == value;
}

template <class Channel> ints take_all(Channel& ch) {
    ints out;
    while (auto got = ch.try_recv()) {
        out.push_back(std::move(*got));
    }
    return out;
}

// What a coroutine received: -1, closed.
template <class Channel> test::detached recv_into(Channel& ch, ints& out) {
    const std::optional<int> got = co_await ch.async_recv();
    out.push_back(got.value_or(-1));
}
test::held recv_held(channel& ch, ints& out) {
    const std::optional<int> got = co_await ch.async_recv();
    out.push_back(got.value_or(-1));
}
test::held recv_later(test::manual_executor& on, channel& ch, ints& out) {
    const std::optional<int> got = co_await ch.async_recv().resume_on(on);
    out.push_back(got.value_or(-1));
}
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
test::detached send_some(channel& ch, int from, int to, int& ok) {
    for (int i = from; i < to; ++i) {
        const auto got = co_await ch.async_send(i);
        ok += got ? 1 : 0;
    }
}

} // namespace

// ---- In and out

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
    static_assert(channel::capacity() == channel::unbounded);
    static_assert(channel::unbounded == std::numeric_limits<std::size_t>::max());
    static_assert(!channel::is_full());
    REQUIRE(ch.send(1));
    REQUIRE(ch.send(2));
    int sum = 0;
    for (const int i : ch.try_iter()) {
        sum += i;
    }
    CHECK(sum == 3);
    CHECK(ch.empty());
}

TEST_CASE("unbounded_channel: no form of send waits, and what is there is received though the time "
          "is over or a stop requested") {
    const test::watchdog guard;
    channel ch;
    std::stop_source stopped = test::new_stop();
    stopped.request_stop();
    const auto past = steady_clock::time_point::min();
    int ok = 0;
    CHECK(ch.send(0));
    CHECK(ch.send(stopped.get_token(), 1));
    CHECK(ch.try_send(2));
    CHECK(ch.try_send_for(3, -1h));
    CHECK(ch.try_send_until(4, past));
    send_some(ch, 5, 7, ok);
    CHECK(ok == 2);
    ints more{7, 8};
    CHECK(ch.try_send_n(more) == 2);
    CHECK(ch.size() == 9);

    ints got;
    CHECK(ch.recv() == 0);
    CHECK(ch.recv(stopped.get_token()).value() == 1);
    CHECK(ch.try_recv().value() == 2);
    CHECK(ch.try_recv_for(0s).value() == 3);
    CHECK(ch.try_recv_until(past).value() == 4);
    recv_into(ch, got);
    CHECK(got == ints{5});
    CHECK(ch.try_recv_n(got, 1) == 1);
    CHECK(ch.recv_n(got, 1) == 1);
    CHECK(got == ints{5, 6, 7});
    CHECK(ch.recv(std::stop_token()).value() == 8);
    CHECK(ch.empty());
}

TEST_CASE("unbounded_channel: what is not there is not made up, in any form") {
    const test::watchdog guard;
    channel ch;
    std::stop_source stopped = test::new_stop();
    stopped.request_stop();
    ints out{1};
    for (int round = 0; round < 2; ++round) {
        CHECK(is(ch.try_recv(), errc::empty));
        CHECK(is(ch.try_recv_for(-1s), errc::timeout));
        CHECK(is(ch.try_recv_for(1ms), errc::timeout));
        CHECK(is(ch.try_recv_until(steady_clock::now()), errc::timeout));
        CHECK(is(ch.recv(stopped.get_token()), errc::stopped));
        CHECK(ch.try_recv_n(out, 3) == 0);
        CHECK(out == ints{1});
        REQUIRE(ch.send(7)); // the waits that ended early had no effect
        REQUIRE(ch.recv() == 7);
    }
}

TEST_CASE("unbounded_channel: a batch goes in and out at once, and waiters are served first") {
    const test::watchdog guard;
    channel ch;
    ints first;
    recv_into(ch, first);
    recv_into(ch, first);
    ints batch(static_cast<std::size_t>(3 * segment<int>));
    for (std::size_t i = 0; i < batch.size(); ++i) {
        batch[i] = static_cast<int>(i);
    }
    CHECK(ch.try_send_n(batch) == batch.size());
    CHECK(first == ints{0, 1});
    CHECK(ch.size() == batch.size() - 2);
    CHECK(ch.try_send_n(std::span<int>()) == 0);

    ints out{-7};
    CHECK(ch.recv_n(out, 0) == 0);
    CHECK(ch.try_recv_n(out, 3) == 3);
    CHECK(out == ints{-7, 2, 3, 4}); // behind what was there
    CHECK(ch.recv_n(out, 1'000'000) == batch.size() - 5);
    CHECK(out.back() == batch.back());
    CHECK(ch.empty());

    CHECK(ch.close());
    CHECK(ch.try_send_n(batch) == 0);
    CHECK(ch.recv_n(out, 5) == 0); // only now
    CHECK(out.size() == batch.size() - 1);
}

TEST_CASE("unbounded_channel: items of every kind are moved, never copied, and destroyed once") {
    test::tally t;
    {
        bide::unbounded_channel<test::counted_once> ch;
        constexpr int n = 3 * segment<test::counted_once> + 1;
        for (int i = 0; i < n; ++i) {
            REQUIRE(ch.send(test::counted_once(t, i)));
        }
        CHECK(t.alive() == n);
        for (int i = 0; i < n / 2; ++i) {
            REQUIRE(ch.recv()->number() == i);
        }
        CHECK(t.alive() == n - n / 2);
        ch.close();
        {
            const auto back = ch.send(test::counted_once(t, -5));
            CHECK(back.error().value.number() == -5);
        }
        CHECK(t.alive() == n - n / 2); // those that are not received
    }
    CHECK(t.alive() == 0);
    CHECK(t.copied == 0);

    struct alignas(64) wide {
        explicit wide(int v) noexcept : number(v) {}
        wide(wide&& other) noexcept : number(other.number) {}
        int number;
    };
    bide::unbounded_channel<wide> aligned;
    bide::unbounded_channel<std::unique_ptr<int>> pointers;
    for (int i = 0; i < 100; ++i) {
        REQUIRE(aligned.send(wide(i)));
        REQUIRE(pointers.send(std::make_unique<int>(i)));
    }
    for (int i = 0; i < 100; ++i) {
        const auto got = aligned.recv();
        REQUIRE(got->number == i);
        REQUIRE(reinterpret_cast<std::uintptr_t>(&*got) % 64 == 0);
        REQUIRE(**pointers.recv() == i);
    }
}

namespace {

// Larger than a thread's stack.
struct huge {
    std::array<std::byte, (std::size_t{16} << 20)> bytes;
};

} // namespace

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

TEST_CASE("unbounded_channel: where memory has run out, send throws and nothing has changed") {
    if (!test::counts_allocations()) {
        return;
    }
    test::tally t;
    bide::unbounded_channel<test::counted> ch;
    std::vector<test::counted> batch;
    for (int i = 0; i < 2 * segment<test::counted>; ++i) {
        batch.emplace_back(t, i);
    }
    const auto fails_to_send = [&] {
        test::counted item(t, 77);
        bool failed = false;
        {
            const test::out_of_memory now;
            try {
                static_cast<void>(ch.send(item));
            } catch (const std::bad_alloc&) {
                failed = true;
            }
        }
        return failed;
    };
    CHECK(fails_to_send());
    CHECK(ch.empty());
    {
        const test::out_of_memory now;
        CHECK(ch.try_send_n(batch) == 0);
    }
    REQUIRE(ch.try_send(test::counted(t, -2)));
    std::size_t sent = 0;
    {
        const test::out_of_memory now;
        sent = ch.try_send_n(batch); // as many as there is room for
    }
    CHECK(sent == static_cast<std::size_t>(segment<test::counted> - 1));
    CHECK(batch[sent].number() == static_cast<int>(sent));
    CHECK(fails_to_send());
    CHECK(ch.size() == sent + 1);
    CHECK_FALSE(ch.is_closed());
    CHECK(ch.try_send_n(std::span(batch).subspan(sent)) == batch.size() - sent);
    CHECK(ch.recv()->number() == -2);
    for (std::size_t i = 0; i < batch.size(); ++i) {
        REQUIRE(ch.recv()->number() == static_cast<int>(i));
    }
}

// ---- Close

TEST_CASE("unbounded_channel: a send after close brings the item back, in every form") {
    const test::watchdog guard;
    bide::unbounded_channel<std::string> ch;
    CHECK_FALSE(ch.is_closed());
    CHECK(ch.close());
    CHECK_FALSE(ch.close());
    CHECK(ch.is_closed());
    const std::string text(100, 'x');
    CHECK(came_back(ch.send(text), text));
    CHECK(came_back(ch.send(std::stop_token(), text), text));
    CHECK(came_back(ch.try_send(text), text));
    CHECK(came_back(ch.try_send_for(text, 1h), text));
    CHECK(came_back(ch.try_send_until(text, steady_clock::now() + 1h), text));
    bool back = false;
    [](auto& to, const std::string& what, bool& out) -> test::detached {
        const auto got = co_await to.async_send(what);
        out = came_back(got, what);
    }(ch, text, back);
    CHECK(back);
    std::array<std::string, 2> batch{text, text};
    CHECK(ch.try_send_n(batch) == 0);
    CHECK(batch == std::array<std::string, 2>{text, text});
    CHECK(ch.empty());
}

TEST_CASE("unbounded_channel: receives drain a closed channel, and then say so, in every form") {
    const test::watchdog guard;
    channel ch;
    for (int i = 0; i < 8; ++i) {
        REQUIRE(ch.send(i));
    }
    ch.close();
    CHECK(ch.size() == 8);
    ints out;
    CHECK(ch.recv() == 0);
    CHECK(ch.recv(std::stop_token()).value() == 1);
    CHECK(ch.try_recv().value() == 2);
    CHECK(ch.try_recv_for(1h).value() == 3);
    recv_into(ch, out);
    CHECK(ch.recv_n(out, 1) == 1);
    CHECK(out == ints{4, 5});
    ints rest;
    for (const int i : ch) {
        rest.push_back(i);
    }
    CHECK(rest == ints{6, 7});
    for (int round = 0; round < 2; ++round) {
        CHECK_FALSE(ch.recv());
        CHECK(is(ch.recv(std::stop_token()), errc::closed));
        CHECK(is(ch.try_recv(), errc::closed));
        CHECK(is(ch.try_recv_for(1h), errc::closed));
        CHECK(ch.recv_n(out, 1) == 0);
        CHECK(ch.try_recv_n(out, 1) == 0);
        CHECK(ch.begin() == ch.end());
    }
    recv_into(ch, out);
    CHECK(out == ints{4, 5, -1});
}

TEMPLATE_TEST_CASE("unbounded_channel: close wakes every waiter, of every kind", "", test::native,
                   test::portable) {
    using platform = test::observing<TestType>;
    const test::watchdog guard;
    bide::basic_unbounded_channel<int, platform> ch;
    std::stop_source never = test::new_stop();
    ints told;
    recv_into(ch, told);
    bool good[4] = {};
    test::team waiting(4, [&](int i) {
        ints out;
        switch (i) {
        case 0: good[i] = !ch.recv(); break;
        case 1: good[i] = is(ch.recv(never.get_token()), errc::closed); break;
        case 2: good[i] = is(ch.try_recv_for(1h), errc::closed); break;
        default: good[i] = ch.recv_n(out, 2) == 0 && out.empty(); break;
        }
    });
    REQUIRE(test::are_asleep<TestType>(4));
    recv_into(ch, told);
    CHECK(told.empty());
    CHECK(ch.close());
    CHECK(told == ints{-1, -1});
    waiting.join();
    for (const bool g : good) {
        CHECK(g);
    }
}

// ---- Waiting

TEMPLATE_TEST_CASE("unbounded_channel: a waiter of every kind is handed the item, first come first "
                   "served",
                   "", test::native, test::portable) {
    using platform = test::observing<TestType>;
    const test::watchdog guard;
    bide::basic_unbounded_channel<int, platform> ch;
    std::stop_source never = test::new_stop();
    ints told;
    recv_into(ch, told);
    int order[4] = {};
    for (int i = 0; i < 4; ++i) {
        // One after the other: a thread that sleeps has queued.
        test::team one(1, [&](int) {
            ints out;
            switch (i) {
            case 0: order[i] = *ch.recv(); break;
            case 1: order[i] = ch.recv(never.get_token()).value(); break;
            case 2: order[i] = ch.try_recv_for(1h).value(); break;
            default: order[i] = ch.recv_n(out, 2) == 1 ? out[0] : -1; break;
            }
        });
        REQUIRE(test::are_asleep<TestType>(1));
        recv_into(ch, told);
        REQUIRE(ch.send(10 * i));     // the coroutine's
        REQUIRE(ch.send(10 * i + 1)); // the thread's
        REQUIRE(ch.empty());
        one.join();
        REQUIRE(order[i] == 10 * i + 1);
        REQUIRE(told.size() == static_cast<std::size_t>(i + 1));
        REQUIRE(told.back() == 10 * i);
    }
    REQUIRE(ch.send(99));
    CHECK(told == ints{0, 10, 20, 30, 99});
}

TEST_CASE("unbounded_channel: a coroutine that waits ends with a stop or a time-out, and takes "
          "nothing then") {
    const test::watchdog guard;
    channel ch;
    std::stop_source stop = test::new_stop();
    std::atomic<int> stopped{0};
    std::atomic<int> late{0};
    [](channel& from, std::stop_token token, std::atomic<int>& out) -> test::detached {
        const auto got = co_await from.async_recv().with_stop(token);
        out = is(got, errc::stopped) ? 1 : 2;
    }(ch, stop.get_token(), stopped);
    [](channel& from, std::atomic<int>& out) -> test::detached {
        const auto got = co_await from.async_recv().with_timeout(1ms);
        out = is(got, errc::timeout) ? 1 : 2;
    }(ch, late);
    stop.request_stop();
    CHECK(test::eventually([&] { return stopped != 0 && late != 0; }));
    CHECK(stopped == 1);
    CHECK(late == 1);
    CHECK(ch.send(5));
    CHECK(ch.size() == 1);
}

TEST_CASE("unbounded_channel: a coroutine waits for a batch's first item") {
    const test::watchdog guard;
    channel ch;
    ints out{-1};
    std::vector<std::size_t> counts;
    const auto recv_n = [](channel& from, ints& to, std::size_t max,
                           std::vector<std::size_t>& n) -> test::detached {
        const std::size_t got = co_await from.async_recv_n(to, max);
        n.push_back(got);
    };
    recv_n(ch, out, 0, counts);
    CHECK(counts.back() == 0);
    recv_n(ch, out, 5, counts);
    CHECK(counts.size() == 1);
    CHECK(ch.send(1));
    CHECK(counts.back() == 1);
    ints three{2, 3, 4};
    CHECK(ch.try_send_n(three) == 3);
    recv_n(ch, out, 2, counts);
    CHECK(counts.back() == 2);
    recv_n(ch, out, 9, counts);
    CHECK(counts.back() == 1);
    CHECK(out == ints{-1, 1, 2, 3, 4});
    recv_n(ch, out, 9, counts);
    ch.close();
    CHECK(counts == std::vector<std::size_t>{0, 1, 2, 1, 0});
}

TEST_CASE("unbounded_channel: a receiver that is destroyed while it waits leaves no trace") {
    channel ch;
    ints told;
    {
        auto gone = recv_held(ch, told);
        gone.start();
        recv_into(ch, told);
    }
    CHECK(ch.send(1)); // the next one's
    CHECK(ch.send(2));
    CHECK(told == ints{1});
    CHECK(ch.recv() == 2);
}

TEST_CASE(
    "unbounded_channel: an item that came to a destroyed receiver goes to the next, or back") {
    test::manual_executor later;
    channel ch;
    ints told;
    const auto granted = [&](int item) {
        auto r = recv_later(later, ch, told);
        r.start();
        REQUIRE(ch.send(item));
        REQUIRE(ch.empty());
        later.drop_all();
        return r;
    };

    auto first = granted(1);
    recv_into(ch, told);
    first.destroy();
    CHECK(told == ints{1}); // the waiter has it

    auto second = granted(2);
    second.destroy();
    CHECK(ch.size() == 1);
    auto none = recv_later(later, ch, told); // never started
    CHECK(ch.recv() == 2);

    // Before all other items, whatever their place in the segment.
    for (int inside = 0; inside <= segment<int>; inside += segment<int> / 4) {
        auto third = granted(3);
        auto fourth = granted(4);
        for (int i = 0; i < inside; ++i) {
            REQUIRE(ch.send(10 + i));
        }
        fourth.destroy();
        third.destroy();
        REQUIRE(ch.size() == static_cast<std::size_t>(inside + 2));
        REQUIRE(ch.recv() == 3);
        REQUIRE(ch.recv() == 4);
        const ints rest = take_all(ch);
        REQUIRE(rest.size() == static_cast<std::size_t>(inside));
        REQUIRE((rest.empty() || (rest.front() == 10 && rest.back() == 9 + inside)));
    }

    auto last = granted(5);
    ch.close();
    CHECK_FALSE(ch.recv());
    last.destroy();
    CHECK_FALSE(ch.recv()); // nothing comes back into a closed one
    CHECK(ch.empty());
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

        SECTION("open") {
            auto one = granted(1);
            REQUIRE(ch.send(item(t, 2)));
            one.destroy();
            CHECK(t.alive() == 3);
            CHECK(out.size() == 1);
            CHECK(numbers_inside() == ints{1, 2});
        }
        SECTION("closed") {
            auto one = granted(1);
            ch.close();
            one.destroy();
            CHECK(t.alive() == 1 + stays);
            CHECK(out.back().number() == (many ? 1 : 90));
            CHECK(ch.empty());
            CHECK_FALSE(ch.recv());
        }
        SECTION("closed, with something inside") {
            auto one = granted(1);
            REQUIRE(ch.send(item(t, 2)));
            ch.close();
            one.destroy();
            CHECK(t.alive() == 2 + stays);
            CHECK(numbers_inside() == ints{2});
        }
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

// ---- Destruction

namespace {

// Its destructor comes back to the channel that it was in.
class nosy {
public:
    explicit nosy(bide::unbounded_channel<nosy>& home, int& visits) noexcept
        : home_(&home), visits_(&visits) {}
    nosy(nosy&& other) noexcept
        : home_(std::exchange(other.home_, nullptr)), visits_(other.visits_) {}
    ~nosy() {
        if (home_ != nullptr) {
            visit(*std::exchange(home_, nullptr));
        }
    }

private:
    void visit(bide::unbounded_channel<nosy>& home) {
        ++*visits_;
        nosy silent(home, *visits_);
        silent.home_ = nullptr;
        static_cast<void>(home.size());
        static_cast<void>(home.try_send(std::move(silent)));
        static_cast<void>(home.try_recv());
        static_cast<void>(home.is_closed());
        home.close();
    }

    bide::unbounded_channel<nosy>* home_;
    int* visits_;
};

} // namespace

TEST_CASE("unbounded_channel: an item's destructor may use the channel, even the dying one") {
    const test::watchdog guard;
    int visits = 0;
    {
        bide::unbounded_channel<nosy> ch;
        for (int i = 0; i < 200; ++i) {
            REQUIRE(ch.send(nosy(ch, visits)));
        }
    }
    CHECK(visits == 200);
    {
        bide::unbounded_channel<nosy> ch;
        REQUIRE(ch.send(nosy(ch, visits)));
        static_cast<void>(ch.recv()); // destroyed by its receiver
        CHECK(visits == 201);
        CHECK(ch.is_closed());
    }
}

TEST_CASE(
    "unbounded_channel: a receiver that has its item may destroy it before the send returns") {
    using jittery = bide::basic_unbounded_channel<int, test::jittery>;
    INFO("seed " << test::run_seed());
    std::atomic<int> wrong{0};
    const int touched = test::late_touches<jittery>(
        2, 1'000, [](void* place, int) { return ::new (place) jittery; },
        [&](jittery& ch) { wrong += ch.send(3) ? 0 : 1; },
        [&](jittery& ch, int round) {
            // Both have sent then, and are about to return.
            for (int i = 0; i < 2; ++i) {
                const auto got =
                    round % 2 == 0 ? ch.recv() : std::optional(ch.try_recv_for(1h).value());
                wrong += got == 3 ? 0 : 1;
            }
        });
    CHECK(touched == 0);
    CHECK(wrong == 0);
}

TEST_CASE("unbounded_channel: a receiver that is told that it is closed may destroy it") {
    using jittery = bide::basic_unbounded_channel<int, test::jittery>;
    INFO("seed " << test::run_seed());
    std::atomic<int> wrong{0};
    const int touched = test::late_touches<jittery>(
        1, 1'000, [](void* place, int) { return ::new (place) jittery; },
        [](jittery& ch) { ch.close(); }, [&](jittery& ch, int) { wrong += ch.recv() ? 1 : 0; });
    CHECK(touched == 0);
    CHECK(wrong == 0);
}

#if BIDE_TESTS_CAN_DIE
TEST_CASE("unbounded_channel: destroying it while there are waiters terminates with a message") {
    const std::string said = test::dies([] {
        ints told;
        auto ch = std::make_unique<channel>();
        auto a = recv_held(*ch, told);
        auto b = recv_held(*ch, told);
        a.start();
        b.start();
        ch.reset();
    });
    CHECK(test::contains(said, "bide: unbounded_channel 0x"));
    CHECK(test::contains(said, "destroyed with 2 waiting"));
}
#endif

// ---- Many

TEST_CASE("unbounded_channel: one sender and one receiver, 100,000 items in order") {
    channel ch;
    constexpr int n = 100'000;
    int wrong = 0;
    test::run_threads(2, [&](int i) {
        if (i == 0) {
            for (int k = 0; k < n; ++k) {
                static_cast<void>(ch.send(k));
            }
            ch.close();
        } else {
            int next = 0;
            for (const int k : ch) {
                wrong += k == next++ ? 0 : 1;
            }
            wrong += next == n ? 0 : 1;
        }
    });
    CHECK(wrong == 0);
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

TEST_CASE(
    "unbounded_channel: threads that block are served by coroutines, and the other way round") {
    const test::watchdog guard;
    channel there;
    channel back;
    constexpr int n = 2'000;
    [](channel& from, channel& to) -> test::detached {
        for (;;) {
            const std::optional<int> got = co_await from.async_recv();
            if (!got) {
                to.close();
                co_return;
            }
            const auto sent = co_await to.async_send(*got + 1);
            if (!sent) {
                co_return;
            }
        }
    }(there, back);
    int wrong = 0;
    test::run_threads(1, [&](int) {
        for (int i = 0; i < n; ++i) {
            static_cast<void>(there.send(i));
            wrong += back.recv() == i + 1 ? 0 : 1;
        }
        there.close();
        wrong += back.recv() ? 1 : 0;
    });
    CHECK(wrong == 0);
}
