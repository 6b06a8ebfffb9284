// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_IO_IO_SOCKET_HPP
#define BIDE_IO_IO_SOCKET_HPP

/// \file
/// Accepts, connects, reads and writes, and exchanges datagrams, on an epoll_driver or a
/// uring_driver. Linux only; empty on other systems.
///
/// This is not a network library: it has no host names, no TLS and no protocols. It also works on
/// descriptors from other libraries or system calls, such as those of socketpair(2) or of a pipe. A
/// write to a pipe without readers raises SIGPIPE; a write to a socket does not.
//
// Each operation tries its system call first. If the call would block, the operation waits for the
// file. When the file is ready, the operation tries the call again, on the thread where the
// coroutine is about to resume. If the call would still block, the operation waits again
// (retry_on_grant, core/wait_ops.hpp). So an operation is one wait with one time-out, and allocates
// nothing. A socket makes one edge-triggered request to the driver (io/epoll_driver.hpp).
//
// A server reads a request, answers it, and reads again before the next request is there. If reads
// of a TCP socket have failed so several times in a row, the next ones wait without a system call.
//
// A socket may be closed while a coroutine waits for it, and the system may give its descriptor to
// the next file at once. If the socket became ready before the close, the coroutine may be about to
// try its system call again, on the wrong file. So each attempt holds the lock of the driver's
// entry for the descriptor, and first checks whether forget() was called for the file. close()
// calls forget(), which takes the same lock.

#if defined(__linux__)

#include <bide/core/async_op.hpp>
#include <bide/io/driver.hpp>
#include <bide/io/epoll_driver.hpp>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <span>

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

namespace bide { inline namespace BIDE_ABI {

/// The result of a read or a write: the number of bytes, an errc (stopped, timeout, closed,
/// no_driver), or an error of the system.
using io_count = result<std::size_t, std::error_code>;

template <class Driver> class basic_io_socket;

namespace detail {

// The payload of each operation. `is_over` is true if the system call has succeeded or failed.
struct socket_payload : io_payload {
    bool is_over = false;
    bool was_put_off = false; // the wait has begun without a system call
    retry_on_grant<native_platform> retry{};

