// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SERVER_STORE_SOCKET_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SERVER_STORE_SOCKET_HPP

// A stream socket on which every operation ends at a deadline. The socket of hiredis raises
// SIGPIPE, is inherited by programs that are started, and restarts its time limit with each part of
// a reply.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

inline std::error_code last_system_error() noexcept { return {errno, std::generic_category()}; }

// Waits for the events. timed_out: the deadline passes first.
inline std::error_code wait_for(int fd, short events, deadline end) noexcept {
    for (;;) {
        const std::int64_t rest = end.steady_ns() - native_platform::now();
        if (rest <= 0) {
            return std::make_error_code(std::errc::timed_out);
        }
        constexpr std::int64_t longest = 3'600'000; // ms
        const std::int64_t ms = (rest - 1) / 1'000'000 + 1;
        pollfd looked{fd, events, 0};
        const int n = ::poll(&looked, 1, static_cast<int>(ms < longest ? ms : longest));
        if (n > 0) {
            return {};
        }
        if (n < 0 && errno != EINTR) {
            return detail::last_system_error();
        }
    }
}

class store_socket {
public:
    store_socket() = default;
    store_socket(store_socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    store_socket& operator=(store_socket&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~store_socket() { close(); }

    int fd() const noexcept { return fd_; }

    // Closes the socket without sending anything. If a child of fork() closes its copy, the
    // parent's connection is not affected.
    void close() noexcept {
        if (fd_ >= 0) {
            ::close(std::exchange(fd_, -1));
        }
    }

    // Looks the name up and connects. The deadline does not bound the look-up. If the look-up
    // fails, `error_text` has the reason.
    // Requires: the socket is closed.
    std::error_code connect_tcp(const std::string& host, int port, deadline end,
                                std::string& error_text) {
        addrinfo wanted{};
        wanted.ai_socktype = SOCK_STREAM;
        addrinfo* answer = nullptr;
        const int n = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &answer);
        if (n == EAI_SYSTEM) {
            return detail::last_system_error();
        }
        if (n != 0) {
            error_text = "the host's name: ";
            error_text += ::gai_strerror(n);
            return std::make_error_code(n == EAI_AGAIN ? std::errc::resource_unavailable_try_again
                                        : n == EAI_MEMORY ? std::errc::not_enough_memory
                                                          : std::errc::host_unreachable);
        }
        const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(answer, &::freeaddrinfo);

        std::int64_t left = 0;
        for (const addrinfo* each = answer; each != nullptr; each = each->ai_next) {
            ++left;
        }
        std::error_code error = std::make_error_code(std::errc::host_unreachable);
        for (const addrinfo* each = answer; each != nullptr; each = each->ai_next, --left) {
            // Each address gets an equal share of the time. So an address that does not answer
            // leaves time for the later ones.
            const std::int64_t now = native_platform::now();
            const std::int64_t share = (end.steady_ns() - now) / left;
            error = connect(each->ai_addr, each->ai_addrlen, deadline::at_ns(now + share));
            if (!error) {
                return {};
            }
        }
        return error;
    }

    // Connects to an address.
    // Requires: the socket is closed.
    std::error_code connect(const sockaddr* to, socklen_t size, deadline end) noexcept {
        if (const std::error_code error = make(to->sa_family)) {
            close();
            return error;
        }
        if (::connect(fd_, to, size) == 0) {
            return {};
        }
        std::error_code error = detail::last_system_error();
        if (error.value() == EINPROGRESS || error.value() == EINTR) {
            error = wait_for(fd_, POLLOUT, end);
            int found = 0;
            socklen_t length = sizeof found;
            if (!error && ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &found, &length) != 0) {
                error = detail::last_system_error();
            } else if (!error && found != 0) {
                error = {found, std::generic_category()};
            }
        }
        if (error) {
            close();
        }
        return error;
    }

    // Connects to a Unix socket.
    // Requires: the socket is closed.
    std::error_code connect_unix(const std::string& path, deadline end) noexcept {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        if (path.size() >= sizeof address.sun_path) {
            return std::make_error_code(std::errc::filename_too_long);
        }
        std::memcpy(address.sun_path, path.data(), path.size());
        return connect(reinterpret_cast<const sockaddr*>(&address), sizeof address, end);
    }

