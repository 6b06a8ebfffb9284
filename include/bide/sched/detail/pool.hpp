// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_POOL_HPP
#define BIDE_SCHED_DETAIL_POOL_HPP

// A pool has the workers of a scheduler (worker.hpp) and the queues that they share. This file has
// the loop in which a worker finds a job, runs it, and sleeps if there is none. The owner of the
// pool has the threads. Each thread calls run() with a worker.
//
// A worker looks for its next job in this order:
//
//   at intervals      timers that are due, the driver, one job from the injector, and jobs from a
//                     ring that is much longer than its own (global_queue_interval)
//   high, low, pinned jobs, by the shares of their classes (class_shares); only after the first
//                     such job was pushed
//   its LIFO slot     the job that became runnable last, at most three times in a row; if the
//                     running job awaits that job, it runs inside of the running job
//   its ring          in order; the ring grows and shrinks with the number of jobs
//   the injector      a fair share, into its ring
//   the last lane     the next arm of the fork-join whose arm it has just run, for up to 100 us
//   other workers     half of another worker's ring; if that ring is empty, the oldest child of a
//                     when_all() that the other worker has forked and not started; at most half of
//                     the workers search at a time
//   fork-joins        the oldest arm: a function of a fork-join (basic_arm_source in worker.hpp)
//
// If the worker finds nothing, it sleeps. If its last job was an arm of a fork-join, the worker
// first continues to search, for as long as a wake would take, unless there are fewer processors
// than workers. The sleep protocol (idle.hpp) has
// three steps: announce the sleep, check every queue once more, sleep. Each push makes its job
// visible and then asks idle.hpp which worker to wake [idle.announce].
//
// High and low jobs have one queue each: a list under a lock, which all workers share. Any worker
// may take such a job, and a push of such a job wakes a sleeping worker. Only one thread may run a
// pinned job: see worker.hpp. Normal jobs never use these queues. Before the first push of a high,
// low or pinned job, these queues cost a worker one read of a flag for each job.
//
// The timed sleeper is an idle worker that sleeps with a time-out. After its sleep, it looks for
// workers that have run no job during the sleep, and takes the job from the LIFO slot of such a
// worker. So while there is a timed sleeper, a push into a LIFO slot wakes no worker. If there is
// none, such a push wakes a worker as any other push does.
//
// Timers and files. A busy worker fires timers and polls the driver from time to time. While
// workers sleep, there are three roles among them:
//
//   the timer leader    sleeps until the earliest timer of all workers
//   the driver's user   sleeps in the driver (basic_driver_lock)
//   the timed sleeper   sleeps at most 100 us at first, then twice as long each time, up to
//                       scheduler_options::max_timed_sleep (4 ms by default), and then looks at the
//                       LIFO slots
//
// One worker may have several roles. A worker with a role may find a job to run. If the role is
// still needed, the worker first wakes another one, which takes over the role (hand_over_roles()).
//
// The timer leader (basic_timer_leader). The leader sleeps for the timers of all workers, until the
// time in `until_`. A thread that adds a timer reads `until_`, and so learns whether a worker must
// wake earlier. (In core/timer.hpp, the protocol [timer_queue.next] calls this time `until`, and
// calls the leader the sleeper.) If another worker goes to sleep and finds an earlier timer, that
// worker becomes the leader. The previous leader continues to sleep until its own time, and then
// finds that it is no longer the leader. A leader that wakes gives up the role.
//
// Blocked workers. A thread that blocks in a task first moves all jobs of its worker to places
// where other workers find them. While another worker sleeps, the blocked thread keeps its worker,
// because the sleeper is woken for new jobs. If no worker sleeps, another thread takes over the
// worker. Two threads check whether a worker sleeps: the thread that blocks, and a sleeper that is
// about to run a job. Each of them first changes the word of idle.hpp and then reads that word
// [idle.blocked].

#include <bide/sched/detail/worker.hpp>
#include <bide/sched/idle.hpp>

