// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_TASK_RUNNER_HPP
#define BIDE_SCHED_TASK_RUNNER_HPP

#include <bide/task/join_handle.hpp>

namespace bide { inline namespace BIDE_ABI {

namespace detail {
struct runner_access;
} // namespace detail

/// The common base of the classes that run tasks. A scheduler runs its tasks on workers, a run_loop
/// on the thread that runs the loop. A function that takes a `task_runner&` can start its tasks on
/// any of them.
///
/// \code
/// void start(bide::task_runner& where) { // a scheduler or a run_loop
///     where.spawn([] { std::puts("on a worker, or in the loop"); }).detach();
/// }
/// \endcode
///
/// A runner shuts down in its destructor or earlier. After that, it refuses new tasks.
class task_runner {
public:
    task_runner& operator=(task_runner&&) = delete;

    /// Starts a task. `source` is one of these:
    /// - a task;
    /// - a function that returns a task. The function is called at once, on the calling thread. The
    ///   function exists as long as the task, so the captures of a lambda stay valid for its
    ///   coroutine;
    /// - another function, which the task runs. Its return value or its exception is the outcome.
    ///
    /// If the runner is shutting down, the task does not run, and its handle reports errc::stopped.
    /// Only memory limits the number of tasks; README.md in this folder shows a loop that waits for
    /// room.
    ///
    /// The tasks of a run_loop run only on the thread that runs the loop. If that thread calls
    /// join_handle::join() of such a task, the thread blocks, and an unfinished task never ends.
    /// Use run_loop::run_until() or async_join() instead.
    ///
    /// With GCC before 13, a co_await expression must not contain a lambda that captures by value,
    /// nor an argument in braces: GCC destroys both twice (BIDE_BRACED_AWAIT_BUG in
    /// core/config.hpp). With these compilers, give the function or the handle a name before the
    /// co_await.
    /// Returns: a join_handle of the task's value.
    /// Throws: std::bad_alloc. If `source` is a function that returns a task, also what its call
    /// throws. After an exception, `source` is destroyed, and the task has not begun.
    /// Requires: if a task makes this call, that task has not ended.
    /// Thread safety: any thread may call it.
    template <detail::spawnable S> auto spawn(S source) {
        return spawn_in(home_, std::move(source));
    }

    /// Moves the awaiting coroutine to the runner, behind the queued tasks.
    async_op<void> schedule() noexcept {
        return async_op<void>(detail::yielding()).resume_on(*this);
    }

    /// Runs `r` like a task. If the runner has shut down, a thread of bide's own service runs `r`.
    /// If that service cannot be started, terminates.
    /// Thread safety: any thread may call it.
    void post(runnable& r) noexcept { home_.post(r); }

    /// Wakes `w` on the runner, as post(runnable&) runs a runnable. Terminates if there is no
    /// memory for the queue entry.
    void post(waker w) noexcept;

    /// Returns the executor of the runner's tasks.
    executor_ref executor() noexcept { return home_.executor(); }

protected:
    /// Constructs a runner. `home` queues and counts the tasks of the runner, and cancels them when
    /// the runner shuts down (detail::task_home).
    /// Requires: `home` outlives the tasks.
    explicit task_runner(detail::task_home& home) noexcept : home_(home) {}
    ~task_runner() = default;

    /// Starts a task as spawn() does, in `home`. `home` may be a part of the runner, for example
    /// the queue of the low tasks. If `tag` is not 0, the task gets the task_tag of that number
    /// instead of its own tag.
    template <detail::spawnable S>
    static auto spawn_in(detail::task_home& home, S source, std::uint8_t tag = 0) {
        auto& made = *new detail::joined_cell<S>(home, true, std::move(source));
        join_handle<detail::spawned_value_t<S>> handle(made);
        if (tag != 0) {
            made.set_tag(tag);
        }
        home.start(made);
        return handle;
    }

private:
    friend detail::runner_access;

    detail::task_home& home_;
};

namespace detail {

// Gives access to the home of a runner: the object that queues and counts its tasks.
struct runner_access {
    static task_home& home(task_runner& where) noexcept { return where.home_; }
};

} // namespace detail
}} // namespace bide::BIDE_ABI

#if BIDE_DEFINITIONS

namespace bide { inline namespace BIDE_ABI {

BIDE_COMPILED_INLINE void task_runner::post(waker w) noexcept {
    struct posted_waker : runnable {
        waker what;
    };
    auto* const made = new (std::nothrow) posted_waker;
    if (made == nullptr) {
        detail::fatal("no memory to post a waker to a scheduler");
    }
    made->what = w;
    made->run = waker(
        [](void* self) noexcept {
            const std::unique_ptr<posted_waker> mine(static_cast<posted_waker*>(self));
            mine->what.wake();
        },
        made);
    home_.post(*made);
}

}} // namespace bide::BIDE_ABI

#endif

#endif
