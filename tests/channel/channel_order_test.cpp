// The order in which waiters are served, by threads and coroutines together.

#include "support/catch.hpp"
#include "support/channel_waits.hpp"
#include "support/coroutines.hpp"
#include "support/gate.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/stop.hpp"
#include "support/waiting.hpp"

#include <bide/channel/channel.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using namespace test::channel_waits;

TEMPLATE_TEST_CASE("channel: waiting senders send in the order in which they came, threads "
                   "and coroutines",
                   "", test::native, test::portable) {
    using platform = test::observing<TestType>;
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 3u);
    bide::basic_channel<int, platform> ch(capacity);
    fill(ch);
    std::stop_source never = test::new_stop();
    std::deque<test::team> threads;
    std::array<std::atomic<bool>, 2 * forms_of_send> went{};
    send_ending ends[forms_of_send];
    std::vector<test::held> coroutines;
    for (int i = 0; i < forms_of_send; ++i) {
        threads.emplace_back(1, [&, i](int) {
            const auto got = send_by(i, ch, 100 + 2 * i, never.get_token());
            went[static_cast<std::size_t>(i)] = got.has_value();
        });
        REQUIRE(test::are_asleep<TestType>(i + 1));
        auto op = ch.async_send(101 + 2 * i);
        coroutines.push_back(
            i % 2 == 0
                ? hold(std::move(op), ends[i])
                : hold(std::move(op).with_stop(never.get_token()).with_timeout(1h), ends[i]));
        coroutines.back().start();
    }
    ints expected = numbers(0, static_cast<int>(capacity));
    for (const int i : numbers(100, 100 + 2 * forms_of_send)) {
        expected.push_back(i);
    }
    CHECK(take_all(ch) == expected);
    for (test::team& t : threads) {
        t.join();
    }
    for (int i = 0; i < forms_of_send; ++i) {
        CHECK(went[static_cast<std::size_t>(i)]);
        CHECK(is_sent(ends[i]));
    }
    CHECK(ch.empty());
}

TEMPLATE_TEST_CASE("channel: waiting receivers receive in the order in which they came, "
                   "threads and coroutines",
                   "[promise.channel-fifo]", test::native, test::portable) {
    using platform = test::observing<TestType>;
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 3u);
    bide::basic_channel<int, platform> ch(capacity);
    std::stop_source never = test::new_stop();
    std::deque<test::team> threads;
    std::array<std::optional<int>, forms_of_recv> got;
    recv_ending ends[forms_of_recv];
    std::vector<test::held> coroutines;
    for (int i = 0; i < forms_of_recv; ++i) {
        threads.emplace_back(1, [&, i](int) {
            got[static_cast<std::size_t>(i)] = recv_by(i, ch, never.get_token());
        });
        REQUIRE(test::are_asleep<TestType>(i + 1));
        coroutines.push_back(hold(ch.async_recv(), ends[i]));
        coroutines.back().start();
    }
    for (int i = 0; i < 2 * forms_of_recv; ++i) {
        REQUIRE(ch.try_send(i)); // each finds a waiter
        REQUIRE(ch.empty());
    }
    for (test::team& t : threads) {
        t.join();
    }
    for (int i = 0; i < forms_of_recv; ++i) {
        CHECK(got[static_cast<std::size_t>(i)] == 2 * i);
        CHECK(has(ends[i], 2 * i + 1));
    }
}

TEST_CASE("channel: receivers that come again and again get the same share") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 5u);
    channel ch(capacity);
    std::array<ints, 3> got;
    for (ints& mine : got) {
        [](channel& from, ints& out) -> test::detached {
            for (;;) {
                const std::optional<int> item = co_await from.async_recv();
                if (!item) {
                    co_return;
                }
                out.push_back(*item);
            }
        }(ch, mine);
    }
    for (int i = 0; i < 300; ++i) {
        REQUIRE(ch.try_send(i));
    }
    ch.close();
    for (int i = 0; i < 3; ++i) {
        const ints& mine = got[static_cast<std::size_t>(i)];
        REQUIRE(mine.size() == 100);
        for (int k = 0; k < 100; ++k) {
            REQUIRE(mine[static_cast<std::size_t>(k)] == 3 * k + i);
        }
    }
}

TEST_CASE("channel: waiters resume in the order of the items") {
    const test::watchdog guard;
    channel ch(8);
    test::journal notes;
    for (int i = 0; i < 5; ++i) {
        recv_one(ch, notes);
    }
    ints items = numbers(0, 8);
    CHECK(ch.try_send_n(items) == 8);
    CHECK(notes.entries() == numbers(0, 5));
    CHECK(take_all(ch) == numbers(5, 8));
}

TEMPLATE_TEST_CASE(
    "channel: threads on the one side and coroutines on the other pass all, in order", "",
    test::native) {
    const std::size_t capacity = GENERATE(0u, 1u, 3u);
    constexpr int n = 2'000;
    bide::basic_channel<int, TestType> there(capacity);
    bide::basic_channel<int, TestType> back(capacity);
    {
        test::thread_executor where;
        const auto echo = [](bide::basic_channel<int, TestType>& in,
                             bide::basic_channel<int, TestType>& out,
                             test::thread_executor& on) -> test::detached {
            for (;;) {
                const std::optional<int> got = co_await in.async_recv().resume_on(on);
                if (!got) {
                    out.close();
                    co_return;
                }
                const auto went = co_await out.async_send(*got).resume_on(on);
                if (!went) {
                    co_return;
                }
            }
        };
        echo(there, back, where);
        ints got;
        int went = 0;
        test::run_threads(2, [&](int i) {
            if (i == 0) {
                for (int k = 0; k < n; ++k) {
                    went += there.send(k) ? 1 : 0;
                }
                there.close();
            } else {
                for (const int k : back) {
                    got.push_back(k);
                }
            }
        });
        CHECK(went == n);
        CHECK(got == numbers(0, n));
    }
}

TEMPLATE_TEST_CASE("channel: what came before a send is seen by the receiver", "", test::native) {
    const std::size_t capacity = GENERATE(0u, 1u, 3u);
    constexpr int n = 300;
    bide::basic_channel<int, TestType> ch(capacity);
    std::array<int, n> news{}; // plain: a sanitizer sees whether it is ordered
    bool good = true;
    test::run_threads(2, [&](int i) {
        for (int k = 0; k < n; ++k) {
            if (i == 0) {
                news[static_cast<std::size_t>(k)] = k;
                static_cast<void>(ch.send(k));
            } else {
                const std::optional<int> got = ch.recv();
                good = good && got == k && news[static_cast<std::size_t>(k)] == k;
            }
        }
    });
    CHECK(good);
}
