// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_POOL_OWNER_HPP
#define BIDE_SCHED_DETAIL_POOL_OWNER_HPP

// What a pool (pool.hpp) needs of the scheduler that owns it: its options, and what it calls.

#include <bide/core/config.hpp>
#include <bide/core/executor.hpp>
#include <bide/fwd.hpp>

#include <cstdint>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> struct basic_worker;

// What a pool calls of the scheduler that owns it.
template <class Platform> class basic_pool_owner {
    using worker = basic_worker<Platform>;

public:
    // The calling thread leaves `w`: makes another thread run it. Returns false if there is none.
    virtual bool replace(worker& w) noexcept = 0;
    // Called if replace() has found no thread. The next thread that becomes free then calls
    // replace_blocked() or take_blocked(). Returns false if no thread will become free and none can
    // be started.
    virtual bool request_replacement() noexcept { return true; }
    // Returns true if the calling thread runs a worker in place of the worker's own thread.
    virtual bool is_substitute() const noexcept { return false; }
    // Makes a thread run `w` that has lost its own worker and waits. Returns false if none waits.
    virtual bool hand_to_idle_thread(worker&) noexcept { return false; }
    // Called when a worker has announced that it sleeps. Returns true if hand_to_idle_thread() is to be
    // called instead.
    virtual bool may_hand_over() noexcept { return false; }
    // Unparks the own thread of that worker, which owns no worker: it has a pinned job.
    virtual void wake_thread(unsigned) noexcept {}
    // Called when a worker has found nothing to run and has announced that. Announcements are
    // read-modify-writes of one word. So the worker with the last announcement sees what all
    // workers did before theirs.
    virtual void found_nothing() noexcept = 0;
    // The executor of the tasks.
    virtual executor_ref executor() noexcept = 0;
    // Returns true if `where` is another executor of the tasks, as that of a class is.
    virtual bool has_queue(executor_ref) noexcept { return false; }
    // The address by which threads know the scheduler (fork_lane.hpp).
    virtual const void* scheduler_id() const noexcept { return this; }

protected:
    ~basic_pool_owner() = default;
};

struct pool_options {
    unsigned workers;
    bool steal;
    driver* io;                      // one of the idle workers sleeps in it
    std::int64_t max_timed_sleep_ns; // 0: there is no watcher
    trace_sink* trace = nullptr;
    std::int64_t timer_slack_ns = 0;
    int spare_processors = 0; // more processors than workers; negative: fewer
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
