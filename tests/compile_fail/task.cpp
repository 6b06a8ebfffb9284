#include <bide/sync/semaphore.hpp>
#include <bide/task/compose.hpp>
#include <bide/task/task.hpp>
#include <bide/task/with_deadline.hpp>

#include <chrono>
#include <utility>

bide::task<int> one() { co_return 1; }

bide::task<int> task_has_no_with_timeout() { // write bide::with_timeout
    co_return *co_await bide::with_timeout(one(), std::chrono::seconds(1));
    //! co_return *co_await one().with_timeout(std::chrono::seconds(1));
}

bide::task<int> task_is_awaited_as_an_rvalue() { // operator co_await|await_ready
    auto child = one();
    co_return co_await std::move(child);
    //! co_return co_await child; // a task ends once
}

bide::task<> when_any_takes_no_operation() { // take tasks, and callables that return tasks
    bide::semaphore permits(1);
    static_cast<void>(co_await bide::when_any(one(), one()));
    //! static_cast<void>(co_await bide::when_any(one(), permits.async_acquire()));
}
