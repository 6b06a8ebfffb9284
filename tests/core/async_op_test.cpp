#include <bide/core/async_op.hpp>
#include <support/alloc.hpp>
#include <support/catch.hpp>
#include <support/coroutines.hpp>
#include <support/gate.hpp>
#include <support/service.hpp>
#include <support/takers.hpp>

#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

// What it answers. See async_op_resume_test.cpp for where a coroutine goes on, and
// async_op_cancel_test.cpp and async_op_destroy_test.cpp for how its wait ends early.

using namespace std::chrono_literals;
using bide::deadline;
using bide::errc;
using test::held;
using test::manual_executor;
using test::outcome;
using test::take;
using test::take_on;
using test::tokens;

TEST_CASE("async_op: options fold their errors into the result") {
    struct refused {
        errc code;
    };
    using token = tokens::token;
    using plain = bide::async_op<token>;
    using folded = bide::async_op<bide::result<int, refused>>;
    STATIC_REQUIRE(std::is_same_v<bide::as_result_t<int>, bide::result<int>>);
    STATIC_REQUIRE(std::is_same_v<bide::as_result_t<void>, bide::result<void>>);
    STATIC_REQUIRE(
        std::is_same_v<bide::as_result_t<bide::result<int, refused>>, bide::result<int, refused>>);
    using widened = bide::async_op<bide::result<token>>;
    STATIC_REQUIRE(std::is_same_v<decltype(std::declval<plain>().as_result()), widened>);
    using stopped = bide::async_op<bide::result<token>, 1>;
    STATIC_REQUIRE(std::is_same_v<decltype(std::declval<plain>().with_stop({})), stopped>);
    STATIC_REQUIRE(std::is_same_v<decltype(std::declval<widened>().with_stop({})), stopped>);
    STATIC_REQUIRE(std::is_same_v<decltype(std::declval<stopped>().as_result()), stopped>);
    STATIC_REQUIRE(std::is_same_v<decltype(std::declval<stopped>().with_timeout(1s)), stopped>);
    STATIC_REQUIRE(std::is_same_v<decltype(std::declval<stopped>().with_stop({})),
                                  bide::async_op<bide::result<token>, 2>>);
    STATIC_REQUIRE(std::is_same_v<decltype(std::declval<plain>().as_case()),
                                  decltype(std::declval<stopped>().with_stop({}).as_case())>);
    STATIC_REQUIRE(sizeof(widened) < sizeof(stopped)); // no room for tokens that are not there
    STATIC_REQUIRE(std::is_same_v<decltype(std::declval<plain>().with_timeout(1s)), widened>);
    STATIC_REQUIRE(std::is_same_v<decltype(std::declval<widened>().with_timeout(1s)), widened>);
    STATIC_REQUIRE(std::is_same_v<decltype(std::declval<folded>().as_result()), folded>);
    STATIC_REQUIRE(std::is_same_v<decltype(std::declval<folded>().with_stop({})),
                                  bide::async_op<bide::result<int, refused>, 1>>);
    STATIC_REQUIRE(std::is_same_v<plain::value_type, token>);
    STATIC_REQUIRE_FALSE(std::is_copy_constructible_v<plain>);
    STATIC_REQUIRE(std::is_nothrow_move_constructible_v<plain>);
}

TEST_CASE("async_op: it is lazy: nothing happens before co_await") {
    tokens t(1);
    {
        auto op = t.async_take();
        [[maybe_unused]] const auto moved = std::move(op);
        CHECK(t.available() == 1);
    }
    CHECK(t.available() == 1);
    CHECK(t.waiters() == 0);
}

TEST_CASE("async_op: what can complete at once does not suspend") {
    tokens t(1);
    outcome out;
    held h = take(t, out);
    h.start();
    CHECK(h.done());
    CHECK(out.is_granted());
}

namespace {

held take_two(tokens& t, std::string& said) {
    try {
        auto first = co_await t.async_take();
        said += "one ";
        auto second = co_await t.async_take();
        said += "two ";
        first.keep();
        second.keep();
    } catch (const bide::closed_error& e) {
        said += e.code() == errc::closed ? "closed" : "?";
    }
}

} // namespace

