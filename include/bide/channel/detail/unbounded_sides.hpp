// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_UNBOUNDED_SIDES_HPP
#define BIDE_CHANNEL_DETAIL_UNBOUNDED_SIDES_HPP

// The items of an unbounded channel, in two queues: a send puts its item behind those of the
// senders, and a receive takes the first of the receivers' items. If the receivers have none, the
// receive takes all items of the senders at once. Each side has a lock and cache lines of its own, so
// a sender and a receiver seldom access the same line. The lock of the receivers is acquired first.
//
// Each side counts its items. The counts differ if there are items. So a receive that finds none
// reads the count of the senders, and does not acquire their lock.
//
// The counts [unbounded.counts]. A receive counts after the send of its item, so the count of sends
// that a thread reads after it is not the lower one. size() reads the sends, the receives, and the
// sends again. If the sends have not changed, the difference is the size at one instant.

#include <bide/channel/detail/brief_lock.hpp>
#include <bide/channel/detail/segment_queue.hpp>
#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/wait_status.hpp>
#include <bide/core/waiter_queue.hpp>

#include <cstddef>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class T, class Platform> struct basic_unbounded_sides {
    using lock = brief_lock<Platform>;
    using lock_word = typename lock::word;
    using counter = typename Platform::template atomic<std::size_t>;
    using queue = basic_segment_queue<T, Platform>;
    using segments = typename queue::segments;

    // In the word of the senders: every send fails. Set under the lock, once.
    static constexpr lock_word closed = 2;

    struct alignas(cache_line_pair) sending_side {
        typename lock::atomic word{0};
        queue items;                            // under the lock
        basic_waiter_queue<Platform> receivers; // under the lock
        counter count{0};                       // of items that were not handed to a receiver
    };
    struct alignas(cache_line_pair) receiving_side {
        typename lock::atomic word{0};
        queue items;      // under the lock
        counter count{0}; // of items that were taken out, less those that were put back
    };

    // Requires: the lock of the side whose count it is.
    static void count(counter& c, std::size_t more) noexcept {
        // Order: relaxed; it changes only under the lock of its side. Release [unbounded.counts]; a
        // thread that reads the count sees the counts that the caller saw.
        c.store(c.load(std::memory_order_relaxed) + more, std::memory_order_release);
    }

    std::size_t size() const noexcept {
        // Order: acquire [unbounded.counts]; the receives that the sender saw.
        std::size_t sent = sending.count.load(std::memory_order_acquire);
        for (;;) {
            // Order: acquire [unbounded.counts]; the sends that the receiver saw.
            const std::size_t received = receiving.count.load(std::memory_order_acquire);
            // Order: acquire [unbounded.counts]; as the first.
            const std::size_t now = sending.count.load(std::memory_order_acquire);
            if (now == sent) {
                return sent - received;
            }
            sent = now;
        }
    }

    // If the receivers have no item, takes those of the senders. Returns granted if there is an
    // item; otherwise waiting or closed.
    // Requires: the lock of the receivers.
    wait_status look() noexcept {
        if (!receiving.items.empty()) {
            return wait_status::granted;
        }
        // Order: acquire [brief_lock.release]; a thread that sees the channel closed sees what was
        // sent before, and what was done before the close.
        const lock_word seen = sending.word.load(std::memory_order_acquire);
        // Order: relaxed; a send that comes before this receive has counted. The count of receives
        // changes only under the lock of the caller.
        if (sending.count.load(std::memory_order_relaxed) ==
            receiving.count.load(std::memory_order_relaxed)) {
            return (seen & closed) != 0 ? wait_status::closed : wait_status::waiting;
        }
        const lock_word now = lock::acquire(sending.word);
        receiving.items.take_all(sending.items);
        lock::release(sending.word, now);
        return wait_status::granted;
    }

    // Takes the first item out by put(T&).
    // Requires: the lock of the receivers; look() has returned granted.
    template <class Put> void take(Put& put, segments& emptied) noexcept {
        receiving.items.pop_front(put, emptied);
        count(receiving.count, 1);
    }

    sending_side sending;
    receiving_side receiving;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
