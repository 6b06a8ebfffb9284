#include <bide/sched/report.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>

#include <support/sched.hpp>

// The end of a scheduler, with its tasks in every state.

using namespace bide;
using bide::this_task::sleep_for;
using bide::this_task::yield;
using test::with;

namespace {

// The outcome of a task: 0 if it was stopped, otherwise its value.
int outcome(join_handle<int> h) {
    try {
        return std::move(h).join();
    } catch (const stopped_error&) {
        return 0;
    }
}

bool all_have(std::vector<join_handle<int>>& of, int value) {
    bool all = true;
    for (auto& handle : of) {
        all = outcome(std::move(handle)) == value && all;
    }
    return all;
}

task<int> takes(semaphore& s) {
    auto permit = co_await s.async_acquire();
    permit.forget();
    co_return 1;
}
task<int> sleeps() {
    co_await sleep_for(1h);
    co_return 1;
}
task<int> receives(channel<int>& c) { co_return (co_await c.async_recv()).value(); }
task<int> sends(channel<int>& c) {
    const auto sent = co_await c.async_send(1);
    static_cast<void>(sent.value());
    co_return 1;
}
task<int> waits(event& e) {
    co_await e.async_wait();
    co_return 1;
}
task<int> locks(mutex& m) {
    const auto lock = co_await m.async_lock();
    co_return 1;
}
task<int> joins(join_handle<int> h) { co_return co_await std::move(h).async_join(); }

// Spawns a copy of itself for ever.
void go_on_for_ever(scheduler& s, std::atomic<int>& ran) {
    ++ran;
    s.spawn([&s, &ran] { go_on_for_ever(s, ran); }).detach();
}

test::detached wait_elsewhere(semaphore& s, std::chrono::microseconds rest,
                              test::thread_executor& there, std::atomic<int>& ended) {
    auto got = co_await s.async_acquire().with_timeout(rest).resume_on(there);
    if (got) {
        got->forget();
    }
    ended = got ? 1 : 2; // the last touch
}
test::detached visit(scheduler& s, std::atomic<bool>& on_resumer, std::atomic<bool>& over) {
    co_await s.schedule();
    on_resumer = test::is_resumer();
    over = true;
}

} // namespace

TEST_CASE(
    "shutdown: returns at once if no task is left, also the second time and in the destructor") {
    const auto kind = test::each_of({1, 3, 70});
    {
        const scheduler unused(kind);
    }
    scheduler s(kind);
    s.spawn([] {}).join();
    s.shutdown();
    s.shutdown();
    CHECK(s.shutdown_for(0s));
}

TEST_CASE("shutdown: ends the waits of tasks, of each kind", "[promise.scheduler-ends]") {
    const auto kind = test::each_of({1, 2});
    semaphore permits(0);
    channel<int> none(1);
    channel<int> full(0);
    event set;
    mutex locked;
    locked.lock();
    std::vector<join_handle<int>> waiting;
    {
        scheduler s(kind);
        for (int i = 0; i < 10; ++i) {
            waiting.push_back(s.spawn(takes(permits)));
            waiting.push_back(s.spawn(sleeps()));
            waiting.push_back(s.spawn(receives(none)));
            waiting.push_back(s.spawn(sends(full)));
            waiting.push_back(s.spawn(waits(set)));
            waiting.push_back(s.spawn(locks(locked)));
            waiting.push_back(s.spawn(joins(s.spawn(takes(permits)))));
        }
        if (kind.max_timed_sleep != 0us) {
            REQUIRE(test::has_waiters(permits, 20)); // they wait; otherwise they are about to
        }
        s.shutdown();
        const scheduler_stats now = stats_of(s);
        CHECK(now.spawned == now.completed);
        CHECK(now.spawned == 80);
    }
    locked.unlock();
    CHECK(all_have(waiting, 0));
    CHECK(permits.waiters() == 0);
}

TEST_CASE("shutdown: a queued task runs up to its next wait, and running tasks are waited for",
          "[promise.scheduler-ends]") {
    semaphore nothing(0);
    semaphore one(1);
    std::atomic<bool> go_on{false};
    std::atomic<bool> runs{false};
    std::atomic<int> ran{0};
    scheduler s(test::each_of({1}));
    auto busy = s.spawn([&] {
        runs = true;
        return test::spin_until(go_on) ? 1 : 2;
    });
    REQUIRE(test::eventually([&] { return runs.load(); }));
    std::vector<join_handle<int>> queued;
    for (int i = 0; i < 50; ++i) {
        queued.push_back(s.spawn([&]() -> task<int> {
            const auto ready = co_await one.async_acquire();
            ++ran;
            const auto never = co_await nothing.async_acquire().as_result();
            co_return never ? 3 : 4;
        }));
    }
    CHECK_FALSE(s.shutdown_for(0s));
    CHECK_FALSE(s.shutdown_for(1ms));
    CHECK(ran == 0);
    go_on = true;
    s.shutdown();
    CHECK(outcome(std::move(busy)) == 1);
    CHECK(ran == 50);
    CHECK(all_have(queued, 4));
}

