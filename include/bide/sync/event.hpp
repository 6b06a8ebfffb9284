// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_EVENT_HPP
#define BIDE_SYNC_EVENT_HPP

/// \file
/// A flag to wait for, with manual reset.
#include <bide/sync/detail/gate.hpp>

namespace bide { inline namespace BIDE_ABI {

/// A flag that threads and coroutines wait for. set() lets every waiter through, and every later
/// wait, until reset(). If set() lets a waiter through, a later reset() does not change that. A
/// thread spins, for about 20 us, before it becomes a waiter. If set() and reset() both come before
/// that, the thread may see neither, and then waits for the next set().
///
/// \code
/// bide::event ready;
/// std::jthread waiter([&] { ready.wait(); }); // a coroutine: co_await ready.async_wait()
/// ready.set(); // lets all waiters through, and later ones until reset()
/// \endcode
///
/// Memory order: what happens before set() happens before the return of each later reset(), and of
/// each wait that this set() lets through. This also holds if the event was set already. Suppose
/// that a consumer resets the event, then looks for items, and waits if it finds none. This
/// consumer misses no item that was stored before a set(). This holds for any number of producers
/// and consumers.
///
/// Destroys: a waiter that was let through, or saw the event set, may destroy the event at once.
/// The set() that changed it from unset to set need not have returned. The following calls must
/// have returned before:
///
/// - Every other set(): if the event is set already, set() accesses it until set() returns. If
///   there are several setters, a waiter cannot tell which of them let it through.
/// - Every reset().
/// - Each wait() that has begun and has not queued its waiter yet. A waiter that was taken out of
///   the queue no longer accesses the event.
/// - Each stop or time-out that is just ending a wait.
template <class Platform> class basic_event {
public:
    /// Constructs an event that is not set.
    constexpr basic_event() noexcept : basic_event(false) {}
    /// Constructs an event that is set if `is_set` is true.
    constexpr explicit basic_event(bool is_set) noexcept : basic_event(nullptr, is_set) {}
    /// Constructs an event with a name for reports (core/deadlock_check.hpp). It is set if `is_set`
    /// is true. The name is copied if BIDE_DEADLOCK_CHECK is defined, and ignored otherwise.
    constexpr explicit basic_event([[maybe_unused]] const char* its_name,
                                   bool is_set = false) noexcept
        : gate_(is_set ? 0 : 1) {
        BIDE_CHECKED(detail::note_made<Platform>(this, "event", its_name);)
    }

    /// Destroys the event.
    /// Requires: there are no waiters; terminates otherwise.
    ~basic_event() {
        gate_.require_no_waiters("event", this);
        BIDE_CHECKED(detail::note_gone<Platform>(this);)
    }

    basic_event& operator=(basic_event&&) = delete;

    /// Sets the event and wakes every waiter. Never blocks.
    void set() noexcept {
        BIDE_SWITCH_AFTER();
        gate_.arrive(1);
    }
    /// Unsets the event. Present waiters keep waiting.
    void reset() noexcept {
        BIDE_SWITCH_AFTER();
        gate_.shut();
    }

    /// Returns true if the event is set.
    /// Memory order: if the result is true, what happens before the set() that changed it from
    /// unset to set happens before the return. This does not hold for a later set() that finds the
    /// event set already.
    bool is_set() const noexcept {
        BIDE_SWITCH_AFTER();
        return gate_.is_open();
    }

    /// Waits for the event to be set.
    /// Blocks: until it is set.
    void wait() { gate_.wait(); }

    /// Waits as wait() does, but at most `rest`. The name follows std: types that wait have
    /// wait_for(), as std::condition_variable; types that acquire have try_acquire_for(), as
    /// std::counting_semaphore.
    /// Returns: true if the event was set; false after the time-out.
    bool wait_for(deadline::from_now rest) { return gate_.wait_until(deadline(rest)); }
    /// Waits as wait() does, but at most until a point in time.
    bool wait_until(deadline when) { return gate_.wait_until(when); }

    /// Waits as wait() does, unless a stop is requested first.
    /// Returns: errc::stopped if the event was not set.
    result<void> wait(typename Platform::stop_token token) { return gate_.wait(token); }

    /// Waits as wait() does, for a coroutine.
    /// Returns: an operation for co_await.
    basic_async_op<void, Platform> async_wait() { return gate_.async_wait(); }

private:
    detail::basic_gate<Platform> gate_;
};

/// An event for users.
using event = basic_event<native_platform>;

}} // namespace bide::BIDE_ABI

#endif
