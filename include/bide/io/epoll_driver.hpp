// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_IO_EPOLL_DRIVER_HPP
#define BIDE_IO_EPOLL_DRIVER_HPP

// Lets coroutines wait for files, by Linux's epoll(7), with an eventfd(2) that ends the wait of the one
// thread that fetches events. Empty on other systems. What is done for each file is in
// detail/readiness_driver.hpp. One word decides about the wake:
//
//   awake      no thread sleeps, or the thread is about to return
//   waiting    the fetching thread sleeps or is about to
//   woken      wake() was called, and no fetch() has ended by it yet
//
// The thread that changes `waiting` to `woken` writes to the eventfd. The eventfd is edge-triggered
// and never read: its only purpose is to end a system call. An edge that comes late ends one call
// early.

#include <bide/core/config.hpp>

#if defined(__linux__)

#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/detail/integer_cast.hpp>
#include <bide/core/platform.hpp>
#include <bide/fwd.hpp>
#include <bide/io/detail/readiness_driver.hpp>
#include <bide/io/driver.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <ctime>
#include <system_error>
#include <utility>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class epoll_set {
public:
    // Makes the files. Throws: std::system_error.
    epoll_set();
    epoll_set(const epoll_set&) = delete;
    epoll_set& operator=(const epoll_set&) = delete;

    static constexpr const char* name = "epoll_driver";

    // What the kernel found, for the request with that key.
    struct event {
        std::uint64_t key;
        std::uint32_t events;
    };

    // Asks the kernel for one event of `events`, which will carry `key`. `registered`: the file is
    // believed to be in the set; the function corrects it. Replaces the request before, which had the
    // key `old`. Returns 0 or the system's error number.
    int request(int fd, bool& registered, std::uint32_t events, std::uint64_t key,
                std::uint64_t old) noexcept;

    // The event of a request has come. The file stays in the set.
    static void has_fired(bool&) noexcept {}
    // A request is of no use any more. Its event will be ignored.
    void withdraw(bool&, std::uint64_t) noexcept {}

    void remove(int fd, bool& registered, std::uint64_t) noexcept {
        if (!std::exchange(registered, false)) {
            return;
        }
        const int saved = errno;
        epoll_event none{};
        ::epoll_ctl(set_.fd, EPOLL_CTL_DEL, fd, &none);
        errno = saved; // the file may have been closed
    }

    // Fetches events. Sleeps while there are none, until the deadline or earlier. Returns true if
    // wake() was called since the last fetch(). One thread at a time calls this and the next two.
    // Requires: !has_next().
    bool fetch(deadline until) noexcept;

    // Returns whether events were fetched and not taken.
    bool has_next() const noexcept { return next_ != count_; }
    // Takes an event. Returns false if there is none.
    bool next(event& told) noexcept;

    // Ends the fetch() that is going on, or makes the next one return at once. Any thread.
    void wake() noexcept {
        // Order: release [epoll.wake]; the woken thread sees what was done before.
        if (sleeper_.exchange(sleeper::woken, std::memory_order_release) == sleeper::waiting) {
            ::eventfd_write(wake_event_.fd, 1);
        }
    }

protected:
    // The data of the eventfd's events.
    static constexpr std::uint64_t wake_mark = ~std::uint64_t{0};

    // Adds a file whose events carry `key`. Returns 0 or the system's error number.
    int watch(int fd, std::uint64_t key, std::uint32_t events = EPOLLIN) noexcept {
        epoll_event wanted{};
        wanted.events = events;
        wanted.data.u64 = key;
        return ::epoll_ctl(set_.fd, EPOLL_CTL_ADD, fd, &wanted) == 0 ? 0 : errno;
    }

private:
    enum class sleeper : std::uint32_t { awake, waiting, woken };

    // A file descriptor that the destructor closes.
    struct owned_fd {
        explicit owned_fd(int opened) : fd(opened) {
            if (fd < 0) {
                fail();
            }
        }
        owned_fd(const owned_fd&) = delete;
        owned_fd& operator=(const owned_fd&) = delete;
        ~owned_fd() { ::close(fd); }
        const int fd;
    };

    [[noreturn]] static void fail() {
        BIDE_THROW(std::system_error(errno, std::system_category(), "bide: epoll_driver"));
    }

    static constexpr unsigned most = driver::max_completions;
    int wait_for_events(deadline until) noexcept;

    const owned_fd set_;
    const owned_fd wake_event_;
    typename Platform::template atomic<sleeper> sleeper_{sleeper::awake};
    // Only the fetching thread uses these fields.
    bool has_pwait2_ = true;
    unsigned next_ = 0;
    unsigned count_ = 0;
    epoll_event events_[most];
};

template <class Platform>
epoll_set<Platform>::epoll_set()
    : set_(::epoll_create1(EPOLL_CLOEXEC)), wake_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (watch(wake_event_.fd, wake_mark, EPOLLIN | EPOLLET) != 0) {
        fail();
    }
}

