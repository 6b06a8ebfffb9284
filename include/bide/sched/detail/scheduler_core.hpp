#ifndef BIDE_SCHED_DETAIL_SCHEDULER_CORE_HPP
#define BIDE_SCHED_DETAIL_SCHEDULER_CORE_HPP

// What is behind a scheduler: the pool of workers, its threads and those for what blocks, and the
// beginning and the end of it all (lifecycle.hpp).

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/timer.hpp>
#include <bide/sched/detail/cpu_count.hpp>
#include <bide/sched/detail/lifecycle.hpp>
#include <bide/sched/detail/pool.hpp>
#include <bide/sched/detail/worker_threads.hpp>
#include <bide/sched/driver.hpp>
#include <bide/sched/scheduler_options.hpp>
#include <bide/sync/detail/gate.hpp>
#include <bide/task/detail/task_cell.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

class scheduler_core final : public task_home, basic_pool<native_platform>::owner {
    using platform = native_platform;
    using pool_type = basic_pool<platform>;
    using lifecycle = basic_lifecycle<platform>;

public:
    using worker = pool_type::worker;

    scheduler_core(scheduler& whose, scheduler_options&& wanted);
    scheduler_core(const scheduler_core&) = delete;
    scheduler_core& operator=(const scheduler_core&) = delete;
    ~scheduler_core();

    // Starts the threads.
    // Throws: std::system_error when one cannot be started; all has ended then.
    void open();

    // The first post of a new task; it is refused where the scheduler is closing.
    void start(task_header& t) noexcept { life_.start(t); }

    // The same for one that blocks.
    // Throws: std::system_error when there is no thread for it; the task is refused then.
    void start_blocking(task_header& t);

    void post(runnable& r) noexcept override { life_.post(r); }

    // See basic_lifecycle. Requires: not is_here().
    bool enter_caller() noexcept { return life_.enter_caller(); }
    void leave_caller() noexcept { life_.leave_caller(); }

    // True: all has ended by the deadline.
    bool shutdown(deadline until) noexcept;

    // This thread is a worker, or runs what blocks.
    bool is_here() const noexcept override { return pool_type::place::here().pool == &pool_; }

    pool_type& pool() noexcept { return pool_; }
    const pool_type& pool() const noexcept { return pool_; }
    worker_threads& threads() noexcept { return threads_; }
    const worker_threads& threads() const noexcept { return threads_; }
    executor_ref executor() noexcept override { return executor_ref::to(*this); }

    lifecycle::outside_counts outside() const noexcept { return life_.outside(); }

private:
    // Of basic_task_home, task_home and basic_pool::owner.
    basic_task_registry<platform>& registry() noexcept override { return life_.registry(); }
    void task_ended() noexcept override { life_.task_ended(); }
    bool is_closing() const noexcept override { return life_.is_closing(); }
    const unhandled& handler() const noexcept override { return unhandled_; }
    void enter() noexcept override {
        threads_.unpin();
        pool_type::place::here() = {&pool_, nullptr};
        current_scheduler::here().face = &face_;
    }
    void leave() noexcept override {
        pool_.leave_lane();
        pool_type::place::here() = {};
        current_scheduler::here() = {};
    }
    const void* face() const noexcept override { return &face_; }
    bool replace(worker& w) noexcept override { return threads_.replace(w); }
    bool call_for_help() noexcept override { return threads_.call_for_help(); }
    bool stands_in() const noexcept override { return current_scheduler::here().stands_in; }
    bool give_back(worker& w) noexcept override { return threads_.hire(w); }
    void found_nothing() noexcept override { life_.found_nothing(); }

    scheduler& face_;
    const unhandled unhandled_;
    std::optional<driver::attachment> attached_;
    pool_type pool_;
    worker_threads threads_;
    lifecycle life_;
};

inline scheduler_core::scheduler_core(scheduler& whose, scheduler_options&& wanted)
    : face_(whose), unhandled_(std::move(wanted.on_unhandled)),
      pool_(*this,
            {wanted.num_workers != 0 ? wanted.num_workers : cpu_count(), wanted.enable_stealing,
             wanted.io,
             deadline::saturated_ns((std::max)(wanted.longest_nap, std::chrono::microseconds(0))),
             wanted.trace}),
      threads_(whose, pool_, wanted),
      life_(pool_, +[]() -> executor_ref { return required_service<platform>(); }) {
    static_cast<void>(error_of<stopped_error>(errc::stopped)); // so that a cancellation finds it
    if (wanted.io != nullptr) {
        attached_.emplace(*wanted.io);
    }
}

inline void scheduler_core::open() {
    if (const std::error_code error = threads_.start()) {
        if (threads_.empty()) {
            life_.never_ran();
        }
        shutdown(deadline::never());
        BIDE_THROW(std::system_error(error, "a worker of a scheduler cannot be started"));
    }
}

inline scheduler_core::~scheduler_core() {
    if (current_scheduler::is_of(face_)) {
        fatal("scheduler destroyed, and so shut down by one of its own workers, or in an arm");
    }
    shutdown(deadline::never());
}

// ---- Tasks

inline void scheduler_core::start_blocking(task_header& t) {
    const lifecycle::visit here(life_);
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
    if (current_scheduler::is_of(face_)) {
        if (is_closing() || here.leaving) {
            return false; // it is being done, or is somebody else's business
        }
        fatal("scheduler shut down by one of its own workers, or in an arm");
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
