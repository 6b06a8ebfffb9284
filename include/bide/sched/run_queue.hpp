// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_RUN_QUEUE_HPP
#define BIDE_SCHED_RUN_QUEUE_HPP

// A worker's own queue: a ring. The owner pushes and pops; thieves steal half of the items at a
// time. (Tokio's, tokio/src/runtime/scheduler/multi_thread/queue.rs.)
//
// Positions count up and wrap at 2^32. The slot of a position is the position modulo Capacity.
// `tail_` is the position of the next push; only the owner changes it. `head_` holds two positions
// in one word:
//
//   steal            real             tail
//     |  in transit    |  available      |  free, up to steal + Capacity
//
//   real     the next item to take. It moves up by CAS: by one for the owner's pop, by half of the
//            items for a thief's claim or the owner's overflow.
//   steal    equal to `real` while no thief is at work; then a pop moves both. A claim leaves it
//            behind, at the first item of the claim. When the thief has copied its items, it moves
//            `steal` up to `real`, wherever that is by then.
//   (real behind steal, or tail more than Capacity past steal: never)
//
// So the slots from `steal` to `real` are the thief's to read. The owner writes no slot before
// `steal` has passed it, so it cannot overwrite them [run_queue.slot_free]. One thief at a time:
// another thief finds steal != real and leaves. An overflow would have to move `steal`, too. So
// while a thief is at work, the owner lets only the new item overflow and leaves the ring as it is.
//
// All changes of `head_` are read-modify-writes, so each continues the release sequence of the
// thief that moved `steal`. The CAS decides; a position that a thief read before may be old. A
// position that is 2^32 items old would be mistaken for a new one.
//
// The pair [idle.announce] in idle.hpp: a pusher, or a thief that pushes into its own ring, sees
// each announcement that came before its push. A worker that announces later sees the push.

#include <bide/core/backoff.hpp>
#include <bide/core/config.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/resume.hpp>

#include <bit>
#include <cstdint>

