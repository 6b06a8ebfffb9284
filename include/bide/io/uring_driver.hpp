// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_IO_URING_DRIVER_HPP
#define BIDE_IO_URING_DRIVER_HPP

/// \file
/// Lets coroutines read and write regular files by Linux's io_uring(7), and wait for files as an
/// epoll_driver does. Needs Linux 5.11 and liburing: link bide::uring, or bide and liburing. No
/// other header includes this one.
//
// The ring is one more file in an epoll set. It is readable while the kernel has posted completions
// that were not taken. So the driver sleeps, wakes and waits for files as an epoll_driver does.
//
// A uring_request is part of the frame of the coroutine that waits for it. The buffer of the
// request may be part of the same frame. The kernel uses the request and the buffer until it has
// posted the completion. So the wait ends only after the completion was posted. A stop, a time-out
// or the destruction of the coroutine asks the kernel to end the request, and waits for the
// completion.
//
// A request has these phases. From its submission until it is over, its fields are written under
// the lock of the ring:
//
//   idle        the request is not submitted yet; cancel() prevents the submission
//   submitted   the kernel has the request, or the request is about to be submitted again
//   ends_early  the kernel has the request and was asked to end it; it is not submitted again
//   ended       the result is final, and next() has not returned the waiter yet
//   over        the result is final, and only the owner accesses the request
//
// The lock guards both queues of the ring. Each request is submitted at once. If the kernel accepts
// no request because it lacks memory, the thread retries with the lock held. Any thread may call
// take(), which stores each completion in its request. look() then handles the completed requests,
// and may submit requests. take() clears the ring, so the ring is no longer readable. If take() has
// left a result for next(), the caller of take() wakes the thread in wait().
//
// If a thread ends, the kernel ends the requests of that thread with ECANCELED. The driver submits
// such a request again. If the kernel is about to process a request A again, a request to end A
// fails with ENOENT although A is not over. The driver then asks the kernel once more to end A.
//
// ThreadSanitizer sees neither the kernel nor liburing, but needs no suppression, because all
// threads access the memory of the ring under the lock.

#if !defined(__has_include) || !__has_include(<liburing.h>)
#error "bide/io/uring_driver.hpp needs <liburing.h>, of Debian's package liburing-dev."
#endif

#include <bide/core/async_op.hpp>
#include <bide/io/driver.hpp>
#include <bide/io/epoll_driver.hpp>
#include <bide/task/detail/task_control.hpp>

#include <cerrno>
#include <initializer_list>
#include <span>

#include <liburing.h>
#include <sys/types.h>
#include <sys/uio.h>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

struct uring_request : basic_task_links<native_platform, uring_request> {
    enum class phase : unsigned char { idle, submitted, ends_early, ended, over };

    phase at = phase::idle;
    bool writes = false;
    bool is_abandoned = false; // end_now() waits for it, and its waiter is not woken
    bool is_taken = false;     // in the list of the requests that look() handles
    bool has_answer = false;   // `answer` is the kernel's answer
    bool asks_again = false;   // the kernel did not find the request: look() asks again for its end
    wait_status ended_by = wait_status::granted;
    int fd = -1;
    int answer = 0;
    int result = 0; // negative: the system's error
    std::uint32_t size = 0;
    void* data = nullptr; // the buffer; if `writes` is true, it does not change
    std::uint64_t offset = 0;
    void* waiter = nullptr;
    uring_request* next_taken = nullptr;
};

