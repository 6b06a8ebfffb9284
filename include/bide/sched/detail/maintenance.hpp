// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_MAINTENANCE_HPP
#define BIDE_SCHED_DETAIL_MAINTENANCE_HPP

// What the workers of a pool (pool.hpp) do besides running their queues: they fire timers and poll
// the driver for files, and one of them takes what other workers are slow to run. A busy worker
// does this from time to time. Idle workers do it while they sleep, in three roles:
//
//   the timer leader    sleeps until the earliest timer of all workers
//   the driver's user   sleeps in the driver (basic_driver_lock)
//   the watcher         sleeps at most 100 us at first, then twice as long each time, up to
//                       scheduler_options::longest_nap (4 ms by default), and then looks at the
//                       LIFO slots (work_queues.hpp)
//
// One worker may have several roles. If a worker with a role is about to run a job, it wakes
// another worker that takes over the role, if one is needed: hand_over().
//
// The timer leader (basic_timer_leader). `until_` is the time until which the leader sleeps for the
// timers of all workers. This is the sleeper's side of the pair [timer_queue.next]
// (core/timer_queue.hpp). If another worker goes to sleep and finds an earlier timer, it becomes
// the leader. The previous leader continues to sleep until its own time, and then finds that it
// does not lead. A leader that wakes resigns.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/noted.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/timer.hpp>
#include <bide/core/wake_scope.hpp>
#include <bide/core/waker.hpp>
#include <bide/io/driver.hpp>
#include <bide/sched/detail/worker.hpp>
#include <bide/sched/trace.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// ---- The driver

// The scheduler's driver, if it has one. One thread at a time uses it.
template <class Platform> class basic_driver_lock {
public:
    explicit basic_driver_lock(driver* io) noexcept : driver_(io) {}
    basic_driver_lock(const basic_driver_lock&) = delete;
    basic_driver_lock& operator=(const basic_driver_lock&) = delete;

    // Acquires the driver until leave(). Returns nullptr if there is none or a thread is in it.
    driver* try_enter() noexcept {
        // Order: acquire [driver.lock]; sees what the previous thread did in the driver.
        return is_free() && !taken_.exchange(true, std::memory_order_acquire) ? driver_ : nullptr;
    }

    // Order: release [driver.lock]; the next thread in the driver sees what this one did there. The
    // caller then calls is_free() [driver.free].
    void leave() noexcept { taken_.store(false, std::memory_order_release); }

    // Returns true if there is a driver and no thread is in it.
    bool is_free() const noexcept {
        // Order: seq_cst [driver.free]; a worker that goes to sleep reads this after its
        // announcement. A worker that left the driver reads it before it looks for a sleeper. One
        // of the two sees the other.
        return driver_ != nullptr && !taken_.load(std::memory_order_seq_cst);
    }

private:
    driver* const driver_;
    typename Platform::template atomic<bool> taken_{false};
};

// ---- Timers

template <class Platform> class basic_timer_leader {
public:
    static constexpr std::int64_t never = (std::numeric_limits<std::int64_t>::max)();

    // Returns true if no sleeper wakes at `t` or before. The caller has made a timer for `t`
    // visible.
    bool wakes_after(std::int64_t t) const noexcept {
        // Order: seq_cst [timer_queue.next]; after the timer was made visible.
        return t < until_.load(std::memory_order_seq_cst);
    }

    // Called when a worker goes to sleep. next() reads the time of the earliest timer (seq_cst). If
    // no leader wakes at that time or before, the caller becomes the leader and `mine` becomes the
    // time at which it wakes. Otherwise `mine` stays unchanged.
    template <class Next> void lead(std::int64_t& mine, Next&& next) noexcept {
        for (;;) {
            const std::int64_t first = next();
            // Order: relaxed; the CAS decides.
            std::int64_t seen = until_.load(std::memory_order_relaxed);
            if (first >= seen) {
                return;
            }
            // Order: relaxed; a thread that adds an earlier timer and does not see this store finds
            // a sleeper to wake in the idle word [idle.announce]. Failure: the loop reads again.
            if (until_.compare_exchange_strong(seen, first, std::memory_order_relaxed,
                                               std::memory_order_relaxed)) {
                mine = first;
            }
        }
    }

    // A worker has woken. Returns true if it was the leader, or had been and was replaced.
    bool resign(std::int64_t& mine) noexcept {
        if (mine == never) {
            return false;
        }
        std::int64_t seen = std::exchange(mine, never);
        // Order: seq_cst [timer_queue.next]; a thread that relied on the old time has made its
        // timer visible before. A worker that reads the timers after this sees it. Failure: another
        // leader wakes earlier.
        until_.compare_exchange_strong(seen, never, std::memory_order_seq_cst,
                                       std::memory_order_relaxed);
        return true;
    }

private:
    typename Platform::template atomic<std::int64_t> until_{never};
};

// ---- All of it

template <class Platform> class basic_work_queues;

