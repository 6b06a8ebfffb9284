// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_WORK_QUEUES_HPP
#define BIDE_SCHED_DETAIL_WORK_QUEUES_HPP

// The queues of a pool (pool.hpp): each worker's LIFO slot, ring and children, the injector behind
// them, and the arms of fork-joins (arm_source.hpp). Each push makes its job visible and then asks
// idle.hpp which worker to wake [idle.announce]. High, low and pinned jobs have queues of their own
// (class_queues.hpp).
//
// A push into a LIFO slot wakes no worker while there is a watcher. The watcher is an idle worker
// that sleeps with a time-out while other workers run (maintenance.hpp). If a worker has run no
// further job since before the watcher's sleep, the watcher takes the job from that worker's LIFO
// slot. Without a watcher, a push into a LIFO slot wakes a worker as any other push does.

#include <bide/core/config.hpp>
#include <bide/core/detail/process_fence.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/wake_scope.hpp>
#include <bide/fwd.hpp>
#include <bide/sched/detail/arm_source.hpp>
#include <bide/sched/detail/class_queues.hpp>
#include <bide/sched/detail/worker.hpp>
#include <bide/sched/idle.hpp>
#include <bide/sched/injector.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_work_queues {
public:
    using worker = basic_worker<Platform>;

    // `steal`: workers steal from each other. `watch`: idle workers sleep with a time-out. `io`:
    // one idle worker sleeps in it. `spare`: how many processors there are more than workers;
    // negative: fewer.
    basic_work_queues(basic_pool<Platform>& of, unsigned count, bool steal, bool watch, driver* io,
                      int spare = 0)
        : steals_(steal && count > 1), shares_rings_(steals_ || count == 1),
          may_watch_(watch && steals_), spare_processors_(spare), driver_(io), idle_(count) {
        if (steals_) {
            detail::prepare_heavy_fence<Platform>(); // for thieves that publish (fork_deque.hpp)
        }
        for (unsigned i = 0; i < count; ++i) {
            workers_.emplace_back(of, i);
        }
    }
    basic_work_queues(const basic_work_queues&) = delete;
    basic_work_queues& operator=(const basic_work_queues&) = delete;
    ~basic_work_queues() {
        // Order: relaxed; no thread forks any more.
        delete arms_.load(std::memory_order_relaxed);
    }

    // ---- Functions for the owner of the worker `w`. While `w` is searching, its pushes into its
    // own queues wake no worker. end_search() wakes one later.

    // Puts `r` into the LIFO slot. What was there goes to the ring.
    void push_local(worker& w, runnable& r) noexcept;
    // Puts `r` last in the ring. If it is full and cannot grow, half of it moves to the injector.
    void push_ring(worker& w, runnable& r) noexcept;

    // Puts `r` behind the jobs of `w`, and behind at least one job of the injector. So a task that
    // yields again and again does not delay these jobs.
    void push_behind(worker& w, runnable& r) noexcept;

    // Puts children of when_all where their parent may take them back. Leaves those in the list for
    // which there is no room.
    void fork(worker& w, run_list& list) noexcept;
    // Moves the forked children to the ring. A chain takes them back only while it runs or has
    // paused.
    void enqueue_children(worker& w) noexcept;
    // The chain has paused. Moves its oldest child to the ring now and then, because the chain may
    // never wait.
    void release_child(worker& w, paused_chain& of) noexcept {
        if (of.pauses >= w.global_interval.child_pauses(w.ring.size())) {
            of.pauses = 0;
            if (runnable* const oldest = w.children.steal()) {
                push_ring(w, *oldest);
            }
        }
    }

    // Takes the job of this turn, if that is a high, a low or a pinned one. Otherwise, takes a job by the
    // next three functions.
    runnable* next(worker& w) noexcept;

    // Takes a job from the LIFO slot, at most three times in a row, or from the ring.
    runnable* local_work(worker& w) noexcept;

    // Takes a fair share from the injector: returns the first job and moves the rest to the ring.
    // If the injector is empty, takes from the LIFO slot, or a high or a low job.
    runnable* fetch(worker& w) noexcept;

    // Takes a job that only this thread may run.
    runnable* take_pinned(worker& w) noexcept {
        return classes_.in_use() && w.mine != nullptr ? w.mine->pop() : nullptr;
    }

    // Takes one job from the injector.
    runnable* take_injected(worker& w) noexcept {
        runnable* const r = injector_.empty() ? nullptr : injector_.pop();
        w.injected.add(r != nullptr ? 1 : 0);
        return r;
    }

    // Takes half of another worker's ring: returns the first job and moves the rest to the ring of
    // `w`. If the ring is empty, takes the oldest child. `taken` is the number of jobs. `left` says
    // whether jobs were left there. Without a watcher, also takes from other workers' LIFO slots.
    runnable* steal(worker& w, unsigned& taken, bool& left) noexcept;

    // What a busy worker takes at intervals: one job from the injector, and what balance() takes.
    runnable* take_due(worker& w) noexcept;
    // Looks at the ring of one other worker, of each in turn. If many more jobs are there, takes half of
    // the difference, as steal() does. So the jobs of all busy workers get their turns equally often:
    // see scheduler.hpp.
    runnable* balance(worker& w) noexcept;

    // Takes the oldest arm of a fork-join, which is then run as `w.arm`. `left` says whether arms
    // were left on its lane.
    runnable* take_arm(worker& w, bool& left) noexcept;

    // The watcher, before its sleep: notes how many jobs each worker has run.
    void note_progress() noexcept;
    // Called by the watcher after its sleep. Takes a job from the LIFO slot of a worker that has
    // run no job since the sleep began.
    runnable* take_stale(worker& w) noexcept;

    // Moves all jobs of `w` to where other workers find them, because `w` is about to run no job
    // for a while.
    void hand_over(worker& w) noexcept;

    // Returns true if nothing is queued for `w`, here or in the injector.
    bool has_nothing(const worker& w) const noexcept {
        // Order: relaxed; the slot holds what the owner has put there, unless another worker took
        // it.
        return w.lifo.load(std::memory_order_relaxed) == nullptr && w.ring.empty() &&
               injector_.empty() && !(classes_.in_use() && has_class_work(w));
    }

    // The last look of `w` before it sleeps, which decides [idle.announce]. `but_arms`: a watcher
    // leaves the arms of fork-joins to their owners for a while.
    bool sees_work(const worker& w, bool but_arms) const noexcept;

    // ---- Any thread

    void push(runnable& r) noexcept {
        injector_.push(r);
        unpark(idle_.wake_one());
    }
    void push(task_priority of, runnable& r) noexcept {
        classes_.push(of, r);
        unpark(idle_.wake_one());
    }
    // Pushes a job that only the thread of `home` may run. Returns false if the thread owns no worker:
    // the caller then wakes it.
    bool push_pinned(worker& home, runnable& r) noexcept;

    // The jobs that any worker may take from a queue of all, and pinned ones.
    runnable* pop() noexcept;
    std::size_t queued() const noexcept;

    void unpark(unsigned number) noexcept {
        if (number != basic_idle<Platform>::none) {
            unpark(workers_[number]);
        }
    }
    void unpark(worker& w) noexcept { w.sleeper.unpark(driver_); }

    // Called when a job was published on a lane. `brief` means that the fork-join is not worth a
    // wake. Returns the number of nanoseconds that the wake took, or 0 if there was none.
    std::int64_t fork_published(bool brief) noexcept;

    // Counts threads that fork or compute in a fork-join and own no worker: external callers, and
    // threads that have lost their worker.
    void add_callers(int by) noexcept {
        // Order: relaxed; a hint.
        callers_.fetch_add(by, std::memory_order_relaxed);
    }
    // How many sleeping workers a fork-join may wake. Each of these callers computes in the place of
    // a worker, unless there are more processors than workers: it would only take its processor.
    unsigned wakes_for_arms() const noexcept {
        const unsigned asleep = idle_.sleepers_hint();
        return asleep == 0 ? 0 : asleep - (std::min)(asleep, callers_in_place());
    }
    // How long a thread without an arm spins at least: a loop offers an arm every 4 us. With fewer
    // processors than workers, a spin takes the time of a worker.
    std::int64_t least_spin_ns() const noexcept { return spare_processors_ < 0 ? 0 : 5'000; }
    // Returns true if callers compute in the places of all workers that sleep.
    bool callers_take_all_places() const noexcept {
        const unsigned callers = callers_in_place();
        return callers != 0 && callers >= idle_.sleepers_hint();
    }

    basic_idle<Platform>& idle() noexcept { return idle_; }
    const basic_idle<Platform>& idle() const noexcept { return idle_; }
    std::deque<worker>& workers() noexcept { return workers_; }
    const std::deque<worker>& workers() const noexcept { return workers_; }

    // Returns the fork-joins of the pool, or nullptr before the first one.
    basic_arm_source<Platform>* arms() const noexcept {
        // Order: seq_cst [idle.announce]; what is not seen here has published nothing before this
        // worker's announcement. Acquire [fork_lane.source]; sees it as it was made.
        return arms_.load(std::memory_order_seq_cst);
    }
    // Takes over `made`, unless another thread was first. Returns what the pool has then.
    basic_arm_source<Platform>* set_arms(basic_arm_source<Platform>* made) noexcept {
        basic_arm_source<Platform>* first = nullptr;
        // Order: seq_cst [idle.announce] [fork_lane.source]; before an arm is published. Failure: as in
        // arms().
        if (made == nullptr || arms_.compare_exchange_strong(first, made, std::memory_order_seq_cst,
                                                             std::memory_order_seq_cst)) {
            return made;
        }
        delete made;
        return first;
    }
    bool has_arms() const noexcept {
        const basic_arm_source<Platform>* const all = arms();
        return all != nullptr && all->has_work();
    }

    const basic_class_queues<Platform>& classes() const noexcept { return classes_; }
    bool steals() const noexcept { return steals_; }
    bool may_watch() const noexcept { return may_watch_; }

private:
    static constexpr unsigned max_lifo_streak = 3;

    unsigned callers_in_place() const noexcept {
        // Order: relaxed; a hint.
        const int callers =
            callers_.load(std::memory_order_relaxed) - (std::max)(spare_processors_, 0);
        return static_cast<unsigned>((std::max)(callers, 0));
    }

    bool has_class_work(const worker& w) const noexcept {
        return !classes_.empty() || (w.mine != nullptr && !w.mine->empty());
    }
    runnable* take_in_turn(worker& w) noexcept;
    runnable* take_lifo(worker& w) noexcept;
    runnable* swap_lifo(worker& w, runnable* with) noexcept;
    run_list take(worker& w, std::size_t most) noexcept;
    void push_all(worker& w, run_list& list) noexcept;
    std::size_t fair_share() const noexcept {
        return injector_.share(injector_.size(), static_cast<unsigned>(workers_.size()));
    }

    struct overflow {
        basic_work_queues& all;
        void push(run_list& list, std::size_t n) noexcept { all.injector_.push(list, n); }
    };

    const bool steals_;
    const bool shares_rings_; // a job in a ring does not wait for the owner of the ring alone
    const bool may_watch_;
    const int spare_processors_;
    driver* const driver_;
    std::deque<worker> workers_;
    basic_idle<Platform> idle_;
    alignas(cache_line_pair) basic_injector<Platform> injector_;
    basic_class_queues<Platform> classes_;
    alignas(cache_line_pair)
        typename Platform::template atomic<basic_arm_source<Platform>*> arms_{nullptr};
    alignas(cache_line_pair) typename Platform::template atomic<int> callers_{0};
};

