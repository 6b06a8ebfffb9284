// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_POSTED_WAKER_HPP
#define BIDE_SCHED_DETAIL_POSTED_WAKER_HPP

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/waker.hpp>

#include <memory>
#include <new>

namespace bide::inline BIDE_ABI {
namespace detail {

// Returns a runnable that wakes `w` and then destroys itself. Terminates if there is no memory.
inline runnable& made_runnable(waker w) noexcept {
    struct posted_waker : runnable {
        waker what;
    };
    auto* const made = new (std::nothrow) posted_waker;
    if (made == nullptr) {
        fatal("no memory to post a waker to a scheduler");
    }
    made->what = w;
    made->run = waker(
        [](void* self) noexcept {
            const std::unique_ptr<posted_waker> mine(static_cast<posted_waker*>(self));
            mine->what.wake();
        },
        made);
    return *made;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
