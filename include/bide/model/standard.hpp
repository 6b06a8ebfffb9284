// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_STANDARD_HPP
#define BIDE_MODEL_STANDARD_HPP

/// \file
/// The standard library's locks and condition variables for bodies, with its names: a class that takes them
/// from its platform can be checked as it is. The platform itself has stop tokens (model/stop_token.hpp).
///
/// \code
/// struct checked : bide::model::platform {
///     using mutex = bide::model::mutex;
///     using condition_variable = bide::model::condition_variable;
/// };
/// struct native : bide::native_platform {
///     using mutex = std::mutex;
///     using condition_variable = std::condition_variable;
/// };
/// \endcode
///
/// Thread-local state: platform::local<T>(). Threads in a deadlock of these locks are reported to spin for
/// ever.

#include <bide/core/config.hpp>
#include <bide/model/platform.hpp>

#include <atomic>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstdint>
#include <limits>

namespace bide::inline BIDE_ABI::model {

/// Is std::mutex of the checker. Which of the waiting threads is next is open.
class mutex {
public:
    /// Makes it, not locked.
    mutex() noexcept : held_(detail::ops::make_atomic(0)) {}
    mutex(const mutex&) = delete;
    mutex& operator=(const mutex&) = delete;
    /// Ends it. An access that is not ordered before that is a failure.
    ~mutex() { detail::ops::drop_atomic(held_); }

    /// Locks. Blocks: while another thread has the lock.
    void lock(BIDE_MODEL_SITE) noexcept {
        while (!try_lock(line, file)) {
            detail::ops::pause();
        }
    }
    /// Locks if it is free.
    bool try_lock(BIDE_MODEL_SITE) noexcept {
        detail::ops::bits held = 0;
        return detail::ops::compare_exchange(held_, held, 1, std::memory_order_acquire,
                                             std::memory_order_relaxed, false, {file, line, true});
    }
    /// Unlocks.
    void unlock(BIDE_MODEL_SITE) noexcept {
        detail::ops::store(held_, 0, std::memory_order_release, {file, line, true});
    }

private:
    int held_;
};

/// Is std::condition_variable of the checker, for any lock. A wait ends for no reason as often as
/// options::spurious says, and times out as often as options::timeouts says.
class condition_variable {
public:
    /// Unlocks, waits for a notification, and locks again.
    template <class Lock> void wait(Lock& lock, BIDE_MODEL_SITE) { sleep(lock, never, line, file); }
    /// Waits until `holds()`.
    template <class Lock, class Predicate>
        requires std::predicate<Predicate&>
    void wait(Lock& lock, Predicate holds, BIDE_MODEL_SITE) {
        while (!holds()) {
            sleep(lock, never, line, file);
        }
    }
    /// Waits at most for `rest`.
    template <class Lock, class Rep, class Period>
    std::cv_status wait_for(Lock& lock, std::chrono::duration<Rep, Period> rest, BIDE_MODEL_SITE) {
        const bool in_time = sleep(lock, until(rest), line, file);
        return in_time ? std::cv_status::no_timeout : std::cv_status::timeout;
    }
    /// Waits at most for `rest` until `holds()`. Returns: what it says in the end.
    template <class Lock, class Rep, class Period, class Predicate>
        requires std::predicate<Predicate&>
    bool wait_for(Lock& lock, std::chrono::duration<Rep, Period> rest, Predicate holds,
                  BIDE_MODEL_SITE) {
        const std::int64_t end = until(rest);
        while (!holds()) {
            if (!sleep(lock, end, line, file)) {
                return holds();
            }
        }
        return true;
    }
    /// Wakes one of those that wait, if any do.
    void notify_one(BIDE_MODEL_SITE) noexcept { notify(1, line, file); }
    /// Wakes all that wait.
    void notify_all(BIDE_MODEL_SITE) noexcept {
        notify((std::numeric_limits<int>::max)(), line, file);
    }

private:
    static constexpr std::int64_t never = (std::numeric_limits<std::int64_t>::max)();

    // Of none left: the time that is now, as the checker sees it.
    template <class Rep, class Period>
    static std::int64_t until(std::chrono::duration<Rep, Period> rest) {
        using nanoseconds = std::chrono::nanoseconds;
        if (rest <= rest.zero()) {
            return 0;
        }
        const std::int64_t now = platform::now();
        const std::chrono::duration<double, std::nano> about = rest;
        constexpr double most = 9.2e18;
        return about.count() >= most - static_cast<double>(now)
                   ? never
                   : now + std::chrono::duration_cast<nanoseconds>(rest).count();
    }
    // It synchronises nothing: the lock does.
    template <class Lock> bool sleep(Lock& lock, std::int64_t end, int line, const char* file) {
        const std::uint32_t before = changes_.load(std::memory_order_relaxed, line, file);
        lock.unlock();
        const bool in_time = platform::futex_wait(changes_, before, end, line, file);
        lock.lock();
        return in_time;
    }
    void notify(int count, int line, const char* file) noexcept {
        changes_.fetch_add(1, std::memory_order_relaxed, line, file);
        platform::futex_wake(&changes_, count, line, file);
    }

    atomic<std::uint32_t> changes_{0};
};

} // namespace bide::inline BIDE_ABI::model

#endif
