// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_MUTEX_HPP
#define BIDE_SYNC_MUTEX_HPP

/// \file
/// A mutex for threads and coroutines, first come, first served.
//
// It is a semaphore of one permit with the interface of TimedLockable. The price of fairness:
// unlock() hands the mutex to the first waiter, so the mutex stays locked and unused until that
// waiter runs. For short sections that threads enter often, use adaptive_mutex.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/detail/noted.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/thread_wait.hpp>
#include <bide/fwd.hpp>
#include <bide/sync/detail/lock_wait.hpp>
#include <bide/sync/detail/permit_queue.hpp>

#include <chrono>
#include <mutex>

namespace bide { inline namespace BIDE_ABI {

/// A mutex that threads and coroutines acquire in the order in which they came. Not recursive.
/// TimedLockable. Any thread may unlock it, so a coroutine may hold it across a suspension and a
/// change of thread. For short sections that threads enter often, adaptive_mutex is faster.
template <class Platform> class basic_mutex {
    using queue = detail::basic_permit_queue<Platform>;
    using wait = thread_wait<queue, Platform>;

public:
    /// Constructs a mutex that is not locked.
    constexpr basic_mutex() noexcept : basic_mutex(nullptr) {}

    /// Constructs a mutex that is not locked, with a name for reports (core/deadlock_check.hpp). The
    /// name is copied if BIDE_DEADLOCK_CHECK is defined, and ignored otherwise.
    constexpr explicit basic_mutex([[maybe_unused]] const char* its_name) noexcept : permits_(1) {
        BIDE_CHECKED(detail::note_made<Platform>(this, "mutex", its_name);)
    }

    /// Destroys the mutex.
    /// Requires: there are no waiters; terminates otherwise.
    ~basic_mutex() {
        permits_.require_no_waiters("mutex", this);
        BIDE_CHECKED(detail::note_gone<Platform>(this);)
    }

    basic_mutex(const basic_mutex&) = delete;
    basic_mutex& operator=(const basic_mutex&) = delete;

    /// Locks the mutex.
    /// Blocks: until the mutex is free and every earlier waiter has had it.
    /// Memory order: what happens before the last unlock() happens before the return.
    void lock() {
        if (!permits_.take_known(1, 1)) {
            wait::until(permits_, 1, deadline::never());
        }
        noted(true);
    }

    /// Locks the mutex if it is free. Never blocks.
    /// Returns: true if the caller locked it.
    [[nodiscard]] bool try_lock() noexcept {
        return noted(permits_.take_known(1, 1) || permits_.try_take(1));
    }

    /// Unlocks the mutex, or hands it to the first waiter.
    /// Requires: the mutex is locked; terminates otherwise.
    void unlock() noexcept {
        BIDE_CHECKED(detail::note_unlocked<Platform>(&permits_);)
        if (!permits_.give_known(0, 1) && !permits_.give(1, 1)) {
            detail::fatal("mutex", this, "unlocked while not locked");
        }
    }

    /// Locks the mutex as lock() does, but waits at most `rest`.
    /// Returns: true if the caller locked it.
    template <class R, class P>
    [[nodiscard]] bool try_lock_for(const std::chrono::duration<R, P>& rest) {
        return try_lock() ||
               noted(wait::until(permits_, 1, deadline::after(rest)) == wait_status::granted);
    }
    /// Locks the mutex as lock() does, but waits at most until a point in time.
    template <class C, class D>
    [[nodiscard]] bool try_lock_until(const std::chrono::time_point<C, D>& when) {
        return try_lock() ||
               noted(wait::until(permits_, 1, deadline::at(when)) == wait_status::granted);
    }

    /// Locks the mutex as lock() does, unless a stop is requested first.
    /// Returns: errc::stopped if the caller did not lock it.
    result_on<void, Platform> lock(typename Platform::stop_token token) {
        return detail::stopped_or<Platform>(
            try_lock() || noted(wait::stoppable(permits_, 1, token) == wait_status::granted));
    }

    /// Locks the mutex as lock() does, for a coroutine.
    /// Returns: an operation for co_await; its value is a lock that unlocks the mutex.
    basic_async_op<std::unique_lock<basic_mutex>, Platform> async_lock() {
        return async_lock_as(
            [this]() noexcept { return std::unique_lock(*this, std::adopt_lock); });
    }

    /// Makes an async_lock() with another result, for wrappers of the mutex. `make` is called when
    /// the mutex is locked, and returns the result. `make` is copied bytewise, and is at most as
    /// large as a pointer.
    template <class Make>
    basic_async_op<detail::lock_made_by<Make>, Platform> async_lock_as(Make make) noexcept {
        return {detail::lock_wait<typename queue::taking, Make>{{permits_, 1}, make}};
    }

private:
    friend detail::condition_access;

    // Notes the lock if `is_locked` is true, and returns `is_locked`.
    bool noted(bool is_locked) noexcept {
        BIDE_CHECKED(detail::note_locked<Platform>(&permits_, is_locked);)
        return is_locked;
    }

    queue permits_;
};

/// A mutex for users.
using mutex = basic_mutex<native_platform>;
static_assert(sizeof(mutex) == 16 || sizeof(void*) != 8);

}} // namespace bide::BIDE_ABI

#endif