template <class Platform> class basic_maintenance {
public:
    using worker = basic_worker<Platform>;

    basic_maintenance(basic_work_queues<Platform>& queues, driver* io, trace_sink* trace,
                      std::int64_t max_timed_sleep_ns) noexcept
        : queues_(queues), trace_(trace),
          max_timed_sleep_ns_((std::min)(max_timed_sleep_ns, std::int64_t{1'000'000'000})),
          driver_lock_(io) {}
    basic_maintenance(const basic_maintenance&) = delete;
    basic_maintenance& operator=(const basic_maintenance&) = delete;

    // A busy worker: fires the timers that are due, and polls the driver.
    void poll(worker& w, std::int64_t now) noexcept {
        fire_timers(w, now);
        if (driver* const io = driver_lock_.try_enter()) {
            // What becomes ready is queued and runs as tasks do.
            wake_scope<Platform> later(&service_executor<Platform>);
            io->wait(deadline::poll());
            leave(w);
        }
    }

    // Fires the timers of all workers that are due. Returns how many it fired.
    unsigned fire_timers(worker& w, std::int64_t now) noexcept;

    // A worker becomes idle: its first timed sleep is short.
    void reset_timed_sleep(worker& w) noexcept {
        w.timed_sleep_ns = (std::min)(first_timed_sleep_ns, max_timed_sleep_ns_);
    }

    // Returns true if the next timed sleep is so short that the watcher need not take, after it, arms
    // whose owners compute: an owner that is in a long arm will be there the next time, too.
    bool naps_briefly(const worker& w) const noexcept {
        return w.timed_sleep_ns < (std::min)(long_timed_sleep_ns, max_timed_sleep_ns_);
    }

    // Sleeps. Returns true if the worker was woken, false if it is to look by itself.
    bool sleep(worker& w, bool watches) noexcept;

    // `w` is about to run something or to block: wakes another worker for the roles that `w` had.
    void hand_over(worker& w) noexcept;

    // Called when a timer has become the earliest one of `of`. `own`: the owner of `of` has added
    // the timer; that thread calls hand_over() before it runs a job or sleeps.
    void earlier_timer(worker& of, bool own) noexcept {
        if (own) {
            of.must_check_leader = true;
        } else if (timer_leader_.wakes_after(of.timers.next_ns())) {
            queues_.unpark(queues_.idle().wake_one());
        }
    }

private:
    static constexpr std::int64_t never = worker::never;
    static constexpr std::int64_t first_timed_sleep_ns = 100'000;
    static constexpr std::int64_t long_timed_sleep_ns = 1'000'000;

    std::int64_t next_timer() const noexcept;

    void leave(worker& w) noexcept {
        driver_lock_.leave();
        w.left_driver = true;
    }

    basic_work_queues<Platform>& queues_;
    trace_sink* const trace_;
    const std::int64_t max_timed_sleep_ns_;
    basic_driver_lock<Platform> driver_lock_;
    alignas(cache_line_pair) basic_timer_leader<Platform> timer_leader_;
};

template <class Platform>
unsigned basic_maintenance<Platform>::fire_timers(worker& w, std::int64_t now) noexcept {
    // What a timer wakes finds it counted.
    const waker counts([](void* in) noexcept { static_cast<worker*>(in)->timers_fired.add(1); },
                       &w);
    unsigned fired = 0;
    for (worker& other : queues_.workers()) {
        if (other.timers.next_ns() <= now) {
            fired += other.timers.fire_due(now, 256, 0, counts);
        }
    }
    return fired;
}

template <class Platform> std::int64_t basic_maintenance<Platform>::next_timer() const noexcept {
    std::int64_t next = never;
    for (const worker& other : queues_.workers()) {
        next = (std::min)(next, other.timers.next_ns());
    }
    return next;
}

template <class Platform>
bool basic_maintenance<Platform>::sleep(worker& w, bool watches) noexcept {
    std::int64_t until = never;
    timer_leader_.lead(w.lead_until, [this]() noexcept { return next_timer(); });
    if (watches) {
        queues_.note_progress();
        until = Platform::now() + w.timed_sleep_ns;
        w.timed_sleep_ns = (std::min)(2 * w.timed_sleep_ns, max_timed_sleep_ns_);
    }
    until = (std::min)(until, w.lead_until);
    driver* const io = driver_lock_.try_enter();
    w.parked.add(1);
    const std::int64_t begin = trace_ == nullptr ? 0 : Platform::now();
    std::optional<wake_scope<Platform>> later; // what the driver brings is queued
    if (io != nullptr) {
        later.emplace(&service_executor<Platform>);
    }
    BIDE_PROBE(worker_park, &w, w.index);
    const bool woken = w.sleeper.park(deadline::at_ns(until), io);
    BIDE_PROBE(worker_unpark, &w, w.index, static_cast<int>(woken));
    later.reset();
    if (trace_ != nullptr) {
        trace_->parked(w.index, begin, Platform::now());
    }
    if (io != nullptr) {
        leave(w);
    }
    if (timer_leader_.resign(w.lead_until)) {
        w.must_check_leader = true;
    }
    w.woken.add(woken ? 1 : 0);
    return woken;
}

template <class Platform> void basic_maintenance<Platform>::hand_over(worker& w) noexcept {
    if (w.must_check_leader) {
        w.must_check_leader = false;
        if (timer_leader_.wakes_after(next_timer())) {
            queues_.unpark(queues_.idle().wake_one());
        }
    }
    if (w.left_driver) {
        w.left_driver = false;
        if (driver_lock_.is_free()) {
            queues_.unpark(queues_.idle().wake_unless_watched());
        }
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