template <class Platform>
int epoll_set<Platform>::request(int fd, bool& registered, std::uint32_t events, std::uint64_t key,
                                 std::uint64_t) noexcept {
    epoll_event requested{};
    requested.events = events | EPOLLONESHOT;
    requested.data.u64 = key;
    for (bool again = true;; again = false) {
        if (::epoll_ctl(set_.fd, registered ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &requested) == 0) {
            registered = true;
            return 0;
        }
        const int error = errno;
        if (!again || error != (registered ? ENOENT : EEXIST)) {
            return error;
        }
        registered = !registered;
    }
}

template <class Platform> bool epoll_set<Platform>::fetch(deadline until) noexcept {
    if (!until.is_poll()) {
        sleeper seen = sleeper::awake;
        // Order: relaxed; it publishes nothing. Failure: wake() was called.
        if (!sleeper_.compare_exchange_strong(seen, sleeper::waiting, std::memory_order_relaxed,
                                              std::memory_order_relaxed)) {
            until = deadline::poll();
        }
    }
    const int n = wait_for_events(until);
    if (n < 0 && errno != EINTR) {
        fatal("epoll_driver", this, "cannot wait: its files were closed");
    }
    next_ = 0;
    count_ = n < 0 ? 0 : static_cast<unsigned>(n);
    // Order: acquire [epoll.wake]; what was done before wake().
    return sleeper_.exchange(sleeper::awake, std::memory_order_acquire) == sleeper::woken;
}

template <class Platform> bool epoll_set<Platform>::next(event& told) noexcept {
    while (next_ != count_) {
        const epoll_event& found = events_[next_++];
        if (found.data.u64 != wake_mark) {
            told = {found.data.u64, found.events};
            return true;
        }
    }
    return false;
}

// The system call. Without epoll_pwait2() (Linux 5.11, glibc 2.35) the wait is rounded up to a
// millisecond.
template <class Platform> int epoll_set<Platform>::wait_for_events(deadline until) noexcept {
    const int room = static_cast<int>(most);
    if (until.is_poll() || until.is_never()) {
        return ::epoll_wait(set_.fd, events_, room, until.is_poll() ? 0 : -1);
    }
    const std::int64_t rest = std::max<std::int64_t>(until.next_check_ns() - Platform::now(), 0);
#if defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 35)
    if (has_pwait2_) {
        timespec precise{};
        precise.tv_sec = integer_cast<std::time_t>(rest / 1'000'000'000);
        precise.tv_nsec = integer_cast<long>(rest % 1'000'000'000);
        const int n = ::epoll_pwait2(set_.fd, events_, room, &precise, nullptr);
        if (n >= 0 || errno == EINTR) {
            return n;
        }
        has_pwait2_ = false; // an older kernel or an emulator
    }
#endif
#endif
    const std::int64_t ms = rest / 1'000'000 + (rest % 1'000'000 != 0 ? 1 : 0);
    return ::epoll_wait(set_.fd, events_, room,
                        static_cast<int>(std::min<std::int64_t>(ms, INT_MAX)));
}

} // namespace detail

/// A driver for files, sockets and pipes.
template <class Platform>
class basic_epoll_driver final
    : public detail::readiness_driver<Platform, detail::epoll_set<Platform>> {
    using base = detail::readiness_driver<Platform, detail::epoll_set<Platform>>;

public:
    /// Makes the epoll set and the eventfd.
    /// Throws: std::system_error if the system has no more descriptors or memory.
    basic_epoll_driver() {}
    /// Closes both.
    /// Requires: no coroutine waits for a file, no wait() or wake() is going on, and there is no
    /// attachment.
    ~basic_epoll_driver() override = default;

    /// Waits until a read of the file would not block: there is data, the file is at its end, or it
    /// has an error or a hang-up. Does not wait if a read would not block now, as for every regular
    /// file. Several coroutines may wait for the same file: an event lets all of them through. One
    /// of them may have read the data before another reads, so the file should be non-blocking.
    /// Call forget() before the file is closed.
    /// Throws: std::system_error with the system's error if `fd` is no open file or if there is no
    /// memory to wait; with errc::no_driver if it would wait and no scheduler and no run_loop runs
    /// the driver. closed_error after forget() or the scheduler's shutdown. Otherwise as other
    /// waits. as_result(), with_timeout() and with_stop() return the error as a std::error_code.
    using base::async_wait_readable;

    /// Waits until a write to the file would not block; otherwise as async_wait_readable().
    using base::async_wait_writable;

    /// Ends all waits for the file with errc::closed. Must be called before the file is closed, if
    /// a coroutine may wait for it. A coroutine may wait for the descriptor again after that.
    using base::forget;

    /// See driver. With Linux 5.11 or later the deadline is exact to the nanosecond, otherwise it
    /// is rounded up to a millisecond. Never returns early.
    using base::wait;

    /// See driver. Makes a system call only if a thread sleeps in wait().
    using base::wake;
};

/// The driver of a program.
using epoll_driver = basic_epoll_driver<>;

} // namespace bide::inline BIDE_ABI

#endif

#endif