namespace bide::inline BIDE_ABI {

/// The ring of a worker, for at most Capacity items, a power of two.
template <class Platform, unsigned Capacity = 256> class basic_run_queue {
    static_assert(std::has_single_bit(Capacity) && Capacity >= 2 && Capacity <= 1U << 30);

public:
    /// The number of slots.
    static constexpr unsigned capacity = Capacity;

    /// Constructs an empty ring.
    constexpr basic_run_queue() noexcept = default;
    /// Constructs an empty ring that begins at position `first`, so that a test can begin just
    /// before the wrap.
    constexpr explicit basic_run_queue(std::uint32_t first) noexcept
        : head_(pack(first, first)), tail_(first) {}
    basic_run_queue(const basic_run_queue&) = delete;
    basic_run_queue& operator=(const basic_run_queue&) = delete;

    /// Puts `r` last. Only the owner calls it. If the ring is full, passes the older half of the
    /// ring, and then `r`, to full.push(run_list&, count), in one list. If a thief is at work,
    /// passes only `r`. Returns how many items overflowed.
    template <class Overflow> unsigned push(runnable& r, Overflow& full) noexcept;

    /// Takes the oldest item. Returns nullptr if there is none. Only the owner calls it.
    runnable* pop() noexcept;

    /// Returns a number of pushes that will not overflow. More may fit. Only the owner calls it.
    unsigned room() const noexcept {
        // Order: relaxed; the tail is the owner's own, and an old head gives a smaller number.
        return Capacity - (tail_.load(std::memory_order_relaxed) -
                           steal_of(head_.load(std::memory_order_relaxed)));
    }

    /// Takes the older half of the items, rounded up. The caller is a thief, the owner of `mine`.
    /// Returns the first, which the thief runs at once, and puts the rest into `mine`, in order.
    /// `taken` is the number of items. Returns nullptr if there are none, if another thief is at
    /// work, or if `mine` has no room for half a ring.
    runnable* steal_into(basic_run_queue& mine, unsigned& taken) noexcept;

    /// Returns true if there is nothing to take. Items that a thief has claimed do not count. Any
    /// thread may call it.
    /// Blocks: if a thief is at work and leaves items, until that thief has copied its part. Until
    /// then, no other thief can take these items.
    bool empty() const noexcept;

    /// Returns the number of items, a snapshot. Any thread may call it.
    unsigned size() const noexcept {
        // Order: relaxed; two snapshots, which need not be consistent.
        const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
        const std::int32_t count = distance(real_of(head_.load(std::memory_order_relaxed)), tail);
        return count < 0 ? 0 : count > capacity_ ? Capacity : static_cast<unsigned>(count);
    }

private:
    using position = std::uint32_t;
    using word = std::uint64_t;

    static constexpr auto capacity_ = static_cast<std::int32_t>(Capacity);

    static constexpr word pack(position steal, position real) noexcept {
        return static_cast<word>(steal) << 32 | real;
    }
    static constexpr position steal_of(word head) noexcept {
        return static_cast<position>(head >> 32);
    }
    static constexpr position real_of(word head) noexcept { return static_cast<position>(head); }
    static constexpr std::int32_t distance(position from, position to) noexcept {
        return static_cast<std::int32_t>(to - from);
    }

    using slot = typename Platform::template var<runnable*>;
    slot& slot_of(position at) noexcept { return slots_[at % Capacity]; }

    template <class Overflow> void overflow_half(position first, runnable& r, Overflow& full);
    position claim_half(position& first) noexcept;
    void end_claim() noexcept;

    alignas(cache_line_pair) typename Platform::template atomic<word> head_{0};
    alignas(cache_line_pair) typename Platform::template atomic<position> tail_{0};
    slot slots_[Capacity]{}; // from steal to tail: items
};

template <class Platform, unsigned Capacity>
template <class Overflow>
unsigned basic_run_queue<Platform, Capacity>::push(runnable& r, Overflow& full) noexcept {
    // Order: relaxed; the owner's own.
    const position tail = tail_.load(std::memory_order_relaxed);
    for (;;) {
        // Order: acquire [run_queue.slot_free]; thieves have read what was in the slot.
        word head = head_.load(std::memory_order_acquire);
        if (tail - steal_of(head) < Capacity) {
            slot_of(tail) = &r;
            // Order: seq_cst; publishes the slot [run_queue.publish], before the look for sleepers
            // [idle.announce].
            tail_.store(tail + 1, std::memory_order_seq_cst);
            return 0;
        }
        const position real = real_of(head);
        if (steal_of(head) != real) {
            detail::run_list one;
            one.push(r);
            full.push(one, 1);
            return 1;
        }
        const position rest = real + Capacity / 2;
        // Order: relaxed; the items are the owner's own. Failure: the loop reads again.
        if (head_.compare_exchange_weak(head, pack(rest, rest), std::memory_order_relaxed,
                                        std::memory_order_relaxed)) {
            overflow_half(real, r, full);
            return Capacity / 2 + 1;
        }
    }
}

template <class Platform, unsigned Capacity>
template <class Overflow>
void basic_run_queue<Platform, Capacity>::overflow_half(position first, runnable& r,
                                                        Overflow& full) {
    detail::run_list half;
    for (position i = 0; i < Capacity / 2; ++i) {
        half.push(*slot_of(first + i));
    }
    half.push(r);
    full.push(half, Capacity / 2 + 1);
}

template <class Platform, unsigned Capacity>
runnable* basic_run_queue<Platform, Capacity>::pop() noexcept {
    // Order: relaxed; the owner's own, and so are the items.
    const position tail = tail_.load(std::memory_order_relaxed);
    // Order: relaxed; the CAS decides.
    word head = head_.load(std::memory_order_relaxed);
    for (;;) {
        const position real = real_of(head);
        if (real == tail) {
            return nullptr;
        }
        const word next =
            steal_of(head) == real ? pack(real + 1, real + 1) : pack(steal_of(head), real + 1);
        // Order: relaxed; the owner wrote the slot. Failure: the loop reads again.
        if (head_.compare_exchange_weak(head, next, std::memory_order_relaxed,
                                        std::memory_order_relaxed)) {
            return slot_of(real);
        }
    }
}

template <class Platform, unsigned Capacity>
bool basic_run_queue<Platform, Capacity>::empty() const noexcept {
    // Order: seq_cst [idle.announce]; the last look, after the announcement.
    const position tail = tail_.load(std::memory_order_seq_cst);
    for (basic_backoff<Platform> wait;; wait()) {
        // Order: relaxed; if the head is at that tail, the items before it were taken. An old head
        // says that there is more.
        const word head = head_.load(std::memory_order_relaxed);
        if (distance(real_of(head), tail) <= 0) {
            return true;
        }
        if (steal_of(head) == real_of(head)) {
            return false;
        }
    }
}

template <class Platform, unsigned Capacity>
runnable* basic_run_queue<Platform, Capacity>::steal_into(basic_run_queue& mine,
                                                          unsigned& taken) noexcept {
    taken = 0;
    // Order: relaxed; the thief's own.
    const position to = mine.tail_.load(std::memory_order_relaxed);
    // Order: acquire [run_queue.slot_free]; other thieves have read what was in the slots.
    if (to - steal_of(mine.head_.load(std::memory_order_acquire)) > Capacity / 2) {
        return nullptr;
    }
    position first = 0;
    const position count = claim_half(first);
    if (count == 0) {
        return nullptr;
    }
    runnable* const oldest = slot_of(first);
    for (position i = 1; i < count; ++i) {
        mine.slot_of(to + i - 1) = static_cast<runnable*>(slot_of(first + i));
    }
    end_claim();
    if (count > 1) {
        // Order: seq_cst; publishes the slots [run_queue.publish], before the look for sleepers
        // [idle.announce].
        mine.tail_.store(to + count - 1, std::memory_order_seq_cst);
    }
    taken = count;
    return oldest;
}

// Moves `real` past half of the items. `first` is the position of the first. Returns their number.
template <class Platform, unsigned Capacity>
auto basic_run_queue<Platform, Capacity>::claim_half(position& first) noexcept -> position {
    // Order: relaxed; the CAS decides.
    word head = head_.load(std::memory_order_relaxed);
    for (;;) {
        first = real_of(head);
        // Order: acquire [run_queue.publish]; the items before it. It may be older than the head.
        const std::int32_t all = distance(first, tail_.load(std::memory_order_acquire));
        if (steal_of(head) != first || all <= 0) {
            return 0;
        }
        const position count = static_cast<position>(all) - static_cast<position>(all) / 2;
        // Order: relaxed; the tail acquired the items, and this step only keeps other thieves out.
        // If it succeeds, the tail was at most Capacity past this head. Failure: the loop reads
        // again.
        if (head_.compare_exchange_weak(head, pack(first, first + count), std::memory_order_relaxed,
                                        std::memory_order_relaxed)) {
            return count;
        }
    }
}

// Moves `steal` up to `real`: the slots of the claim belong to the owner again.
template <class Platform, unsigned Capacity>
void basic_run_queue<Platform, Capacity>::end_claim() noexcept {
    // Order: relaxed; the CAS decides.
    word head = head_.load(std::memory_order_relaxed);
    // Order: release [run_queue.slot_free]; the slots have been read. Failure: the owner has
    // popped, the loop reads again.
    while (!head_.compare_exchange_weak(head, pack(real_of(head), real_of(head)),
                                        std::memory_order_release, std::memory_order_relaxed)) {
    }
}

} // namespace bide::inline BIDE_ABI

#endif
