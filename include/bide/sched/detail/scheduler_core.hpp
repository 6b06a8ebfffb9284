// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_SCHEDULER_CORE_HPP
#define BIDE_SCHED_DETAIL_SCHEDULER_CORE_HPP

// A scheduler: its options, and what it is beside the parts that its threads share
// (scheduler_parts.hpp): the driver that it is attached to, and the handler of exceptions. What
// users may do wrong is found here.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/detail/os_thread.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/timer.hpp>
#include <bide/core/wake_scope.hpp>
#include <bide/io/driver.hpp>
#include <bide/sched/detail/cpu_count.hpp>
#include <bide/sched/detail/current_scheduler.hpp>
#include <bide/sched/detail/pool.hpp>
#include <bide/sched/detail/scheduler_parts.hpp>
#include <bide/sched/detail/worker_threads.hpp>
#include <bide/sched/idle.hpp>
#include <bide/sched/scheduler_options.hpp>
#include <bide/sched/spawn_options.hpp>
#include <bide/task/detail/task_cell.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

class scheduler_core final : public basic_scheduler_parts<native_platform, task_home> {
    using platform = native_platform;
    using parts = basic_scheduler_parts<platform, task_home>;

public:
    // Throws: std::bad_alloc; std::invalid_argument for too many workers and for a size of stacks
    // that no thread can have; std::system_error if `wanted.io` is attached to another scheduler.
    scheduler_core(scheduler& of, scheduler_options&& wanted);
    ~scheduler_core();

    // Starts the threads.
    // Throws: std::system_error if a thread cannot be started. No thread is left then.
    void open();

    // Returns the home of a task that is spawned with these options.
    // Throws: std::invalid_argument, see scheduler::spawn().
    task_home& home_of(const spawn_options& how) {
        return how.priority == task_priority::normal && !how.worker ? *this : queue_of(how);
    }

    // Starts a blocking task.
    // Throws: std::system_error if there is no thread for it. The task is refused then.
    void start_blocking(task_header& t);

    // Returns true if the scheduler has ended by the deadline.
    bool shutdown(deadline until) noexcept;

    executor_ref executor() noexcept override { return executor_ref::to(*this); }

    // Returns thread_here(). Throws: std::invalid_argument if it has no value.
    unsigned local_worker() const {
        const std::optional<unsigned> mine = thread_here();
        if (!mine) {
            BIDE_THROW(std::invalid_argument("scheduler::spawn_local(): this thread is none that "
                                             "the scheduler keeps for a worker"));
        }
        return *mine;
    }

private:
    const unhandled& handler() const noexcept override { return unhandled_; }
    task_home& queue_of(const spawn_options& how);
    static pool_options options_of_pool(const scheduler_options& wanted);

    scheduler& scheduler_;
    const unhandled unhandled_;
    std::optional<driver::attachment> attached_;
};

// Called before a part of the scheduler is made.
inline pool_options scheduler_core::options_of_pool(const scheduler_options& wanted) {
    if (wanted.num_workers > basic_idle<platform>::max_workers) {
        BIDE_THROW(std::invalid_argument("scheduler: num_workers is above 1048575"));
    }
    if (!os_thread::may_have_stack(wanted.stack_size)) {
        BIDE_THROW(std::invalid_argument("scheduler: no thread can have a stack of stack_size"));
    }
    const unsigned processors = cpu_count();
    const unsigned workers = wanted.num_workers != 0 ? wanted.num_workers : processors;
    return {workers,
            wanted.enable_stealing,
            wanted.io,
            deadline::saturated_ns((std::max)(wanted.longest_nap, std::chrono::microseconds(0))),
            wanted.trace,
            timer_slack_ns(wanted.timer_slack),
            static_cast<int>(processors) - static_cast<int>(workers)};
}

inline scheduler_core::scheduler_core(scheduler& of, scheduler_options&& wanted)
    : parts(
          &of, wanted, options_of_pool(wanted),
          +[]() -> executor_ref { return required_service<platform>(); }),
      scheduler_(of), unhandled_(std::move(wanted.on_unhandled)) {
    static_cast<void>(
        error_of<stopped_error>(errc::stopped)); // made before any cancellation needs it
    if (wanted.io != nullptr) {
        attached_.emplace(*wanted.io);
    }
}

inline void scheduler_core::open() {
    if (const std::error_code error = start_threads()) {
        shutdown(deadline::never());
        BIDE_THROW(std::system_error(error, "a worker of a scheduler cannot be started"));
    }
}

inline scheduler_core::~scheduler_core() {
    if (current_scheduler::is_of(scheduler_)) {
        fatal("~scheduler(): a scheduler must not be shut down by one of its own workers or in an "
              "arm");
    }
    shutdown(deadline::never());
    end_external_calls();
}

// ---- Tasks

BIDE_NOINLINE inline task_home& scheduler_core::queue_of(const spawn_options& how) {
    if (!how.worker) {
        return parts::home_of(how.priority);
    }
    if (how.priority != task_priority::normal) {
        BIDE_THROW(std::invalid_argument("scheduler::spawn(): a pinned task has no priority"));
    }
    task_home* const pinned = home_of_pinned(*how.worker);
    if (pinned == nullptr) {
        BIDE_THROW(std::invalid_argument("scheduler::spawn(): there is no such worker"));
    }
    return *pinned;
}

inline void scheduler_core::start_blocking(task_header& t) {
    std::error_code why;
    parts::start_blocking(t, why);
    if (why && why != errc::closed) {
        BIDE_THROW(std::system_error(why, "no thread for a blocking task"));
    }
}

// ---- The end

inline bool scheduler_core::shutdown(deadline until) noexcept {
    const current_scheduler& here = current_scheduler::here();
    if (current_scheduler::is_of(scheduler_)) {
        if (is_closing() || here.leaving) {
            return false; // another thread shuts it down
        }
        fatal("scheduler::shutdown(): a scheduler must not be shut down by one of its own workers "
              "or in an arm");
    }
    return end(until, [this]() noexcept {
        const wake_scope<platform> later(&service_executor<platform>);
        attached_.reset();
    });
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
