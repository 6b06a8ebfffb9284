// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_ADAPTIVE_MUTEX_HPP
#define BIDE_SYNC_ADAPTIVE_MUTEX_HPP

/// \file
/// A mutex for short sections that threads enter often. Unfair, with bounded overtaking.
//
// sync/detail/adaptive_lock.hpp has the protocol. It resembles the eventual fairness of
// parking_lot.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/noted.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/thread_wait.hpp>
#include <bide/fwd.hpp>
#include <bide/sync/detail/adaptive_lock.hpp>
#include <bide/sync/detail/lock_wait.hpp>

#include <chrono>
#include <mutex>

namespace bide::inline BIDE_ABI {

/// A mutex for short sections that threads enter often. TimedLockable, not recursive. It is unfair:
/// a thread that finds the mutex free takes it before the waiters do. Overtaking is bounded. The
/// first waiter is overtaken at most max_overtakes times. If it wakes, fails to lock, and finds
/// that max_overtake_time has passed since it was first woken, the next unlock() hands it the
/// mutex. Coroutines may wait for it, too. If a coroutine is the first waiter, unlock() always
/// hands it the mutex.
template <class Platform> class basic_adaptive_mutex {
    using queue = detail::basic_adaptive_lock<Platform>;
    using wait = thread_wait<queue, Platform>;

public:
    /// The largest number of times that the first waiter is overtaken.
    static constexpr unsigned max_overtakes = queue::max_overtakes;
    /// How long the first waiter may be overtaken, from the moment when it was first woken. After
    /// this time it asks to be handed the mutex.
    static constexpr std::chrono::microseconds max_overtake_time = queue::max_overtake_time;

    /// Constructs a mutex that is not locked.
    constexpr basic_adaptive_mutex() noexcept : basic_adaptive_mutex(nullptr) {}

    /// Constructs a mutex that is not locked, with a name for reports (core/deadlock_check.hpp). The
    /// name is copied if BIDE_DEADLOCK_CHECK is defined, and ignored otherwise.
    constexpr explicit basic_adaptive_mutex([[maybe_unused]] const char* its_name) noexcept {
        BIDE_CHECKED(detail::note_made<Platform>(this, "adaptive_mutex", its_name);)
    }

    /// Destroys the mutex.
    /// Requires: there are no waiters; terminates otherwise.
    ~basic_adaptive_mutex() {
        lock_.require_no_waiters("adaptive_mutex", this);
        BIDE_CHECKED(detail::note_gone<Platform>(this);)
    }

    basic_adaptive_mutex(const basic_adaptive_mutex&) = delete;
    basic_adaptive_mutex& operator=(const basic_adaptive_mutex&) = delete;

    /// Locks the mutex.
    /// Blocks: until the mutex is free or handed to the caller.
    /// Memory order: what happens before the last unlock() happens before the return.
    void lock() {
        if (!lock_.take_free()) {
            lock_.lock_slow(deadline::never());
        }
        noted(true);
    }

    /// Locks the mutex if it is free, even if there are waiters. Never blocks.
    /// Returns: true if the caller locked it.
    [[nodiscard]] bool try_lock() noexcept { return noted(lock_.take_free() || lock_.barge()); }

    /// Unlocks the mutex, or hands it to the first waiter.
    /// Requires: the mutex is locked; terminates otherwise.
    void unlock() noexcept {
        BIDE_CHECKED(detail::note_unlocked<Platform>(&lock_);)
        lock_.unlock(this);
    }

    /// Locks the mutex as lock() does, but waits at most `rest`.
    /// Returns: true if the caller locked it.
    template <class R, class P>
    [[nodiscard]] bool try_lock_for(const std::chrono::duration<R, P>& rest) {
        return try_lock() || noted(lock_.lock_slow(deadline::after(rest)));
    }
    /// Locks the mutex as lock() does, but waits at most until a point in time.
    template <class C, class D>
    [[nodiscard]] bool try_lock_until(const std::chrono::time_point<C, D>& when) {
        return try_lock() || noted(lock_.lock_slow(deadline::at(when)));
    }

    /// Locks the mutex as lock() does, unless a stop is requested first.
    /// Returns: errc::stopped if the caller did not lock it.
    result_on<void, Platform> lock(typename Platform::stop_token token) {
        return detail::stopped_or<Platform>(
            try_lock() || noted(wait::stoppable(lock_, 1, token) == wait_status::granted));
    }

    /// Locks the mutex as lock() does, for a coroutine.
    /// Returns: an operation for co_await; its value is a lock that unlocks the mutex.
    basic_async_op<std::unique_lock<basic_adaptive_mutex>, Platform> async_lock() {
        return async_lock_as(
            [this]() noexcept { return std::unique_lock(*this, std::adopt_lock); });
    }

    /// Makes an async_lock() with another result, for wrappers of the mutex. `make` is called when
    /// the mutex is locked, and returns the result. It is copied bytewise, and has a pointer at
    /// most.
    template <class Make>
    basic_async_op<detail::lock_made_by<Make>, Platform> async_lock_as(Make make) noexcept {
        return {detail::lock_wait<typename queue::locking, Make>{{lock_}, make}};
    }

private:
    friend detail::condition_access;

    // Passes on whether the caller has locked it.
    bool noted(bool is_locked) noexcept {
        BIDE_CHECKED(detail::note_locked<Platform>(&lock_, is_locked);)
        return is_locked;
    }

    queue lock_;
};

/// An adaptive mutex for users.
using adaptive_mutex = basic_adaptive_mutex<native_platform>;
static_assert(sizeof(adaptive_mutex) == 16 || sizeof(void*) != 8);

} // namespace bide::inline BIDE_ABI

#endif
