// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_LOCK_BITS_HPP
#define BIDE_CORE_LOCK_BITS_HPP

/// \file
/// Keeps a lock in the two lowest bits of a word. A primitive keeps its own state in the other
/// bits. One atomic operation can change that state and release the lock. It may be the last access
/// of the primitive to the word.
//
// (After Drepper, "Futexes Are Tricky", section 4, with the state split into two bits.)
//
//   parked held
//     0     0    The lock is free.
//     0     1    The lock is held, and no waiter sleeps.
//     1     1    The lock is held, and a waiter may sleep.
//     1     0    Never: one operation clears both bits.
//
// A waiter sets `parked` by CAS while the lock is held, and sleeps on the same word. The releaser
// clears both bits by a read-modify-write that returns whether `parked` was set. If it was, the
// releaser wakes one waiter. A waiter that has slept acquires the lock with `parked` set, because
// other waiters may still sleep. The lock is held for tens of nanoseconds, so a waiter pauses
// before it sleeps. It never yields.
//
// A waiter that finds the lock held pauses 16 times and reads the word again. It does the same with
// 64, 256, 1,024 and 1,024 pauses, and then sleeps. Together, the pauses take 25 to 60 us on
// x86-64. They are long for two reasons. First, each read of the word takes the cache line from the
// holder. Second, if two threads take turns, each acquisition also moves the cache lines of the
// primitive's data. If one of the two threads pauses for longer, the other one keeps these lines
// for many operations.

#include <bide/core/platform.hpp>

namespace bide { inline namespace BIDE_ABI {

/// Acquires and releases the lock in a word.
template <class Platform, class Word> struct lock_bits {
    /// Is the type of the word.
    using atomic = typename Platform::template atomic<Word>;

    /// Is set while the lock is held.
    static constexpr Word held = 1;
    /// Is set while a waiter may sleep.
    static constexpr Word parked = 2;
    /// Are the two bits that belong to the lock.
    static constexpr Word both = held | parked;

    /// Acquires the lock. Other threads may still change the other bits if the protocol of the
    /// primitive allows that.
    /// Blocks: until the holder releases.
    /// Returns: the word as it is now, with `held` set.
    static Word acquire(atomic& word) noexcept {
        // Order: relaxed; the CAS decides.
        Word seen = word.load(std::memory_order_relaxed);
        if ((seen & held) == 0) {
            // Order: acquire [lock_bits.release]; the caller sees what the last holder wrote.
            // Failure: relaxed, the slow path reads again.
            if (word.compare_exchange_weak(seen, seen | held, std::memory_order_acquire,
                                           std::memory_order_relaxed)) {
                return seen | held;
            }
        }
        return acquire_slow(word);
    }

    /// Releases the lock and changes no other bit.
    static void release(atomic& word) noexcept {
        // Order: release [lock_bits.release]; the next holder sees what this holder wrote.
        wake_after(&word, word.fetch_and(static_cast<Word>(~both), std::memory_order_release));
    }

    /// Releases the lock and stores `next`.
    /// Requires: `next` has neither of the two bits; no other thread changes the other bits
    /// meanwhile.
    static void release_as(atomic& word, Word next) noexcept {
        // Order: release [lock_bits.release]; the next holder sees what this holder wrote. It also
        // sees what other threads did before their release operations on this word: each change of
        // the word is a read-modify-write, so it continues their release sequences.
        wake_after(&word, word.exchange(next, std::memory_order_release));
    }

    /// Releases the lock of a word that has no other bits. On x86-64 this is one exchange, whereas
    /// release() is a loop around a CAS.
    static void release_plain(atomic& word) noexcept { release_as(word, 0); }

    /// Holds the lock of a word that has no other bits.
    class guard {
    public:
        /// Acquires the lock.
        explicit guard(atomic& word) noexcept : word_(word) { acquire(word); }
        guard& operator=(guard&&) = delete;
        /// Releases the lock.
        ~guard() { release_plain(word_); }

    private:
        atomic& word_;
    };

    /// Wakes one waiter if `old` contains `parked`. `old` is the value that the releasing
    /// read-modify-write returned. Uses the address of the word only.
    static void wake_after(const atomic* word, Word old) noexcept {
        if ((old & parked) != 0) {
            Platform::futex_wake(word, 1);
        }
    }

    /// Pauses after a read that found the lock held. `looks` counts such reads before this one.
    static void stay_away(int looks) noexcept {
        for (int left = Platform::model ? 1 : 16 << (looks < 3 ? 2 * looks : 6); left > 0; --left) {
            Platform::pause();
        }
    }

private:
    BIDE_COLD static Word acquire_slow(atomic& word) noexcept {
        Word bits = held;
        for (int looks = 0;;) {
            // Order: relaxed; the CAS decides.
            Word seen = word.load(std::memory_order_relaxed);
            if ((seen & held) == 0) {
                // Order: acquire [lock_bits.release]; the caller sees what the last holder wrote.
                // Failure: relaxed, the loop reads again.
                if (word.compare_exchange_weak(seen, seen | bits, std::memory_order_acquire,
                                               std::memory_order_relaxed)) {
                    return seen | bits;
                }
                continue;
            }
            if (looks < Platform::lock_looks) {
                stay_away(looks++);
                continue;
            }
            // Order: relaxed; the waiter asks for a wake and publishes no data. After a failure,
            // the loop reads again.
            if ((seen & parked) == 0 &&
                !word.compare_exchange_weak(seen, seen | parked, std::memory_order_relaxed,
                                            std::memory_order_relaxed)) {
                continue;
            }
            // Does not call futex_wait() of core/futex.hpp, which lets another thread take over
            // this thread's work: the sleep is too short for that.
            Platform::futex_wait(word, static_cast<Word>(seen | parked),
                                 (std::numeric_limits<std::int64_t>::max)());
            bits = both;
        }
    }
};

}} // namespace bide::BIDE_ABI

#endif
