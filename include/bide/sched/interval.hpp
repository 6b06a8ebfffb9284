#ifndef BIDE_SCHED_INTERVAL_HPP
#define BIDE_SCHED_INTERVAL_HPP

#include <bide/channel/detail/item_wait.hpp> // what every async_op<std::uint64_t> may carry along
#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/sched/detail/time_wait.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace bide::inline BIDE_ABI {

// A ticker: one tick after each period, counted from its construction. Ticks that are missed are
// counted, not replayed. For one coroutine at a time.
class interval {
public:
    // Requires: a period of a nanosecond at least; terminates otherwise.
    template <class R, class P>
    explicit interval(const std::chrono::duration<R, P>& period)
        : period_(deadline::saturated_ns(period)) {
        if (period_ <= 0) {
            detail::fatal("interval of no length");
        }
        next_ = deadline::after(period).steady_ns();
    }

    // Waits for the next tick: 1, and how many were missed before it.
    async_op<std::uint64_t> async_tick() noexcept {
        static constexpr auto ops =
            wait_ops<result<std::uint64_t>, native_platform>(
                &detail::time_wait::try_now, &detail::time_wait::enqueue,
                &detail::time_wait::cancel, &collect, &give_back)
                .standing_alone();
        return {ops, wait_target{nullptr, this, static_cast<std::ptrdiff_t>(next_)},
                deadline::at_ns(next_)};
    }

private:
    static result<std::uint64_t> collect(const wait_target& t, fate what) {
        if (!detail::time_wait::is_over(t, what)) {
            return unexpected{errc_of(what)};
        }
        auto& me = *static_cast<interval*>(t.owner);
        const std::int64_t ticks = 1 + (native_platform::now() - me.next_) / me.period_;
        me.next_ += ticks * me.period_;
        return static_cast<std::uint64_t>(ticks);
    }
    static void give_back(const wait_target&, fate) noexcept {}

    std::int64_t period_; // ns
    std::int64_t next_;   // steady ns
};

} // namespace bide::inline BIDE_ABI

#endif
