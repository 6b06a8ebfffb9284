// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_RUN_QUEUE_HPP
#define BIDE_SCHED_RUN_QUEUE_HPP

// A worker's own queue: a ring. The worker, its owner, pushes and pops. A thief steals half of the
// items at a time. (The design is that of Tokio, tokio/src/runtime/scheduler/multi_thread/queue.rs.
// Tokio's ring does not grow.)
//
// Positions count up and wrap at 2^32. The slot of a position is the position modulo the capacity.
// `tail_` is the position of the next push; only the owner changes it. `head_` holds two positions
// in one word:
//
//   steal            real             tail
//     |  claimed       |  available      |  free, up to steal + capacity
//
//   real     the position of the next item to take. A CAS moves it up. The owner's pop moves it by
//            one. A thief claims half of the items: it moves `real` past them.
//   steal    equal to `real` while no thief is at work; a pop then moves both. A thief's claim
//            moves only `real`, so `steal` stays at the first item of the claim. When the thief has
//            copied its items, it moves `steal` up to the current `real`. While the owner moves the
//            items to another buffer, `steal` is one less than `real`.
//   (`steal` is never past `real`; `tail` is never past `steal` by more than the capacity)
//
// A thief is at work from its claim until it moves `steal`. Only this thief reads the slots from
// `steal` to `real`. The owner writes a slot only after `steal` has passed that slot, so it does
// not overwrite the claimed slots [run_queue.slot_free]. Only one thief is at work at a time:
// another thief finds steal != real and leaves.
//
// The first buffer is part of the object. If the buffer is full, the owner moves the items to a
// buffer of twice the size. Before the move, the owner sets `steal` to real - 1, by a CAS that
// requires steal == real. If a thief is at work, the CAS fails, and the owner does not move the
// items. During the move, steal != real, so no thief claims an item. A thief reads the address of
// the buffer only after its claim [run_queue.buffer], so the owner may free the old buffer at once.
//
// A full ring does not take a new item in two cases: there is no memory for a larger buffer, or a
// thief is at work.
//
// Each change of `head_` is a read-modify-write, and so continues the release sequence of the thief
// that moved `steal`. So an owner that acquires a later value knows that the thief has read its
// slots. The only exception is the owner's store at the end of a move to another buffer. The owner
// has acquired the sequence before that store. If a position that a thief has read is outdated, the
// thief's CAS fails, unless the position is older by exactly 2^32 items.
//
// [idle.announce] in idle.hpp: the owner of a ring pushes new items or the items that it has
// stolen. After the push, it sees each worker that announced its sleep before. A worker that
// announces its sleep later sees the items.

#include <bide/core/executor.hpp>
#include <bide/core/spin.hpp>

#include <algorithm>
#include <bit>

namespace bide { inline namespace BIDE_ABI {

/// The ring of a worker. It has room for InitialCapacity items at first. When it is full, its
/// capacity doubles, up to MaxCapacity. Both are powers of two.
template <class Platform, unsigned InitialCapacity = 256, unsigned MaxCapacity = 1U << 30>
class basic_run_queue {
    static_assert(std::has_single_bit(InitialCapacity) && InitialCapacity >= 2 &&
                  std::has_single_bit(MaxCapacity) && InitialCapacity <= MaxCapacity &&
                  MaxCapacity <= 1U << 30);

public:
    /// The number of slots inside of the object.
    static constexpr unsigned initial_capacity = InitialCapacity;

    /// Constructs an empty ring.
    basic_run_queue() noexcept = default;
    /// Constructs an empty ring that begins at position `first`. For tests of the wrap.
    explicit basic_run_queue(std::uint32_t first) noexcept
        : head_(pack(first, first)), tail_(first) {}
    basic_run_queue& operator=(basic_run_queue&&) = delete;
    /// Frees the buffer.
    ~basic_run_queue() { free_buffer(slots_); }

    /// Appends `r`. Only the owner calls it. If the ring is full, moves the items to a larger
    /// buffer. If there is no memory for it, or a thief is at work, returns false and does not
    /// append `r`.
    /// Complexity: amortised constant.
    [[nodiscard]] bool push(runnable& r) noexcept {
        return push_if_room(r) || (make_room(1) != 0 && push_if_room(r));
    }

