// expect: take tasks, and callables that return tasks
#include <bide/sync/semaphore.hpp>
#include <bide/task/compose.hpp>

bide::task<> acquire(bide::semaphore& permits) {
    const bide::permit held = co_await permits.async_acquire();
}

bide::task<> first(bide::semaphore& a, bide::semaphore& b) {
#if defined(BIDE_CONTROL)
    const auto which = co_await bide::when_any(acquire(a), acquire(b));
#else
    const auto which = co_await bide::when_any(acquire(a), b.async_acquire());
#endif
    static_cast<void>(which.index());
}
