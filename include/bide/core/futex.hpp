#ifndef BIDE_CORE_FUTEX_HPP
#define BIDE_CORE_FUTEX_HPP

// Sleep until a word changes, by the system's own wait on an address: Linux futex(2), private, with
// absolute monotonic deadlines; Windows WaitOnAddress; macOS os_sync_wait_on_address; elsewhere a
// hashed table of mutexes and condition variables. No count of waiters is kept here: who wakes
// always makes the call (libstdc++ 12's atomic::notify_one skips it on a hidden count, and loses
// wakeups).
//
// Spurious returns are allowed, lost wakes are not: a waker changes the word first and calls wake
// after, and the comparison and the falling asleep are one step.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/resume.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace bide::inline BIDE_ABI {

using futex_word = std::uint32_t;

// Sleeps while the word holds `expected` (of a 64-bit word, at least while its low half does).
// Blocks: until a wake, the deadline, a change before it slept, or for no reason at all.
// Order: none; read the word again.
// Returns false when the deadline has passed, true otherwise.
// A worker of a scheduler that sleeps in a task has itself replaced meanwhile, and so has a resumer
// (core/timer.hpp). Coroutines that this thread is about to resume go on elsewhere (core/resume.hpp).
template <class Platform = native_platform, class Word>
bool futex_wait(const typename Platform::template atomic<Word>& word, Word expected,
                deadline until = deadline::never()) noexcept {
    wake_scope<Platform>::hand_over_pending();
    auto* const host = worker_local<Platform>::get().host;
    const bool is_replaced = host == nullptr || host->blocks();
    const std::int64_t retry =
        is_replaced ? std::numeric_limits<std::int64_t>::max() : Platform::now() + host->retry_ns;
    bool in_time = true;
    while (!Platform::futex_wait(word, expected, std::min(until.look_ns(), retry))) {
        if (!is_replaced && Platform::now() >= retry) {
            break; // for no reason: the caller sleeps again
        }
        if (!until.is_early()) {
            in_time = false;
            break;
        }
    }
    if (host != nullptr) {
        host->unblocks();
    }
    return in_time;
}

// Wakes at most `count` sleepers on this address. The word itself is not touched: it may be gone.
template <class Platform = native_platform, class Word>
void futex_wake(const typename Platform::template atomic<Word>* word, int count) noexcept {
    Platform::futex_wake(word, count);
}

} // namespace bide::inline BIDE_ABI

#endif
