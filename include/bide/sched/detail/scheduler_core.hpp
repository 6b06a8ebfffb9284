#ifndef BIDE_SCHED_DETAIL_SCHEDULER_CORE_HPP
#define BIDE_SCHED_DETAIL_SCHEDULER_CORE_HPP

// What is behind a scheduler: the pool of workers, its threads and those for what blocks, and the
// beginning and the end of it all.
//
// The end. shutdown() says that it is closing and cancels what waits; a task that begins to wait
// later finds the registry closed. Each task is counted when it is spawned and when it has ended,
// by whoever does it, in a count of its own; a worker that finds nothing to run, and a thread that
// is no worker after it ended a task, adds them up. All that ended are added up first, then all that
// were spawned: if the sums are equal, there was a moment at which no task was left, for both only
// grow and no task ends before it was spawned [N1]. A thread that is no worker counts its task as
// spawned before it looks whether the scheduler is closing, and shutdown() says so before it adds up
// [N2]: the task is waited for, or it is refused.
//
// A thread that is no worker may be in post() while what it posted ends the scheduler's life, so
// such visits are counted, and the destructor waits for the last to be over; its end is its last
// touch.

#include <bide/core/backoff.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/coroutine_wait.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/timer.hpp>
#include <bide/sched/detail/cpu_count.hpp>
#include <bide/sched/detail/pool.hpp>
#include <bide/sched/detail/task_cell.hpp>
#include <bide/sched/detail/worker_threads.hpp>
#include <bide/sched/driver.hpp>
#include <bide/sched/scheduler_options.hpp>
#include <bide/sync/detail/gate.hpp>

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

class scheduler_core;

// What a thread from elsewhere has run on a worker, and waits for.
class guest : runnable {
public:
    guest(const guest&) = delete;
    guest& operator=(const guest&) = delete;

protected:
    guest() noexcept = default;
    ~guest() = default;

private:
    friend class scheduler_core;
    virtual void serve() noexcept = 0;
    static void enter(void* self) noexcept;

    scheduler_core* host_ = nullptr;
    basic_gate<native_platform> served_{1};
};

class scheduler_core final : public task_home, basic_pool<native_platform>::owner {
    using platform = native_platform;
    using pool_type = basic_pool<platform>;
    template <class T> using atomic = platform::atomic<T>;

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
    void start(task_header& t) noexcept;

    // The same for one that blocks.
    // Throws: std::system_error when there is no thread for it; the task is refused then.
    void start_blocking(task_header& t);

    void post(runnable& r) noexcept override;

    // Has a worker run it. False: the scheduler is closing.
    // Blocks: until it has been run.
    // Requires: not is_here().
    bool receive(guest& g) noexcept;

    // True: all has ended by the deadline.
    bool shutdown(deadline until) noexcept;

    // This thread is a worker, or runs what blocks.
    bool is_here() const noexcept override { return pool_type::place::here().pool == &pool_; }

    pool_type& pool() noexcept { return pool_; }
    const pool_type& pool() const noexcept { return pool_; }
    const worker_threads& threads() const noexcept { return threads_; }
    executor_ref executor() noexcept override { return executor_ref::to(*this); }

    struct outside_counts {
        std::uint64_t spawned, ended;
    };
    outside_counts outside() const noexcept {
        // Order: seq_cst [N1] [I1]; what ended was spawned before; looked at after it was announced.
        const std::uint64_t ended = ended_outside_.load(std::memory_order_seq_cst);
        // Order: acquire [N1]; after the former.
        return {spawned_outside_.load(std::memory_order_acquire), ended};
    }

private:
    friend guest;

