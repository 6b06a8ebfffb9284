#ifndef BIDE_CORE_EVENT_COUNT_HPP
#define BIDE_CORE_EVENT_COUNT_HPP

// Sleeping for lock-free structures: "wake me when the condition I looked at may have changed".
//
//   waiter:   prepare: sleepers + 1, then read the epoch   notifier: make the condition true
//             look at the condition again                            epoch + 1
//             true: cancel()   false: wait(that epoch)               sleepers > 0: wake
//
// The pair [E1]: the waiter writes sleepers and reads the epoch, the notifier writes the epoch and
// reads sleepers, all four seq_cst. If the notifier reads no sleeper, its step of the epoch comes
// before the waiter's announcement in their single order, hence before the waiter's read of the
// epoch, which therefore sees that step or a later one and acquires what the notifier published:
// the second look finds it. If the notifier reads a sleeper, it wakes; a waiter that has not fallen
// asleep yet finds the epoch changed and does not. Epoch first is essential: read after the second
// look, it may already count the very step that should have ended the wait.
//
// An epoch that comes round (2^32 notifications between prepare and wait) would be missed.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/futex.hpp>
#include <bide/core/platform.hpp>

#include <cstdint>

namespace bide::inline BIDE_ABI {

template <class Platform> class basic_event_count {
public:
    using epoch = futex_word;

    constexpr basic_event_count() noexcept = default;
    basic_event_count(const basic_event_count&) = delete;
    basic_event_count& operator=(const basic_event_count&) = delete;

    // Announces that the caller is about to sleep. It must look at its condition again and then
    // call wait() or cancel(), exactly one of them.
    [[nodiscard]] epoch prepare() noexcept {
        // Order: seq_cst [E1]; announced before the condition is looked at again.
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        // Order: seq_cst [E1]; sees the step of every notifier that missed the announcement.
        return epoch_.load(std::memory_order_seq_cst);
    }

    // Takes the announcement back.
    void cancel() noexcept {
        // Order: relaxed; a notifier that still counts us makes one wake too many.
        sleepers_.fetch_sub(1, std::memory_order_relaxed);
    }

    // Sleeps until a notification that came after prepare(), takes the announcement back.
    // Blocks: until then or the deadline, whose passing it answers with false. May also return true
    // early: look at the condition again.
    bool wait(epoch seen, deadline until = deadline::never()) noexcept {
        const bool in_time = futex_wait<Platform>(epoch_, seen, until);
        cancel();
        return in_time;
    }

    // To be called after the condition was made true (by a release store at least).
    void notify_one() noexcept { notify(1); }
    void notify_all() noexcept { notify(0x7fffffff); }

private:
    void notify(int count) noexcept {
        // Order: seq_cst [E1]; after the condition, before the look for sleepers.
        epoch_.fetch_add(1, std::memory_order_seq_cst);
        // Order: seq_cst [E1]; no sleeper seen here means that the sleeper sees our step.
        if (sleepers_.load(std::memory_order_seq_cst) != 0) {
            futex_wake<Platform>(&epoch_, count);
        }
    }

    typename Platform::template atomic<futex_word> epoch_{0};
    typename Platform::template atomic<std::uint32_t> sleepers_{0};
};

using event_count = basic_event_count<native_platform>;

} // namespace bide::inline BIDE_ABI

#endif
