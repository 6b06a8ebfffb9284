// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_LOOP_HPP
#define BIDE_SCHED_DETAIL_LOOP_HPP

// The one worker of a run_loop (sched/run_loop.hpp): its queues, its timers, and the place where
// its thread sleeps. The loop starts no thread. For basic_lifecycle (lifecycle.hpp), the loop is a
// pool with one worker.
//
// One thread at a time runs the loop. Jobs that this thread enqueues go into a plain list. Other
// threads push to the injector, and then leave a token for the thread of the loop. That thread
// sleeps only if there is no token (basic_sleeper in worker.hpp). When it takes a token, it looks
// into the injector before its next sleep [sleeper.token].
//
// The word `runner_` says which thread runs the loop:
//
//   none      no thread runs the loop
//   running   a thread runs the loop; if another thread tries to run it, the program terminates
//   joining   a thread that waits for tasks of the loop runs it, outside of run()
//   wanted    as joining, but other threads sleep until the joining thread leaves the loop; one
//             of them then runs the loop
//
// Only the owner of a loop joins the loop when it waits for tasks of the loop. The owner is the
// thread that has run the loop last, or the thread that has made the loop if no thread has run it.
// A joining thread leaves the loop as soon as another thread wants to run it. It then sleeps until
// its tasks have ended.
//
// A thread that leaves the loop writes `runner_` with release order. The next thread reads it with
// acquire order, and so sees all earlier changes of the loop [loop.runner]. The members of the loop
// need no other memory order.

#include <bide/sched/detail/worker.hpp>

