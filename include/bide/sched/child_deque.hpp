// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_CHILD_DEQUE_HPP
#define BIDE_SCHED_CHILD_DEQUE_HPP

// The children of when_all that a worker has forked and not started. The worker takes the youngest
// child first, a thief the oldest one. (Chase, Lev, "Dynamic Circular Work-Stealing Deque", SPAA
// 2005. Here the buffer does not grow.)
//
//   top       the oldest child. A thief takes it by a CAS that moves top up by one. The owner uses
//             the same CAS to take the last child. To take all children, the owner moves top to
//             bottom.
//   bottom    the place of the next child. Only the owner changes it.
//   (top is above bottom only while the owner tries to take a child and there is none)
//
// Places are numbered upwards and never wrap. The slot of a place is the place modulo Capacity. The
// owner pushes only while bottom - top < Capacity. Assume that the owner uses a slot again while a
// thief still has the old value of the slot. Then top has moved meanwhile, and the CAS of the thief
// fails.
//
// The owner moves bottom down and then reads top. A thief reads top and then bottom
// [child_deque.last]. Assume that both are about to take the same child. Then the thief sees the
// new bottom, or the owner sees that this child is the last one. In the second case the owner takes
// the child by CAS, too, so only one of them succeeds.
//
// The pair [idle.announce] in idle.hpp: the owner pushes a child and then sees each worker that has
// announced its sleep before. A worker that announces later sees the child.

#include <bide/core/wake_scope.hpp>

#include <bit>

namespace bide { inline namespace BIDE_ABI {

/// The forked children of a worker, at most Capacity, a power of two.
template <class Platform, unsigned Capacity = 256> class basic_child_deque {
    static_assert(std::has_single_bit(Capacity));

public:
    /// Constructs an empty deque.
    constexpr basic_child_deque() noexcept = default;
    basic_child_deque& operator=(basic_child_deque&&) = delete;

    // ---- Functions for the owner

    /// Pushes the children of the list, from the front. If the deque becomes full, leaves the
    /// remaining children in the list. Returns false if it has pushed none.
    bool push(detail::run_list& list) noexcept {
        // Order: relaxed; the owner has written it itself.
        position at = bottom_.load(std::memory_order_relaxed);
        // Order: acquire [child_deque.slot]; a thief reads the slot and then moves top by its CAS.
        // So if this load sees the new top, the thief's read comes before the slot is used again.
        // If top is outdated, the deque looks fuller than it is.
        const position end = top_.load(std::memory_order_acquire) + Capacity;
        if (at == end || list.first() == nullptr) {
            return false;
        }
        for (; at != end && list.first() != nullptr; ++at) {
            // Order: relaxed; the store of bottom publishes the slot. If a thief that is too late
            // reads this value, its CAS fails.
            slots_[at % Capacity].store(list.pop(), std::memory_order_relaxed);
        }
        // Order: seq_cst; publishes the slots and the children [child_deque.publish], before the
        // look for sleepers [idle.announce].
        bottom_.store(at, std::memory_order_seq_cst);
        return true;
    }

    /// Takes `r` back. Returns false if another worker has taken it, or if it is not the newest.
    bool take_back(runnable& r) noexcept {
        // Order: relaxed, both; the owner has written them itself.
        const position bottom = bottom_.load(std::memory_order_relaxed);
        return bottom != 0 &&
               slots_[(bottom - 1) % Capacity].load(std::memory_order_relaxed) == &r &&
               take(bottom - 1);
    }

    /// Takes all children, and appends them to the list, the oldest first.
    void take_all(detail::run_list& list) noexcept {
        // Order: relaxed; the owner has written it itself.
        const position bottom = bottom_.load(std::memory_order_relaxed);
        // Order: relaxed; the CAS decides.
        position top = top_.load(std::memory_order_relaxed);
        while (top < bottom) {
            // Order: relaxed; the owner has written the slots and the children itself. Failure: a
            // thief has moved top meanwhile.
            if (top_.compare_exchange_weak(top, bottom, std::memory_order_relaxed,
                                           std::memory_order_relaxed)) {
                for (; top != bottom; ++top) {
                    // Order: relaxed; the owner has written it itself.
                    list.push(*slots_[top % Capacity].load(std::memory_order_relaxed));
                }
            }
        }
    }

    // ---- Any thread

    /// Takes the oldest child. Returns nullptr if there is none, or if another thread takes it.
    runnable* steal() noexcept {
        // Order: seq_cst [child_deque.last]; before the thief reads bottom.
        position top = top_.load(std::memory_order_seq_cst);
        // Order: seq_cst [child_deque.last]; after top was read. Acquire [child_deque.publish];
        // sees the slot and the child.
        if (top >= bottom_.load(std::memory_order_seq_cst)) {
            return nullptr;
        }
        // Order: relaxed; if it is old, the CAS fails.
        runnable* const oldest = slots_[top % Capacity].load(std::memory_order_relaxed);
        // Order: release [child_deque.slot]; the slot was read before the owner uses it again.
        // Release suffices for [child_deque.last]: if the owner reads an older top, its read comes
        // before the read of every thief that reads the new top, in the order of the seq_cst steps.
        // Failure: another thread has taken the child.
        return top_.compare_exchange_strong(top, top + 1, std::memory_order_release,
                                            std::memory_order_relaxed)
                   ? oldest
                   : nullptr;
    }

    /// Returns true if there is no child.
    bool empty() const noexcept {
        // Order: seq_cst [idle.announce]; this is the last check before a sleep, after the
        // announcement. If top is outdated, the deque looks fuller than it is.
        const position bottom = bottom_.load(std::memory_order_seq_cst);
        // Order: relaxed; as above.
        return top_.load(std::memory_order_relaxed) >= bottom;
    }

    /// Returns the number of children, a snapshot.
    unsigned size() const noexcept {
        // Order: relaxed, both; two snapshots, which need not be consistent.
        const position top = top_.load(std::memory_order_relaxed);
        const position bottom = bottom_.load(std::memory_order_relaxed);
        return top < bottom ? static_cast<unsigned>(bottom - top) : 0;
    }

private:
    using position = std::uint64_t;
    using slot = typename Platform::template atomic<runnable*>;

    // Takes the newest child, which is at `at`. Returns false if it was stolen.
    bool take(position at) noexcept {
        // Order: seq_cst [child_deque.last]; before the owner reads top.
        bottom_.store(at, std::memory_order_seq_cst);
        // Order: seq_cst [child_deque.last]; after bottom was moved.
        position top = top_.load(std::memory_order_seq_cst);
        if (top < at) {
            return true;
        }
        bool taken = false;
        if (top == at) {
            // Order: relaxed; the owner wrote the slot and the child. Failure: a thief was first.
            taken = top_.compare_exchange_strong(top, at + 1, std::memory_order_relaxed,
                                                 std::memory_order_relaxed);
        }
        // Order: relaxed; the deque is empty, and there is nothing to publish.
        bottom_.store(at + 1, std::memory_order_relaxed);
        return taken;
    }

    alignas(cache_line_pair) typename Platform::template atomic<position> top_{0};
    alignas(cache_line_pair) typename Platform::template atomic<position> bottom_{0};
    slot slots_[Capacity]{};
};

}} // namespace bide::BIDE_ABI

#endif
