// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_RING_HPP
#define BIDE_CHANNEL_RING_HPP

/// \file
/// A bounded queue of many producers and many consumers. No push and no pop waits.
//
// Source: Vyukov, "Bounded MPMC queue", 2010, with laps in place of sequence numbers, as in
// crossbeam-channel. So a capacity need not be a power of two.
//
// A position has three fields in one Stamp: the lap (how often it went round the ring), the closed
// bit and the index of a slot. The closed bit is the least power of two above the capacity. Each
// lap adds twice that value to the position. `head_` is the position of the next pop, `tail_` that
// of the next push. Once the ring is closed, the tail has the closed bit set; the head never has
// it. Each slot has a stamp:
//
//   stamp of the slot at position p
//   p             empty; belongs to the thread that moves the tail from p to the next position
//   p + 1         full; belongs to the thread that moves the head from p to the next position
//   p + lap       empty again, for the next lap
//
// A push has three steps. It claims the slot by moving the tail, constructs the item, and publishes
// the item by storing the stamp. A pop does the same with the head. So at every instant the
// distance between the two positions is the number of slots that pushes have claimed and pops have
// not. The ring is empty if head == tail, and full if head + lap == tail. A pop finds the ring
// closed if it is empty and the closed bit is set. If the stamp of a slot is behind its position,
// the slot is neither empty nor full but busy: its claimer has not published it yet.
//
// The channel that owns a ring has flags, which say on which side there are waiters (channel.hpp).
// The flags and the positions form the pair [ring.position]. Both positions are moved by seq_cst
// steps. Each decision on "empty" or "full" reads the position of the other side by a seq_cst load.

#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>

#include <bit>
#include <stdexcept>

