#ifndef BIDE_CHANNEL_RING_HPP
#define BIDE_CHANNEL_RING_HPP

// A bounded queue of many producers and many consumers, and nothing about waiting. (Vyukov, "Bounded
// MPMC queue", 2010, with laps in place of sequence numbers as crossbeam-channel has them, so that
// any capacity from 1 on is exact.)
//
// A position is {lap, mark, index} in one Stamp: index < capacity <= mark - 1, and a lap is twice
// the mark. `head_` is the position of the next item to be taken, `tail_` that of the next to be
// put; the mark, in the tail only, says closed. Each slot has a stamp:
//
//   stamp of the slot at position p
//   p             empty, for whoever moves the tail from p to the next position
//   p + 1         full, for whoever moves the head from p to the next position
//   p + lap       empty again, for the next lap
//
// A push is three steps: claim the slot, by moving the tail; construct; publish, by storing the
// stamp. A pop is the same with the head. So the two positions tell at every instant how many items
// have been claimed in and not claimed out: empty is head == tail, full is head + lap == tail,
// closed for a receiver is empty under the mark. A slot whose stamp lags behind is neither, it is
// busy: its claimer is between two steps, and will publish.
//
// head_, tail_ and what is put beside them by an owner (channel_core.hpp) make a pair [C1]: both
// move by seq_cst steps, and what decides "empty" and "full" reads them so.

#include <bide/channel/detail/element.hpp>
#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <type_traits>

