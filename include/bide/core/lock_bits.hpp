#ifndef BIDE_CORE_LOCK_BITS_HPP
#define BIDE_CORE_LOCK_BITS_HPP

// A lock in the two lowest bits of somebody's word: the owner keeps its own state in the others and
// may change both in one step, which is what makes "decide and let go" or "let go as the last
// touch" possible. (After Drepper, "Futexes Are Tricky", section 4, with the state split into two
// bits.)
//
//   parked held
//     0     0    free
//     0     1    held, nobody sleeps for it
//     1     1    held, somebody may sleep for it
//     1     0    never: one step clears both
//
// Whoever waits sets `parked` by CAS while the lock is held, and sleeps on that very word; whoever
// lets go does it by a read-modify-write that returns whether `parked` was set, and wakes one then.
// One who slept takes the lock with `parked` set, since others may sleep still. The lock is held
// for tens of nanoseconds, so a waiter pauses a few times first; it never yields.

#include <bide/core/config.hpp>
#include <bide/core/futex.hpp>
#include <bide/core/platform.hpp>

namespace bide::inline BIDE_ABI {

template <class Platform, class Word> struct lock_bits {
    using atomic = typename Platform::template atomic<Word>;

    static constexpr Word held = 1;
    static constexpr Word parked = 2;
    static constexpr Word both = held | parked;

    // Takes the lock. Returns the word as it is now, `held` included; others may go on changing it
    // where the owner's protocol lets them.
    static Word acquire(atomic& word) noexcept {
        // Order: relaxed; the CAS decides.
        Word seen = word.load(std::memory_order_relaxed);
        if ((seen & held) == 0) {
            // Order: acquire [L1]; what the last holder wrote. Failure relaxed: look again.
            if (word.compare_exchange_weak(seen, seen | held, std::memory_order_acquire,
                                           std::memory_order_relaxed)) {
                return seen | held;
            }
        }
        return acquire_slow(word);
    }

    // Lets go and changes nothing else.
    static void release(atomic& word) noexcept {
        // Order: release [L1]; what this holder wrote is seen by the next.
        wake_after(&word, word.fetch_and(static_cast<Word>(~both), std::memory_order_release));
    }

    // Lets go, leaving `next` (without the two bits) in the word. For owners whose other bits
    // nobody changes while the lock is held.
    static void release_as(atomic& word, Word next) noexcept {
        // Order: release [L1]; what this holder wrote is seen by the next. So is what others
        // released into this word before: every change of it is a read-modify-write, which
        // continues their release sequences.
        wake_after(&word, word.exchange(next, std::memory_order_release));
    }

    // After a step that let go and found `old`: wakes who sleeps. Uses the address alone.
    static void wake_after(const atomic* word, Word old) noexcept {
        if ((old & parked) != 0) {
            futex_wake<Platform>(word, 1);
        }
    }

private:
    BIDE_NOINLINE static Word acquire_slow(atomic& word) noexcept {
        Word mark = held;
        for (int looked = 0;;) {
            // Order: relaxed; the CAS decides.
            Word seen = word.load(std::memory_order_relaxed);
            if ((seen & held) == 0) {
                // Order: acquire [L1]; what the last holder wrote. Failure relaxed: look again.
                if (word.compare_exchange_weak(seen, seen | mark, std::memory_order_acquire,
                                               std::memory_order_relaxed)) {
                    return seen | mark;
                }
                continue;
            }
            if (looked < Platform::lock_pauses) {
                ++looked;
                Platform::pause();
                continue;
            }
            // Order: relaxed; it asks to be woken and publishes nothing. Failure: look again.
            if ((seen & parked) == 0 &&
                !word.compare_exchange_weak(seen, seen | parked, std::memory_order_relaxed,
                                            std::memory_order_relaxed)) {
                continue;
            }
            // Not worth a replacement of a worker (core/futex.hpp): it will not be long.
            Platform::futex_wait(word, static_cast<Word>(seen | parked),
                                 deadline::never().steady_ns());
            mark = both;
        }
    }
};

} // namespace bide::inline BIDE_ABI

#endif
