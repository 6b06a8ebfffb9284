// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_POOL_HPP
#define BIDE_SCHED_DETAIL_POOL_HPP

// The workers of a scheduler: the loop in which each of them finds something to run, runs it, and
// sleeps if there is nothing. The threads belong to the scheduler; each calls run() with a worker.
//
// A worker looks for its next job in this order:
//
//   at intervals      timers that are due, the driver, and one job from the injector, and half of what
//                     another worker has more (global_queue_interval in worker.hpp)
//   high, low, pinned jobs, in their turns, if there ever was one (class_queues.hpp)
//   its LIFO slot     the job that became runnable last, at most three times in a row
//   its ring          in order; it grows and shrinks with the number of jobs
//   the injector      a fair share, into its ring
//   other workers     half of another worker's ring, or its oldest child; at most half of the
//                     workers search at a time
//   fork-joins        the oldest arm (arm_source.hpp)
//
// If it finds nothing, it sleeps. If its last job was an arm, it first searches again, for as long
// as a wake would take. The sleep protocol (idle.hpp) has three steps: announce, check every queue
// once more, sleep without a time-out. maintenance.hpp says which sleepers have a time-out.
//
// Other parts of the pool are in work_queues.hpp, maintenance.hpp and blocked_workers.hpp.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/spin.hpp>
#include <bide/core/wake_scope.hpp>
#include <bide/io/driver.hpp>
#include <bide/sched/detail/blocked_workers.hpp>
#include <bide/sched/detail/maintenance.hpp>
#include <bide/sched/detail/pool_owner.hpp>
#include <bide/sched/detail/work_queues.hpp>
#include <bide/sched/detail/worker.hpp>
#include <bide/sched/trace.hpp>
#include <bide/task/task_tag.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_pool {
public:
    using worker = basic_worker<Platform>;
    using owner = basic_pool_owner<Platform>;
    using options = pool_options;
    using thread_role = basic_thread_role<Platform>;
    using thread_queue = basic_thread_queue<Platform>;

    basic_pool(owner& of, const options& wanted)
        : owner_(of), trace_(wanted.trace), timer_slack_ns_(wanted.timer_slack_ns),
          queues_(*this, wanted.workers, wanted.steal, wanted.max_timed_sleep_ns != 0, wanted.io,
                  wanted.spare_processors),
          maintenance_(queues_, wanted.io, wanted.trace, wanted.max_timed_sleep_ns),
          blocked_(of, queues_, maintenance_) {}
    basic_pool(const basic_pool&) = delete;
    basic_pool& operator=(const basic_pool&) = delete;

    // Runs the worker `w` on the calling thread. Returns after stop(), or if the thread has blocked
    // and lost the worker. `mine` are the jobs that only this thread may run, if it has any.
    void run(worker& w, thread_queue* mine = nullptr) noexcept;

    // Runs these jobs on their thread, which owns no worker, until there is none. Returns before that, with
    // a worker that the thread is to run, if a worker needs a thread: jobs that yield may never end.
    worker* run_pinned(thread_queue& mine) noexcept;

    // Enqueues `r`: on the thread of the worker `w`, and on any thread.
    void push_local(worker& w, runnable& r) noexcept { queues_.push_local(w, r); }
    void push(runnable& r) noexcept { queues_.push(r); }
    // The same for a class that is not normal, and for a job that only the own thread of `home` may run.
    void push(task_priority of, runnable& r) noexcept { queues_.push(of, r); }
    void push_pinned(worker& home, runnable& r) noexcept {
        if (!queues_.push_pinned(home, r)) {
            owner_.wake_thread(home.index);
        }
    }

    // Wakes a worker that sleeps. That worker then calls found_nothing() of the owner. If no worker
    // sleeps, each worker that becomes idle makes this call.
    void wake_any() noexcept { queues_.unpark(queues_.idle().wake_one()); }

    // Makes run() return on every worker that has nothing to run.
    void stop() noexcept;

    // Removes a job that was never run. Returns nullptr if there is none.
    // Requires: the last run() has returned.
    runnable* take_unrun() noexcept { return queues_.pop(); }

    // The worker of this pool that the calling thread owns, or nullptr.
    worker* current_worker() const noexcept {
        const thread_role& here = thread_role::here();
        return here.pool == this ? here.worker : nullptr;
    }

    basic_work_queues<Platform>& queues() noexcept { return queues_; }
    std::deque<worker>& workers() noexcept { return queues_.workers(); }
    const std::deque<worker>& workers() const noexcept { return queues_.workers(); }
    std::size_t queued() const noexcept { return queues_.queued(); }
    bool steals() const noexcept { return queues_.steals(); }
    executor_ref executor() noexcept { return owner_.executor(); }
    bool has_queue(executor_ref where) noexcept { return owner_.has_queue(where); }
    const basic_idle<Platform>& idle() const noexcept { return queues_.idle(); }

    // ---- Blocked workers. See blocked_workers.hpp.

    bool blocks(worker& w) noexcept { return blocked_.blocks(w); }
    void unblocks(worker& w) noexcept { blocked_.unblocks(w); }
    void wake(worker& w) noexcept { blocked_.wake(w); }
    void replace_blocked() noexcept { blocked_.replace_blocked(); }
    worker* take_blocked() noexcept { return blocked_.take_blocked(); }

    // ---- Fork-join. See fork_lane.hpp.

    // The address by which threads know the scheduler.
    const void* scheduler_id() const noexcept { return owner_.scheduler_id(); }
    // The calling thread leaves the pool.
    void drop_thread_lane() noexcept {
        if (auto* const arms = queues_.arms()) {
            arms->drop_thread_lane();
        }
    }

    // ---- The host of a task. See worker_host.

    void yield(worker& w, runnable& r, paused_chain* paused) noexcept {
        w.paused = paused;
        if (runnable* const older = std::exchange(w.yielded, &r)) {
            queues_.push_behind(w, *older);
        }
    }
    std::int64_t timer_slack_ns() const noexcept { return timer_slack_ns_; }
    void fork(worker& w, run_list& list) noexcept { queues_.fork(w, list); }
    void earlier_timer(worker& of) noexcept {
        maintenance_.earlier_timer(of, current_worker() == &of);
    }

