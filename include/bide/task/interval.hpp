// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_INTERVAL_HPP
#define BIDE_TASK_INTERVAL_HPP

/// \file
/// A periodic timer for coroutines.

#include <bide/core/detail/item_payload.hpp> // so that each async_op<T> has one definition
#include <bide/task/this_task.hpp>

namespace bide { inline namespace BIDE_ABI {

/// What an interval does if it is late and several ticks are due at once.
enum class missed_ticks {
    skip,  ///< Combines the due ticks into one tick. The next tick keeps its scheduled time.
    burst, ///< Delivers each due tick on its own, without a wait between them.
    /// Combines the due ticks into one tick. If ticks were missed, the next tick comes one whole
    /// period after this delivery. If no tick was missed, the next tick keeps its scheduled time.
    delay
};

/// Ticks once per period. The first tick comes one period after construction.
///
/// \code
/// bide::task<> beat(std::stop_token stop) {
///     bide::interval each(std::chrono::seconds(1));
///     while (co_await each.async_tick().with_stop(stop)) {
///         std::puts("alive");
///     }
/// }
/// \endcode
///
/// If the time of a tick is more than 292 years after the start of the steady clock, the tick never
/// comes.
/// Thread safety: one coroutine at a time.
class interval {
public:
    /// Starts the first period.
    /// Requires: the period is at least one nanosecond; terminates otherwise.
    template <class R, class P>
    explicit interval(const std::chrono::duration<R, P>& period,
                      missed_ticks policy = missed_ticks::skip)
        : period_(deadline::saturated_ns(period)), policy_(policy) {
        if (period_ <= 0) {
            detail::fatal("the period of an interval must be at least one nanosecond");
        }
        reset();
    }

    /// Waits for the next tick.
    /// Returns: with missed_ticks::burst, 1. With missed_ticks::skip and missed_ticks::delay, 1
    /// plus the number of ticks that were missed before this one.
    /// Cancellation: a wait that is stopped or times out consumes no tick.
    async_op<std::uint64_t> async_tick() noexcept {
        return {ticking{{next_, nullptr}, *this}, deadline::at_ns(next_)};
    }

    /// Sets the next tick to one period from now. Missed ticks are dropped.
    /// Requires: no coroutine waits for a tick.
    void reset() noexcept { next_ = sum(native_platform::now(), period_); }

    /// Sets the next tick to the given time. Each later tick comes one period after the previous
    /// one. If the time is in the past, the tick is due at once.
    /// Requires: no coroutine waits for a tick.
    template <class D>
    void reset_at(const std::chrono::time_point<std::chrono::steady_clock, D>& when) noexcept {
        // A time before the start of the clock is valid. The limit keeps the sums from overflowing.
        const std::int64_t at = deadline::saturated_ns(when.time_since_epoch());
        next_ = at < -(never / 2) ? -(never / 2) : at;
    }

    /// Returns the period, in nanoseconds.
    std::chrono::nanoseconds period() const noexcept { return std::chrono::nanoseconds(period_); }

private:
    static constexpr std::int64_t never = (std::numeric_limits<std::int64_t>::max)();

    static constexpr std::int64_t sum(std::int64_t time, std::int64_t duration) noexcept {
        return duration < never - (time > 0 ? time : 0) ? time + duration : never;
    }

    // The operation of async_tick() (core/wait_ops.hpp).
    struct ticking : detail::time_wait {
        interval& of;

        result<std::uint64_t> collect(wait_status what) const {
            if (!is_over(what)) {
                return unexpected{errc_of(what)};
            }
            return of.tick(native_platform::now());
        }
        void give_back(wait_status) const noexcept {}
    };

    // Counts the due ticks and sets the time of the next one.
    // Requires: the time of the next tick has passed.
    std::uint64_t tick(std::int64_t now) noexcept {
        if (policy_ == missed_ticks::burst) {
            next_ = sum(next_, period_);
            return 1;
        }
        const std::int64_t late = (now - next_) / period_;
        const std::int64_t last = next_ + late * period_;
        next_ = sum(policy_ == missed_ticks::delay && late != 0 ? now : last, period_);
        return 1 + static_cast<std::uint64_t>(late);
    }

    std::int64_t period_;   // ns
    std::int64_t next_ = 0; // ns of the steady clock
    missed_ticks policy_;
};

}} // namespace bide::BIDE_ABI

#endif