    wait_status end(int code = 0) noexcept {
        error = code;
        is_over = true;
        return wait_status::granted;
    }
};
struct transfer_payload : socket_payload {
    std::byte* data = nullptr; // a write only reads it; or an array of iovec
    std::size_t size = 0;      // of what is left; or the number of the iovec
    std::size_t count = 0;
    bool is_for_all = false;
    socklen_t peer_size = 0;
    sockaddr* peer = nullptr; // of a datagram; a send only reads it
};
template <class Driver> struct connection_payload : socket_payload {
    basic_io_socket<Driver> made{};
};

} // namespace detail

/// The payload of a read or a write.
template <> struct wait_payload<io_count> {
    using type = detail::transfer_payload; ///< the payload
};
/// The payload of an accept or a connect.
template <class Driver> struct wait_payload<result<basic_io_socket<Driver>, std::error_code>> {
    using type = detail::connection_payload<Driver>; ///< the payload
};

/// Owns a socket, or another descriptor, and waits for it on an epoll_driver or a uring_driver.
/// Requires: nothing else closes the descriptor before release().
/// Thread safety: different coroutines may read and write at the same time. While the socket is
/// moved, closed or destroyed, no other function may be called.
///
/// \code
/// bide::task<> echo(bide::io_socket peer) { // its end closes the connection
///     std::array<std::byte, 4096> buffer;
///     for (;;) {
///         auto got = co_await peer.async_read_some(buffer).with_timeout(std::chrono::minutes(5));
///         if (!got || *got == 0) co_return; // an error, five minutes without a byte, or the end
///         auto sent = co_await bide::async_write(peer, std::span(buffer).first(*got));
///         if (!sent) co_return;
///     }
/// }
/// \endcode
template <class Driver> class basic_io_socket {
public:
    /// Owns nothing.
    basic_io_socket() noexcept = default;
    /// Takes over an open descriptor, and makes it non-blocking.
    /// Requires: `on` outlives the socket.
    basic_io_socket(Driver& on, int fd) noexcept : driver_(&on), fd_(fd) {
        const int saved = errno;
        if (const int flags = ::fcntl(fd, F_GETFL); flags >= 0 && (flags & O_NONBLOCK) == 0) {
            ::fcntl(fd, F_SETFL, flags | O_NONBLOCK); // if it fails, the first operation fails, too
        }
        errno = saved;
    }
    /// Takes over the descriptor of `other`.
    /// Requires: no operation is in progress.
    basic_io_socket(basic_io_socket&& other) noexcept
        : driver_(other.driver_), fd_(std::exchange(other.fd_, -1)) {}
    /// \overload
    basic_io_socket& operator=(basic_io_socket&& other) noexcept {
        basic_io_socket moved(std::move(other));
        std::swap(driver_, moved.driver_);
        std::swap(fd_, moved.fd_);
        return *this;
    }
    /// Calls close().
    ~basic_io_socket() { close(); }

    /// Closes the descriptor. Operations that wait on it end with errc::closed.
    void close() noexcept {
        if (fd_ >= 0) {
            const int saved = errno;
            driver_->forget(fd_);
            ::close(std::exchange(fd_, -1));
            errno = saved;
        }
    }

    /// Returns the descriptor; -1 if there is none.
    int fd() const noexcept { return fd_; }
    /// Returns true if it owns a descriptor.
    explicit operator bool() const noexcept { return fd_ >= 0; }
    /// Gives the descriptor to the caller, which must close it. Returns -1 if there is none.
    /// Operations that wait on the descriptor end with errc::closed.
    int release() noexcept {
        if (fd_ >= 0) {
            driver_->forget(fd_);
        }
        return std::exchange(fd_, -1);
    }

    // ---- Operations. Each operation returns its error and throws nothing. Each accepts
    // with_timeout() and with_stop(). If a time-out, a stop or a cancellation ends an operation,
    // the operation returns errc::timeout or errc::stopped, and no byte was transferred. If no
    // scheduler or run_loop runs the driver, the operation returns errc::no_driver. After close(),
    // it returns bad_file_descriptor. If the socket never had a descriptor, the program terminates.

    /// Reads the available bytes, at least one and at most into.size().
    /// Returns: the number of bytes; 0 at the end of the stream. If `into` is empty, returns 0 at
    /// once; nothing is received, and no message is lost.
    /// Requires: `into` exists until the operation is over.
    async_op<io_count> async_read_some(std::span<std::byte> into) noexcept {
        return detail::socket_access<Driver>::transfer(*this, into, false, false);
    }

    /// Writes as many bytes as the socket accepts, at least one and at most from.size().
    /// async_write() writes all bytes. If `from` is empty, a write to a stream does nothing; a
    /// write to a socket of messages sends an empty message.
    /// Returns: the number of bytes.
    /// Requires: `from` exists until the operation is over.
    async_op<io_count> async_write_some(std::span<const std::byte> from) noexcept {
        return detail::socket_access<Driver>::transfer(*this, from, true, false);
    }

    /// Reads the available bytes, at least one, into several buffers, one after the other. Like
    /// async_read_some() in all else. Uses the first 1,024 buffers (IOV_MAX).
    /// Returns: the number of bytes; 0 at the end of the stream. If the buffers have no room,
    /// returns 0 at once.
    /// Requires: `into` and its buffers exist until the operation is over.
    async_op<io_count> async_readv(std::span<const iovec> into) noexcept {
        return detail::socket_access<Driver>::transfer(*this, into, false);
    }

    /// Writes from several buffers, one after the other, as many bytes as the socket accepts, at
    /// least one. Like async_write_some() in all else. Uses the first 1,024 buffers (IOV_MAX).
    /// Returns: the number of bytes.
    /// Requires: `from` and its buffers exist until the operation is over.
    async_op<io_count> async_writev(std::span<const iovec> from) noexcept {
        return detail::socket_access<Driver>::transfer(*this, from, true);
    }

    /// Accepts a connection on a listening socket.
    /// Returns: the connection, on the same driver. If the process has no more descriptors, returns
    /// too_many_files_open, and the connection stays in the queue. Close a descriptor, or wait,
    /// before the next attempt.
    /// Cancellation: no connection and no descriptor is lost.
    async_op<result<basic_io_socket, std::error_code>> async_accept() noexcept {
        using access = detail::socket_access<Driver>;
        return access::template start<typename access::accepting>(
            driver(), fd_, false, detail::connection_payload<Driver>());
    }

    /// Sends a datagram to a sockaddr_in or sockaddr_in6, on a socket of bind_at().
    /// Returns: the number of bytes: all of them. message_size if the datagram is too long.
    /// Requires: `from` and `to` exist until the operation is over.
    template <class Address>
    async_op<io_count> async_send_to(std::span<const std::byte> from, const Address& to) noexcept {
        return detail::socket_access<Driver>::exchange(*this, from, true, const_cast<Address&>(to));
    }

    /// Receives a datagram, on a socket of bind_at(). Sets `from` to the address of its sender.
    /// Returns: the number of bytes. message_size if the datagram does not fit into `into`; it is
    /// lost then. If `into` is empty, returns 0 at once, and no datagram is lost.
    /// Requires: `into` and `from` exist until the operation is over. `from` has the type of the
    /// socket's addresses, or is a sockaddr_storage.
    template <class Address>
    async_op<io_count> async_receive_from(std::span<std::byte> into, Address& from) noexcept {
        return detail::socket_access<Driver>::exchange(*this, into, false, from);
    }

private:
    friend struct detail::socket_access<Driver>;

    Driver& driver() const noexcept {
        if (driver_ == nullptr) {
            detail::fatal("io_socket", this, "has never owned a descriptor");
        }
        return *driver_;
    }

    Driver* driver_ = nullptr;
    int fd_ = -1;
};

/// A socket on an epoll_driver.
using io_socket = basic_io_socket<epoll_driver>;

/// Connects a new stream socket to an address. The connection begins in this call.
/// Returns: an operation whose value is the connection, or the system's error.
/// Requires: `on` outlives the socket.
/// Cancellation: closes the socket.
template <class Driver>
async_op<result<basic_io_socket<Driver>, std::error_code>>
async_connect(Driver& on, const sockaddr* to, socklen_t size) noexcept {
    using access = detail::socket_access<Driver>;
    detail::connection_payload<Driver> p;
    const int fd = ::socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        p.end(errno);
    } else if (::connect(fd, to, size) == 0) {
        p.end();
    } else if (errno != EINPROGRESS && errno != EINTR) { // a signal does not end the connect
        p.end(errno);
    }
    p.made = basic_io_socket<Driver>(on, fd);
    return access::template start<typename access::connecting>(on, fd, true, std::move(p));
}
/// The options of listen_at().
struct listen_options {
    /// The most connections that wait to be accepted.
    int backlog = SOMAXCONN;
    /// True: several sockets of one user may listen at the address (SO_REUSEPORT), and the system
    /// spreads the connections over them. All of them must set it.
    bool reuse_port = false;
};

/// Makes a stream socket that listens at an address. Sets SO_REUSEADDR.
/// Returns: the socket, or the system's error.
/// Requires: `on` outlives the socket.
template <class Driver>
result<basic_io_socket<Driver>, std::error_code>
listen_at(Driver& on, const sockaddr* at, socklen_t size, listen_options how = {}) noexcept {
    const int fd = ::socket(at->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    basic_io_socket<Driver> made(on, fd);
    const int yes = 1;
    if (fd < 0 || ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        (how.reuse_port && ::setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes) != 0) ||
        ::bind(fd, at, size) != 0 || ::listen(fd, how.backlog) != 0) {
        return unexpected{std::error_code(errno, std::system_category())};
    }
    return made;
}

/// Connects to a sockaddr_in, sockaddr_in6 or sockaddr_un.
template <class Driver, class Address>
async_op<result<basic_io_socket<Driver>, std::error_code>>
async_connect(Driver& on, const Address& to) noexcept {
    return async_connect(on, reinterpret_cast<const sockaddr*>(&to), socklen_t{sizeof(Address)});
}

/// Listens at a sockaddr_in, sockaddr_in6 or sockaddr_un.
template <class Driver, class Address>
result<basic_io_socket<Driver>, std::error_code> listen_at(Driver& on, const Address& at,
                                                           listen_options how = {}) noexcept {
    return listen_at(on, reinterpret_cast<const sockaddr*>(&at), socklen_t{sizeof(Address)}, how);
}

/// Makes a socket for datagrams that is bound to an address. Port 0 means any free port. To talk to
/// one peer only, connect(2) its descriptor, and use async_read_some() and async_write_some().
/// Returns: the socket, or the system's error.
/// Requires: `on` outlives the socket.
template <class Driver>
result<basic_io_socket<Driver>, std::error_code> bind_at(Driver& on, const sockaddr* at,
                                                         socklen_t size) noexcept {
    const int fd = ::socket(at->sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    basic_io_socket<Driver> made(on, fd);
    if (fd < 0 || ::bind(fd, at, size) != 0) {
        return unexpected{std::error_code(errno, std::system_category())};
    }
    return made;
}

/// Binds a socket for datagrams to a sockaddr_in, sockaddr_in6 or sockaddr_un.
template <class Driver, class Address>
result<basic_io_socket<Driver>, std::error_code> bind_at(Driver& on, const Address& at) noexcept {
    return bide::bind_at(on, reinterpret_cast<const sockaddr*>(&at), socklen_t{sizeof(Address)});
}

/// Writes all bytes. Like the operations of the socket, it is one operation with one time-out.
/// Returns: all.size(), or the first error, such as errc::timeout. After an error, some bytes may
/// have been written.
/// Requires: `all` exists until the operation is over.
template <class Driver>
async_op<io_count> async_write(basic_io_socket<Driver>& to,
                               std::span<const std::byte> all) noexcept {
    return detail::socket_access<Driver>::transfer(to, all, true, true);
}

// ---- Implementation

namespace detail {

// Repeats a system call until no signal interrupts it. Returns its value, or -1 with errno.
template <class Call> auto uninterrupted(Call call) noexcept {
    auto n = call();
    while (n < 0 && errno == EINTR) {
        n = call();
    }
    return n;
}

inline bool is_tcp(int fd) noexcept {
    int protocol = 0;
    socklen_t size = sizeof protocol;
    return ::getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 &&
           protocol == IPPROTO_TCP;
}

// Makes a message of several buffers.
inline msghdr message_of(iovec* first, std::size_t number) noexcept {
    msghdr made{};
    made.msg_iov = first;
    made.msg_iovlen = number;
    return made;
}
inline ssize_t exchange_message(int fd, bool sends, msghdr& message) noexcept {
    return uninterrupted([&]() noexcept {
        return sends ? ::sendmsg(fd, &message, MSG_NOSIGNAL) : ::recvmsg(fd, &message, 0);
    });
}

// The operations of a socket. They use the waits of the driver.
template <class Driver> struct socket_access {
    using readiness = typename Driver::readiness;
    using io_socket = basic_io_socket<Driver>;
    using connection_payload = detail::connection_payload<Driver>;

    template <class T> static result<T, std::error_code> failed(wait_status what, int error) {
        return what == wait_status::granted
                   ? unexpected{io_payload::code_of(error != 0 ? error : EAGAIN)}
                   : unexpected{make_error_code(errc_of(what))};
    }

    // Self::attempt(payload) makes the system call. If the call would block, returns would_block().
    template <class Self, class Payload> struct operation : readiness {
        static constexpr bool stands_alone = true;
        static auto& retry_on_grant(Payload& p) noexcept { return p.retry; }

        // Calls attempt(), unless forget() was called for the file or the payload has an error.
        wait_status try_now(Payload& p) const noexcept {
            if (this->its == nullptr) {
                return wait_status::granted;
            }
            const typename Driver::guard section(this->its->locked);
            return this->is_forgotten() ? wait_status::closed
                                        : static_cast<const Self&>(*this).attempt(p);
        }
        template <class Waiter> wait_status enqueue(Waiter& w, Payload& p) const noexcept {
            return readiness::enqueue(w, p, true, [&]() noexcept {
                return p.was_put_off ? static_cast<const Self&>(*this).attempt(p)
                                     : wait_status::waiting;
            });
        }

        // Called if a system call has failed.
        wait_status failed_call(Payload& p) const noexcept {
            return errno == EAGAIN || errno == EWOULDBLOCK ? this->would_block() : p.end(errno);
        }
    };

    template <class Self> struct counted : operation<Self, transfer_payload> {
        using outcome = io_count;

        io_count collect(wait_status what, transfer_payload& p) const noexcept {
            const bool done = what == wait_status::granted && p.is_over && p.error == 0;
            return done ? io_count(p.count) : failed<std::size_t>(what, p.error);
        }
    };

    struct transferring : counted<transferring> {
        wait_status attempt(transfer_payload& p) const noexcept {
            const bool writes = this->which() == Driver::writable;
            if (p.size == 0 && !writes) {
                return p.end(); // recv() would wait for a byte, or drop a message
            }
            if (!writes && this->puts_off(p.was_put_off)) {
                return wait_status::waiting;
            }
            const bool was_armed = !writes && this->is_armed_edge();
            const int from = this->fd;
            ssize_t n = uninterrupted([&]() noexcept {
                return writes ? ::send(from, p.data, p.size, MSG_NOSIGNAL)
                              : ::recv(from, p.data, p.size, 0);
            });
            if (n < 0 && errno == ENOTSOCK) {
                n = uninterrupted([&]() noexcept {
                    return writes ? ::write(from, p.data, p.size) : ::read(from, p.data, p.size);
                });
            }
            this->note_read(was_armed, n < 0);
            if (n < 0) {
                return this->failed_call(p);
            }
            const auto moved = static_cast<std::size_t>(n);
            p.count += moved;
            p.data += moved;
            p.size -= moved;
            if (!writes && moved != 0 && p.size != 0) {
                this->note_short_read([&]() noexcept { return is_tcp(from); });
            }
            return p.is_for_all && p.size != 0 ? wait_status::waiting : p.end();
        }
    };

    // A transfer of several buffers.
    struct transferring_pieces : counted<transferring_pieces> {
        wait_status attempt(transfer_payload& p) const noexcept {
            const bool writes = this->which() == Driver::writable;
            const std::span pieces(reinterpret_cast<iovec*>(p.data),
                                   std::min<std::size_t>(p.size, IOV_MAX));
            const auto is_empty = [](const iovec& one) noexcept { return one.iov_len == 0; };
            if (!writes && std::all_of(pieces.begin(), pieces.end(), is_empty)) {
                return p.end(); // as for one buffer
            }
            const int from = this->fd;
            msghdr all = message_of(pieces.data(), pieces.size());
            ssize_t n = exchange_message(from, writes, all);
            if (n < 0 && errno == ENOTSOCK) {
                const int number = static_cast<int>(pieces.size());
                n = uninterrupted([&]() noexcept {
                    return writes ? ::writev(from, pieces.data(), number)
                                  : ::readv(from, pieces.data(), number);
                });
            }
            if (n < 0) {
                return this->failed_call(p);
            }
            p.count = static_cast<std::size_t>(n);
            return p.end();
        }
    };

    // Sends or receives a datagram.
    struct exchanging : counted<exchanging> {
        wait_status attempt(transfer_payload& p) const noexcept {
            const bool sends = this->which() == Driver::writable;
            if (p.size == 0 && !sends) {
                return p.end();
            }
            iovec bytes{p.data, p.size};
            msghdr message = message_of(&bytes, 1);
            message.msg_name = p.peer;
            message.msg_namelen = p.peer_size;
            const ssize_t n = exchange_message(this->fd, sends, message);
            if (n < 0) {
                return this->failed_call(p);
            }
            p.count = static_cast<std::size_t>(n);
            return p.end((message.msg_flags & MSG_TRUNC) != 0 ? EMSGSIZE : 0);
        }
    };

    template <class Self> struct connection : operation<Self, connection_payload> {
        using outcome = result<io_socket, std::error_code>;

        outcome collect(wait_status what, connection_payload& p) const noexcept {
            if (what == wait_status::granted && p.is_over && p.error == 0) {
                return std::move(p.made);
            }
            p.made.close();
            return failed<io_socket>(what, p.error);
        }
    };

    struct accepting : connection<accepting> {
        wait_status attempt(connection_payload& p) const noexcept {
            for (;;) {
                const int made = uninterrupted([&]() noexcept {
                    return ::accept4(this->fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
                });
                if (made >= 0) {
                    p.made = io_socket(static_cast<Driver&>(this->of), made);
                    return p.end();
                }
                if (errno != ECONNABORTED) { // this peer has gone: accept the next one
                    return this->failed_call(p);
                }
            }
        }
    };

    struct connecting : connection<connecting> {
        wait_status attempt(connection_payload& p) const noexcept {
            pollfd file{this->fd, POLLOUT, 0};
            if (::poll(&file, 1, 0) <= 0) {
                return this->would_block();
            }
            int error = 0;
            socklen_t size = sizeof error;
            return p.end(::getsockopt(this->fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error
                                                                                          : errno);
        }
    };

    // Makes an operation. If the driver cannot wait for the file, stores the error in the payload.
    template <class Op, class Payload>
    static typename Driver::template awaitable<typename Op::outcome>
    start(Driver& on, int fd, bool writes, Payload p) noexcept {
        auto* const its = p.is_over ? nullptr : on.entry_for(fd, p.error);
        const auto way = readiness::way_of(writes ? Driver::writable : Driver::readable, its);
        Op op{readiness{{}, on, its, fd, way}};
        return {op, std::move(p)};
    }

    static async_op<io_count> transfer(const io_socket& of, std::span<const std::byte> bytes,
                                       bool writes, bool all) noexcept {
        transfer_payload p;
        p.data = const_cast<std::byte*>(bytes.data());
        p.size = bytes.size();
        p.is_for_all = all;
        return start<transferring>(of.driver(), of.fd(), writes, p);
    }
    static async_op<io_count> transfer(const io_socket& of, std::span<const iovec> pieces,
                                       bool writes) noexcept {
        transfer_payload p;
        p.data = reinterpret_cast<std::byte*>(const_cast<iovec*>(pieces.data()));
        p.size = pieces.size();
        return start<transferring_pieces>(of.driver(), of.fd(), writes, p);
    }

    template <class Address>
    static async_op<io_count> exchange(const io_socket& of, std::span<const std::byte> bytes,
                                       bool sends, Address& peer) noexcept {
        transfer_payload p;
        p.data = const_cast<std::byte*>(bytes.data());
        p.size = bytes.size();
        p.peer = reinterpret_cast<sockaddr*>(&peer);
        p.peer_size = socklen_t{sizeof(Address)};
        return start<exchanging>(of.driver(), of.fd(), sends, p);
    }
};

} // namespace detail

}} // namespace bide::BIDE_ABI

#endif

#endif
