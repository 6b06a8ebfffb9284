// Waits that a close ends.

#include "support/catch.hpp"
#include "support/channel_waits.hpp"
#include "support/coroutines.hpp"
#include "support/gate.hpp"
#include "support/jitter.hpp"
#include "support/last_touch.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/stop.hpp"

#include <bide/channel/channel.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <vector>

using namespace std::chrono_literals;
using namespace test::channel_waits;

TEMPLATE_TEST_CASE(
    "channel: close wakes every waiter: a sender gets its value back, a receiver gets nothing", "",
    test::native, test::portable) {
    using platform = test::observing<TestType>;
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 3u);
    std::stop_source never = test::new_stop();
    bide::basic_channel<int, platform> full(capacity);
    bide::basic_channel<int, platform> empty(capacity);
    fill(full);
    constexpr int threads = forms_of_send + forms_of_recv;
    bool good[threads] = {};
    test::team waiting(threads, [&](int i) {
        if (i < forms_of_send) {
            good[i] = came_back(send_by(i, full, i, never.get_token()), errc::closed, i);
        } else {
            good[i] = !recv_by(i - forms_of_send, empty, never.get_token());
        }
    });
    REQUIRE(test::are_asleep<TestType>(threads));
    send_ending sends[3];
    recv_ending recv;
    limited_ending limited_recv;
    ending<std::size_t> recv_n;
    ints out{7};
    let_go(full.async_send(10), sends[0]);
    let_go(full.async_send(11).with_timeout(1h), sends[1]);
    let_go(full.async_send(12).with_stop(never.get_token()).as_result(), sends[2]);
    let_go(empty.async_recv(), recv);
    let_go(empty.async_recv().with_timeout(1h).with_stop(never.get_token()), limited_recv);
    let_go(empty.async_recv_n(out, 5), recv_n);
    CHECK(full.close());
    CHECK(empty.close());
    for (int i = 0; i < 3; ++i) {
        CHECK(is_back(sends[i], errc::closed, 10 + i));
    }
    CHECK(is_closed(recv));
    REQUIRE(limited_recv.done);
    REQUIRE(limited_recv.out->has_value()); // closed is no error, it is the end
    CHECK_FALSE(limited_recv.out->value());
    REQUIRE(recv_n.done);
    CHECK(*recv_n.out == 0);
    CHECK(out == ints{7});
    waiting.join();
    for (const bool g : good) {
        CHECK(g);
    }
    CHECK(take_all(full) == numbers(0, static_cast<int>(capacity))); // what was inside stays
}

TEST_CASE("channel: a waiter that was granted before close, and has not resumed, stays granted") {
    const std::size_t capacity = GENERATE(0u, 1u);
    channel ch(capacity);
    test::manual_executor later;
    recv_ending recv;
    send_ending send;
    auto receiver = hold(ch.async_recv().resume_on(later), recv);
    receiver.start();
    REQUIRE(ch.try_send(1));
    fill(ch);
    auto sender = hold(ch.async_send(2).resume_on(later), send);
    sender.start();
    const auto first = ch.try_recv();
    REQUIRE(first.has_value());
    CHECK(*first == (capacity == 0 ? 2 : 0));
    ch.close();
    CHECK(later.run_all() == 2);
    CHECK(has(recv, 1));
    CHECK(is_sent(send));
    CHECK(take_all(ch) == (capacity == 0 ? ints{} : ints{2})); // it did get in
}

TEMPLATE_TEST_CASE("channel: a send at the time of close fails with its value or is received",
                   "[promise.closed-channel-drains]", test::native, test::jittery) {
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    for (int round = 0; round < 300; ++round) {
        const auto capacity = static_cast<std::size_t>(round % 4);
        bide::basic_channel<int, TestType> ch(capacity);
        std::array<ints, 2> went;
        std::array<bool, 2> failed{};
        ints came;
        test::run_threads(4, [&](int i) {
            test::jitter pause(test::run_seed() + static_cast<std::uint32_t>(4 * round + i));
            pause();
            if (i < 2) {
                const auto me = static_cast<std::size_t>(i);
                for (int n = 0;; ++n) {
                    const int value = n * 2 + i;
                    const auto got = ch.send(value);
                    if (!got) {
                        failed[me] = came_back(got, errc::closed, value);
                        return;
                    }
                    went[me].push_back(value);
                }
            } else if (i == 2) {
                while (const auto got = ch.recv()) {
                    came.push_back(*got);
                }
            } else {
                pause.dawdle(16);
                ch.close();
            }
        });
        REQUIRE((failed[0] && failed[1]));
        REQUIRE(ch.empty());
        ints all = went[0];
        all.insert(all.end(), went[1].begin(), went[1].end());
        std::sort(all.begin(), all.end());
        std::sort(came.begin(), came.end());
        REQUIRE(came == all);
    }
}
