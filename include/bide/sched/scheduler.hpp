#ifndef BIDE_SCHED_SCHEDULER_HPP
#define BIDE_SCHED_SCHEDULER_HPP

#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/detail/process_wide.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/waker.hpp>
#include <bide/sched/detail/dump.hpp>
#include <bide/sched/detail/scheduler_core.hpp>
#include <bide/sched/scheduler_options.hpp>
#include <bide/task/detail/task_body.hpp>
#include <bide/task/detail/task_cell.hpp>
#include <bide/task/detail/unqueued_wait.hpp>
#include <bide/task/join_handle.hpp>
#include <bide/task/task.hpp>

#include <chrono>
#include <cstdio>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#if !defined(_WIN32)
#include <unistd.h>
#endif

namespace bide::inline BIDE_ABI {

namespace detail {
class fork_entry;
class group_entry;
} // namespace detail

// Runs tasks, coroutines and plain functions, on a fixed number of workers, each a thread, that
// steal from each other. A task that waits for something of bide's costs no thread. One that blocks
// its thread in something of bide's is legal too: where no other worker is idle, another thread
// takes the worker over until then. If none can be started, what is queued waits for another
// worker, or for that thread, which tries to start one every 10 ms.
//
// What a task does happens in order, on one thread at a time, not always on the same. Tasks are
// cancelled cooperatively: join_handle::cancel().
//
// After fork() the child has the memory but none of the threads: it may destroy the scheduler,
// which then does nothing but leave its memory, and use new ones; nothing else of it. shared() is
// a new one there. A child that a task or an arm forked may only call exec or
// _exit().
//
// exit() may be called by a task, but not by one of a scheduler that exit() destroys, a static
// one: the destructor is on one of its own workers then. quick_exit() may be called by any task.
class scheduler {
    template <class F> using result_of = std::invoke_result_t<F&&>;

public:
    // Throws: std::bad_alloc; std::system_error when a thread cannot be started, or another
    // scheduler has the driver. No thread is left behind then.
    explicit scheduler(scheduler_options options = {})
        : core_(std::make_unique<detail::scheduler_core>(*this, std::move(options))) {
        core_->open();
    }

    // shutdown(). From one of its own workers: terminates with a message.
    ~scheduler() {
        if (is_forked()) {
            static_cast<void>(core_.release());
        }
    }

    scheduler(const scheduler&) = delete;
    scheduler& operator=(const scheduler&) = delete;

    // Makes it run, on a worker. Any thread; from a task, before that task has ended. Where the
    // scheduler is shutting down it does not run, and its handle says stopped.
    // With GCC before 13 no co_await expression may contain a lambda that captures by value, nor
    // arguments of the task in braces: they are destroyed twice (BIDE_BRACED_AWAIT_BUG in
    // core/config.hpp). There, name the function or the handle before: this goes for all below.
    // Throws: std::bad_alloc; the task, or the function, has not begun, and is destroyed.
    template <class T> join_handle<T> spawn(task<T> t) {
        using cell = detail::joined_coroutine_cell<task<T>>;
        return launch((new cell(*core_, true, std::move(t)))->outcome());
    }

    // The same with a function, whose value or exception is the outcome.
    template <class F>
        requires std::is_invocable_v<F&&> && (!detail::is_task<result_of<F>>)
    auto spawn(F function) -> join_handle<result_of<F>> {
        using cell = detail::function_cell<F, result_of<F>>;
        return launch((new cell(*core_, std::move(function), false, true))->outcome());
    }

    // The same with a function that returns a task. It is called here, and lives as long as the
    // task: a lambda's captures are there for its coroutine.
    template <class F>
        requires std::is_invocable_v<F&&> && detail::task_source<F>
    auto spawn(F function) -> join_handle<detail::task_value_t<F>> {
        using cell = detail::joined_coroutine_cell<F>;
        return launch((new cell(*core_, true, std::move(function)))->outcome());
    }

    // Runs a function that blocks, in the system or elsewhere, on a thread apart: an idle one, a
    // new one, or, where there are max_blocking_threads, the next that is free.
    // Throws: as spawn(); std::system_error where there is no thread and none can be started.
    template <class F>
        requires std::is_invocable_v<F&&>
    auto spawn_blocking(F function) -> join_handle<result_of<F>> {
        using cell = detail::function_cell<F, result_of<F>>;
        auto& made = *new cell(*core_, std::move(function), true, true);
        join_handle<result_of<F>> handle(made.outcome());
        core_->start_blocking(made);
        return handle;
    }

    // co_await s.schedule(): goes on on a worker of this scheduler, after what is queued there.
    async_op<void> schedule() noexcept;