    /// Appends `r` as push() does, but never allocates. Returns false if the ring is full.
    [[nodiscard]] bool push_if_room(runnable& r) noexcept {
        if (room() == 0) [[unlikely]] {
            return false;
        }
        // Order: relaxed; the owner has written it itself.
        const position tail = tail_.load(std::memory_order_relaxed);
        slot_of(tail) = &r;
        // Order: seq_cst; publishes the slot [run_queue.publish] before the owner looks for
        // sleepers [idle.announce].
        tail_.store(tail + 1, std::memory_order_seq_cst);
        return true;
    }

    /// Takes the oldest item. Returns nullptr if there is none. Only the owner calls it.
    runnable* pop() noexcept {
        // Order: relaxed; only the owner writes the tail and the items.
        const position tail = tail_.load(std::memory_order_relaxed);
        // Order: relaxed; the CAS checks this value.
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
                prefetch(real + 2, tail);
                return slot_of(real);
            }
        }
    }

    /// Returns the number of slots. Only the owner calls it.
    unsigned capacity() const noexcept { return mask_ + 1; }

    /// Moves the items to a smaller buffer if less than an eighth of the slots is in use. Does
    /// nothing if there is no memory for that, or if a thief is at work. Only the owner calls it.
    void trim() noexcept {
        if (slots_ != own_ && size() < capacity() / 8) {
            resize((std::max)(InitialCapacity, std::bit_ceil(2 * size())));
        }
    }

    /// Takes the older half of the items, rounded up, but at most `most`, which is not 0. The
    /// caller is a thief, and owns the ring `mine`. Returns the first item, which the thief runs at
    /// once, and appends the other items to `mine`, in order. Sets `taken` to the number of items
    /// that it took. If `mine` has no room for all of the items and cannot grow, takes fewer.
    /// Returns nullptr if there are no items, if another thief is at work, or if the owner moves
    /// the items.
    runnable* steal_into(basic_run_queue& mine, unsigned& taken,
                         unsigned most = MaxCapacity) noexcept {
        taken = 0;
        const position wanted = (std::min)((size() + 1) / 2, most);
        if (wanted == 0) {
            return nullptr;
        }
        const position room = mine.make_room(wanted - 1);
        position first = 0;
        const position count = claim_half(first, (std::min)(wanted, room + 1));
        if (count == 0) {
            return nullptr;
        }
        // Order: relaxed; the thief has written it itself.
        const position to = mine.tail_.load(std::memory_order_relaxed);
        runnable* const oldest = slot_of(first);
        for (position i = 1; i < count; ++i) {
            mine.slot_of(to + i - 1) = static_cast<runnable*>(slot_of(first + i));
        }
        end_claim();
        if (count > 1) {
            // Order: seq_cst; publishes the slots [run_queue.publish] before the thief looks for
            // sleepers [idle.announce].
            mine.tail_.store(to + count - 1, std::memory_order_seq_cst);
        }
        taken = count;
        return oldest;
    }

    /// Returns true if there is nothing to take. Does not count items that a thief has claimed. Any
    /// thread may call it.
    /// Blocks: while a thief is at work and the ring has items that are not claimed: no other thief
    /// can take these items until the first thief has copied its part. Also blocks while the owner
    /// moves the items to another buffer.
    bool empty() const noexcept {
        // Order: seq_cst [idle.announce]; a worker reads the tail after its announcement.
        const position tail = tail_.load(std::memory_order_seq_cst);
        for (basic_backoff<Platform> wait;; wait()) {
            // Order: relaxed; if the head has reached that tail, all items before the tail were
            // taken. If the head is outdated, the ring looks non-empty.
            const word head = head_.load(std::memory_order_relaxed);
            if (distance(real_of(head), tail) <= 0) {
                return true;
            }
            if (steal_of(head) == real_of(head)) {
                return false;
            }
        }
    }

