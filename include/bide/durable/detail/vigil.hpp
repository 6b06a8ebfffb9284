#ifndef BIDE_DURABLE_DETAIL_VIGIL_HPP
#define BIDE_DURABLE_DETAIL_VIGIL_HPP

// One thread of the process that keeps an eye on leases and on files: it tells those whose time has
// come, on the clock that goes on while the machine sleeps, and, on Linux, those whose file has
// become readable. It calls no store, so nothing that hangs there delays it. Started on first use,
// never ended; a child of fork() starts its own, and what the parent watched is not told there.
//
// Whom it tells it holds by a weak reference, taken for the call. Who is removed meanwhile may be
// told once more.
//
// The thread sleeps until the earliest time that it knew of, and is woken for an earlier one only: a
// time that was cancelled lets it look once for nothing, which costs less than to wake it each time.

#include <bide/core/config.hpp>
#include <bide/core/detail/os_thread.hpp>
#include <bide/core/detail/process_wide.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/watched.hpp>
#include <bide/durable/process.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <system_error>
#include <utility>

#include <unistd.h>
#if defined(__linux__)
#include <cerrno>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#endif

namespace bide::inline BIDE_ABI {
namespace detail {

class vigil {
public:
    // This process's. It is never destroyed.
    // Throws: std::system_error, std::bad_alloc.
    static vigil& here();

    // Tells it at that time, in milliseconds of boottime_ms(); once. It has one such time.
    // Throws: std::system_error where its thread cannot be started, std::bad_alloc.
    void alarm(const std::shared_ptr<watched>& who, std::int64_t at_ms);
    void cancel(const watched& who) noexcept;

#if defined(__linux__)
    static constexpr bool sees_files = true;
#else
    static constexpr bool sees_files = false; // the three below do nothing
#endif
    // Tells it when the file is readable, once until rearm(). The file stays open until remove().
    // False: it cannot be watched. Throws: as alarm().
    bool add(int fd, const std::shared_ptr<watched>& who);
    void rearm(int fd) noexcept;
    void remove(int fd) noexcept;

private:
    struct time_entry {
        std::int64_t at_ms;
        std::weak_ptr<watched> who;
    };

    // Of a fixed size, as its thread must not be without memory: what does not fit comes next time.
    static constexpr std::size_t most_told = 16;
    struct told_list {
        std::array<std::weak_ptr<watched>, most_told> who;
        std::size_t size = 0;
    };

    static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

    vigil();

    // With the lock: its thread runs. Who comes next tries again where it could not be started.
    void start();
    static void enter(void* self) noexcept { static_cast<vigil*>(self)->run(); }
    [[noreturn]] void run() noexcept;

    // Collects whose time has come; the next one's.
    std::int64_t collect_due(told_list& into);

    // With the lock: the thread is to wake at that time, at the latest; and, where it sleeps
    // already: ring().
    void arm(std::int64_t at_ms) noexcept;
    void ring() noexcept;

    // Sleeps until armed_ms_, or a file; collects whose.
    void sleep(told_list& into);

