// expect: name it
#include <bide/sync/semaphore.hpp>
#include <bide/task/task.hpp>

bide::task<> use(bide::semaphore& permits) {
#if defined(BIDE_CONTROL)
    const bide::permit held = co_await permits.async_acquire();
#else
    co_await permits.async_acquire(); // given back at once
#endif
}
