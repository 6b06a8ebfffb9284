// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_LATCH_HPP
#define BIDE_SYNC_LATCH_HPP

/// \file
/// A count that goes down to zero once. Threads and coroutines wait until it is zero.
#include <bide/sync/detail/gate.hpp>

#include <stdexcept>

namespace bide { inline namespace BIDE_ABI {

/// A count that goes down to zero once. At zero, it lets every waiter through. It is std::latch for
/// threads and coroutines, with time-outs and stop tokens.
///
/// \code
/// bide::latch done(2);
/// std::jthread one([&] { done.count_down(); });
/// std::jthread two([&] { done.count_down(); });
/// done.wait(); // in a coroutine: co_await done.async_wait()
/// \endcode
///
/// Destroys: a waiter that was let through, or saw the count at zero, may destroy the latch at
/// once. A count_down() that lowered the count need not have returned. The following calls must
/// have returned before: each count_down(0); each count_down() that throws; each wait() or
/// arrive_and_wait() that has begun and has not queued its waiter yet. A stop or time-out that is
/// just ending a wait must have returned, too. A waiter that was taken out of the queue no longer
/// accesses the latch.
template <class Platform> class basic_latch {
    using gate = detail::basic_gate<Platform>;

public:
    /// Returns the largest count.
    static constexpr std::ptrdiff_t(max)() noexcept { return (gate::max)(); }

    /// Constructs a latch with the count `expected`.
    /// Throws: std::invalid_argument if `expected` is outside [0, max()].
    constexpr explicit basic_latch(std::ptrdiff_t expected) : gate_(valid(expected)) {
        BIDE_CHECKED(detail::note_made<Platform>(this, "latch");)
    }

    /// Destroys the latch.
    /// Requires: there are no waiters; terminates otherwise.
    ~basic_latch() {
        gate_.require_no_waiters("latch", this);
        BIDE_CHECKED(detail::note_gone<Platform>(this);)
    }

    basic_latch& operator=(basic_latch&&) = delete;

    /// Lowers the count by n. At zero, lets every waiter through. Never blocks.
    /// Throws: std::invalid_argument if n is negative or more than the count; nothing changes then.
    void count_down(std::ptrdiff_t n = 1) {
        BIDE_SWITCH_AFTER();
        if (!gate_.arrive(static_cast<typename gate::word>(valid(n)))) {
            BIDE_THROW(std::invalid_argument("bide::latch: counted down below zero"));
        }
    }

    /// Returns true if the count is zero. Never blocks.
    /// Memory order: if the result is true, what happens before each count_down() happens before
    /// the return, as for wait().
    bool try_wait() const noexcept {
        BIDE_SWITCH_AFTER();
        return gate_.is_open();
    }

    /// Waits for the count to be zero.
    /// Blocks: until the count is zero.
    void wait() { gate_.wait(); }

    /// Calls count_down(n), then wait().
    /// Blocks: as wait() does.
    /// Throws: as count_down() does.
    void arrive_and_wait(std::ptrdiff_t n = 1) {
        count_down(n);
        wait();
    }

    /// Waits as wait() does, but at most `rest`.
    /// Returns: true if the count is zero; false after the time-out.
    bool wait_for(deadline::from_now rest) { return gate_.wait_until(deadline(rest)); }
    /// Waits as wait() does, but at most until a point in time.
    bool wait_until(deadline when) { return gate_.wait_until(when); }

    /// Waits as wait() does, unless a stop is requested first.
    /// Returns: errc::stopped if the count is not zero.
    result<void> wait(typename Platform::stop_token token) { return gate_.wait(token); }

    /// Waits as wait() does, for a coroutine.
    /// Returns: an operation for co_await.
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

/// A latch for users.
using latch = basic_latch<native_platform>;

}} // namespace bide::BIDE_ABI

#endif
