// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_WAKE_SOCKET_HPP
#define BIDE_DURABLE_DETAIL_WAKE_SOCKET_HPP

// How one process wakes another one of the same machine that waits for a durable lock: by an empty
// datagram to a socket of Linux's abstract namespace. The name of the socket is the waiter's mark of
// presence. The system removes the socket with the process.
//
// Only processes of one network namespace reach each other. Any program may send to the socket, or
// take its name first. The one makes the waiter read the record in vain; in the other case it waits
// for every change of the slot, as if there were no such sockets.

#include <bide/core/config.hpp>
#include <bide/durable/slot.hpp>

#include <cstdint>
#include <memory>
#include <system_error>

#if defined(__linux__)
#include <cerrno>
#include <cstddef>
#include <cstdio>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#endif

namespace bide { inline namespace BIDE_ABI { namespace detail {

#if defined(__linux__)

class wake_socket final : public slot_watch {
public:
    // Returns nullptr if the name is taken, or if the system has no such sockets.
    // Throws: std::bad_alloc.
    static std::unique_ptr<slot_watch> of(std::int64_t mark) {
        auto made = std::make_unique<wake_socket>();
        const address name(mark);
        const bool is_bound = made->fd_ >= 0 && ::bind(made->fd_, name.get(), name.size) == 0;
        return is_bound ? std::move(made) : nullptr;
    }

    // Wakes the process that has the mark, if it waits. What cannot be sent need not be sent: either
    // there is no socket, or it is full and so readable.
    static void wake(std::int64_t mark) noexcept {
        const wake_socket from;
        const address name(mark);
        ::sendto(from.fd_, nullptr, 0, MSG_DONTWAIT | MSG_NOSIGNAL, name.get(), name.size);
    }

    wake_socket() noexcept : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {}
    ~wake_socket() override {
        if (fd_ >= 0) {
            ::close(fd_);
        }
    }

    int fd() const noexcept override { return fd_; }

    std::error_code drain() noexcept override {
        char none;
        while (::recv(fd_, &none, sizeof none, 0) >= 0 || errno == EINTR) {
        }
        return errno == EAGAIN ? std::error_code() : std::error_code(errno, std::system_category());
    }

private:
    struct address {
        explicit address(std::int64_t mark) noexcept {
            of.sun_family = AF_UNIX; // a name that begins with a zero byte is an abstract one
            const int length = std::snprintf(of.sun_path + 1, sizeof of.sun_path - 1, "bide-%llx",
                                             static_cast<unsigned long long>(mark));
            size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                          static_cast<std::size_t>(length));
        }
        const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&of); }

        sockaddr_un of{};
        socklen_t size;
    };

    const int fd_;
};

#else

struct wake_socket {
    static std::unique_ptr<slot_watch> of(std::int64_t) noexcept { return nullptr; }
    static void wake(std::int64_t) noexcept {}
};

#endif

}}} // namespace bide::BIDE_ABI::detail

#endif