namespace bide::inline BIDE_ABI {

// What came of one attempt at a ring. not_now: full, or empty.
enum class attempt : unsigned char { done, not_now, busy, closed };

template <class T, class Platform = native_platform, class Stamp = std::uint64_t> class basic_ring {
    static_assert(detail::is_element<T>);
    static_assert(std::is_unsigned_v<Stamp>);

    struct slot {
        typename Platform::template atomic<Stamp> stamp{0};
        alignas(T) std::byte place[sizeof(T)];
    };

public:
    // The most there is room for in a position. Far beyond any memory, where Stamp has 64 bits.
    static constexpr std::size_t max_capacity() noexcept {
        constexpr Stamp most = ((std::numeric_limits<Stamp>::max)() >> 4) - 1;
        constexpr std::size_t bytes = (std::numeric_limits<std::ptrdiff_t>::max)() / sizeof(slot);
        return most < bytes ? static_cast<std::size_t>(most) : bytes;
    }

    // A capacity of 0 is always full and always empty.
    // Throws: std::length_error past max_capacity(), std::bad_alloc.
    explicit basic_ring(std::size_t capacity);

    // What is inside is not destroyed: the owner pops it first.
    ~basic_ring();

    basic_ring(const basic_ring&) = delete;
    basic_ring& operator=(const basic_ring&) = delete;

    // Slots that the claimer alone may touch, from begin_push() or begin_pop() to end().
    class claim {
    public:
        claim() noexcept = default;
        std::size_t size() const noexcept { return count_; }

    private:
        friend class basic_ring;
        claim(Stamp first, Stamp more, std::size_t count) noexcept
            : first_(first), more_(more), count_(count) {}
        Stamp first_ = 0; // the position
        Stamp more_ = 0;  // from a position to the stamp that publishes it
        std::size_t count_ = 0;
    };

    // Claims up to `most` consecutive slots in one step, as many as are ready: empty ones at the
    // tail, or full ones at the head. Never waits.
    // Requires: 1 <= most <= capacity(), or `most` is one().
    using one = std::integral_constant<std::size_t, 1>;
    template <class Count = one> attempt begin_push(claim& c, Count most = {}) noexcept;
    template <class Count = one> attempt begin_pop(claim& c, Count most = {}) noexcept;

    // Where the item of the first slot, or the i-th, is or is to be constructed.
    void* place(const claim& c) const noexcept { return slot_of(c.first_).place; }
    void* place(const claim& c, std::size_t i) const noexcept {
        return slot_of(next(c.first_, i)).place;
    }
    T& item(const claim& c) const noexcept { return item_at(place(c)); }
    T& item(const claim& c, std::size_t i) const noexcept { return item_at(place(c, i)); }

    // The slots of a claim one after the other, which costs less than by number.
    class cursor;
    cursor cells(const claim& c) const noexcept { return cursor(*this, c.first_, c.more_); }

    // Publishes the first slot, or the i-th, full or empty. The last touch of the ring.
    void end(const claim& c) noexcept { end_at(c.first_, c.more_); }
    void end(const claim& c, std::size_t i) noexcept { end_at(next(c.first_, i), c.more_); }

    // No more pushes begin. True the first time.
    bool close() noexcept {
        // Order: release; what was done before is seen by who finds the mark, for every look at the
        // tail that decides is seq_cst [C1].
        return (tail_.fetch_or(mark_, std::memory_order_release) & mark_) == 0;
    }
    bool is_closed() const noexcept {
        // Order: relaxed; a snapshot.
        return (tail_.load(std::memory_order_relaxed) & mark_) != 0;
    }

    // Whether a pop, or a push, would have to wait now; closed is no reason to wait for a push.
    // Order: seq_cst [C1], the other side's; the second half of a pair, in which the first raised a
    // flag. Relaxed, this side's own; an old one says less, and another attempt decides.
    bool is_empty() const noexcept {
        const Stamp tail = tail_.load(std::memory_order_seq_cst);
        return head_.load(std::memory_order_relaxed) == (tail & ~mark_);
    }
    bool is_full() const noexcept {
        // Order: relaxed and seq_cst [C1]; as above.
        const Stamp tail = tail_.load(std::memory_order_relaxed);
        return static_cast<Stamp>(head_.load(std::memory_order_seq_cst) + lap_) == tail;
    }

    // Whether an attempt would find it busy; another attempt decides. The position is looked at
    // twice: an old one has a slot that is ahead, not behind.
    bool push_is_busy() const noexcept {
        // Order: relaxed, here and below; only to wait for a better moment.
        const Stamp tail = tail_.load(std::memory_order_relaxed);
        return (tail & mark_) == 0 && slot_of(tail).stamp.load(std::memory_order_relaxed) != tail &&
               !is_full() && tail_.load(std::memory_order_relaxed) == tail;
    }
    bool pop_is_busy() const noexcept {
        // Order: relaxed, here and below; as above.
        const Stamp head = head_.load(std::memory_order_relaxed);
        return slot_of(head).stamp.load(std::memory_order_relaxed) !=
                   static_cast<Stamp>(head + 1) &&
               !is_empty() && head_.load(std::memory_order_relaxed) == head;
    }

    std::size_t capacity() const noexcept { return capacity_; }

    // How many were claimed in and not claimed out, at one instant.
    std::size_t size() const noexcept;

private:
    static T& item_at(void* place) noexcept { return *std::launder(static_cast<T*>(place)); }

    void end_at(Stamp position, Stamp more) noexcept {
        // Order: release [R1]; the item, or its being gone, is seen by who claims the slot next.
        slot_of(position).stamp.store(static_cast<Stamp>(position + more),
                                      std::memory_order_release);
    }

    slot& slot_of(Stamp position) const noexcept {
        return slots_[static_cast<std::size_t>(position & (mark_ - 1))];
    }

    // The position n <= capacity further on.
    Stamp next(Stamp position, std::size_t n) const noexcept {
        const std::size_t at = static_cast<std::size_t>(position & (mark_ - 1)) + n;
        return static_cast<Stamp>(
            at < capacity_ ? position + n : (position & ~(lap_ - 1)) + lap_ + (at - capacity_));
    }

    // Another one was faster: leaves the index to others for a moment, a longer one each time.
    static void make_way(int& failed) noexcept {
        if constexpr (!Platform::model) {
            for (int left = 1 << failed; left > 0; --left) {
                Platform::pause();
            }
            failed = failed < 6 ? failed + 1 : 6;
        }
    }

    // How many of the `most` slots from `first` on have the stamp position + more.
    template <class Count>
    std::size_t count_ready(Stamp first, Stamp more, Count most) const noexcept;

    using index = typename Platform::template atomic<Stamp>;

    slot* const slots_;
    const std::size_t capacity_;
    const Stamp mark_;
    const Stamp lap_; // 0 where the capacity is
    alignas(cache_line_pair) index head_{0};
    alignas(cache_line_pair) index tail_{0};
};

template <class T, class Platform, class Stamp> class basic_ring<T, Platform, Stamp>::cursor {
public:
    void* place() const noexcept { return at_->place; }
    T& item() const noexcept { return item_at(place()); }

    // Order: release [R1]; as end_at().
    void end() const noexcept { at_->stamp.store(turn(), std::memory_order_release); }

    // Order: acquire [R1]; the item, or that who took the last one out is done with the slot.
    bool is_ready() const noexcept { return at_->stamp.load(std::memory_order_acquire) == turn(); }

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
    cursor(const basic_ring& r, Stamp position, Stamp more) noexcept
        : at_(&r.slot_of(position)), first_(r.slots_), last_(r.slots_ + r.capacity_ - 1),
          position_(position), more_(more),
          to_next_lap_(static_cast<Stamp>(r.lap_ - (r.capacity_ - 1))) {}

    Stamp turn() const noexcept { return static_cast<Stamp>(position_ + more_); }

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
          return std::allocator<slot>().allocate(capacity == 0 ? 1 : capacity);
      }()),
      capacity_(capacity), mark_(std::bit_ceil(static_cast<Stamp>(capacity + 1))),
      lap_(capacity == 0 ? Stamp{0} : static_cast<Stamp>(mark_ * 2)) {
    for (std::size_t i = 0; i < capacity || i == 0; ++i) {
        ::new (static_cast<void*>(slots_ + i)) slot;
        // Order: relaxed; whoever gets to see the ring sees it whole. Without a capacity, a stamp
        // that is never anybody's turn.
        slots_[i].stamp.store(static_cast<Stamp>(capacity == 0 ? 2 : i), std::memory_order_relaxed);
    }
}

