#ifndef BIDE_SCHED_DETAIL_EPOLL_SET_HPP
#define BIDE_SCHED_DETAIL_EPOLL_SET_HPP

// Linux's epoll(7), with an eventfd(2) to end the wait of the one thread that looks. Empty
// elsewhere. The wake is decided by one word:
//
//   awake      nobody sleeps, or is about to return
//   waiting    the thread that looks sleeps, or is about to
//   woken      wake() was called, and no look() has ended by it yet
//
// Who changes `waiting` to `woken` writes to the eventfd. That is watched for edges and never read:
// all it does is to end a system call. An edge that comes late ends one for nothing.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>

#if defined(__linux__)

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <ctime>
#include <system_error>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class epoll_set {
public:
    // Throws: std::system_error.
    epoll_set();
    epoll_set(const epoll_set&) = delete;
    epoll_set& operator=(const epoll_set&) = delete;

    // The data of an event that is no file's.
    static constexpr std::uint64_t wake_mark = ~std::uint64_t{0};

    // Asks for one event of those, which will carry `data`. `known`: the file is believed to be in
    // the set; set right here. Returns the system's error, or 0.
    int ask(int fd, bool& known, std::uint32_t events, std::uint64_t data) noexcept;

    void remove(int fd) noexcept {
        const int saved = errno;
        epoll_event none{};
        ::epoll_ctl(set_.fd, EPOLL_CTL_DEL, fd, &none);
        errno = saved; // it may have been closed
    }

    // Fetches events, and sleeps while there are none, until the deadline or earlier. True: wake()
    // was called since the last look. One thread at a time.
    bool look(deadline until, epoll_event* events, unsigned most, unsigned& count) noexcept;

    // Ends the look that is going on, or makes the next one a short one.
    void wake() noexcept {
        // Order: release [D1]; what was done before is seen by whom it wakes.
        if (sleeper_.exchange(sleeper::woken, std::memory_order_release) == sleeper::waiting) {
            ::eventfd_write(bell_.fd, 1);
        }
    }

private:
    enum class sleeper : std::uint32_t { awake, waiting, woken };

    // A file of our own.
    struct owned {
        explicit owned(int opened) : fd(opened) {
            if (fd < 0) {
                fail();
            }
        }
        owned(const owned&) = delete;
        owned& operator=(const owned&) = delete;
        ~owned() { ::close(fd); }
        const int fd;
    };

    [[noreturn]] static void fail() {
        BIDE_THROW(std::system_error(errno, std::system_category(), "bide: epoll_driver"));
    }

    int sleep(deadline until, epoll_event* events, int most) noexcept;

    const owned set_;
    const owned bell_;
    typename Platform::template atomic<sleeper> sleeper_{sleeper::awake};
    bool to_the_nanosecond_ = true; // of the thread that looks
};

template <class Platform>
epoll_set<Platform>::epoll_set()
    : set_(::epoll_create1(EPOLL_CLOEXEC)), bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    epoll_event rung{};
    rung.events = EPOLLIN | EPOLLET;
    rung.data.u64 = wake_mark;
    if (::epoll_ctl(set_.fd, EPOLL_CTL_ADD, bell_.fd, &rung) != 0) {
        fail();
    }
}

template <class Platform>
int epoll_set<Platform>::ask(int fd, bool& known, std::uint32_t events,
                             std::uint64_t data) noexcept {
    epoll_event asked{};
    asked.events = events | EPOLLONESHOT;
    asked.data.u64 = data;
    for (bool again = true;; again = false) {
        if (::epoll_ctl(set_.fd, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &asked) == 0) {
            known = true;
            return 0;
        }
        const int error = errno;
        if (!again || error != (known ? ENOENT : EEXIST)) {
            return error;
        }
        known = !known;
    }
}

template <class Platform>
bool epoll_set<Platform>::look(deadline until, epoll_event* events, unsigned most,
                               unsigned& count) noexcept {
    if (!until.is_poll()) {
        sleeper seen = sleeper::awake;
        // Order: relaxed; it asks to be woken and publishes nothing. Failure: woken already.
        if (!sleeper_.compare_exchange_strong(seen, sleeper::waiting, std::memory_order_relaxed,
                                              std::memory_order_relaxed)) {
            until = deadline::poll();
        }
    }
    const int n = sleep(until, events, static_cast<int>(most));
    if (n < 0 && errno != EINTR) {
        fatal("epoll_driver", this, "cannot wait: its files were closed");
    }
    count = n < 0 ? 0 : static_cast<unsigned>(n);
    // Order: acquire [D1]; what was done before wake().
    return sleeper_.exchange(sleeper::awake, std::memory_order_acquire) == sleeper::woken;
}

// The system call.
template <class Platform>
int epoll_set<Platform>::sleep(deadline until, epoll_event* events, int most) noexcept {
    if (until.is_poll() || until.is_never()) {
        return ::epoll_wait(set_.fd, events, most, until.is_poll() ? 0 : -1);
    }
    const std::int64_t rest = std::max<std::int64_t>(until.next_check_ns() - Platform::now(), 0);
#if defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 35)
    if (to_the_nanosecond_) {
        timespec precise{};
        precise.tv_sec = static_cast<std::time_t>(rest / 1'000'000'000);
        precise.tv_nsec = static_cast<long>(rest % 1'000'000'000);
        const int n = ::epoll_pwait2(set_.fd, events, most, &precise, nullptr);
        if (n >= 0 || errno == EINTR) {
            return n;
        }
        to_the_nanosecond_ = false; // an older kernel, or an emulator
    }
#endif
#endif
    const std::int64_t ms = rest / 1'000'000 + (rest % 1'000'000 != 0 ? 1 : 0);
    return ::epoll_wait(set_.fd, events, most,
                        static_cast<int>(std::min<std::int64_t>(ms, INT_MAX)));
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif

#endif