namespace bide { inline namespace BIDE_ABI { namespace detail {

template <class Platform> class BIDE_SHARED basic_loop final : public basic_worker_host<Platform> {
public:
    // The counters for basic_lifecycle, and the tasks that have waited.
    struct worker {
        static constexpr unsigned index = 0;
        basic_counter<Platform> spawned, completed;
        basic_task_registry<Platform> tasks;
    };

    // `executor` posts to the loop.
    basic_loop(executor_ref executor, driver* io, std::int64_t timer_slack_ns,
               trace_sink* trace = nullptr) noexcept
        : executor_(executor), driver_(io), trace_(trace), owner_(thread_mark<Platform>()),
          timers_(waker(&on_earlier_timer, this), timer_slack_ns) {}

    // Runs jobs on the calling thread, and sleeps while there is nothing to run. Calls
    // is_over(false) before each job, and is_over(true) when there is nothing to run. Returns when
    // is_over() returns true, stop_run() was called, or the deadline has passed. Returns the number
    // of jobs that it ran. If `may_stop` is false, stop_run() ends the next call instead of this
    // one. Terminates if the loop is running already.
    template <class IsOver>
    std::size_t run(deadline until, IsOver&& is_over, bool may_stop = true) noexcept {
        enter();
        run_scope mine(*this, true);
        const auto ends = [&](bool is_idle) noexcept {
            return (!is_idle && may_stop && take_stop()) || is_over(is_idle);
        };
        return run_jobs(until, ends, mine.outer_host());
    }

    // Called by a thread that waits for tasks of the loop. Runs jobs of the loop until is_over()
    // returns true. stop_run() does not end this call. If the calling thread does not run the loop
    // yet, it joins the loop during this call. When another thread wants to run the loop, a thread
    // that has joined returns, even if is_over() is not true. If another thread runs the loop
    // already, or the calling thread does not own the loop, the call returns at once.
    // Requires: the thread that makes is_over() true calls wake_any() afterwards.
    template <class IsOver> void run_inside(IsOver&& is_over) noexcept {
        const bool joins = !runs_here();
        if (joins && !join()) {
            return;
        }
        run_scope mine(*this, joins);
        enqueue_forked(); // a job that waits takes no child back
        inner_.begin_outer_waits();
        const auto ends = [&](bool) { return is_over() || (joins && is_wanted()); };
        run_jobs(deadline::never(), ends, mine.outer_host());
    }

    // Ends the present run(). If there is none, ends the next one. Any thread may call it.
    void stop_run() noexcept {
        // Order: release [loop.stop]; the thread that returns from run() sees what happened before
        // this stop and, because this is a read-modify-write, before earlier stops.
        stopped_.exchange(true, std::memory_order_release);
        wake_any();
    }

    // The following functions return snapshots. Any thread may call them.
    // Order: relaxed; the value may be old when the caller reads it.
    bool is_running() const noexcept { return runner_.load(std::memory_order_relaxed) != none; }
    bool is_asleep() const noexcept { return sleeper_.is_asleep(); }

    bool runs_here() const noexcept { return running_here() == this; }
    // Returns true if the calling thread owns the loop: it has run the loop last, or it has made
    // the loop and no thread has run it. The result is exact between join() and leave().
    // Order: relaxed; the acquire of join() makes the changes of the previous thread visible.
    bool is_own() const noexcept {
        return owner_.load(std::memory_order_relaxed) == thread_mark<Platform>();
    }
    std::int64_t next_timer_ns() const noexcept { return timers_.next_ns(); }

    // ---- For basic_lifecycle

    worker* current_worker() noexcept { return runs_here() ? &workers_[0] : nullptr; }
    auto& workers() noexcept { return workers_; }

    void push_local(worker&, runnable& r) noexcept { ready_.push(r); }
    void push(runnable& r) noexcept {
        posted_.push(r);
        wake_any();
    }
    void wake_any() noexcept { sleeper_.unpark(driver_); }
    void stop() noexcept {}
    std::size_t queued() const noexcept { return posted_.size(); }
    runnable* take_unrun() noexcept { return posted_.pop(); }

private:
    using word = futex_word;
    static constexpr word none = 0, running = 1, joining = 2, wanted = 3;

    // The calling thread runs the loop while this object lives. The object saves and restores the
    // thread-local state, because the thread may be in a task of another scheduler.
    class run_scope {
    public:
        // If `begins` is false, the thread runs the loop already, and one of its jobs waits.
        explicit run_scope(basic_loop& of, bool begins) noexcept
            : loop_(of), begins_(begins), local_(worker_local<Platform>::get()),
              resumed_(Platform::template near_local<resume_state>()) {
            wake_scope<Platform>::hand_over_pending(); // pending coroutines would resume late
            outer_local_ = std::exchange(local_, {});
            outer_resumed_ = std::exchange(resumed_, {});
            outer_transfers_ = std::exchange(transfer_loop::current<Platform>(), nullptr);
            outer_loop_ = std::exchange(running_here(), &of);
            resumed_.worker = of.executor_;
        }
        run_scope& operator=(run_scope&&) = delete;
        ~run_scope() {
            running_here() = outer_loop_;
            transfer_loop::current<Platform>() = outer_transfers_;
            resumed_ = outer_resumed_;
            local_ = outer_local_;
            if (begins_) {
                loop_.leave();
            }
        }

        // The previous host of the thread: a worker, if a task of another scheduler runs the loop.
        basic_worker_host<Platform>*& outer_host() noexcept { return outer_local_.host; }

    private:
        basic_loop& loop_;
        const bool begins_;
        worker_local<Platform>& local_;
        resume_state& resumed_;
        worker_local<Platform> outer_local_;
        resume_state outer_resumed_;
        transfer_loop* outer_transfers_ = nullptr;
        basic_loop* outer_loop_;
    };

    // Begins a run. Waits until a joining thread has left the loop.
    void enter() noexcept {
        word seen = none;
        // Order: acquire [loop.runner]; sees the changes of the previous thread. Failure: relaxed,
        // no data is read.
        while (!runner_.compare_exchange_strong(seen, running, std::memory_order_acquire,
                                                std::memory_order_relaxed)) {
            if (seen == running || runs_here()) {
                fatal("a run_loop must not be run by two threads, nor by one of its own tasks");
            }
            // Order: relaxed, for both; the word asks for a wake and publishes no data.
            if (seen == wanted ||
                runner_.compare_exchange_strong(seen, wanted, std::memory_order_relaxed,
                                                std::memory_order_relaxed)) {
                wake_any(); // the joining thread calls is_wanted()
                futex_wait<Platform>(runner_, wanted, deadline::never());
            }
            seen = none;
        }
        // Order: relaxed; leave() publishes it.
        owner_.store(thread_mark<Platform>(), std::memory_order_relaxed);
    }

    // Begins to run the loop as a joining thread. Returns false if another thread runs the loop, or
    // if the calling thread does not own it.
    bool join() noexcept {
        word seen = none;
        // Order: acquire [loop.runner]; sees the changes of the previous thread, also the owner.
        if (!runner_.compare_exchange_strong(seen, joining, std::memory_order_acquire,
                                             std::memory_order_relaxed)) {
            return false;
        }
        if (!is_own()) {
            leave();
            return false;
        }
        return true;
    }

    // Ends a run or a join. The wake uses only the address of the word.
    void leave() noexcept {
        const auto* const at = &runner_;
        // Order: release [loop.runner]; the next thread sees what this one has done.
        if (runner_.exchange(none, std::memory_order_release) == wanted) {
            futex_wake<Platform>(at, (std::numeric_limits<int>::max)());
        }
    }

    // Returns true if a joining thread must leave the loop.
    // Order: relaxed; enter() changes the word before it wakes this thread.
    bool is_wanted() const noexcept { return runner_.load(std::memory_order_relaxed) == wanted; }

    // ---- The host of a task. See worker_host.

    void yield(runnable& r) noexcept override {
        enqueue_forked();
        ready_.push(r);
    }
    // If `chain` is the only job and no child is due, its children stay in `forked_`. If not, they
    // move to `chain.forked`, and the oldest child is enqueued if it is due.
    void pause(paused_chain& chain) noexcept override {
        const bool alone = ready_.first() == nullptr;
        const bool child_is_due = chain.pauses >= interval_.child_pauses(alone ? 0 : ~0U);
        paused_ = alone && !child_is_due ? &chain : nullptr;
        while (runnable* const r = paused_ == nullptr ? forked_.pop() : nullptr) {
            chain.forked.push_front(*r);
        }
        if (runnable* const oldest = child_is_due ? chain.forked.pop() : nullptr) {
            chain.pauses = 0;
            ready_.push(*oldest);
        }
        ready_.push(chain);
    }
    void fork(run_list& children) noexcept override {
        while (runnable* const r = children.pop()) {
            forked_.push_front(*r);
        }
    }
    bool take_back(runnable& r) noexcept override {
        return forked_.first() == &r && forked_.pop() != nullptr;
    }

    bool run_inside(runnable& r, inner_job& as) noexcept override {
        if (ready_.first() != &r || forked_.first() != nullptr || inner_.is_full() ||
            trace_ != nullptr || is_stop_wanted() || interval_.tick(&Platform::now)) {
            return false;
        }
        static_cast<void>(ready_.pop());
        ++ran_;
        inner_.begin(as);
        r.run.wake();
        inner_.end(as);
        if (std::exchange(paused_, nullptr) == nullptr) {
            enqueue_forked(); // see execute()
        }
        as.others_queued = ready_.first() != nullptr || is_stop_wanted(); // a stop counts as a job
        return true;
    }

    void add_timer(timer& t) noexcept override { timers_.add(t); }
    // A task that blocks its thread blocks the loop, because there is no other thread.
    bool blocks() noexcept override { return true; }
    void unblocks() noexcept override {}
    executor_ref executor() noexcept override { return executor_; }

    // Order: relaxed; take_stop() acquires.
    bool is_stop_wanted() const noexcept { return stopped_.load(std::memory_order_relaxed); }
    bool take_stop() noexcept {
        return is_stop_wanted() &&
               // Order: acquire [loop.stop]; sees what came before each stop_run().
               stopped_.exchange(false, std::memory_order_acquire);
    }

    static basic_loop*& running_here() noexcept { return Platform::template local<current>().loop; }

    template <class IsOver>
    std::size_t run_jobs(deadline until, IsOver&& is_over,
                         basic_worker_host<Platform>*& outer) noexcept {
        const std::size_t before = ran_;
        interval_.wake(Platform::now());
        while (!is_over(false)) {
            if (interval_.tick(&Platform::now)) {
                check_shared_work();
                if (until.has_passed()) {
                    break;
                }
            }
            runnable* r = next();
            if (r == nullptr) {
                check_shared_work();
                r = next();
            }
            if (r != nullptr) {
                ++ran_;
                execute(*r);
            } else if (is_over(true) || until.has_passed()) {
                break;
            } else {
                sleep(until, outer);
                interval_.wake(Platform::now());
            }
        }
        return ran_ - before;
    }

    runnable* next() noexcept {
        if (ready_.first() == nullptr) {
            take_posted();
        }
        return ready_.pop();
    }

    void execute(runnable& r) noexcept {
        run_job(*this, worker::index, trace_, r);
        if (std::exchange(paused_, nullptr) == nullptr) {
            enqueue_forked(); // the chain that has forked them waits
        }
    }

    // Enqueues the children so that the next child of the parent runs first.
    void enqueue_forked() noexcept {
        if (forked_.first() != nullptr) {
            ready_.append(*forked_.first(), *forked_.last());
            forked_ = {};
        }
    }

    // Fires the timers that are due, polls the driver, and takes the jobs that other threads have
    // pushed. Enqueues all jobs that become runnable.
    void check_shared_work() noexcept {
        const std::int64_t now = Platform::now();
        interval_.restart(now);
        if (timers_.next_ns() <= now) {
            timers_.fire_due(now);
        }
        if (driver_ != nullptr) {
            const wake_scope<Platform> later(&bide::current_worker<Platform>);
            driver_->wait(deadline::poll());
        }
        take_posted();
    }

    void take_posted() noexcept {
        if (const std::size_t n = posted_.size()) {
            posted_.pop(ready_, n);
        }
    }

    // Sleeps until there is a token, a timer is due, or `until` has passed. If the thread is also a
    // worker of another scheduler, `outer` is the host of that worker; if not, `outer` is nullptr.
    // If another thread takes over that worker during the sleep and keeps it, sets `outer` to
    // nullptr.
    void sleep(deadline until, basic_worker_host<Platform>*& outer) noexcept {
        auto& local = worker_local<Platform>::get();
        std::int64_t at = (std::min)(timers_.next_ns(), until.next_check_ns());
        local.host = outer;
        if (outer != nullptr && !outer->blocks()) {
            at = (std::min)(at, Platform::now() + outer->retry_ns);
        }
        auto* const kept = std::exchange(local.host, nullptr); // blocks() has changed local.host
        park_worker(sleeper_, &workers_[0], worker::index, deadline::at_ns(at), driver_, trace_,
                    &bide::current_worker<Platform>);
        local.host = kept;
        if (outer != nullptr) {
            outer->unblocks();
        }
        outer = std::exchange(local.host, nullptr);
    }

    static void on_earlier_timer(void* self) noexcept {
        auto& me = *static_cast<basic_loop*>(self);
        if (!me.runs_here()) {
            me.wake_any();
        }
    }

    struct current {
        basic_loop* loop = nullptr;
    };

    const executor_ref executor_;
    driver* const driver_;
    trace_sink* const trace_;
    // Only the thread that runs the loop uses these:
    run_list ready_;
    run_list forked_;            // the children of when_all that have not started, the newest first
    runnable* paused_ = nullptr; // the first of `ready_`, if its children are in `forked_`
    inner_jobs inner_;
    std::size_t ran_ = 0; // the number of jobs so far
    global_queue_interval interval_;
    worker workers_[1]; // any thread reads its counters
    // Any thread uses these:
    typename Platform::template atomic<word> runner_{none};
    typename Platform::template atomic<const void*> owner_;
    typename Platform::template atomic<bool> stopped_{false};
    basic_timer_queue<Platform> timers_;
    alignas(cache_line_pair) basic_injector<Platform> posted_;
    alignas(cache_line_pair) basic_sleeper<Platform> sleeper_;
};

}}} // namespace bide::BIDE_ABI::detail

#endif
