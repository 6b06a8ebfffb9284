#include <bide/sched/epoll_driver.hpp>
#include <bide/task/task.hpp>

namespace epoll_driver_result_is_not_discarded { // 1: nodiscard
bide::task<> waits(bide::epoll_driver& files) {
#if BIDE_MISUSE != 1
    co_await files.async_wait_readable(0); // throws
#else
    co_await files.async_wait_readable(0).as_result(); // readable, or not? unknown
#endif
}

void use() {
    bide::epoll_driver files;
    bide::sync_wait(waits(files));
}
} // namespace epoll_driver_result_is_not_discarded
