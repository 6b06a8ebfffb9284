// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_CURRENT_SCHEDULER_HPP
#define BIDE_SCHED_DETAIL_CURRENT_SCHEDULER_HPP

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/fwd.hpp>

namespace bide::inline BIDE_ABI {
namespace detail {

// The scheduler of the calling thread: in a fork-join, that of the fork-join, else the one that
// started the thread. It is also set in callbacks, and on threads of a scheduler that own no
// worker.
template <class Platform> struct BIDE_SHARED basic_current_scheduler {
    scheduler* instance = nullptr;                  // nullptr: the thread belongs to no scheduler
    bool leaving = false;                           // the thread is in on_worker_stop
    bool is_substitute = false;                     // a thread for blocking tasks runs a worker
    const basic_current_scheduler* outer = nullptr; // the value before it entered a fork-join

    // Returns true if the thread belongs to `s` or is in a fork-join of it, even if it has entered
    // fork-joins of other schedulers since.
    static bool is_of(const scheduler& s) noexcept {
        for (const basic_current_scheduler* at = &here(); at != nullptr; at = at->outer) {
            if (at->instance == &s) {
                return true;
            }
        }
        return false;
    }
    static basic_current_scheduler& here() noexcept {
        return Platform::template local<basic_current_scheduler>();
    }
};
using current_scheduler = basic_current_scheduler<native_platform>;

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
