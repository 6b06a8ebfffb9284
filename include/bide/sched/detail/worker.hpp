// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_WORKER_HPP
#define BIDE_SCHED_DETAIL_WORKER_HPP

// One worker of a pool (pool.hpp): its queues, its timers, its counters, the thread that owns it,
// and the place where that thread sleeps. One thread at a time owns a worker. Other threads steal
// from it, wake it and read its counters.
//
// Ownership (basic_worker_ownership). If the owner blocks in a task, another thread can take over
// the worker. One word says which thread owns the worker:
//
//   address of a thread    this thread owns the worker
//   the same, plus 1       the owner is blocked; another thread may replace it
//   transferring           a thread looks for a replacement
//
// A thread that returns from a blocking call reads the word. If it finds its own address plus 1, it
// is still the owner. If it finds `transferring`, it waits until the transfer has succeeded or
// failed. If it finds another address, it has lost the worker.
//
// Sleep (basic_sleeper). The owner sleeps on a futex, like a parker (core/parker.hpp), or in the
// scheduler's driver, where it also waits for files. unpark() leaves a token; park() takes it. The
// state is one word:
//
//   empty      no token; the worker is awake or is about to sleep
//   parked     no token; the worker sleeps on this word or is about to
//   driving    no token; the worker waits in the driver or is about to
//   notified   a token is there for the worker
//
// unpark() and park() change the word by a read-modify-write. The old value tells unpark() how to
// wake the sleeper, and tells park() whether there was a token. If unpark() wakes the driver before
// the sleeper waits in it, the driver keeps the wake.
//
// Pinned jobs (basic_thread_queue). Only one thread may run a pinned job. That thread may own any
// worker, or none. `owned_` in its queue has the number of that worker, and the push of a pinned
// job wakes that worker [thread_queue.owner]:
//
//   pusher: job visible   read `owned_`, read the idle word
//   thread: write `owned_`   announce that worker as asleep   look at its queue
//
// All of these steps are seq_cst. (The idle word is the word of idle.hpp.) So one of two cases
// holds:
//
// - The pusher reads an old value of `owned_`. Then the job was visible before the thread wrote
//   `owned_`, and the thread finds the job when it looks at its queue. So no wake is needed: the
//   pusher finds no sleeper, or wakes a worker of another thread, which searches in vain.
// - The pusher reads the present value of `owned_`. If the thread missed the job when it looked,
//   the pusher also reads an idle word in which the thread's worker sleeps, and wakes exactly that
//   worker.
//
// A thread without a worker uses `owned_` only: it writes `none`, and looks at its queue before it
// parks. A pusher that reads `none` unparks the thread.

#include <bide/core/timer.hpp>
#include <bide/io/driver.hpp>
#include <bide/sched/child_deque.hpp>
#include <bide/sched/injector.hpp>
#include <bide/sched/run_queue.hpp>
#include <bide/sched/scheduler_options.hpp>
#include <bide/task/detail/task_control.hpp>

#include <memory>

