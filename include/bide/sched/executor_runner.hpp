// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_EXECUTOR_RUNNER_HPP
#define BIDE_SCHED_EXECUTOR_RUNNER_HPP

/// \file
/// Runs tasks on an executor of another library, such as an event loop or a thread pool.
//
// The tasks of a runner belong to one object, their home (task_control.hpp). The runner holds a
// reference to the home. Each task holds one, too, from start() until task_ended(), which is the
// task's last access to the home. The last reference deletes the home. So the runner's destructor
// does not wait for the tasks. An executor that counts its users counts each task
// (core/resume.hpp).

#include <bide/sched/task_runner.hpp>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

class executor_home;

// Drops the reference of a runner to its home.
struct executor_home_release {
    void operator()(executor_home* home) const noexcept;
};
using executor_home_use = std::unique_ptr<executor_home, executor_home_release>;

} // namespace detail

/// Runs tasks on an executor that is not a scheduler of bide. A task is posted to the executor when
/// it starts, and each time it resumes. The tasks use the same operations as the tasks of a
/// scheduler, and are cancelled in the same way. Groups, sets and streams accept this runner
/// instead of a scheduler.
///
/// A time-out of such a task fires on bide's timer thread, which then posts the task.
///
/// \code
/// bide::executor_runner ui(loop);
/// ui.spawn(show_progress(download)).detach();
/// \endcode
class executor_runner : public task_runner {
public:
    /// Constructs a runner that posts to `where`. If an exception leaves a task whose handle was
    /// dropped, `on_unhandled` gets the exception, on the thread where the task has ended. If there
    /// is no `on_unhandled`, such an exception terminates the program.
    /// Throws: std::bad_alloc.
    /// Requires: `where` runs what is posted to it, and exists until the last task has ended, which
    /// may be after the destruction of this runner. If a strand, a poll_executor or an executor of
    /// Asio is destroyed earlier, the program terminates with a message.
    template <bide::executor S>
    explicit executor_runner(S& where,
                             std::function<void(std::exception_ptr)> on_unhandled = nullptr)
        : executor_runner(home_on(where, std::move(on_unhandled))) {}

    /// Calls close(). Does not block. The executor runs the remaining tasks to their end.
    ~executor_runner() { close(); }

    /// Refuses new tasks and cancels the present ones, as scheduler::shutdown() does, but does not
    /// wait for them.
    /// Requires: the executor runs until tasks() is 0.
    void close() noexcept;

    /// Returns the number of tasks that have not ended. The number is a snapshot. After close(), 0
    /// means that the tasks no longer need the executor.
    std::size_t tasks() const noexcept;

    /// Starts one task on an executor: see spawn(where, source).
    template <class S>
    static auto spawn_on(executor_ref where, S source,
                         std::function<void(std::exception_ptr)> on_unhandled) {
        const auto use = home_on(where, std::move(on_unhandled));
        return spawn_in(home_of(use), std::move(source)); // from now on the task keeps the home
    }

private:
    using home_use = detail::executor_home_use;

    explicit executor_runner(home_use use) noexcept
        : task_runner(home_of(use)), home_(std::move(use)) {}

    static home_use home_on(executor_ref where,
                            std::function<void(std::exception_ptr)> on_unhandled);
    static detail::task_home& home_of(const home_use& use) noexcept;

    const home_use home_;
};

/// Starts a task on an executor of another library. `source` is a task, a function, or a function
/// that returns a task (see task_runner::spawn()). The task resumes on this executor after each
/// wait.
///
/// If the executor has only one thread, await async_join() on that thread: join() would block it,
/// and the task would not run.
/// Returns: the handle. If the handle is dropped and the task throws, the program terminates.
/// Throws: std::bad_alloc. Then `source` is destroyed and has not begun.
/// Requires: `where` runs what is posted to it, and exists until the task has ended.
template <executor S, class Source>
    requires(!std::derived_from<S, task_runner>)
