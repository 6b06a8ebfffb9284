// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_IO_DETAIL_URING_RING_HPP
#define BIDE_IO_DETAIL_URING_RING_HPP

// A ring of Linux's io_uring(7), through liburing. The kernel is the other side of both queues of the
// ring; liburing has the atomics for that. Among the threads one lock guards the ring:
//
//   submission queue   written and submitted under the lock, each request at once. So the queue is full
//                      only if the kernel takes no requests, for want of memory. Then the thread waits
//                      for it, without the lock
//   completion queue   taken under the lock, into `saved_`, by any thread. But while a thread sleeps in
//                      the kernel, only by that thread: otherwise a completion that the kernel has
//                      posted before the sleep could be gone when the sleep begins, and not end it
//   saved_             what was taken and not looked at. It has room for each request that is under way,
//                      so taking allocates nothing
//
// ThreadSanitizer sees neither the kernel nor liburing. It needs no suppression, because the threads touch
// the memory of the ring under the lock only.
//
// One word decides about the wake, as in epoll_driver.hpp:
//
//   awake      no thread sleeps, or the thread is about to return
//   waiting    the fetching thread sleeps or is about to
//   woken      wake() was called, and no fetch() has ended by it yet
//
// The thread that changes `waiting` to `woken` submits a request that does nothing. Its completion ends
// the sleep. Completions that come from elsewhere end it, too.

#include <bide/core/backoff.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/lock_bits.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <system_error>
#include <utility>

