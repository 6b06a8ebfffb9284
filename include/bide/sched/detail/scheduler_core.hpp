// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_SCHEDULER_CORE_HPP
#define BIDE_SCHED_DETAIL_SCHEDULER_CORE_HPP

// What a scheduler owns: the pool of workers, the threads, and the start and end of tasks
// (lifecycle.hpp). It connects them: it is the home of the tasks (task_home) and the owner of the
// pool.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/detail/os_thread.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/timer.hpp>
#include <bide/sched/detail/cpu_count.hpp>
#include <bide/sched/detail/lifecycle.hpp>
#include <bide/sched/detail/pool.hpp>
#include <bide/sched/detail/queue_home.hpp>
#include <bide/sched/detail/worker_threads.hpp>
#include <bide/sched/driver.hpp>
#include <bide/sched/scheduler_options.hpp>
#include <bide/sched/spawn_options.hpp>
#include <bide/task/detail/task_cell.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

class scheduler_core final : public task_home, basic_pool<native_platform>::owner {
    using platform = native_platform;
    using pool_type = basic_pool<platform>;
    using lifecycle = basic_lifecycle<platform, pool_type>;

public:
    using worker = pool_type::worker;

    // Throws: std::bad_alloc; std::invalid_argument for a size of stacks that no thread can have;
    // std::system_error if `wanted.io` is attached to another scheduler.
    scheduler_core(scheduler& of, scheduler_options&& wanted);
    scheduler_core(const scheduler_core&) = delete;
    scheduler_core& operator=(const scheduler_core&) = delete;
    ~scheduler_core();

    // Starts the threads.
    // Throws: std::system_error if a thread cannot be started. No thread is left then.
    void open();

    void start(task_header& t) noexcept override { life_.start(t); }

    // Returns the home of a task that is spawned with these options.
    // Throws: std::invalid_argument, see scheduler::spawn().
    task_home& home_of(const spawn_options& how) {
        return how.priority == task_priority::normal && !how.worker ? *this : queue_of(how);
    }

    // Returns the number of the worker for which the calling thread was started, if it was for one.
    std::optional<unsigned> thread_here() const noexcept {
        const auto& here = pool_type::thread_role::here();
        return here.pool == &pool_ && here.pinned != nullptr ? std::optional(here.pinned->index)
                                                             : std::nullopt;
    }

    // Starts a blocking task.
    // Throws: std::system_error if there is no thread for it. The task is refused then.
    void start_blocking(task_header& t);

    void post(runnable& r) noexcept override { life_.post(r); }

    // See basic_lifecycle. Requires: not is_here().
    bool enter_caller() noexcept { return life_.enter_caller(); }
    void leave_caller() noexcept { life_.leave_caller(); }

    // Returns true if the scheduler has ended by the deadline.
    bool shutdown(deadline until) noexcept;

    // Returns true if the calling thread runs a worker or blocking tasks of this scheduler.
    bool is_here() const noexcept override { return pool_type::thread_role::here().pool == &pool_; }

    pool_type& pool() noexcept { return pool_; }
    const pool_type& pool() const noexcept { return pool_; }
    worker_threads& threads() noexcept { return threads_; }
    const worker_threads& threads() const noexcept { return threads_; }
    executor_ref executor() noexcept override { return executor_ref::to(*this); }

    const lifecycle& life() const noexcept { return life_; }

    // The same. Throws: std::invalid_argument if it was for none.
    unsigned local_worker() const {
        const std::optional<unsigned> mine = thread_here();
        if (!mine) {
            BIDE_THROW(std::invalid_argument("scheduler::spawn_local(): this thread is none that "
                                             "the scheduler keeps for a worker"));
        }
        return *mine;
    }

private:
    // Of basic_task_home, task_home and basic_pool_owner.
    unsigned registry_here() const noexcept override { return life_.registry_here(); }
    basic_task_registry<platform>& registry(unsigned number) noexcept override {
        return life_.registry(number);
    }
    void task_ended() noexcept override { life_.task_ended(); }
    bool is_closing() const noexcept override { return life_.is_closing(); }
    const unhandled& handler() const noexcept override { return unhandled_; }
    void enter() noexcept override {
        threads_.unpin();
        pool_type::thread_role::here() = {&pool_, nullptr};
        current_scheduler::here().instance = &scheduler_;
    }
    void leave() noexcept override {
        pool_.drop_thread_lane();
        pool_type::thread_role::here() = {};
        current_scheduler::here() = {};
    }
    const void* scheduler_id() const noexcept override { return &scheduler_; }
    task_home& queue_of(const spawn_options& how);
    static pool_options options_of_pool(const scheduler_options& wanted);

    bool replace(worker& w) noexcept override { return threads_.replace(w); }
    bool request_replacement() noexcept override { return threads_.request_replacement(); }
    bool is_substitute() const noexcept override { return current_scheduler::here().is_substitute; }
    bool hand_to_idle_thread(worker& w) noexcept override {
        return threads_.hand_to_idle_thread(w);
    }
    void found_nothing() noexcept override { life_.found_nothing(); }
    void wake_thread(unsigned number) noexcept override { threads_.wake_thread(number); }
    bool has_queue(executor_ref where) noexcept override;

    scheduler& scheduler_;
    const unhandled unhandled_;
    std::optional<driver::attachment> attached_;
    pool_type pool_;
    worker_threads threads_;
    priority_home high_, low_;
    std::deque<pinned_home> pinned_; // one for each worker
    lifecycle life_;
};

inline pool_options scheduler_core::options_of_pool(const scheduler_options& wanted) {
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
    : scheduler_(of), unhandled_(std::move(wanted.on_unhandled)),
      pool_(*this, options_of_pool(wanted)), threads_(of, pool_, wanted),
      high_(*this, pool_, life_, task_priority::high),
      low_(*this, pool_, life_, task_priority::low),
      life_(pool_, +[]() -> executor_ref { return required_service<platform>(); }) {
    for (worker& w : pool_.workers()) {
        pinned_.emplace_back(*this, pool_, life_, w);
    }
    static_cast<void>(
        error_of<stopped_error>(errc::stopped)); // made before any cancellation needs it
    if (wanted.io != nullptr) {
        attached_.emplace(*wanted.io);
    }
}

inline void scheduler_core::open() {
    if (const std::error_code error = threads_.start()) {
        life_.no_worker_started();
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
}

// ---- Tasks

BIDE_NOINLINE inline task_home& scheduler_core::queue_of(const spawn_options& how) {
    if (!how.worker) {
        return how.priority == task_priority::high ? high_ : low_;
    }
    if (how.priority != task_priority::normal) {
        BIDE_THROW(std::invalid_argument("scheduler::spawn(): a pinned task has no priority"));
    }
    if (*how.worker >= pinned_.size()) {
        BIDE_THROW(std::invalid_argument("scheduler::spawn(): there is no such worker"));
    }
    return pinned_[*how.worker];
}

// A pinned task asks on its own thread.
inline bool scheduler_core::has_queue(executor_ref where) noexcept {
    const std::optional<unsigned> mine = thread_here();
    return where == high_.executor() || where == low_.executor() ||
           (mine && where == pinned_[*mine].executor());
}

inline void scheduler_core::start_blocking(task_header& t) {
    const lifecycle::external_call here(life_);
    std::error_code why;
    if (life_.admit() && threads_.post_blocking(t.to_run(), why)) {
        return;
    }
    t.refuse();
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
    return life_.shutdown(until, [this]() noexcept {
        threads_.finish();
        const wake_scope<platform> later(&service_executor<platform>);
        attached_.reset();
    });
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
