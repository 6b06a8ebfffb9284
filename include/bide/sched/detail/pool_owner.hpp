// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_POOL_OWNER_HPP
#define BIDE_SCHED_DETAIL_POOL_OWNER_HPP

#include <bide/core/config.hpp>
#include <bide/core/executor.hpp>
#include <bide/sched/detail/worker.hpp>

namespace bide::inline BIDE_ABI {
namespace detail {

// What a pool (pool.hpp) calls of the scheduler that owns it.
template <class Platform> class basic_pool_owner {
    using worker = basic_worker<Platform>;

public:
    // The calling thread leaves `w`: makes another thread run it. Returns false if there is none.
    virtual bool replace(worker& w) noexcept = 0;
    // replace() has found no thread: the next thread that becomes free calls replace_blocked() or
    // take_blocked(). Returns false if no thread will become free and none can be started.
    virtual bool request_replacement() noexcept { return true; }
    // Returns true if the calling thread runs a worker in place of the worker's own thread.
    virtual bool is_substitute() const noexcept { return false; }
    // Makes a thread run `w` that has lost its own worker and waits. Returns false if none waits.
    virtual bool hand_to_idle_thread(worker&) noexcept { return false; }
    // A worker found nothing to run and has announced that. Announcements are read-modify-writes of
    // one word, so the last of them sees what the workers did before theirs.
    virtual void found_nothing() noexcept = 0;
    // The executor of the tasks.
    virtual executor_ref executor() noexcept = 0;
    // The address by which threads know the scheduler (fork_context.hpp).
    virtual const void* scheduler_id() const noexcept { return this; }

protected:
    ~basic_pool_owner() = default;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
