// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_DETAIL_UNQUEUED_WAIT_HPP
#define BIDE_TASK_DETAIL_UNQUEUED_WAIT_HPP

// Waits that stand in no queue: a wait for a time, and the yield.

#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/waiter.hpp>

#include <cstddef>
#include <cstdint>

namespace bide::inline BIDE_ABI {
namespace detail {

// A wait for a time. It is ended by its own time-out, or by a stop, or by a time-out of the caller.
// In the target, `amount` is the time in ns, and `queue` is the function that reads the clock of
// that time; nullptr means the steady clock.
struct time_wait {
    using node = basic_waiter<native_platform>;

    static wait_status try_now(const wait_target& t) noexcept {
        return has_passed(t) ? wait_status::granted : wait_status::waiting;
    }
    static bool enqueue(const wait_target&, node& w) noexcept {
        if (w.forbidden() != wait_status::waiting) {
            w.settle(w.forbidden());
            return true;
        }
        return !w.begin_alone();
    }
    static bool cancel(const wait_target&, node& w, wait_status why) noexcept {
        return w.end_alone(why);
    }

    // Returns true if the wait was ended by its own time, or if its time has passed meanwhile.
    static bool is_over(const wait_target& t, wait_status what) noexcept {
        return what == wait_status::granted || (what == wait_status::timed_out && has_passed(t));
    }
    static result<void> collect(const wait_target& t, wait_status what) {
        return is_over(t, what) ? result<void>() : unexpected{errc_of(what)};
    }

private:
    static bool has_passed(const wait_target& t) noexcept {
        const auto other_clock = reinterpret_cast<deadline::clock_function>(t.queue);
        return (other_clock == nullptr ? native_platform::now() : other_clock()) >= t.amount;
    }
};

inline async_op<void> sleep_until(deadline until) noexcept {
    static constexpr auto ops =
        wait_ops<result<void>, native_platform>(&time_wait::try_now, &time_wait::enqueue,
                                                &time_wait::cancel, &time_wait::collect)
            .standing_alone();
    const auto other_clock = until.other_clock();
    const std::int64_t at = other_clock == nullptr ? until.steady_ns() : until.own_ns();
    return {
        ops,
        wait_target{reinterpret_cast<void*>(other_clock), nullptr, static_cast<std::ptrdiff_t>(at)},
        until};
}

// Completes immediately, but enqueues the coroutine behind what is queued where it resumes.
inline async_op<void> yield() noexcept {
    using node = basic_waiter<native_platform>;
    static constexpr auto ops =
        wait_ops<result<void>, native_platform>(
            [](const wait_target&) noexcept { return wait_status::granted; },
            [](const wait_target&, node&) noexcept { return true; },
            [](const wait_target&, node&, wait_status) noexcept { return false; },
            [](const wait_target&, wait_status what) { return result_of(what); }, nullptr, true)
            .standing_alone();
    return {ops, wait_target{}};
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