    // Sends all bytes. After an error the system did not accept all of them.
    std::error_code send(std::string_view bytes, deadline end) noexcept {
        while (!bytes.empty()) {
            const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), no_signal);
            if (n >= 0) {
                bytes.remove_prefix(static_cast<std::size_t>(n));
            } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
                if (const std::error_code error = wait_for(fd_, POLLOUT, end)) {
                    return error;
                }
            } else if (errno != EINTR) {
                return detail::last_system_error();
            }
        }
        return {};
    }

    // Receives at least one byte, or fails.
    result<std::size_t, std::error_code> receive(char* to, std::size_t room,
                                                 deadline end) noexcept {
        for (;;) {
            const ssize_t n = ::recv(fd_, to, room, 0);
            if (n > 0) {
                return static_cast<std::size_t>(n);
            }
            if (n == 0) {
                return unexpected{std::make_error_code(std::errc::connection_reset)};
            }
            if (errno == EAGAIN || errno == EWOULDBLOCK) {
                if (const std::error_code error = wait_for(fd_, POLLIN, end)) {
                    return unexpected{error};
                }
            } else if (errno != EINTR) {
                return unexpected{detail::last_system_error()};
            }
        }
    }

    // Whether the server has neither closed the connection nor sent bytes that are unread.
    bool is_quiet() const noexcept {
        char one;
        return ::recv(fd_, &one, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
               (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    }

private:
#if defined(MSG_NOSIGNAL)
    static constexpr int no_signal = MSG_NOSIGNAL;
#else
    static constexpr int no_signal = 0;
#endif

    std::error_code make(int family) noexcept {
#if defined(SOCK_CLOEXEC)
        fd_ = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd_ < 0) {
            return detail::last_system_error();
        }
#else
        fd_ = ::socket(family, SOCK_STREAM, 0);
        if (fd_ < 0 || ::fcntl(fd_, F_SETFD, FD_CLOEXEC) != 0 ||
            ::fcntl(fd_, F_SETFL, O_NONBLOCK) != 0) {
            return detail::last_system_error();
        }
#endif
        const int on = 1;
#if defined(SO_NOSIGPIPE)
        ::setsockopt(fd_, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
        if (family != AF_UNIX) {
            ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            ::setsockopt(fd_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
        }
        return {};
    }

    int fd_ = -1;
};

// The functions below find out whether only one side uses TLS, or whether the server speaks another
// protocol. In these cases a server closes the connection or sends nothing. That looks like an
// error that may pass: a TLS server closes it for a client without TLS; a server without TLS closes
// it, or waits, for a client with TLS; PostgreSQL closes it if the first bytes, read as a length,
// are too large; Redis closes it for HTTP. Therefore the client opens another connection and sends
// a request of the other protocol.

// Whether the server answers this request within one second, with one of these bytes first.
inline bool answers_with(const std::string& host, int port, std::string_view greeting,
                         std::string_view firsts, deadline end) {
    const std::int64_t soon = native_platform::now() + 1'000'000'000;
    const deadline until = soon < end.steady_ns() ? deadline::at_ns(soon) : end;
    store_socket other;
    std::string ignored;
    char first = 0;
    return !other.connect_tcp(host, port, until, ignored) && !other.send(greeting, until) &&
           other.receive(&first, 1, until) && firsts.find(first) != firsts.npos;
}

// Whether the server speaks TLS: it answers a client hello that is too short with an alert.
inline bool answers_tls(const std::string& host, int port, deadline end) {
    constexpr std::string_view greeting("\x16\x03\x01\x00\x04\x01\x00\x00\x00", 9);
    return answers_with(host, port, greeting, "\x15\x16", end);
}

// Returns true if the server speaks PostgreSQL's protocol: before the login it answers a request
// for encryption with S (yes) or N (no).
inline bool answers_postgres(const std::string& host, int port, deadline end) {
    constexpr std::string_view greeting("\x00\x00\x00\x08\x04\xd2\x16\x2f", 8);
    return answers_with(host, port, greeting, "SN", end);
}

// Whether the server speaks Redis's protocol: it answers PING with '+' or an error.
inline bool answers_redis(const std::string& host, int port, deadline end) {
    return answers_with(host, port, "PING\r\n", "+-", end);
}

}}} // namespace bide::BIDE_ABI::detail

#endif
