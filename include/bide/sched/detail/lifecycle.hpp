// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_LIFECYCLE_HPP
#define BIDE_SCHED_DETAIL_LIFECYCLE_HPP

// How a scheduler or a run_loop starts tasks, finds that no task is left, and ends. Both are task
// homes. A task home is the executor that a task belongs to (task/detail/task_control.hpp). In this
// file, "scheduler" means either of them, and a run_loop is a pool of one worker.
//
// Counting. A task is counted when it is spawned, by the thread that spawns it, and when it has
// ended, by the thread that ends it. Each worker has its own counters. Every other thread is
// external; external threads share two counters. While the scheduler closes, a worker that finds
// nothing to run adds up all counters. An external thread that has ended a task wakes a worker for
// this. The worker first adds up all ended tasks, then all spawned tasks. If the sums are equal,
// there was a moment at which no task was left. Reason: both sums only grow, and no task ends
// before it was spawned [lifecycle.counts].
//
// Closing. close() sets `closing_` and cancels the tasks that wait. A task that begins to wait
// later finds its registry (its list of waiting tasks) closed, and is then cancelled, too. An
// external thread counts its task as spawned before it reads `closing_`, and close() sets
// `closing_` before a worker adds up [lifecycle.closing]. So either shutdown() waits for the task,
// or the task is refused. The same holds for a fork-join that an external thread begins.
//
// External calls. An external thread may still be in post() when the runnable that it posted causes
// the destruction of the scheduler. So such calls are counted, and the destructor waits until the
// last one is over [lifecycle.external_call]. The decrement of the count is the last access of an
// external call to the scheduler.
//
// Posts after the end. If a runnable is posted when no worker is left, it runs on another executor.
// The poster reads `ended_` after its push. shutdown() sets `ended_` before it empties the queue.
// So one of the two finds the runnable and forwards it [lifecycle.unrun].

