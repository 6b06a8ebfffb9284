// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_TASK_GROUP_HPP
#define BIDE_SCHED_TASK_GROUP_HPP

/// \file
/// Structured concurrency: tasks that do not outlive their group. A group may limit how many of its
/// tasks exist at a time.
///
/// A coroutine that awaits the end of a group holds no thread, however deeply groups are nested.

#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/sched/detail/group.hpp>
#include <bide/sched/task_runner.hpp>
#include <bide/sync/permit.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/cancel_reason.hpp>
#include <bide/task/detail/task_cell.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#include <coroutine>
#include <cstddef>
#include <exception>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace bide { inline namespace BIDE_ABI {

/// Runs tasks on a scheduler or a run_loop and waits for all of them. The first child that fails
/// cancels the other children.
///
/// A group may have a limit. It never has more children at a time than that: spawn() blocks until
/// there is room for one more child, and async_spawn() waits for that. A child takes its room until
/// it has ended and its frame is destroyed. Callers that wait for room get it in the order in which
/// they began to wait.
///
/// Thread safety: any thread may call any member concurrently, except the destructor. A child may
/// spawn and cancel, but must not wait for its own group. In a group with a limit, a spawn by a
/// child may wait for the end of another child. If all children wait in this way, none of them
/// ends.
/// Destroys: waits for all children. If an exception leaves the scope of the group, or the running
/// task is cancelled, the destructor cancels the children first.
class task_group {
    template <class F> using value_of = detail::task_value_t<std::invoke_result_t<F&, task_group&>>;

public:
    /// Makes an empty group. Its children run on `where`.
    explicit task_group(task_runner& where) noexcept : task_group(where, no_limit) {}
    /// Makes an empty group of at most `limit` children at a time.
    /// Throws: std::invalid_argument if `limit` is zero.
    task_group(task_runner& where, std::size_t limit)
        : home_(detail::runner_access::home(where)), room_(permits_for(limit)),
          group_(limit == no_limit ? nullptr : &room_) {}
    task_group(const task_group&) = delete;
    task_group& operator=(const task_group&) = delete;

    /// Runs body(group), which returns a task, and returns its value when the body and all children
    /// have ended. It starts when it is awaited, and waits without a thread.
    ///
    /// The body runs as a separate task on `where`, and may wait for the children. If the body
    /// fails, the children are cancelled. If a child fails, the other children and the body are
    /// cancelled. With GCC before 13, give the body a name in an earlier statement (see
    /// scheduler::spawn()).
    /// Blocks: never, with one exception: if the task is destroyed before its end, the destruction
    /// blocks until the body and all children have ended.
    /// Throws: the first failure, after all have ended; stopped_error, if the awaiting task was
    /// cancelled, or if the cancellation of the group has stopped the body; std::bad_alloc.
    /// Cancellation: cancels the body and all children, and waits for them.
    template <class F> static task<value_of<F>> run(task_runner& where, F body) {
        return run_in(where, no_limit, std::move(body));
    }
    /// Runs body(group) as above, with a group of at most `limit` children at a time. The body does
    /// not count as a child.
    /// Throws: std::invalid_argument in this call, if `limit` is zero.
    template <class F> static task<value_of<F>> run(task_runner& where, std::size_t limit, F body) {
        static_cast<void>(permits_for(limit));
        return run_in(where, limit, std::move(body));
    }

    /// Waits for all children. If a child failed and no join() has thrown its exception, the
    /// exception is dropped. If an exception leaves the group's scope, or the running task is
    /// cancelled, cancels the children first.
    /// Blocks: until all children have ended. To avoid blocking, await async_join() before, or use
    /// run(). If the calling thread belongs to a scheduler, another thread takes its place, even if
    /// that needs one thread more than scheduler_options::max_blocking_threads. If the group is on
    /// a run_loop, the loop belongs to the thread that has run it last, or to its maker if no
    /// thread has run it. That thread runs the tasks of the loop inside of this call, until another
    /// thread runs the loop. Any other thread only waits: the children do not end while no thread
    /// runs the loop.
    /// Requires: no thread uses the group, except its children.
    ~task_group();

    /// Runs a child. `source` is a task; a function that returns a task, which is called on the
    /// calling thread and destroyed when the child has ended, so that the coroutine of a lambda may
    /// use the captures; or another function, which the child runs. The value of the child is
    /// dropped. If the group is cancelled, the child never starts. If the runner has shut down, the
    /// child counts as failed with stopped_error.
    /// Blocks: if the group has a limit, until there is room for one more child. A task of a
    /// run_loop must not block in this call; it uses async_spawn().
    /// Throws: std::bad_alloc, and what the call of a function that returns a task throws.
    template <class S>
        requires detail::task_source<S> || detail::plain_function<S>
    void spawn(S source) {
        auto child = detail::as_task_source(source);
        permit one = group_.has_limit() ? permit(room_) : permit();
        launch(std::move(child), &detail::group::begin);
        one.forget(); // the end of the child returns it
    }

    /// The wait for room; made by async_spawn(). S is the task, or the function that returns it.
    template <class S> class [[nodiscard("co_await it")]] spawn_operation;