    mutex lock_;
    bool runs_ = false;                          // under lock_
    std::map<const watched*, time_entry> times_; // under lock_
    std::int64_t armed_ms_ = never;              // under lock_: when the thread wakes
#if defined(__linux__)
    int timer_ = -1;
    int files_ = -1;                              // an epoll set; the timer is in it, as itself
    std::map<int, std::weak_ptr<watched>> whose_; // under lock_: the others
#else
    semaphore bell_{0};
#endif
};

inline vigil& vigil::here() {
    vigil* const one = process_wide<vigil, native_platform>::get(+[] { return new vigil; });
    if (one == nullptr) {
        throw_error(std::make_error_code(std::errc::not_enough_memory));
    }
    return *one;
}

inline void vigil::start() {
    if (!runs_) {
        if (const std::error_code error = os_thread::start_detached(&enter, this)) {
            throw_error(error);
        }
        runs_ = true;
    }
}

inline void vigil::alarm(const std::shared_ptr<watched>& who, std::int64_t at_ms) {
    const std::lock_guard held(lock_);
    start();
    times_[who.get()] = time_entry{at_ms, who};
    if (at_ms < armed_ms_) {
        arm(at_ms);
        ring();
    }
}

inline void vigil::cancel(const watched& who) noexcept {
    const std::lock_guard held(lock_);
    times_.erase(&who);
}

inline std::int64_t vigil::collect_due(told_list& into) {
    const std::int64_t now = durable::boottime_ms();
    std::int64_t next_ms = never;
    for (auto entry = times_.begin(); entry != times_.end();) {
        if (entry->second.at_ms <= now && into.size < most_told) {
            into.who[into.size++] = std::move(entry->second.who);
            entry = times_.erase(entry);
        } else {
            next_ms = std::min(next_ms, entry->second.at_ms);
            ++entry;
        }
    }
    return next_ms;
}

inline void vigil::run() noexcept {
    os_thread::name_this("bide-vigil", "", 0);
    told_list told;
    for (;;) {
        {
            const std::lock_guard held(lock_);
            arm(collect_due(told));
        }
        for (; told.size != 0; --told.size) {
            const auto who = std::exchange(told.who[told.size - 1], {});
            if (const auto alive = who.lock()) {
                alive->happened();
            }
        }
        sleep(told); // what came meanwhile has armed it
    }
}

#if defined(__linux__)

inline vigil::vigil()
    : timer_(::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK)),
      files_(::epoll_create1(EPOLL_CLOEXEC)) {
    epoll_event of_timer{};
    of_timer.events = EPOLLIN | EPOLLET; // never read: each setting is an edge of its own
    of_timer.data.fd = timer_;
    if (timer_ < 0 || files_ < 0 || ::epoll_ctl(files_, EPOLL_CTL_ADD, timer_, &of_timer) != 0) {
        const std::error_code error(errno, std::system_category());
        ::close(timer_);
        ::close(files_);
        throw_error(error);
    }
}

inline void vigil::arm(std::int64_t at_ms) noexcept {
    if (at_ms == armed_ms_ && at_ms > durable::boottime_ms()) {
        return; // it has yet to go off
    }
    armed_ms_ = at_ms;
    itimerspec when{}; // zero: disarmed
    if (at_ms != never) {
        when.it_value.tv_sec = static_cast<time_t>(at_ms / 1000);
        when.it_value.tv_nsec = static_cast<long>(at_ms % 1000 * 1'000'000 + 1);
    }
    ::timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr);
}

inline void vigil::ring() noexcept {} // it sleeps on the timer

inline void vigil::sleep(told_list& into) {
    epoll_event seen[most_told];
    const int count = ::epoll_wait(files_, seen, most_told, -1);
    const std::lock_guard held(lock_);
    for (int i = 0; i < count; ++i) {
        const auto found = whose_.find(seen[i].data.fd);
        if (found != whose_.end()) {
            into.who[into.size++] = found->second;
        }
    }
}

inline bool vigil::add(int fd, const std::shared_ptr<watched>& who) {
    const std::lock_guard held(lock_);
    start();
    whose_[fd] = who;
    epoll_event wanted{};
    wanted.events = EPOLLIN | EPOLLONESHOT;
    wanted.data.fd = fd;
    if (::epoll_ctl(files_, EPOLL_CTL_ADD, fd, &wanted) != 0) {
        whose_.erase(fd);
        return false;
    }
    return true;
}

inline void vigil::rearm(int fd) noexcept {
    epoll_event wanted{};
    wanted.events = EPOLLIN | EPOLLONESHOT;
    wanted.data.fd = fd;
    ::epoll_ctl(files_, EPOLL_CTL_MOD, fd, &wanted);
}

inline void vigil::remove(int fd) noexcept {
    const std::lock_guard held(lock_);
    epoll_event none{};
    ::epoll_ctl(files_, EPOLL_CTL_DEL, fd, &none);
    whose_.erase(fd);
}

#else

inline vigil::vigil() = default;

inline void vigil::arm(std::int64_t at_ms) noexcept { armed_ms_ = at_ms; }
inline void vigil::ring() noexcept { bell_.release(); }

inline void vigil::sleep(told_list&) {
    std::int64_t until_ms = never;
    {
        const std::lock_guard held(lock_);
        until_ms = armed_ms_;
    }
    if (until_ms == never) {
        bell_.acquire();
    } else {
        const std::int64_t rest = std::max<std::int64_t>(until_ms - durable::boottime_ms(), 0);
        bell_.try_acquire_for(std::chrono::milliseconds(rest));
    }
}

inline bool vigil::add(int, const std::shared_ptr<watched>&) { return false; }
inline void vigil::rearm(int) noexcept {}
inline void vigil::remove(int) noexcept {}

#endif

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