namespace bide { inline namespace BIDE_ABI { namespace detail {

template <class Platform> class basic_fork_job;
template <class Platform> class basic_fork_lane;
template <class Platform> class basic_pool;
template <class Platform> struct basic_worker;

// The source of the arms of fork-joins. An arm is a function of a fork-join; a worker may take it
// from the thread that has forked it. An idle worker asks the source when the queues of the pool
// are empty. A pool that has had no fork-join has no source, and does not need fork_lane.hpp.
template <class Platform> class basic_arm_source {
public:
    virtual ~basic_arm_source() = default;

    // Takes the oldest arm and stores it in `w.arm`, which the worker then runs. Returns false if
    // there is no arm. Sets `left` to true if another worker should be woken for the remaining
    // arms.
    virtual bool take_arm(basic_worker<Platform>& w, bool& left) noexcept = 0;
    // Called at the time `now`, when `w` has run `w.arm`. Takes the oldest arm of the same lane, as
    // take_arm() does.
    virtual bool take_next_arm(basic_worker<Platform>& w, std::int64_t now) noexcept = 0;
    // Returns true if there may be an arm to take. A worker that has announced its sleep calls it,
    // to check the fork-joins a last time before it sleeps [idle.announce].
    virtual bool has_work() const noexcept = 0;
    // Called when the calling thread leaves the pool.
    virtual void drop_thread_lane() noexcept = 0;
};

// An array of objects that never move, with a fixed maximum size.
template <class T> class fixed_array {
public:
    // Throws: std::bad_alloc.
    explicit fixed_array(std::size_t most)
        : first_(std::allocator<T>().allocate(most)), most_(most) {}
    fixed_array& operator=(fixed_array&&) = delete;
    ~fixed_array() {
        shrink(0);
        std::allocator<T>().deallocate(first_, most_);
    }

    // Requires: there is room.
    template <class... Args> void add(Args&&... args) {
        std::construct_at(first_ + size_, std::forward<Args>(args)...);
        ++size_;
    }
    // Destroys the last objects, so that `size` objects are left.
    void shrink(std::size_t size) noexcept {
        while (size_ > size) {
            std::destroy_at(first_ + --size_);
        }
    }

    std::size_t size() const noexcept { return size_; }
    T* begin() noexcept { return first_; }
    T* end() noexcept { return first_ + size_; }
    const T* begin() const noexcept { return first_; }
    const T* end() const noexcept { return first_ + size_; }
    T& operator[](std::size_t at) noexcept { return first_[at]; }
    const T& operator[](std::size_t at) const noexcept { return first_[at]; }

private:
    T* const first_;
    const std::size_t most_;
    std::size_t size_ = 0;
};

// ---- Ownership

template <class Platform> class basic_worker_ownership {
public:
    // Makes the calling thread the owner. `me` is an even address that belongs to the calling
    // thread and does not change.
    void begin(const void* me) noexcept {
        // Order: relaxed; a previous owner that reads this word learns that it has lost the worker,
        // and does not access the worker's data.
        word_.store(of(me), std::memory_order_relaxed);
    }

    // Called when the owner is about to block.
    void block(const void* me) noexcept {
        // Order: release [worker.ownership]; the replacement sees what the owner did.
        word_.store(of(me) | blocked, std::memory_order_release);
    }

    // Called after the blocking call. Returns false if another thread owns the worker.
    bool unblock(const void* me) noexcept {
        basic_backoff<Platform> backoff;
        std::uintptr_t seen = of(me) | blocked;
        // Order: acquire [worker.ownership]; if another thread has tried to find a new owner for
        // the worker and has found none, this thread sees what that thread wrote. Failure relaxed:
        // the loop reads again.
        while (!word_.compare_exchange_strong(seen, of(me), std::memory_order_acquire,
                                              std::memory_order_relaxed)) {
            if (seen != transferring) {
                return false;
            }
            backoff();
            seen = of(me) | blocked;
        }
        return true;
    }

    // Any thread may call it. If the owner is blocked, calls find(). find() makes another thread
    // call begin() and returns true, or finds no thread and returns false. transfer() returns true
    // if another thread owns the worker or will own it.
    template <class Find> bool transfer(Find&& find) noexcept {
        // Order: relaxed; the CAS checks this value.
        std::uintptr_t seen = word_.load(std::memory_order_relaxed);
        if ((seen & blocked) == 0 ||
            // Order: acquire [worker.ownership]; sees what the owner did. Failure: the owner is
            // back.
            !word_.compare_exchange_strong(seen, transferring, std::memory_order_acquire,
                                           std::memory_order_relaxed)) {
            return false;
        }
        if (find()) {
            return true;
        }
        // Order: release [worker.ownership]; the owner continues after this attempt.
        word_.store(seen, std::memory_order_release);
        return false;
    }

    bool is_blocked() const noexcept {
        // Order: relaxed; the value may be old when the caller reads it.
        return (word_.load(std::memory_order_relaxed) & blocked) != 0;
    }

private:
    static constexpr std::uintptr_t blocked = 1;
    static constexpr std::uintptr_t transferring = 2;

    static std::uintptr_t of(const void* thread) noexcept {
        return reinterpret_cast<std::uintptr_t>(thread);
    }

    typename Platform::template atomic<std::uintptr_t> word_{0};
};

// ---- Sleep

template <class Platform> class basic_sleeper {
public:
    // Waits for the token and takes it. If `io` is not nullptr, waits in that driver. Returns false
    // if there was no token by the deadline, or if the driver returned without a token.
    bool park(deadline until, driver* io = nullptr) noexcept {
        const futex_word how = io == nullptr ? parked : driving;
        futex_word seen = empty;
        // Order: relaxed; this step publishes nothing. After a failure, take() acquires.
        while (state_.compare_exchange_strong(seen, how, std::memory_order_relaxed,
                                              std::memory_order_relaxed)) {
            bool in_time = false; // the driver does not tell
            if (io == nullptr) {
                in_time = futex_wait<Platform>(state_, parked, until);
            } else {
                io->wait(until);
            }
            if (take()) {
                return true;
            }
            if (!in_time) {
                return false;
            }
            seen = empty; // a spurious wake
        }
        return take();
    }

    // Leaves a token. Several tokens count as one. Any thread may call it.
    void unpark(driver* io) noexcept {
        const auto* const word = &state_;
        // Order: release [sleeper.token]; the sleeper sees what the notifier did before.
        const futex_word old = state_.exchange(notified, std::memory_order_release);
        if (old == parked) {
            basic_spin<Platform>::measured_wake(
                [word]() noexcept { futex_wake<Platform>(word, 1); });
        } else if (old == driving) {
            io->wake();
        }
    }

    bool is_asleep() const noexcept {
        // Order: relaxed; the value may be old when the caller reads it.
        const futex_word now = state_.load(std::memory_order_relaxed);
        return now == parked || now == driving;
    }

private:
    static constexpr futex_word empty = 0;
    static constexpr futex_word parked = 1;
    static constexpr futex_word driving = 2;
    static constexpr futex_word notified = 3;

    // Order: acquire [sleeper.token]; sees what the notifier did before unpark().
    bool take() noexcept { return state_.exchange(empty, std::memory_order_acquire) == notified; }

    typename Platform::template atomic<futex_word> state_{empty};
};

// Waits for the token of the worker with the given number, in `io` if it is not nullptr. If the
// driver resumes a coroutine that has no executor, the coroutine is posted to the executor that
// spare() returns. Returns what basic_sleeper::park() returns.
template <class Platform>
bool park_worker(basic_sleeper<Platform>& sleeper, [[maybe_unused]] const void* its_worker,
                 unsigned number, deadline until, driver* io, trace_sink* trace,
                 executor_ref (*spare)() noexcept) noexcept {
    const std::int64_t begin = trace == nullptr ? 0 : Platform::now();
    std::optional<wake_scope<Platform>> later; // queues what the driver resumes
    if (io != nullptr) {
        later.emplace(spare);
    }
    BIDE_PROBE(worker_park, its_worker, number);
    const bool woken = sleeper.park(until, io);
    BIDE_PROBE(worker_unpark, its_worker, number, static_cast<int>(woken));
    later.reset();
    if (trace != nullptr) {
        trace->parked(number, begin, Platform::now());
    }
    return woken;
}

// ---- Pinned jobs

// The jobs that only one thread may run: a list under a lock.
template <class Platform> class basic_thread_queue : public basic_injector<Platform> {
public:
    static constexpr unsigned none = ~0U;

    // `number` is the number of the worker that the thread owns at first.
    explicit basic_thread_queue(unsigned number) noexcept : index(number), owned_(number) {}

    // Appends `r`. Any thread may call it. Returns the number of the worker that the thread of this
    // queue owns, or `none`. The caller then wakes that worker; after `none`, it wakes the thread
    // of this queue.
    unsigned push(runnable& r) noexcept {
        basic_injector<Platform>::push(r);
        // Order: seq_cst [thread_queue.owner]; after the job was made visible.
        return owned_.load(std::memory_order_seq_cst);
    }

    // Called by the thread of this queue when it begins to own the given worker, or no worker.
    // Requires: afterwards the thread looks at its queue before it sleeps.
    void set_owned(unsigned worker) noexcept {
        // Order: seq_cst [thread_queue.owner]; comes before the announcement and the look.
        owned_.store(worker, std::memory_order_seq_cst);
    }

    const unsigned index;

private:
    typename Platform::template atomic<unsigned> owned_;
};

// The pool of the calling thread, and the worker that the thread owns. `worker` is nullptr on a
// thread of the pool that owns no worker, such as a thread for blocking tasks.
template <class Platform> struct BIDE_SHARED basic_thread_role {
    basic_pool<Platform>* pool = nullptr;
    basic_worker<Platform>* worker = nullptr;
    basic_thread_queue<Platform>* pinned =
        nullptr; // the jobs that only this thread may run; nullptr: it has no such jobs
    bool is_substitute = false; // runs a worker instead of the worker's own thread
    static basic_thread_role& here() noexcept {
        return Platform::template near_local<basic_thread_role>();
    }
};

// ---- What the owner counts

// A counter. Only the owner writes it, without a read-modify-write. Any thread reads it.
template <class Platform> class basic_counter {
public:
    void add(std::uint64_t n) noexcept {
        // Order: release [lifecycle.counts]; a thread that reads this count of ended tasks also
        // sees the counts of spawned tasks that were stored before.
        value_.store(own() + n, std::memory_order_release);
    }

    // Order: acquire [lifecycle.counts]; see add().
    std::uint64_t read() const noexcept { return value_.load(std::memory_order_acquire); }

    // Order: relaxed; the owner reads what it wrote.
    std::uint64_t own() const noexcept { return value_.load(std::memory_order_relaxed); }

private:
    typename Platform::template atomic<std::uint64_t> value_{0};
};

// The jobs of a host that run inside of each other.
class inner_jobs {
public:
    // Returns true if no more jobs may begin inside. This bounds the stack.
    bool is_full() const noexcept { return depth_ == most; }

