// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_READY_QUEUE_HPP
#define BIDE_CORE_READY_QUEUE_HPP

/// \file
/// Passes runnables from many threads to one owner, which sleeps while there are none.
//
// The state is one word:
//
//   0           No runnable is posted. The owner is awake.
//   sleeping    No runnable is posted. The owner sleeps or is about to.
//   a pointer   The newest posted runnable. Its `next` leads to the older ones.
//
// A poster puts its runnable on top by CAS, release [ready_queue.post]. The value that the CAS
// replaced tells whether to wake the owner. The owner announces its sleep by a CAS from 0 to
// `sleeping`. If a runnable came first, this CAS fails. If a runnable comes later, its poster finds
// `sleeping` and wakes the owner.
//
// The CAS is the poster's last access to the queue, and the wake uses the address only. So the
// owner may destroy the queue as soon as it has popped the runnable.

#include <bide/core/futex.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// Reverses a list of runnables. Before the call, `next` leads from the newest to the oldest;
// afterwards, from the oldest to the newest. `end` marks the end of the list and is no part of it.
// Returns the oldest runnable, or nullptr if the list is empty.
inline runnable* oldest_first(runnable* newest, const runnable* end = nullptr) noexcept {
    runnable* oldest = nullptr;
    for (runnable* r = newest; r != nullptr && r != end;) {
        runnable* const older = r->next;
        r->next = oldest;
        oldest = r;
        r = older;
    }
    return oldest;
}

} // namespace detail

/// Queues runnables for one owner, first in, first out.
/// Thread safety: any thread posts; only the owner pops.
template <class Platform> class basic_ready_queue {
public:
    /// Makes an empty queue.
    constexpr basic_ready_queue() noexcept = default;
    basic_ready_queue& operator=(basic_ready_queue&&) = delete;

    /// Posts `r` and wakes the owner if it sleeps.
    /// Requires: `r` lives until the owner has popped it.
    void post(runnable& r) noexcept {
        const auto* const word = &top_;
        // Order: relaxed; the CAS decides.
        std::uintptr_t seen = top_.load(std::memory_order_relaxed);
        do {
            r.next = seen == sleeping ? nullptr : reinterpret_cast<runnable*>(seen);
            // Order: release [ready_queue.post]; the owner sees the runnable, and what the poster
            // did before. After a failure, the loop tries again.
        } while (!top_.compare_exchange_weak(seen, reinterpret_cast<std::uintptr_t>(&r),
                                             std::memory_order_release, std::memory_order_relaxed));
        if (seen == sleeping) {
            futex_wake<Platform>(word, 1);
        }
    }

    /// Returns true if no runnable is queued. Only the owner calls it.
    bool empty() const noexcept { return taken_.first() == nullptr && !has_posted(); }

    /// Takes the oldest runnable out.
    /// Blocks: until there is a runnable or the deadline has passed.
    /// Returns: nullptr if the deadline has passed.
    runnable* pop(deadline until) noexcept {
        for (;;) {
            if (runnable* const r = taken_.pop()) {
                return r;
            }
            if (take_all()) {
                continue;
            }
            if (until.is_poll()) {
                return nullptr;
            }
            std::uintptr_t seen = 0;
            // Order: relaxed; the owner asks for a wake and publishes no data. After a failure,
            // take_all() reads again.
            if (top_.compare_exchange_strong(seen, sleeping, std::memory_order_relaxed,
                                             std::memory_order_relaxed) &&
                !futex_wait<Platform>(top_, sleeping, until)) {
                until = deadline::poll();
            }
        }
    }

private:
    static constexpr std::uintptr_t sleeping = 1; // no runnable has an odd address

    bool has_posted() const noexcept {
        // Order: relaxed; take_all() acquires.
        const std::uintptr_t top = top_.load(std::memory_order_relaxed);
        return top != 0 && top != sleeping;
    }

    // Moves the posted runnables to `taken_`, oldest first.
    bool take_all() noexcept {
        // Order: acquire [ready_queue.post]; sees the runnables and what their posters did before.
        const std::uintptr_t top = top_.exchange(0, std::memory_order_acquire);
        if (top == 0 || top == sleeping) {
            return false;
        }
        auto* const newest = reinterpret_cast<runnable*>(top);
        taken_.append(*detail::oldest_first(newest), *newest);
        return true;
    }

    typename Platform::template atomic<std::uintptr_t> top_{0};
    detail::run_list taken_; // only the owner uses it
};

}} // namespace bide::BIDE_ABI

#endif
