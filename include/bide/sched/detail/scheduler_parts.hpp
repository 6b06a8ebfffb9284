// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_SCHEDULER_PARTS_HPP
#define BIDE_SCHED_DETAIL_SCHEDULER_PARTS_HPP

// The parts of a scheduler that its threads share, and how they are connected: the pool of workers,
// the threads, the homes of tasks, and the start and end of tasks. It is the home of the normal
// tasks and the owner of the pool. A template, so that the model checker runs the same connections
// (tests/model/scheduler_model.cpp). What a scheduler is made of besides is in scheduler_core.hpp.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/os_thread.hpp>
#include <bide/core/executor.hpp>
#include <bide/sched/detail/current_scheduler.hpp>
#include <bide/sched/detail/lifecycle.hpp>
#include <bide/sched/detail/pool.hpp>
#include <bide/sched/detail/queue_home.hpp>
#include <bide/sched/detail/worker_threads.hpp>
#include <bide/sched/scheduler_options.hpp>
#include <bide/sched/spawn_options.hpp>
#include <bide/task/detail/task_header.hpp>
#include <bide/task/detail/task_registry.hpp>

#include <deque>
#include <optional>
#include <system_error>

namespace bide::inline BIDE_ABI {
namespace detail {

// `Home` is task_home and `Thread` os_thread, or those of a model.
template <class Platform, class Home, class Thread = os_thread>
class basic_scheduler_parts : public Home, basic_pool<Platform>::owner {
    using header = basic_task_header<Platform>;
    using current = basic_current_scheduler<Platform>;

public:
    using pool_type = basic_pool<Platform>;
    using lifecycle = basic_lifecycle<Platform, pool_type>;
    using threads_type = basic_worker_threads<Platform, pool_type, Thread>;
    using worker = typename pool_type::worker;

    basic_scheduler_parts(const basic_scheduler_parts&) = delete;
    basic_scheduler_parts& operator=(const basic_scheduler_parts&) = delete;

    void start(header& t) noexcept override { life_.start(t); }
    void post(runnable& r) noexcept override { life_.post(r); }

    // Returns the number of the worker for which the calling thread was started, if it was for one.
    std::optional<unsigned> thread_here() const noexcept {
        const auto& here = pool_type::thread_role::here();
        return here.pool == &pool_ && here.pinned != nullptr ? std::optional(here.pinned->index)
                                                             : std::nullopt;
    }

    // See basic_lifecycle. Requires: not is_here().
    bool enter_caller() noexcept { return life_.enter_caller(); }
    void leave_caller() noexcept { life_.leave_caller(); }

    // Returns true if the calling thread runs a worker or blocking tasks of this scheduler.
    bool is_here() const noexcept override { return pool_type::thread_role::here().pool == &pool_; }

    pool_type& pool() noexcept { return pool_; }
    const pool_type& pool() const noexcept { return pool_; }
    threads_type& threads() noexcept { return threads_; }
    const threads_type& threads() const noexcept { return threads_; }
    const lifecycle& life() const noexcept { return life_; }

protected:
    // `of` is what the threads find as their scheduler. `fallback` as in basic_lifecycle.
    basic_scheduler_parts(scheduler* of, scheduler_options& wanted, const pool_options& how,
                          typename lifecycle::get_executor fallback);
    // Requires: end() has returned true, and the derived class has called end_external_calls().
    ~basic_scheduler_parts() = default;

    // Called before a member of the derived class is destroyed. Blocks as in basic_lifecycle.
    void end_external_calls() const noexcept { life_.end_external_calls(); }

    // Starts the threads. If one cannot be started, returns an error: then end() must be called.
    std::error_code start_threads() noexcept {
        const std::error_code error = threads_.start();
        if (error) {
            life_.no_worker_started();
        }
        return error;
    }

    // Starts a blocking task. Refuses it if the scheduler is closing or no thread can be started;
    // then `why` says which.
    void start_blocking(header& t, std::error_code& why) noexcept {
        const typename lifecycle::external_call here(life_);
        if (!life_.admit() || !threads_.post_blocking(t.to_run(), why)) {
            t.refuse();
        }
    }

    // Ends the scheduler (basic_lifecycle::shutdown). Calls after_threads() when no thread is left.
    template <class AfterThreads> bool end(deadline until, AfterThreads&& after_threads) noexcept {
        return life_.shutdown(until, [this, &after_threads]() noexcept {
            threads_.finish();
            after_threads();
        });
    }

    // Returns the home of the tasks of a class that is not normal, or of those that are pinned.
    Home& home_of(task_priority which) noexcept {
        return which == task_priority::high ? high_ : low_;
    }
    // Returns nullptr if there is no such worker.
    Home* home_of_pinned(unsigned number) noexcept {
        return number < pinned_.size() ? &pinned_[number] : nullptr;
    }

    bool is_closing() const noexcept override { return life_.is_closing(); }
    void enter() noexcept override {
        threads_.unpin();
        pool_type::thread_role::here() = {&pool_, nullptr};
        current::here().instance = scheduler_;
    }
    void leave() noexcept override {
        pool_.drop_thread_lane();
        pool_type::thread_role::here() = {};
        current::here() = {};
    }

private:
    using priority_home = basic_priority_home<Platform, Home>;
    using pinned_home = basic_pinned_home<Platform, Home>;

    // Of basic_task_home.
    unsigned registry_here() const noexcept override { return life_.registry_here(); }
    basic_task_registry<Platform>& registry(unsigned number) noexcept override {
        return life_.registry(number);
    }
    void task_ended() noexcept override { life_.task_ended(); }

    // Of basic_pool_owner.
    const void* scheduler_id() const noexcept override { return scheduler_; }
    bool replace(worker& w) noexcept override { return threads_.replace(w); }
    bool request_replacement() noexcept override { return threads_.request_replacement(); }
    bool is_substitute() const noexcept override { return current::here().is_substitute; }
    bool hand_to_idle_thread(worker& w) noexcept override {
        return threads_.hand_to_idle_thread(w);
    }
    bool may_hand_over() noexcept override {
        return current::here().is_substitute && threads_.has_idle_thread();
    }
    void found_nothing() noexcept override { life_.found_nothing(); }
    void wake_thread(unsigned number) noexcept override { threads_.wake_thread(number); }
    bool has_queue(executor_ref where) noexcept override;

    scheduler* const scheduler_;
    pool_type pool_;
    threads_type threads_;
    priority_home high_, low_;
    std::deque<pinned_home> pinned_; // one for each worker
    lifecycle life_;
};

template <class Platform, class Home, class Thread>
basic_scheduler_parts<Platform, Home, Thread>::basic_scheduler_parts(
    scheduler* of, scheduler_options& wanted, const pool_options& how,
    typename lifecycle::get_executor fallback)
    : scheduler_(of), pool_(*this, how), threads_(of, pool_, wanted),
      high_(*this, pool_, life_, task_priority::high),
      low_(*this, pool_, life_, task_priority::low), life_(pool_, fallback) {
    for (worker& w : pool_.workers()) {
        pinned_.emplace_back(*this, pool_, life_, w);
    }
}

// A pinned task asks on its own thread.
template <class Platform, class Home, class Thread>
bool basic_scheduler_parts<Platform, Home, Thread>::has_queue(executor_ref where) noexcept {
    const std::optional<unsigned> mine = thread_here();
    return where == high_.executor() || where == low_.executor() ||
           (mine && where == pinned_[*mine].executor());
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
