// expect: operator co_await|await_ready
#include <bide/sync/semaphore.hpp>
#include <bide/task/task.hpp>

#include <utility>

bide::task<> wait(bide::semaphore& permits);

bide::task<> wait(bide::semaphore& permits) {
    auto operation = permits.async_acquire();
#if defined(BIDE_CONTROL)
    const bide::permit held = co_await std::move(operation);
#else
    const bide::permit held = co_await operation; // it could be awaited twice
#endif
}