    // Runs it on a worker. Any thread. After the scheduler's end, on a resumer of bide's service;
    // terminates where that cannot be started.
    void post(runnable& r) noexcept { core_->post(r); }

    // What its tasks have as their executor.
    executor_ref executor() noexcept { return core_->executor(); }

    // The same. Terminates where there is no memory for its place in the queue.
    void post(waker w) noexcept;

    // The end: takes no more tasks; cancels those that wait, and the others when they next wait;
    // runs what is queued; ends the threads. Again, or from several threads: waits for the same.
    // Blocks: until all tasks have ended, and the fork-joins of threads from elsewhere. One that
    // never waits, never gives way and never returns keeps it waiting for ever, and so does one
    // that blocks its thread until another thread ends that: see shutdown_for().
    // Requires: not called by one of its own workers or in an arm, which terminates with a message
    // (in on_worker_stop, and while it is closing already, it has no effect); nor in an arm that one
    // of these waits for.
    void shutdown() noexcept { core_->shutdown(deadline::never()); }

    // shutdown(), for at most so long. False: some tasks have not ended. The scheduler goes on
    // closing, and its destructor waits for them.
    template <class R, class P>
    bool shutdown_for(const std::chrono::duration<R, P>& rest) noexcept {
        return core_->shutdown(deadline::after(rest));
    }

    // How many workers there are.
    unsigned concurrency() const noexcept {
        return static_cast<unsigned>(core_->pool().workers().size());
    }

    // Of all workers, and of one. Requires: worker < concurrency().
    scheduler_stats stats() const noexcept;
    scheduler_stats stats(unsigned worker) const noexcept;

    // Writes what the workers do, what is queued, and the names of the tasks that wait, for people
    // to read. Any thread, any time; what it says may be a moment old. Throws: std::bad_alloc.
    void dump(std::FILE* to) const { detail::dump(*core_, to); }

    // The scheduler in whose fork-join the calling thread is, or else whose worker, or thread for
    // blocking tasks, it is; or nullptr.
    static scheduler* current() noexcept { return detail::current_scheduler::here().face; }

    // One for the process, with default options, started on first use. It is never destroyed: its
    // tasks go on until the process ends, so a static that they wait for must not be destroyed.
    // Throws: std::bad_alloc, and as the constructor does.
    static scheduler& shared() {
        using all = detail::process_wide<scheduler, native_platform>;
        scheduler* const one = all::get([] { return new scheduler; });
        if (one == nullptr) {
            BIDE_THROW(std::bad_alloc());
        }
        return *one;
    }

private:
    friend detail::fork_entry;
    friend detail::group_entry;

    template <class T> join_handle<T> launch(detail::joined_outcome<T>& of) noexcept {
        join_handle<T> handle(of);
        core_->start(of.task());
        return handle;
    }

#if defined(_WIN32)
    static bool is_forked() noexcept { return false; }
#else
    bool is_forked() const noexcept { return ::getpid() != pid_; }
    const ::pid_t pid_ = ::getpid();
#endif

    std::unique_ptr<detail::scheduler_core> core_;
};

inline async_op<void> scheduler::schedule() noexcept { return detail::yield().resume_on(*this); }

inline void scheduler::post(waker w) noexcept {
    struct posted_call : runnable {
        waker what;
    };
    auto* const e = new (std::nothrow) posted_call;
    if (e == nullptr) {
        detail::fatal("no memory to post a waker to a scheduler");
    }
    e->what = w;
    e->run = waker(
        [](void* self) noexcept {
            const std::unique_ptr<posted_call> mine(static_cast<posted_call*>(self));
            mine->what.wake();
        },
        e);
    core_->post(*e);
}

inline scheduler_stats scheduler::stats(unsigned worker) const noexcept {
    const auto& w = core_->pool().workers()[worker];
    scheduler_stats s;
    s.completed = w.completed.read();
    s.spawned = w.spawned.read();
    s.polled = w.polled.read();
    s.stolen = w.stolen.read();
    s.steal_batches = w.steal_batches.read();
    s.overflowed = w.overflowed.read();
    s.parked = w.parked.read();
    s.woken = w.woken.read();
    s.injected = w.injected.read();
    s.timers_fired = w.timers_fired.read();
    return s;
}

inline scheduler_stats scheduler::stats() const noexcept {
    const auto outside = core_->outside();
    scheduler_stats sum;
    sum.spawned = outside.spawned;
    sum.completed = outside.ended;
    for (unsigned i = 0; i < concurrency(); ++i) {
        sum += stats(i);
    }
    return sum;
}

// Runs the task on the scheduler and blocks this thread until its end. Throws: what it throws.
template <class T> T sync_wait(scheduler& where, task<T> t) {
    return where.spawn(std::move(t)).join();
}

} // namespace bide::inline BIDE_ABI

#endif