template <class T, class Platform, class Stamp> basic_ring<T, Platform, Stamp>::~basic_ring() {
    const std::size_t count = capacity_ == 0 ? 1 : capacity_;
    std::destroy_n(slots_, count);
    std::allocator<slot>().deallocate(slots_, count);
}

template <class T, class Platform, class Stamp>
template <class Count>
attempt basic_ring<T, Platform, Stamp>::begin_push(claim& c, Count most) noexcept {
    // Order: seq_cst [C1]; a tail and the head that is read after it are of one instant, for all
    // who look.
    Stamp tail = tail_.load(std::memory_order_seq_cst);
    for (int failed = 0;;) {
        if ((tail & mark_) != 0) {
            return attempt::closed;
        }
        if (const std::size_t n = count_ready(tail, 0, most); n != 0) {
            const Stamp first = tail;
            // Order: seq_cst [C1]; the first half of a pair, whose second is a look at flags.
            // Failure: as the load above; look again.
            if (tail_.compare_exchange_weak(tail, next(tail, n), std::memory_order_seq_cst,
                                            std::memory_order_seq_cst)) {
                c = claim(first, 1, n);
                return attempt::done;
            }
            make_way(failed);
            continue;
        }
        // Order: seq_cst [C1]; whether it is full is for the positions to say.
        const Stamp head = head_.load(std::memory_order_seq_cst);
        // Order: seq_cst [C1]; as the first. An old tail is found out.
        const Stamp now = tail_.load(std::memory_order_seq_cst);
        if (now == tail) {
            return static_cast<Stamp>(head + lap_) == tail ? attempt::not_now : attempt::busy;
        }
        tail = now;
    }
}

template <class T, class Platform, class Stamp>
template <class Count>
attempt basic_ring<T, Platform, Stamp>::begin_pop(claim& c, Count most) noexcept {
    // Order: seq_cst [C1]; a head and the tail that is read after it are of one instant, for all
    // who look.
    Stamp head = head_.load(std::memory_order_seq_cst);
    for (int failed = 0;;) {
        if (const std::size_t n = count_ready(head, 1, most); n != 0) {
            const Stamp first = head;
            // Order: seq_cst [C1]; as the tail in begin_push. Failure: as the load above.
            if (head_.compare_exchange_weak(head, next(head, n), std::memory_order_seq_cst,
                                            std::memory_order_seq_cst)) {
                c = claim(first, lap_, n);
                return attempt::done;
            }
            make_way(failed);
            continue;
        }
        // Order: seq_cst [C1]; whether it is empty is for the positions to say.
        const Stamp tail = tail_.load(std::memory_order_seq_cst);
        // Order: seq_cst [C1]; an old head is found out, as in begin_push.
        const Stamp now = head_.load(std::memory_order_seq_cst);
        if (now == head) {
            return static_cast<Stamp>(tail & ~mark_) != head ? attempt::busy
                   : (tail & mark_) != 0                     ? attempt::closed
                                                             : attempt::not_now;
        }
        head = now;
    }
}

template <class T, class Platform, class Stamp>
template <class Count>
std::size_t basic_ring<T, Platform, Stamp>::count_ready(Stamp first, Stamp more,
                                                        Count most) const noexcept {
    if constexpr (std::is_same_v<Count, one>) {
        // Order: acquire [R1]; as cursor::is_ready().
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

template <class T, class Platform, class Stamp>
std::size_t basic_ring<T, Platform, Stamp>::size() const noexcept {
    // Order: seq_cst, all three; the head is of an instant at which the tail was what it is. [C1]
    Stamp tail = tail_.load(std::memory_order_seq_cst);
    for (;;) {
        const Stamp head = head_.load(std::memory_order_seq_cst);
        const Stamp now = tail_.load(std::memory_order_seq_cst);
        if (now == tail) {
            const Stamp end = static_cast<Stamp>(tail & ~mark_);
            const auto from = static_cast<std::size_t>(head & (mark_ - 1));
            const auto to = static_cast<std::size_t>(end & (mark_ - 1));
            return from < to ? to - from : end == head ? 0 : capacity_ - from + to;
        }
        tail = now;
    }
}

} // namespace bide::inline BIDE_ABI

#endif
