// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_WORKER_HOST_HPP
#define BIDE_CORE_DETAIL_WORKER_HOST_HPP

// The host of a task is the worker that runs it. Operations call their scheduler by the interface
// basic_worker_host, and find the host of their thread in worker_local. The resumers
// (core/timer.hpp) are hosts too, but their executor() refers to no executor. Other threads have no
// host.
//
// If a task never has to wait, it yields after `whole_budget` operations, on any thread. When it
// yields, it also checks whether it was cancelled.

#include <bide/core/config.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/wake_scope.hpp>

#include <cstdint>
#include <utility>

namespace bide { inline namespace BIDE_ABI {

struct timer;

namespace detail {

// A chain of coroutines that has paused. `forked` has the runnables that the chain has forked and
// that no worker has. `pauses` counts the consecutive pauses before this one. It begins again at 0
// after a pause that has queued the forked runnables.
struct paused_chain : runnable {
    run_list forked;
    unsigned pauses = 0;
};

struct inner_job; // task_context.hpp

} // namespace detail

template <class Platform> class basic_worker_host {
public:
    // Runs `r` on this worker or another one, after the runnables that are queued already.
    virtual void yield(runnable& r) noexcept = 0;

    // Does the same as yield(), for a task that yields because its budget is spent.
    virtual void yield_spent(runnable& r) noexcept { yield(r); }

    // Posts `r` to executor(). Runnables that this function has posted earlier run first, unless
    // another worker takes them.
    virtual void post_in_order(runnable& r) noexcept { executor().post(r); }

    // Runs `chain` on this worker or another one, after the runnables that are queued already. If
    // another job runs before the chain, this function moves the runnables that were forked here to
    // `chain`, and the chain forks them again. After several pauses, it queues the forked runnables
    // before the chain instead, and sets chain.pauses to 0.
    virtual void pause(detail::paused_chain& chain) noexcept { yield(chain); }

    // Takes runnables out of the list, from the front, and stores them where take_back() and other
    // workers find them. When the chain that runs here waits or yields, these runnables are queued
    // like posted ones. If the host has no place for a runnable, the runnable stays in the list.
    virtual void fork(detail::run_list&) noexcept {}

    // Takes `r` back. Returns false if `r` is not the runnable that was forked last here, or if
    // another worker has taken it.
    virtual bool take_back(runnable&) noexcept { return false; }

    // Runs `r` inside of the running job, which awaits `r`, if `r` is the next job. If `r` ends at
    // once, the awaiting job need not wait (core/async_op.hpp). If `r` blocks and the host is about
    // to run other jobs meanwhile, the host first calls begin_wait of the second argument. Returns
    // false if it did not run `r`.
    virtual bool run_inside(runnable&, detail::inner_job&) noexcept { return false; }

    // Arms the time-out of a wait that begins here. cancel_timer() cancels it
    // (core/timer_queue.hpp).
    virtual void add_timer(timer& t) noexcept = 0;

    // A thread calls blocks() before it sleeps inside a task, and another thread takes over its
    // work. If no other thread can be started, blocks() returns false. The thread then sleeps for
    // at most `retry_ns`, and calls unblocks() and blocks() again. A thread calls unblocks() after
    // it has woken up.
    static constexpr std::int64_t retry_ns = 10'000'000;
    virtual bool blocks() noexcept = 0;
    virtual void unblocks() noexcept = 0;

    // Returns the scheduler's executor; it refers to none on a resumer.
    virtual executor_ref executor() noexcept = 0;

    bool serves(executor_ref where) noexcept {
        return where && (where == executor() || has_queue(where));
    }

protected:
    // Returns true if `where` is another executor of the scheduler than executor().
    virtual bool has_queue(executor_ref) noexcept { return false; }

    ~basic_worker_host() = default;
};

template <class Platform> class basic_task_context;
template <class Platform> class basic_ready_queue;

// The state of one thread that runs tasks.
template <class Platform> struct BIDE_SHARED worker_local {
    static constexpr unsigned whole_budget = Platform::model ? 2 : 128;

    basic_worker_host<Platform>* host = nullptr;     // set while the thread runs a task
    basic_task_context<Platform>* running = nullptr; // that task; nullptr: a task has ended
    basic_task_context<Platform>* over = nullptr;    // the task that has ended
    const char* name = nullptr;                      // of the last task, if `traced`
    bool traced = false;                             // the scheduler is traced
    std::uint8_t tag = 0;                            // of the last task, if `traced`
    // In sync_wait(), the queue of the other runnables of this thread. After a wait has tried its
    // operation in vain, nullptr until the next runnable runs.
    const basic_ready_queue<Platform>* alone = nullptr;
    unsigned budget = 0;                 // 0: no limit; 1: spent; n: n - 1 operations are left
    unsigned next_budget = whole_budget; // the budget of each task_budget that begins here
    unsigned pauses = 0;                 // how often the running chain has paused in a row

    static worker_local& get() noexcept { return Platform::template local<worker_local>(); }

    // Counts one operation. Returns false if the budget is spent: the coroutine then yields.
    bool spend() noexcept {
        if (budget > 1) {
            --budget;
            return true;
        }
        return budget == 0;
    }
};

}} // namespace bide::BIDE_ABI

#endif
