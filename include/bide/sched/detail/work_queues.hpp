#ifndef BIDE_SCHED_DETAIL_WORK_QUEUES_HPP
#define BIDE_SCHED_DETAIL_WORK_QUEUES_HPP

// What a pool (pool.hpp) has to run, and who is woken for it: the workers' LIFO slots and rings, and
// the injector behind them all. Whoever pushes makes it visible and then asks idle.hpp, pair [I1].
//
// What is pushed into a LIFO slot wakes nobody as long as there is a watcher: an idle worker that
// naps while others run, and takes what it finds in the slot of a worker that has come to no end
// with what it runs since before the nap. It is awake, only slow; where there are no watchers,
// somebody is woken for each such push as for any other.

#include <bide/core/config.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/resume.hpp>
#include <bide/sched/detail/fork_lane.hpp>
#include <bide/sched/detail/worker.hpp>
#include <bide/sched/driver.hpp>
#include <bide/sched/idle.hpp>
#include <bide/sched/injector.hpp>

#include <cstddef>
#include <deque>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_work_queues {
public:
    using worker = basic_worker<Platform>;

    // `steal`: workers take from each other. `watched`: idle ones nap. `io`: where one sleeps.
    basic_work_queues(basic_pool<Platform>& whose, unsigned count, bool steal, bool watched,
                      driver* io)
        : steals_(steal && count > 1), shares_(steals_ || count == 1), watched_(watched && steals_),
          driver_(io), idle_(count) {
        for (unsigned i = 0; i < count; ++i) {
            workers_.emplace_back(whose, i);
        }
    }
    basic_work_queues(const basic_work_queues&) = delete;
    basic_work_queues& operator=(const basic_work_queues&) = delete;

    // --- on the thread of the worker `w`; where that searches, nobody is woken for its own queues

    void push_local(worker& w, runnable& r) noexcept;
    void push_ring(worker& w, runnable& r) noexcept;

    // Behind what is queued here, and behind a fair share of what waits in the injector: whoever
    // gives way again and again does not keep that waiting.
    void push_behind(worker& w, runnable& r) noexcept;

    // Its LIFO slot, three times in a row at most, or its ring.
    runnable* local_work(worker& w) noexcept;

    // From the injector, a fair share, of which the rest goes into its ring; else its LIFO slot.
    runnable* fetch(worker& w) noexcept;

    // From the injector, one.
    runnable* take_injected(worker& w) noexcept {
        runnable* const r = injector_.empty() ? nullptr : injector_.pop();
        w.injected.add(r != nullptr ? 1 : 0);
        return r;
    }

    // Half of somebody's ring; `taken` of them, and whether any were `left`. Without watchers also
    // what is in somebody's slot.
    runnable* steal(worker& w, unsigned& taken, bool& left) noexcept;

    // The oldest arm of somebody's fork-join, to be run as `w.arm`; whether there are any `left`.
    runnable* take_arm(worker& w, bool& left) noexcept;

    // A watcher's: before a nap, where the others are; after it, what one of them left in its slot
    // all the while.
    void note_progress() noexcept;
    runnable* take_stale(worker& w) noexcept;

    // All that it has, to where others find it: it is going to run nothing for a while.
    void hand_over(worker& w) noexcept;

    // Nothing is queued for `w`, here or in the injector. Its own look.
    bool has_nothing(const worker& w) const noexcept {
        // Order: relaxed; what it has put there itself, or others have taken.
        return w.lifo.load(std::memory_order_relaxed) == nullptr && w.ring.empty() &&
               injector_.empty();
    }

    // The last look of `w` before sleep, which counts [I1].
    bool sees_work(const worker& w) const noexcept;

    // --- any thread

    void push(runnable& r) noexcept {
        injector_.push(r);
        unpark(idle_.wake_one());
    }
    runnable* pop() noexcept { return injector_.pop(); }
    std::size_t queued() const noexcept { return injector_.size(); }

    void unpark(unsigned number) noexcept {
        if (number != basic_idle<Platform>::none) {
            unpark(workers_[number]);
        }
    }
    void unpark(worker& w) noexcept { w.sleeper.unpark(driver_); }

    basic_idle<Platform>& idle() noexcept { return idle_; }
    const basic_idle<Platform>& idle() const noexcept { return idle_; }
    std::deque<worker>& workers() noexcept { return workers_; }
    const std::deque<worker>& workers() const noexcept { return workers_; }
    basic_fork_lanes<Platform>& lanes() noexcept { return lanes_; }
    bool steals() const noexcept { return steals_; }
    bool watched() const noexcept { return watched_; }

