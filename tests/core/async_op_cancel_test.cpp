#include <bide/core/async_op.hpp>
#include <bide/sync/semaphore.hpp>
#include <support/fake_clock.hpp>
#include <support/takers.hpp>
#include <support/test.hpp>

// A stop or a time-out ends a coroutine's wait early.

using namespace bide;
using namespace test;

namespace {

std::thread::id here() { return std::this_thread::get_id(); }

// Returns when the coroutine has its outcome and the resumer has left it.
void settle(const outcome& out) {
    REQUIRE(test::eventually([&] { return out.done.load(); }));
    test::service_thread();
}

held acquire(bide::semaphore& s, std::ptrdiff_t n, std::stop_token stop, outcome& out) {
    const auto permit = co_await s.async_acquire(n).with_stop(stop);
    out.note(permit);
}

held take_either(tokens& t, std::stop_token a, std::stop_token b, outcome& out) {
    const auto token = co_await t.async_take().with_stop(a).with_stop(b);
    out.note(token);
}
held take_limited(tokens& t, std::stop_token a, std::stop_token b, manual_executor& e,
                  outcome& out) {
    const auto token = co_await t.async_take()
                           .with_timeout(1h)
                           .with_stop(a)
                           .as_result()
                           .resume_on(e)
                           .with_deadline(deadline::never())
                           .with_stop(b)
                           .as_result()
                           .with_timeout(2h);
    out.note(token);
}

template <class Duration> held take_for(tokens& t, Duration rest, outcome& out) {
    const auto token = co_await t.async_take().with_timeout(rest);
    out.note(token);
}
template <class Time> held take_until(tokens& t, Time end, outcome& out) {
    const auto token = co_await t.async_take().with_deadline(end);
    out.note(token);
}

// Blocks at the barrier if the wait ended on a resumer: its time may have passed before it began.
held take_and_pass(tokens& t, std::stop_token stop, deadline until, test::barrier& where,
                   outcome& out) {
    const auto token = co_await t.async_take().with_stop(stop).with_deadline(until);
    if (test::is_resumer()) {
        where.pass();
    }
    out.note(token);
}

} // namespace

TEST_CASE("async_op: a stop in await_suspend, before the wait is queued, ends the wait") {
    tokens t(0);
    std::stop_source stop;
    outcome out;
    held h = take(t, out, stop.get_token());
    t.before_enqueue(bide::waker(
        [](void* s) noexcept { static_cast<std::stop_source*>(s)->request_stop(); }, &stop));
    h.start();
    CHECK(h.done());
    CHECK(out.is(errc::stopped));
    CHECK(t.waiters() == 0);
}

TEST_CASE("async_op: a stop resumes the coroutine on a resumer, not on the requester's thread") {
    tokens t(0);
    std::stop_source stop;
    outcome out;
    held h = take(t, out, stop.get_token());
    h.start();
    CHECK(t.waiters() == 1);
    stop.request_stop();
    CHECK(t.waiters() == 0);
    settle(out);
    CHECK(out.is(errc::stopped));
    CHECK(out.on_resumer);
    CHECK(out.on != here());
}

TEST_CASE("async_op: a stop does not access a destroyed coroutine") {
    tokens t(1);
    std::stop_source stop;
    {
        outcome ready;
        outcome waited;
        outcome dropped;
        held a = take(t, ready, stop.get_token());
        held b = take(t, waited, stop.get_token());
        held c = take(t, dropped, stop.get_token());
        a.start();
        CHECK(t.try_take());
        b.start();
        c.start();
        t.give();
    }
    CHECK(t.waiters() == 0);
    stop.request_stop();
    test::service_thread();
    CHECK(t.available() == 1);
}

TEST_CASE(
    "async_op: a waiter that a stopped wait lets through does not resume inside the stop either",
    "[promise.stop-resumes-elsewhere]") {
    bide::semaphore s(2);
    std::stop_source stop;
    outcome large;
    outcome small;
    held head = acquire(s, 5, stop.get_token(), large);
    held next = acquire(s, 1, std::stop_token(), small);
    head.start();
    next.start();
    CHECK(s.waiters() == 2);
    stop.request_stop(); // the two free permits pass from the head to the next
    settle(large);
    settle(small);
    CHECK(large.is(errc::stopped));
    CHECK(small.is_granted());
    CHECK(small.on_resumer);
    CHECK(large.on_resumer);
    CHECK(s.available() == 2);
}

TEST_CASE(
    "async_op: two stop tokens, of one source or two, impossible, requested before or later") {
    enum kind { impossible, before, later };
    for (const bool one_source : {false, true}) {
        for (const kind a : {impossible, before, later}) {
            for (const kind b : {impossible, before, later}) {
                CAPTURE(one_source, a, b);
                std::stop_source stops[2];
                std::stop_source& second = stops[one_source ? 0 : 1];
                const std::stop_token token_a =
                    a == impossible ? std::stop_token() : stops[0].get_token();
                const std::stop_token token_b =
                    b == impossible ? std::stop_token() : second.get_token();
                tokens t(0);
                outcome dropped;
                outcome granted;
                outcome out;
                {
                    held gone = take_either(t, token_a, token_b, dropped);
                    held given = take_either(t, token_a, token_b, granted);
                    gone.start();
                    gone.destroy();
                    given.start();
                    t.give();
                    CHECK(granted.is_granted());
                }
                REQUIRE(t.try_take()); // the coroutine has given the token back
                if (a == before) {
                    stops[0].request_stop();
                }
                if (b == before) {
                    second.request_stop();
                }
                held h = take_either(t, token_a, token_b, out);
                h.start();
                if (token_a.stop_requested() || token_b.stop_requested()) {
                    CHECK(h.done());
                    CHECK(out.on == here());
                    CHECK(out.is(errc::stopped));
                } else if (a == later || b == later) {
                    CHECK(t.waiters() == 1);
                    (a == later ? stops[0] : second).request_stop();
                    settle(out);
                    CHECK(out.on_resumer);
                    CHECK(out.is(errc::stopped));
                    second.request_stop(); // has no effect
                } else {
                    t.give();
                    CHECK(out.is_granted());
                }
                CHECK(t.waiters() == 0);
            }
        }
    }
}

