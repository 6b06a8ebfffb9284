#ifndef BIDE_SCHED_DETAIL_LIFECYCLE_HPP
#define BIDE_SCHED_DETAIL_LIFECYCLE_HPP

// How a scheduler begins tasks, knows that none is left, and ends.
//
// The end. close() says that it is closing and cancels what waits; a task that begins to wait later
// finds the registry closed. Each task is counted when it is spawned and when it has ended, each
// time by the thread that does it: a worker counts in counters of its own, every other thread in
// the two here. A worker that finds nothing to run adds them up; a thread that is no worker wakes
// one for that after it ended a task. All that ended are added up first, then all that were spawned:
// if the sums are equal, there was a moment at which no task was left, for both only grow and no
// task ends before it was spawned [N1]. A thread that is no worker counts its task as spawned before
// it looks whether the scheduler is closing, and close() says so before a worker adds up [N2]: the
// task is waited for, or it is refused. So is a thread from elsewhere that forks here.
//
// A thread that is no worker may be in post() while what it posted ends the scheduler's life, so
// such visits are counted, and the destructor waits for the last to be over [N3]; the end of a visit
// is its last touch.
//
// What is posted when no worker is left runs elsewhere: the poster looks for the end after it has
// pushed, shutdown() says that there are no workers before it empties the queue [N4].

#include <bide/core/backoff.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/executor.hpp>
#include <bide/sched/detail/pool.hpp>
#include <bide/sync/detail/gate.hpp>
#include <bide/task/detail/task_header.hpp>
#include <bide/task/detail/task_registry.hpp>

#include <atomic>
#include <cstdint>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform, class Pool = basic_pool<Platform>> class basic_lifecycle {
    using worker = typename Pool::worker;
    using header = basic_task_header<Platform>;
    template <class T> using atomic = typename Platform::template atomic<T>;

public:
    // The executor that runs what is posted when no worker is left.
    using get_executor = executor_ref (*)();

    basic_lifecycle(Pool& pool, get_executor afterwards) noexcept
        : pool_(pool), afterwards_(afterwards) {}
    basic_lifecycle(const basic_lifecycle&) = delete;
    basic_lifecycle& operator=(const basic_lifecycle&) = delete;

    // Blocks: until the last visit is over.
    // Requires: shutdown() has returned true.
    ~basic_lifecycle();

    // A call by a thread that is no worker: the scheduler outlives it.
    class visit {
    public:
        explicit visit(basic_lifecycle& of) noexcept : visitors_(of.visitors_) {
            // Order: relaxed; the thread that ends the scheduler's life comes after it by what it posted.
            visitors_.fetch_add(1, std::memory_order_relaxed);
        }
        visit(const visit&) = delete;
        visit& operator=(const visit&) = delete;
        ~visit() {
            // Order: release [N3]; the destructor comes after.
            visitors_.fetch_sub(1, std::memory_order_release);
        }

    private:
        atomic<std::uint32_t>& visitors_;
    };

    // ---- Tasks

    // The first post of a new task; it is refused where the scheduler is closing.
    void start(header& t) noexcept;

    // Counts a task that a thread that is no worker spawns, during a visit. False: the scheduler is
    // closing, the caller ends the task.
    [[nodiscard]] bool admit() noexcept {
        // Order: seq_cst [N2]; counted before it is looked whether the scheduler is closing.
        spawned_outside_.fetch_add(1, std::memory_order_seq_cst);
        // Order: seq_cst [N2]; if this is not seen, the task is waited for.
        return !closing_.load(std::memory_order_seq_cst);
    }

    // A thread from elsewhere begins to run what workers run, and has ended that: it is counted as a
    // task is. False: the scheduler is closing. leave_caller() only where enter_caller() was true; it
    // is the caller's last touch.
    [[nodiscard]] bool enter_caller() noexcept {
        const visit here(*this);
        if (admit()) {
            return true;
        }
        task_ended();
        return false;
    }
    void leave_caller() noexcept {
        const visit here(*this); // the scheduler may end as soon as the count is made
        task_ended();
    }

    void post(runnable& r) noexcept;

    // See basic_task_home.
    basic_task_registry<Platform>& registry() noexcept {
        worker* const w = pool_.mine();
        return w != nullptr ? w->tasks : pool_.workers().front().tasks;
    }
    void task_ended() noexcept;
    bool is_closing() const noexcept {
        // Order: relaxed; a task that is not told now is told later.
        return closing_.load(std::memory_order_relaxed);
    }

    // See basic_pool_owner.
    void found_nothing() noexcept;

    // What threads that are no workers have counted.
    struct outside_counts {
        std::uint64_t spawned, ended;
    };
    outside_counts outside() const noexcept {
        // Order: seq_cst [N1] [I1]; what ended was spawned before; looked at after it was announced.
        const std::uint64_t ended = ended_outside_.load(std::memory_order_seq_cst);
        // Order: relaxed; the former brought all that was spawned before.
        return {spawned_outside_.load(std::memory_order_relaxed), ended};
    }

    // ---- The end

    // No worker ever ran: no task is left. Instead of found_nothing().
    void never_ran() noexcept { nothing_left_.arrive(1); }

    // Calls end_threads() once, after the pool was stopped; it returns when no thread is left.
    // True: all has ended by the deadline.
    template <class EndThreads> bool shutdown(deadline until, EndThreads&& end_threads) noexcept;

