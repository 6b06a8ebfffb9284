#include <bide/sched/epoll_driver.hpp>

void epoll_driver_wait_is_not_discarded() { // 1: co_await it
    bide::epoll_driver files;
#if BIDE_MISUSE != 1
    [[maybe_unused]] const auto operation = files.async_wait_readable(0);
#else
    files.async_wait_readable(0); // does nothing
#endif
}
