#ifndef BIDE_SCHED_COMPOSE_HPP
#define BIDE_SCHED_COMPOSE_HPP

// Tasks that run side by side: when_all, when_any, and groups of any number of them.

#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>
#include <bide/sched/detail/group.hpp>
#include <bide/sched/detail/siblings.hpp>
#include <bide/sched/detail/task_source.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sched/task.hpp>
#include <bide/sched/this_task.hpp>

#include <cstddef>
#include <exception>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

namespace bide::inline BIDE_ABI {

// ---- when_all, when_any
//
// Each child is posted to the executor of the coroutine that awaits, and may run in parallel with
// the others. Where it has none, the children run on the awaiting thread, one after the other, and
// go on as any coroutine does that has no executor. this_task works in them: a child has its own
// shields and its own stop token.
//
// Cancel: where the awaiting task is cancelled, its children are; it goes on when all have ended.
// Its shields keep that from them, theirs do so for each alone.
// Throws: std::bad_alloc; what a move of a value throws.
//
// A child is a task, or a callable that returns one, as a lambda coroutine with captures. Callables
// are called where the result is awaited, in order, before any child begins; if one throws, so does
// the await, and none begins. A callable is destroyed when its child has ended.
//
// With GCC before 13 no co_await expression may contain a lambda that captures by value, nor
// arguments of a task in braces, as in co_await when_all(f({1, "text"})): they are destroyed twice,
// and bide cannot refuse it (BIDE_BRACED_AWAIT_BUG in core/config.hpp). Name the lambda, the
// argument or the task before.

// Runs all, each to its end. The values in order; std::monostate for void.
// Throws: if any failed, what the first of these in argument order threw, the others' is dropped.
template <detail::task_source... Ss>
task<std::tuple<nonvoid_t<detail::task_value_t<Ss>>...>> when_all(Ss... children) {
    using until = detail::task_family::until;
    detail::siblings<Ss...> all(until::all, std::move(children)...);
    co_await all.family();
    co_return all.values();
}

// The same of any number, of none too.
template <detail::task_source S>
task<std::vector<nonvoid_t<detail::task_value_t<S>>>> when_all(std::vector<S> children) {
    using until = detail::task_family::until;
    detail::sibling_vector<S> all(until::all, children);
    co_await all.family();
    co_return all.values();
}

// Runs all until one has ended, by a value or an exception: that is the outcome. The others are
// cancelled, and waited for; those that have not begun never do. What becomes of them is dropped.
// Throws: what the first one threw.
template <detail::task_source... Ss>
    requires(sizeof...(Ss) != 0)
task<std::variant<nonvoid_t<detail::task_value_t<Ss>>...>> when_any(Ss... children) {
    using until = detail::task_family::until;
    detail::siblings<Ss...> all(until::first, std::move(children)...);
    co_await all.family();
    co_return all.first();
}

// The same of any number: which one, and its value.
// Throws: as above; std::invalid_argument, when awaited, if there are none.
template <detail::task_source S>
task<std::pair<std::size_t, nonvoid_t<detail::task_value_t<S>>>> when_any(std::vector<S> children) {
    using until = detail::task_family::until;
    if (children.empty()) {
        BIDE_THROW(std::invalid_argument("bide::when_any of nothing"));
    }
    detail::sibling_vector<S> all(until::first, children);
    co_await all.family();
    co_return all.first();
}

// ---- task_group

// Tasks on a scheduler that do not outlive their group. The first that fails cancels the others.
// Any thread may use it, its own children too, which may not wait for it.
class task_group {
public:
    explicit task_group(scheduler& where) noexcept : scheduler_(where) {}
    task_group(const task_group&) = delete;
    task_group& operator=(const task_group&) = delete;

    // Waits for all children. An error that nobody asked for is dropped. Where an exception leaves
    // the group's scope, or the running task is cancelled, it cancels the children first.
    // Blocks: until they have ended; where it may take long, async_join() before.
    // Requires: nobody else uses it any more, but its children.
    ~task_group();

    // Runs it as a child; its value is dropped. One that comes after a cancellation never starts.
    // One that the scheduler refuses, at its end, has failed with stopped_error.
    // Throws: std::bad_alloc.
    template <class T> void spawn(task<T> child) {
        auto& core = *scheduler_.core_;
        auto& cell = *new detail::group_cell<T>(group_, core, core, std::move(child));
        group_.begin(cell);
        core.start(cell);
    }

    // Cancels all children, those too that come later. Idempotent.
    void cancel() noexcept { group_.cancel(); }

    // Waits until there are no children.
    // Blocks: until then. Throws: what the first child that failed threw, each time; one that
    // was cancelled by the group, and so ended by stopped_error or never started, has not failed.
    void join() {
        group_.wait();
        group_.rethrow_if_failed();
    }

    // The same for a coroutine. If its wait ends early, by a time-out say, the children go on.
    // Throws: as join(); stopped_error where the awaiting task is cancelled.
    async_op<void> async_join() noexcept { return group_.async_wait(); }

private:
    scheduler& scheduler_;
    const int unwinding_ = std::uncaught_exceptions();
    detail::group group_;
};

inline task_group::~task_group() {
    if (std::uncaught_exceptions() > unwinding_ || this_task::is_cancelled()) {
        group_.cancel();
    }
    group_.wait();
}

} // namespace bide::inline BIDE_ABI

#endif
