#ifndef BIDE_TASK_INTERVAL_HPP
#define BIDE_TASK_INTERVAL_HPP

#include <bide/channel/detail/item_wait.hpp> // what every async_op<std::uint64_t> may carry along
#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/task/detail/time_wait.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace bide::inline BIDE_ABI {

// What an interval does when several ticks are due at once.
enum class missed_ticks {
    skip,  // they come as one tick, which counts them; the next one keeps its time
    burst, // each comes by itself, at once
    delay  // they come as one tick, which counts them; the next one comes a whole period later
};

// A ticker: one tick after each period, counted from its construction. For one coroutine at a time.
// A tick that is more than 292 years after the start of the steady clock never comes.
class interval {
public:
    // Requires: a period of a nanosecond at least; terminates otherwise.
    template <class R, class P>
    explicit interval(const std::chrono::duration<R, P>& period,
                      missed_ticks policy = missed_ticks::skip)
        : period_(deadline::saturated_ns(period)), policy_(policy) {
        if (period_ <= 0) {
            detail::fatal("interval of no length");
        }
        reset();
    }

    // Waits for the next tick. Returns 1, and with missed_ticks::skip and delay also how many were
    // missed before it.
    async_op<std::uint64_t> async_tick() noexcept {
        static constexpr auto ops = wait_ops<result<std::uint64_t>, native_platform>(
                                        &detail::time_wait::try_now, &detail::time_wait::enqueue,
                                        &detail::time_wait::cancel, &collect, &give_back)
                                        .standing_alone();
        return {ops, wait_target{nullptr, this, static_cast<std::ptrdiff_t>(next_)},
                deadline::at_ns(next_)};
    }

    // The next tick comes one period from now; ticks that were missed are dropped.
    // Requires: no coroutine waits for a tick.
    void reset() noexcept { next_ = sum(native_platform::now(), period_); }

    // The next tick comes then, at once where that has passed, and the later ones follow from it.
    // Requires: as reset().
    template <class D>
    void reset_at(const std::chrono::time_point<std::chrono::steady_clock, D>& when) noexcept {
        // Before the machine was started, too; no further back than sums bear.
        next_ = (std::max)(deadline::saturated_ns(when.time_since_epoch()), -(never / 2));
    }

    std::chrono::nanoseconds period() const noexcept { return std::chrono::nanoseconds(period_); }

private:
    static constexpr std::int64_t never = (std::numeric_limits<std::int64_t>::max)();

    static constexpr std::int64_t sum(std::int64_t time, std::int64_t rest) noexcept {
        return rest < never - std::max<std::int64_t>(time, 0) ? time + rest : never;
    }

    static result<std::uint64_t> collect(const wait_target& t, wait_status what) {
        if (!detail::time_wait::is_over(t, what)) {
            return unexpected{errc_of(what)};
        }
        return static_cast<interval*>(t.owner)->tick(native_platform::now());
    }
    static void give_back(const wait_target&, wait_status) noexcept {}

    // Requires: the next one's time has passed.
    std::uint64_t tick(std::int64_t now) noexcept {
        if (policy_ == missed_ticks::burst) {
            next_ = sum(next_, period_);
            return 1;
        }
        const std::int64_t late = (now - next_) / period_;
        const std::int64_t last = next_ + late * period_;
        next_ = sum(policy_ == missed_ticks::delay ? now : last, period_);
        return 1 + static_cast<std::uint64_t>(late);
    }

    std::int64_t period_;   // ns
    std::int64_t next_ = 0; // steady ns
    missed_ticks policy_;
};

} // namespace bide::inline BIDE_ABI

#endif