namespace bide { inline namespace BIDE_ABI { namespace detail {

struct pool_options {
    unsigned workers;
    bool steal;                      // workers steal from each other
    driver* io;                      // one of the idle workers sleeps in it; nullptr: none
    std::int64_t max_timed_sleep_ns; // at most 1 s; 0: there is no timed sleeper
    trace_sink* trace = nullptr;
    std::int64_t timer_slack_ns = 0;
    int spare_processors = 0;           // processors less workers; may be negative
    executor_ref executor{};            // of the tasks
    const void* scheduler_id = nullptr; // identifies the scheduler (fork_lane.hpp)
};

// The functions that a pool calls in its owner, which has the threads.
template <class Platform> class basic_pool_owner {
    using worker = basic_worker<Platform>;

public:
    // Called when the calling thread leaves `w`. Makes another thread run `w`. Returns false if
    // there is no such thread.
    virtual bool replace(worker& w) noexcept = 0;
    // Called if replace() has found no thread. Returns true if a thread will become free; that
    // thread then calls replace_blocked() or take_blocked(). Returns false if no thread will become
    // free and none can be started.
    virtual bool request_replacement() noexcept { return true; }
    // Looks for an idle thread: a thread that has lost its own worker and waits for a worker. Makes
    // the idle thread run `w`. Returns false if there is no idle thread.
    virtual bool hand_to_idle_thread(worker&) noexcept { return false; }
    // Returns true if hand_to_idle_thread() would succeed. Called by a substitute after the
    // announcement that its worker sleeps. (A substitute is a thread that runs a worker in place of
    // the worker's own thread; scheduler_core.hpp.)
    virtual bool has_idle_thread() noexcept { return false; }
    // Unparks the thread that was started for the worker with the given number. That thread owns no
    // worker now, and a pinned job was pushed for it.
    virtual void wake_thread(unsigned) noexcept {}
    // Called when a worker has found nothing to run and has announced its sleep. Each announcement
    // is a read-modify-write of the same word. So the worker that announces last sees what all
    // other workers did before their announcements, and can add up the counters of all workers.
    virtual void found_nothing() noexcept = 0;
    // Returns true if `where` is the executor of the high tasks, the low tasks, or the tasks pinned
    // to the calling thread.
    virtual bool has_queue(executor_ref) noexcept { return false; }

protected:
    ~basic_pool_owner() = default;
};

// ---- The driver

// The lock of the scheduler's driver, if there is a driver. One thread at a time uses it.
template <class Platform> class basic_driver_lock {
public:
    explicit basic_driver_lock(driver* io) noexcept : driver_(io) {}

    // Acquires the driver until leave(). Returns nullptr if there is none, or if it is in use.
    driver* try_enter() noexcept {
        // Order: acquire [driver.lock]; sees what the previous thread did in the driver.
        return is_free() && !taken_.exchange(true, std::memory_order_acquire) ? driver_ : nullptr;
    }

    // Order: release [driver.lock]; the next thread in the driver sees what this thread did there.
    // Afterwards the caller calls is_free() [driver.free].
    void leave() noexcept { taken_.store(false, std::memory_order_release); }

    // Returns true if there is a driver and no thread is in it.
    bool is_free() const noexcept {
        // Order: seq_cst [driver.free]; a worker that goes to sleep announces and then reads
        // `taken_`. A worker that leaves the driver writes `taken_`, reads it again, and then looks
        // for a sleeper. So the sleeper finds the driver free, or the leaving worker finds the
        // sleeper.
        return driver_ != nullptr && !taken_.load(std::memory_order_seq_cst);
    }

private:
    driver* const driver_;
    typename Platform::template atomic<bool> taken_{false};
};

// ---- The timer leader

template <class Platform> class basic_timer_leader {
public:
    static constexpr std::int64_t never = (std::numeric_limits<std::int64_t>::max)();

    // Returns true if no sleeper wakes at or before the time `t`. Before this call, the caller
    // makes its timer for `t` visible.
    bool wakes_after(std::int64_t t) const noexcept {
        // Order: seq_cst [timer_queue.next]; comes after the timer was made visible.
        return t < until_.load(std::memory_order_seq_cst);
    }

    // Called when a worker goes to sleep. next() reads the time of the earliest timer, with order
    // seq_cst. If a leader wakes at or before that time, does not change `mine`. If not, makes the
    // caller the leader, and sets `mine` to the time at which the caller wakes.
    template <class Next> void lead(std::int64_t& mine, Next&& next) noexcept {
        for (;;) {
            const std::int64_t first = next();
            // Order: relaxed; the CAS checks this value.
            std::int64_t seen = until_.load(std::memory_order_relaxed);
            if (first >= seen) {
                return;
            }
            // Order: relaxed; if a thread that adds an earlier timer misses this store, that thread
            // finds a sleeper to wake in the word of idle.hpp [idle.announce]. Failure: the loop
            // reads again.
            if (until_.compare_exchange_strong(seen, first, std::memory_order_relaxed,
                                               std::memory_order_relaxed)) {
                mine = first;
            }
        }
    }

    // Called when a worker has woken. Returns true if the worker went to sleep as the leader.
    bool resign(std::int64_t& mine) noexcept {
        if (mine == never) {
            return false;
        }
        std::int64_t seen = std::exchange(mine, never);
        // Order: seq_cst [timer_queue.next]. A thread makes its timer visible before it reads
        // `until_`. If the thread has read the old `until_`, a worker that reads the timers after
        // this CAS sees the timer. Failure: another worker has become the leader and wakes earlier.
        until_.compare_exchange_strong(seen, never, std::memory_order_seq_cst,
                                       std::memory_order_relaxed);
        return true;
    }

private:
    typename Platform::template atomic<std::int64_t> until_{never};
};

// ---- The pool

template <class Platform> class basic_pool {
public:
    using worker = basic_worker<Platform>;
    using owner = basic_pool_owner<Platform>;
    using options = pool_options;
    using thread_role = basic_thread_role<Platform>;
    using thread_queue = basic_thread_queue<Platform>;

    BIDE_COLD basic_pool(owner& of, const options& wanted)
        : owner_(of), how_(wanted), steals_(wanted.steal && wanted.workers > 1),
          takes_arms_(steals_ || (wanted.steal && wanted.spare_processors > 0)),
          shares_rings_(steals_ || wanted.workers == 1),
          uses_timed_sleeps_(wanted.max_timed_sleep_ns != 0 && steals_), workers_(wanted.workers),
          idle_(wanted.workers), driver_lock_(wanted.io) {
        if (takes_arms_) {
            detail::prepare_heavy_fence<Platform>(); // for thieves that publish (fork_deque.hpp)
        }
        for (unsigned i = 0; i < wanted.workers; ++i) {
            workers_.add(*this, i);
        }
    }

    ~basic_pool() {
        // Order: relaxed; no thread forks any more.
        delete arms_.load(std::memory_order_relaxed);
    }

    // ---- The threads

    // Runs the worker `w` on the calling thread. Returns after stop(), or if the thread has blocked
    // and lost the worker. `mine` is the queue of the jobs that only this thread may run; nullptr
    // if the thread has no such queue.
    void run(worker& w, thread_queue* mine = nullptr, bool is_substitute = false) noexcept {
        thread_role& here = thread_role::here();
        auto& resumed = Platform::template near_local<resume_state>();
        here = {this, &w, mine, is_substitute};
        w.ownership.begin(&here);
        w.inner = {};
        w.mine = mine;
        if (mine != nullptr) {
            mine->set_owned(w.index);
        }
        resumed.worker = how_.executor;
        while (here.worker == &w) {
            runnable* const r = find(w);
            if (r == nullptr) {
                break;
            }
            hand_over_roles(w);
            execute(w, *r);
        }
        drop_thread_lane();
        here = {};
        resumed.worker = {};
        if (mine != nullptr) {
            mine->set_owned(mine->none);
        }
    }

    // Runs the pinned jobs of the calling thread, which owns no worker, until the queue is empty.
    // If a worker needs a thread meanwhile, returns that worker at once, because pinned jobs that
    // yield may never end. The thread then runs that worker.
    BIDE_COLD worker* run_pinned(thread_queue& mine) noexcept {
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

    // Makes run() return on every worker that finds no job.
    BIDE_COLD void stop() noexcept {
        // Order: release [scheduler.stop]; a worker that sees this stop sees what came before.
        stopped_.store(true, std::memory_order_release);
        for (worker& w : workers_) {
            unpark(w);
        }
    }

    // Returns true if the calling thread runs a worker of this pool, or blocking tasks.
    bool runs_here() const noexcept { return thread_role::here().pool == this; }
    // Returns the worker of this pool that the calling thread owns, or nullptr.
    worker* current_worker() const noexcept {
        const thread_role& here = thread_role::here();
        return here.pool == this ? here.worker : nullptr;
    }

    // ---- Any thread

    void push(runnable& r) noexcept {
        injector_.push(r);
        wake_any();
    }
    // Requires: the priority `of` is not normal.
    void push(task_priority of, runnable& r) noexcept {
        use_classes();
        (of == task_priority::high ? high_ : low_).push(r);
        wake_any();
    }

    // Pushes a job that only the thread of the worker `home` may run.
    void push_pinned(worker& home, runnable& r) noexcept {
        use_classes();
        const unsigned at = home.pinned.push(r);
        if (thread_role::here().pinned == &home.pinned) {
            return; // this thread will find the job
        }
        if (at == home.pinned.none) {
            owner_.wake_thread(home.index);
        } else if (idle_.wake_worker(at)) {
            // Order: relaxed; the token of unpark() publishes it.
            workers_[at].woken_for_pinned.store(true, std::memory_order_relaxed);
            unpark(workers_[at]);
        }
    }

    // Wakes a sleeping worker. If that worker finds nothing to run, it calls found_nothing() of the
    // owner. If no worker sleeps, the next worker that becomes idle calls found_nothing().
    void wake_any() noexcept { unpark(idle_.wake_one()); }
    // If `w` sleeps, wakes `w`, so that its thread can hand `w` to an idle thread.
    void wake(worker& w) noexcept {
        if (idle_.wake_worker(w.index)) {
            unpark(w);
        }
    }

    // Takes a job that was never run. Requires: the last run() has returned.
    BIDE_COLD runnable* take_unrun() noexcept {
        runnable* r = injector_.pop();
        r = r != nullptr ? r : pop_class();
        for (auto w = workers_.begin(); r == nullptr && w != workers_.end(); ++w) {
            r = w->pinned.pop();
        }
        return r;
    }

    BIDE_COLD std::size_t queued() const noexcept {
        std::size_t all = injector_.size() + high_.size() + low_.size();
        for (const worker& w : workers_) {
            all += w.pinned.size();
        }
        return all;
    }

    basic_idle<Platform>& idle() noexcept { return idle_; }
    fixed_array<worker>& workers() noexcept { return workers_; }
    const fixed_array<worker>& workers() const noexcept { return workers_; }
    // Returns true if workers steal from each other.
    bool steals() const noexcept { return steals_; }
    // Returns true if a worker may take arms that the calling thread forks. A single worker takes
    // arms from other threads only, and only if there is a spare processor for these.
    bool takes_arms() const noexcept {
        return steals_ || (takes_arms_ && current_worker() == nullptr);
    }
    std::int64_t timer_slack_ns() const noexcept { return how_.timer_slack_ns; }
    executor_ref executor() const noexcept { return how_.executor; }
    bool has_queue(executor_ref where) noexcept { return owner_.has_queue(where); }

    // Called when a new timer has become the earliest timer of the worker `of`. If the owner of
    // `of` has added the timer itself, it calls hand_over_roles() later, before it runs a job.
    void earlier_timer(worker& of) noexcept {
        if (current_worker() == &of) {
            of.must_check_leader = true;
        } else if (timer_leader_.wakes_after(of.timers.next_ns())) {
            wake_any();
        }
    }

    // ---- Functions for the owner of the worker `w`. While `w` is searching, its pushes into its
    // own queues wake no worker. end_search() then wakes one, if necessary.

    // Puts `r` into the LIFO slot. The previous job of the slot goes to the ring.
    void push_local(worker& w, runnable& r) noexcept {
        runnable* const older = swap_lifo(w, &r);
        if (older != nullptr) {
            push_ring(w, *older);
        } else if (steals_ && !w.is_searching) {
            unpark(idle_.wake_unless_timed());
        }
    }

    // Appends `r` to the ring. If the ring is full and cannot grow, `r` goes to the injector.
    void push_ring(worker& w, runnable& r) noexcept {
        if (!w.ring.push_if_room(r)) [[unlikely]] {
            push_to_full_ring(w, r);
        } else if (steals_ && !w.is_searching) {
            wake_any();
        }
    }

    // Called by the running job. When the job has ended, the worker queues `r` behind all other
    // jobs. If `r` is a chain of coroutines that has paused (wake_scope.hpp), `paused` points to
    // `r`; if not, `paused` is nullptr.
    void yield(worker& w, runnable& r, paused_chain* paused) noexcept {
        w.paused = paused;
        if (runnable* const older = std::exchange(w.yielded, &r)) {
            push_behind(w, *older);
        }
    }
    // Puts children of when_all into the deque `children`, from which their parent may take them
    // back. If the deque becomes full, leaves the remaining children in the list.
    void fork(worker& w, run_list& list) noexcept {
        if (w.children.push(list) && steals_) {
            wake_any();
        }
    }

    // Called by the running job, which awaits `r`. If `r` is in the LIFO slot, runs `r` inside of
    // the running job. See basic_worker_host::run_inside(). The running job continues directly
    // after `r`, as if the end of `r` had put it into the LIFO slot. If too many jobs in a row come
    // from that slot, and the ring or the injector has a job, that job comes first.
    bool run_inside(worker& w, runnable& r, inner_job& as) noexcept {
        // Order: relaxed; only the owner puts a job into the slot. The exchange fails if another
        // worker has taken the job.
        if (w.lifo.load(std::memory_order_relaxed) != &r || w.inner.is_full() ||
            (w.lifo_streak >= max_lifo_streak && !(w.ring.empty() && injector_.empty())) ||
            how_.trace != nullptr || !w.children.empty() || (uses_classes() && has_class_work(w)) ||
            w.global_interval.tick(&Platform::now) || swap_lifo(w, nullptr) == nullptr) {
            return false;
        }
        ++w.lifo_streak;
        w.polled.add(1);
        hand_over_roles(w);
        w.inner.begin(as);
        r.run.wake();
        if (worker_local<Platform>::get().host != &w) {
            return true; // `r` has blocked, and another thread owns the worker
        }
        w.inner.end(as);
        if (runnable* const behind = std::exchange(w.yielded, nullptr)) {
            push_behind(w, *behind);
        }
        w.paused = nullptr;
        enqueue_children(w); // `r` may have left some
        return true;
    }

    // Compares the ring of `w` with the ring of one other worker; each call takes the next worker.
    // If the other ring has many more jobs, takes half of the difference, as steal() does. So the
    // jobs of all busy workers run equally often: see scheduler.hpp.
    runnable* balance(worker& w) noexcept {
        if (!steals_) {
            return nullptr;
        }
        w.looked_at = (w.looked_at + 1) % static_cast<unsigned>(workers_.size());
        worker& other = workers_[w.looked_at];
        const unsigned mine = w.ring.size();
        const unsigned theirs = other.ring.size();
        if (theirs < mine + mine / 4 + 2) {
            return nullptr;
        }
        unsigned taken = 0;
        runnable* const r = other.ring.steal_into(w.ring, taken, (theirs - mine) / 2);
        if (r != nullptr) {
            w.has_stolen(taken);
            // Wakes a worker, as each push does [idle.announce]. During the move, the jobs were in
            // no ring, and a worker that announced its sleep at that time did not see them.
            wake_any();
        }
        return r;
    }

    // Returns true if some queue has work for `w`. This is the last check of `w` before it sleeps
    // [idle.announce]. If `but_arms` is true, does not check the arms of fork-joins, because a
    // timed sleeper leaves the arms to their owners for a while.
    bool sees_work(const worker& w, bool but_arms) const noexcept {
        if (!has_nothing(w) || has_class_work(w)) {
            return true;
        }
        for (std::size_t i = steals_ ? 0 : workers_.size(); i != workers_.size(); ++i) {
            const worker& other = workers_[i];
            if (!other.ring.empty() || !other.children.empty()) {
                return true;
            }
            // Order: seq_cst [idle.announce]; sees a push that did not see this worker's
            // announcement.
            if (!uses_timed_sleeps_ && other.lifo.load(std::memory_order_seq_cst) != nullptr) {
                return true;
            }
        }
        return !but_arms && has_arms();
    }

    // ---- Blocked workers

    // The owner of `w` calls blocks() before it blocks, and unblocks() afterwards.
    // basic_worker_host describes both functions.
    bool blocks(worker& w) noexcept {
        bool found_no_thread = false;
        w.inner.begin_outer_waits();
        worker_local<Platform>::get().host = nullptr;
        hand_over_jobs(w);
        hand_over_roles(w);
        w.ownership.block(&thread_role::here());
        if (idle_.add_blocked(1) == 0 && replace(w, found_no_thread)) {
            thread_role::here().worker = nullptr;
        }
        return !found_no_thread;
    }

    void unblocks(worker& w) noexcept {
        thread_role& here = thread_role::here();
        if (here.worker != &w) {
            return;
        }
        if (w.ownership.unblock(&here)) {
            idle_.add_blocked(-1);
            worker_local<Platform>::get().host = &w;
        } else {
            here.worker = nullptr;
        }
    }

    // If a worker is blocked and no worker sleeps, makes another thread run that blocked worker.
    void replace_blocked() noexcept {
        take_over(
            [this, none = false](worker& other) mutable noexcept { return replace(other, none); });
    }
    // If a worker is blocked and no worker sleeps, returns that blocked worker, which the caller
    // then runs. If not, returns nullptr.
    worker* take_blocked() noexcept {
        return take_over([this](worker& other) noexcept {
            return other.ownership.transfer([this]() noexcept {
                idle_.add_blocked(-1);
                return true;
            });
        });
    }

    // ---- Fork-joins

    // Returns the source of the arms of fork-joins, or nullptr before the first fork-join.
    basic_arm_source<Platform>* arms() const noexcept {
        // Order: seq_cst [idle.announce]; if this load returns nullptr, no arm was published before
        // this worker's announcement. Acquire [fork_lane.source]; sees the construction of the
        // source.
        return arms_.load(std::memory_order_seq_cst);
    }

    // Makes `made` the source of the pool, or deletes `made` if another thread has set a source.
    // Returns the source of the pool. If `made` is nullptr, returns nullptr.
    basic_arm_source<Platform>* set_arms(basic_arm_source<Platform>* made) noexcept {
        basic_arm_source<Platform>* first = nullptr;
        // Order: seq_cst [idle.announce] [fork_lane.source]; the source is visible before an arm is
        // published. Failure: sees the construction of the other source.
        if (made == nullptr || arms_.compare_exchange_strong(first, made, std::memory_order_seq_cst,
                                                             std::memory_order_seq_cst)) {
            return made;
        }
        delete made;
        return first;
    }

    // The address that identifies the scheduler.
    const void* scheduler_id() const noexcept {
        return how_.scheduler_id != nullptr ? how_.scheduler_id : this;
    }
    // Called when the calling thread leaves the pool.
    void drop_thread_lane() noexcept {
        if (auto* const all = arms()) {
            all->drop_thread_lane();
        }
    }

    // Called when a job was published on a lane. A lane is the deque of a thread in a fork-join
    // (fork_lane.hpp). `brief` means that the fork-join is not worth a wake. Returns the number of
    // nanoseconds that the wake took, or 0 if there was none.
    std::int64_t fork_published(bool brief) noexcept {
        const unsigned woken = brief ? idle_.wake_for_brief_arm() : idle_.wake_one();
        if (woken == idle_.none) {
            return 0;
        }
        const std::int64_t begin = Platform::now();
        unpark(woken);
        return Platform::now() - begin;
    }

    // Called by the owner of `w` in the course of an arm that it can end early (fork_lane.hpp).
    // Returns true if `w` has a job that is not an arm. If its queues are empty, first moves one
    // job to its ring: from the injector or from one of the next few workers. So of several workers
    // in arms, only as many end their arms as there are jobs.
    BIDE_NOINLINE bool claim_task(worker& w) noexcept {
        // Order: relaxed; see has_nothing().
        if (w.lifo.load(std::memory_order_relaxed) != nullptr || !w.ring.empty() ||
            (uses_classes() && has_class_work(w))) {
            return true;
        }
        runnable* r = take_share(w, 1).pop();
        const auto count = static_cast<unsigned>(workers_.size());
        for (unsigned left = (std::min)(count, looks_at_once); r == nullptr && left > 0; --left) {
            w.looked_at = (w.looked_at + 1) % count;
            worker& other = workers_[w.looked_at];
            if (&other == &w) {
                continue;
            }
            unsigned taken = 1;
            r = other.ring.steal_into(w.ring, taken);
            r = r != nullptr ? r : other.children.steal();
            r = r != nullptr ? r : take_if_stale(other);
            if (r != nullptr) {
                note_steal(w, taken);
            }
        }
        if (r == nullptr) {
            return false;
        }
        push_ring(w, *r); // wakes a worker, as each push does [idle.announce]
        return true;
    }

    // Counts threads that fork or compute in a fork-join and own no worker: external callers, and
    // threads that have lost their worker.
    void add_callers(int by) noexcept {
        // Order: relaxed; a hint.
        callers_.fetch_add(by, std::memory_order_relaxed);
    }
    // Returns how many sleeping workers a fork-join may wake. Each caller that is counted by
    // add_callers() uses a processor, so one worker fewer is woken. Callers do not count while
    // there are spare processors for them.
    unsigned wakes_for_arms() const noexcept {
        const unsigned asleep = idle_.sleepers_hint();
        return asleep == 0 ? 0 : asleep - (std::min)(asleep, callers_in_place());
    }
    // Returns true if there are callers, and at least as many as sleeping workers.
    bool callers_take_all_places() const noexcept {
        const unsigned callers = callers_in_place();
        return callers != 0 && callers >= idle_.sleepers_hint();
    }
    // Returns the minimum time for which a thread spins when it finds no arm of a fork-join. It is
    // a little longer than the 4 us after which a loop usually offers its next arm. If there are
    // fewer processors than workers, returns 0, because a spinning thread would take the processor
    // from another worker.
    std::int64_t least_spin_ns() const noexcept { return how_.spare_processors < 0 ? 0 : 5'000; }

private:
    static constexpr unsigned max_lifo_streak = 3;
    static constexpr std::int64_t never = worker::never;
    static constexpr std::int64_t first_timed_sleep_ns = 100'000;
    static constexpr std::int64_t long_timed_sleep_ns = 1'000'000;
    static constexpr std::int64_t longest_arms_ns = 100'000;
    static constexpr unsigned looks_at_once = 8; // workers that claim_task() looks at

    // ---- The next job

    // Returns a job, or nullptr if run() must return.
    runnable* find(worker& w) noexcept {
        runnable* r = nullptr;
        if (w.global_interval.tick(&Platform::now)) {
            r = check_shared_work(w);
        }
        runnable* const behind = std::exchange(w.yielded, nullptr);
        paused_chain* const paused = std::exchange(w.paused, nullptr);
        if (paused == nullptr) { // the parent waits or lets other tasks run
            enqueue_children(w);
        } else if (paused->pauses >= w.global_interval.child_pauses(w.ring.size())) {
            // A chain that runs or pauses takes its children back. If the chain never waits, no
            // other worker would ever run them. So the oldest child is queued after a number of
            // pauses.
            paused->pauses = 0;
            if (runnable* const oldest = w.children.steal()) {
                push_ring(w, *oldest);
            }
        }
        if (behind != nullptr) {
            if (r == nullptr && has_nothing(w)) {
                return behind;
            }
            if (paused != nullptr) {
                w.children.take_all(paused->forked);
            }
            push_behind(w, *behind);
        }
        if (r == nullptr && uses_classes()) [[unlikely]] {
            r = take_by_share(w);
        }
        r = r != nullptr ? r : take_local(w);
        r = r != nullptr ? r : take_injected(w);
        r = r != nullptr ? r : take_pinned(w);
        r = r != nullptr ? r : take_next_arm(w);
        return r != nullptr ? r : search_or_sleep(w);
    }

    void execute(worker& w, runnable& r) noexcept {
        w.polled.add(1);
        w.ran_arm = &r == &w.arm;
        run_job(w, w.index, how_.trace, r); // another thread may own the worker afterwards
    }

    // Returns a job, or nullptr if run() must return.
    runnable* search_or_sleep(worker& w) noexcept {
        bool searching = idle_.start_search();
        bool is_timed = false;
        bool woken = false; // another thread has woken this worker
        bool leaves_arms = false;
        const bool is_substitute = thread_role::here().is_substitute;
        w.timed_sleep_ns = (std::min)(first_timed_sleep_ns, how_.max_timed_sleep_ns);
        w.is_searching = true;
        for (;;) {
            if (searching) {
                bool more = woken && !w.take_woken_for_pinned();
                runnable* r = search(w, is_timed, leaves_arms, more);
                // The next arm may come soon. If there are fewer processors than workers, another
                // worker needs the processor more than this spin.
                if (r == nullptr && std::exchange(w.ran_arm, false) && least_spin_ns() != 0) {
                    basic_spin<Platform>::until(
                        [&]() noexcept { return (r = search(w, false, false, more)) != nullptr; },
                        least_spin_ns());
                }
                if (r != nullptr) {
                    // While this worker was the timed sleeper, a push of an arm woke no worker,
                    // because this worker would take the arm. Now this worker has a job, so another
                    // sleeper is woken for the arms, even if that sleeper does not become the timed
                    // sleeper.
                    more = more || (is_timed && has_arms());
                    w.is_searching = false;
                    wake_after_search(w, *r, more);
                    replace_blocked();
                    w.found_ns = Platform::now();
                    w.global_interval.wake(w.found_ns);
                    return r;
                }
            }
            // Order: acquire [scheduler.stop]; sees what came before stop().
            const bool ends = stopped_.load(std::memory_order_acquire);
            if (ends || is_substitute) {
                w.is_searching = false;
                if (std::exchange(searching, false)) {
                    unpark(idle_.end_search(false));
                }
                if (ends) {
                    return nullptr;
                }
                if (owner_.hand_to_idle_thread(w)) {
                    thread_role::here().worker = nullptr;
                    return nullptr;
                }
                w.is_searching = true;
            }
            w.ring.trim();
            is_timed = idle_.announce(w.index, searching, uses_timed_sleeps_);
            owner_.found_nothing();
            // Before a short sleep, the timed sleeper takes no arm of a fork-join, because the
            // callers that have forked the arms usually run them soon. It takes the remaining arms
            // if another thread wakes it, or else before its first sleep that is not short.
            leaves_arms = is_timed && sleeps_briefly(w) && callers_take_all_places();
            woken = !sees_work(w, leaves_arms) && !(is_substitute && owner_.has_idle_thread()) &&
                    sleep(w, is_timed);
            leaves_arms = leaves_arms && !woken;
            // Order: relaxed; stop() unparks all workers, and the token publishes the store.
            if (!woken || stopped_.load(std::memory_order_relaxed)) {
                if (!idle_.retract(w.index) && !woken) {
                    w.sleeper.park(deadline::never());
                    woken = true;
                }
            }
            searching = true;
        }
    }

    // Ends the search of `w`, which has found `r`, and wakes up to two workers. The second wake is
    // for further arms of a fork-join whose arms take long (fork_lane.hpp).
    void wake_after_search(worker& w, const runnable& r, bool more) noexcept {
        const unsigned first = idle_.end_search(more);
        unpark(first);
        const unsigned jobs = &r == &w.arm ? w.arm.more_wakes : 0;
        const unsigned second = idle_.wake_another(jobs);
        unpark(second);
        if (first == idle_.none && second != idle_.none) {
            unpark(idle_.wake_another(jobs));
        }
    }

    // Returns a job or nullptr. On entry, `more` is true if the worker was woken for a job. On
    // return, `more` is true if there may be further jobs.
    runnable* search(worker& w, bool after_timed_sleep, bool but_arms, bool& more) noexcept {
        fire_timers(w, Platform::now());
        if (runnable* const own = take_local(w)) { // from timers and files
            more = more || !has_nothing(w);        // the worker was woken for another job
            return own;
        }
        const bool woken = std::exchange(more, false);
        runnable* r = take_injected(w);
        if (r == nullptr) {
            r = take_pinned(w);
            more = r != nullptr && woken; // the worker was woken for another job
        }
        if (r == nullptr && steals_) {
            r = steal(w, more);
            if (r == nullptr && after_timed_sleep) {
                r = take_stale(w);
            }
        }
        if (r == nullptr && !but_arms) {
            r = take_arm(w, more);
        }
        more = more || !has_nothing(w);
        return r;
    }

    // ---- The queues

    // The rare part of push_ring().
    BIDE_NOINLINE void push_to_full_ring(worker& w, runnable& r) noexcept {
        if (!w.ring.push(r)) {
            w.overflowed.add(1);
            push(r);
        } else if (steals_ && !w.is_searching) {
            wake_any();
        }
    }

    void unpark(worker& w) noexcept { w.sleeper.unpark(how_.io); }
    void unpark(unsigned number) noexcept {
        if (number != idle_.none) {
            unpark(workers_[number]);
        }
    }

    // Puts `r` behind the jobs of `w`, and behind at least one job of the injector. So a task that
    // yields again and again does not delay these jobs. If the ring of `w` is long, moves one job
    // from the injector to the ring. If the ring is short, moves a fair share, so that tasks that
    // yield contend less for the injector's lock.
    void push_behind(worker& w, runnable& r) noexcept {
        if (!injector_.empty()) {
            if (!shares_rings_) {
                return push(r);
            }
            const std::size_t fair = fair_share();
            run_list share =
                take_share(w, w.ring.size() + fair < w.ring.initial_capacity ? fair : 1);
            push_all(w, share);
        }
        push_ring(w, r);
    }

    void push_all(worker& w, run_list& list) noexcept {
        while (runnable* const r = list.pop()) {
            if (!w.ring.push(*r)) {
                injector_.push(*r);
            }
        }
    }

    // Moves the forked children to the ring.
    void enqueue_children(worker& w) noexcept {
        run_list all;
        w.children.take_all(all);
        while (runnable* const r = all.pop()) {
            push_ring(w, *r);
        }
    }

    runnable* swap_lifo(worker& w, runnable* with) noexcept {
        if (steals_) {
            // Order: seq_cst [idle.announce]; the job is visible before the owner looks for
            // sleepers. acq_rel [scheduler.lifo]; the worker that takes the job sees what came
            // before the push.
            return w.lifo.exchange(with, std::memory_order_seq_cst);
        }
        // Order: relaxed; only the owner uses the slot. If another thread becomes the owner, the
        // transfer of the worker orders these accesses before those of the new owner.
        runnable* const older = w.lifo.load(std::memory_order_relaxed);
        w.lifo.store(with, std::memory_order_relaxed);
        return older;
    }

    runnable* take_lifo(worker& w) noexcept {
        // Order: relaxed; a hint. The exchange acquires [scheduler.lifo].
        return w.lifo.load(std::memory_order_relaxed) == nullptr ? nullptr : swap_lifo(w, nullptr);
    }

    // Returns a high, low or pinned job, or a job of take_due(). Returns nullptr if a normal job
    // comes next. class_shares selects the class of the job. If the class is low and has no job,
    // takes a high job instead. Of the calls that take neither, every second takes a pinned job, if
    // there is one. If there is still no job, and `injector_is_due` is set, calls take_due(). Not
    // inlined, because most schedulers never call it.
    BIDE_NOINLINE runnable* take_by_share(worker& w) noexcept {
        const task_priority which = w.shares.next();
        runnable* r = which == task_priority::low ? low_.pop() : nullptr;
        if (r == nullptr && which != task_priority::normal) {
            r = high_.pop();
        }
        if (r == nullptr && w.mine != nullptr && w.shares.next_is_pinned()) {
            r = w.mine->pop();
        }
        return r == nullptr && std::exchange(w.injector_is_due, false) ? take_due(w) : r;
    }

    // Takes a job from the LIFO slot, at most three times in a row, or from the ring.
    runnable* take_local(worker& w) noexcept {
        if (w.lifo_streak < max_lifo_streak) {
            if (runnable* const r = take_lifo(w)) {
                ++w.lifo_streak;
                return r;
            }
        }
        w.lifo_streak = 0;
        if (runnable* const r = w.ring.pop()) {
            return r;
        }
        if (!injector_.empty()) {
            return nullptr; // take_injected() comes next
        }
        return take_lifo(w);
    }

    // Takes a fair share of the jobs in the injector. Returns the first of these jobs and moves the
    // others to the ring. If the injector is empty, takes the job of the LIFO slot, or a high or a
    // low job.
    runnable* take_injected(worker& w) noexcept {
        // If workers do not steal, takes one job only, because no other worker could take a further
        // job out of this ring. A single worker takes its share.
        run_list share = take_share(w, shares_rings_ ? fair_share() : std::size_t{1});
        runnable* const first = share.pop();
        if (first == nullptr) {
            runnable* const r = take_lifo(w);
            return r == nullptr && uses_classes() ? pop_class() : r;
        }
        const bool more = share.first() != nullptr;
        push_all(w, share);
        if (more && steals_) {
            wake_any(); // as after any push [idle.announce]
        }
        return first;
    }

    // Takes the jobs that are due: one job from the injector, and the jobs that balance() steals.
    runnable* take_due(worker& w) noexcept {
        runnable* const injected = take_share(w, 1).pop();
        runnable* const stolen = balance(w);
        if (injected != nullptr && stolen != nullptr) {
            push_ring(w, *stolen);
        }
        return injected != nullptr ? injected : stolen;
    }

    // Searches the other workers, beginning with a random one. Takes half of the jobs in the ring
    // of another worker: returns the first job and moves the others to the ring of `w`. If the ring
    // of the other worker is empty, takes its oldest child. If no worker has either, and the pool
    // uses no timed sleeper, takes the job in a LIFO slot. Sets `left` to true if the other worker
    // has more jobs.
    runnable* steal(worker& w, bool& left) noexcept {
        const auto count = static_cast<unsigned>(workers_.size());
        const auto first = static_cast<unsigned>(w.next_random() % count);
        for (unsigned i = 0; i < 2 * count; ++i) {
            worker& other = workers_[(first + i) % count];
            if (&other == &w) {
                continue;
            }
            runnable* r = nullptr;
            unsigned taken = 1;
            if (i < count) {
                r = other.ring.steal_into(w.ring, taken);
                if (r == nullptr) {
                    r = other.children.steal();
                    taken = 1;
                }
            } else if (!uses_timed_sleeps_) {
                r = take_lifo(other);
            }
            if (r != nullptr) {
                note_steal(w, taken);
                left = !other.ring.empty() || !other.children.empty();
                return r;
            }
        }
        return nullptr;
    }

    // Called by the timed sleeper after its sleep. Takes a job from the LIFO slot of a worker that
    // has run no job since the sleep began.
    runnable* take_stale(worker& w) noexcept {
        for (worker& other : workers_) {
            // Order: relaxed; see sleep().
            if (&other == &w ||
                other.polled_when_seen.load(std::memory_order_relaxed) != other.polled.read()) {
                continue;
            }
            if (runnable* const r = take_lifo(other)) {
                note_steal(w, 1);
                return r;
            }
        }
        return nullptr;
    }
    // Takes the job from the LIFO slot of a worker that has run no job since this function or the
    // timed sleeper has last looked.
    runnable* take_if_stale(worker& other) noexcept {
        const std::uint64_t polled = other.polled.read();
        // Order: relaxed, both; a hint. At worst, a job is taken that its worker would run soon.
        if (other.polled_when_seen.load(std::memory_order_relaxed) == polled) {
            return take_lifo(other);
        }
        other.polled_when_seen.store(polled, std::memory_order_relaxed);
        return nullptr;
    }
    void note_steal(worker& w, unsigned taken) noexcept {
        w.has_stolen(taken);
        if (how_.trace != nullptr) {
            how_.trace->stole(w.index, taken, Platform::now());
        }
    }

    runnable* take_arm(worker& w, bool& left) noexcept {
        basic_arm_source<Platform>* const all = arms();
        if (all == nullptr || !all->take_arm(w, left)) {
            return nullptr;
        }
        w.has_stolen(1);
        return &w.arm;
    }

    // If the last job of `w` was an arm, takes the next arm of the same lane, without a search. If
    // the last search was 100 us ago, a search comes first, which finds tasks of other workers.
    runnable* take_next_arm(worker& w) noexcept {
        if (!w.ran_arm) {
            return nullptr;
        }
        const std::int64_t now = Platform::now();
        const std::int64_t took = now - w.arm_begin_ns;
        w.arm_ns = w.arm_ns == never ? took : w.arm_ns + (took - w.arm_ns) / 4;
        w.arm_begin_ns = now;
        if (now - w.found_ns >= longest_arms_ns || !arms()->take_next_arm(w, now)) {
            return nullptr;
        }
        w.has_stolen(1);
        return &w.arm;
    }

    run_list take_share(worker& w, std::size_t most) noexcept {
        run_list share;
        if (!injector_.empty()) {
            w.injected.add(injector_.pop(share, most));
        }
        return share;
    }

    std::size_t fair_share() const noexcept {
        return injector_.share(injector_.size(), static_cast<unsigned>(workers_.size()));
    }

    // Returns true if neither the queues of `w` nor the injector have a job.
    bool has_nothing(const worker& w) const noexcept {
        // Order: relaxed; only the owner puts a job into the slot. If another worker has taken the
        // job, the owner may still see the job here, and then looks once more in vain.
        return w.lifo.load(std::memory_order_relaxed) == nullptr && w.ring.empty() &&
               injector_.empty() && !(uses_classes() && has_class_work(w));
    }

    bool has_arms() const noexcept {
        const basic_arm_source<Platform>* const all = arms();
        return all != nullptr && all->has_work();
    }

    // ---- High, low and pinned jobs

    bool uses_classes() const noexcept {
        // Order: relaxed; a worker that misses the flag here looks at the queues of the classes
        // before it sleeps. If it sees a job in one of them, it also sees the flag.
        return uses_classes_.load(std::memory_order_relaxed);
    }
    void use_classes() noexcept {
        if (!uses_classes()) {
            // Order: relaxed; the push of the job publishes the flag.
            uses_classes_.store(true, std::memory_order_relaxed);
        }
    }
    runnable* pop_class() noexcept {
        runnable* const r = high_.pop();
        return r != nullptr ? r : low_.pop();
    }
    runnable* take_pinned(worker& w) noexcept {
        return uses_classes() && w.mine != nullptr ? w.mine->pop() : nullptr;
    }
    bool has_class_work(const worker& w) const noexcept {
        return !high_.empty() || !low_.empty() || (w.mine != nullptr && !w.mine->empty());
    }

    // ---- Timers, files and sleep

    // Fires timers, polls the driver and takes jobs, as a busy worker does at intervals.
    runnable* check_shared_work(worker& w) noexcept {
        const std::int64_t now = Platform::now();
        w.global_interval.restart(now);
        fire_timers(w, now);
        if (driver* const io = driver_lock_.try_enter()) {
            // Queues the runnables that become ready here, so that they run as tasks do.
            wake_scope<Platform> later(&service_executor<Platform>);
            io->wait(deadline::poll());
            leave_driver(w);
        }
        w.ring.trim();
        if (uses_classes()) { // a job of another class may come next
            w.injector_is_due = true;
            return nullptr;
        }
        return take_due(w);
    }

    // Fires the timers of all workers that are due. Returns how many it fired.
    unsigned fire_timers(worker& w, std::int64_t now) noexcept {
        // Counts each timer before it fires, so that the job that the timer wakes sees the count.
        const waker counts([](void* in) noexcept { static_cast<worker*>(in)->timers_fired.add(1); },
                           &w);
        unsigned fired = 0;
        for (worker& other : workers_) {
            if (other.timers.next_ns() <= now) {
                fired += other.timers.fire_due(now, 256, 0, counts);
            }
        }
        return fired;
    }

    std::int64_t next_timer() const noexcept {
        std::int64_t next = never;
        for (const worker& other : workers_) {
            next = (std::min)(next, other.timers.next_ns());
        }
        return next;
    }

    void leave_driver(worker& w) noexcept {
        driver_lock_.leave();
        w.left_driver = true;
    }
    // Returns true if the next sleep of `w` as the timed sleeper is short: less than 1 ms, and less
    // than the longest timed sleep.
    bool sleeps_briefly(const worker& w) const noexcept {
        return w.timed_sleep_ns < (std::min)(long_timed_sleep_ns, how_.max_timed_sleep_ns);
    }

    // Sleeps. Returns true if another thread woke the worker. Returns false if the worker woke for
    // a role: the time of the role has come, or the driver has returned.
    bool sleep(worker& w, bool is_timed) noexcept {
        std::int64_t until = never;
        timer_leader_.lead(w.lead_until, [this]() noexcept { return next_timer(); });
        if (is_timed) {
            for (worker& other : workers_) {
                // Order: relaxed; only the timed sleeper uses it, and there is only one.
                other.polled_when_seen.store(other.polled.read(), std::memory_order_relaxed);
            }
            until = Platform::now() + w.timed_sleep_ns;
            w.timed_sleep_ns = (std::min)(2 * w.timed_sleep_ns, how_.max_timed_sleep_ns);
        }
        until = (std::min)(until, w.lead_until);
        driver* const io = driver_lock_.try_enter();
        w.parked.add(1);
        const bool woken = park_worker(w.sleeper, &w, w.index, deadline::at_ns(until), io,
                                       how_.trace, &service_executor<Platform>);
        if (io != nullptr) {
            leave_driver(w);
        }
        if (timer_leader_.resign(w.lead_until)) {
            w.must_check_leader = true;
        }
        w.woken.add(woken ? 1 : 0);
        return woken;
    }

    // Called when `w` is about to run a job or to block. Wakes another worker for the roles of `w`.
    void hand_over_roles(worker& w) noexcept {
        if (w.must_check_leader) {
            w.must_check_leader = false;
            if (timer_leader_.wakes_after(next_timer())) {
                wake_any();
            }
        }
        if (w.left_driver) {
            w.left_driver = false;
            if (driver_lock_.is_free()) {
                unpark(idle_.wake_unless_timed());
            }
        }
    }

    // ---- Blocked workers

    // Called when `w` will run no job for a while. Moves its jobs to where other workers find them.
    void hand_over_jobs(worker& w) noexcept {
        if (runnable* const r = std::exchange(w.yielded, nullptr)) {
            w.paused = nullptr;
            push_behind(w, *r);
        }
        enqueue_children(w);
        if (runnable* const r = take_lifo(w)) {
            push_ring(w, *r);
        }
        while (runnable* const r = steals_ ? nullptr : w.ring.pop()) {
            injector_.push(*r);
        }
        if (!w.ring.empty() || !injector_.empty() ||
            (uses_classes() && !(high_.empty() && low_.empty()))) {
            wake_any();
        }
    }

    // If the owner of `w` is blocked, makes another thread run `w`, and returns true. Returns false
    // in two cases: the owner is not blocked, or no thread is free. In the second case, the next
    // thread that becomes free runs `w`. If no thread will become free, also sets `found_no_thread`
    // to true.
    bool replace(worker& w, bool& found_no_thread) noexcept {
        found_no_thread = false;
        const bool replaced = w.ownership.transfer([this, &w, &found_no_thread]() noexcept {
            idle_.add_blocked(-1);
            found_no_thread = !owner_.replace(w);
            if (found_no_thread) {
                idle_.add_blocked(1);
            }
            return !found_no_thread;
        });
        if (found_no_thread) {
            // The request comes after the transfer: during the transfer, a thread that received the
            // request would find no blocked worker.
            found_no_thread = !owner_.request_replacement();
        }
        return replaced;
    }

    // If a worker is blocked and no worker sleeps, returns the first worker that take() accepts.
    template <class Take> worker* take_over(Take&& take) noexcept {
        if (idle_.needs_replacement()) {
            for (worker& w : workers_) {
                if (take(w)) {
                    return &w;
                }
            }
        }
        return nullptr;
    }

    unsigned callers_in_place() const noexcept {
        // Order: relaxed; a hint.
        const int callers =
            callers_.load(std::memory_order_relaxed) - (std::max)(how_.spare_processors, 0);
        return static_cast<unsigned>((std::max)(callers, 0));
    }

    owner& owner_;
    const options how_;
    const bool steals_;
    const bool takes_arms_;   // of other threads, at least
    const bool shares_rings_; // other workers steal from a ring, or there are none
    const bool uses_timed_sleeps_;
    fixed_array<worker> workers_;
    basic_idle<Platform> idle_;
    alignas(cache_line_pair) basic_injector<Platform> injector_;
    typename Platform::template atomic<bool> uses_classes_{
        false}; // there was a high, a low or a pinned job
    basic_injector<Platform> high_;
    basic_injector<Platform> low_;
    alignas(cache_line_pair)
        typename Platform::template atomic<basic_arm_source<Platform>*> arms_{nullptr};
    alignas(cache_line_pair) typename Platform::template atomic<int> callers_{0};
    basic_driver_lock<Platform> driver_lock_;
    alignas(cache_line_pair) basic_timer_leader<Platform> timer_leader_;
    typename Platform::template atomic<bool> stopped_{false};
};

}}} // namespace bide::BIDE_ABI::detail

#endif
