// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_IO_EPOLL_DRIVER_HPP
#define BIDE_IO_EPOLL_DRIVER_HPP

// Lets coroutines wait for files, by Linux's epoll(7), and an eventfd(2) for the wake
// (detail/epoll_set.hpp). Empty on other systems.
//
// What is done for each file is in detail/readiness_driver.hpp.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/fwd.hpp>
#include <bide/io/detail/epoll_set.hpp>
#include <bide/io/detail/readiness_driver.hpp>
#include <bide/io/driver.hpp>

#if defined(__linux__)

namespace bide::inline BIDE_ABI {

/// A driver for files, sockets and pipes.
template <class Platform>
class basic_epoll_driver final
    : public detail::readiness_driver<Platform, detail::epoll_set<Platform>> {
    using base = detail::readiness_driver<Platform, detail::epoll_set<Platform>>;

public:
    /// Makes the epoll set and the eventfd.
    /// Throws: std::system_error if the system has no more descriptors or memory.
    basic_epoll_driver() {}
    /// Closes both.
    /// Requires: no coroutine waits for a file, no wait() or wake() is going on, and there is no
    /// attachment.
    ~basic_epoll_driver() override = default;

    /// Waits until a read of the file would not block: there is data, the file is at its end, or it
    /// has an error or a hang-up. Does not wait if a read would not block now, as for every regular
    /// file. Several coroutines may wait for the same file: an event lets all of them through. One
    /// of them may have read the data before another reads, so the file should be non-blocking.
    /// Call forget() before the file is closed.
    /// Throws: std::system_error with the system's error if `fd` is no open file or if there is no
    /// memory to wait; with errc::no_driver if it would wait and no scheduler and no run_loop runs
    /// the driver. closed_error after forget() or the scheduler's shutdown. Otherwise as other
    /// waits. as_result(), with_timeout() and with_stop() return the error as a std::error_code.
    using base::async_wait_readable;

    /// Waits until a write to the file would not block; otherwise as async_wait_readable().
    using base::async_wait_writable;

    /// Ends all waits for the file with errc::closed. Must be called before the file is closed, if
    /// a coroutine may wait for it. A coroutine may wait for the descriptor again after that.
    using base::forget;

    /// See driver. With Linux 5.11 or later the deadline is exact to the nanosecond, otherwise it
    /// is rounded up to a millisecond. Never returns early.
    using base::wait;

    /// See driver. Makes a system call only if a thread sleeps in wait().
    using base::wake;
};

/// The driver of a program.
using epoll_driver = basic_epoll_driver<>;

} // namespace bide::inline BIDE_ABI

#endif

#endif
