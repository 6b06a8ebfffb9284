#include "support/coroutines.hpp"
#include "support/is_free.hpp"
#include "support/test.hpp"

#include <bide/sched/scheduler.hpp>
#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/shared_mutex.hpp>
#include <bide/task/lock_all.hpp>

namespace {

template <class... M> bide::task<bool> all_are_locked(M&... m) {
    const auto held = co_await bide::async_lock_all(m...);
    co_return static_cast<bool>(held) && !(test::is_free(m) || ...);
}
template <class Limit, class... M> bide::task<bide::errc> why_not(Limit limit, M&... m) {
    const auto held = co_await bide::async_lock_all(limit, m...);
    co_return held ? bide::errc{} : held.error();
}
template <class A, class B> bide::task<void> count_up(A& a, B& b, int& n, int turns) {
    for (int i = 0; i < turns; ++i) {
        const auto held = co_await bide::async_lock_all(a, b);
        ++n;
    }
}

template <class... M>
test::held_on<test::manual_executor> lock_all_on(test::manual_executor&, M&... m) {
    const auto held = co_await bide::async_lock_all(m...);
}
template <class... M>
test::held_on<test::manual_executor> lock_all_within(test::manual_executor&, M&... m) {
    const auto held = co_await bide::async_lock_all(std::chrono::hours(1), m...);
}

} // namespace

TEST_CASE("async_lock_all: locks mutexes of several kinds, and unlocks them") {
    bide::mutex a;
    bide::adaptive_mutex b;
    bide::shared_mutex c;
    CHECK(bide::sync_wait(all_are_locked(c, a, b)));
    CHECK(bide::sync_wait(all_are_locked(b, c, a)));
    CHECK(test::is_free(a));
    CHECK(test::is_free(b));
    CHECK(test::is_free(c));
    CHECK_THROWS_AS(bide::sync_wait(all_are_locked(a, b, a)), std::invalid_argument);
    CHECK(test::is_free(a));
}

TEST_CASE("async_lock_all: a time-out, a stop and a cancelled task lock none",
          "[promise.several-locks]") {
    bide::mutex m[3];
    const int taken = GENERATE(0, 1, 2);
    CAPTURE(taken);
    m[taken].lock();
    std::stop_source stop;
    stop.request_stop();
    CHECK(bide::sync_wait(why_not(1ms, m[2], m[0], m[1])) == bide::errc::timeout);
    CHECK(bide::sync_wait(why_not(stop.get_token(), m[1], m[0], m[2])) == bide::errc::stopped);
    {
        bide::scheduler workers({.num_workers = 1});
        auto waiting = workers.spawn(all_are_locked(m[1], m[2], m[0]));
        waiting.cancel();
        CHECK_THROWS_AS(std::move(waiting).join(), bide::stopped_error);
    }
    m[taken].unlock();
    CHECK(bide::sync_wait(why_not(1h, m[2], m[0], m[1])) == bide::errc{});
    CHECK(bide::sync_wait(why_not(stop.get_token(), m[2], m[0], m[1])) == bide::errc{});
    for (auto& each : m) {
        CHECK(test::is_free(each));
    }
}

TEST_CASE(
    "async_lock_all: tasks and threads that name the mutexes in other orders do not deadlock") {
    bide::mutex a;
    bide::mutex b;
    int n = 0;
    constexpr int turns = 300;
    {
        bide::scheduler workers({.num_workers = 2});
        std::vector<bide::join_handle<void>> tasks;
        for (int i = 0; i < 4; ++i) {
            tasks.push_back(
                workers.spawn(i % 2 == 0 ? count_up(a, b, n, turns) : count_up(b, a, n, turns)));
        }
        for (int i = 0; i < turns; ++i) {
            const bide::scoped_lock held(b, a);
            ++n;
        }
        for (auto& each : tasks) {
            std::move(each).join();
        }
    }
    CHECK(n == 5 * turns);
}

TEST_CASE("async_lock_all: a coroutine that is destroyed before it resumes leaves no mutex locked",
          "[promise.several-locks]") {
    bide::mutex a;
    bide::adaptive_mutex b;
    bide::shared_mutex c;
    const int taken = GENERATE(0, 1, 2);
    const bool timed = GENERATE(false, true);
    CAPTURE(taken, timed);
    const auto turn = [&](auto&& change) {
        taken == 0 ? change(a) : taken == 1 ? change(b) : change(c);
    };
    turn([](auto& m) { m.lock(); });
    test::manual_executor executor;
    {
        auto waiting = timed ? lock_all_within(executor, a, b, c) : lock_all_on(executor, a, b, c);
        waiting.start();
        turn([](auto& m) { m.unlock(); });
        CHECK(executor.size() == 1);
        executor.drop_all();
    }
    CHECK(test::is_free(a));
    CHECK(test::is_free(b));
    CHECK(test::is_free(c));
}