private:
    static constexpr unsigned most_lifo = 3;

    runnable* take_lifo(worker& w) noexcept;
    runnable* swap_lifo(worker& w, runnable* with) noexcept;
    run_list take_share(worker& w) noexcept;
    bool draw(worker& w) noexcept;
    void put_all(worker& w, run_list& list) noexcept;
    std::size_t fair_share() const noexcept {
        return injector_.share(injector_.size(), static_cast<unsigned>(workers_.size()));
    }

    struct overflow {
        basic_work_queues& all;
        void push(run_list& list, std::size_t n) noexcept { all.injector_.push(list, n); }
    };

    const bool steals_;
    const bool shares_; // nobody waits for what is in another's ring
    const bool watched_;
    driver* const driver_;
    std::deque<worker> workers_;
    basic_idle<Platform> idle_;
    alignas(cache_line_pair) basic_injector<Platform> injector_;
    alignas(cache_line_pair) basic_fork_lanes<Platform> lanes_;
};

// ---- In

template <class Platform>
void basic_work_queues<Platform>::push_local(worker& w, runnable& r) noexcept {
    runnable* const older = swap_lifo(w, &r);
    if (older != nullptr) {
        push_ring(w, *older);
    } else if (steals_ && !w.searches) {
        unpark(idle_.wake_unless_watched());
    }
}

template <class Platform>
void basic_work_queues<Platform>::push_ring(worker& w, runnable& r) noexcept {
    overflow out{*this};
    if (const unsigned moved = w.ring.push(r, out)) {
        w.overflowed.add(moved);
        unpark(idle_.wake_one());
    } else if (steals_ && !w.searches) {
        unpark(idle_.wake_one());
    }
}

template <class Platform>
void basic_work_queues<Platform>::push_behind(worker& w, runnable& r) noexcept {
    if (injector_.empty() || draw(w)) {
        push_ring(w, r);
    } else {
        push(r);
    }
}

// A ring with room draws on the injector, so that those who give way do not all meet at its lock.
// False: there is none, or nothing may be drawn, or others were faster.
template <class Platform> bool basic_work_queues<Platform>::draw(worker& w) noexcept {
    if (!shares_ || w.ring.room() <= fair_share()) {
        return false;
    }
    run_list share = take_share(w);
    const bool drawn = share.first() != nullptr;
    put_all(w, share);
    return drawn;
}

template <class Platform>
void basic_work_queues<Platform>::put_all(worker& w, run_list& list) noexcept {
    overflow out{*this};
    while (runnable* const r = list.pop()) {
        w.ring.push(*r, out);
    }
}

// ---- Out

template <class Platform> runnable* basic_work_queues<Platform>::local_work(worker& w) noexcept {
    if (w.lifo_run < most_lifo) {
        if (runnable* const r = take_lifo(w)) {
            ++w.lifo_run;
            return r;
        }
    }
    w.lifo_run = 0;
    if (runnable* const r = w.ring.pop()) {
        return r;
    }
    if (!injector_.empty()) {
        return nullptr; // fetch() will do
    }
    return take_lifo(w);
}

template <class Platform> runnable* basic_work_queues<Platform>::take_lifo(worker& w) noexcept {
    // Order: relaxed; only a reason to look: the swap acquires [S2].
    return w.lifo.load(std::memory_order_relaxed) == nullptr ? nullptr : swap_lifo(w, nullptr);
}

template <class Platform>
runnable* basic_work_queues<Platform>::swap_lifo(worker& w, runnable* with) noexcept {
    if (steals_) {
        // Order: seq_cst [I1]; visible before it is looked who sleeps. acq_rel [S2]: who takes it
        // sees what came before.
        return w.lifo.exchange(with, std::memory_order_seq_cst);
    }
    // Order: relaxed; it is the owner's alone, and whoever owns `w` next comes after by its worker_ownership.
    runnable* const older = w.lifo.load(std::memory_order_relaxed);
    w.lifo.store(with, std::memory_order_relaxed);
    return older;
}

