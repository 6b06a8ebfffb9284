// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_IO_DETAIL_EVENT_FD_HPP
#define BIDE_IO_DETAIL_EVENT_FD_HPP

// A file descriptor of Linux, eventfd(2). One side makes it readable, and the other side clears it.

#if defined(__linux__)

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>

#include <cerrno>
#include <system_error>

#include <sys/eventfd.h>
#include <unistd.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

class event_fd {
public:
    // Throws: std::system_error if the system has no more descriptors or memory.
    event_fd() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        if (fd_ < 0) {
            BIDE_THROW(std::system_error(errno, std::system_category(), "bide: eventfd"));
        }
    }
    event_fd(const event_fd&) = delete;
    event_fd& operator=(const event_fd&) = delete;
    ~event_fd() { ::close(fd_); }

    int fd() const noexcept { return fd_; }

    // Makes the descriptor readable. Any thread may call it. The call ends the caller's use of
    // *this.
    void set() noexcept {
        const int saved = errno;
        ::eventfd_write(fd_, 1); // fails only if it is readable: its counter is full
        errno = saved;
    }

    // Clears the descriptor: it is not readable afterwards. Returns true if it was readable.
    bool clear() noexcept {
        const int saved = errno;
        eventfd_t count = 0;
        const bool was_set = ::eventfd_read(fd_, &count) == 0;
        errno = saved;
        return was_set;
    }

private:
    const int fd_;
};

}}} // namespace bide::BIDE_ABI::detail

#endif

#endif
