// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_SCHEDULER_CORE_HPP
#define BIDE_SCHED_DETAIL_SCHEDULER_CORE_HPP

// A scheduler. It is the home of its normal tasks (lifecycle.hpp), and it owns its pool, which has
// the threads (worker_threads.hpp). The home of a task is the executor that the task belongs to.
// High tasks, low tasks, and the tasks that are pinned to one thread have other homes
// (spawn_options). A wake posts a task to its home. So the home determines where the task runs,
// and a task needs no member for its class. The scheduler counts, registers and cancels the tasks
// of all homes.
//
// basic_scheduler_parts is a template, so that the model checker runs the same connections
// (tests/model/scheduler_model.cpp). scheduler_core adds the options, the driver, the handler of
// exceptions, and the checks for misuse.

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
#include <bide/sched/detail/lifecycle.hpp>
#include <bide/sched/detail/pool.hpp>
#include <bide/sched/detail/worker.hpp>
#include <bide/sched/detail/worker_threads.hpp>
#include <bide/sched/idle.hpp>
#include <bide/sched/scheduler_options.hpp>
#include <bide/task/detail/task_cell.hpp>
#include <bide/task/detail/task_control.hpp>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// The home of the high tasks, of the low tasks, or of the tasks that are pinned to one thread.
// `Home` is task_home, or the type of a model.
template <class Platform, class Home> class basic_queue_home final : public Home {
    using pool_type = basic_pool<Platform>;
    using lifecycle = basic_lifecycle<Platform, Home, pool_type>;
    using worker = basic_worker<Platform>;

public:
    // If `of` is not nullptr, the tasks are pinned to the thread of this worker.
    basic_queue_home(lifecycle& core, pool_type& its_pool, task_priority which,
                     worker* of = nullptr) noexcept
        : core_(core), pool_(its_pool), class_(which), worker_(of) {}
    basic_queue_home(const basic_queue_home&) = delete;
    basic_queue_home& operator=(const basic_queue_home&) = delete;

    void push(runnable& r, worker*) noexcept {
        worker_ != nullptr ? pool_.push_pinned(*worker_, r) : pool_.push(class_, r);
    }
    // A pinned task also ends on its thread, because its coroutine and its function are destroyed
    // there.
    bool is_here() const noexcept override {
        return worker_ != nullptr ? basic_thread_role<Platform>::here().pinned == &worker_->pinned
                                  : core_.is_here();
    }
    void start(basic_task_header<Platform>& t) noexcept override { core_.start_in(*this, t); }
    void post(runnable& r) noexcept override { core_.post_in(*this, r); }
    executor_ref executor() noexcept override { return executor_ref::to(*this); }

    unsigned registry_here() const noexcept override { return core_.registry_here(); }
    basic_task_registry<Platform>& registry(unsigned number) noexcept override {
        return core_.registry(number);
    }
    bool is_closing() const noexcept override { return core_.is_closing(); }
    void task_ended() noexcept override { core_.task_ended(); }
    const unhandled& handler() const noexcept override { return core_.handler(); }
    void enter() noexcept override { core_.enter(); }
    void leave() noexcept override { core_.leave(); }

private:
    lifecycle& core_;
    pool_type& pool_;
    const task_priority class_;
    worker* const worker_;
};

// `Thread` is os_thread, or that of a model.
template <class Platform, class Home, class Thread = os_thread>
class basic_scheduler_parts : public basic_worker_threads<Platform, basic_pool<Platform>, Thread>,
                              public basic_lifecycle<Platform, Home, basic_pool<Platform>> {
    using header = basic_task_header<Platform>;
    using current = basic_current_scheduler<Platform>;
    using pool_type = basic_pool<Platform>;
    using threads = basic_worker_threads<Platform, pool_type, Thread>;
    using role = typename pool_type::thread_role;

public:
    using lifecycle = basic_lifecycle<Platform, Home, pool_type>;

    executor_ref executor() noexcept final { return executor_ref::to<lifecycle>(*this); }

    // Returns the number of the worker for which the calling thread was started; nothing for other
    // threads.
    std::optional<unsigned> thread_here() const noexcept {
        const role& here = role::here();
        return here.pool == &this->pool() && here.pinned != nullptr
                   ? std::optional(here.pinned->index)
                   : std::nullopt;
    }
    // Returns true if the calling thread runs a worker or blocking tasks of this scheduler.
    bool is_here() const noexcept final { return role::here().pool == &this->pool(); }

protected:
    // `of` is the scheduler of the threads. `fallback` is as in basic_lifecycle.
    BIDE_COLD basic_scheduler_parts(scheduler* of, scheduler_options& wanted, pool_options how,
                                    typename lifecycle::get_executor fallback)
        : threads(of, wanted, with_names(how, of, *this)), lifecycle(this->pool(), fallback),
          high_(*this, this->pool(), task_priority::high),
          low_(*this, this->pool(), task_priority::low), pinned_(this->pool().workers().size()) {
        for (auto& w : this->pool().workers()) {
            pinned_.add(*this, this->pool(), task_priority::normal, &w);
        }
    }

    // Requires: the derived class has called end_external_calls().
    ~basic_scheduler_parts() = default;

    // Starts a blocking task. Refuses it if the scheduler is closing or no thread can be started;
    // then `why` is the reason.
    void start_blocking(header& t, std::error_code& why) noexcept {
        const typename lifecycle::external_call here(*this);
        if (!this->admit() || !this->blocking().post(t.to_run(), why)) {
            t.refuse();
        }
    }

    // Returns the home of the high tasks or of the low tasks.
    Home& home_of(task_priority which) noexcept {
        return which == task_priority::high ? high_ : low_;
    }
    // Returns nullptr if there is no such worker.
    Home* home_of_pinned(unsigned number) noexcept {
        return number < pinned_.size() ? &pinned_[number] : nullptr;
    }

    void enter() noexcept override {
        this->unpin();
        role::here() = {&this->pool(), nullptr};
        current::here().instance = this->scheduler_;
    }
    void leave() noexcept override {
        this->pool().drop_thread_lane();
        role::here() = {};
        current::here() = {};
    }

private:
    using queue_home = basic_queue_home<Platform, Home>;

    // Overrides of basic_pool_owner.
    void found_nothing() noexcept final { this->add_up(); }
    // Called by a pinned task on its own thread.
    bool has_queue(executor_ref where) noexcept final {
        const std::optional<unsigned> mine = thread_here();
        return where == high_.executor() || where == low_.executor() ||
               (mine && where == pinned_[*mine].executor());
    }
    static pool_options with_names(pool_options how, scheduler* of, lifecycle& core) noexcept {
        how.executor = executor_ref::to(core);
        how.scheduler_id = of;
        return how;
    }

    queue_home high_, low_;
    fixed_array<queue_home> pinned_; // one for each worker
};

