#ifndef BIDE_SCHED_DETAIL_WORKER_HPP
#define BIDE_SCHED_DETAIL_WORKER_HPP

// One worker's place in a pool (pool.hpp): its queues and what it counts. A thread owns it at a
// time; others steal from it, wake it, and read its counts.

#include <bide/core/config.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/timer_queue.hpp>
#include <bide/sched/detail/fork_lane.hpp>
#include <bide/sched/detail/global_queue_interval.hpp>
#include <bide/sched/detail/sleeper.hpp>
#include <bide/sched/detail/worker_ownership.hpp>
#include <bide/sched/driver.hpp>
#include <bide/sched/run_queue.hpp>
#include <bide/task/detail/task_registry.hpp>

#include <cstdint>
#include <limits>

namespace bide::inline BIDE_ABI {
namespace detail {

// Written by its owner alone, without a read-modify-write; read by anybody.
template <class Platform> class basic_counter {
public:
    void add(std::uint64_t n) noexcept {
        // Order: release [N1]; who counts what has ended sees what it began before.
        value_.store(own() + n, std::memory_order_release);
    }

    // Order: acquire [N1]; see add().
    std::uint64_t read() const noexcept { return value_.load(std::memory_order_acquire); }

    // Order: relaxed; the owner reads what it wrote.
    std::uint64_t own() const noexcept { return value_.load(std::memory_order_relaxed); }

private:
    typename Platform::template atomic<std::uint64_t> value_{0};
};

template <class Platform> class basic_pool;

// An arm of a fork-join that this worker has taken, until it runs it.
template <class Platform> struct basic_posted_fork : runnable {
    basic_fork_job<Platform>* what = nullptr;
    basic_fork_lane<Platform>* from = nullptr;
};

template <class Platform>
struct alignas(cache_line_pair) basic_worker final : basic_worker_host<Platform> {
    using counter = basic_counter<Platform>;
    static constexpr std::int64_t never = (std::numeric_limits<std::int64_t>::max)();

    basic_worker(basic_pool<Platform>& whose, unsigned number) noexcept
        : pool(whose), index(number), random(number * 0x9e3779b97f4a7c15U + 1),
          timers(waker(&on_earlier_timer, this)) {
        arm.run = waker(&on_arm, this);
    }
    basic_worker(const basic_worker&) = delete;
    basic_worker& operator=(const basic_worker&) = delete;

    // As a host, for the thread that owns it and runs a task.
    void yield(runnable& r) noexcept override { pool.yield(*this, r); }
    void add_timer(timer& t) noexcept override { timers.add(t); }
    bool blocks() noexcept override { return pool.blocks(*this); }
    void unblocks() noexcept override { pool.unblocks(*this); }
    executor_ref executor() noexcept override { return pool.executor(); }

    // Marsaglia's xorshift: whom to rob first.
    std::uint64_t next_random() noexcept {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return random;
    }

    basic_pool<Platform>& pool;
    const unsigned index;

    basic_worker_ownership<Platform> worker_ownership; // which thread owns it

    // The owner's:
    global_queue_interval global_interval;
    unsigned lifo_run = 0; // tasks from the LIFO slot in a row
    std::uint64_t random;
    std::int64_t keeps = never;   // the time that it sleeps until for all
    std::int64_t nap_ns = 0;      // how long its next nap takes
    runnable* gave_way = nullptr; // goes behind what is queued
    bool searches = false;        // what it pushes meanwhile it tells of when it ends that
    bool timer_unseen = false;    // timers may be left that no sleeper wakes for
    bool left_driver = false;     // and nobody may be in it
    bool forked = false;          // what it ran last was an arm
    basic_posted_fork<Platform> arm;

    // The watcher's: `polled`, when it last looked.
    typename Platform::template atomic<std::uint64_t> polled_when_seen{0};

    // Everybody's:
    alignas(cache_line_pair) typename Platform::template atomic<runnable*> lifo{nullptr};
    basic_run_queue<Platform, Platform::model ? 4U : 256U> ring;
    alignas(cache_line_pair) basic_sleeper<Platform, driver> sleeper;
    basic_timer_queue<Platform> timers;
    basic_task_registry<Platform> tasks;
    alignas(cache_line_pair) counter spawned, completed, polled, stolen, steal_batches,
        overflowed, parked, woken, injected, timers_fired;

private:
    static void on_arm(void* self) noexcept {
        auto& me = *static_cast<basic_worker*>(self);
        me.pool.run_arm(me.arm);
    }
    static void on_earlier_timer(void* self) noexcept {
        auto& me = *static_cast<basic_worker*>(self);
        me.pool.earlier_timer(me);
    }
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
