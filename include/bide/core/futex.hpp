// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_FUTEX_HPP
#define BIDE_CORE_FUTEX_HPP

/// \file
/// Sleeps until a word changes, by the system's wait on an address. Linux: private futex(2) with
/// absolute monotonic deadlines. Windows: WaitOnAddress. macOS: os_sync_wait_on_address. Elsewhere:
/// a hash table of mutexes and condition variables.
///
/// A wait may return early. No wake is lost: the waker changes the word before it calls
/// futex_wake(), and the waiter compares the word and falls asleep in one atomic operation.
//
// The library counts no waiters here: futex_wake() always makes the system call. atomic::notify_one
// of libstdc++ 12 counts waiters, skips the call if the count is zero, and loses wakes.

#include <bide/core/deadline.hpp>
#include <bide/core/wake_scope.hpp>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

// Sleeps in simulated time. Returns `idle` if the caller must sleep in real time instead.
template <class Platform, class Word>
BIDE_COLD simulated_machine::sleep_end
simulated_wait(simulated_machine& in, const typename Platform::template atomic<Word>& word,
               Word expected, deadline until) noexcept {
    struct change {
        const typename Platform::template atomic<Word>& of;
        const Word from;
    } const awaited{word, expected};
    const auto has_come = [](const void* what) noexcept {
        const auto& its = *static_cast<const change*>(what);
        // Order: relaxed; the caller of futex_wait() reads the word again.
        return its.of.load(std::memory_order_relaxed) != its.from;
    };
    for (;;) {
        const auto end = in.sleep(has_come, &awaited, until.next_check_ns());
        if (end != simulated_machine::sleep_end::timed_out || !until.is_early()) {
            return end;
        }
    }
}

} // namespace detail

/// Sleeps while the word holds `expected`. If the word has 64 bits, at least its low half is
/// compared. If the caller is a worker that runs a task, or a resumer (core/timer.hpp), another
/// thread takes over its work meanwhile. That thread also resumes the coroutines that the caller
/// was about to resume (core/wake_scope.hpp). If the caller runs inside of a waker, the later
/// wakers of the release run before the sleep (core/executor.hpp).
///
/// Blocks: until a wake, a change of the word before the sleep, or the deadline. May return early.
/// Returns: false if the deadline has passed; otherwise true.
/// Memory order: none. The caller reads the word again.
template <class Platform = native_platform, class Word>
BIDE_COLD bool futex_wait(const typename Platform::template atomic<Word>& word, Word expected,
                          deadline until = deadline::never()) noexcept {
    wake_scope<Platform>::hand_over_pending();
    if constexpr (!Platform::model) {
        if (auto* const simulated = detail::simulated_machine::here()) [[unlikely]] {
            using end = detail::simulated_machine::sleep_end;
            const end how = detail::simulated_wait<Platform>(*simulated, word, expected, until);
            if (how != end::idle) {
                return how == end::woken;
            }
        }
    }
    auto* const host = worker_local<Platform>::get().host;
    const bool is_replaced = host == nullptr || host->blocks();
    const std::int64_t retry =
        is_replaced ? (std::numeric_limits<std::int64_t>::max)() : Platform::now() + host->retry_ns;
    bool in_time = true;
    const auto wake_at = [&until, retry]() noexcept {
        const std::int64_t end = until.next_check_ns();
        return end < retry ? end : retry; // <algorithm> takes long to compile
    };
    while (!Platform::futex_wait(word, expected, wake_at())) {
        if (!is_replaced && Platform::now() >= retry) {
            break; // a spurious return: the caller sleeps again
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

/// Wakes at most `count` threads that sleep on this address. Does not access the word, which may be
/// destroyed already.
template <class Platform = native_platform, class Word>
void futex_wake(const typename Platform::template atomic<Word>* word, int count) noexcept {
    Platform::futex_wake(word, count);
}

}} // namespace bide::BIDE_ABI

#endif