    /// Tells thieves how many nanoseconds the owner takes for an item. Only the owner calls it.
    void set_item_time(std::int64_t ns) noexcept {
        // Order: relaxed, both; an estimate. In a model, the items take no time.
        if (!Platform::model && item_ns_.load(std::memory_order_relaxed) != ns) {
            item_ns_.store(ns, std::memory_order_relaxed);
        }
    }

    /// Returns how many nanoseconds the owner takes for an item, on average.
    std::int64_t item_time() const noexcept {
        return item_ns_.load(std::memory_order_relaxed); // Order: relaxed; an estimate.
    }

    /// Returns true if a thief should leave the items to the owner: the owner probably takes all of
    /// them within `run_ns` nanoseconds, and no item is known to have waited for `delay_ns`. An
    /// item is known to have waited if two calls of this function saw it that far apart. So if
    /// thieves call this function again and again, an item that the owner does not take is left to
    /// the owner for at most 2 * delay_ns, plus the time between two calls.
    bool is_left_to_owner(std::int64_t run_ns, std::int64_t delay_ns) noexcept {
        // Order: relaxed, all; snapshots.
        const position first = real_of(head_.load(std::memory_order_relaxed));
        const position tail = tail_.load(std::memory_order_relaxed);
        const std::int32_t count = distance(first, tail);
        if (count <= 0 || count * item_ns_.load(std::memory_order_relaxed) > run_ns) {
            return false;
        }
        const auto now = static_cast<std::uint32_t>(Platform::now() / 64);
        // Order: relaxed, both; thieves may overwrite each other's marks.
        const word seen = seen_.load(std::memory_order_relaxed);
        if (distance(first, real_of(seen)) > 0) { // the oldest item was there at that time
            return now - steal_of(seen) < static_cast<std::uint32_t>(delay_ns / 64);
        }
        seen_.store(pack(now, tail), std::memory_order_relaxed);
        return true;
    }

    /// Returns the number of items, a snapshot. Any thread may call it.
    unsigned size() const noexcept {
        // Order: relaxed; two snapshots, which need not be consistent.
        const position tail = tail_.load(std::memory_order_relaxed);
        const std::int32_t count = distance(real_of(head_.load(std::memory_order_relaxed)), tail);
        return count < 0 ? 0 : static_cast<unsigned>(count);
    }

private:
    using position = std::uint32_t;
    using word = std::uint64_t;

    static constexpr word pack(position steal, position real) noexcept {
        return static_cast<word>(steal) << 32 | real;
    }
    static constexpr position steal_of(word head) noexcept {
        return static_cast<position>(head >> 32);
    }
    static constexpr position real_of(word head) noexcept { return static_cast<position>(head); }
    static constexpr bool is_claimed(word head) noexcept { return steal_of(head) != real_of(head); }
    static constexpr std::int32_t distance(position from, position to) noexcept {
        return static_cast<std::int32_t>(to - from);
    }

    using slot = typename Platform::template var<runnable*>;
    slot& slot_of(position at) noexcept { return slots_[at & mask_]; }
    // Returns the number of free slots. The result may be too small.
    position room() const noexcept {
        // Order: acquire [run_queue.slot_free]; the thieves that moved the head have read their
        // slots. If the head is outdated, the result is too small. The tail is the owner's own.
        return capacity() - (tail_.load(std::memory_order_relaxed) -
                             steal_of(head_.load(std::memory_order_acquire)));
    }
    void free_buffer(slot* buffer) noexcept {
        if (buffer != own_) {
            delete[] buffer;
        }
    }

