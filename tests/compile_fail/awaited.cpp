#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/task.hpp>

bide::task<> awaited_lock_is_not_unnamed(bide::mutex& m) { // 1: name it
#if BIDE_MISUSE != 1
    const auto held = co_await m.async_lock();
#else
    co_await m.async_lock(); // unlocked at once
#endif
}

bide::task<> awaited_permit_is_not_unnamed(bide::semaphore& permits) { // 2: name it
#if BIDE_MISUSE != 2
    const bide::permit held = co_await permits.async_acquire();
#else
    co_await permits.async_acquire(); // given back at once
#endif
}
