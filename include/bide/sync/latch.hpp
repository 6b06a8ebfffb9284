#ifndef BIDE_SYNC_LATCH_HPP
#define BIDE_SYNC_LATCH_HPP

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/sync/detail/gate.hpp>

#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <stop_token>

namespace bide::inline BIDE_ABI {

// A count that goes down to zero, once, and lets through all who wait for that: std::latch, for
// coroutines too, with time-outs and stops.
//
// Destroy: a waiter that was let through, or saw the count at zero, may destroy the latch at once:
// every count_down() that took something off the count may still be under way. A count_down(0), one
// that throws, and a wait() that has just begun, also that of arrive_and_wait(), must have returned,
// and so must a stop or a time-out that ends a wait at that moment. Waiters that were let out of the
// queue need the latch no more.
template <class Platform> class basic_latch {
    using gate = detail::basic_gate<Platform>;

public:
    static constexpr std::ptrdiff_t(max)() noexcept { return (gate::max)(); }

    // Throws: std::invalid_argument outside [0, max()].
    constexpr explicit basic_latch(std::ptrdiff_t expected) : gate_(valid(expected)) {}

    // Requires: nobody waits; terminates otherwise.
    ~basic_latch() { gate_.require_no_waiters("latch", this); }

    basic_latch(const basic_latch&) = delete;
    basic_latch& operator=(const basic_latch&) = delete;

    // Takes n off the count.
    // Throws: std::invalid_argument when n is negative or more than is left; nothing changes then.
    void count_down(std::ptrdiff_t n = 1) {
        if (!gate_.arrive(static_cast<typename gate::word>(valid(n)))) {
            BIDE_THROW(std::invalid_argument("bide::latch: counted down below zero"));
        }
    }

    // Order: what was done before each count_down() happens-before a true answer, as it does before
    // a wait returns.
    bool try_wait() const noexcept { return gate_.is_open(); }

    // Blocks: until the count is zero.
    void wait() { gate_.wait(); }

    // As count_down(n), then wait().
    void arrive_and_wait(std::ptrdiff_t n = 1) {
        count_down(n);
        wait();
    }

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
    static constexpr std::ptrdiff_t valid(std::ptrdiff_t n) {
        if (n < 0 || n > (max)()) {
            BIDE_THROW(std::invalid_argument("bide::latch: count outside [0, max()]"));
        }
        return n;
    }

    gate gate_;
};

using latch = basic_latch<native_platform>;

} // namespace bide::inline BIDE_ABI

#endif