// ---- Enqueue

template <class Platform>
void basic_work_queues<Platform>::push_local(worker& w, runnable& r) noexcept {
    runnable* const older = swap_lifo(w, &r);
    if (older != nullptr) {
        push_ring(w, *older);
    } else if (steals_ && !w.is_searching) {
        unpark(idle_.wake_unless_watched());
    }
}

template <class Platform>
void basic_work_queues<Platform>::push_ring(worker& w, runnable& r) noexcept {
    overflow out{*this};
    if (const unsigned moved = w.ring.push(r, out)) {
        w.overflowed.add(moved);
        unpark(idle_.wake_one());
    } else if (steals_ && !w.is_searching) {
        unpark(idle_.wake_one());
    }
}

// If the ring is short, moves a fair share of the injector to it, so that tasks that yield contend
// less for the injector's lock. Otherwise moves one job.
template <class Platform>
void basic_work_queues<Platform>::push_behind(worker& w, runnable& r) noexcept {
    if (!injector_.empty()) {
        if (!shares_rings_) {
            return push(r);
        }
        const std::size_t fair = fair_share();
        run_list share = take(w, w.ring.size() + fair < w.ring.initial_capacity ? fair : 1);
        push_all(w, share);
    }
    push_ring(w, r);
}

template <class Platform>
void basic_work_queues<Platform>::fork(worker& w, run_list& list) noexcept {
    if (w.children.push(list) && steals_) {
        unpark(idle_.wake_one());
    }
}