    /// Runs a child, as spawn() does, when there is room for one more child. The operation waits
    /// for the room when it is awaited, and then calls a function that returns a task. If the group
    /// has no limit, it does not wait.
    /// Returns: an operation for co_await, without a value. If it is not awaited, the child never
    /// begins, and is destroyed.
    /// Throws: as spawn(), when awaited; stopped_error, if the awaiting task is cancelled while it
    /// waits. The child then never begins, and is destroyed.
    /// Cancellation: the wait is stopped; the group is not cancelled.
    template <class S>
        requires detail::task_source<S> || detail::plain_function<S>
    auto async_spawn(S source) {
        auto child = detail::as_task_source(source);
        return spawn_operation<decltype(child)>(*this, std::move(child));
    }

    /// Cancels the body and all children, also those that are spawned later. A second call has no
    /// effect.
    /// Requires: `why` is not cancel_reason::none.
    void cancel(cancel_reason why = cancel_reason::requested) noexcept { group_.cancel(why); }

    /// Waits until there are no children.
    /// Blocks: until all children have ended, as ~task_group() does.
    /// Throws: the exception of the first child that failed, in each call. A child that the group
    /// has cancelled, and that ended by stopped_error or never started, has not failed.
    void join() {
        detail::block_until(group_.of_children(), home_);
        group_.rethrow_if_failed();
    }

    /// Waits as join() does, for a coroutine. If the wait ends early, by a time-out, a stop or a
    /// select, the children continue.
    /// Throws: as join(), also with as_result(); stopped_error, if the awaiting task is cancelled.
    /// Cancellation: if the awaiting task is cancelled or destroyed, the group is cancelled; a
    /// cancelled task waits until the children have ended.
    async_op<void> async_join() noexcept { return group_.of_children().async_wait(); }

private:
    static constexpr std::size_t no_limit = (std::numeric_limits<std::size_t>::max)();

    static std::ptrdiff_t permits_for(std::size_t limit) {
        if (limit == 0) {
            BIDE_THROW(std::invalid_argument("bide::task_group: a limit of 0"));
        }
        constexpr std::ptrdiff_t most = (semaphore::max)();
        return limit < static_cast<std::size_t>(most) ? static_cast<std::ptrdiff_t>(limit) : most;
    }

    template <class F>
    static task<value_of<F>> run_in(task_runner& where, std::size_t limit, F body);

    template <class S>
    void launch(S source, void (detail::group::*begin)(detail::group_member&) noexcept) {
        auto& cell = *new detail::group_cell<S>(home_, false, std::move(source), group_);
        (group_.*begin)(cell.member());
        home_.start(cell);
    }

    detail::task_home& home_;
    const int unwinding_ = std::uncaught_exceptions();
    semaphore room_; // has a permit for each child that may be spawned, if there is a limit
    detail::group group_;
};

namespace detail {

// The outcome of the body of a group.
template <class T> struct body_outcome {
    kept_outcome<T> value;
    bool has_value = false;
};

template <class F, class T> task<> run_body(F& body, task_group& of, body_outcome<T>& outcome) {
    if constexpr (std::is_void_v<T>) {
        co_await body(of);
    } else {
        outcome.value.set(co_await body(of));
    }
    outcome.has_value = true;
}

} // namespace detail

template <class F>
task<task_group::value_of<F>> task_group::run_in(task_runner& where, std::size_t limit, F body) {
    using value = value_of<F>;
    detail::body_outcome<value> outcome;
    task_group group(where, limit);
    group.launch(detail::run_body<F, value>(body, group, outcome), &detail::group::begin_body);
    co_await group.group_.of_all().async_wait();
    if (!outcome.has_value) {
        detail::throw_error(errc::stopped);
    }
    co_return outcome.value.take();
}

template <class S> class task_group::spawn_operation {
public:
    /// Takes the operation over, before it is awaited.
    spawn_operation(spawn_operation&&) = default;
    spawn_operation& operator=(spawn_operation&&) = delete;

    /// The awaiter of the operation.
    class awaiter {
    public:
        /// Constructs the awaiter of `of`, which exists until the end of the await expression.
        explicit awaiter(spawn_operation& of) noexcept
            : of_(of), wait_for_room_(of.group_.room_.async_acquire()), wait_(wait_for_room_) {}
        awaiter(const awaiter&) = delete;
        awaiter& operator=(const awaiter&) = delete;

        /// Takes room for a child.
        /// Returns: true if the coroutine need not suspend.
        bool await_ready() noexcept { return !has_limit() || wait_.await_ready(); }
        /// Queues the wait for room.
        /// Returns: true if the coroutine stays suspended.
        template <class Promise> bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
            return wait_.await_suspend(h);
        }
        /// Starts the child.
        /// Throws: as async_spawn().
        void await_resume() {
            permit one = has_limit() ? wait_.await_resume() : permit();
            of_.group_.launch(std::move(of_.source_), &detail::group::begin);
            one.forget(); // the end of the child returns it
        }

    private:
        bool has_limit() const noexcept { return of_.group_.group_.has_limit(); }

        spawn_operation& of_;
        async_op<permit> wait_for_room_;
        async_op<permit>::awaiter wait_;
    };
    /// Returns the awaiter.
    awaiter operator co_await() && noexcept { return awaiter(*this); }

private:
    friend task_group;

    spawn_operation(task_group& group, S&& source) noexcept(std::is_nothrow_move_constructible_v<S>)
        : group_(group), source_(std::move(source)) {}

    task_group& group_;
    S source_;
};

inline task_group::~task_group() {
    if (std::uncaught_exceptions() > unwinding_ || this_task::is_cancelled()) {
        group_.cancel(cancel_reason::parent);
    }
    detail::block_until(group_.of_all(), home_);
}

}} // namespace bide::BIDE_ABI

#endif