private:
    runnable* find(worker& w) noexcept;
    void execute(worker& w, runnable& r) noexcept;
    runnable* check_shared_work(worker& w) noexcept;
    runnable* search(worker& w, bool after_timed_sleep, bool but_arms, bool& more) noexcept;
    runnable* search_or_sleep(worker& w) noexcept;

    owner& owner_;
    trace_sink* const trace_;
    const std::int64_t timer_slack_ns_; // the workers read it when they are made
    basic_work_queues<Platform> queues_;
    basic_maintenance<Platform> maintenance_;
    basic_blocked_workers<Platform> blocked_;
    typename Platform::template atomic<bool> stopped_{false};
};

// ---- Running

template <class Platform> void basic_pool<Platform>::run(worker& w, thread_queue* mine) noexcept {
    thread_role& here = thread_role::here();
    auto& resumed = Platform::template local<resume_state>();
    here = {this, &w, mine};
    w.ownership.begin(&here);
    w.mine = mine;
    if (mine != nullptr) {
        mine->set_owned(w.index);
    }
    resumed.worker = owner_.executor();
    while (here.worker == &w) {
        runnable* const r = find(w);
        if (r == nullptr) {
            break;
        }
        maintenance_.hand_over(w);
        execute(w, *r);
    }
    drop_thread_lane();
    here = {};
    resumed.worker = {};
    if (mine != nullptr) {
        mine->set_owned(mine->none);
    }
}

template <class Platform>
auto basic_pool<Platform>::run_pinned(thread_queue& mine) noexcept -> worker* {
    thread_role& here = thread_role::here();
    here = {this, nullptr, &mine};
    worker* next = nullptr;
    while (next == nullptr && !mine.empty()) {
        mine.pop()->run.wake();
        next = take_blocked();
    }
    drop_thread_lane();
    here = {};
    return next;
}

template <class Platform> void basic_pool<Platform>::execute(worker& w, runnable& r) noexcept {
    w.polled.add(1);
    auto& local = worker_local<Platform>::get();
    local.host = &w;
    const worker_turn<Platform> turn(local);
    w.ran_arm = &r == &w.arm;
    if (trace_ == nullptr) {
        r.run.wake();
    } else {
        const unsigned index = w.index; // another thread may own the worker afterwards
        const std::int64_t begin = Platform::now();
        local.traced = true;
        local.name = nullptr;
        local.tag = 0;
        r.run.wake();
        trace_->ran(index, local.name, tag_access::of(local.tag), begin, Platform::now());
    }
    local.host = nullptr;
}

template <class Platform> runnable* basic_pool<Platform>::find(worker& w) noexcept {
    runnable* r = nullptr;
    if (w.global_interval.tick(&Platform::now)) {
        r = check_shared_work(w);
    }
    runnable* const behind = std::exchange(w.yielded, nullptr);
    paused_chain* const paused = std::exchange(w.paused, nullptr);
    if (paused != nullptr) {
        queues_.release_child(w, *paused);
    } else { // the chain that has forked them waits, or lets other tasks run
        queues_.enqueue_children(w);
    }
    if (behind != nullptr) {
        if (r == nullptr && queues_.has_nothing(w)) {
            return behind;
        }
        if (paused != nullptr) {
            w.children.take_all(paused->forked);
        }
        queues_.push_behind(w, *behind);
    }
    if (r == nullptr) {
        r = queues_.next(w);
    }
    return r != nullptr ? r : search_or_sleep(w);
}

