#include <bide/sync/semaphore.hpp>
#include <bide/task/compose.hpp>
#include <bide/task/task.hpp>
#include <bide/task/with_deadline.hpp>

#include <chrono>
#include <utility>

namespace task_has_no_with_timeout { // 1: write bide::with_timeout
bide::task<int> work();

bide::task<> brief() {
#if BIDE_MISUSE != 1
    const auto value = co_await bide::with_timeout(work(), std::chrono::seconds(1));
#else
    const auto value = co_await work().with_timeout(std::chrono::seconds(1));
#endif
    static_cast<void>(value);
}
} // namespace task_has_no_with_timeout

namespace task_is_awaited_as_an_rvalue { // 2: operator co_await|await_ready
bide::task<int> one() { co_return 1; }

bide::task<int> twice() {
    auto child = one();
#if BIDE_MISUSE != 2
    co_return co_await std::move(child);
#else
    co_return co_await child; // a task ends once
#endif
}
} // namespace task_is_awaited_as_an_rvalue

namespace when_any_takes_no_operation { // 3: take tasks, and callables that return tasks
bide::task<> acquire(bide::semaphore& permits) {
    const bide::permit held = co_await permits.async_acquire();
}

bide::task<> first(bide::semaphore& a, bide::semaphore& b) {
#if BIDE_MISUSE != 3
    const auto which = co_await bide::when_any(acquire(a), acquire(b));
#else
    const auto which = co_await bide::when_any(acquire(a), b.async_acquire());
#endif
    static_cast<void>(which.index());
}
} // namespace when_any_takes_no_operation