template <class Platform> void basic_work_queues<Platform>::enqueue_children(worker& w) noexcept {
    run_list all;
    w.children.take_all(all);
    while (runnable* const r = all.pop()) {
        push_ring(w, *r);
    }
}

template <class Platform>
void basic_work_queues<Platform>::push_all(worker& w, run_list& list) noexcept {
    overflow out{*this};
    while (runnable* const r = list.pop()) {
        w.ring.push(*r, out);
    }
}

template <class Platform>
std::int64_t basic_work_queues<Platform>::fork_published(bool brief) noexcept {
    const unsigned woken = brief ? idle_.wake_for_brief_arm() : idle_.wake_one();
    if (woken == idle_.none) {
        return 0;
    }
    const std::int64_t begin = Platform::now();
    unpark(woken);
    return Platform::now() - begin;
}

// ---- Dequeue

template <class Platform> runnable* basic_work_queues<Platform>::local_work(worker& w) noexcept {
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
        return nullptr; // fetch() comes next
    }
    return take_lifo(w);
}

template <class Platform> runnable* basic_work_queues<Platform>::take_lifo(worker& w) noexcept {
    // Order: relaxed; a hint. The exchange acquires [scheduler.lifo].
    return w.lifo.load(std::memory_order_relaxed) == nullptr ? nullptr : swap_lifo(w, nullptr);
}

