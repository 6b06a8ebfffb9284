// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_RUN_LOOP_HPP
#define BIDE_SCHED_RUN_LOOP_HPP

#include <bide/sched/scheduler_options.hpp>
#include <bide/sched/task_runner.hpp>

namespace bide { inline namespace BIDE_ABI {

/// The options of a run_loop.
struct run_loop_options {
    /// The driver in which the loop waits for files (io/epoll_driver.hpp). See scheduler_options.
    driver* io = nullptr;

    /// Called with an exception that has left a task whose handle was dropped. See
    /// scheduler_options.
    std::function<void(std::exception_ptr)> on_unhandled{};

    /// How much later than requested a sleep or a time-out may end. See scheduler_options.
    std::chrono::microseconds timer_slack{0};

    /// Receives the events of the loop, which counts as worker 0 (trace_sink). It must outlive
    /// the loop. nullptr: no trace.
    trace_sink* trace = nullptr;
};

namespace detail {
class run_loop_core;
struct run_loop_access;
} // namespace detail

/// Runs tasks on the thread that calls run(), poll() or another function that runs the loop. A loop
/// starts no thread. So it suits the main loop of a game or of a user interface, tests, and
/// programs with one thread. One thread at a time runs the loop. Other threads may spawn and post
/// at any time.
///
/// Its tasks use the same operations as the tasks of a scheduler, and are cancelled in the same
/// way. They run in the order in which they became runnable. Tasks run only inside of run(), poll()
/// and the like. There is one exception: a thread that waits for the tasks of a group, a set or a
/// stream on the loop runs tasks meanwhile (task_group.hpp). A task that blocks its thread blocks
/// the loop. For functions that block outside of bide, use scheduler::spawn_blocking().
///
/// \code
/// bide::run_loop loop;
/// loop.spawn(serve());
/// while (!window.is_closed()) {
///     loop.poll();
///     window.draw();
/// }
/// \endcode
class run_loop : public task_runner {
public:
    /// Constructs a loop without tasks.
    /// Throws: std::bad_alloc. std::system_error (device_or_resource_busy) if the driver is
    /// attached to another scheduler.
    explicit run_loop(run_loop_options options = {});

    /// Cancels all tasks, as scheduler::shutdown() does, and runs the loop until they have ended. A
    /// runnable that is posted after that runs on a thread of bide's own service.
    /// Blocks: until all tasks have ended.
    /// Requires: no thread runs the loop, and no task of another runner waits to resume on this
    /// loop by resume_on(); otherwise terminates with a message.
    ~run_loop();

    // ---- Running. Each function terminates with a message if another thread or one of the loop's
    // own tasks runs the loop already.

    /// Runs tasks and posted runnables until no task is left and nothing is queued, or until
    /// stop().
    /// Returns: how many runnables it ran and tasks it resumed.
    /// Blocks: while all tasks wait.
    std::size_t run() noexcept { return run_by(deadline::never()); }

    /// Runs as run() does, at most for a time. A task that does not wait may delay the return.
    template <class R, class P> std::size_t run_for(const std::chrono::duration<R, P>& duration) {
        return run_by(deadline::after(duration));
    }
    /// Runs as run() does, at most until a time.
    template <class C, class D> std::size_t run_until(const std::chrono::time_point<C, D>& when) {
        return run_by(deadline::at(when));
    }

    /// Spawns the task `t`, and runs the loop until `t` has ended. Other tasks run meanwhile. If
    /// stop() is called meanwhile, it ends the next run() instead of this call.
    /// Returns: the value of `t`.
    /// Blocks: while all tasks wait.
    /// Throws: what the task throws; std::bad_alloc.
    template <class T> T run_until(task<T> t) {
        join_handle<T> handle = spawn(std::move(t));
        run_to_end_of(handle.held());
        return std::move(handle).join();
    }

    /// Runs the tasks that are runnable or whose timers have expired, until every task waits. Does
    /// not block. If a task yields again and again, poll() does not return; use run_for().
    /// Returns: how many runnables it ran and tasks it resumed.
    std::size_t poll() noexcept;

    /// Ends the present call of run(), run_for(), run_until() with a time, or poll(). If there is
    /// no such call, ends the next one. The tasks continue in the call after that.
    /// Thread safety: any thread may call it.
    /// Memory order: what happens before stop() happens before the return of the call that it ends.
    void stop() noexcept;

    // ---- Tasks. For spawn(), schedule(), post() and executor() see task_runner.

    /// Returns the number of tasks that have not ended. A snapshot.
    std::size_t tasks() const noexcept;

private:
    friend detail::run_loop_access;

