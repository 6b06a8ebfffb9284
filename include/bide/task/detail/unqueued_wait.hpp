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

#include <cstdint>

namespace bide::inline BIDE_ABI {
namespace detail {

// The operation of a wait for a time (core/wait_ops.hpp). It is ended by its own time-out, or by a
// stop, or by a time-out of the caller.
struct time_wait {
    std::int64_t at;                      // ns of the clock
    deadline::clock_function other_clock; // nullptr: the steady clock
    static constexpr bool stands_alone = true;
    static constexpr const char* waited_for = "a time";

    wait_status try_now() const noexcept {
        return has_passed() ? wait_status::granted : wait_status::waiting;
    }
    wait_status enqueue(basic_waiter<native_platform>& w) const noexcept {
        if (w.forbidden() != wait_status::waiting) {
            w.settle(w.forbidden());
            return w.forbidden();
        }
        return w.begin_alone() ? wait_status::waiting : w.outcome();
    }
    bool cancel(basic_waiter<native_platform>& w, wait_status why) const noexcept {
        return w.end_alone(why);
    }
    result<void> collect(wait_status what) const {
        return is_over(what) ? result<void>() : unexpected{errc_of(what)};
    }

    // Returns true if the wait was ended by its own time, or if its time has passed meanwhile.
    bool is_over(wait_status what) const noexcept {
        return what == wait_status::granted || (what == wait_status::timed_out && has_passed());
    }
    bool has_passed() const noexcept {
        return (other_clock == nullptr ? native_platform::now() : other_clock()) >= at;
    }
};

inline async_op<void> sleep_until(deadline until) noexcept {
    const auto other_clock = until.other_clock();
    const std::int64_t at = other_clock == nullptr ? until.steady_ns() : until.own_ns();
    return {time_wait{at, other_clock}, until};
}

// Completes immediately, but enqueues the coroutine behind what is queued where it resumes.
struct yielding {
    static constexpr bool yields_first = true;
    static constexpr bool stands_alone = true;

    wait_status try_now() const noexcept { return wait_status::granted; }
    wait_status enqueue(basic_waiter<native_platform>&) const noexcept {
        return wait_status::granted;
    }
    bool cancel(basic_waiter<native_platform>&, wait_status) const noexcept { return false; }
    result<void> collect(wait_status what) const { return result_of(what); }
};

inline async_op<void> yield() noexcept { return {yielding()}; }

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