namespace bide { inline namespace BIDE_ABI {

/// The outcome of one attempt to push or pop. `done`: the attempt succeeded. `not_now`: the ring is
/// full (push) or empty (pop). `busy`: another thread has claimed the slot and not published it
/// yet; try again. `closed`: the ring is closed, and for a pop it is also empty.
enum class attempt : unsigned char { done, not_now, busy, closed };

/// A bounded lock-free queue of many producers and many consumers. No operation waits.
template <class T, class Platform = native_platform, class Stamp = std::uint64_t> class basic_ring {
    static_assert(std::is_unsigned_v<Stamp>);

    struct slot {
        typename Platform::template atomic<Stamp> stamp{0};
        alignas(T) std::byte place[sizeof(T)];
    };

public:
    /// Returns the largest capacity. If Stamp has 64 bits, the memory is the limit.
    static constexpr std::size_t max_capacity() noexcept {
        constexpr Stamp most = ((std::numeric_limits<Stamp>::max)() >> 4) - 1;
        constexpr std::size_t bytes = (std::numeric_limits<std::ptrdiff_t>::max)() / sizeof(slot);
        return most < bytes ? static_cast<std::size_t>(most) : bytes;
    }

    /// Constructs an empty ring. A ring with a capacity of 0 is always full and always empty.
    /// Throws: std::length_error if `capacity` is more than max_capacity(), std::bad_alloc.
    explicit basic_ring(std::size_t capacity);

    /// Frees the memory. Does not destroy items: the owner pops them first.
    ~basic_ring() { delete[] slots_; }

    basic_ring& operator=(basic_ring&&) = delete;

    /// Consecutive slots that only the claimer accesses, from begin_push() or begin_pop() to end().
    class claim {
    public:
        /// Constructs a claim of no slots.
        claim() noexcept = default;
        /// Returns the number of slots.
        std::size_t size() const noexcept { return count_; }

    private:
        friend class basic_ring;
        claim(Stamp first, Stamp more, std::size_t amount) noexcept
            : first_(first), more_(more), count_(amount) {}
        Stamp first_ = 0; // the position
        Stamp more_ = 0;  // what publishing adds to a slot's position
        std::size_t count_ = 0;
    };

    /// A count that is 1 at compile time.
    using one = std::integral_constant<std::size_t, 1>;
    /// Claims up to `most` consecutive empty slots at the tail in one step. Never blocks.
    /// Requires: 1 <= most <= capacity(), or `most` is one().
    template <class Count = one>
    BIDE_INLINE attempt begin_push(claim& c, Count most = {}) noexcept {
        return begin<true>(c, most);
    }
    /// Claims up to `most` consecutive full slots at the head in one step. Never blocks.
    /// Requires: as begin_push().
    template <class Count = one> BIDE_INLINE attempt begin_pop(claim& c, Count most = {}) noexcept {
        return begin<false>(c, most);
    }

    /// Returns the memory of the first slot's item.
    void* place(const claim& c) const noexcept { return slot_of(c.first_).place; }
    /// Returns the item of the first slot.
    T& item(const claim& c) const noexcept { return *std::launder(static_cast<T*>(place(c))); }

    /// Visits the slots of a claim one after the other.
    class cursor;
    /// Returns a cursor at the first slot of `c`.
    cursor cells(const claim& c) const noexcept { return cursor(*this, c.first_, c.more_); }

    /// Publishes the first slot as full or empty. This is the caller's last access to the ring.
    void end(const claim& c) noexcept {
        // Order: release [ring.slot]; the next claimer of the slot sees the item, or sees that the
        // item was taken.
        slot_of(c.first_).stamp.store(static_cast<Stamp>(c.first_ + c.more_),
                                      std::memory_order_release);
    }

    /// Closes the ring: no push begins any more.
    /// Returns: true if this call closed it.
    bool close() noexcept {
        // Order: release; every decision on the tail reads it seq_cst [ring.position], so a thread
        // that finds the bit sees what was done before close().
        return (tail_.fetch_or(closed_bit_, std::memory_order_release) & closed_bit_) == 0;
    }
    /// Returns true if close() was called.
    bool is_closed() const noexcept {
        // Order: relaxed; a snapshot.
        return (tail_.load(std::memory_order_relaxed) & closed_bit_) != 0;
    }

    /// Returns true if a pop would have to wait. The caller has raised its flag before. If the head
    /// that this call reads is outdated, the caller makes one useless attempt at most.
    // Order: seq_cst [ring.position]; the caller raised its flag before. Relaxed for the head.
    bool is_empty() const noexcept {
        const Stamp tail = tail_.load(std::memory_order_seq_cst);
        return head_.load(std::memory_order_relaxed) == (tail & ~closed_bit_);
    }
    /// Returns true if a push would have to wait. Returns false if the ring is closed, because a
    /// push then fails and does not wait.
    bool is_full() const noexcept {
        // Order: relaxed for the tail. Seq_cst [ring.position]; the caller raised its flag before.
        const Stamp tail = tail_.load(std::memory_order_relaxed);
        return static_cast<Stamp>(head_.load(std::memory_order_seq_cst) + lap_) == tail;
    }

    /// Returns true if a push would probably find a busy slot; only an attempt can tell for
    /// certain. Reads the tail twice. If the tail has moved meanwhile, returns false, because the
    /// stamp was compared with an outdated tail.
    bool push_is_busy() const noexcept {
        // Order: relaxed, here and below; the result is a hint for how long the caller pauses.
        const Stamp tail = tail_.load(std::memory_order_relaxed);
        return (tail & closed_bit_) == 0 &&
               slot_of(tail).stamp.load(std::memory_order_relaxed) != tail && !is_full() &&
               tail_.load(std::memory_order_relaxed) == tail;
    }
    /// Returns true if a pop would probably find a busy slot; only an attempt is certain.
    bool pop_is_busy() const noexcept {
        // Order: relaxed, here and below; the result is a hint.
        const Stamp head = head_.load(std::memory_order_relaxed);
        return slot_of(head).stamp.load(std::memory_order_relaxed) !=
                   static_cast<Stamp>(head + 1) &&
               !is_empty() && head_.load(std::memory_order_relaxed) == head;
    }

    /// Returns the capacity.
    std::size_t capacity() const noexcept { return capacity_; }

    /// Returns the number of slots that pushes have claimed and pops have not, at one instant.
    std::size_t size() const noexcept {
        // Order: seq_cst [ring.position], all three loads; if both reads of the tail agree, the
        // head was read while the tail had that value.
        Stamp tail = tail_.load(std::memory_order_seq_cst);
        for (;;) {
            const Stamp head = head_.load(std::memory_order_seq_cst);
            const Stamp now = tail_.load(std::memory_order_seq_cst);
            if (now == tail) {
                const Stamp end = static_cast<Stamp>(tail & ~closed_bit_);
                const auto from = static_cast<std::size_t>(head & (closed_bit_ - 1));
                const auto to = static_cast<std::size_t>(end & (closed_bit_ - 1));
                return from < to ? to - from : end == head ? 0 : capacity_ - from + to;
            }
            tail = now;
        }
    }

private:
    slot& slot_of(Stamp position) const noexcept {
        return slots_[static_cast<std::size_t>(position & (closed_bit_ - 1))];
    }

    // Returns the position that is n positions after `position`. Requires: n <= capacity.
    Stamp next(Stamp position, std::size_t n) const noexcept {
        const std::size_t at = static_cast<std::size_t>(position & (closed_bit_ - 1)) + n;
        const auto lap = static_cast<Stamp>((position & ~(lap_ - 1)) + lap_);
        return static_cast<Stamp>(at < capacity_ ? position + n : lap + (at - capacity_));
    }

    // Pauses after a failed CAS, each time four times as long, and at most 256 times: 3 us, or 11
    // on some processors. Returns the new value of `failed`. Of n threads, one succeeds while the
    // others fail, and each failure takes the cache line from the thread that succeeds next. So the
    // pauses have to be long. With a higher limit, a short burst of a few threads takes longer.
    static int make_way(int failed) noexcept {
        for (int left = Platform::model ? 0 : 1 << failed; left > 0; --left) {
            Platform::pause();
        }
        return failed < 8 ? failed + 2 : 8;
    }

    // Claims slots for a push, or for a pop.
    template <bool Push, class Count> BIDE_INLINE attempt begin(claim& c, Count most) noexcept {
        index& mine = Push ? tail_ : head_;
        const index& others = Push ? head_ : tail_;
        // Order: seq_cst [ring.position]; this position is read before the position of the other
        // side, and again afterwards. If the two reads of this position return the same value, that
        // value and the position of the other side belong to one instant.
        Stamp at = mine.load(std::memory_order_seq_cst);
        for (int failed = 0;;) {
            if (Push && (at & closed_bit_) != 0) {
                return attempt::closed;
            }
            if (const std::size_t n = count_ready(at, Push ? 0 : 1, most); n != 0) {
                const Stamp first = at;
                // Order: seq_cst [ring.position]; this step moves the position before the caller
                // reads the flags. Failure: relaxed, the loop reads again.
                if (mine.compare_exchange_weak(at, next(at, n), std::memory_order_seq_cst,
                                               std::memory_order_relaxed)) {
                    c = claim(first, Push ? 1 : lap_, n);
                    return attempt::done;
                }
                failed = make_way(failed);
                // Order: seq_cst [ring.position]; read again, as at the beginning.
                at = mine.load(std::memory_order_seq_cst);
                continue;
            }
            // Order: seq_cst [ring.position]; the positions tell whether the ring is full or empty.
            const Stamp other = others.load(std::memory_order_seq_cst);
            // Order: seq_cst [ring.position]; the second read. If it differs, `at` is outdated.
            const Stamp now = mine.load(std::memory_order_seq_cst);
            if (now == at) {
                if constexpr (Push) {
                    return static_cast<Stamp>(other + lap_) == at ? attempt::not_now
                                                                  : attempt::busy;
                } else {
                    return static_cast<Stamp>(other & ~closed_bit_) != at ? attempt::busy
                           : (other & closed_bit_) != 0                   ? attempt::closed
                                                                          : attempt::not_now;
                }
            }
            at = now;
        }
    }

    // Counts consecutive slots from `first` on, `most` at most, whose stamp is position + `more`.
    template <class Count>
    std::size_t count_ready(Stamp first, Stamp more, Count most) const noexcept {
        if constexpr (std::is_same_v<Count, one>) {
            // Order: acquire [ring.slot]; sees the item, or the end of the pop that emptied the
            // slot.
            return slot_of(first).stamp.load(std::memory_order_acquire) ==
                           static_cast<Stamp>(first + more)
                       ? 1
                       : 0;
        } else {
            cursor c(*this, first, more);
            std::size_t n = 0;
            for (; n < static_cast<std::size_t>(most) && c.is_ready(); ++n) {
                ++c;
            }
            return n;
        }
    }

    using index = typename Platform::template atomic<Stamp>;

    slot* const slots_;
    const std::size_t capacity_;
    const Stamp closed_bit_;
    const Stamp lap_; // 0 if the capacity is 0
    alignas(cache_line_pair) index head_{0};
    alignas(cache_line_pair) index tail_{0};
};

template <class T, class Platform, class Stamp> class basic_ring<T, Platform, Stamp>::cursor {
public:
    /// Returns the memory of the slot's item.
    void* place() const noexcept { return at_->place; }

    /// Publishes the slot as full or empty. After the publication of the last slot, the caller no
    /// longer accesses the ring.
    // Order: release [ring.slot]; the next claimer of the slot sees what this claimer did.
    void end() const noexcept { at_->stamp.store(stamp(), std::memory_order_release); }

    /// Returns true if the slot can be claimed.
    // Order: acquire [ring.slot]; sees the item, or the end of the pop that emptied the slot.
    bool is_ready() const noexcept { return at_->stamp.load(std::memory_order_acquire) == stamp(); }

    /// Moves to the next slot.
    void operator++() noexcept {
        if (at_ == last_) {
            at_ = first_;
            position_ = static_cast<Stamp>(position_ + to_next_lap_);
        } else {
            ++at_;
            ++position_;
        }
    }

private:
    friend class basic_ring;
    cursor(const basic_ring& of, Stamp position, Stamp more) noexcept
        : at_(&of.slot_of(position)), first_(of.slots_), last_(of.slots_ + of.capacity_ - 1),
          position_(position), more_(more),
          to_next_lap_(static_cast<Stamp>(of.lap_ - (of.capacity_ - 1))) {}

    Stamp stamp() const noexcept { return static_cast<Stamp>(position_ + more_); }

    slot* at_;
    slot* first_;
    slot* last_;
    Stamp position_;
    Stamp more_;
    Stamp to_next_lap_;
};

template <class T, class Platform, class Stamp>
basic_ring<T, Platform, Stamp>::basic_ring(std::size_t capacity)
    : slots_([capacity] {
          if (capacity > max_capacity()) {
              BIDE_THROW(std::length_error("bide::channel: capacity too large"));
          }
          return new slot[capacity == 0 ? 1 : capacity];
      }()),
      capacity_(capacity), closed_bit_(std::bit_ceil(static_cast<Stamp>(capacity + 1))),
      lap_(capacity == 0 ? Stamp{0} : static_cast<Stamp>(closed_bit_ * 2)) {
    for (std::size_t i = 0; i < capacity || i == 0; ++i) {
        // Order: relaxed; no other thread has the ring yet. With a capacity of 0, the one slot gets
        // a stamp that never makes it ready.
        slots_[i].stamp.store(static_cast<Stamp>(capacity == 0 ? 2 : i), std::memory_order_relaxed);
    }
}

}} // namespace bide::BIDE_ABI

#endif