    explicit run_loop(std::unique_ptr<detail::run_loop_core> core) noexcept;

    std::size_t run_by(deadline until) noexcept;
    void run_to_end_of(const detail::task_header& task) noexcept;

    const std::unique_ptr<detail::run_loop_core> core_;
};

namespace detail {

struct run_loop_access {
    static run_loop_core& core(const run_loop& of) noexcept { return *of.core_; }
};

} // namespace detail

}} // namespace bide::BIDE_ABI

#if BIDE_DEFINITIONS

#include <bide/sched/detail/lifecycle.hpp>
#include <bide/sched/detail/loop.hpp>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

// The core of a loop. It is the home of the tasks of the loop (task_control.hpp).
class run_loop_core final
    : public basic_lifecycle<native_platform, task_home, basic_loop<native_platform>>,
      public executor_users {
    using platform = native_platform;
    using loop_type = basic_loop<platform>;
    using lifecycle = basic_lifecycle<platform, task_home, loop_type>;

public:
    explicit run_loop_core(run_loop_options&& wanted)
        : lifecycle(
              loop_, +[]() -> executor_ref { return required_service<platform>(); }),
          unhandled_(std::move(wanted.on_unhandled)),
          loop_(executor_ref::to(*this), wanted.io, option_ns(wanted.timer_slack), wanted.trace) {
        static_cast<void>(
            error_of<stopped_error>(errc::stopped)); // made before any cancellation needs it
        if (wanted.io != nullptr) {
            attached_.emplace(*wanted.io);
        }
    }
    ~run_loop_core() {
        const auto end = [this]() noexcept {
            while (has_users() && poll(false) != 0) { // tasks of other runners
            }
            require_none("run_loop");
            const wake_scope<platform> later(&service_executor<platform>);
            attached_.reset();
        };
        while (!shutdown(deadline::poll(), end)) {
            run(deadline::never());
        }
        end_external_calls();
    }

    // Runs until no task is left. Returns as basic_loop::run() does.
    std::size_t run(deadline until) noexcept {
        return loop_.run(until, [this](bool is_idle) noexcept {
            if (!is_idle) {
                return false;
            }
            add_up();
            return all_ended();
        });
    }

    // Runs what is runnable now.
    std::size_t poll(bool may_stop = true) noexcept {
        return loop_.run(
            deadline::never(), [](bool is_idle) noexcept { return is_idle; }, may_stop);
    }

    // After stop_run(), another thread may destroy the loop. The destructor waits for `here`.
    void stop() noexcept {
        const lifecycle::external_call here(*this);
        loop_.stop_run();
    }

    loop_type& loop() noexcept { return loop_; }
    executor_ref executor() noexcept override { return executor_ref::to(*this); }

    waker waker_of_caller() noexcept override {
        const auto wake = [](void* self) noexcept {
            static_cast<run_loop_core*>(self)->loop_.wake_any();
        };
        return is_here() || loop_.is_own() ? waker(wake, this) : waker();
    }
    void run_tasks(const basic_waiter<platform>& w) noexcept override {
        loop_.run_inside([&w]() noexcept { return w.is_complete(); });
    }

private:
    const unhandled& handler() const noexcept override { return unhandled_; }

    const unhandled unhandled_;
    std::optional<driver::attachment> attached_;
    loop_type loop_;
};

} // namespace detail

BIDE_COMPILED_INLINE run_loop::run_loop(std::unique_ptr<detail::run_loop_core> core) noexcept
    : task_runner(*core), core_(std::move(core)) {}
BIDE_COMPILED_INLINE run_loop::run_loop(run_loop_options options)
    : run_loop(std::make_unique<detail::run_loop_core>(std::move(options))) {}
BIDE_COMPILED_INLINE run_loop::~run_loop() = default;

BIDE_COMPILED_INLINE std::size_t run_loop::run_by(deadline until) noexcept {
    return core_->run(until);
}
BIDE_COMPILED_INLINE void run_loop::run_to_end_of(const detail::task_header& task) noexcept {
    const auto is_over = [&task](bool) noexcept { return task.is_complete(); };
    core_->loop().run(deadline::never(), is_over, false);
}
BIDE_COMPILED_INLINE std::size_t run_loop::poll() noexcept { return core_->poll(); }
BIDE_COMPILED_INLINE void run_loop::stop() noexcept { core_->stop(); }

BIDE_COMPILED_INLINE std::size_t run_loop::tasks() const noexcept {
    const auto all = core_->count_all();
    return detail::integer_cast<std::size_t>(all.spawned - all.ended);
}

}} // namespace bide::BIDE_ABI

#endif

#endif
