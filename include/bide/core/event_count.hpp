// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_EVENT_COUNT_HPP
#define BIDE_CORE_EVENT_COUNT_HPP

/// \file
/// Lets threads sleep until the condition of a lock-free structure may have changed.
//
//   waiter                                            notifier
//     prepare(): sleepers + 1, then read the epoch      make the condition true
//     check the condition again                         epoch + 1
//     true: cancel()   false: wait(that epoch)          if sleepers > 0: wake
//
// The pair [event_count.epoch]: the waiter writes `sleepers_` and reads the epoch; the notifier
// writes the epoch and reads `sleepers_`. All four operations are seq_cst.
//
// If the notifier reads zero sleepers, its increment of the epoch precedes the waiter's
// announcement in the single total order of the seq_cst operations. So it also precedes the
// waiter's read of the epoch. That read sees this increment or a later one, and acquires what the
// notifier published. The waiter's second check then finds the condition true.
//
// If the notifier reads a sleeper, it calls the wake. A waiter that is not asleep yet finds the
// epoch changed and does not sleep.
//
// The waiter must read the epoch before its second check. If it read the epoch later, the value
// could already count the notification that should end the wait.
//
// If 2^32 notifications come between prepare() and wait(), the epoch has the same value again and
// the waiter misses them.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/futex.hpp>
#include <bide/core/platform.hpp>

#include <cstdint>

namespace bide { inline namespace BIDE_ABI {

/// Puts waiters to sleep until a notification.
/// Thread safety: any thread calls any function.
template <class Platform> class basic_event_count {
public:
    /// Counts notifications, modulo 2^32.
    using epoch = futex_word;

    /// Makes an event count without waiters.
    constexpr basic_event_count() noexcept = default;
    basic_event_count(const basic_event_count&) = delete;
    basic_event_count& operator=(const basic_event_count&) = delete;

    /// Announces that the caller is about to sleep. The caller must check its condition again and
    /// then call exactly one of wait() and cancel().
    /// Returns: the epoch to pass to wait().
    [[nodiscard]] epoch prepare() noexcept {
        // Order: seq_cst [event_count.epoch]; the announcement precedes the caller's second check
        // of the condition.
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        // Order: seq_cst [event_count.epoch]; this read sees the increment of each notifier that
        // missed the announcement.
        return epoch_.load(std::memory_order_seq_cst);
    }

    /// Withdraws the announcement.
    void cancel() noexcept {
        // Order: relaxed; a notifier that still reads the old count makes a needless wake.
        sleepers_.fetch_sub(1, std::memory_order_relaxed);
    }

    /// Sleeps until there was a notification since the prepare() that returned `seen`. Then
    /// withdraws the announcement.
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
    /// Wakes all waiters; otherwise the same as notify_one().
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

}} // namespace bide::BIDE_ABI

#endif
