#ifndef BIDE_TASK_THIS_TASK_HPP
#define BIDE_TASK_THIS_TASK_HPP

// What a task can ask and do about itself; and waits for a time, which any coroutine may use.
//
// A task is known here by the thread that runs it. One that awaits a coroutine of another type, which
// waits, goes on without being known, until its own next wait: take the shield and the stop token
// before.

#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/task/detail/task_control.hpp>
#include <bide/task/detail/time_wait.hpp>
#include <bide/task/detail/yield.hpp>
#include <bide/task/interval.hpp>

#include <chrono>
#include <stop_token>

namespace bide::inline BIDE_ABI {
namespace detail {

using task_control = basic_task_control<native_platform>;

// The task that runs on this thread, or nullptr.
inline task_control* running_task() noexcept {
    return static_cast<task_control*>(worker_local<native_platform>::get().running);
}

} // namespace detail

namespace this_task {

// Lets what is queued run first: the task goes behind it, not into its worker's LIFO slot.
// Cancel: a cancelled task goes behind the others, and then finds it stopped.
inline async_op<void> yield() noexcept { return detail::yield(); }

// Waits that long; not at all if it is zero or negative, for ever if it is huge. Never shorter.
template <class R, class P>
async_op<void> sleep_for(const std::chrono::duration<R, P>& rest) noexcept {
    return detail::sleep_until(deadline::after(rest));
}

// Waits until then, on that time's own clock.
template <class C, class D>
async_op<void> sleep_until(const std::chrono::time_point<C, D>& when) noexcept {
    return detail::sleep_until(deadline::at(when));
}

// The running task was cancelled, and is not shielded. False where no task runs.
inline bool is_cancelled() noexcept {
    auto* const task = detail::running_task();
    return task != nullptr && task->is_cancelled();
}

// Stopped when the running task is cancelled, or comes out of its last shield cancelled. Empty where
// no task runs.
// Terminates where there is no memory for it, the first time.
inline std::stop_token get_stop_token() noexcept {
    auto* const task = detail::running_task();
    return task != nullptr ? task->get_stop_token() : std::stop_token();
}

// While one lives, a cancellation of the running task waits: it takes effect with the end of the
// last. They nest, 65,535 deep; one more terminates with a message. It must not outlive the task.
class [[nodiscard]] shield {
public:
    shield() noexcept : task_(detail::running_task()) {
        if (task_ != nullptr && !task_->shield()) {
            detail::fatal("more than 65535 shields in one task");
        }
    }
    shield(const shield&) = delete;
    shield& operator=(const shield&) = delete;
    ~shield() {
        if (task_ != nullptr) {
            task_->unshield();
        }
    }

private:
    detail::task_control* const task_;
};

} // namespace this_task

} // namespace bide::inline BIDE_ABI

#endif
