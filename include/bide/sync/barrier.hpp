// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_BARRIER_HPP
#define BIDE_SYNC_BARRIER_HPP

/// \file
/// A point where a number of threads and coroutines meet, again and again.
//
// sync/detail/phase_gate.hpp has the protocol.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/fwd.hpp>
#include <bide/sync/detail/phase_gate.hpp>

#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

struct no_completion {
    void operator()() const noexcept {}
};

} // namespace detail

/// A count of arrivals that begins anew when it is complete. It is std::barrier for threads and
/// coroutines, with time-outs and stop tokens. Each phase expects a number of arrivals. The last
/// arrival of a phase calls the completion function, begins the next phase, and lets every waiter
/// of the phase through. No arrival is possible between the last arrival and the next phase.
///
/// An arrival counts, even if the wait after it ends by a stop or a time-out. That caller may wait
/// again with its token.
///
/// Memory order: what happens before each arrival of a phase happens before the completion
/// function, and that happens before the return of each wait for the phase.
///
/// Destroys: a waiter that was let through may destroy the barrier at once, even if the arrive()
/// that let it through has not returned. The following calls must have returned: a wait of another
/// thread that has begun and has not queued its waiter yet, and a stop or a time-out that ends a
/// wait at that moment.
template <class Completion, class Platform> class barrier {
    using gate = detail::basic_phase_gate<Platform>;
    static_assert(std::is_nothrow_invocable_v<Completion&>,
                  "bide: the completion function of a barrier is called without arguments and is "
                  "noexcept");

public:
    /// Returns the largest number of arrivals that a phase may expect.
    static constexpr std::ptrdiff_t(max)() noexcept { return (gate::max)(); }

    /// The phase that an arrival belongs to, to wait for its end.
    class arrival_token {
        friend class barrier;
        explicit arrival_token(typename gate::phase at) noexcept : at_(at) {}
        typename gate::phase at_;
    };

    /// Constructs a barrier whose phases expect `expected` arrivals each. `completion` is called at
    /// the end of each phase, by the last arrival.
    /// Throws: std::invalid_argument if `expected` is outside [1, max()].
    constexpr explicit barrier(std::ptrdiff_t expected, Completion completion = Completion())
        : gate_(valid(expected)), completion_(std::move(completion)) {}

    /// Destroys the barrier.
    /// Requires: there are no waiters; terminates otherwise.
    ~barrier() { gate_.require_no_waiters("barrier", this); }

    barrier(const barrier&) = delete;
    barrier& operator=(const barrier&) = delete;

    /// Arrives n times. The last arrival of the phase calls the completion function. Never blocks.
    /// Requires: the phase expects n more arrivals at least; terminates otherwise.
    /// Throws: std::invalid_argument if n is outside [1, max()]; nothing changes then.
    /// Returns: the token to wait with.
    [[nodiscard]] arrival_token arrive(std::ptrdiff_t n = 1) {
        return arrival_token(count(valid(n)).at);
    }

    /// Arrives once, and lowers the number of arrivals that each later phase expects by one.
    /// Requires: as arrive(). After as many drops as a phase expects, no arrival is allowed.
    void arrive_and_drop() {
        gate_.drop();
        count(1);
    }

    /// Arrives once, then waits for the end of the phase.
    /// Blocks: until the phase has ended.
    void arrive_and_wait() {
        if (const auto mine = count(1); !mine.is_last) {
            gate_.wait_until(mine.at, deadline::never());
        }
    }

    /// Arrives once, then waits for the end of the phase, unless a stop is requested first.
    /// Returns: errc::stopped if the phase had not ended. The arrival counts nevertheless.
    result<void> arrive_and_wait(typename Platform::stop_token token) {
        const auto mine = count(1);
        return mine.is_last ? result<void>() : gate_.wait(mine.at, token);
    }

    /// Returns true if the phase of `token` has ended. Never blocks.
    bool try_wait(const arrival_token& token) const noexcept { return gate_.has_passed(token.at_); }

    /// Waits for the end of the phase of `token`.
    /// Requires: `token` is of the current phase or of an earlier one, less than 2^29 phases ago.
    /// Blocks: until the phase has ended.
    void wait(const arrival_token& token) { gate_.wait_until(token.at_, deadline::never()); }

    /// Waits as wait() does, but at most `rest`.
    /// Returns: true if the phase has ended; false after the time-out.
    template <class R, class P>
    bool wait_for(const arrival_token& token, const std::chrono::duration<R, P>& rest) {
        return gate_.wait_until(token.at_, deadline::after(rest));
    }
    /// Waits as wait() does, but at most until a point in time.
    template <class C, class D>
    bool wait_until(const arrival_token& token, const std::chrono::time_point<C, D>& when) {
        return gate_.wait_until(token.at_, deadline::at(when));
    }

    /// Waits as wait() does, unless a stop is requested first.
    /// Returns: errc::stopped if the phase had not ended.
    result<void> wait(typename Platform::stop_token stop, const arrival_token& token) {
        return gate_.wait(token.at_, stop);
    }

    /// Waits as wait() does, for a coroutine.
    /// Returns: an operation for co_await.
    basic_async_op<void, Platform> async_wait(const arrival_token& token) noexcept {
        return {typename gate::passing{&gate_, token.at_}};
    }

    /// Arrives once, before it returns, and waits as wait() does, for a coroutine. The arrival
    /// counts, whatever becomes of the operation.
    /// Returns: an operation for co_await.
    basic_async_op<void, Platform> async_arrive_and_wait() {
        const auto mine = count(1);
        return {typename gate::passing{mine.is_last ? nullptr : &gate_, mine.at}};
    }

private:
    static constexpr std::ptrdiff_t valid(std::ptrdiff_t n) {
        if (n < 1 || n > (max)()) {
            BIDE_THROW(std::invalid_argument("bide::barrier: arrivals outside [1, max()]"));
        }
        return n;
    }

    typename gate::arrival count(std::ptrdiff_t n) noexcept {
        const auto mine = gate_.arrive(static_cast<typename gate::word>(n), "barrier", this);
        if (mine.is_last) {
            completion_();
            gate_.advance();
        }
        return mine;
    }

    gate gate_;
    [[no_unique_address]] Completion completion_;
};

} // namespace bide::inline BIDE_ABI

#endif
