#ifndef BIDE_SCHED_TASK_GROUP_HPP
#define BIDE_SCHED_TASK_GROUP_HPP

// Structured concurrency: any number of tasks that do not outlive their group. No end of a group
// needs a thread while it is awaited, however many groups are in groups.

#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/sched/detail/group_cell.hpp>
#include <bide/sched/detail/group_entry.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/task/detail/task_source.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#include <exception>
#include <functional>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {

// Tasks on a scheduler that do not outlive their group. The first that fails cancels the others.
// Any thread may use it, its own children too, but these must not wait for it.
class task_group {
    template <class F> using value_of = detail::task_value_t<std::invoke_result_t<F&, task_group&>>;

public:
    explicit task_group(scheduler& where) noexcept : scheduler_(where) {}
    task_group(const task_group&) = delete;
    task_group& operator=(const task_group&) = delete;

    // A group around a function: awaited, it calls body(group), waits for the task that this
    // returns and for all children, without a thread, however they end, and gives the body's value.
    // The body is a task of its own, on `where`, and may wait for the children. Where it fails they
    // are cancelled, where one of them does the body is, and where the awaiting task is cancelled
    // all are. With GCC before 13, name the body before (see scheduler::spawn()).
    // Throws: when all have ended, what the first of them that failed threw; stopped_error where
    // the awaiting task was cancelled, or the body has ended by the group's cancellation;
    // std::bad_alloc.
    // Blocks: only where it is destroyed before its end: until all have ended.
    template <class F> static task<value_of<F>> run(scheduler& where, F body);

    // Waits for all children. An error that was not asked for is dropped. Where an exception leaves
    // the group's scope, or the running task is cancelled, it cancels the children first.
    // Blocks: until they have ended; async_join() before, or run(), does without. A thread of a
    // scheduler that blocks here is replaced, even by one more than max_blocking_threads.
    // Requires: it is not used any more, but by its children.
    ~task_group();

    // Runs it as a child; its value is dropped. One that comes after a cancellation never starts.
    // One that the scheduler refuses, at its end, has failed with stopped_error.
    // Throws: std::bad_alloc.
    template <class T> void spawn(task<T> child) {
        launch(std::move(child), &detail::group::begin);
    }

    // The same with a function that returns a task. It is called here, and lives as long as the
    // child: a lambda's captures are there for its coroutine. Throws: what it throws.
    template <class F>
        requires detail::task_source<F>
    void spawn(F function) {
        launch(std::move(function), &detail::group::begin);
    }

    // Cancels all children, those too that come later, and the body. Idempotent.
    void cancel() noexcept { group_.cancel(); }

    // Waits until there are no children.
    // Blocks: until then. Throws: what the first child that failed threw, each time; one that
    // was cancelled by the group, and so ended by stopped_error or never started, has not failed.
    void join() {
        detail::block_until(group_.of_children());
        group_.rethrow_if_failed();
    }

    // The same for a coroutine. Where its task is cancelled, or it is destroyed, the group is, and
    // it throws when the children have ended. If its wait ends early, by a time-out, a stop or in a
    // select, the children go on.
    // Throws: as join(), also with as_result(); stopped_error where the awaiting task is cancelled.
    async_op<void> async_join() noexcept { return group_.of_children().async_wait(); }

private:
    template <class S>
    void launch(S source, void (detail::group::*begin)(detail::group_member&) noexcept) {
        using coroutine = detail::task_group_coroutine<detail::task_value_t<S>>;
        auto& core = detail::group_entry::core(scheduler_);
        auto& cell = *new detail::group_cell<S, coroutine>(group_, core, std::move(source));
        (group_.*begin)(cell);
        core.start(cell);
    }

    scheduler& scheduler_;
    const int unwinding_ = std::uncaught_exceptions();
    detail::group group_;
};

namespace detail {

// What the body of a group came to.
template <class T> struct body_outcome {
    task_outcome<T> value;
    bool is_there = false;
};
template <> struct body_outcome<void> {
    bool is_there = false;
};

template <class F, class T> task<> run_body(F& body, task_group& of, body_outcome<T>& outcome) {
    if constexpr (std::is_void_v<T>) {
        co_await std::invoke(body, of);
    } else {
        outcome.value.set(co_await std::invoke(body, of));
    }
    outcome.is_there = true;
}

} // namespace detail

template <class F> task<task_group::value_of<F>> task_group::run(scheduler& where, F body) {
    using value = value_of<F>;
    detail::body_outcome<value> outcome;
    task_group group(where);
    group.launch(detail::run_body<F, value>(body, group, outcome), &detail::group::begin_body);
    co_await group.group_.of_all().async_wait();
    if (!outcome.is_there) {
        detail::throw_error(errc::stopped);
    }
    if constexpr (!std::is_void_v<value>) {
        co_return outcome.value.take();
    }
}

inline task_group::~task_group() {
    if (std::uncaught_exceptions() > unwinding_ || this_task::is_cancelled()) {
        group_.cancel();
    }
    detail::block_until(group_.of_all());
}

} // namespace bide::inline BIDE_ABI

#endif
