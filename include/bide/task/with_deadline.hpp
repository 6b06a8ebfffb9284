// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_WITH_DEADLINE_HPP
#define BIDE_TASK_WITH_DEADLINE_HPP

/// \file
/// Runs a task with a deadline. The tasks that it awaits, and its children, have the same deadline.
///
/// When the deadline has passed, the task is cancelled, with the reason cancel_reason::timeout. Its
/// current wait, or its next one, is stopped. The await continues when the task has ended. So a
/// task that neither waits nor calls this_task::is_cancelled() runs to its end.
///
/// Deadlines nest, and the earliest one counts: this_task::deadline() returns it. A shield of the
/// task delays the time-out, as it delays every cancellation.
///
/// The member with_timeout() of an operation ends one wait. The functions of this header end a task
/// with all its waits.

#include <bide/task/compose.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// The only child of a when_state (compose.hpp), and the timer of its deadline. If the parent is
// destroyed, the destructor of this object first cancels the timer, and then destroys the frames of
// the child, which are not in the parent's list of awaited frames. So the timer never cancels a
// task that is being destroyed.
template <task_source S> class timed_child final : public task_child<S> {
    using platform = native_platform;

public:
    explicit timed_child(bide::deadline until) noexcept {
        timer_.when = until;
        timer_.fire = waker(&on_timeout, this);
    }
    // Cancels the timer. If the timer fires at this moment, waits until the firing is over.
    ~timed_child() override { cancel_timer<platform>(timer_); }

    // Starts the timer. If the parent is a task of this worker's scheduler, that scheduler runs the
    // timer, because it outlives the task. If not, bide's service threads run the timer.
    void arm(const task_promise_base& parent) noexcept {
        const auto& here = worker_local<platform>::get();
        if (timer_.when.is_never()) {
            return;
        }
        if (timer_.when.has_passed()) {
            this->cancel(cancel_reason::timeout);
        } else if (here.host != nullptr && here.running != nullptr &&
                   here.running == parent.task_context() &&
                   here.host->serves(parent.get_scheduler())) {
            here.host->add_timer(timer_);
        } else {
            add_service_timer<platform>(timer_);
        }
    }

    // Returns the outcome of the child. If the timer fires later, it has no effect, because the
    // child has ended.
    // Throws: the exception of the child, unless the deadline has ended the child.
    // Requires: the child has ended.
    template <class R> R result() {
        if (this->reason() == cancel_reason::timeout && this->is_stopped()) {
            return unexpected{errc::timeout};
        }
        if constexpr (std::is_void_v<task_value_t<S>>) {
            this->take();
            return {};
        } else {
            return this->take();
        }
    }

private:
    bide::deadline limit() const noexcept override {
        const bide::deadline outer = task_child<S>::limit();
        return outer.is_never() || timer_.when.steady_ns() < outer.steady_ns() ? timer_.when
                                                                               : outer;
    }

    // Keeps coroutines without an executor from resuming on the thread that fires timers.
    static void on_timeout(void* self) noexcept {
        const wake_scope<platform> away(&service_executor<platform>);
        static_cast<timed_child*>(self)->cancel(cancel_reason::timeout);
    }

    timer timer_;
};

template <task_source S>
task<as_result_t<task_value_t<S>>> run_with_deadline(S work, bide::deadline until) {
    using result = as_result_t<task_value_t<S>>;
    task_when_state state(task_when_state::until::all);
    timed_child<S> child(until);
    child.open(std::move(work));
    state.add(child);
    child.arm(co_await this_promise());
    co_await state.wait();
    co_return child.template result<result>();
}

} // namespace detail

/// Runs a task, or the task that a callable returns, and cancels it when the deadline has passed.
/// If the deadline has passed before the task starts, the first wait of the task is stopped. Even
/// if the first operation need not wait, it may be stopped.
/// Returns: a task whose value is a result. The result contains the value of `work`, even if `work`
/// ended late. If the deadline has cancelled `work` and `work` ended by stopped_error, the result
/// contains errc::timeout. If the value of `work` is itself a result, that result is not wrapped
/// again. So nested calls of with_deadline() give one result. If the inner deadline ended the task,
/// that result contains errc::timeout.
/// Throws: in this call, std::system_error, if the service threads of bide cannot be started; only
/// coroutines outside of a scheduler need these threads. When awaited, what the task throws, as
/// when_all(); stopped_error, if another cancellation came before the deadline.
/// Cancellation: cancels the task, and waits for it.
/// Destroys: if nested calls are destroyed while they wait, the destruction uses stack for each
/// level.
template <detail::task_source S>
task<as_result_t<detail::task_value_t<S>>> with_deadline(S work, deadline until) {
    static_assert(!std::is_reference_v<detail::task_value_t<S>>,
                  "a result of a reference: use a pointer");
    detail::prepare_timers<native_platform>();
    return detail::run_with_deadline<S>(std::move(work), until);
}
/// \overload
template <detail::task_source S, class C, class D>
task<as_result_t<detail::task_value_t<S>>>
with_deadline(S work, const std::chrono::time_point<C, D>& when) {
    return bide::with_deadline(std::move(work), deadline::at(when));
}
/// Runs a task as with_deadline() does. The time begins with this call.
template <detail::task_source S, class R, class P>
task<as_result_t<detail::task_value_t<S>>>
with_timeout(S work, const std::chrono::duration<R, P>& duration) {
    return bide::with_deadline(std::move(work), deadline::after(duration));
}

}} // namespace bide::BIDE_ABI

#endif
