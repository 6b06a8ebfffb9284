#include <bide/core/waiter.hpp>
#include <support/alloc.hpp>
#include <support/fake_clock.hpp>
#include <support/platforms.hpp>
#include <support/stop.hpp>
#include <support/takers.hpp>
#include <support/test.hpp>

using namespace bide;
using test::basic_tokens;

namespace {

// Hands its token on when a wait is cancelled: the removal lets another waiter through.
struct passing : test::tokens {
    using test::tokens::tokens;
    bide::wait_status take_stoppable(const std::stop_token& stop) {
        return bide::thread_wait<passing, test::native>::until(*this, 1, stop);
    }
    bool cancel(bide::basic_waiter<test::native>& w, wait_status why) noexcept {
        const bool removed = test::tokens::cancel(w, why);
        if (removed) {
            give();
        }
        return removed;
    }
};

// A primitive with its own await().
struct own_way : test::tokens {
    using test::tokens::tokens;
    int awaited = 0;
    bool await(bide::basic_waiter<test::native>& w, deadline end) noexcept {
        ++awaited;
        return w.park(end);
    }
};

// The waiting side of a primitive that is destroyed as soon as the wait is over, before the owner
// has returned. Then a stop is requested.
struct vanishing {
    std::stop_source stop = test::new_stop();
    bide::wait_status outcome;
    int touched = 0;
    bool gone = false;

    explicit vanishing(bide::wait_status what) : outcome(what) {}
    wait_status enqueue(bide::basic_waiter<test::native>&) noexcept { return wait_status::waiting; }
    bool cancel(bide::basic_waiter<test::native>&, wait_status) noexcept {
        touched += gone ? 1 : 0;
        return false;
    }
    bool await(bide::basic_waiter<test::native>& w, deadline end) noexcept {
        w.publish(outcome);
        gone = true;
        stop.request_stop(); // the stop callback runs here
        return w.park(end);
    }
};

} // namespace

TEST_CASE("thread_wait: a wait that completes in enqueue does not block") {
    basic_tokens<test::native> t(2);
    CHECK(t.take_until(deadline::never()) == wait_status::granted);
    CHECK(t.take(std::stop_token()) == wait_status::granted);
    t.close();
    CHECK(t.take_until(deadline::never()) == wait_status::closed);
    CHECK(t.take(std::stop_token()) == wait_status::closed);
}

TEMPLATE_TEST_CASE("thread_wait: a stop before or during the wait ends it", "", test::native,
                   test::portable) {
    basic_tokens<TestType> t(0);
    std::stop_source before = test::new_stop();
    before.request_stop();
    CHECK(t.take(before.get_token()) == wait_status::stopped);

    std::stop_source within = test::new_stop();
    t.before_enqueue(bide::waker(
        [](void* s) noexcept { static_cast<std::stop_source*>(s)->request_stop(); }, &within));
    CHECK(t.take(within.get_token()) == wait_status::stopped);

    std::stop_source after = test::new_stop();
    wait_status seen{};
    test::run_threads(2, [&](int me) {
        if (me == 0) {
            seen = t.take(after.get_token());
        } else {
            test::eventually([&] { return t.waiters() == 1; });
            after.request_stop();
        }
    });
    CHECK(seen == wait_status::stopped);
    CHECK(t.waiters() == 0);
    t.give();
    CHECK(t.available() == 1);
}

TEST_CASE("thread_wait: a stop after the wait does not access it") {
    basic_tokens<test::native> t(1);
    std::stop_source stop = test::new_stop();
    CHECK(t.take(stop.get_token()) == wait_status::granted);
    stop.request_stop();
    t.give();
    CHECK(t.available() == 1);
}

TEST_CASE("thread_wait: a coroutine that a stop lets through resumes on another thread") {
    passing t(0);
    test::outcome out;
    std::stop_source stop = test::new_stop();
    wait_status seen{};
    test::held behind = test::take(t, out);
    test::run_threads(2, [&](int me) {
        if (me == 0) {
            seen = t.take_stoppable(stop.get_token());
        } else {
            test::eventually([&] { return t.waiters() == 1; });
            behind.start();
            stop.request_stop();
        }
    });
    REQUIRE(test::eventually([&] { return out.done.load(); }));
    CHECK(seen == wait_status::stopped);
    CHECK(out.is_granted());
    CHECK(out.on_resumer);
    test::service_thread(); // the service has left the coroutine
}

TEST_CASE("thread_wait: a stop after the outcome does not access the primitive") {
    for (const wait_status what : {wait_status::granted, wait_status::closed}) {
        vanishing q(what);
        using waits = bide::thread_wait<vanishing, test::native>;
        CHECK(waits::until(q, 1, q.stop.get_token()) == what);
        CHECK(q.gone);
        CHECK(q.touched == 0);
    }
}

TEST_CASE("thread_wait: a primitive's own await() replaces park()") {
    own_way t(0);
    using waits = bide::thread_wait<own_way, test::native>;
    CHECK(waits::until(t, 1, deadline::after(1us)) == wait_status::timed_out);
    CHECK(t.awaited == 1);
}

TEMPLATE_TEST_CASE("thread_wait: a clock that is set past a deadline ends the wait",
                   "[promise.time-limits]", test::native, test::portable, test::jittery) {
    struct tag {};
    using clock = test::fake_clock<std::pair<tag, TestType>>;
    clock::set(0s);
    clock::reads = 0;
    basic_tokens<TestType> t(0);
    wait_status seen{};
    test::run_threads(2, [&](int me) {
        if (me == 0) {
            seen = t.take_until(deadline::at(typename clock::time_point(1h)));
        } else {
            test::eventually([&] { return t.waiters() == 1 && clock::reads > 1; });
            clock::set(-1h);
            clock::set(2h);
        }
    });
    CHECK(seen == wait_status::timed_out);
}

TEMPLATE_TEST_CASE("thread_wait: errno stays as it was and nothing is allocated", "", test::native,
                   test::portable) {
    basic_tokens<TestType> t(0);
    std::stop_source stop = test::new_stop();
    stop.request_stop();
    t.take_until(deadline::after(1us)); // the first use makes the portable table
    const std::size_t before = test::allocations();
    errno = 4711;
    t.take_until(deadline::after(1us));
    const int after = errno;
    t.take(stop.get_token());
    t.give();
    t.take_until(deadline::never());
    const std::size_t allocated = test::allocations() - before;
    CHECK(after == 4711);
    CHECK(allocated == 0);
}