TEST_CASE("async_op: its options may come in any order, and twice") {
    for (const int requested : {0, 1}) {
        tokens t(0);
        outcome out;
        manual_executor e;
        std::stop_source stops[2];
        held limited = take_limited(t, stops[0].get_token(), stops[1].get_token(), e, out);
        limited.start();
        CHECK(t.waiters() == 1);
        stops[requested].request_stop();
        CHECK(t.waiters() == 0);
        CHECK(e.run_all() == 1);
        CHECK(out.is(errc::stopped));
    }
}

TEST_CASE("async_op: two stop tokens, requested on two threads, end the wait once") {
    for (int round = 0; round < 200; ++round) {
        tokens t(0);
        std::stop_source stops[2];
        outcome out;
        held h = take_either(t, stops[0].get_token(), stops[1].get_token(), out);
        h.start();
        test::run_threads(2, [&](int i) { stops[i].request_stop(); });
        settle(out);
        REQUIRE(out.is(errc::stopped));
        REQUIRE(t.waiters() == 0);
    }
}

TEST_CASE("async_op: a zero or negative time is one attempt on the same thread") {
    for (const deadline end : {deadline::poll(), deadline::after(0s), deadline::after(-1h),
                               deadline::at(std::chrono::system_clock::now() - 1h)}) {
        tokens t(0);
        outcome out;
        held h = take(t, out, end);
        h.start();
        CHECK(h.done()); // it did not suspend: no thread came to resume it
        CHECK(out.is(errc::timeout));
        CHECK(out.on == here());
    }
}

TEST_CASE("async_op: a time-out resumes the coroutine on a resumer, not before its time") {
    CHECK(test::in_some_time(2ms, [](auto time) { // one that passes before the wait resumes nothing
        tokens t(0);
        outcome out;
        held h = take_for(t, time, out);
        const auto before = std::chrono::steady_clock::now();
        h.start();
        settle(out);
        CHECK(std::chrono::steady_clock::now() - before >= time);
        CHECK(out.is(errc::timeout));
        CHECK(t.waiters() == 0);
        return out.on_resumer;
    }));
}

TEST_CASE("async_op: a deadline is kept on its own clock") {
    struct tag {};
    using clock = test::fake_clock<tag>;
    tokens t(0);
    outcome outs[3];
    held steady = take_until(t, std::chrono::steady_clock::now() + 1ms, outs[0]);
    held system = take_until(t, std::chrono::system_clock::now() + 1ms, outs[1]);
    held fake = take_until(t, clock::time_point(1ms), outs[2]);
    steady.start();
    system.start();
    fake.start();
    REQUIRE(test::eventually([] { return clock::reads > 9; }));
    CHECK_FALSE(outs[2].done);
    clock::set(1ms);
    for (const outcome& out : outs) {
        settle(out);
        CHECK(out.is(errc::timeout));
    }
}

TEST_CASE("async_op: a clock that is set past a deadline ends the wait") {
    struct tag {};
    using clock = test::fake_clock<tag>;
    clock::set(0s);
    tokens t(0);
    outcome out;
    outcome far;
    held h = take_until(t, clock::time_point(1h), out);
    held later = take_until(t, clock::time_point(3h), far);
    h.start();
    later.start();
    clock::set(-1h);
    clock::set(2h);
    settle(out);
    CHECK(out.is(errc::timeout));
    CHECK_FALSE(far.done);
}

TEST_CASE("async_op: a coroutine that blocks after a stop or a time-out delays no other",
          "[promise.resumed-coroutine-delays-none]") {
    tokens t(0);
    test::barrier barriers[2];
    std::stop_source stops[2];
    std::optional<outcome> blocked[2];
    std::optional<held> waits[2];
    outcome others[2];
    blocked[0].emplace();
    waits[0].emplace(
        take_and_pass(t, stops[0].get_token(), deadline::never(), barriers[0], *blocked[0]));
    waits[0]->start();
    stops[0].request_stop();
    REQUIRE(test::eventually([&] { return barriers[0].is_reached(); }));
    REQUIRE(test::in_some_time(1ms, [&](auto time) {
        blocked[1].emplace();
        waits[1].emplace(
            take_and_pass(t, std::stop_token(), deadline::after(time), barriers[1], *blocked[1]));
        waits[1]->start();
        return test::eventually([&] { return barriers[1].is_reached() || blocked[1]->done; }) &&
               !blocked[1]->done;
    }));
    held c = take(t, others[0], stops[1].get_token());
    held d = take(t, others[1], deadline::after(1ms));
    c.start();
    d.start();
    stops[1].request_stop();
    CHECK(test::eventually([&] { return others[0].done && others[1].done; }));
    CHECK(others[0].is(errc::stopped));
    CHECK(others[1].is(errc::timeout));
    CHECK_FALSE(blocked[0]->done);
    CHECK_FALSE(blocked[1]->done);
    barriers[0].open();
    barriers[1].open();
    settle(*blocked[0]);
    settle(*blocked[1]);
    CHECK(t.waiters() == 0);
}