    void begin(inner_job& as) noexcept {
        as.outer = std::exchange(innermost_, &as);
        ++depth_;
    }
    void end(const inner_job& as) noexcept {
        innermost_ = as.outer;
        --depth_;
    }

    // Called when the innermost job is about to block. Meanwhile other jobs run, which may resume
    // an outer job. So this function begins the wait of each outer job that has not begun to wait.
    void begin_outer_waits() noexcept {
        for (inner_job* job = innermost_; job != nullptr; job = job->outer) {
            if (!std::exchange(job->has_begun_wait, true)) {
                job->begin_wait.wake();
            }
        }
    }

private:
    static constexpr unsigned most = 8;

    inner_job* innermost_ = nullptr;
    unsigned depth_ = 0;
};

// Counts polls, and tells a busy worker when to check timers, files and the injector. A poll is one
// run of a job. The interval between two checks is the number of polls that take 1 ms, at least 8
// and at most 128. It is computed from an exponentially weighted average of the time of a poll, in
// which the newest measurement counts for a tenth. The first interval is 61 polls.
class global_queue_interval {
public:
    // Counts a poll. Returns true if the worker must check now. At every 16th poll, calls now() to
    // measure whether polls take longer than before.
    template <class Now> bool tick(Now&& now) noexcept {
        return ++polls_ >= interval_ || (polls_ % 16 == 0 && now() - since_ >= target_ns);
    }

