// expect: name it
#include <bide/sync/mutex.hpp>
#include <bide/task/task.hpp>

bide::task<> change(bide::mutex& m) {
#if defined(BIDE_CONTROL)
    const auto held = co_await m.async_lock();
#else
    co_await m.async_lock(); // unlocked at once
#endif
}