TEST_CASE(
    "shutdown: waits for tasks that block their threads, and runs the tasks that release them") {
    const unsigned workers = GENERATE(1u, 2u);
    semaphore permits(0);
    scheduler s(with(workers, true));
    std::vector<join_handle<int>> blocked;
    for (int i = 0; i < 3; ++i) {
        blocked.push_back(s.spawn([&] {
            permits.acquire();
            return 1;
        }));
    }
    blocked.push_back(s.spawn_blocking([&] {
        permits.acquire();
        return 1;
    }));
    REQUIRE(test::has_waiters(permits, 4));
    auto helper = s.spawn([&]() -> task<int> {
        const auto none = co_await sleep_for(1h).as_result(); // until it is cancelled
        permits.release(4);
        co_return none ? 3 : 1;
    });
    s.shutdown();
    CHECK(outcome(std::move(helper)) == 1);
    CHECK(all_have(blocked, 1));
}

TEST_CASE("shutdown: a blocking task that waits for a thread runs, too") {
    std::atomic<bool> over{false};
    std::atomic<int> ran{0};
    scheduler_options wanted = with(1, false);
    wanted.max_blocking_threads = 1;
    scheduler s(std::move(wanted));
    std::vector<join_handle<int>> all;
    for (int i = 0; i < 5; ++i) {
        all.push_back(s.spawn_blocking([&] {
            ++ran;
            return test::spin_until(over) ? 1 : 2;
        }));
    }
    CHECK_FALSE(s.shutdown_for(1ms));
    over = true;
    s.shutdown();
    CHECK(ran == 5);
    CHECK(all_have(all, 1));
}

TEST_CASE("shutdown: a shield keeps a task's wait, and shutdown() waits for it") {
    semaphore permits(0);
    scheduler s(test::each_of({2}));
    auto shielded = s.spawn([&]() -> task<int> {
        int got = 0;
        {
            const this_task::shield on;
            auto permit = co_await permits.async_acquire().as_result();
            got = permit ? 1 : 2;
            if (permit) {
                permit->forget();
            }
            co_await yield();
        }
        const auto more = co_await permits.async_acquire().as_result();
        co_return more ? 3 : got;
    });
    REQUIRE(test::has_waiters(permits, 1));
    CHECK_FALSE(s.shutdown_for(1ms));
    CHECK(permits.waiters() == 1);
    permits.release();
    s.shutdown();
    CHECK(outcome(std::move(shielded)) == 1);
}

TEST_CASE("shutdown: ends tasks that yield for ever, and reports no exception",
          "[promise.scheduler-ends]") {
    const unsigned workers = GENERATE(1u, 2u);
    const bool waited = GENERATE(true, false);
    CAPTURE(workers, waited);
    std::atomic<int> reported{0};
    test::tally t;
    std::vector<join_handle<int>> kept;
    {
        scheduler_options wanted = with(workers, true);
        wanted.on_unhandled = [&](const std::exception_ptr&) { ++reported; };
        scheduler s(std::move(wanted));
        const auto endless = [waited, mine = test::counted(t, 1)]() -> task<int> {
            if (waited) {
                co_await sleep_for(1us);
            }
            for (;;) {
                co_await yield();
            }
        };
        for (int i = 0; i < 3; ++i) {
            s.spawn(endless).detach();
            kept.push_back(s.spawn(endless));
        }
        s.spawn([] {}).join();
    }
    CHECK(all_have(kept, 0));
    CHECK(reported == 0);
    CHECK(t.alive() == 0);
}

TEST_CASE("shutdown: ends tasks that each spawn another one") {
    std::atomic<int> ran{0};
    scheduler s(test::each_of({1, 2}));
    for (int i = 0; i < 3; ++i) {
        s.spawn([&] { go_on_for_ever(s, ran); }).detach();
    }
    REQUIRE(test::eventually([&] { return ran > 100; }));
    s.shutdown();
    const scheduler_stats now = stats_of(s);
    CHECK(now.spawned == now.completed);
    CHECK(now.spawned == static_cast<std::uint64_t>(ran) + 3); // the last ones were refused
}

