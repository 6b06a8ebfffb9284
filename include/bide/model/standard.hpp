// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_STANDARD_HPP
#define BIDE_MODEL_STANDARD_HPP

/// \file
/// A mutex and a condition_variable for bodies (model/check.hpp). They have the same interfaces as
/// those of std. So a class that gets these types from its platform can be checked unchanged.
/// model::platform also has stop tokens (model/stop_token.hpp).
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
/// For thread-local state, use platform::local<T>().

#include <bide/core/deadline.hpp>
#include <bide/model/platform.hpp>

#include <chrono>
#include <condition_variable>

namespace bide { inline namespace BIDE_ABI { namespace model {

/// Is the std::mutex of the checker. Any of the waiting threads may be the next holder.
class mutex {
public:
    /// Constructs a mutex that is not locked.
    mutex() noexcept : held_(detail::ops::make_atomic(0)) {}
    mutex(const mutex&) = delete;
    mutex& operator=(const mutex&) = delete;
    /// Ends the lifetime of the mutex. Fails the execution if some access to the mutex does not
    /// happen before the destruction.
    ~mutex() { detail::ops::drop_atomic(held_); }

    /// Locks the mutex. Blocks: while another thread has it.
    void lock(BIDE_MODEL_SITE) noexcept {
        while (!try_lock(line, file)) {
            detail::ops::wait_for_lock(held_, "mutex", {file, line, 1});
        }
    }
    /// Locks the mutex if it is free. Returns true if the caller locked it.
    bool try_lock(BIDE_MODEL_SITE) noexcept {
        detail::ops::bits held = 0;
        return detail::ops::compare_exchange(held_, held, 1, std::memory_order_acquire,
                                             std::memory_order_relaxed, false, {file, line, 1});
    }
    /// Unlocks the mutex.
    void unlock(BIDE_MODEL_SITE) noexcept {
        detail::ops::store(held_, 0, std::memory_order_release, {file, line, 1});
    }

private:
    int held_;
};

/// Is the checker's replacement for std::condition_variable. It accepts any lock type. In each
/// thread, at most options::spurious waits end spuriously, and at most options::timeouts waits time
/// out.
class condition_variable {
public:
    /// Unlocks, waits for a notification, and locks again.
    template <class Lock> void wait(Lock& lock, BIDE_MODEL_SITE) { sleep(lock, never, line, file); }
    /// Waits until `holds()` returns true.
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
    /// Waits until `holds()` returns true, but at most for the duration `rest`. Returns: the last
    /// result of `holds()`.
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
    /// Wakes one waiter, if there is one.
    void notify_one(BIDE_MODEL_SITE) noexcept { notify(1, line, file); }
    /// Wakes all waiters.
    void notify_all(BIDE_MODEL_SITE) noexcept {
        notify((std::numeric_limits<int>::max)(), line, file);
    }

private:
    static constexpr std::int64_t never = (std::numeric_limits<std::int64_t>::max)();

    // Returns the end of the wait. If `rest` is not positive, returns 0, which has passed already.
    template <class Rep, class Period>
    static std::int64_t until(std::chrono::duration<Rep, Period> rest) {
        const std::int64_t ns = deadline::saturated_ns(rest);
        if (ns <= 0) {
            return 0;
        }
        const std::int64_t now = platform::now();
        return ns >= never - now ? never : now + ns;
    }
    // The lock synchronises threads. The sleep synchronises nothing.
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

}}} // namespace bide::BIDE_ABI::model

#endif
