// Waits with a stop token.

#include "support/catch.hpp"
#include "support/channel_waits.hpp"
#include "support/coroutines.hpp"
#include "support/gate.hpp"
#include "support/jitter.hpp"
#include "support/last_touch.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/service.hpp"
#include "support/stop.hpp"
#include "support/waiting.hpp"

#include <bide/channel/channel.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using namespace test::channel_waits;

TEMPLATE_TEST_CASE(
    "channel: a stop ends the waits it is for and no other, and the value comes back", "",
    test::native) {
    using platform = test::observing<TestType>;
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u);
    bide::basic_channel<int, platform> full(capacity);
    bide::basic_channel<int, platform> empty(capacity);
    fill(full);
    std::stop_source stop = test::new_stop();
    std::stop_source other = test::new_stop();
    std::optional<sent<int>> by_thread[2];
    std::optional<bide::result<int>> to_thread[2];
    std::atomic<int> over{0};
    test::team threads(4, [&](int i) {
        const std::stop_token token = i % 2 == 0 ? stop.get_token() : other.get_token();
        if (i < 2) {
            by_thread[i].emplace(full.send(token, i));
        } else {
            to_thread[i - 2].emplace(empty.recv(token));
        }
        ++over;
    });
    REQUIRE(test::are_asleep<TestType>(4));
    send_ending send[2];
    limited_ending recv[2];
    ending<bide::result<std::size_t>> recv_n;
    ints out{7};
    let_go(full.async_send(10).with_stop(stop.get_token()), send[0]);
    let_go(full.async_send(11).with_stop(other.get_token()), send[1]);
    let_go(empty.async_recv().with_stop(stop.get_token()), recv[0]);
    let_go(empty.async_recv().with_stop(other.get_token()), recv[1]);
    let_go(empty.async_recv_n(out, 3).with_stop(stop.get_token()), recv_n);
    stop.request_stop();
    REQUIRE(ends(send[0]));
    REQUIRE(ends(recv[0]));
    REQUIRE(ends(recv_n));
    REQUIRE(test::eventually([&] { return over == 2; }));
    CHECK(is_back(send[0], errc::stopped, 10));
    CHECK(is(*recv[0].out, errc::stopped));
    CHECK(is(*recv_n.out, errc::stopped));
    CHECK(out == ints{7});
    test::service_thread<platform>();
    CHECK(send[0].on != std::this_thread::get_id()); // which requested the stop
    CHECK(recv[0].on != std::this_thread::get_id());
    CHECK_FALSE(send[1].done);
    CHECK_FALSE(recv[1].done);
    for (int i = 0; i < 2; ++i) { // the other two are served
        CHECK(empty.try_send(i));
    }
    ints came = take_all(full);
    threads.join();
    CHECK(is_sent(send[1]));
    CHECK(recv[1].done);
    CHECK(came_back(*by_thread[0], errc::stopped, 0));
    CHECK(by_thread[1]->has_value());
    CHECK(is(*to_thread[0], errc::stopped));
    CHECK(to_thread[1]->value() == 0); // the first of the waiters that were left
    CHECK(recv[1].out->value() == 1);
    ints expected = numbers(0, static_cast<int>(capacity));
    expected.insert(expected.end(), {1, 11});
    CHECK(came == expected);
    other.request_stop(); // too late for anything
}

TEST_CASE("channel: a stop that was requested before ends only operations that have to wait") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u);
    channel ch(capacity);
    std::stop_source stop = test::new_stop();
    stop.request_stop();
    limited_ending none;
    let_go(ch.async_recv().with_stop(stop.get_token()), none);
    REQUIRE(ends(none));
    CHECK(is(*none.out, errc::stopped));
    if (capacity > 0) {
        send_ending first;
        let_go(ch.async_send(1).with_stop(stop.get_token()), first);
        CHECK(is_sent(first));
    }
    send_ending second;
    let_go(ch.async_send(2).with_stop(stop.get_token()), second);
    REQUIRE(ends(second));
    CHECK(is_back(second, errc::stopped, 2));
    if (capacity > 0) {
        limited_ending there;
        let_go(ch.async_recv().with_stop(stop.get_token()), there);
        REQUIRE(there.done);
        CHECK(there.out->value() == 1);
    }
    ch.close();
    limited_ending at_end; // closed comes before stopped
    let_go(ch.async_recv().with_stop(stop.get_token()), at_end);
    REQUIRE(at_end.done);
    CHECK((at_end.out->has_value() && !at_end.out->value()));
    send_ending closed;
    let_go(ch.async_send(3).with_stop(stop.get_token()), closed);
    CHECK(is_back(closed, errc::closed, 3));
}

TEST_CASE("channel: a stop or a time-out after the grant changes nothing") {
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u);
    channel ch(capacity);
    test::manual_executor later;
    std::stop_source stop = test::new_stop();
    const auto when = steady_clock::now() + 300ms;
    limited_ending recv;
    send_ending send;
    auto receiver = hold(
        ch.async_recv().with_stop(stop.get_token()).with_deadline(when).resume_on(later), recv);
    receiver.start();
    REQUIRE(ch.try_send(1));
    fill(ch);
    auto sender = hold(
        ch.async_send(2).with_stop(stop.get_token()).with_deadline(when).resume_on(later), send);
    sender.start();
    REQUIRE(ch.try_recv());
    REQUIRE(later.size() == 2); // else it has taken 300 ms to come here
    SECTION("stopped") { stop.request_stop(); }
    SECTION("late") {
        REQUIRE(test::eventually([&] { return steady_clock::now() > when + 20ms; }));
        test::service_thread();
    }
    CHECK(later.run_all() == 2);
    CHECK(recv.out->value() == 1);
    CHECK(is_sent(send));
}

TEMPLATE_TEST_CASE("channel: a stop, a time-out and an item at once end a wait once, and the item "
                   "is received or left",
                   "", test::native, test::jittery) {
    INFO("BIDE_TEST_SEED=" << test::run_seed());
    for (int round = 0; round < 300; ++round) {
        const auto capacity = static_cast<std::size_t>(round % 3);
        bide::basic_channel<int, TestType> ch(capacity);
        std::stop_source stop = test::new_stop();
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(round));
        limited_ending coroutine;
        let_go(ch.async_recv().with_stop(stop.get_token()).with_timeout(chance.rest(17)),
               coroutine);
        bool went = false;
        std::optional<bide::result<int>> thread;
        test::run_threads(3, [&](int i) {
            test::jitter pause(test::run_seed() + static_cast<std::uint32_t>(round * 3 + i));
            pause.dawdle(14);
            if (i == 0) {
                went = ch.try_send(1).has_value();
            } else if (i == 1) {
                stop.request_stop();
            } else {
                thread.emplace(ch.recv(stop.get_token()));
            }
        });
        REQUIRE(ends(coroutine));
        const int got_there = thread->has_value() ? 1 : 0;
        const int got_here = coroutine.out->has_value() ? 1 : 0;
        const int inside = static_cast<int>(ch.size());
        REQUIRE(got_there + got_here + inside == (went ? 1 : 0));
        REQUIRE((got_here == 1 || coroutine.out->error() == errc::stopped ||
                 coroutine.out->error() == errc::timeout));
        REQUIRE((got_there == 1 || thread->error() == errc::stopped));
    }
}