// The ring, and its requests.
template <class Platform> class uring_set : public epoll_set<Platform> {
    using base = epoll_set<Platform>;
    using node = basic_waiter<Platform>;
    using phase = uring_request::phase;

public:
    static constexpr const char* name = "uring_driver";

    struct event : base::event {
        node* completed; // the waiter of an ended request; nullptr: the event is of a file
    };

    // Throws: std::system_error if the system refuses, or is older than Linux 5.11.
    explicit uring_set(unsigned entries) {
        io_uring_params how{};
        int error = ::io_uring_queue_init_params(entries, &ring_, &how);
        if (error < 0) {
            BIDE_THROW(std::system_error(
                -error, std::system_category(),
                "bide: uring_driver: the system has refused io_uring (many containers forbid it)"));
        }
        constexpr unsigned needed =
            IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG; // the latter came with 5.11
        error = (how.features & needed) != needed ? ENOSYS : this->watch(ring_.ring_fd, ring_key);
        if (error != 0) {
            ::io_uring_queue_exit(&ring_);
            BIDE_THROW(std::system_error(error, std::system_category(),
                                         "bide: uring_driver needs Linux 5.11 or later"));
        }
    }

    ~uring_set() { ::io_uring_queue_exit(&ring_); }

    // ---- For the basic_readiness_driver

    bool fetch(deadline until) noexcept {
        return base::fetch(has_news() ? deadline::poll() : until);
    }
    bool has_next() const noexcept { return base::has_next() || has_news(); }

    bool next(event& found) noexcept {
        for (;;) {
            if (has_news()) {
                const guard section(locked_);
                look();
                uring_request* const r = ended_.first();
                if (r != nullptr) {
                    ended_.remove(*r);
                    r->at = phase::over;
                    found.completed = static_cast<node*>(r->waiter);
                }
                note_news();
                if (r != nullptr) {
                    return true;
                }
            }
            found.completed = nullptr;
            if (!base::next(found)) {
                return false;
            }
            if (found.key != ring_key) {
                return true;
            }
            const guard section(locked_);
            take();
            note_news();
        }
    }

    // ---- Requests

    // Calls refusal() under the lock. If refusal() returns `waiting`, submits the request. Returns
    // what refusal() has returned.
    template <class Refusal>
    wait_status begin(uring_request& r, node& w, Refusal refusal) noexcept {
        const guard section(locked_);
        const wait_status what = refusal();
        if (what == wait_status::waiting) {
            r.at = phase::submitted;
            r.waiter = &w;
            running_.push_back(r);
            submit_transfer(r);
        } else {
            w.settle(what);
        }
        return what;
    }

    // Asks the kernel to end the request. If the kernel then cancels the request, the outcome is
    // `why`. A request that is not submitted yet gets the outcome `why`, too.
    void end_early(uring_request& r, node& w, wait_status why) noexcept {
        const guard section(locked_);
        if (r.at == phase::idle) {
            w.forbid(why);
        } else if (r.at == phase::submitted) {
            ask_for_end(r, why);
        }
    }

    // Called when the coroutine is destroyed. Asks the kernel to end the request, and waits until
    // the request is over. Returns false if the request was never submitted, or if next() has
    // already returned the waiter. After this call, next() does not return the waiter, because the
    // coroutine must not be woken.
    bool end_now(uring_request& r) noexcept {
        const guard section(locked_);
        const bool ends = r.at != phase::idle && r.at != phase::over;
        r.is_abandoned = true;
        if (r.at == phase::ended) {
            ended_.remove(r);
            r.at = phase::over;
        } else if (r.at == phase::submitted) {
            ask_for_end(r, wait_status::stopped);
        }
        for (basic_backoff<Platform> again; r.at == phase::ends_early;) {
            take();
            look();
            if (r.at == phase::ends_early) {
                lock::release_plain(locked_);
                again();
                lock::acquire(locked_);
            }
        }
        if (note_news()) {
            this->wake();
        }
        return ends;
    }

    // Asks the kernel to end all requests for a file, or all requests if `fd` is negative.
    void end_all(int fd) noexcept {
        const guard section(locked_);
        for (uring_request* r = running_.first(); r != nullptr; r = r->next_in_list) {
            if (r->at == phase::submitted && (fd < 0 || r->fd == fd)) {
                ask_for_end(*r, wait_status::closed);
            }
        }
    }

    // Returns the number of requests that are not over.
    std::size_t size() noexcept {
        std::size_t n = 0;
        const guard section(locked_);
        for (const list* all : {&running_, &ended_}) {
            for (const uring_request* r = all->first(); r != nullptr; r = r->next_in_list) {
                ++n;
            }
        }
        return n;
    }

private:
    using word = std::uint32_t;
    using lock = lock_bits<Platform, word>;
    using guard = typename lock::guard;

    static constexpr std::uint64_t ring_key = base::wake_key - 1; // no file has this key
    static constexpr std::uint64_t ends_it = 1; // in the data of a request that ends another one

    using list = basic_task_list<native_platform, uring_request>;

    // Returns true if next() has a result to return.
    bool has_news() const noexcept {
        // Order: relaxed; a hint, and next() looks under the lock.
        return has_news_.load(std::memory_order_relaxed);
    }
    // Called under the lock, after a change. Returns has_news().
    bool note_news() noexcept {
        const bool some = taken_ != nullptr || ended_.first() != nullptr;
        // Order: relaxed; written under the lock.
        has_news_.store(some, std::memory_order_relaxed);
        return some;
    }

    // ---- Called with the lock

    // Returns a submission entry, which the caller fills and submits. Requires: no other entry
    // waits for its submission.
    io_uring_sqe& new_entry() noexcept { return *::io_uring_get_sqe(&ring_); }

    // Submits the entry. While the kernel accepts no request, retries.
    void submit(io_uring_sqe& entry, std::uint64_t data) noexcept {
        entry.user_data = data;
        basic_backoff<Platform> again;
        for (; ::io_uring_submit(&ring_) <= 0 && ::io_uring_sq_ready(&ring_) != 0; again()) {
            take(); // the kernel may want room for completions first
            if (note_news()) {
                this->wake();
            }
        }
    }

    // Submits a request for the first time or again.
    void submit_transfer(uring_request& r) noexcept {
        io_uring_sqe& entry = new_entry();
        if (r.writes) {
            ::io_uring_prep_write(&entry, r.fd, r.data, r.size, r.offset);
        } else {
            ::io_uring_prep_read(&entry, r.fd, r.data, r.size, r.offset);
        }
        submit(entry, reinterpret_cast<std::uintptr_t>(&r));
    }

    void ask_for_end(uring_request& r, wait_status why) noexcept {
        r.at = phase::ends_early;
        r.ended_by = why;
        submit_cancel(r);
    }
    void submit_cancel(uring_request& r) noexcept {
        const auto of = reinterpret_cast<std::uintptr_t>(&r);
        io_uring_sqe& entry = new_entry();
        ::io_uring_prep_rw(IORING_OP_ASYNC_CANCEL, &entry, -1, nullptr, 0, 0);
        entry.addr = of;
        submit(entry, of | ends_it);
    }

    // Stores the completions in their requests.
    void take() noexcept {
        for (io_uring_cqe* c = nullptr; ::io_uring_peek_cqe(&ring_, &c) == 0;) {
            const std::uint64_t data = c->user_data;
            const int answer = c->res;
            ::io_uring_cqe_seen(&ring_, c);
            auto* r =
                reinterpret_cast<uring_request*>(static_cast<std::uintptr_t>(data & ~ends_it));
            if ((data & ends_it) == 0) {
                r->has_answer = true;
                r->answer = answer;
            } else {
                uring_request* at = answer == -ENOENT ? running_.first() : nullptr;
                while (at != nullptr && at != r) {
                    at = at->next_in_list;
                }
                if (at == nullptr) {
                    continue; // the request is over
                }
                r->asks_again = true;
            }
            if (!std::exchange(r->is_taken, true)) {
                r->next_taken = std::exchange(taken_, r);
            }
        }
    }

    // Handles the completions that were taken.
    void look() noexcept {
        while (uring_request* const r = taken_) {
            taken_ = r->next_taken;
            r->is_taken = false;
            const bool asks_again = std::exchange(r->asks_again, false);
            if (!std::exchange(r->has_answer, false)) {
                if (asks_again && r->at == phase::ends_early) {
                    submit_cancel(*r);
                }
            } else if (!is_over(*r)) {
                submit_transfer(*r);
            } else {
                running_.remove(*r);
                r->at = r->is_abandoned ? phase::over : phase::ended;
                if (!r->is_abandoned) {
                    ended_.push_back(*r);
                }
            }
        }
    }

    // Handles the kernel's answer. Returns false if the request must be submitted again.
    static bool is_over(uring_request& r) noexcept {
        // The kernel has ended the request, because it was asked to, or because the thread that
        // submitted the request has ended.
        if (r.answer == -ECANCELED || r.answer == -EINTR) {
            return r.at == phase::ends_early;
        }
        r.result = r.answer;
        r.ended_by = wait_status::granted; // the transfer was made, or it failed
        return true;
    }

    typename Platform::template atomic<word> locked_{0};
    typename Platform::template atomic<bool> has_news_{false};
    // Under the lock:
    io_uring ring_{};
    list running_;
    list ended_;
    uring_request* taken_ = nullptr;
};

} // namespace detail

