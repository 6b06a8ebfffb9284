#include <bide/io/epoll_driver.hpp>
#include <bide/task/task.hpp>

bide::task<> epoll_driver_result_is_not_discarded(bide::epoll_driver& files) { // nodiscard
    co_await files.async_wait_readable(0);
    //! co_await files.async_wait_readable(0).as_result(); // readable, or not? unknown
}
