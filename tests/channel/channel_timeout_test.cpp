// Waits with a time-out or a deadline.

#include "support/channel_waits.hpp"
#include "support/coroutines.hpp"
#include "support/gate.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/test.hpp"

#include <bide/channel/channel.hpp>

using namespace std::chrono_literals;
using namespace test::channel_waits;

namespace {

// What the options make of the three operations.
struct any {
    static channel& a() noexcept;
    static ints& out() noexcept;
    static test::manual_executor& elsewhere() noexcept;
};
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

} // namespace

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

TEST_CASE(
    "channel: a time that has passed is one attempt for a coroutine, which does not suspend") {
    const std::size_t capacity = GENERATE(0u, 1u);
    using seconds = std::chrono::duration<double>;
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    for (const double rest : {nan, 0.0, -1e300}) {
        channel ch(capacity);
        limited_ending none;
        ending<bide::result<std::size_t>> none_n;
        send_ending no_room;
        ints out;
        let_go(ch.async_recv().with_timeout(seconds(rest)), none);
        let_go(ch.async_recv_n(out, 3).with_timeout(seconds(rest)), none_n);
        REQUIRE((none.done && none_n.done));
        CHECK(is(*none.out, errc::timeout));
        CHECK(is(*none_n.out, errc::timeout));
        fill(ch);
        let_go(ch.async_send(5).with_deadline(steady_clock::time_point::min()), no_room);
        CHECK(is_back(no_room, errc::timeout, 5));
        if (capacity > 0) { // an item that is there is had, late or not
            limited_ending late;
            let_go(ch.async_recv().with_timeout(seconds(rest)), late);
            REQUIRE(late.done);
            CHECK(late.out->value() == 0);
            send_ending also_late;
            let_go(ch.async_send(1).with_timeout(seconds(rest)), also_late);
            CHECK(is_sent(also_late));
        }
    }
}

TEST_CASE("channel: a huge time-out never ends the wait, an item does") {
    using platform = test::observing<test::native>;
    using seconds = std::chrono::duration<double>;
    bide::basic_channel<int, platform> full(1);
    bide::basic_channel<int, platform> empty(1);
    fill(full);
    bool good[6] = {};
    test::team waiting(6, [&](int i) {
        constexpr double infinity = std::numeric_limits<double>::infinity();
        switch (i) {
        case 0: good[i] = full.try_send_for(1, std::chrono::hours::max()).has_value(); break;
        case 1: good[i] = full.try_send_for(1, seconds(infinity)).has_value(); break;
        case 2:
            good[i] = full.try_send_until(1, steady_clock::time_point::max()).has_value();
            break;
        case 3: good[i] = empty.try_recv_for(std::chrono::hours::max()).has_value(); break;
        case 4: good[i] = empty.try_recv_for(seconds(1e300)).has_value(); break;
        default:
            good[i] =
                empty.try_recv_until(std::chrono::system_clock::time_point::max()).has_value();
        }
    });
    REQUIRE(test::are_asleep<test::native>(6));
    send_ending send;
    let_go(full.async_send(9).with_timeout(std::chrono::hours::max()), send);
    for (int i = 0; i < 3; ++i) {
        CHECK(empty.try_send(i));
        CHECK(full.try_recv());
    }
    waiting.join();
    for (const bool g : good) {
        CHECK(g);
    }
    CHECK(full.try_recv());
    CHECK(is_sent(send));
    CHECK(full.size() == 1);
}
