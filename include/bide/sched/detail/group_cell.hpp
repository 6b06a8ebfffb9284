// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_GROUP_CELL_HPP
#define BIDE_SCHED_DETAIL_GROUP_CELL_HPP

// The parts that task_group and join_set share: their groups on the native platform, the cells of
// their members, and the blocking wait for the members.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/wait_status.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waker.hpp>
#include <bide/sched/detail/group.hpp>
#include <bide/sched/detail/scheduler_core.hpp>
#include <bide/sched/detail/worker_threads.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/task/detail/task_body.hpp>
#include <bide/task/detail/task_cell.hpp>

#include <chrono>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

using group = basic_group<native_platform>;
using group_member = basic_group_member<native_platform>;

// A child of a task_group, or its body: the group gets the exception. The value is dropped.
class group_task : public task_header {
public:
    group_task(task_home& home, bool kept, group& of) noexcept
        : task_header(home, kept), member_(of, *this) {
        set_tag(of.tag());
    }

    group_member& member() noexcept { return member_; }
    deadline limit() const noexcept final { return member_.limit(); }
    const task_binding<native_platform>* values() const noexcept final { return member_.values(); }

    kept_outcome<void>& kept() noexcept { return kept_; }
    void settled() noexcept {}

protected:
    ~group_task() = default;

private:
    void discard_outcome() noexcept final { member_.end(std::move(kept_.error()), never_ran()); }

    group_member member_;
    kept_outcome<void> kept_;
};

template <task_source S> using group_cell = coroutine_cell<S, group_task>;

class group_entry {
public:
    static scheduler_core& core(scheduler& s) noexcept { return *s.core_; }
};

// Blocks until the given end of a group whose members run in `home`. If the calling thread is the
// only one that runs them, it does so meanwhile. If the calling thread belongs to a scheduler, that
// scheduler may meanwhile start one thread more than max_blocking_threads. So the members of the group
// do not lack a thread.
inline void block_until(group::end& until, task_home& home) noexcept {
    constexpr std::chrono::nanoseconds retry(basic_worker_host<native_platform>::retry_ns);
    if (until.has_come()) {
        return;
    }
    if (const waker here = home.waker_of_caller()) {
        basic_waiter<native_platform> w(1, here);
        if (until.enqueue(w) != wait_status::waiting) {
            return;
        }
        home.run_tasks(w);
        if (w.is_complete()) {
            return;
        }
        if (!until.cancel(w, wait_status::timed_out)) {
            w.await_outcome();
            return;
        }
    } // another thread runs them
    scheduler* const here = scheduler::current();
    worker_threads* const threads = here != nullptr ? &group_entry::core(*here).threads() : nullptr;
    if (threads == nullptr) {
        until.wait();
        return;
    }
    threads->raise_limit();
    // If the system refuses the thread, this one tries again: it may be the only one that can.
    while (!until.wait_until(threads->tend() ? deadline::after(retry) : deadline::never())) {
    }
    threads->lower_limit();
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
