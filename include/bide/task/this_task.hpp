// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_THIS_TASK_HPP
#define BIDE_TASK_THIS_TASK_HPP

/// \file
/// Functions for the running task: yield, cancellation, shields. Any coroutine may use the timed
/// waits.
///
/// These functions find the running task through the thread that runs it. A task may await a
/// coroutine of another library. After that coroutine has waited, these functions do not find the
/// task until the task itself waits again. So construct a shield, and get the stop token, before
/// such an await.

#include <bide/core/async_op.hpp>
#include <bide/task/detail/task_control.hpp>
#include <bide/task/task_tag.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

using task_control = basic_task_control<native_platform>;

// Returns the task that runs on the calling thread, or nullptr.
inline task_control* running_task() noexcept {
    return static_cast<task_control*>(worker_local<native_platform>::get().running);
}

// ---- Waits that stand in no queue

// The operation of a wait for a time (core/wait_ops.hpp). The wait ends at that time, by a stop, or
// by a time limit of the caller.
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

    // Returns true if the wait was granted, or if it timed out and its own time has passed. A limit
    // of the caller may time it out earlier.
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

} // namespace detail

/// Operations on the task that runs on the calling thread.
namespace this_task {

/// Suspends the task and enqueues it behind the tasks that are queued. Does not use the LIFO slot,
/// the place in a worker for the task that runs next.
/// Cancellation: a cancelled task is enqueued, too. When the task resumes, the operation is
/// stopped.
inline async_op<void> yield() noexcept { return {detail::yielding()}; }

/// Waits for the given time, or longer. A zero or negative duration completes immediately. A wait
/// beyond the range of the clock never ends.
/// Cancellation: the wait is stopped.
template <class R, class P>
async_op<void> sleep_for(const std::chrono::duration<R, P>& duration) noexcept {
    return detail::sleep_until(deadline::after(duration));
}

/// Waits until the clock of `when` shows the given time.
/// Cancellation: the wait is stopped.
template <class C, class D>
async_op<void> sleep_until(const std::chrono::time_point<C, D>& when) noexcept {
    return detail::sleep_until(deadline::at(when));
}

/// Returns true if the running task is cancelled and not shielded; false if no task runs.
inline bool is_cancelled() noexcept {
    auto* const task = detail::running_task();
    return task != nullptr && task->is_cancelled();
}

/// Returns why the running task is cancelled. Returns cancel_reason::none if the task is not
/// cancelled or is shielded, or if no task runs.
inline bide::cancel_reason cancel_reason() noexcept {
    auto* const task = detail::running_task();
    return task != nullptr && task->is_cancelled() ? task->reason() : bide::cancel_reason::none;
}

/// Returns the time at which the running task is cancelled: the earliest deadline of
/// with_deadline() and with_timeout() around the task. A child of when_all(), when_any(), a
/// task_group or a join_set has the deadline of the task that made these. A task that is spawned on
/// a scheduler does not have the deadline of the task that spawned it.
/// Returns: deadline::never() if there is none, or if no task runs.
inline bide::deadline deadline() noexcept {
    return limit_of(worker_local<native_platform>::get().running);
}

/// Sets the name of the running task in dumps and traces. Replaces the name of task::named(). A
/// child of when_all() or when_any() shares the name of its parent, so a call in the child renames
/// the parent, too. For a function that is spawned, this is the only way to set a name. A trace
/// shows the current run with the new name. If no task runs, does nothing.
/// Requires: the text outlives the scheduler and its trace, as a literal does. The text is not
/// copied.
inline void set_name(const char* name) noexcept {
    auto& here = worker_local<native_platform>::get();
    if (here.running != nullptr) {
        here.running->set_name(name);
        if (here.traced) {
            here.name = name;
        }
    }
}

/// Returns the name of the running task; nullptr if it has none, or if no task runs.
inline const char* name() noexcept {
    const auto* const task = worker_local<native_platform>::get().running;
    return task != nullptr ? task->name() : nullptr;
}

/// Sets the tag of the running task in dumps and traces. set_tag({}) removes the tag. A child of
/// when_all() or when_any() shares the tag of its parent. If the task makes a group or a set
/// afterwards, the members of that group or set get the tag, unless they have their own. If no task
/// runs, does nothing.
inline void set_tag(task_tag tag) noexcept {
    auto& here = worker_local<native_platform>::get();
    if (here.running != nullptr) {
        const std::uint8_t number = detail::tag_access::number_of(tag);
        here.running->set_tag(number);
        if (here.traced) {
            here.tag = number;
        }
    }
}

/// Returns the tag of the running task. The result is empty if the task has no tag, or if no task
/// runs.
inline task_tag tag() noexcept {
    return detail::tag_access::of(tag_of(worker_local<native_platform>::get().running));
}

/// Returns the stop token of the running task. A stop is requested when the task is cancelled and
/// not shielded. If no task runs, the token is empty.
///
/// The first call in a task allocates, and terminates if there is no memory.
inline std::stop_token get_stop_token() noexcept {
    auto* const task = detail::running_task();
    return task != nullptr ? task->get_stop_token() : std::stop_token();
}

/// Keeps a cancellation of the running task from taking effect. The cancellation takes effect when
/// the last shield of the task is destroyed.
///
/// \code
/// bide::task<> commit(bide::channel<int>& log) {
///     bide::this_task::shield whole; // a cancellation waits for the end of this scope
///     const bool sent = (co_await log.async_send(1)).has_value();
///     if (sent) (co_await log.async_send(2)).value();
/// }
/// \endcode
///
/// Shields nest, up to 65,535 in one task; one more terminates with a message. If no task runs, a
/// shield does nothing.
/// Requires: the task outlives the shield.
class [[nodiscard("name it")]] shield {
public:
    /// Adds a shield to the running task.
    [[nodiscard("name it")]] shield() noexcept : task_(detail::running_task()) {
        if (task_ != nullptr && !task_->shield()) {
            detail::fatal("more than 65535 shields in one task");
        }
    }
    shield(const shield&) = delete;
    shield& operator=(const shield&) = delete;
    /// Removes the shield.
    ~shield() {
        if (task_ != nullptr) {
            task_->unshield();
        }
    }

private:
    detail::task_control* const task_;
};

} // namespace this_task

}} // namespace bide::BIDE_ABI

#endif
