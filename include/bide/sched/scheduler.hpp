// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_SCHEDULER_HPP
#define BIDE_SCHED_SCHEDULER_HPP

#include <bide/sched/scheduler_options.hpp>
#include <bide/sched/task_runner.hpp>

#if !defined(_WIN32)
#include <sys/types.h>
#endif

namespace bide { inline namespace BIDE_ABI {

namespace detail {
class scheduler_core;
class fork_entry;
struct scheduler_access;
} // namespace detail

/// Runs tasks, coroutines and functions on a fixed number of workers. A worker has a queue of
/// tasks, and runs them one at a time, on a thread that was started for it. Idle workers steal
/// tasks from busy ones. A task that awaits an operation of bide does not occupy its thread. A task
/// may also block its thread in an operation of bide. If no other worker is idle, another thread
/// runs the worker meanwhile. If no such thread can be started, queued tasks wait until another
/// worker runs them. The scheduler then tries to start the thread every 10 ms while it needs the
/// thread.
///
/// A task runs on one thread at a time, but may resume on another thread after a wait. Tasks are
/// cancelled cooperatively, by join_handle::cancel().
///
/// \code
/// bide::scheduler workers;
/// auto answer = workers.spawn([] { return compute(); });
/// workers.spawn(serve(socket)).detach(); // a coroutine, bide::task<>
/// print(std::move(answer).join());
/// \endcode
///
/// Fairness: tasks that yield run in the order of the queue of their worker. After at most 128 runs
/// of tasks, a worker compares its queue with the queue of one other worker, a different one each
/// time. If its own queue has q tasks and the other one has more than 5/4 q + 1, the worker takes
/// half of the difference. If all workers run equally many tasks, this gives a bound. Let task A
/// yield again and again, and let B be any other task. While B runs n times, A runs at least
/// n / 2 - 128 w times, where w is the number of workers. A worker whose thread gets no processor
/// runs no tasks. Without scheduler_options::enable_stealing there is no such bound.
///
/// After fork() the child process has the memory of the scheduler but none of its threads. The
/// child may destroy the scheduler. The destructor then does nothing, and the memory leaks. The
/// child must not use that scheduler in any other way. It may construct new schedulers, and
/// shared() returns a new one. If a task or an arm (a function of a fork-join) has called fork(),
/// the child may only call exec or _exit().
///
/// If the scheduler is a static object, its tasks must not call exit(): exit() would run the
/// destructor of the scheduler on one of its own workers. Tasks of other schedulers may call
/// exit(). Any task may call quick_exit().
class BIDE_SHARED scheduler : public task_runner {
    template <class F> using result_of = std::invoke_result_t<F&&>;

public:
    /// Starts the workers.
    /// Throws: std::bad_alloc. std::invalid_argument if num_workers is above 1,048,575 or no thread
    /// can have a stack of stack_size. std::system_error if a thread cannot be started (there is no
    /// memory for its stack, for example), or if the driver is attached to another scheduler. After
    /// an exception, no thread is left, and none has called on_worker_start.
    explicit scheduler(scheduler_options options = {});

    /// Starts `num_workers` workers. 0 means the default number.
    /// Throws: what the other constructor throws, also std::invalid_argument for a negative number.
    template <std::integral N>
    explicit scheduler(N num_workers)
        : scheduler(scheduler_options{.num_workers = std::in_range<unsigned>(num_workers)
                                                         ? static_cast<unsigned>(num_workers)
                                                         : ~0u}) {}

    /// Calls shutdown().
    /// Requires: the caller is not one of the scheduler's own workers, and is in none of its
    /// fork-joins; otherwise terminates with a message.
    ~scheduler();

    // For spawn() without options, schedule(), post() and executor() see task_runner.
    using task_runner::spawn;

    /// Starts a task in a priority class or on one worker. `source` is a task, a function, or a
    /// function that returns a task.
    /// Throws: what task_runner::spawn() throws; std::invalid_argument if `how` names a worker that
    /// does not exist, or names a worker and a priority. After an exception, `source` is destroyed
    /// and has not begun.
    /// Thread safety: any thread may call it.
    template <class S> auto spawn(S source, const spawn_options& how) {
        return spawn_in(home_of(how), std::move(source), detail::tag_access::number_of(how.tag));
    }

    /// Returns the number of the worker for which the calling thread was started, even if the
    /// thread runs another worker now. Returns nothing in three cases: (1) the thread was started
    /// for blocking tasks, even if it runs a worker now; (2) the thread is in on_worker_stop; (3)
    /// this scheduler has not started the thread. In a pinned task, the result is always the
    /// spawn_options::worker of the task.
    std::optional<unsigned> this_worker() const noexcept;

    /// Runs a function that blocks, on an idle or new thread for blocking tasks. If there are
    /// max_blocking_threads such threads already and none is idle, the function waits until one of
    /// them is free.
    /// Throws: what spawn() throws; std::system_error if there is no thread for blocking tasks and
    /// none can be started.
    template <class F>
        requires std::is_invocable_v<F&&>
    auto spawn_blocking(F function) -> join_handle<result_of<F>> {
        static_assert(!detail::is_task<result_of<F>>,
                      "bide: the task would outlive its function: use spawn()");
        using cell = detail::joined_cell<F>;
        auto& made = *new cell(detail::runner_access::home(*this), true, std::move(function));
        made.run_apart();
        join_handle<result_of<F>> handle(made);
        start_blocking(made);
        return handle;
    }