// What a busy worker does at intervals.
template <class Platform> runnable* basic_pool<Platform>::check_shared_work(worker& w) noexcept {
    const std::int64_t now = Platform::now();
    w.global_interval.restart(now);
    maintenance_.poll(w, now);
    w.ring.trim();
    if (queues_.classes().in_use()) { // this may not be the turn of a normal job
        w.injector_is_due = true;
        return nullptr;
    }
    return queues_.take_due(w);
}

// ---- Searching and sleeping

// Returns a job or nullptr. On entry, `more` says that the worker was woken for a job. On return,
// `more` says that there are or may be more jobs than the returned one.
template <class Platform>
runnable* basic_pool<Platform>::search(worker& w, bool after_timed_sleep, bool but_arms,
                                       bool& more) noexcept {
    maintenance_.fire_timers(w, Platform::now());
    if (runnable* const own = queues_.local_work(w)) { // from timers and files
        more = more || !queues_.has_nothing(w);        // a job that it was woken for is still there
        return own;
    }
    const bool woken = std::exchange(more, false);
    runnable* r = queues_.fetch(w);
    if (r == nullptr) {
        r = queues_.take_pinned(w);
        more = r != nullptr && woken; // as above
    }
    if (r == nullptr && queues_.steals()) {
        unsigned taken = 1;
        r = queues_.steal(w, taken, more);
        if (r == nullptr && after_timed_sleep) {
            taken = 1;
            r = queues_.take_stale(w);
        }
        if (r != nullptr && trace_ != nullptr) {
            trace_->stole(w.index, taken, Platform::now());
        }
    }
    if (r == nullptr && !but_arms) {
        r = queues_.take_arm(w, more);
    }
    more = more || !queues_.has_nothing(w);
    return r;
}

// Returns a job, or nullptr if run() is to return.
template <class Platform> runnable* basic_pool<Platform>::search_or_sleep(worker& w) noexcept {
    auto& idle = queues_.idle();
    bool searching = idle.start_search();
    bool watches = false;
    bool woken = false; // another thread has woken this worker
    bool leaves_arms = false;
    maintenance_.reset_timed_sleep(w);
    w.is_searching = true;
    for (;;) {
        if (searching) {
            bool more = woken && !w.take_woken_for_pinned();
            runnable* r = search(w, watches, leaves_arms, more);
            if (r == nullptr && std::exchange(w.ran_arm, false)) { // the next arm may come soon
                basic_spin<Platform>::until(
                    [&]() noexcept { return (r = search(w, false, false, more)) != nullptr; },
                    queues_.least_spin_ns());
            }
            if (r != nullptr) {
                // No worker was woken for the arms that were left to the watcher. Another sleeper
                // takes them over: it may not watch.
                more = more || (watches && queues_.has_arms());
                w.is_searching = false;
                queues_.unpark(idle.end_search(more));
                replace_blocked();
                w.global_interval.wake(Platform::now());
                return r;
            }
        }
        // Order: acquire [scheduler.stop]; sees what came before stop().
        if (stopped_.load(std::memory_order_acquire)) {
            w.is_searching = false;
            if (searching) {
                queues_.unpark(idle.end_search(false));
            }
            return nullptr;
        }
        if (owner_.is_substitute()) {
            w.is_searching = false;
            if (std::exchange(searching, false)) {
                queues_.unpark(idle.end_search(false));
            }
            if (owner_.hand_to_idle_thread(w)) {
                thread_role::here().worker = nullptr;
                return nullptr;
            }
            w.is_searching = true;
        }
        w.ring.trim();
        watches = idle.announce(w.index, searching, queues_.may_watch());
        owner_.found_nothing();
        leaves_arms = watches && maintenance_.naps_briefly(w) && queues_.callers_take_all_places();
        woken = !queues_.sees_work(w, leaves_arms) && !owner_.may_hand_over() &&
                maintenance_.sleep(w, watches);
        leaves_arms = leaves_arms && !woken;
        // Order: relaxed; stop() unparks all workers, also those that are in the set of sleepers.
        // The token makes the store visible.
        if (!woken || stopped_.load(std::memory_order_relaxed)) {
            if (!idle.retract(w.index) && !woken) {
                w.sleeper.park(deadline::never());
                woken = true;
            }
        }
        searching = true;
    }
}

template <class Platform> void basic_pool<Platform>::stop() noexcept {
    // Order: release [scheduler.stop]; a worker that leaves sees what came before.
    stopped_.store(true, std::memory_order_release);
    for (worker& w : workers()) {
        queues_.unpark(w);
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
