// No wait allocates.

#include "support/alloc.hpp"
#include "support/catch.hpp"
#include "support/channel_waits.hpp"
#include "support/coroutines.hpp"
#include "support/gate.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/service.hpp"
#include "support/stop.hpp"
#include "support/waiting.hpp"

#include <bide/channel/channel.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <stop_token>
#include <vector>

using namespace std::chrono_literals;
using namespace test::channel_waits;

TEMPLATE_TEST_CASE("channel: no wait allocates", "", test::native) {
    using platform = test::observing<TestType>;
    const test::watchdog guard;
    const std::size_t capacity = GENERATE(0u, 1u, 3u);
    bide::basic_channel<int, platform> full(capacity);
    bide::basic_channel<int, platform> empty(capacity);
    fill(full);
    bide::timer_service<platform>(); // its thread, once
    std::stop_source stop = test::new_stop();
    std::stop_source idle = test::new_stop();

    SECTION("of a thread") {
        std::size_t made[8] = {1, 1, 1, 1, 1, 1, 1, 1};
        bool good[8] = {};
        std::atomic<int> late{0};
        test::team waiting(8, [&](int i) {
            const std::stop_token token = i % 4 == 1 ? stop.get_token() : idle.get_token();
            ints out;
            out.reserve(4);
            const std::size_t before = test::allocations_here();
            switch (i) {
            case 0: good[i] = full.send(1).has_value(); break;
            case 1: good[i] = !full.send(token, 1); break;
            case 2: good[i] = full.send(token, 1).has_value(); break;
            case 3:
                good[i] = !full.try_send_for(1, 1ms);
                ++late;
                good[i] = good[i] && full.try_send_for(1, 1h);
                break;
            case 4: good[i] = empty.recv().has_value(); break;
            case 5: good[i] = !empty.recv(token); break;
            case 6: good[i] = empty.recv_n(out, 1) == 1; break;
            default:
                good[i] = !empty.try_recv_for(1ms);
                ++late;
                good[i] = good[i] && empty.try_recv_for(1h);
                break;
            }
            made[i] = test::allocations_here() - before;
        });
        const bool all =
            test::eventually([&] { return late == 2; }) && test::are_asleep<TestType>(8);
        const std::size_t before = test::allocations_here();
        stop.request_stop();
        bool served = true;
        for (int i = 0; i < 3; ++i) {
            served = full.try_recv() && served;
            served = empty.try_send(i) && served;
        }
        const std::size_t here = test::allocations_here() - before;
        CHECK(here == 0);
        CHECK(all);
        CHECK(served);
        waiting.join();
        for (int i = 0; i < 8; ++i) {
            CAPTURE(i);
            CHECK(good[i]);
            CHECK(made[i] == 0);
        }
    }
    SECTION("of a coroutine") {
        send_ending send[3];
        recv_ending recv;
        limited_ending limited_recv[2];
        ending<std::size_t> recv_n;
        ints out;
        out.reserve(4);
        std::vector<test::held> frames;
        frames.push_back(hold(full.async_send(1), send[0]));
        frames.push_back(hold(full.async_send(1).with_timeout(1h), send[1]));
        frames.push_back(hold(full.async_send(1).with_stop(idle.get_token()), send[2]));
        frames.push_back(hold(empty.async_recv(), recv));
        frames.push_back(hold(empty.async_recv().with_timeout(1h), limited_recv[0]));
        frames.push_back(hold(empty.async_recv().with_stop(idle.get_token()), limited_recv[1]));
        frames.push_back(hold(empty.async_recv_n(out, 4), recv_n));
        bool served = true;
        const std::size_t before = test::allocations_here();
        for (test::held& frame : frames) {
            frame.start();
        }
        for (int i = 0; i < 3; ++i) {
            served = full.try_recv() && served;
        }
        for (int i = 0; i < 4; ++i) {
            served = empty.try_send(i) && served;
        }
        const std::size_t made = test::allocations_here() - before;
        CHECK(made == 0);
        CHECK(served);
        for (const test::held& frame : frames) {
            CHECK(frame.done());
        }
    }
}
