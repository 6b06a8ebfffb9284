// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_FORK_CONTEXT_HPP
#define BIDE_SCHED_DETAIL_FORK_CONTEXT_HPP

// The fork-join that the calling thread is in: its scheduler and its lane. Also decides whether a
// fork-join is worth waking an idle worker.
//
// A thread of the pool keeps its lane until it leaves the pool. Any other thread has a lane for the
// time of its outermost fork-join in the pool. If a thread of the pool enters a fork-join of
// another pool, and from there again a fork-join of its own pool, it gets one more lane: each entry
// has a lane of its own.
//
// If the workers do not steal, or if there is only one worker, threads have no lanes and run the
// arms one after the other.
//
// An idle worker could run a published arm. But waking a worker takes the caller longer than most
// small fork-joins take as a whole. So each place in the program that begins an outermost fork-join
// remembers how much work it has been on average (basic_fork_call_site): the time of the caller
// without its wakes and its waits, for the caller and for each arm that it waited for. The waits
// themselves do not count: a thief that lost its processor would make a small fork-join look large,
// and the next one would wake as many workers again. A fork-join is worth a wake for each 20 us of
// work, and for each 20 us that it has taken already when a thief comes. If it is worth none, no
// worker is woken while there is a watcher (maintenance.hpp). Nor is one if callers that own no worker
// compute in the places of all workers that sleep (basic_work_queues::add_callers). Loops remember the
// work of one iteration, so that a short loop and a long one at the same place are told apart. Only
// speed depends on this: the owner runs each arm that no worker takes.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/sched/detail/fork_lane.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_pool;
template <class Platform> class basic_spawn_frame; // parallel/detail/spawn_frame.hpp

// One for each thread, in near thread-local storage (core/platform.hpp).
template <class Platform> struct BIDE_SHARED basic_fork_context {
    const void* scheduler_id = nullptr;           // set while the thread is in a fork-join
    basic_fork_lane<Platform>* lane = nullptr;    // of the fork-join; outside of one, the thread's
    basic_spawn_frame<Platform>* frame = nullptr; // the innermost scope that spawns on this lane

    // Returns the lane that a thread of `pool` keeps. Returns nullptr if there is no memory.
    // Requires: the thread is in no fork-join of another pool.
    basic_fork_lane<Platform>* thread_lane(basic_pool<Platform>& pool) noexcept {
        if (lane == nullptr) {
            lane = pool.take_lane();
        }
        return lane;
    }
    void drop_thread_lane(basic_pool<Platform>& pool) noexcept {
        if (lane != nullptr) {
            pool.put_lane(*std::exchange(lane, nullptr));
        }
    }

    static basic_fork_context& here() noexcept {
        return Platform::template near_local<basic_fork_context>();
    }
};

// The lane of a thread for one outermost fork-join: the lane that the thread keeps, or one that the
// destructor puts back.
template <class Platform> class basic_scoped_lane {
    using lane = basic_fork_lane<Platform>;

public:
    // `kept`: the thread belongs to the pool and is in no fork-join.
    basic_scoped_lane(basic_pool<Platform>& its_pool, bool kept) noexcept
        : pool_(its_pool), kept_(kept),
          lane_(kept ? its_pool.thread_lane() : its_pool.take_lane()) {
        if (lane_ != nullptr) {
            lane_->set_outside(its_pool.current_worker() == nullptr);
        }
    }
    basic_scoped_lane(const basic_scoped_lane&) = delete;
    basic_scoped_lane& operator=(const basic_scoped_lane&) = delete;
    ~basic_scoped_lane() {
        if (lane_ == nullptr) {
            return;
        }
        lane_->set_outside(false);
        if (!kept_) {
            pool_.put_lane(*lane_);
        }
    }

    // Returns nullptr if there was no memory.
    lane* get() const noexcept { return lane_; }

private:
    basic_pool<Platform>& pool_;
    const bool kept_;
    lane* const lane_;
};

