// expect: nodiscard
#include <bide/sched/epoll_driver.hpp>
#include <bide/task/task.hpp>

bide::task<> waits(bide::epoll_driver& files) {
#if defined(BIDE_CONTROL)
    co_await files.async_wait_readable(0); // throws
#else
    co_await files.async_wait_readable(0).as_result(); // readable, or not? unknown
#endif
}

int main() {
    bide::epoll_driver files;
    bide::sync_wait(waits(files));
}