    // Called when the worker checks at `now`. Computes the next interval.
    void restart(std::int64_t now) noexcept {
        const std::int64_t each = (now - since_) / (std::max)(polls_, 1U);
        average_ns_ += (std::clamp<std::int64_t>(each, 1, max_poll_ns) - average_ns_) / 10;
        interval_ =
            static_cast<unsigned>(std::clamp<std::int64_t>(target_ns / average_ns_, 8, 128));
        since_ = now;
        polls_ = 0;
    }

    // When a chain of coroutines (compose.hpp) has paused many times, its oldest child is queued.
    // Returns after how many pauses that happens, at most 4,096. If the chain is the only job, this
    // is the number of pauses that take 1 ms. If other jobs are queued, the number is larger. These
    // jobs may be children, too, and if all children were queued soon, a tree of when_all would run
    // breadth first.
    unsigned child_pauses(unsigned queued) const noexcept {
        return interval_ * ((std::min)(queued, 31U) + 1);
    }

    // Called when the worker has slept. The time of the sleep does not count.
    void wake(std::int64_t now) noexcept {
        since_ = now;
        polls_ = 0;
    }

private:
    static constexpr std::int64_t target_ns = 1'000'000;
    static constexpr std::int64_t max_poll_ns = 100'000'000; // a longer poll counts as this long