    // Moves the items to a buffer of the given capacity, which has room for them. Returns false,
    // with nothing changed, if there is no memory, or if a thief is at work.
    bool resize(position capacity) noexcept {
        if (capacity > MaxCapacity) {
            return false;
        }
        slot* const next = capacity == InitialCapacity ? own_ : new (std::nothrow) slot[capacity];
        if (next == nullptr) {
            return false;
        }
        // Order: relaxed; the CAS checks this value.
        word head = head_.load(std::memory_order_relaxed);
        const position real = real_of(head);
        // Order: acquire [run_queue.slot_free]; thieves have read the buffer and its slots.
        // Failure: a thief has claimed items.
        if (is_claimed(head) ||
            !head_.compare_exchange_strong(head, pack(real - 1, real), std::memory_order_acquire,
                                           std::memory_order_relaxed)) {
            free_buffer(next);
            return false;
        }
        // Order: relaxed; the owner has written it itself.
        const position tail = tail_.load(std::memory_order_relaxed);
        for (position at = real; at != tail; ++at) {
            next[at & (capacity - 1)] = static_cast<runnable*>(slot_of(at));
        }
        slot* const old = slots_;
        slots_ = next;
        mask_ = capacity - 1;
        // Order: release [run_queue.buffer]; a thief that claims items sees the buffer.
        head_.store(pack(real, real), std::memory_order_release);
        free_buffer(old);
        return true;
    }

    // If there is no room for `wanted` items, grows. Returns the number of free slots.
    position make_room(position wanted) noexcept {
        const position there = room();
        return there < wanted && resize(std::bit_ceil(capacity() - there + wanted)) ? room()
                                                                                    : there;
    }

    // Claims half of the items, at most `most`, by moving `real` past them. Sets `first` to the
    // position of the first claimed item. Returns the number of claimed items.
    position claim_half(position& first, position most) noexcept {
        // Order: relaxed; the CAS checks this value.
        word head = head_.load(std::memory_order_relaxed);
        for (;;) {
            first = real_of(head);
            // Order: acquire [run_queue.publish]; sees the items before this tail. The tail may be
            // older than the head.
            const std::int32_t all = distance(first, tail_.load(std::memory_order_acquire));
            if (steal_of(head) != first || all <= 0) {
                return 0;
            }
            const position half = static_cast<position>(all) - static_cast<position>(all) / 2;
            const position count = (std::min)(half, most);
            // Order: acquire [run_queue.buffer]; sees the buffer, to which the owner may have moved
            // the items. If the CAS succeeds, that buffer holds all items up to the tail. Failure
            // relaxed: the loop reads again.
            if (head_.compare_exchange_weak(head, pack(first, first + count),
                                            std::memory_order_acquire, std::memory_order_relaxed)) {
                return count;
            }
        }
    }

    // Moves `steal` up to `real`, so that the owner may write the slots of the claim again.
    void end_claim() noexcept {
        // Order: relaxed; the CAS checks this value.
        word head = head_.load(std::memory_order_relaxed);
        // Order: release [run_queue.slot_free]; the slots are read before this step. Failure: the
        // owner has popped an item; the loop reads again.
        while (!head_.compare_exchange_weak(head, pack(real_of(head), real_of(head)),
                                            std::memory_order_release, std::memory_order_relaxed)) {
        }
    }

    // Prefetches the item at the position `at`, if there is one. The owner takes that item soon. If
    // many items are queued, the caches no longer hold it.
    void prefetch(position at, position tail) noexcept {
        if (distance(at, tail) > 0) {
            const runnable* const item = slot_of(at);
            Platform::prefetch(item);
            Platform::prefetch(reinterpret_cast<const char*>(item) + cache_line_pair / 2);
        }
    }

    alignas(cache_line_pair) typename Platform::template atomic<word> head_{0};
    // The position behind the last item that a thief has left to the owner, and when, in units of
    // 64 ns: packed as the two positions of the head are.
    typename Platform::template atomic<word> seen_{0};
    // How long the owner takes for an item. The first value is a guess.
    typename Platform::template atomic<std::int64_t> item_ns_{Platform::model ? 0 : 16'000};
    alignas(cache_line_pair) typename Platform::template atomic<position> tail_{0};
    // The buffer, and its number of slots less one. The owner writes both when it moves the items
    // to another buffer. A thief reads both only between its claim and the end of the claim.
    typename Platform::template var<slot*> slots_{own_};
    typename Platform::template var<position> mask_{InitialCapacity - 1};
    slot own_[InitialCapacity]{}; // the first buffer
};

}} // namespace bide::BIDE_ABI

#endif
