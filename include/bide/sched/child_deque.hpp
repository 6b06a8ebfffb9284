// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_CHILD_DEQUE_HPP
#define BIDE_SCHED_CHILD_DEQUE_HPP

// Holds the children of when_all that a worker has forked and that no worker has started. The
// owner, which is that worker, takes the youngest child first. A thief takes the oldest child
// first. (Chase, Lev, "Dynamic Circular Work-Stealing Deque", SPAA 2005. Here the buffer does not
// grow.)
//
//   top       the oldest child. A thief takes it by a CAS that moves top up by one. The owner uses
//             the same CAS to take the last child. To take all children, the owner moves top to
//             bottom.
//   bottom    the place of the next child. Only the owner changes it.
//   (top is above bottom only while the owner tries to take a child and there is none)
//
// Places are numbered upwards and never wrap. The slot of a place is the place modulo Capacity. The
// owner pushes only while bottom - top < Capacity. A thief may still have the old value of a slot
// when the owner reuses the slot. Then top has moved meanwhile, and the CAS of the thief fails.
//
// The owner moves bottom down and then reads top. A thief reads top and then bottom
// [child_deque.last]. If both try to take the same child, one of two cases holds: (1) the thief
// sees the new bottom and takes nothing; (2) the owner sees that the child is the last one, and
// takes it by the same CAS as the thief, so only one of them succeeds.
//
// [idle.announce] in idle.hpp: after a push, the owner sees each worker that announced its sleep
// before the push. A worker that announces its sleep later sees the child.

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
            // Order: relaxed; the store of bottom publishes the slot. If a late thief reads the new
            // value of the slot, its CAS fails.
            slots_[at % Capacity].store(list.pop(), std::memory_order_relaxed);
        }
        // Order: seq_cst; publishes the slots and the children [child_deque.publish] before the
        // owner looks for sleepers [idle.announce].
        bottom_.store(at, std::memory_order_seq_cst);
        return true;
    }

    /// Takes `r` back. Returns false if `r` was stolen, or if `r` is not the youngest child.
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
        // Order: relaxed; the CAS checks this value.
        position top = top_.load(std::memory_order_relaxed);
        while (top < bottom) {
            // Order: relaxed; the owner has written the slots and the children itself. Failure: a
            // thief has moved top, so the loop tries again.
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
        // Order: seq_cst [child_deque.last]; top is read before bottom.
        position top = top_.load(std::memory_order_seq_cst);
        // Order: seq_cst [child_deque.last]; bottom is read after top. Acquire
        // [child_deque.publish]; sees the slot and the child.
        if (top >= bottom_.load(std::memory_order_seq_cst)) {
            return nullptr;
        }
        // Order: relaxed; if the value is outdated, the CAS fails.
        runnable* const oldest = slots_[top % Capacity].load(std::memory_order_relaxed);
        // Order: release [child_deque.slot]; the slot was read before the owner uses it again.
        // Release suffices for [child_deque.last]. If the owner reads an older top, that read
        // precedes each thief's read of the new top in the order of the seq_cst steps. So such a
        // thief reads the owner's new bottom. Failure: another thread has taken the child.
        return top_.compare_exchange_strong(top, top + 1, std::memory_order_release,
                                            std::memory_order_relaxed)
                   ? oldest
                   : nullptr;
    }

    /// Returns true if there is no child.
    bool empty() const noexcept {
        // Order: seq_cst [idle.announce]; a worker reads bottom after its announcement.
        const position bottom = bottom_.load(std::memory_order_seq_cst);
        // Order: relaxed; if top is outdated, the deque looks fuller than it is.
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

    // Takes the youngest child, which is at `at`. Returns false if the child was stolen.
    bool take(position at) noexcept {
        // Order: seq_cst [child_deque.last]; bottom is written before top is read.
        bottom_.store(at, std::memory_order_seq_cst);
        // Order: seq_cst [child_deque.last]; top is read after bottom was written.
        position top = top_.load(std::memory_order_seq_cst);
        if (top < at) {
            return true;
        }
        bool taken = false;
        if (top == at) {
            // Order: relaxed; the owner wrote the slot and the child. Failure: a thief took the
            // child.
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
