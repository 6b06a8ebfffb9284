// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_MUTEX_HPP
#define BIDE_SYNC_MUTEX_HPP

/// \file
/// A mutex for threads and coroutines, first come, first served.
//
// It is a semaphore of one permit with the interface of TimedLockable. Fairness costs time:
// unlock() hands the mutex to the first waiter, and the mutex stays locked and unused until that
// waiter runs.

#include <bide/sync/detail/permit_queue.hpp>
#include <bide/sync/lock_operations.hpp>

namespace bide { inline namespace BIDE_ABI {

/// A mutex that threads and coroutines acquire in the order in which they came. Not recursive.
/// TimedLockable. Any thread may unlock it, so a coroutine may hold it across a suspension and a
/// change of thread. For short sections that many threads or tasks enter often, adaptive_mutex is
/// faster.
///
/// \code
/// bide::mutex accounts;
/// {
///     std::scoped_lock lock(accounts); // in a thread: blocks until it has the mutex
/// }
/// auto lock = co_await accounts.async_lock(); // in a coroutine: suspends it
/// \endcode
///
/// lock_operations has the functions that lock and unlock it: lock(), with a stop token or without,
/// try_lock(), try_lock_for(), try_lock_until(), async_lock(), unlock().
template <class Platform>
class basic_mutex : public lock_operations<basic_mutex<Platform>, Platform> {
public:
    /// Constructs a mutex that is not locked.
    constexpr basic_mutex() noexcept : basic_mutex(nullptr) {}

    /// Constructs a mutex that is not locked, with a name for reports (core/deadlock_check.hpp).
    /// The name is copied if BIDE_DEADLOCK_CHECK is defined, and ignored otherwise.
    constexpr explicit basic_mutex([[maybe_unused]] const char* its_name) noexcept : permits_(1) {
        BIDE_CHECKED(detail::note_made<Platform>(this, name, its_name);)
    }

    /// Destroys the mutex.
    /// Requires: there are no waiters; terminates otherwise.
    ~basic_mutex() {
        permits_.require_no_waiters(name, this);
        BIDE_CHECKED(detail::note_gone<Platform>(this);)
    }

    basic_mutex& operator=(basic_mutex&&) = delete;

private:
    friend lock_operations<basic_mutex, Platform>;
    friend detail::condition_access;

    static constexpr const char* name = "mutex";

    detail::permit_mode<Platform> exclusive() noexcept { return {permits_, 1, 1}; }

    detail::basic_permit_queue<Platform> permits_;
};

/// A mutex for users.
using mutex = basic_mutex<native_platform>;
static_assert(sizeof(mutex) == 16 || sizeof(void*) != 8);

}} // namespace bide::BIDE_ABI

#endif
