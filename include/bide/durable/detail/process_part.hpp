#ifndef BIDE_DURABLE_DETAIL_PROCESS_PART_HPP
#define BIDE_DURABLE_DETAIL_PROCESS_PART_HPP

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/durable/detail/change_signal.hpp>
#include <bide/durable/detail/change_watch.hpp>
#include <bide/durable/detail/process_identity.hpp>
#include <bide/durable/expiry.hpp>
#include <bide/sync/mutex.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <random>
#include <string>

namespace bide::inline BIDE_ABI {
namespace detail {

// What a record_store has in each process (detail/per_process.hpp). So a child of fork() begins with
// a turn of its own, which is free, whatever the threads of its parent did at the time of the fork.
struct process_part {
    process_part() = default;
    process_part(const process_part&) = delete;
    process_part& operator=(const process_part&) = delete;

    // In a child of fork(), of its parent's: closes files.
    void leave() noexcept {
        self.leave();
        if (turn.try_lock()) {
            const std::lock_guard held(turn, std::adopt_lock);
            watch.close();
        }
    }

    // In its turn.
    void close_idle_watch() noexcept {
        // Order: relaxed; a waiter that is counted later opens the watch in a later turn.
        if (waiting.load(std::memory_order_relaxed) == 0) {
            watch.close();
        }
    }

    const std::shared_ptr<change_signal> signal = std::make_shared<change_signal>();
    process_identity self;

    mutex state;                   // within a turn, or without one
    durable::observations seen_in; // under state: in transactions of callers
    std::string trouble;           // under state

    mutex turn;
    // In their turn:
    change_watch watch{signal};
    durable::observations seen;
    std::minstd_rand random{std::random_device()()};

    native_platform::atomic<unsigned> waiting{0};
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
