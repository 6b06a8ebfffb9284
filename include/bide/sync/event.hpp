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
// reset(). Whoever was let through stays let through, however soon the reset. Whoever saw it set
// may destroy it at once, whatever the setter still does, and also while others that it let out of
// the queue are on their way, unless a stop or a time-out is ending a wait of theirs at that very
// moment. One that is still on its way into wait() needs the event.
template <class Platform> class basic_event {
public:
    constexpr basic_event() noexcept : basic_event(false) {}
    constexpr explicit basic_event(bool is_set) noexcept : gate_(is_set ? 0 : 1) {}

    // Requires: nobody waits; terminates otherwise.
    ~basic_event() { gate_.require_no_waiters("event", this); }

    basic_event(const basic_event&) = delete;
    basic_event& operator=(const basic_event&) = delete;

    // No effect where it is set.
    void set() noexcept { gate_.arrive(1); }
    void reset() noexcept { gate_.shut(); }

    // Order: what was done before set() happens-before a true answer, as it does before a wait
    // returns.
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
