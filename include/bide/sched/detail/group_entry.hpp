#ifndef BIDE_SCHED_DETAIL_GROUP_ENTRY_HPP
#define BIDE_SCHED_DETAIL_GROUP_ENTRY_HPP

// What a group does with schedulers: runs its members on one, and blocks a thread of one.

#include <bide/core/config.hpp>
#include <bide/sched/detail/group_cell.hpp>
#include <bide/sched/detail/scheduler_core.hpp>
#include <bide/sched/detail/worker_threads.hpp>
#include <bide/sched/scheduler.hpp>

namespace bide::inline BIDE_ABI {
namespace detail {

class group_entry {
public:
    static scheduler_core& core(scheduler& s) noexcept { return *s.core_; }
};

// While one lives, the scheduler that the calling thread is of may have one thread more than its
// max_blocking_threads.
class one_thread_more {
public:
    one_thread_more() noexcept {
        if (scheduler* const here = scheduler::current()) {
            threads_ = &group_entry::core(*here).threads();
            threads_->raise_limit();
        }
    }
    one_thread_more(const one_thread_more&) = delete;
    one_thread_more& operator=(const one_thread_more&) = delete;
    ~one_thread_more() {
        if (threads_ != nullptr) {
            threads_->lower_limit();
        }
    }

private:
    worker_threads* threads_ = nullptr;
};

// Blocks, without keeping a thread from what has to end first.
inline void block_until(group::end& until) noexcept {
    if (!until.has_come()) {
        const one_thread_more instead;
        until.wait();
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
