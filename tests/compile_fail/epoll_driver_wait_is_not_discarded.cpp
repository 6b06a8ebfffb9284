// expect: co_await it
#include <bide/sched/epoll_driver.hpp>

int main() {
    bide::epoll_driver files;
#if defined(BIDE_CONTROL)
    [[maybe_unused]] const auto operation = files.async_wait_readable(0);
#else
    files.async_wait_readable(0); // does nothing
#endif
}
