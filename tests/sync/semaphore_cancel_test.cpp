#include "support/death.hpp"
#include "support/fake_clock.hpp"
#include "support/test.hpp"
#include "support/waiting.hpp"

#include <bide/sync/semaphore.hpp>

namespace {

using counts = std::vector<int>;

// What became of a coroutine's wait.
enum class what { nothing_yet, granted, closed, stopped, timeout };

void note(what& to, const bide::result<bide::permit>& got) {
    to = got                                  ? what::granted
         : got.error() == bide::errc::closed  ? what::closed
         : got.error() == bide::errc::stopped ? what::stopped
                                              : what::timeout;
}

// Coroutines in the hand of the test; their permits go back at the end of each.
test::held hold_on(test::manual_executor& e, bide::semaphore& s, what& end) {
    note(end, co_await s.async_acquire().as_result().resume_on(e));
}

// An event loop's waits, of which one cancels others when its own is over.
template <class Semaphore> struct canceller {
    Semaphore& s;
    std::vector<typename Semaphore::waiter*> victims{};
    std::vector<bool> cancelled{};
    int woken = 0;

    static void on_wake(void* self) noexcept {
        auto& me = *static_cast<canceller*>(self);
        ++me.woken;
        for (auto* w : me.victims) {
            me.cancelled.push_back(me.s.cancel_acquire(*w));
        }
    }
    bide::waker waker() noexcept { return {&on_wake, this}; }
};

test::held hold_two_on(test::manual_executor& e, bide::semaphore& s, std::stop_token t, what& end) {
    note(end, co_await s.async_acquire(2).with_stop(t).resume_on(e));
}

} // namespace

TEST_CASE("semaphore: a cancelled head passes its partial grant on",
          "[promise.giving-up-passes-on]") {
    using bide::semaphore;
    semaphore s(0);
    test::journal turns;
    test::foreign head(s, 5, turns, 0);
    test::foreign second(s, 3, turns, 1);
    test::foreign third(s, 2, turns, 2);
    head.start();
    second.start();
    third.start();
    s.release(4);
    CHECK(turns.size() == 0);
    CHECK(head.cancel());
    CHECK(turns.entries() == counts{1}); // and one of the four is the third's
    CHECK(s.available() == 0);
    CHECK(s.waiters() == 1);
    s.release();
    CHECK(turns.entries() == counts{1, 2});
    CHECK(s.available() == 0);
}

TEST_CASE("semaphore: a coroutine that was granted stays granted when it is closed") {
    test::manual_executor later;
    bide::semaphore s(0);
    what end = what::nothing_yet;
    auto c = hold_on(later, s, end);
    c.start();
    s.release();
    CHECK(s.close());
    REQUIRE(later.run_all() == 1);
    CHECK(c.done());
    CHECK(end == what::granted);
    CHECK(s.available() == 1);
}

TEST_CASE("semaphore: a waker cancels another waiter that its release has granted",
          "[promise.decided-before-wakers]") {
    using bide::semaphore;
    semaphore s(0);
    canceller<semaphore> first{s};
    canceller<semaphore> second{s};
    typename semaphore::waiter one(1, first.waker());
    auto two = std::make_unique<typename semaphore::waiter>(1, second.waker());
    typename semaphore::waiter three(2, second.waker());
    first.victims = {two.get(), &three};
    CHECK_FALSE(s.acquire_wait(one));
    CHECK_FALSE(s.acquire_wait(*two));
    CHECK_FALSE(s.acquire_wait(three));
    const bool closes = GENERATE(false, true);
    if (closes) {
        s.close();
        CHECK(first.cancelled == std::vector{false, false});
        CHECK(three.outcome().error() == bide::errc::closed);
        CHECK(two->outcome().error() == bide::errc::closed);
        CHECK(s.available() == 0);
    } else {
        s.release(3);
        CHECK(first.cancelled == std::vector{false, true});
        CHECK(two->outcome().has_value());
        CHECK(s.available() == 1); // what the third had in part
    }
    CHECK(first.woken == 1);
    CHECK(second.woken == 0);
    CHECK(s.waiters() == 0);
    two.reset(); // nothing touches it any more
}