TEST_CASE("async_op: without options an error is thrown, and success is the value") {
    tokens t(1);
    std::string said;
    held waits = take_two(t, said);
    waits.start();
    CHECK_FALSE(waits.done());
    CHECK(said == "one ");
    t.give();
    CHECK(waits.done());
    CHECK(said == "one two ");
    CHECK(t.available() == 0);

    held fails = take_two(t, said);
    t.give();
    fails.start();
    t.close();
    CHECK(fails.done());
    CHECK(said == "one two one closed");
    CHECK(t.available() == 1); // the first one went back
}

TEST_CASE("async_op: as_result gives the error instead, to who waits and to who comes late") {
    tokens t(0);
    outcome waited;
    held a = take(t, waited);
    a.start();
    t.close();
    CHECK(waited.is(errc::closed));
    outcome late;
    held b = take(t, late);
    b.start();
    CHECK(late.is(errc::closed));
}

namespace {

struct refusal {
    errc code;
    std::unique_ptr<int> value;
};

// Something that is to be got rid of when there is a token, and comes back otherwise.
struct offer {
    using answer = bide::result<void, refusal>;
    tokens& where;
    std::unique_ptr<int> value;

    bide::async_op<answer> async_place() noexcept {
        using ops = bide::wait_ops<answer, bide::native_platform>;
        static constexpr ops how{
            [](const bide::wait_target& t) noexcept {
                return self(t).where.try_take() ? bide::fate::granted : bide::fate::waiting;
            },
            [](const bide::wait_target& t, ops::waiter& w) noexcept {
                return self(t).where.enqueue(w) != bide::fate::waiting;
            },
            [](const bide::wait_target& t, ops::waiter& w, bide::fate why) noexcept {
                return self(t).where.cancel(w, why);
            },
            [](const bide::wait_target& t, bide::fate what) noexcept {
                return what == bide::fate::granted
                           ? answer()
                           : answer(bide::unexpected<refusal>{
                                 refusal{bide::errc_of(what), std::move(self(t).value)}});
            }};
        return {how, bide::wait_target{this, this, 1}};
    }
    static offer& self(const bide::wait_target& t) noexcept {
        return *static_cast<offer*>(t.owner);
    }
};

held place(offer& o, std::stop_token stop, errc& why, std::unique_ptr<int>& back) {
    auto placed = co_await o.async_place().with_stop(stop).with_timeout(1h);
    if (!placed) {
        why = placed.error().code;
        back = std::move(placed).error().value;
    }
}

} // namespace

TEST_CASE("async_op: an error type of the primitive's own gets the code, and keeps the value") {
    tokens t(0);
    offer o{t, std::make_unique<int>(5)};
    std::stop_source stop;
    errc why{};
    std::unique_ptr<int> back;
    held h = place(o, stop.get_token(), why, back);
    h.start();
    stop.request_stop();
    test::service_thread();
    CHECK(why == errc::stopped);
    REQUIRE(back);
    CHECK(*back == 5);
}

TEST_CASE("async_op: neither waiting nor being released allocates") {
    const test::watchdog guard;
    tokens t(0);
    manual_executor e;
    outcome outs[4];
    std::stop_source stop;
    test::service_thread(); // the service is started once
    held plain = take(t, outs[0]);
    auto posted = take_on(e, t, outs[1]);
    held limited = take(t, outs[2], stop.get_token(), deadline::after(1h));
    held late = take(t, outs[3], deadline::after(1us));
    const std::size_t before = test::allocations();
    plain.start();
    posted.start();
    limited.start();
    late.start();
    while (!outs[3].done) {
        std::this_thread::yield();
    }
    t.give(2);
    e.run_all();
    const std::size_t allocated = test::allocations() - before;
    test::service_thread(); // it has left the late one
    CHECK(outs[0].is_granted());
    CHECK(outs[1].is_granted());
    CHECK(outs[2].is_granted());
    CHECK(outs[3].is(errc::timeout));
    CHECK(allocated == 0);
}