#include <liburing.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace bide::inline BIDE_ABI {
namespace detail {

// What the kernel says about a request.
struct uring_completion {
    std::uint64_t data; // of the request
    int result;         // negative: the system's error
};

template <class Platform> class uring_ring {
public:
    // Throws: std::system_error if the system refuses, or is older than Linux 5.11.
    explicit uring_ring(unsigned entries);
    uring_ring(const uring_ring&) = delete;
    uring_ring& operator=(const uring_ring&) = delete;
    ~uring_ring() { ::io_uring_queue_exit(&ring_); }

    void lock() noexcept { lock_word::acquire(locked_); }
    void unlock() noexcept { lock_word::release_plain(locked_); }

    // The data of requests whose completions are of no interest.
    static constexpr std::uint64_t ignored = ~std::uint64_t{0};

    // ---- Under the lock

    // Makes room for one more completion. Returns false if there is no memory.
    bool expect() noexcept;

    // Returns a request to fill in, which submit() gives to the kernel. If the queue is full, both
    // release the lock and acquire it again, until it is not.
    io_uring_sqe& prepare() noexcept;
    void submit(io_uring_sqe& request, std::uint64_t data) noexcept;

    // Counts how often prepare() and submit() have released the lock.
    unsigned releases() const noexcept { return releases_; }

    // Prepares a request that ends another one early.
    static void prepare_cancel(io_uring_sqe& request, std::uint64_t of) noexcept {
        ::io_uring_prep_rw(IORING_OP_ASYNC_CANCEL, &request, -1, nullptr, 0, 0);
        request.addr = of;
    }

    // Takes the completions, unless a thread sleeps.
    void take() noexcept {
        if (!asleep_) {
            take_all();
        }
    }
    // Removes the oldest completion that was taken. Returns false if there is none.
    bool pop(uring_completion& oldest) noexcept;
    // Removes the completion of one request.
    bool pop(std::uint64_t data, int& result) noexcept;

    // ---- Without the lock

    bool has_saved() const noexcept {
        // Order: relaxed; a hint, and next() looks under the lock.
        return size_.load(std::memory_order_relaxed) != 0;
    }

    // Takes completions. Sleeps while there are none, until the deadline or earlier. Returns true if
    // wake() was called since the last fetch(). One thread at a time.
    bool fetch(deadline until) noexcept;

    // Ends the fetch() that is going on, or makes the next one return at once. Any thread.
    void wake() noexcept {
        // Order: release [uring.wake]; the woken thread sees what was done before.
        if (sleeper_.exchange(sleeper::woken, std::memory_order_release) == sleeper::waiting) {
            lock();
            io_uring_sqe& nothing = prepare();
            ::io_uring_prep_nop(&nothing);
            submit(nothing, ignored);
            unlock();
        }
    }

private:
    enum class sleeper : std::uint32_t { awake, waiting, woken };
    using word = std::uint32_t;
    using lock_word = lock_bits<Platform, word>;

    bool flush() noexcept;
    void take_all() noexcept;
    void enter(deadline until, bool is_flushed) noexcept;
    void wait_unlocked(basic_backoff<Platform>& again) noexcept {
        ++releases_;
        unlock();
        again();
        lock();
    }
    uring_completion& saved(std::size_t i) noexcept {
        return saved_[(first_ + i) & (capacity_ - 1)];
    }

    typename Platform::template atomic<word> locked_{0};
    typename Platform::template atomic<sleeper> sleeper_{sleeper::awake};
    // Under the lock:
    io_uring ring_{};
    bool asleep_ = false;
    unsigned releases_ = 0;
    std::unique_ptr<uring_completion[]> saved_;
    std::size_t capacity_ = 0; // a power of two
    std::size_t first_ = 0;
    typename Platform::template atomic<std::size_t> size_{0}; // written under the lock
    std::size_t expected_ =
        0; // requests that are not ignored, and whose completions were not popped
};

template <class Platform> uring_ring<Platform>::uring_ring(unsigned entries) {
    io_uring_params how{};
    if (const int error = ::io_uring_queue_init_params(entries, &ring_, &how); error < 0) {
        BIDE_THROW(std::system_error(
            -error, std::system_category(),
            "bide: uring_driver: the system has refused io_uring (many containers forbid it)"));
    }
    constexpr unsigned needed = IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG;
    if ((how.features & needed) != needed) {
        ::io_uring_queue_exit(&ring_);
        BIDE_THROW(std::system_error(ENOSYS, std::system_category(),
                                     "bide: uring_driver needs Linux 5.11 or later"));
    }
}

template <class Platform> bool uring_ring<Platform>::expect() noexcept {
    if (expected_ == capacity_) {
        const std::size_t larger = std::max<std::size_t>(2 * capacity_, 64);
        std::unique_ptr<uring_completion[]> made(new (std::nothrow) uring_completion[larger]);
        if (made == nullptr) {
            return false;
        }
        // Order: relaxed, as all of size_; the lock orders it.
        const std::size_t size = size_.load(std::memory_order_relaxed);
        for (std::size_t i = 0; i < size; ++i) {
            made[i] = saved(i);
        }
        saved_ = std::move(made);
        capacity_ = larger;
        first_ = 0;
    }
    ++expected_;
    return true;
}

template <class Platform> io_uring_sqe& uring_ring<Platform>::prepare() noexcept {
    for (basic_backoff<Platform> again;;) {
        if (io_uring_sqe* const room = ::io_uring_get_sqe(&ring_)) {
            return *room;
        }
        if (!flush()) {
            take(); // the kernel may want room for completions first
            wait_unlocked(again);
        }
    }
}

// If the kernel takes no request now, fetch() tries again. A thread that sleeps there does not.
template <class Platform>
void uring_ring<Platform>::submit(io_uring_sqe& request, std::uint64_t data) noexcept {
    request.user_data = data;
    for (basic_backoff<Platform> again; !flush() && asleep_;) {
        wait_unlocked(again);
    }
}

// Gives the kernel all requests. Returns false if some are left.
template <class Platform> bool uring_ring<Platform>::flush() noexcept {
    while (::io_uring_sq_ready(&ring_) != 0) {
        if (const int n = ::io_uring_submit(&ring_); n <= 0 && n != -EINTR) {
            return false;
        }
    }
    return true;
}

template <class Platform> void uring_ring<Platform>::take_all() noexcept {
    constexpr unsigned most = 32;
    io_uring_cqe* found[most];
    std::size_t size = size_.load(std::memory_order_relaxed); // Order: as in expect().
    while (const unsigned n = ::io_uring_peek_batch_cqe(&ring_, found, most)) {
        for (unsigned i = 0; i < n; ++i) {
            if (found[i]->user_data != ignored) {
                saved(size++) = {found[i]->user_data, found[i]->res};
            }
        }
        ::io_uring_cq_advance(&ring_, n);
    }
    size_.store(size, std::memory_order_relaxed); // Order: as in expect().
}

template <class Platform> bool uring_ring<Platform>::pop(uring_completion& oldest) noexcept {
    const std::size_t size = size_.load(std::memory_order_relaxed); // Order: as in expect().
    if (size == 0) {
        return false;
    }
    oldest = saved(0);
    ++first_;
    --expected_;
    size_.store(size - 1, std::memory_order_relaxed); // Order: as in expect().
    return true;
}

template <class Platform> bool uring_ring<Platform>::pop(std::uint64_t data, int& result) noexcept {
    const std::size_t size = size_.load(std::memory_order_relaxed); // Order: as in expect().
    for (std::size_t i = 0; i < size; ++i) {
        if (saved(i).data == data) {
            result = saved(i).result;
            for (; i + 1 < size; ++i) {
                saved(i) = saved(i + 1);
            }
            --expected_;
            size_.store(size - 1, std::memory_order_relaxed); // Order: as in expect().
            return true;
        }
    }
    return false;
}

template <class Platform> bool uring_ring<Platform>::fetch(deadline until) noexcept {
    lock();
    const bool is_flushed = flush();
    take();
    if (!until.is_poll() && !has_saved()) {
        sleeper seen = sleeper::awake;
        // Order: relaxed; it publishes nothing. Failure: wake() was called.
        if (sleeper_.compare_exchange_strong(seen, sleeper::waiting, std::memory_order_relaxed,
                                             std::memory_order_relaxed)) {
            asleep_ = true;
            unlock();
            enter(until, is_flushed);
            lock();
            asleep_ = false;
            take();
        }
    }
    unlock();
    // Order: acquire [uring.wake]; what was done before wake().
    return sleeper_.exchange(sleeper::awake, std::memory_order_acquire) == sleeper::woken;
}

// The system call. It uses no memory of the ring, so it needs no lock. If the kernel has not taken all
// requests, it sleeps for a millisecond at most.
template <class Platform>
void uring_ring<Platform>::enter(deadline until, bool is_flushed) noexcept {
    constexpr std::int64_t retry_ns = 1'000'000;
    __kernel_timespec rest{};
    io_uring_getevents_arg how{};
    if (!until.is_never() || !is_flushed) {
        std::int64_t ns = is_flushed ? until.next_check_ns() - Platform::now() : retry_ns;
        ns = std::max<std::int64_t>(ns, 0);
        rest.tv_sec = ns / 1'000'000'000;
        rest.tv_nsec = ns % 1'000'000'000;
        how.ts = reinterpret_cast<std::uintptr_t>(&rest);
    }
    const int saved_errno = errno;
    if (::syscall(__NR_io_uring_enter, ring_.ring_fd, 0, 1,
                  IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &how, sizeof how) < 0 &&
        (errno == EBADF || errno == EOPNOTSUPP)) {
        fatal("uring_driver", this, "cannot wait: its file was closed");
    }
    errno = saved_errno;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
