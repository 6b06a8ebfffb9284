// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_PARKER_HPP
#define BIDE_CORE_PARKER_HPP

/// \file
/// Puts one thread to sleep until another thread gives it a token (parker), or many threads until a
/// condition may have changed (event_count).
//
// The state is one word:
//
//   empty      There is no token. The owner is awake or about to sleep.
//   parked     There is no token. The owner sleeps, or has announced that it is about to.
//   notified   There is a token for the owner.
//   (other)    Never.
//
// Both sides decide by the value that their read-modify-write returned:
//
//   owner:     CAS empty -> parked    sleep while parked      exchange -> empty
//   notifier:  exchange -> notified   wake if it was parked
//
// If the notifier comes before the CAS, the CAS fails and the owner does not sleep. If it comes
// after the CAS, its exchange returns parked. Then either the owner sees the changed word and does
// not sleep, or the notifier wakes it.
//
// unpark() is an exchange even if a token is there already. The exchange orders the notifier's
// writes before the park() that takes the token [parker.token]. If unpark() only read the word,
// this order would be missing. Each return of park() also takes the token by an exchange: a plain
// store could overwrite a token that arrives together with the time-out, and that token would be
// lost.
//
// The exchange is the last access of unpark(), and the wake uses the address only. So the owner may
// destroy the parker as soon as park() has returned.

#include <bide/core/futex.hpp>
#include <bide/core/spin.hpp>

