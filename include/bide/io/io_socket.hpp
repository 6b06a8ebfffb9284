// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_IO_IO_SOCKET_HPP
#define BIDE_IO_IO_SOCKET_HPP

/// \file
/// Accepts, connects, reads and writes on an epoll_driver or a uring_driver. Linux only; empty
/// on other systems.
///
/// This is no network library: there are no names, no TLS, no datagrams and no protocols. A descriptor
/// of any other origin is used in the same way: of a library that resolves names, of socketpair(2), of
/// a pipe. A write to a pipe without readers raises SIGPIPE, a write to a socket does not.

#if defined(__linux__)

#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/result.hpp>
#include <bide/fwd.hpp>
#include <bide/io/driver.hpp>
#include <bide/io/epoll_driver.hpp>

#include <cerrno>
#include <cstddef>
#include <span>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

namespace bide::inline BIDE_ABI {

/// The result of a read or a write: the number of bytes; an errc (stopped, timeout, closed, no_driver);
/// or an error of the system.
using io_count = result<std::size_t, std::error_code>;

/// Owns a socket, or another descriptor, and waits for it on a driver: an epoll_driver or a uring_driver.
/// Thread safety: different coroutines may read and write at the same time. Nothing else may be called
/// while the socket is moved, closed or destroyed.
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
    /// Takes over what `other` owns.
    /// Requires: no operation is under way.
    basic_io_socket(basic_io_socket&& other) noexcept
        : driver_(other.driver_), fd_(std::exchange(other.fd_, -1)) {}
    /// \overload
    basic_io_socket& operator=(basic_io_socket&& other) noexcept {
        basic_io_socket moved(std::move(other));
        std::swap(driver_, moved.driver_);
        std::swap(fd_, moved.fd_);
        return *this;
    }
    basic_io_socket(const basic_io_socket&) = delete;
    /// Calls close().
    ~basic_io_socket() { close(); }

    /// Closes the descriptor. Operations that wait for it return errc::closed.
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
    /// Gives the descriptor to the caller, open. Operations that wait for it return errc::closed.
    int release() noexcept {
        if (fd_ >= 0) {
            driver_->forget(fd_);
        }
        return std::exchange(fd_, -1);
    }

    // ---- Operations. Each returns an error and throws none. Each takes with_timeout() and with_stop(),
    // and ends when its task is cancelled: errc::timeout, errc::stopped, and nothing was transferred.
    // Each needs a scheduler or a run_loop that runs the driver: errc::no_driver otherwise.
    // bad_file_descriptor after close(); terminates if the socket never had a descriptor.

    /// Reads what there is, at least one byte, at most into.size().
    /// Returns: the number of bytes; 0 at the end of the stream. 0 at once if `into` is empty: then
    /// nothing is received, and no message is lost.
    /// Requires: `into` exists until the operation is over.
    async_op<io_count> async_read_some(std::span<std::byte> into) noexcept;

    /// Writes as much as fits, at least one byte, at most from.size(). See async_write() for all of it.
    /// Writes of nothing to a stream do nothing; to a socket of messages they send an empty message.
    /// Returns: the number of bytes.
    /// Requires: `from` exists until the operation is over.
    async_op<io_count> async_write_some(std::span<const std::byte> from) noexcept;

    /// Accepts a connection on a listening socket.
    /// Returns: the connection, on the same driver. If the process has no more descriptors
    /// (too_many_files_open), the connection stays in the queue. Close one, or wait, before the
    /// next attempt.
    /// Cancellation: no connection is lost, and no descriptor.
    async_op<result<basic_io_socket, std::error_code>> async_accept() noexcept;

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
/// Cancellation: the socket is closed.
template <class Driver>
async_op<result<basic_io_socket<Driver>, std::error_code>>
async_connect(Driver& on, const sockaddr* to, socklen_t size) noexcept;
/// Makes a stream socket that listens at an address. An address of TCP may be reused at once.
/// Returns: the socket, or the system's error.
/// Requires: `on` outlives the socket.
template <class Driver>
result<basic_io_socket<Driver>, std::error_code>
listen_at(Driver& on, const sockaddr* at, socklen_t size, int backlog = SOMAXCONN) noexcept;

/// Connects to a sockaddr_in, sockaddr_in6 or sockaddr_un.
template <class Driver, class Address>
async_op<result<basic_io_socket<Driver>, std::error_code>>
async_connect(Driver& on, const Address& to) noexcept;

/// Listens at a sockaddr_in, sockaddr_in6 or sockaddr_un.
template <class Driver, class Address>
result<basic_io_socket<Driver>, std::error_code> listen_at(Driver& on, const Address& at) noexcept;

/// Writes all bytes. One operation with one time-out, as those of the socket.
/// Returns: the number of all bytes, or the first error, such as errc::timeout. After an error some bytes
/// may have been written.
/// Requires: `all` exists until the operation is over.
template <class Driver>
async_op<io_count> async_write(basic_io_socket<Driver>& to,
                               std::span<const std::byte> all) noexcept;

} // namespace bide::inline BIDE_ABI

#include <bide/io/detail/socket_ops.hpp>

#endif

#endif
