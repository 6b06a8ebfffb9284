// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_CURRENT_SCHEDULER_HPP
#define BIDE_SCHED_DETAIL_CURRENT_SCHEDULER_HPP

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>

namespace bide::inline BIDE_ABI {

class scheduler;

namespace detail {

// The scheduler of the calling thread: in a fork-join, that of the fork-join, else the one that
// started the thread. Set in callbacks too, and on threads that own no worker.
struct current_scheduler {
    scheduler* instance = nullptr;            // nullptr: the thread belongs to no scheduler
    bool leaving = false;                     // the thread is in on_worker_stop
    bool is_substitute = false;               // a thread for blocking tasks runs a worker
    const current_scheduler* outer = nullptr; // the value before the thread entered a fork-join

    // Returns true if the thread belongs to `s` or is in a fork-join of it, even if it has entered
    // fork-joins of other schedulers since.
    static bool is_of(const scheduler& s) noexcept {
        for (const current_scheduler* at = &here(); at != nullptr; at = at->outer) {
            if (at->instance == &s) {
                return true;
            }
        }
        return false;
    }
    static current_scheduler& here() noexcept {
        return native_platform::local<current_scheduler>();
    }
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