    unsigned polls_ = 0;
    unsigned interval_ = 61;
    std::int64_t since_ = 0;
    std::int64_t average_ns_ = 16'000;
};

// Selects the class from which a worker takes its next job. Of 16 decisions in a row, 12 are for
// high jobs, 3 for normal jobs and 1 is for low jobs.
class class_shares {
public:
    task_priority next() noexcept {
        const unsigned at = decisions_++ % 16;
        return at == 15      ? task_priority::low
               : at % 5 == 4 ? task_priority::normal
                             : task_priority::high;
    }

    // Called if no high and no low job was taken. Every second call returns true: a pinned job then
    // comes before normal ones.
    bool next_is_pinned() noexcept { return (++normal_decisions_ & 1) != 0; }

private:
    unsigned decisions_ = 0;
    unsigned normal_decisions_ = 0;
};

// ---- The worker

// Runs a job on the calling thread, for the worker with the given number.
template <class Platform>
void run_job(basic_worker_host<Platform>& host, unsigned number, trace_sink* trace,
             runnable& r) noexcept {
    auto& local = worker_local<Platform>::get();
    local.host = &host;
    local.job = &r;
    const task_budget<Platform> budget(local);
    if (trace == nullptr) {
        r.run.wake();
    } else {
        const std::int64_t begin = Platform::now();
        local.traced = true;
        local.name = nullptr;
        local.tag = 0;
        r.run.wake();
        trace->ran(number, local.name, tag_access::of(local.tag), begin, Platform::now());
    }
    local.host = nullptr;
}

// The limits that a worker has entered: that of a fork-join, and those around it. The lanes may
// begin other fork-joins before the worker leaves, so it must not read from them what to leave.
template <class Platform> struct basic_fork_limits {
    static constexpr unsigned most = 4;
    basic_fork_lane<Platform>* entered[most]{};
    unsigned count = 0;
};

// An arm of a fork-join that a worker has taken and not run yet.
template <class Platform> struct basic_posted_fork : runnable {
    basic_fork_job<Platform>* what = nullptr;
    basic_fork_lane<Platform>* from = nullptr;
    basic_fork_limits<Platform> limits;
    unsigned more_wakes = 0; // the arms of `from` for which a second worker is woken
};

template <class Platform>
struct alignas(cache_line_pair) basic_worker final : basic_worker_host<Platform> {
    using counter = basic_counter<Platform>;
    static constexpr std::int64_t never = (std::numeric_limits<std::int64_t>::max)();

    basic_worker(basic_pool<Platform>& of, unsigned number) noexcept
        : pool(of), index(number), random(number * 0x9e3779b97f4a7c15U + 1), pinned(number),
          timers(waker(&on_earlier_timer, this), of.timer_slack_ns()) {}