#include <bide/task/detail/task_control.hpp>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// `Home` is task_home. `Pool` is basic_pool or basic_loop. Models replace both (tests/model).
template <class Platform, class Home, class Pool> class basic_lifecycle : public Home {
    using worker = typename Pool::worker;
    using header = basic_task_header<Platform>;
    template <class T> using atomic = typename Platform::template atomic<T>;

public:
    // Returns the executor for runnables that are posted when no worker is left.
    using get_executor = executor_ref (*)();

    basic_lifecycle(Pool& its_pool, get_executor fallback) noexcept
        : pool_(its_pool), fallback_executor_(fallback) {}

    // A call by an external thread. The scheduler exists until the call is over.
    class external_call {
    public:
        explicit external_call(basic_lifecycle& of) noexcept : external_calls_(of.external_calls_) {
            // Order: relaxed; this count comes before the push of the runnable. The scheduler is
            // destroyed only after that runnable was seen.
            external_calls_.fetch_add(1, std::memory_order_relaxed);
        }
        external_call& operator=(external_call&&) = delete;
        ~external_call() {
            // Order: release [lifecycle.external_call]; the destructor comes after this call.
            external_calls_.fetch_sub(1, std::memory_order_release);
        }

    private:
        atomic<std::uint32_t>& external_calls_;
    };

    // ---- Tasks

    // Enqueues a new task. Refuses it if the scheduler is closing.
    void start(header& t) noexcept final { start_in(*this, t); }
    void post(runnable& r) noexcept final { post_in(*this, r); }
    // `w` is the worker of the calling thread, or nullptr.
    void push(runnable& r, worker* w) noexcept {
        w != nullptr ? pool_.push_local(*w, r) : pool_.push(r);
    }

    // Does what start() does, but calls push() of the queue `to`.
    template <class Queue> void start_in(Queue& to, header& t) noexcept {
        if (worker* const w = pool_.current_worker()) {
            w->spawned.add(1);
            if (!is_closing()) {
                to.push(t.to_run(), w);
            } else {
                t.refuse();
            }
            return;
        }
        const external_call here(*this);
        if (admit()) {
            to.push(t.to_run(), nullptr);
        } else {
            t.refuse();
        }
    }

    template <class Queue> void post_in(Queue& to, runnable& r) noexcept {
        if (worker* const w = pool_.current_worker()) {
            to.push(r, w);
            return;
        }
        const external_call here(*this);
        to.push(r, nullptr);
        // Order: seq_cst [lifecycle.unrun]; this read follows the push of the runnable. shutdown()
        // sets `ended_` before it empties the queue.
        if (ended_.load(std::memory_order_seq_cst)) {
            forward_unrun();
        }
    }

    // Counts a task that an external thread spawns, during an external_call. Returns false if the
    // scheduler is closing. The caller then ends the task.
    [[nodiscard]] bool admit() noexcept {
        // Order: seq_cst [lifecycle.closing]; counted before `closing_` is read.
        spawned_externally_.fetch_add(1, std::memory_order_seq_cst);
        // Order: seq_cst [lifecycle.closing]; if this reads false, shutdown() waits for the task.
        return !closing_.load(std::memory_order_seq_cst);
    }

    // An external thread calls enter_caller() when it begins a fork-join, and leave_caller() when
    // that fork-join has ended. The fork-join is counted like a task. If the scheduler is closing,
    // enter_caller() returns false, and the thread does not call leave_caller(). leave_caller() is
    // the thread's last access to the scheduler.
    [[nodiscard]] bool enter_caller() noexcept {
        const external_call here(*this);
        if (admit()) {
            return true;
        }
        task_ended();
        return false;
    }
    void leave_caller() noexcept {
        const external_call here(*this); // the scheduler may end after the count
        task_ended();
    }

    // Overrides of basic_task_home. A task may end on any thread of the pool.
    bool is_here() const noexcept final { return pool_.runs_here(); }
    executor_ref executor() noexcept override { return executor_ref::to(*this); }
    unsigned registry_here() const noexcept final {
        const worker* const w = pool_.current_worker();
        return w != nullptr ? w->index : 0;
    }
    basic_task_registry<Platform>& registry(unsigned number) noexcept final {
        return pool_.workers()[number].tasks;
    }

    void task_ended() noexcept final {
        if (worker* const w = pool_.current_worker()) {
            w->completed.add(1);
            return;
        }
        // Order: seq_cst [lifecycle.counts] [idle.announce]; this count ends the task. The count
        // comes before the look for a sleeping worker.
        ended_externally_.fetch_add(1, std::memory_order_seq_cst);
        // Order: seq_cst [lifecycle.closing]; read after the task was counted.
        if (closing_.load(std::memory_order_seq_cst)) {
            pool_.wake_any();
        }
    }

    bool is_closing() const noexcept final {
        // Order: relaxed; a task may see the store late.
        return closing_.load(std::memory_order_relaxed);
    }

    // Called when a worker has found nothing and has announced its sleep. If the scheduler is
    // closing and no task is left, lets shutdown() continue.
    void add_up() noexcept {
        // Order: seq_cst [lifecycle.closing]; this read follows the worker's announcement.
        if (closing_.load(std::memory_order_seq_cst) && all_ended()) {
            no_task_left_.arrive(1);
        }
    }

    struct counts {
        std::uint64_t spawned, ended;
    };
    counts count_external() const noexcept {
        // Order: seq_cst [lifecycle.counts] [idle.announce]; this read follows the worker's
        // announcement. Each task in this count was counted as spawned earlier.
        const std::uint64_t ended = ended_externally_.load(std::memory_order_seq_cst);
        // Order: relaxed; the load above has acquired the counts of the spawned tasks.
        return {spawned_externally_.load(std::memory_order_relaxed), ended};
    }

    // ---- The end

    // Called instead of add_up() if no worker was started, and so no task is left.
    void no_worker_started() noexcept { no_task_left_.arrive(1); }

    // Closes the scheduler, waits until no task is left, and stops the pool. Then calls
    // end_threads() once, which waits for all threads. Returns false if tasks are left at the
    // deadline.
    template <class EndThreads>
    BIDE_COLD bool shutdown(deadline until, EndThreads&& end_threads) noexcept {
        close();
        if (!no_task_left_.wait_until(until)) {
            return false;
        }
        // Order: relaxed; the first caller ends the threads, and later callers wait for the gate.
        if (ending_threads_.exchange(true, std::memory_order_relaxed)) {
            no_thread_left_.wait();
            return true;
        }
        pool_.stop();
        end_threads();
        // Order: seq_cst [lifecycle.unrun]; written before the queue is emptied.
        ended_.store(true, std::memory_order_seq_cst);
        forward_unrun();
        no_thread_left_.arrive(1);
        return true;
    }

    // Returns all counts. If the two sums are equal, there was a moment at which no task was left.
    counts count_all() const noexcept {
        counts sum = count_external();
        for (const worker& w : pool_.workers()) {
            sum.ended += w.completed.read();
        }
        sum.spawned = 0;
        for (const worker& w : pool_.workers()) {
            sum.spawned += w.spawned.read();
        }
        // Order: seq_cst [lifecycle.closing]; a thread whose task is not counted here reads that
        // the scheduler is closing.
        sum.spawned += spawned_externally_.load(std::memory_order_seq_cst);
        return sum;
    }

    bool all_ended() const noexcept {
        const counts now = count_all();
        return now.ended == now.spawned;
    }

protected:
    // Waits for the external calls. The derived class calls it at the end of its destructor.
    // Blocks: until the last external call is over.
    // Requires: shutdown() has returned true.
    BIDE_COLD void end_external_calls() const noexcept {
        basic_backoff<Platform> backoff;
        // Order: acquire [lifecycle.external_call]; the last external call is over.
        while (external_calls_.load(std::memory_order_acquire) != 0) {
            backoff();
        }
    }

    ~basic_lifecycle() = default;

private:
    BIDE_COLD void close() noexcept {
        // Order: seq_cst [lifecycle.closing]; written before a worker adds up.
        if (closing_.exchange(true, std::memory_order_seq_cst)) {
            return;
        }
        for (worker& w : pool_.workers()) {
            w.tasks.close();
        }
        for (worker& w : pool_.workers()) {
            w.tasks.for_each([](header& its_task) { its_task.cancel(cancel_reason::shutdown); });
        }
        pool_.wake_any();
    }

    BIDE_COLD void forward_unrun() noexcept {
        while (pool_.queued() != 0) { // seq_cst [lifecycle.unrun]; after `ended_`
            if (runnable* const r = pool_.take_unrun()) {
                fallback_executor_().post(*r);
            }
        }
    }

    Pool& pool_;
    const get_executor fallback_executor_;

    atomic<std::uint64_t> spawned_externally_{0};
    atomic<std::uint64_t> ended_externally_{0};
    atomic<std::uint32_t> external_calls_{0};
    atomic<bool> closing_{false};
    atomic<bool> ending_threads_{false};
    atomic<bool> ended_{false};
    basic_gate<Platform> no_task_left_{1};
    basic_gate<Platform> no_thread_left_{1};
};

}}} // namespace bide::BIDE_ABI::detail

#endif