TEST_CASE("shutdown: a task that is spawned afterwards is stopped and leaks nothing",
          "[promise.spawned-runs-or-stops]") {
    test::tally t;
    scheduler s(with(2, false));
    s.shutdown();
    std::atomic<int> ran{0};
    const auto count = [&ran, mine = test::counted(t, 1)] { return ++ran; };
    CHECK(outcome(s.spawn(count)) == 0);
    CHECK(outcome(s.spawn_blocking(count)) == 0);
    CHECK(outcome(s.spawn(
              [&ran, mine = test::counted(t, 1)]() -> task<int> { co_return ++ran; })) == 0);
    CHECK(outcome(s.spawn(sleeps())) == 0);
    auto late = s.spawn(count);
    CHECK(late.done());
    CHECK_FALSE(late.cancel());
    s.spawn(count).detach();
    CHECK_THROWS_AS(sync_wait(s, sleeps()), stopped_error);
    CHECK(ran == 0);
    CHECK(t.alive() == 1);
    CHECK(outcome(std::move(late)) == 0);
    const scheduler_stats now = stats_of(s);
    CHECK(now.spawned == now.completed);
}

TEST_CASE("shutdown: a task that waits on another executor is cancelled there and ends at home") {
    semaphore permits(0);
    test::thread_executor elsewhere;
    std::atomic<bool> was_there{false};
    scheduler s(with(1, false));
    auto away = s.spawn([&]() -> task<int> {
        const auto none = co_await permits.async_acquire().as_result().resume_on(elsewhere);
        was_there = test::this_thread() == elsewhere.id();
        co_return none ? 2 : 1;
    });
    REQUIRE(test::has_waiters(permits, 1));
    s.shutdown();
    CHECK(outcome(std::move(away)) == 1);
    CHECK(was_there);
}

TEST_CASE("shutdown: time-outs of coroutines of other executors outlive the scheduler") {
    semaphore permits(0);
    test::thread_executor there;
    std::atomic<int> granted{0};
    std::atomic<int> timed_out{0};
    std::atomic<int> early{0};
    {
        scheduler s(with(1, false));
        s.spawn([&] {
             wait_elsewhere(permits, 1h, there, granted);
             wait_elsewhere(permits, 1ms, there, early);
             wait_elsewhere(permits, 30ms, there, timed_out);
         }).join();
        REQUIRE(test::eventually([&] { return early != 0; }));
    }
    permits.release();
    CHECK(test::eventually([&] { return granted == 1; }));
    CHECK(early == 2);
    CHECK(test::eventually([&] { return timed_out == 2; }));
}

TEST_CASE("shutdown: a post afterwards runs on a resumer of the service") {
    scheduler s(with(1, false));
    s.shutdown();
    std::atomic<bool> on_resumer{false};
    std::atomic<bool> over{false};
    visit(s, on_resumer, over);
    CHECK(test::eventually([&] { return over.load(); }));
    CHECK(on_resumer);
    test::service_thread(); // it has left the coroutine
}

TEST_CASE("shutdown: has no effect in on_worker_stop") {
    const bool blocks = GENERATE(true, false);
    CAPTURE(blocks);
    std::atomic<int> stopped{0};
    std::atomic<scheduler*> made{nullptr};
    scheduler_options wanted = with(2, true);
    wanted.blocking_keep_alive = 0ms;
    wanted.on_worker_stop = [&](unsigned) {
        made.load()->shutdown();
        ++stopped;
    };
    {
        scheduler s(std::move(wanted));
        made = &s;
        semaphore permits(0);
        for (int i = 0; blocks && i < 3;
             ++i) { // other threads become workers, and stop being workers
            std::vector<join_handle<>> some;
            for (int k = 0; k < 4; ++k) {
                some.push_back(s.spawn([&] { permits.acquire(); }));
            }
            REQUIRE(test::has_waiters(permits, 4));
            permits.release(4);
            test::join_all(some);
        }
        CHECK(s.spawn([] { return 1; }).join() == 1);
    }
    CHECK(stopped >= 2);
}

#if BIDE_TESTS_CAN_DIE_AT_WORK

TEST_CASE("shutdown: a call by one of its own workers terminates with a message") {
    const std::string by_call = test::dies([] {
        scheduler s(with(1, false));
        s.spawn([&s] { s.shutdown(); }).join();
    });
    const std::string by_destructor = test::dies([] {
        auto s = std::make_unique<scheduler>(with(1, false));
        s->spawn([&s] { s.reset(); }).join();
    });
    CAPTURE(by_call, by_destructor);
    CHECK(test::contains(by_call, "shut down by one of its own workers"));
    CHECK(test::contains(by_destructor, "shut down by one of its own workers"));
}

#endif