template <class Platform> run_list basic_work_queues<Platform>::take_share(worker& w) noexcept {
    run_list share;
    if (!injector_.empty()) {
        // What goes into a ring others must be able to take.
        w.injected.add(injector_.pop(share, shares_ ? fair_share() : std::size_t{1}));
    }
    return share;
}

template <class Platform> runnable* basic_work_queues<Platform>::fetch(worker& w) noexcept {
    run_list share = take_share(w);
    runnable* const first = share.pop();
    if (first == nullptr) {
        return take_lifo(w);
    }
    const bool more = share.first() != nullptr;
    put_all(w, share);
    if (more && steals_) {
        unpark(idle_.wake_one()); // as for any push [I1]
    }
    return first;
}

template <class Platform>
runnable* basic_work_queues<Platform>::steal(worker& w, unsigned& taken, bool& left) noexcept {
    const auto count = static_cast<unsigned>(workers_.size());
    if (!steals_ || count == 1) {
        return nullptr;
    }
    const auto first = static_cast<unsigned>(w.next_random() % count);
    for (unsigned i = 0; i < 2 * count; ++i) {
        worker& other = workers_[(first + i) % count];
        if (&other == &w) {
            continue;
        }
        runnable* r = nullptr;
        if (i < count) {
            r = other.ring.steal_into(w.ring, taken);
        } else if (!watched_) {
            r = take_lifo(other);
            taken = 1;
        }
        if (r != nullptr) {
            w.stolen.add(taken);
            w.steal_batches.add(1);
            left = !other.ring.empty();
            return r;
        }
    }
    return nullptr;
}

template <class Platform>
runnable* basic_work_queues<Platform>::take_arm(worker& w, bool& left) noexcept {
    if (!steals_) {
        return nullptr;
    }
    w.arm.what = lanes_.steal(w.next_random(), w.arm.from);
    if (w.arm.what == nullptr) {
        return nullptr;
    }
    w.stolen.add(1);
    w.steal_batches.add(1);
    left = !w.arm.from->is_empty();
    return &w.arm;
}

template <class Platform> void basic_work_queues<Platform>::note_progress() noexcept {
    for (worker& other : workers_) {
        // Order: relaxed; an observation, for later. There is one watcher at a time.
        other.polled_when_seen.store(other.polled.read(), std::memory_order_relaxed);
    }
}

template <class Platform> runnable* basic_work_queues<Platform>::take_stale(worker& w) noexcept {
    for (worker& other : workers_) {
        // Order: relaxed; see note_progress().
        if (&other == &w ||
            other.polled_when_seen.load(std::memory_order_relaxed) != other.polled.read()) {
            continue;
        }
        if (runnable* const r = take_lifo(other)) {
            w.stolen.add(1);
            w.steal_batches.add(1);
            return r;
        }
    }
    return nullptr;
}

template <class Platform>
bool basic_work_queues<Platform>::sees_work(const worker& w) const noexcept {
    if (!has_nothing(w)) {
        return true;
    }
    for (const worker& other : workers_) {
        if (!steals_) {
            break;
        }
        if (!other.ring.empty()) {
            return true;
        }
        // Order: seq_cst [I1]; a push that did not see this one asleep is seen.
        if (!watched_ && other.lifo.load(std::memory_order_seq_cst) != nullptr) {
            return true;
        }
    }
    return steals_ && lanes_.has_work();
}

template <class Platform> void basic_work_queues<Platform>::hand_over(worker& w) noexcept {
    if (runnable* const r = w.gave_way) {
        w.gave_way = nullptr;
        push_behind(w, *r);
    }
    if (runnable* const r = take_lifo(w)) {
        push_ring(w, *r);
    }
    while (runnable* const r = steals_ ? nullptr : w.ring.pop()) {
        injector_.push(*r);
    }
    if (!w.ring.empty() || !injector_.empty()) {
        unpark(idle_.wake_one());
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
