// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_IO_DETAIL_EVENT_FD_HPP
#define BIDE_IO_DETAIL_EVENT_FD_HPP

// Classes that own file descriptors of Linux.

#if defined(__linux__)

#include <bide/core/detail/fatal.hpp>

#include <cerrno>
#include <system_error>

#include <sys/eventfd.h>
#include <unistd.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// A file descriptor that the destructor closes.
class owned_fd {
public:
    // Throws: std::system_error with the system's error if `opened` is negative.
    explicit owned_fd(int opened) : fd_(opened) {
        if (fd_ < 0) {
            fail();
        }
    }
    owned_fd& operator=(owned_fd&&) = delete;
    ~owned_fd() { ::close(fd_); }

    int fd() const noexcept { return fd_; }

    // Throws: std::system_error with the system's error.
    [[noreturn]] static void fail() {
        BIDE_THROW(std::system_error(errno, std::system_category(),
                                     "bide: a file descriptor of the system"));
    }

private:
    const int fd_;
};

// A descriptor of eventfd(2). One thread makes it readable, and another thread clears it.
class event_fd : public owned_fd {
public:
    // Throws: std::system_error if the system has no more descriptors or memory.
    event_fd() : owned_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

    // Makes the descriptor readable. Any thread may call it. Does not access *this after the
    // descriptor has become readable.
    void set() noexcept {
        const int saved = errno;
        ::eventfd_write(fd(), 1); // fails only if the counter is full: then it is readable
        errno = saved;
    }

    // Makes the descriptor not readable. Returns true if it was readable.
    bool clear() noexcept {
        const int saved = errno;
        eventfd_t count = 0;
        const bool was_set = ::eventfd_read(fd(), &count) == 0;
        errno = saved;
        return was_set;
    }
};

}}} // namespace bide::BIDE_ABI::detail

#endif

#endif
