// Waits with a stop token.

#include "support/channel_waits.hpp"
#include "support/coroutines.hpp"
#include "support/gate.hpp"
#include "support/service.hpp"
#include "support/stop.hpp"
#include "support/test.hpp"

#include <bide/channel/channel.hpp>

using namespace std::chrono_literals;
using namespace test::channel_waits;

TEST_CASE("channel: a stop that was requested before ends only operations that have to wait") {
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