namespace bide { inline namespace BIDE_ABI {

/// Holds at most one token for the thread that owns it.
/// Thread safety: only the owner parks; any thread unparks.
/// Destroys: the owner may destroy it as soon as park() has returned.
template <class Platform> class basic_parker {
public:
    /// Makes a parker without a token.
    constexpr basic_parker() noexcept = default;
    basic_parker& operator=(basic_parker&&) = delete;

    /// Takes the token.
    /// Blocks: until unpark(); never returns without a token.
    /// Memory order: the unpark() that left the token happens before the return.
    void park() noexcept { park_until(deadline::never()); }

    /// Takes the token. If `rest` is not positive, makes one attempt.
    /// Blocks: until unpark(), for at most `rest`.
    /// Returns: false if the time has passed without a token.
    bool park_for(deadline::from_now rest) noexcept { return park_until(deadline(rest)); }

    /// \overload
    bool park_until(deadline until) noexcept {
        // Order: relaxed; a hint only, take() decides.
        if (state_.load(std::memory_order_relaxed) == notified || until.is_poll()) {
            return take();
        }
        futex_word seen = empty;
        // Order: relaxed; the announcement publishes no data. After a failure, take() acquires.
        while (state_.compare_exchange_strong(seen, parked, std::memory_order_relaxed,
                                              std::memory_order_relaxed)) {
            const bool in_time = futex_wait<Platform>(state_, parked, until);
            if (take()) {
                return true;
            }
            if (!in_time) {
                return false;
            }
            seen = empty; // a spurious wake
        }
        return take();
    }

    /// Leaves a token; several tokens count as one.
    void unpark() noexcept {
        const auto* const word = &state_;
        // Order: release [parker.token]; pairs with the exchange that takes the token.
        if (state_.exchange(notified, std::memory_order_release) == parked) {
            basic_spin<Platform>::measured_wake(
                [word]() noexcept { futex_wake<Platform>(word, 1); });
        }
    }

private:
    static constexpr futex_word empty = 0;
    static constexpr futex_word parked = 1;
    static constexpr futex_word notified = 2;

    // Order: acquire [parker.token]; the owner sees what the notifier did before unpark().
    bool take() noexcept { return state_.exchange(empty, std::memory_order_acquire) == notified; }

    typename Platform::template atomic<futex_word> state_{empty};
};

/// Is the parker of native threads.
using parker = basic_parker<native_platform>;

// ---- Event count
//
// Lets threads sleep until the condition of a lock-free structure may have changed.
//
//   waiter                                            notifier
//     prepare(): sleepers + 1, then read the epoch      make the condition true
//     check the condition again                         epoch + 1
//     true: cancel()   false: wait(that epoch)          if sleepers > 0: wake
//
// The pair [event_count.epoch]: the waiter writes `sleepers_` and reads the epoch; the notifier
// writes the epoch and reads `sleepers_`. All four operations are seq_cst.
//
// The seq_cst operations have a single total order. If the notifier reads zero sleepers, its
// increment of the epoch precedes the waiter's increment of `sleepers_` in that order. So the
// notifier's increment also precedes the waiter's read of the epoch. That read sees this increment
// or a later one, and acquires what the notifier published. The waiter's second check then finds
// the condition true.
//
// If the notifier reads a sleeper, it calls the wake. A waiter that is not asleep yet finds the
// epoch changed and does not sleep.
//
// The waiter must read the epoch before its second check. If it read the epoch later, the value
// could already count the notification that should end the wait.
//
// Limit: if exactly 2^32 notifications come between prepare() and wait(), the epoch has its old
// value again, and the waiter misses them.

/// Puts waiters to sleep until a notification.
/// Thread safety: any thread calls any function.
template <class Platform> class basic_event_count {
public:
    /// Counts notifications, modulo 2^32.
    using epoch = futex_word;

    /// Makes an event count without waiters.
    constexpr basic_event_count() noexcept = default;
    basic_event_count& operator=(basic_event_count&&) = delete;

    /// Announces that the caller is about to sleep. The caller must check its condition again and
    /// then call exactly one of wait() and cancel().
    /// Returns: the epoch to pass to wait().
    [[nodiscard]] epoch prepare() noexcept {
        // Order: seq_cst [event_count.epoch]; this announcement comes before the caller's second
        // check of the condition.
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        // Order: seq_cst [event_count.epoch]; if a notifier has missed the announcement, this read
        // sees the notifier's increment.
        return epoch_.load(std::memory_order_seq_cst);
    }

    /// Withdraws the announcement of prepare().
    void cancel() noexcept {
        // Order: relaxed; a notifier that still reads the old count makes a needless wake.
        sleepers_.fetch_sub(1, std::memory_order_relaxed);
    }

    /// Sleeps until a notification. If one came after the prepare() that returned `seen`, does not
    /// sleep. At its end, always withdraws the announcement of prepare().
    /// Blocks: until a notification or the deadline. May return early: the caller checks its
    /// condition again.
    /// Returns: false if the deadline has passed.
    bool wait(epoch seen, deadline until = deadline::never()) noexcept {
        const bool in_time = futex_wait<Platform>(epoch_, seen, until);
        cancel();
        return in_time;
    }

    /// Wakes one waiter. The caller has made the condition true before this call.
    /// Memory order: the caller makes the condition true by a release operation at least.
    void notify_one() noexcept { notify(1); }
    /// Wakes all waiters. The requirements are those of notify_one().
    void notify_all() noexcept { notify(0x7fffffff); }

private:
    void notify(int count) noexcept {
        // Order: seq_cst [event_count.epoch]; the increment follows the change of the condition,
        // and precedes the check for sleepers.
        epoch_.fetch_add(1, std::memory_order_seq_cst);
        // Order: seq_cst [event_count.epoch]; a sleeper that is not seen here sees the increment.
        if (sleepers_.load(std::memory_order_seq_cst) != 0) {
            futex_wake<Platform>(&epoch_, count);
        }
    }

    typename Platform::template atomic<futex_word> epoch_{0};
    typename Platform::template atomic<std::uint32_t> sleepers_{0};
};

/// Is the event count of native threads.
using event_count = basic_event_count<native_platform>;

BIDE_COMPILED_TEMPLATE(class basic_parker<native_platform>)

}} // namespace bide::BIDE_ABI

#endif
