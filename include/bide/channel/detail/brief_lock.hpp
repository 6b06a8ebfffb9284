// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_BRIEF_LOCK_HPP
#define BIDE_CHANNEL_DETAIL_BRIEF_LOCK_HPP

// A lock in the lowest bit of a word, for critical sections of a few instructions. The user of the
// word keeps state in the other bits. Only the holder of the lock changes these bits.
//
// Waiters do not write to the word, so the release is a plain store. Lock and unlock together take
// one read-modify-write, where core/lock_bits.hpp needs two. In exchange, the releaser wakes no
// waiter. A waiter pauses (lock_bits::stay_away), then yields, and at last sleeps for short times
// (basic_backoff). Such waits are short, because a holder releases within a few instructions,
// unless it is preempted.
//
// The release is the holder's last access to the word. The next holder sees what the releaser wrote
// [brief_lock.release].

#include <bide/core/config.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/spin.hpp>

#include <cstdint>

namespace bide { inline namespace BIDE_ABI { namespace detail {

template <class Platform> struct brief_lock {
    using word = std::uint32_t;
    using atomic = typename Platform::template atomic<word>;

    static constexpr word held = 1;

    // Blocks: until the holder releases. Returns the word without `held`.
    // Order: acquire [brief_lock.release]; sees what the last holder wrote.
    static word acquire(atomic& at) noexcept {
        return acquire_by<std::memory_order_acquire>(at, 0);
    }

    // Acquires the lock, and sets the bits `more` in the same step.
    // Order: seq_cst; the user of the word pairs this step with another one. Also acquires, as
    // acquire() does.
    static word acquire_with(atomic& at, word more) noexcept {
        return acquire_by<std::memory_order_seq_cst>(at, more);
    }

    // Releases the lock and stores `next`, which lacks `held`.
    static void release(atomic& at, word next) noexcept {
        // Order: release [brief_lock.release]; the next holder sees what this holder wrote.
        at.store(next, std::memory_order_release);
    }

private:
    template <std::memory_order Order> static word acquire_by(atomic& at, word more) noexcept {
        // Order: relaxed; the CAS decides.
        word seen = at.load(std::memory_order_relaxed) & ~held;
        // Order: acquire at least [brief_lock.release]; sees what the last holder wrote. Failure:
        // relaxed, the slow path reads again.
        if (at.compare_exchange_weak(seen, seen | more | held, Order, std::memory_order_relaxed)) {
            return seen;
        }
        return acquire_slow<Order>(at, more);
    }

    template <std::memory_order Order>
    BIDE_NOINLINE static word acquire_slow(atomic& at, word more) noexcept {
        basic_backoff<Platform> again;
        for (int looks = 0;;) {
            // Order: relaxed; the CAS decides.
            word seen = at.load(std::memory_order_relaxed);
            if ((seen & held) != 0) {
                if (looks < Platform::lock_looks) {
                    lock_bits<Platform, word>::stay_away(looks++);
                } else {
                    again();
                }
                continue;
            }
            // Order: acquire at least [brief_lock.release]; sees what the last holder wrote.
            // Failure: relaxed, the loop reads again.
            if (at.compare_exchange_weak(seen, seen | more | held, Order,
                                         std::memory_order_relaxed)) {
                return seen;
            }
        }
    }
};

}}} // namespace bide::BIDE_ABI::detail

#endif
