#include <bide/sync/semaphore.hpp>
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

bide::task<int> handle_is_awaited_by_async_join(handle h) { // write co_await std::move.handle.
    co_return co_await std::move(h).async_join();
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
