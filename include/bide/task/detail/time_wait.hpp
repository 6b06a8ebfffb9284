#ifndef BIDE_TASK_DETAIL_TIME_WAIT_HPP
#define BIDE_TASK_DETAIL_TIME_WAIT_HPP

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

// A wait for a time: in no queue, ended by its time-out (or something else). The target is that time
// (`amount`) and the function that reads its clock (`queue`, nullptr: the steady clock).
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

    // It was this wait's own time that ended it, or it has passed meanwhile.
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

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