    /// Shuts down: refuses new tasks, cancels the tasks that wait, cancels the other tasks at their
    /// next wait, runs all queued jobs, and ends the threads. A second call, on any thread, also
    /// waits until the threads have ended. A call in on_worker_stop, or by a thread of the
    /// scheduler while the scheduler shuts down, has no effect.
    /// Blocks: until all tasks and all fork-joins of external threads have ended. A task that never
    /// waits, yields or returns blocks this call for ever. So does a task that blocks its thread in
    /// a wait that never ends. See shutdown_for().
    /// Requires: the caller is not one of the scheduler's own workers, and is in none of its
    /// fork-joins. Otherwise terminates with a message, unless the call has no effect (see above).
    /// No worker and no arm of this scheduler waits for the caller.
    void shutdown() noexcept { shut_down(deadline::never()); }

    /// Calls shutdown() with a time limit. If tasks are left at the deadline, returns false. The
    /// scheduler then continues to shut down, and its destructor waits for these tasks.
    template <class R, class P>
    bool shutdown_for(const std::chrono::duration<R, P>& duration) noexcept {
        return shut_down(deadline::after(duration));
    }

    /// Returns the number of workers.
    unsigned concurrency() const noexcept;

    /// Returns the calling thread's scheduler. In a fork-join, that is the scheduler of the
    /// fork-join. Outside of a fork-join, it is the scheduler that has started the thread; nullptr
    /// if no scheduler has started it.
    static scheduler* current() noexcept;

    /// Returns the scheduler of the process. It has default options and is started on first use. It
    /// is never destroyed, and its tasks run until the process ends. So static objects that its
    /// tasks use must not be destroyed.
    /// Throws: what the constructor throws.
    static scheduler& shared();

private:
    friend detail::fork_entry;
    friend detail::scheduler_access;

    explicit scheduler(std::unique_ptr<detail::scheduler_core> core) noexcept;

    detail::task_home& home_of(const spawn_options& how);
    void start_blocking(detail::task_header& of);
    bool shut_down(deadline until) noexcept;

#if !defined(_WIN32)
    const ::pid_t pid_;
#endif
    std::unique_ptr<detail::scheduler_core> core_;
};

namespace detail {

struct scheduler_access {
    static scheduler_core& core(const scheduler& of) noexcept { return *of.core_; }
};

} // namespace detail

/// Runs a task on the scheduler and returns its value.
/// Blocks: until the task has ended.
/// Throws: what the task throws.
template <class T> T sync_wait(scheduler& where, task<T> t) {
    return where.spawn(std::move(t)).join();
}

}} // namespace bide::BIDE_ABI

#if BIDE_DEFINITIONS

#include <bide/sched/detail/scheduler_core.hpp>

#if !defined(_WIN32)
#include <unistd.h>
#endif

namespace bide { inline namespace BIDE_ABI {

BIDE_CHECKED(BIDE_COMPILED_INLINE void dump(const scheduler& of, std::FILE* to);)

BIDE_COMPILED_INLINE scheduler::scheduler(std::unique_ptr<detail::scheduler_core> core) noexcept
    : task_runner(*core),
#if !defined(_WIN32)
      pid_(::getpid()),
#endif
      core_(std::move(core)) {
}

BIDE_COLD BIDE_COMPILED_INLINE scheduler::scheduler(scheduler_options options)
    : scheduler(std::make_unique<detail::scheduler_core>(*this, std::move(options))) {
    core_->open();
    BIDE_CHECKED(detail::wait_notes::all().add_part(this, [](const void* me, std::FILE* to) {
        bide::dump(*static_cast<const scheduler*>(me), to);
    });)
}

BIDE_COLD BIDE_COMPILED_INLINE scheduler::~scheduler() {
    BIDE_CHECKED(detail::wait_notes::all().remove_part(this);)
#if !defined(_WIN32)
    if (::getpid() != pid_) {
        static_cast<void>(core_.release());
    }
#endif
}

BIDE_COMPILED_INLINE scheduler* scheduler::current() noexcept {
    return detail::current_scheduler::here().instance;
}

BIDE_COMPILED_INLINE scheduler& scheduler::shared() {
    using all = detail::process_wide<scheduler, native_platform>;
    scheduler* const one = all::get([] { return new scheduler; });
    if (one == nullptr) {
        BIDE_THROW(std::bad_alloc());
    }
    return *one;
}

BIDE_COMPILED_INLINE detail::task_home& scheduler::home_of(const spawn_options& how) {
    return core_->home_of(how);
}
BIDE_COMPILED_INLINE std::optional<unsigned> scheduler::this_worker() const noexcept {
    return core_->thread_here();
}
BIDE_COMPILED_INLINE void scheduler::start_blocking(detail::task_header& of) {
    core_->start_blocking(of);
}
BIDE_COMPILED_INLINE bool scheduler::shut_down(deadline until) noexcept {
    return core_->shut_down(until);
}
BIDE_COMPILED_INLINE unsigned scheduler::concurrency() const noexcept {
    return detail::integer_cast<unsigned>(core_->pool().workers().size());
}

}} // namespace bide::BIDE_ABI

#if defined(BIDE_DEADLOCK_CHECK)
#include <bide/sched/report.hpp> // dump()
#endif

#endif

#endif