// A place in the program that begins an outermost fork-join, and its average work. If the fork-join
// is a loop, the work is that of an iteration; otherwise it counts as one iteration.
template <class Platform> class basic_fork_call_site {
public:
    // Returns how long `iterations` take on one thread, in nanoseconds, or the largest number if
    // that is unknown.
    std::int64_t expected_ns(std::uint64_t iterations = 1) const noexcept {
        // Order: relaxed; an estimate.
        const std::int64_t average = average_.load(std::memory_order_relaxed);
        const double ns = static_cast<double>(average) * static_cast<double>(iterations) / scale;
        return average == unknown || ns >= most_ns ? unknown : static_cast<std::int64_t>(ns);
    }

    // Returns how many wakes the fork-join is worth.
    std::uint32_t worth(std::uint64_t iterations = 1) const noexcept {
        return basic_fork_lane<Platform>::worth_of(expected_ns(iterations));
    }

    void learn(std::int64_t ns, std::uint64_t iterations = 1) noexcept {
        const double one = static_cast<double>(ns) * scale / static_cast<double>(iterations);
        const auto now = static_cast<std::int64_t>(std::clamp(one, 0.0, most_ns));
        // Order: relaxed; an estimate. A lost update does no harm.
        const std::int64_t old = average_.load(std::memory_order_relaxed);
        const std::int64_t next = old == unknown ? now : old + (now - old) / 4;
        // Order: relaxed; an estimate. Unchanged numbers are not written, because all callers read
        // the cache line.
        if (next != old) {
            average_.store(next, std::memory_order_relaxed);
        }
    }

private:
    static constexpr std::int64_t unknown = (std::numeric_limits<std::int64_t>::max)();
    static constexpr double scale = 1'024;
    static constexpr double most_ns = 1e18;

    // The average time of an iteration, in 1/1024 ns.
    typename Platform::template atomic<std::int64_t> average_{unknown};
};

// While an object lives, the calling thread is in a fork-join. The destructor restores what was
// before: a fork-join of another pool, or none.
template <class Platform> class basic_fork_scope {
    using context = basic_fork_context<Platform>;
    using lane = basic_fork_lane<Platform>;

public:
    // An outermost fork-join of `iterations` iterations, 1 if it is no loop. It has begun at `since`, if
    // that is not 0.
    basic_fork_scope(lane& on, basic_fork_call_site<Platform>& site, std::uint64_t iterations = 1,
                     std::int64_t since = 0) noexcept
        : site_(&site), iterations_(iterations), begin_ns_(Platform::now()) {
        on.begin(site.worth(iterations), since != 0 ? since : begin_ns_);
        if (since != 0) {
            on.note_time(begin_ns_);
        }
        on.take_overhead();
        context::here() = {on.scheduler_id, &on};
    }
    // An outermost fork-join of a pool without lanes.
    explicit basic_fork_scope(const void* scheduler_id) noexcept {
        context::here() = {scheduler_id, nullptr};
    }
    // An arm that was stolen from `from`.
    basic_fork_scope(lane& on, const lane& from) noexcept {
        on.begin(from.worth(), from.begin_ns());
        context::here() = {on.scheduler_id, &on};
    }
    basic_fork_scope(const basic_fork_scope&) = delete;
    basic_fork_scope& operator=(const basic_fork_scope&) = delete;
    ~basic_fork_scope() {
        context& here = context::here();
        if (site_ != nullptr) {
            const auto besides = here.lane->take_overhead();
            const std::int64_t own = Platform::now() - begin_ns_ - besides.ns;
            site_->learn(own * (1 + (std::min)(besides.waits, most_waits)), iterations_);
        }
        here = before_;
    }

private:
    static constexpr std::int64_t most_waits = 1'000;

    const context before_ = context::here();
    basic_fork_call_site<Platform>* const site_ = nullptr;
    const std::uint64_t iterations_ = 1;
    const std::int64_t begin_ns_ = 0;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