class scheduler_core final : public basic_scheduler_parts<native_platform, task_home> {
    using platform = native_platform;
    using parts = basic_scheduler_parts<platform, task_home>;

public:
    // Throws: std::bad_alloc; std::invalid_argument if there are too many workers or no thread can
    // have a stack of the given size; std::system_error if `wanted.io` is attached to another
    // scheduler.
    BIDE_COLD scheduler_core(scheduler& of, scheduler_options&& wanted)
        : parts(
              &of, wanted, options_of_pool(wanted),
              +[]() -> executor_ref { return required_service<platform>(); }),
          unhandled_(std::move(wanted.on_unhandled)) {
        static_cast<void>(
            error_of<stopped_error>(errc::stopped)); // made before any cancellation needs it
        if (wanted.io != nullptr) {
            attached_.emplace(*wanted.io);
        }
    }

    BIDE_COLD ~scheduler_core() {
        if (current_scheduler::is_of(*scheduler_)) {
            fatal("~scheduler(): a scheduler must not be shut down by one of its own workers or in "
                  "an "
                  "arm");
        }
        shut_down(deadline::never());
        end_external_calls();
    }

    // Starts the threads.
    // Throws: std::system_error if a thread cannot be started. No thread is left then.
    BIDE_COLD void open() {
        if (const std::error_code error = start_threads()) {
            no_worker_started();
            shut_down(deadline::never());
            BIDE_THROW(std::system_error(error, "a worker of a scheduler cannot be started"));
        }
    }

    // Returns the home of a task that is spawned with these options.
    // Throws: std::invalid_argument, see scheduler::spawn().
    task_home& home_of(const spawn_options& how) {
        return how.priority == task_priority::normal && !how.worker ? *this : queue_of(how);
    }

    // Starts a blocking task.
    // Throws: std::system_error if there is no thread for it. Then the task is refused.
    void start_blocking(task_header& t) {
        std::error_code why;
        parts::start_blocking(t, why);
        if (why && why != errc::closed) {
            BIDE_THROW(std::system_error(why, "no thread for a blocking task"));
        }
    }

    // Returns true if the scheduler has ended by the deadline.
    BIDE_COLD bool shut_down(deadline until) noexcept {
        if (current_scheduler::is_of(*scheduler_)) {
            if (is_closing() || current_scheduler::here().leaving) {
                return false; // another thread shuts it down
            }
            fatal("scheduler::shutdown(): a scheduler must not be shut down by one of its own "
                  "workers "
                  "or in an arm");
        }
        return shutdown(until, [this]() noexcept {
            end_threads();
            const wake_scope<platform> later(&service_executor<platform>);
            attached_.reset();
        });
    }

private:
    const unhandled& handler() const noexcept override { return unhandled_; }

    BIDE_NOINLINE task_home& queue_of(const spawn_options& how) {
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

    // Called before a part of the scheduler is made.
    BIDE_COLD static pool_options options_of_pool(const scheduler_options& wanted) {
        if (wanted.num_workers > basic_idle<platform>::max_workers) {
            BIDE_THROW(std::invalid_argument("scheduler: num_workers is above 1048575"));
        }
        if (!os_thread::may_have_stack(wanted.stack_size)) {
            BIDE_THROW(
                std::invalid_argument("scheduler: no thread can have a stack of stack_size"));
        }
        const unsigned processors = cpu_count();
        const unsigned workers = wanted.num_workers != 0 ? wanted.num_workers : processors;
        return {workers,
                wanted.enable_stealing,
                wanted.io,
                deadline::saturated_ns(
                    (std::max)(wanted.max_timed_sleep, std::chrono::microseconds(0))),
                wanted.trace,
                timer_slack_ns(wanted.timer_slack),
                static_cast<int>(processors) - static_cast<int>(workers)};
    }

    const unhandled unhandled_;
    std::optional<driver::attachment> attached_;
};

}}} // namespace bide::BIDE_ABI::detail

#endif
