// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_JOIN_SET_HPP
#define BIDE_SCHED_JOIN_SET_HPP

/// \file
/// Runs tasks and returns their outcomes one by one, in the order in which the tasks end.

#include <bide/channel/detail/item_wait.hpp> // with signal_wait.hpp, specialises the payload of
#include <bide/channel/detail/select_case.hpp>
#include <bide/channel/detail/signal_wait.hpp> // async_op<T>, so that it has one definition
#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/thread_wait.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/waiter.hpp>
#include <bide/fwd.hpp>
#include <bide/io/driver.hpp>
#include <bide/sched/detail/ended_children.hpp>
#include <bide/sched/detail/group_cell.hpp>
#include <bide/sched/detail/join_set_child.hpp>
#include <bide/sched/task_runner.hpp>
#include <bide/task/cancel_reason.hpp>
#include <bide/task/detail/nonvoid.hpp>
#include <bide/task/detail/task_body.hpp>
#include <bide/task/detail/task_cell.hpp>
#include <bide/task/task.hpp>

#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

using ended_children = basic_ended_children<native_platform>;
using join_set_state = basic_join_set_state<native_platform>;
template <class T> using join_set_child = basic_join_set_child<T, native_platform>;

} // namespace detail

/// Runs tasks on a scheduler or a run_loop, and returns their outcomes from join_next() in the order of their
/// ends. T is the type of their values. A child that fails cancels no other child.
///
/// Thread safety: any thread may call any member concurrently, except the destructor. A child may
/// spawn and cancel, but must not wait for its own set.
/// Destroys: cancels the children and waits for them.
template <class T> class join_set {
    static_assert(!std::is_reference_v<T>, "join_set of references: use pointers");

    using child = detail::join_set_child<T>;
    using node = basic_waiter<native_platform>;

public:
    /// The result of join_next(): std::optional<T>, or bool if T is void.
    using next_type = std::conditional_t<std::is_void_v<T>, bool, std::optional<nonvoid_t<T>>>;

    /// Makes an empty set. Its children run on `where`.
    explicit join_set(task_runner& where) noexcept : home_(detail::runner_access::home(where)) {}
    join_set(const join_set&) = delete;
    join_set& operator=(const join_set&) = delete;

    /// Cancels the children and waits for them. Outcomes that no call has returned are dropped.
    /// Blocks: until all children have ended. To avoid blocking, call cancel(), then await
    /// async_join_next() until it returns nothing. If the calling thread belongs to a scheduler,
    /// another thread takes its place, even if that is one more than
    /// scheduler_options::max_blocking_threads. On a run_loop, waits as ~task_group() does.
    /// Requires: no thread uses the set, except its children.
    ~join_set() {
        state_.cancel(cancel_reason::parent);
        detail::block_until(state_.all.of_children(), home_);
        child::drop_all(state_.ended);
    }

    /// Runs a task as a child. If the set is cancelled, the child never starts.
    /// Throws: std::bad_alloc.
    void spawn(task<T> t) { launch(std::move(t)); }

    /// Runs the task that a function returns, as a child. The function is called on the calling
    /// thread, and is destroyed when the child has ended. So a lambda coroutine may use its
    /// captures.
    /// Throws: std::bad_alloc; what the function throws.
    template <class F>
        requires(std::is_same_v<detail::task_value_t<F>, T> && !detail::is_task<F>)
    void spawn(F function) {
        launch(std::move(function));
    }
    /// Runs a function as a child, on the runner. It returns a T.
    template <detail::plain_function F>
        requires std::is_same_v<std::invoke_result_t<F&&>, T>
    void spawn(F function) {
        launch(detail::call_in_task(std::move(function)));
    }

    /// Waits for the next child to end, and returns its outcome. Each outcome is returned once.
    ///
    /// If the set is cancelled, this waits until all children have ended, and skips the children
    /// that the cancellation has stopped.
    /// Blocks: until a child has ended, or none is left. A task of a run_loop must not block there:
    /// use async_join_next().
    /// Returns: the value (true if T is void); nothing (false) if no child is left.
    /// Throws: what the child threw; stopped_error, if the child was stopped by anything but the
    /// set, or if it never ran because the runner has shut down.
    [[nodiscard]] next_type join_next() {
        wait_status what = state_.ended.try_reserve();
        if (what == wait_status::waiting) {
            what = thread_wait<detail::ended_children, native_platform>::until(state_.ended, 1,
                                                                               deadline::never());
        }
        return take(state_.ended, what);
    }

    /// Returns an outcome as join_next() does, but never waits. If join_next() would wait, returns
    /// nothing (false).
    [[nodiscard]] next_type try_join_next() {
        const wait_status what = state_.ended.try_reserve();
        return take(state_.ended, what == wait_status::waiting ? wait_status::closed : what);
    }

    /// Waits as join_next() does, for a coroutine. If the wait ends early, by a time-out, a stop or
    /// a select, the children continue.
    /// Throws: as join_next(), also with as_result(); stopped_error, if the awaiting task is
    /// cancelled.
    /// Cancellation: if the awaiting task is cancelled or destroyed, the set is cancelled; a
    /// cancelled task waits until all children have ended.
    async_op<next_type> async_join_next() noexcept { return {joining_next{state_}}; }

    /// Cancels all children, also those that are spawned later. A second call has no effect.
    /// Requires: `why` is not cancel_reason::none.
    void cancel(cancel_reason why = cancel_reason::requested) noexcept { state_.cancel(why); }

    /// Returns the number of outcomes that join_next() has not returned, which may be old.
    std::size_t size() noexcept { return state_.ended.size(); }
    /// Returns size() == 0.
    bool empty() noexcept { return size() == 0; }

private:
    template <class S> void launch(S source) {
        using cell_type = detail::coroutine_cell<S, child>;
        auto& cell = *new cell_type(home_, false, std::move(source), state_);
        state_.ended.begin();
        state_.all.begin(cell.member());
        home_.start(cell);
    }

    static next_type take(detail::ended_children& ended, wait_status what) {
        if (what != wait_status::granted) {
            return {};
        }
        if constexpr (std::is_void_v<T>) {
            child::take_reserved(ended);
            return true;
        } else {
            return next_type(child::take_reserved(ended));
        }
    }

    // The operation of async_join_next() (core/wait_ops.hpp).
    struct joining_next {
        detail::join_set_state& of;

        const auto& primitive() const noexcept { return of.ended; }
        wait_status try_now() const noexcept { return of.ended.try_reserve(); }
        wait_status enqueue(node& w) const noexcept { return of.ended.enqueue(w); }
        bool cancel(node& w, wait_status why) const noexcept { return of.ended.cancel(w, why); }
        result<next_type> collect(wait_status what) const {
            if (what == wait_status::stopped || what == wait_status::timed_out) {
                return unexpected{errc_of(what)};
            }
            return take(of.ended, what);
        }
        void give_back(wait_status what) const noexcept {
            if (what == wait_status::granted) {
                of.ended.give_up();
            }
        }
        void on_cancel() const noexcept {
            of.ended.cancel();
            of.all.cancel_in_turn();
        }
    };

    detail::task_home& home_;
    detail::join_set_state state_;
};

/// Returns async_join_next() as a case of a select (channel/select.hpp). If another case is chosen,
/// no outcome is taken.
/// Cancellation: if the awaiting task is cancelled, the select is stopped; the children continue.
template <class T> auto on_join_next(join_set<T>& set) {
    return detail::case_of(set.async_join_next());
}

} // namespace bide::inline BIDE_ABI

#endif