/// The number of bytes that were read or written.
struct uring_count {
    std::size_t bytes; ///< the number
    /// Returns the number.
    constexpr operator std::size_t() const noexcept { return bytes; }
};

/// The payload of a read or a write.
template <> struct wait_payload<result<uring_count, std::error_code>> {
    using type = detail::uring_request; ///< the payload
};

/// An epoll_driver that also reads and writes regular files. For epoll, a regular file is always
/// ready, even if a read would block. This driver reads such a file without blocking a worker. The
/// ring serves regular files only: for sockets and pipes, it is not clearly cheaper than epoll.
///
/// When the kernel completes an operation, it interrupts the thread that began the operation. So a
/// system call of that thread may fail with EINTR, as after a signal. The system calls of bide
/// handle this.
template <class Platform>
class basic_uring_driver final
    : public basic_readiness_driver<Platform, detail::uring_set<Platform>> {
    using base = basic_readiness_driver<Platform, detail::uring_set<Platform>>;
    using request = detail::uring_request;
    using operation = basic_async_op<result<uring_count, std::error_code>, Platform>;

public:
    /// Makes the ring. `entries` is the size of its submission queue. That size does not limit the
    /// number of operations: each request is submitted at once, and the kernel keeps completions
    /// that do not fit in the completion queue.
    /// Throws: std::system_error if the system refuses (EPERM or ENOSYS: a container or an
    /// administrator forbids io_uring), has no more descriptors or memory, or is older than Linux
    /// 5.11 (ENOSYS).
    explicit basic_uring_driver(unsigned entries = 64) : base(entries) {}
    /// Closes the ring.
    /// Requires: no coroutine waits for a file, no thread is in wait() or wake(), no attachment
    /// exists.
    ~basic_uring_driver() override;

    /// Ends all waits and operations for the file with errc::closed. An operation that the kernel
    /// has begun ends when the kernel confirms the end. If a coroutine may wait for the file, call
    /// this function before the file is closed. The kernel keeps the file open until the operations
    /// have ended.
    /// Complexity: linear in the number of operations of the driver.
    void forget(int fd) noexcept {
        base::forget(fd);
        if (fd >= 0) {
            this->set_.end_all(fd);
        }
    }

    // ---- Operations. Each operation returns its error and throws nothing. Each accepts
    // with_timeout() and with_stop(). If a time-out, a stop or a cancellation ends an operation,
    // the operation returns errc::timeout or errc::stopped, and no byte was transferred.
    //
    // The kernel uses the buffer until the operation has ended. So a time-out, a stop or a
    // cancellation asks the kernel to end the operation. The wait is over when the kernel confirms
    // the end, which may be after the device has answered. If the kernel has made the transfer, the
    // operation returns its result. If the coroutine is destroyed meanwhile, the destructor blocks
    // until the kernel has ended the operation.
    //
    // If no scheduler or run_loop runs the driver, the operation returns errc::no_driver. If the
    // file is in non-blocking mode, an operation that would wait returns
    // resource_unavailable_try_again. For sockets and pipes, use io_socket.hpp.

    /// Reads from a file at an offset in bytes. The current position of the file stays the same.
    /// Returns: the number of bytes, which may be fewer than into.size(); 0 at the end of the file.
    /// Requires: `into` exists until the operation is over.
    operation async_read_at(int fd, std::span<std::byte> into, std::uint64_t offset) noexcept {
        return transfer(false, fd, into.data(), into.size(), offset);
    }
    /// Writes to a file at an offset in bytes. The current position of the file stays the same.
    /// Returns: the number of bytes, which may be fewer than from.size().
    /// Requires: `from` exists until the operation is over.
    operation async_write_at(int fd, std::span<const std::byte> from,
                             std::uint64_t offset) noexcept {
        return transfer(true, fd, const_cast<std::byte*>(from.data()), from.size(), offset);
    }

private:
    using node = basic_waiter<Platform>;

    // The functions of an operation (core/wait_ops.hpp).
    struct transferring {
        static constexpr bool stands_alone = true;
        static constexpr const char* waited_for = "a file";

        basic_uring_driver& of;

        // Tries the operation without the ring. If the attempt would block, or if the file does not
        // support such an attempt, the ring does the operation.
        wait_status try_now(request& r) const noexcept {
            const int before = errno;
            const iovec all{r.data, r.size};
            const auto at = static_cast<off_t>(r.offset);
            ssize_t n = 0;
            if (r.size != 0) {
                n = r.writes ? ::pwritev2(r.fd, &all, 1, at, RWF_NOWAIT)
                             : ::preadv2(r.fd, &all, 1, at, RWF_NOWAIT);
            }
            const int error = errno;
            errno = before;
            if (n < 0 && error != EBADF) {
                return wait_status::waiting; // the ring finds the error
            }
            r.at = request::phase::over;
            r.result = n < 0 ? -error : static_cast<int>(n);
            return wait_status::granted;
        }

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
            return false; // the completion gives the outcome
        }
        result<uring_count, std::error_code> collect(wait_status what, request& r) const noexcept {
            const wait_status how = what == wait_status::granted ? r.ended_by : what;
            if (how != wait_status::granted) {
                return unexpected{make_error_code(errc_of(how))};
            }
            if (r.result < 0) {
                return unexpected{io_payload::code_of(-r.result)};
            }
            return uring_count{static_cast<std::size_t>(r.result)};
        }
    };

    operation transfer(bool writes, int fd, void* data, std::size_t size,
                       std::uint64_t offset) noexcept {
        constexpr std::size_t most = 0x7fff'f000; // the limit of read(2)
        request r{};
        r.writes = writes;
        r.fd = fd;
        r.data = data;
        r.size = static_cast<std::uint32_t>(size < most ? size : most);
        r.offset = offset;
        return {transferring{*this}, r};
    }

    void detached() noexcept override {
        base::detached();
        this->set_.end_all(-1);
        basic_backoff<Platform> again;
        for (; this->set_.size() != 0; again()) {
            this->set_.fetch(deadline::poll());
            typename detail::uring_set<Platform>::event found{};
            basic_wake_list<Platform> ended;
            while (this->set_.next(found)) {
                if (found.completed != nullptr) {
                    ended.push(*found.completed);
                }
            }
            ended.publish(wait_status::granted);
        }
    }
};

/// The io_uring driver that programs use.
using uring_driver = basic_uring_driver<>;

template <class Platform> basic_uring_driver<Platform>::~basic_uring_driver() {
    if (const std::size_t waiting = this->set_.size(); waiting != 0) {
        detail::fatal_destroyed("uring_driver", this, waiting);
    }
}

}} // namespace bide::BIDE_ABI

#endif