auto spawn(S& where, Source source) {
    return executor_runner::spawn_on(executor_ref(where), std::move(source), nullptr);
}

/// Starts a task on an executor of another library, without a handle. If an exception leaves the
/// task, `on_error` gets the exception, on the thread where the task has ended. For everything
/// else, see spawn(where, source).
template <executor S, class Source, std::invocable<std::exception_ptr> Handler>
    requires(!std::derived_from<S, task_runner>)
void spawn(S& where, Source source, Handler on_error) {
    executor_runner::spawn_on(executor_ref(where), std::move(source), std::move(on_error)).detach();
}

}} // namespace bide::BIDE_ABI

#if BIDE_DEFINITIONS

namespace bide { inline namespace BIDE_ABI {

namespace detail {

class executor_home final : public task_home {
    using platform = native_platform;

public:
    executor_home(executor_ref where, std::function<void(std::exception_ptr)> on_unhandled)
        : where_(where), unhandled_(std::move(on_unhandled)) {}

    // Refuses later tasks and cancels the present ones. A second call has no effect.
    void close() noexcept {
        // Order: relaxed; a task that does not see this store is cancelled, too. If the task is in
        // the list, it is cancelled below; if not, it is cancelled when it first waits.
        if (closing_.exchange(true, std::memory_order_relaxed)) {
            return;
        }
        tasks_.close();
        tasks_.for_each([](task_header& t) { t.cancel(cancel_reason::shutdown); });
    }

    // Order: acquire; sees what the ended tasks did before their drop().
    std::size_t tasks() const noexcept { return users_.load(std::memory_order_acquire) - 1; }

    void start(task_header& t) noexcept override {
        // Order: relaxed; the caller keeps the home alive.
        users_.fetch_add(1, std::memory_order_relaxed);
        executor_use::begin(where_);
        if (is_closing()) {
            t.refuse();
        } else {
            post(t.to_run());
        }
    }
    void post(runnable& r) noexcept override {
        const executor_ref where = where_; // running `r` may destroy this home
        where.post(r);
    }
    executor_ref executor() noexcept override { return where_; }

    void drop() noexcept {
        // Order: acq_rel; the deletion comes after the accesses of all other users.
        if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            delete this;
        }
    }

private:
    ~executor_home() = default;

    unsigned registry_here() const noexcept override { return 0; }
    basic_task_registry<platform>& registry(unsigned) noexcept override { return tasks_; }
    bool is_here() const noexcept override { return true; } // a task keeps its home
    bool is_closing() const noexcept override {
        // Order: relaxed; see close().
        return closing_.load(std::memory_order_relaxed);
    }
    void task_ended() noexcept override {
        executor_use::end(where_);
        drop();
    }
    const unhandled& handler() const noexcept override { return unhandled_; }

    const executor_ref where_;
    const unhandled unhandled_;
    basic_task_registry<platform> tasks_;
    platform::atomic<std::size_t> users_{1}; // the runner, and the tasks that have not ended
    platform::atomic<bool> closing_{false};
};

BIDE_COMPILED_INLINE void executor_home_release::operator()(executor_home* home) const noexcept {
    home->drop();
}

} // namespace detail

BIDE_COMPILED_INLINE void executor_runner::close() noexcept { home_->close(); }

BIDE_COMPILED_INLINE std::size_t executor_runner::tasks() const noexcept { return home_->tasks(); }

BIDE_COMPILED_INLINE detail::executor_home_use
executor_runner::home_on(executor_ref where, std::function<void(std::exception_ptr)> on_unhandled) {
    static_cast<void>(
        detail::error_of<stopped_error>(errc::stopped)); // made before any cancellation needs it
    return home_use(new detail::executor_home(where, std::move(on_unhandled)));
}

BIDE_COMPILED_INLINE detail::task_home& executor_runner::home_of(const home_use& use) noexcept {
    return *use;
}

}} // namespace bide::BIDE_ABI

#endif

#endif
