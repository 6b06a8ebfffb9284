#include <bide/io/epoll_driver.hpp>

void epoll_driver_wait_is_not_discarded(bide::epoll_driver& files) { // co_await it
    [[maybe_unused]] const auto operation = files.async_wait_readable(0);
    //! files.async_wait_readable(0); // does nothing
}
