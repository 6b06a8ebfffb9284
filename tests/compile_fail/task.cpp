#include <bide/parallel/async_fork.hpp>
#include <bide/sched/for_each_worker.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sync/object_pool.hpp>
#include <bide/sync/once.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/sync/synchronized_value.hpp>
#include <bide/task/compose.hpp>
#include <bide/task/join_handle.hpp>
#include <bide/task/task.hpp>
#include <bide/task/with_deadline.hpp>

#include <chrono>
#include <utility>

bide::task<int> one() { co_return 1; }

bide::task<int> task_has_no_with_timeout() { // write bide::with_timeout
    co_return *co_await bide::with_timeout(one(), std::chrono::seconds(1));
    //! co_return *co_await one().with_timeout(std::chrono::seconds(1));
}

// A function that is destroyed, or a lock that is released, before the task has run.
int once_flag_awaits_no_task(bide::once_flag& flag) { // async_call_once
    flag.call([] {});
    //! flag.call(one);
    return 0;
}

int synchronized_value_awaits_no_task(bide::synchronized_value<int>& of) { // await async_lock
    return of.with([](int n) { return n; });
    //! return of.with([](int n) -> bide::task<int> { co_return n; }), 0;
}

void object_pool_awaits_no_task() { // async_acquire_object
    const bide::object_pool of({.limit = 1}, [] { return 1; });
    //! const bide::object_pool of({.limit = 1}, one);
}

bide::task<int> async_fork_awaits_no_task(bide::scheduler& workers) { // a fork-join awaits no task
    co_return co_await bide::async_fork(workers, [] { return 1; });
    //! co_return co_await co_await bide::async_fork(workers, one);
}

int spawn_blocking_runs_no_task(bide::scheduler& workers) { // use spawn
    return workers.spawn_blocking([] { return 1; }).join();
    //! return workers.spawn_blocking(one).done();
}

void for_each_worker_awaits_no_task(bide::scheduler& workers) { // returns no task
    bide::for_each_worker(workers, [] {});
    //! static_cast<void>(bide::for_each_worker(workers, one));
}

bide::task<int> task_is_awaited_as_an_rvalue() { // a task is awaited once: write co_await std::move
    auto child = one();
    co_return co_await std::move(child);
    //! co_return co_await child; // a task ends once
}

bide::task<> when_any_takes_no_operation() { // take tasks, and callables that return tasks
    bide::semaphore permits(1);
    static_cast<void>(co_await bide::when_any(one(), one()));
    //! static_cast<void>(co_await bide::when_any(one(), permits.async_acquire()));
}

using handle = bide::join_handle<int>;

bide::task<int> handle_is_awaited_as_an_rvalue(handle h) { // write co_await std::move.handle.
    co_return co_await std::move(h);
    //! co_return co_await h;
}

int handle_is_joined_as_an_rvalue(handle h) { // write std::move.handle..join
    return std::move(h).join();
    //! h.join();
}

void handle_is_detached_as_an_rvalue(handle h) { // write std::move.handle..detach
    std::move(h).detach();
    //! h.detach();
}
