// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SERVER_SIGNAL_PIPE_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SERVER_SIGNAL_PIPE_HPP

#include <bide/core/config.hpp>

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

namespace bide::inline BIDE_ABI {
namespace detail {

// A pipe whose reading end is readable from signal() to drain().
class signal_pipe {
public:
    signal_pipe() noexcept {
        if (::pipe(ends_) != 0) {
            ends_[0] = ends_[1] = -1;
            return;
        }
        for (const int fd : ends_) {
            ::fcntl(fd, F_SETFD, FD_CLOEXEC);
            ::fcntl(fd, F_SETFL, O_NONBLOCK);
        }
    }
    signal_pipe(const signal_pipe&) = delete;
    signal_pipe& operator=(const signal_pipe&) = delete;
    ~signal_pipe() { close(); }

    // Whether the system had descriptors for the pipe.
    bool is_made() const noexcept { return ends_[0] >= 0; }
    int fd() const noexcept { return ends_[0]; }
    void signal() const noexcept { // a full pipe is readable already
        [[maybe_unused]] const ssize_t n = ::write(ends_[1], "", 1);
    }
    void drain() const noexcept {
        char some[256];
        ssize_t n = 0;
        do {
            n = ::read(ends_[0], some, sizeof some);
        } while (n > 0 || (n < 0 && errno == EINTR));
    }
    void close() noexcept {
        for (int& fd : ends_) {
            if (fd >= 0) {
                ::close(std::exchange(fd, -1));
            }
        }
    }

private:
    int ends_[2];
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
