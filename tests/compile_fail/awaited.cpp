#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/task.hpp>

namespace awaited_lock_is_not_unnamed { // 1: name it
bide::task<> change(bide::mutex& m) {
#if BIDE_MISUSE != 1
    const auto held = co_await m.async_lock();
#else
    co_await m.async_lock(); // unlocked at once
#endif
}
} // namespace awaited_lock_is_not_unnamed

namespace awaited_permit_is_not_unnamed { // 2: name it
bide::task<> use(bide::semaphore& permits) {
#if BIDE_MISUSE != 2
    const bide::permit held = co_await permits.async_acquire();
#else
    co_await permits.async_acquire(); // given back at once
#endif
}
} // namespace awaited_permit_is_not_unnamed
