#include <bide/channel/channel.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/task.hpp>

bide::task<int> awaited_item_is_not_unnamed(bide::channel<int>& ch) { // name it
    co_return (co_await ch.async_recv()).value_or(0);
    //! co_await ch.async_recv();
}

bide::task<> awaited_lock_is_not_unnamed(bide::mutex& m) { // name it
    const auto held = co_await m.async_lock();
    //! co_await m.async_lock(); // unlocked at once
}

bide::task<> awaited_permit_is_not_unnamed(bide::semaphore& permits) { // name it
    const bide::permit held = co_await permits.async_acquire();
    //! co_await permits.async_acquire(); // given back at once
}