TEST_CASE("semaphore: cancelling a waiter that does not wait returns true and changes nothing, and "
          "after the grant it fails",
          "[promise.grant-stays]") {
    using bide::semaphore;
    semaphore s(0);
    typename semaphore::waiter w(2, {});
    CHECK(s.cancel_acquire(w)); // never queued
    CHECK(s.cancel_acquire(w));
    CHECK_FALSE(s.acquire_wait(w));
    CHECK(s.waiters() == 1);
    s.release();
    CHECK(s.cancel_acquire(w));
    CHECK(s.cancel_acquire(w)); // cancelled before
    CHECK((s.waiters() == 0 && s.available() == 1));
    CHECK_FALSE(s.acquire_wait(w)); // it may wait again
    s.release();
    CHECK(w.is_complete());
    CHECK_FALSE(s.cancel_acquire(w));
    CHECK_FALSE(s.cancel_acquire(w));
    CHECK(w.outcome().has_value());
    CHECK(s.available() == 0);
}

TEST_CASE("semaphore: a waker that its own cancel wakes may cancel the same waiter") {
    bide::semaphore s(2);
    canceller<bide::semaphore> next{s};
    bide::semaphore::waiter head(5, {});
    bide::semaphore::waiter behind(1, next.waker());
    next.victims = {&head};
    CHECK_FALSE(s.acquire_wait(head));
    CHECK_FALSE(s.acquire_wait(behind));
    CHECK(s.cancel_acquire(head));
    CHECK(next.cancelled == std::vector{true});
    CHECK(s.available() == 1);
}

TEST_CASE(
    "semaphore: a waker that a stop lets through may destroy the coroutine that was stopped") {
    bide::semaphore s(1);
    test::manual_executor never;
    std::stop_source stop;
    what end = what::nothing_yet;
    std::optional<test::held> stopped(hold_two_on(never, s, stop.get_token(), end));
    bide::semaphore::waiter behind(
        1,
        {[](void* v) noexcept { static_cast<std::optional<test::held>*>(v)->reset(); }, &stopped});
    stopped->start();
    CHECK_FALSE(s.acquire_wait(behind));
    stop.request_stop();
    CHECK(behind.is_complete());
    CHECK_FALSE(stopped.has_value());
    never.drop_all();
    CHECK(end == what::nothing_yet);
    CHECK((s.available() == 0 && s.waiters() == 0));
}

#if BIDE_TESTS_CAN_DIE
TEST_CASE("semaphore: to destroy a waiter while it is queued terminates with a message") {
    const auto said = test::dies([] {
        bide::semaphore s(0);
        bide::semaphore::waiter w(1, {});
        s.acquire_wait(w);
    });
    CAPTURE(said);
    CHECK(test::contains(said, "semaphore::waiter"));
    CHECK(test::contains(said, "destroyed while queued"));
}
#endif

TEST_CASE("semaphore: a deadline on a clock that is set back is waited for",
          "[promise.time-limits]") {
    struct tag;
    using clock = test::fake_clock<tag>;
    bide::semaphore s(0);
    clock::set(24h);
    bool got = false;
    test::team waiting(1, [&](int) { got = s.try_acquire_until(clock::time_point(24h + 1ms)); });
    REQUIRE(test::has_waiters(s, 1));
    clock::set(0h);
    const int reads = clock::reads;
    REQUIRE(test::eventually([&] { return clock::reads > reads + 1; })); // the time was over
    CHECK(s.waiters() == 1);
    s.release();
    waiting.join();
    CHECK(got);
}

TEST_CASE("semaphore: a coroutine without an executor resumes inside release, under no lock",
          "[promise.resume-in-release]") {
    bide::semaphore s(0);
    std::thread::id on;
    std::ptrdiff_t seen = -1;
    test::journal turns;
    [](bide::semaphore& from, std::thread::id& id, std::ptrdiff_t& n,
       test::journal& notes) -> test::detached {
        const auto got = co_await from.async_acquire(2);
        id = test::this_thread();
        notes.add(1);
        // Each of these wants the lock, or hangs if it is held.
        test::foreign queued(from, 1);
        queued.start();
        queued.cancel();
        from.release(2);
        n = from.available();
    }(s, on, seen, turns);
    test::acquire_detached(s, 1, turns, 2);
    s.release(2);
    turns.add(3);
    CHECK(on == test::this_thread());
    CHECK(turns.entries() == counts{1, 2, 3});
    CHECK(seen == 1);
}
