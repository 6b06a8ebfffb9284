#include <bide/core/async_op.hpp>
#include <support/alloc.hpp>
#include <support/takers.hpp>
#include <support/test.hpp>

// The results of an operation. async_op_resume_test.cpp tests where a coroutine resumes.
// async_op_cancel_test.cpp and async_op_destroy_test.cpp test how its wait ends early.

using namespace bide;
using namespace test;

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

struct refusal {
    errc code;
    std::unique_ptr<int> value;
};

// An item that is consumed if there is a token, and returned otherwise.
struct offer {
    using answer = bide::result<void, refusal>;
    tokens& where;
    std::unique_ptr<int> value;

    bide::async_op<answer> async_place() noexcept { return {placing{*this}}; }

    struct placing {
        using waiter = bide::basic_waiter<bide::native_platform>;
        offer& of;

        bide::wait_status try_now() const noexcept {
            return of.where.try_take() ? bide::wait_status::granted : bide::wait_status::waiting;
        }
        bide::wait_status enqueue(waiter& w) const noexcept { return of.where.enqueue(w); }
        bool cancel(waiter& w, bide::wait_status why) const noexcept {
            return of.where.cancel(w, why);
        }
        answer collect(bide::wait_status what) const noexcept {
            if (what == bide::wait_status::granted) {
                return answer();
            }
            return bide::unexpected<refusal>{refusal{bide::errc_of(what), std::move(of.value)}};
        }
    };
};

held place(offer& o, std::stop_token stop, errc& why, std::unique_ptr<int>& back) {
    auto placed = co_await o.async_place().with_stop(stop).with_timeout(1h);
    if (!placed) {
        why = placed.error().code;
        back = std::move(placed).error().value;
    }
}

// Passes the awaited object on: by reference or by value.
template <bool ByValue> struct transforming : test::nowhere {
    template <class Awaitable> auto await_transform(Awaitable&& a) noexcept {
        if constexpr (ByValue) {
            return std::remove_cvref_t<Awaitable>(std::forward<Awaitable>(a));
        } else {
            return passes<Awaitable>(std::forward<Awaitable>(a));
        }
    }

private:
    // Awaits through a coroutine_handle<>, as an adapter of awaiters may.
    template <class Awaitable> class passes {
    public:
        explicit passes(Awaitable&& a) noexcept
            : awaiter_(std::forward<Awaitable>(a).operator co_await()) {}
        bool await_ready() noexcept { return awaiter_.await_ready(); }
        bool await_suspend(std::coroutine_handle<> h) noexcept { return awaiter_.await_suspend(h); }
        decltype(auto) await_resume() { return awaiter_.await_resume(); }

    private:
        decltype(std::declval<Awaitable>().operator co_await()) awaiter_;
    };
};
template <bool ByValue>
test::basic_held<transforming<ByValue>> take_transformed(tokens& t, std::stop_token stop,
                                                         outcome& out) {
    const auto token = co_await t.async_take().with_stop(stop).with_timeout(1h);
    out.note(token);
}

} // namespace

TEST_CASE("async_op: options add their errors to the result") {
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
    STATIC_REQUIRE(sizeof(widened) < sizeof(stopped)); // no space for absent tokens
    STATIC_REQUIRE(std::is_same_v<decltype(std::declval<plain>().with_timeout(1s)), widened>);
    STATIC_REQUIRE(std::is_same_v<decltype(std::declval<widened>().with_timeout(1s)), widened>);
    STATIC_REQUIRE(std::is_same_v<decltype(std::declval<folded>().as_result()), folded>);
    STATIC_REQUIRE(std::is_same_v<decltype(std::declval<folded>().with_stop({})),
                                  bide::async_op<bide::result<int, refused>, 1>>);
    STATIC_REQUIRE(std::is_same_v<plain::value_type, token>);
    STATIC_REQUIRE_FALSE(std::is_copy_constructible_v<plain>);
    STATIC_REQUIRE(std::is_nothrow_move_constructible_v<plain>);
}

TEST_CASE("async_op: it does nothing before co_await") {
    tokens t(1);
    {
        auto op = t.async_take();
        [[maybe_unused]] const auto moved = std::move(op);
        CHECK(t.available() == 1);
    }
    CHECK(t.available() == 1);
    CHECK(t.waiters() == 0);
}

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
    CHECK(t.available() == 1); // the first token was given back
}

TEST_CASE("async_op: as_result gives the error instead, to a waiter and to a late caller") {
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

TEST_CASE("async_op: a primitive's own error type gets the code and keeps the value") {
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

// ---- coroutines of other libraries; interop/foreign_coroutines_test.cpp has whole tasks of them

TEMPLATE_TEST_CASE("async_op: a promise may pass it on in await_transform", "", std::true_type,
                   std::false_type) {
    tokens t(0);
    std::stop_source stop;
    outcome granted;
    outcome stopped;
    auto a = take_transformed<TestType::value>(t, stop.get_token(), granted);
    a.start();
    t.give();
    CHECK(granted.is_granted());
    REQUIRE(t.try_take()); // the coroutine has given the token back
    auto b = take_transformed<TestType::value>(t, stop.get_token(), stopped);
    b.start();
    CHECK(t.waiters() == 1);
    stop.request_stop();
    REQUIRE(test::eventually([&] { return stopped.done.load(); }));
    test::service_thread();
    CHECK(stopped.is(errc::stopped));
}

TEST_CASE("async_op: neither a wait nor a release allocates") {
    tokens t(0);
    manual_executor e;
    outcome outs[4];
    std::stop_source stop;
    test::service_thread(); // the service is started once
    held plain = take(t, outs[0]);
    auto posted = take_on(e, t, outs[1]);
    held limited = take(t, outs[2], stop.get_token(), deadline::after(1h));
    held late = take(t, outs[3], deadline::after(1us));
    const std::size_t before = test::allocations_here();
    plain.start();
    posted.start();
    limited.start();
    late.start();
    while (!outs[3].done) {
        std::this_thread::yield();
    }
    t.give(2);
    e.run_all();
    const std::size_t allocated = test::allocations_here() - before;
    test::service_thread(); // the service has left the coroutine that timed out
    CHECK(outs[0].is_granted());
    CHECK(outs[1].is_granted());
    CHECK(outs[2].is_granted());
    CHECK(outs[3].is(errc::timeout));
    CHECK(allocated == 0);
}