template <class Platform>
runnable* basic_work_queues<Platform>::swap_lifo(worker& w, runnable* with) noexcept {
    if (steals_) {
        // Order: seq_cst [idle.announce]; the job is visible before the look for sleepers. acq_rel
        // [scheduler.lifo]; the taker sees what came before the push.
        return w.lifo.exchange(with, std::memory_order_seq_cst);
    }
    // Order: relaxed; only the owner uses it. The next owner comes after by the worker's ownership.
    runnable* const older = w.lifo.load(std::memory_order_relaxed);
    w.lifo.store(with, std::memory_order_relaxed);
    return older;
}

template <class Platform>
run_list basic_work_queues<Platform>::take(worker& w, std::size_t most) noexcept {
    run_list share;
    if (!injector_.empty()) {
        w.injected.add(injector_.pop(share, most));
    }
    return share;
}

template <class Platform> runnable* basic_work_queues<Platform>::fetch(worker& w) noexcept {
    // A job in a ring that no other worker steals from could wait for too long.
    run_list share = take(w, shares_rings_ ? fair_share() : std::size_t{1});
    runnable* const first = share.pop();
    if (first == nullptr) {
        runnable* const r = take_lifo(w);
        return r == nullptr && classes_.in_use() ? classes_.pop() : r;
    }
    const bool more = share.first() != nullptr;
    push_all(w, share);
    if (more && steals_) {
        unpark(idle_.wake_one()); // as after any push [idle.announce]
    }
    return first;
}

template <class Platform> void basic_work_queues<Platform>::hand_over(worker& w) noexcept {
    if (runnable* const r = w.yielded) {
        w.yielded = nullptr;
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
    if (!w.ring.empty() || !injector_.empty() || (classes_.in_use() && !classes_.empty())) {
        unpark(idle_.wake_one());
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#include <bide/sched/detail/class_work.hpp>
#include <bide/sched/detail/work_stealing.hpp>

#endif