    // The worker is the host of the task that the owner runs (wake_scope.hpp): it serves the task.
    void yield(runnable& r) noexcept override { pool.yield(*this, r, nullptr); }
    void post_in_order(runnable& r) noexcept override { pool.push_ring(*this, r); }
    void pause(paused_chain& chain) noexcept override { pool.yield(*this, chain, &chain); }
    void fork(run_list& list) noexcept override { pool.fork(*this, list); }
    bool take_back(runnable& r) noexcept override { return children.take_back(r); }
    bool run_inside(runnable& r, inner_job& as) noexcept override {
        return pool.run_inside(*this, r, as);
    }
    void add_timer(timer& t) noexcept override { timers.add(t); }
    bool blocks() noexcept override { return pool.blocks(*this); }
    void unblocks() noexcept override { pool.unblocks(*this); }
    executor_ref executor() noexcept override { return pool.executor(); }

    // Called when the owner has taken the token. Returns true if the token is for a job of `mine`.
    bool take_woken_for_pinned() noexcept {
        // Order: relaxed; the token was acquired.
        const bool is_for_pinned = woken_for_pinned.load(std::memory_order_relaxed);
        woken_for_pinned.store(false, std::memory_order_relaxed);
        return is_for_pinned;
    }

    void has_stolen(unsigned n) noexcept {
        stolen.add(n);
        steal_batches.add(1);
    }

    // Marsaglia's xorshift: chooses the first victim of a thief.
    std::uint64_t next_random() noexcept {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return random;
    }

    basic_pool<Platform>& pool;
    const unsigned index;

    basic_worker_ownership<Platform> ownership;

    // Only the owner uses these:
    global_queue_interval global_interval;
    unsigned lifo_streak = 0; // tasks that it ran from the LIFO slot in a row
    std::uint64_t random;
    unsigned looked_at = index;      // the last worker with which it has compared its ring
    std::int64_t lead_until = never; // until when it sleeps as the timer leader
    std::int64_t timed_sleep_ns = 0; // the length of its next sleep as the timed sleeper
    std::int64_t found_ns = 0;       // when its last search has found a job
    std::int64_t arm_begin_ns = 0;   // when its last arm began
    std::int64_t arm_ns = never;     // how long its arms take, on average; never: not known
    runnable* yielded = nullptr;     // must be queued behind all other jobs
    paused_chain* paused = nullptr;  // `yielded`, if it is a chain that has paused
    bool is_searching = false;       // its pushes wake no worker; end_search() does
    bool must_check_leader = false;  // perhaps no sleeper wakes for the next timer
    bool left_driver = false;        // perhaps no worker is in the driver
    bool ran_arm = false;            // its last job was an arm of a fork-join
    bool injector_is_due = false;    // its next normal job: take_due() (pool.hpp), if possible
    inner_jobs inner;                // run inside of its job
    class_shares shares;
    basic_thread_queue<Platform>* mine = nullptr; // jobs that only the thread of the owner may run
    basic_posted_fork<Platform> arm;

    // Set by a thread that wakes the worker for a job of `mine`, before that thread leaves the
    // token.
    typename Platform::template atomic<bool> woken_for_pinned{false};

    // The value of `polled` before the sleep of the timed sleeper, or when a worker in a fork-join
    // last looked for tasks.
    typename Platform::template atomic<std::uint64_t> polled_when_seen{0};

    // Any thread uses these:
    alignas(cache_line_pair) typename Platform::template atomic<runnable*> lifo{nullptr};
    basic_run_queue<Platform, Platform::model ? 4U : 256U> ring;
    basic_child_deque<Platform, Platform::model ? 4U : 256U> children;
    basic_thread_queue<Platform> pinned; // jobs that only the worker's own thread may run
    alignas(cache_line_pair) basic_sleeper<Platform> sleeper;
    basic_timer_queue<Platform> timers;
    basic_task_registry<Platform> tasks;
    alignas(cache_line_pair) counter spawned, completed, polled, stolen, steal_batches,
        overflowed, parked, woken, injected, timers_fired;

private:
    bool has_queue(executor_ref where) noexcept override { return pool.has_queue(where); }

    static void on_earlier_timer(void* self) noexcept {
        auto& me = *static_cast<basic_worker*>(self);
        me.pool.earlier_timer(me);
    }
};

}}} // namespace bide::BIDE_ABI::detail

#endif