private:
    bool all_ended() const noexcept;
    void close() noexcept;
    void forward_left_over() noexcept;

    Pool& pool_;
    const get_executor afterwards_;

    atomic<std::uint64_t> spawned_outside_{0};
    atomic<std::uint64_t> ended_outside_{0};
    atomic<std::uint32_t> visitors_{0};
    atomic<bool> closing_{false};
    atomic<bool> ending_threads_{false};
    atomic<bool> ended_{false};
    basic_gate<Platform> nothing_left_{1}; // no task
    basic_gate<Platform> over_{1};         // no thread
};

template <class Platform, class Pool> basic_lifecycle<Platform, Pool>::~basic_lifecycle() {
    basic_backoff<Platform> backoff;
    // Order: acquire [N3]; the last visit is over.
    while (visitors_.load(std::memory_order_acquire) != 0) {
        backoff();
    }
}

// ---- Tasks

template <class Platform, class Pool>
void basic_lifecycle<Platform, Pool>::start(header& t) noexcept {
    if (worker* const w = pool_.mine()) {
        w->spawned.add(1);
        if (!is_closing()) {
            pool_.push_local(*w, t.to_run());
        } else {
            t.refuse();
        }
        return;
    }
    const visit here(*this);
    if (admit()) {
        pool_.push(t.to_run());
    } else {
        t.refuse();
    }
}

template <class Platform, class Pool>
void basic_lifecycle<Platform, Pool>::post(runnable& r) noexcept {
    if (worker* const w = pool_.mine()) {
        pool_.push_local(*w, r);
        return;
    }
    const visit here(*this);
    pool_.push(r);
    // Order: seq_cst [N4]; looked at after the push; shutdown() does the reverse.
    if (ended_.load(std::memory_order_seq_cst)) {
        forward_left_over();
    }
}

template <class Platform, class Pool> void basic_lifecycle<Platform, Pool>::task_ended() noexcept {
    if (worker* const w = pool_.mine()) {
        w->completed.add(1);
        return;
    }
    // Order: seq_cst [N1] [I1]; counted after all that the task did; a job for a worker that adds up.
    ended_outside_.fetch_add(1, std::memory_order_seq_cst);
    // Order: seq_cst [N2]; counted before it is looked whether a worker adds up.
    if (closing_.load(std::memory_order_seq_cst)) {
        pool_.nudge();
    }
}

template <class Platform, class Pool>
bool basic_lifecycle<Platform, Pool>::all_ended() const noexcept {
    std::uint64_t ended = outside().ended;
    for (const worker& w : pool_.workers()) {
        ended += w.completed.read();
    }
    std::uint64_t spawned = 0;
    for (const worker& w : pool_.workers()) {
        spawned += w.spawned.read();
    }
    // Order: seq_cst [N2]; a task that is not counted here sees that the scheduler is closing.
    spawned += spawned_outside_.load(std::memory_order_seq_cst);
    return ended == spawned;
}

template <class Platform, class Pool>
void basic_lifecycle<Platform, Pool>::found_nothing() noexcept {
    // Order: seq_cst [N2]; after this worker said so in the idle word.
    if (closing_.load(std::memory_order_seq_cst) && all_ended()) {
        nothing_left_.arrive(1);
    }
}

// ---- The end

template <class Platform, class Pool> void basic_lifecycle<Platform, Pool>::close() noexcept {
    // Order: seq_cst [N2]; said before anything is added up.
    if (closing_.exchange(true, std::memory_order_seq_cst)) {
        return;
    }
    for (worker& w : pool_.workers()) {
        w.tasks.close();
    }
    for (worker& w : pool_.workers()) {
        w.tasks.for_each([](header& t) { t.cancel(); });
    }
    pool_.nudge();
}

template <class Platform, class Pool>
template <class EndThreads>
bool basic_lifecycle<Platform, Pool>::shutdown(deadline until, EndThreads&& end_threads) noexcept {
    close();
    if (!nothing_left_.wait_until(until)) {
        return false;
    }
    // Order: relaxed; the first caller does it, later ones wait for its end.
    if (ending_threads_.exchange(true, std::memory_order_relaxed)) {
        over_.wait();
        return true;
    }
    pool_.stop();
    end_threads();
    // Order: seq_cst [N4]; said before the rest is taken out.
    ended_.store(true, std::memory_order_seq_cst);
    forward_left_over();
    over_.arrive(1);
    return true;
}

template <class Platform, class Pool>
void basic_lifecycle<Platform, Pool>::forward_left_over() noexcept {
    while (pool_.queued() != 0) { // seq_cst [N4]; after `ended_`
        if (runnable* const r = pool_.left_over()) {
            afterwards_().post(*r);
        }
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
