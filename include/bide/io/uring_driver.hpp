// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_IO_URING_DRIVER_HPP
#define BIDE_IO_URING_DRIVER_HPP

/// \file
/// Lets coroutines wait for files, and read and write them, by Linux's io_uring(7). Needs Linux 5.11 and
/// liburing: link bide::uring, or bide and liburing. No other header includes this one.
//
// The readiness of files is in detail/readiness_driver.hpp, requests and their ends in
// detail/uring_set.hpp, the lock, the wake and the queues of the ring in detail/uring_ring.hpp.

#if !defined(__has_include) || !__has_include(<liburing.h>)
#error "bide/io/uring_driver.hpp needs <liburing.h>, of Debian's package liburing-dev."
#endif

#include <bide/core/async_op.hpp>
#include <bide/core/backoff.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/wait_status.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waiter_queue.hpp>
#include <bide/fwd.hpp>
#include <bide/io/detail/readiness_driver.hpp>
#include <bide/io/detail/uring_set.hpp>
#include <bide/io/driver.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <system_error>
#include <type_traits>

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

namespace bide::inline BIDE_ABI {

/// The number of bytes that were read or written.
struct uring_count {
    std::size_t bytes; ///< the number
    /// Returns the number.
    constexpr operator std::size_t() const noexcept { return bytes; }
};
/// An open descriptor. The caller closes it.
struct uring_file {
    int fd; ///< the descriptor
    /// Returns the descriptor.
    constexpr operator int() const noexcept { return fd; }
};

/// The payload of a read or a write.
template <> struct wait_payload<result<uring_count, std::error_code>> {
    using type = detail::uring_request; ///< the payload
};
/// The payload of an accept or a connect.
template <> struct wait_payload<result<uring_file, std::error_code>> {
    using type = detail::uring_request; ///< the payload
};

/// A driver for files, sockets and pipes. It waits until they are ready, as an epoll_driver does, and
/// carries out whole operations: regular files are never ready or unready, only this reads them without
/// blocking a worker.
///
/// A thread that has begun a wait or an operation is interrupted when the kernel completes it. So a system
/// call of it may fail with EINTR, as after a signal handler; bide's own do not.
template <class Platform>
class basic_uring_driver final
    : public detail::readiness_driver<Platform, detail::uring_set<Platform>> {
    using base = detail::readiness_driver<Platform, detail::uring_set<Platform>>;
    using request = detail::uring_request;
    template <class T> using operation_of = basic_async_op<result<T, std::error_code>, Platform>;

public:
    /// Makes the ring. `entries` is the size of its submission queue. That is no limit: each request is
    /// submitted at once, and the kernel keeps the completions that do not fit in their queue.
    /// Throws: std::system_error if the system refuses (EPERM or ENOSYS: a container or an administrator
    /// forbids io_uring), has no more descriptors or memory, or is older than Linux 5.11 (ENOSYS).
    explicit basic_uring_driver(unsigned entries = 64) : base(entries) {}
    /// Closes the ring.
    /// Requires: no coroutine waits for a file, no wait() or wake() is going on, and there is no
    /// attachment.
    ~basic_uring_driver() override;

    /// See epoll_driver. The kernel keeps a file open while a coroutine waits for it, and for a moment
    /// after the wait.
    using base::async_wait_readable;
    /// \overload
    using base::async_wait_writable;
    /// See driver. The deadline is exact to the nanosecond.
    using base::wait;
    /// See driver. Makes a system call only if a thread sleeps in wait().
    using base::wake;

    /// Ends all waits and operations for the file with errc::closed; the operations that the kernel has
    /// begun end a little later. Must be called before the file is closed, if a coroutine may wait for
    /// it. The kernel keeps the file open until the operations have ended.
    /// Complexity: linear in the number of operations of the driver.
    void forget(int fd) noexcept {
        base::forget(fd);
        if (fd >= 0) {
            this->set_.end_all(fd);
        }
    }

    // ---- Operations. Each returns an error and throws none. Each takes with_timeout() and with_stop(),
    // and ends when its task is cancelled: errc::timeout, errc::stopped, and nothing was transferred.
    // The kernel uses the buffer until the operation has ended. So a time-out, a stop or a cancellation
    // asks the kernel to end it, and the wait is over when the kernel says so: at once for a socket or a
    // pipe; for a regular file after the device has answered. If it has happened by then, that is its
    // result. If the coroutine is destroyed meanwhile, the destructor blocks until the kernel has ended
    // the operation. Each needs a scheduler or a run_loop that runs the driver: errc::no_driver
    // otherwise. The descriptor may block or not.

    /// Reads what there is, at least one byte, at most into.size(), from a socket, a pipe, or the current
    /// position of a file.
    /// Returns: the number of bytes; 0 at the end. 0 at once if `into` is empty: then nothing is received,
    /// and no message is lost.
    /// Requires: `into` exists until the operation is over.
    operation_of<uring_count> async_read_some(int fd, std::span<std::byte> into) noexcept {
        return transfer(request::kind::receive, fd, into.data(), into.size());
    }
    /// Writes as much as fits, at least one byte. A write to a pipe without readers raises SIGPIPE, a
    /// write to a socket does not. Writes of nothing to a stream do nothing; to a socket of messages they
    /// send an empty message.
    /// Returns: the number of bytes.
    /// Requires: `from` exists until the operation is over.
    operation_of<uring_count> async_write_some(int fd, std::span<const std::byte> from) noexcept {
        return transfer(request::kind::send, fd, const_cast<std::byte*>(from.data()), from.size());
    }
    /// Reads from a file at an offset in bytes. Its current position stays as it is.
    /// Returns: the number of bytes, which may be fewer than into.size(); 0 at the end of the file.
    /// Requires: `into` exists until the operation is over.
    operation_of<uring_count> async_read_at(int fd, std::span<std::byte> into,
                                            std::uint64_t offset) noexcept {
        return transfer(request::kind::read, fd, into.data(), into.size(), offset);
    }
    /// Writes to a file at an offset in bytes. Its current position stays as it is.
    /// Returns: the number of bytes, which may be fewer than from.size().
    /// Requires: `from` exists until the operation is over.
    operation_of<uring_count> async_write_at(int fd, std::span<const std::byte> from,
                                             std::uint64_t offset) noexcept {
        return transfer(request::kind::write, fd, const_cast<std::byte*>(from.data()), from.size(),
                        offset);
    }
    /// Accepts a connection on a listening socket. A deadline that has passed ends it without an attempt.
    /// Returns: the connection, a blocking descriptor that is closed on exec.
    /// Cancellation: no connection is lost, and no descriptor.
    operation_of<uring_file> async_accept(int fd) noexcept {
        request r;
        r.what = request::kind::accept;
        r.fd = fd;
        return {opening{{*this}}, r};
    }
    /// Connects a socket to an address. A deadline that has passed ends it without an attempt.
    /// Returns: `fd`. The socket stays the caller's in each case; after an error, close it.
    /// Requires: the address exists until the operation is over.
    operation_of<uring_file> async_connect(int fd, const sockaddr* to, socklen_t size) noexcept {
        request r;
        r.what = request::kind::connect;
        r.fd = fd;
        r.data = const_cast<sockaddr*>(to);
        r.size = size;
        return {opening{{*this}}, r};
    }

private:
    using node = basic_waiter<Platform>;

    // The steps of each operation (core/wait_ops.hpp).
    struct operation {
        static constexpr bool stands_alone = true;
        static constexpr const char* waited_for = "a file";

        basic_uring_driver& of;

        wait_status enqueue(node& w, request& r) const noexcept {
            return of.set_.begin(r, w, [this, &w, &r]() noexcept {
                const wait_status what = w.forbidden();
                if (what != wait_status::waiting || of.is_attached()) {
                    return what;
                }
                r.at = request::phase::over;
                r.result = -io_payload::no_driver;
                return wait_status::granted;
            });
        }
        bool cancel(node& w, wait_status why, request& r) const noexcept {
            if (why == wait_status::destroyed) {
                return of.set_.end_now(r);
            }
            of.set_.end_early(r, w, why);
            return false; // the completion decides
        }

    protected:
        template <class T>
        static result<T, std::error_code> value(wait_status what, const request& r) noexcept {
            const wait_status how = what == wait_status::granted ? r.ended_by : what;
            if (how != wait_status::granted) {
                return unexpected{make_error_code(errc_of(how))};
            }
            if (r.result < 0) {
                return unexpected{io_payload::code_of(-r.result)};
            }
            if constexpr (std::is_same_v<T, uring_file>) {
                return uring_file{r.what == request::kind::connect ? r.fd : r.result};
            } else {
                return uring_count{static_cast<std::size_t>(r.result)};
            }
        }
    };

    struct transferring : operation {
        wait_status try_now(request& r) const noexcept;
        result<uring_count, std::error_code> collect(wait_status what, request& r) const noexcept {
            return operation::template value<uring_count>(what, r);
        }
    };

    struct opening : operation {
        wait_status try_now(request&) const noexcept { return wait_status::waiting; }
        result<uring_file, std::error_code> collect(wait_status what, request& r) const noexcept {
            return operation::template value<uring_file>(what, r);
        }
        void give_back(wait_status, request& r) const noexcept {
            if (r.what == request::kind::accept && r.at == request::phase::over && r.result >= 0 &&
                r.ended_by == wait_status::granted) {
                ::close(r.result);
            }
        }
    };

    operation_of<uring_count> transfer(request::kind what, int fd, void* data, std::size_t size,
                                       std::uint64_t offset = request::current_position) noexcept {
        request r;
        r.what = what;
        r.fd = fd;
        r.data = data;
        r.size = static_cast<std::uint32_t>(std::min<std::size_t>(size, 0x7fff'f000)); // as read(2)
        r.offset = offset;
        return {transferring{{*this}}, r};
    }

    void detached() noexcept override;
};

/// The driver of a program.
using uring_driver = basic_uring_driver<>;

template <class Platform> basic_uring_driver<Platform>::~basic_uring_driver() {
    if (const std::size_t waiting = this->set_.size(); waiting != 0) {
        detail::fatal_destroyed("uring_driver", this, waiting);
    }
}

// The attempt without the ring. If it would block, or the file cannot tell, the ring does it.
template <class Platform>
wait_status basic_uring_driver<Platform>::transferring::try_now(request& r) const noexcept {
    using kind = request::kind;
    const int before = errno;
    ssize_t n = 0;
    if (r.what == kind::send || (r.size != 0 && r.what == kind::receive)) {
        n = r.what == kind::send ? ::send(r.fd, r.data, r.size, MSG_NOSIGNAL | MSG_DONTWAIT)
                                 : ::recv(r.fd, r.data, r.size, MSG_DONTWAIT);
        if (n < 0 && errno == ENOTSOCK) {
            r.what = r.what == kind::send ? kind::write : kind::read;
            n = 0;
        }
    }
    if (r.size != 0 && (r.what == kind::read || r.what == kind::write)) {
        const iovec all{r.data, r.size};
        const auto at = static_cast<off_t>(r.offset);
        n = r.what == kind::write ? ::pwritev2(r.fd, &all, 1, at, RWF_NOWAIT)
                                  : ::preadv2(r.fd, &all, 1, at, RWF_NOWAIT);
        if (n < 0 && errno != EBADF) {
            errno = EAGAIN; // the ring finds the error
        }
    }
    const int error = errno;
    errno = before;
    if (n < 0 && (error == EAGAIN || error == EWOULDBLOCK || error == EINTR)) {
        return wait_status::waiting;
    }
    r.at = request::phase::over;
    r.result = n < 0 ? -error : static_cast<int>(n);
    return wait_status::granted;
}

template <class Platform> void basic_uring_driver<Platform>::detached() noexcept {
    base::detached();
    this->set_.end_all(-1);
    basic_backoff<Platform> again;
    for (; this->set_.size() != 0; again()) {
        this->set_.fetch(deadline::poll());
        typename detail::uring_set<Platform>::event told{};
        basic_wake_list<Platform> ended;
        while (this->set_.next(told)) {
            if (told.completed != nullptr) {
                ended.push(*told.completed);
            }
        }
        ended.publish(wait_status::granted);
    }
}

} // namespace bide::inline BIDE_ABI

#endif