    class visit {
    public:
        explicit visit(scheduler_core& c) noexcept : visitors_(c.visitors_) {
            // Order: relaxed; whoever ends the scheduler's life comes after it by what it posted.
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

    // Of basic_task_home, task_home and basic_pool::owner.
    basic_task_registry<platform>& registry() noexcept override;
    void task_ended() noexcept override;
    bool is_closing() const noexcept override {
        // Order: relaxed; whoever is not told now is told later.
        return closing_.load(std::memory_order_relaxed);
    }
    const unhandled& handler() const noexcept override { return unhandled_; }
    void enter() noexcept override {
        threads_.unpin();
        pool_type::place::here() = {&pool_, nullptr};
        employer::here().face = &face_;
    }
    void leave() noexcept override {
        pool_.leave_lane();
        pool_type::place::here() = {};
        employer::here() = {};
    }
    const void* face() const noexcept override { return &face_; }
    bool replace(worker& w) noexcept override { return threads_.replace(w); }
    void call_for_help() noexcept override { threads_.call_for_help(); }
    bool stands_in() const noexcept override { return employer::here().stands_in; }
    bool give_back(worker& w) noexcept override { return threads_.hire(w); }
    void found_nothing() noexcept override;

    bool all_ended() const noexcept;
    void begin_shutdown() noexcept;
    void forward_left_over() noexcept;

    scheduler& face_;
    const unhandled unhandled_;
    std::optional<driver::attachment> attached_;
    pool_type pool_;
    worker_threads threads_;

    atomic<std::uint64_t> spawned_outside_{0};
    atomic<std::uint64_t> ended_outside_{0};
    atomic<std::uint32_t> visitors_{0};
    atomic<bool> closing_{false};
    atomic<bool> ending_threads_{false};
    atomic<bool> ended_{false};
    basic_gate<platform> nothing_left_{1}; // no task
    basic_gate<platform> over_{1};         // no thread
};

inline scheduler_core::scheduler_core(scheduler& whose, scheduler_options&& wanted)
    : face_(whose), unhandled_(std::move(wanted.on_unhandled)),
      pool_(*this,
            {wanted.num_workers != 0 ? wanted.num_workers : cpu_count(), wanted.enable_stealing,
             wanted.io,
             deadline::saturated_ns(std::max(wanted.longest_nap, std::chrono::microseconds(0))),
             wanted.trace}),
      threads_(whose, pool_, wanted) {
    if (wanted.io != nullptr) {
        attached_.emplace(*wanted.io);
    }
}

inline void scheduler_core::open() {
    if (const std::error_code error = threads_.start()) {
        if (threads_.empty()) {
            nothing_left_.arrive(1);
        }
        shutdown(deadline::never());
        BIDE_THROW(std::system_error(error, "a worker of a scheduler cannot be started"));
    }
}

inline scheduler_core::~scheduler_core() {
    if (employer::here().face == &face_) {
        fatal("scheduler destroyed, and so shut down by one of its own workers");
    }
    shutdown(deadline::never());
    basic_backoff<platform> backoff;
    // Order: acquire [N3]; the last visit is over.
    while (visitors_.load(std::memory_order_acquire) != 0) {
        backoff();
    }
}

// ---- Tasks

inline void scheduler_core::start(task_header& t) noexcept {
    worker* const w = pool_.mine();
    if (w != nullptr) {
        w->spawned.add(1);
        if (!is_closing()) {
            pool_.push_local(*w, t.to_run());
        } else {
            t.refuse();
        }
        return;
    }
    const visit here(*this);
    // Order: seq_cst [N2]; counted before it is looked whether the scheduler is closing.
    spawned_outside_.fetch_add(1, std::memory_order_seq_cst);
    // Order: seq_cst [N2]; if this is not seen, the task is waited for.
    if (!closing_.load(std::memory_order_seq_cst)) {
        pool_.push(t.to_run());
    } else {
        t.refuse();
    }
}

inline void scheduler_core::start_blocking(task_header& t) {
    const visit here(*this);
    // Order: seq_cst [N2]; as in start().
    spawned_outside_.fetch_add(1, std::memory_order_seq_cst);
    std::error_code why;
    // Order: seq_cst [N2]; as in start().
    if (!closing_.load(std::memory_order_seq_cst) && threads_.post_blocking(t.to_run(), why)) {
        return;
    }
    t.refuse();
    if (why && why != errc::closed) {
        BIDE_THROW(std::system_error(why, "no thread for a blocking task"));
    }
}

inline void scheduler_core::post(runnable& r) noexcept {
    if (worker* const w = pool_.mine()) {
        pool_.push_local(*w, r);
        return;
    }
    const visit here(*this);
    pool_.push(r);
    // Order: seq_cst [N4]; looked at after the push; who ends it does the reverse.
    if (ended_.load(std::memory_order_seq_cst)) {
        forward_left_over();
    }
}

inline bool scheduler_core::receive(guest& g) noexcept {
    g.host_ = this;
    g.run = waker(&guest::enter, &g);
    const visit here(*this);
    // Order: seq_cst [N2]; as in start().
    spawned_outside_.fetch_add(1, std::memory_order_seq_cst);
    // Order: seq_cst [N2]; as in start().
    if (closing_.load(std::memory_order_seq_cst)) {
        task_ended();
        return false;
    }
    pool_.push(g);
    g.served_.wait();
    return true;
}

inline void guest::enter(void* self) noexcept {
    guest& g = *static_cast<guest*>(self);
    g.serve();
    g.host_->task_ended();
    g.served_.arrive(1);
}

inline basic_task_registry<native_platform>& scheduler_core::registry() noexcept {
    worker* const w = pool_.mine();
    return w != nullptr ? w->tasks : pool_.workers().front().tasks;
}

inline void scheduler_core::task_ended() noexcept {
    if (worker* const w = pool_.mine()) {
        w->completed.add(1);
        return;
    }
    // Order: seq_cst [N1] [I1]; counted after all that the task did; a job for a worker that adds up.
    ended_outside_.fetch_add(1, std::memory_order_seq_cst);
    // Order: seq_cst [N2]; counted before it is looked whether somebody adds up.
    if (closing_.load(std::memory_order_seq_cst)) {
        pool_.nudge();
    }
}

inline bool scheduler_core::all_ended() const noexcept {
    const outside_counts outside_first = outside();
    std::uint64_t ended = outside_first.ended;
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

inline void scheduler_core::found_nothing() noexcept {
    // Order: seq_cst [N2]; after this worker said so in the idle word.
    if (closing_.load(std::memory_order_seq_cst) && all_ended()) {
        nothing_left_.arrive(1);
    }
}

// ---- The end

inline void scheduler_core::begin_shutdown() noexcept {
    // Order: seq_cst [N2]; said before anything is added up.
    if (closing_.exchange(true, std::memory_order_seq_cst)) {
        return;
    }
    for (worker& w : pool_.workers()) {
        w.tasks.close();
    }
    for (worker& w : pool_.workers()) {
        w.tasks.for_each([](task_header& t) { t.cancel(); });
    }
    pool_.nudge();
}

inline bool scheduler_core::shutdown(deadline until) noexcept {
    const employer& here = employer::here();
    if (here.face == &face_) {
        if (is_closing() || here.leaving) {
            return false; // it is being done, or is somebody else's business
        }
        fatal("scheduler shut down by one of its own workers");
    }
    begin_shutdown();
    if (!nothing_left_.wait_until(until)) {
        return false;
    }
    // Order: relaxed; one of the callers does it, the others wait for its end.
    if (ending_threads_.exchange(true, std::memory_order_relaxed)) {
        over_.wait();
        return true;
    }
    pool_.stop();
    threads_.finish();
    {
        wake_scope<platform> later(&service_executor<platform>);
        attached_.reset();
    }
    // Order: seq_cst [N4]; said before the rest is taken out.
    ended_.store(true, std::memory_order_seq_cst);
    forward_left_over();
    over_.arrive(1);
    return true;
}

// What comes when there are no workers any more runs where nobody's coroutines run.
inline void scheduler_core::forward_left_over() noexcept {
    while (pool_.queued() != 0) { // seq_cst [N4]; after `ended_`
        if (runnable* const r = pool_.left_over()) {
            timer_service<platform>().post(*r);
        }
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
