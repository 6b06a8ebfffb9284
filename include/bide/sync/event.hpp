#ifndef BIDE_SYNC_EVENT_HPP
#define BIDE_SYNC_EVENT_HPP

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/sync/detail/gate.hpp>

#include <chrono>
#include <stop_token>

namespace bide::inline BIDE_ABI {

// A flag to wait for, reset by hand: set() lets through all who wait and all who come, until
// reset(). A waiter that was let through stays let through, however soon the reset.
//
// Order: what was done before set() happens-before the return of each later reset(), and of each
// wait that it lets through; also where the event was set already. So a consumer that resets it,
// looks, and waits if it found nothing misses no item that was stored before a set(), with any
// number of producers and consumers.
//
// Destroy: a waiter that was let through, or saw it set, may destroy it at once: the set() that
// changed it from unset to set may still be under way. Every other set() and reset() must have
// returned: a set() that finds it set needs the event until then, and with several setters a waiter
// cannot tell which of them let it through. A wait() that has just begun must have returned, too,
// and so must a stop or a time-out that ends a wait at that moment. Waiters that were let out of the
// queue need the event no more.
template <class Platform> class basic_event {
public:
    constexpr basic_event() noexcept : basic_event(false) {}
    constexpr explicit basic_event(bool is_set) noexcept : gate_(is_set ? 0 : 1) {}

    // Requires: nobody waits; terminates otherwise.
    ~basic_event() { gate_.require_no_waiters("event", this); }

    basic_event(const basic_event&) = delete;
    basic_event& operator=(const basic_event&) = delete;

    // Sets it, and wakes all that wait. Never waits.
    void set() noexcept { gate_.arrive(1); }
    // Unsets it. Wakes and fails no waiter.
    void reset() noexcept { gate_.shut(); }

    // Order: what was done before the set() that it saw happens-before a true answer. A look may
    // come too early for a set() that found the event set.
    bool is_set() const noexcept { return gate_.is_open(); }

    // Blocks: until it is set.
    void wait() { gate_.wait(); }

    // As wait(), for at most that long; false: timed out.
    template <class R, class P> bool wait_for(const std::chrono::duration<R, P>& rest) {
        return gate_.wait_until(deadline::after(rest));
    }
    template <class C, class D> bool wait_until(const std::chrono::time_point<C, D>& when) {
        return gate_.wait_until(deadline::at(when));
    }

    // As wait(); errc::stopped when a stop is requested first.
    result<void> wait(std::stop_token token) { return gate_.wait(token); }

    // As wait(), for a coroutine.
    basic_async_op<void, Platform> async_wait() { return gate_.async_wait(); }

private:
    detail::basic_gate<Platform> gate_;
};

using event = basic_event<native_platform>;

} // namespace bide::inline BIDE_ABI

#endif
