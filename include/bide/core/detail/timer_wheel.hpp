#ifndef BIDE_CORE_DETAIL_TIMER_WHEEL_HPP
#define BIDE_CORE_DETAIL_TIMER_WHEEL_HPP

// A hierarchical timing wheel (Varghese, Lauck, SOSP 1987, scheme 6) of intrusive nodes. Putting in
// and taking out are done in constant time, nothing is allocated, and no tick is needed: which slot
// is next stands in a bitmap.
//
// A time is a number of ticks of 1024 ns, with nine digits of six bits. `reached_` is the tick that
// the wheel has come to, not beyond the present. A node stands at the level of the highest digit in
// which its tick differs from `reached_`, in the slot of that digit. So everything at a level comes
// before everything at the levels above it, and the first slot of the lowest level that is occupied
// holds the next. When the time of a slot above level 0 has come, its nodes move down: once where
// they are few, one level at a time where they are many.
//
// Nodes of one tick are kept in the order of their times as long as few come out of order: where
// many do, a node may wait for another of its tick, less than 1024 ns. None is given out early.

#include <bide/core/config.hpp>

#include <bit>
#include <cstdint>
#include <limits>

namespace bide::inline BIDE_ABI {
namespace detail {

struct wheel_link {
    wheel_link* next = nullptr; // nullptr: in no list
    wheel_link* back = nullptr;
};

struct wheel_node : wheel_link {
    std::int64_t at = 0; // nanoseconds, not negative

    bool is_queued() const noexcept { return next != nullptr; }
};

class timer_wheel {
public:
    static constexpr std::int64_t never_ns = std::numeric_limits<std::int64_t>::max();

    // Requires: `n` is in no wheel; n.at is set.
    void push(wheel_node& n) noexcept {
        std::uint64_t tick = tick_of(n.at);
        tick = tick < reached_ ? reached_ : tick;
        const auto level = (static_cast<unsigned>(std::bit_width((tick ^ reached_) | 63)) - 1) / 6;
        wheel_link& end = open(level * 64 + digit(tick, level));
        wheel_link* after = end.back;
        if (level == 0) {
            for (int steps = 0; after != &end && at(after) > n.at && steps < 4; ++steps) {
                after = after->back;
            }
        }
        n.back = after;
        n.next = after->next;
        after->next->back = &n;
        after->next = &n;
    }

    // Requires: `n` is inside.
    void remove(wheel_node& n) noexcept {
        wheel_link* const next = n.next;
        wheel_link* const back = n.back;
        back->next = next;
        next->back = back;
        n.next = nullptr;
        if (next == back) { // the end of a list that is empty now
            close(static_cast<unsigned>(next - slots_));
        }
    }

    // Takes out a node whose time has come by `now`, the first of them. Makes at most `moves` moves
    // on the way and counts them down. nullptr: there is none, or, when is_moving(), ask again.
    wheel_node* take(std::int64_t now, unsigned& moves) noexcept;

    bool is_moving() const noexcept { return (used_ & 1u << levels) != 0; }

    // From when on take() may find something: the earliest time, or one before it if finding the
    // earliest would take long. never_ns: there is nothing. Requires: not is_moving().
    std::int64_t next_ns() const noexcept;

private:
    static constexpr unsigned levels = 9;
    static constexpr unsigned moving = levels * 64; // the list of those that are to move down
    static constexpr int few = 16; // so many nodes are looked at rather than moved once more

    static std::uint64_t tick_of(std::int64_t ns) noexcept {
        return ns < 0 ? 0 : static_cast<std::uint64_t>(ns) >> 10;
    }
    static unsigned digit(std::uint64_t tick, unsigned level) noexcept {
        return static_cast<unsigned>(tick >> (6 * level)) & 63;
    }
    static std::int64_t at(const wheel_link* l) noexcept {
        return static_cast<const wheel_node*>(l)->at;
    }

    // The list of a slot. Where its bit is not set, its end holds nothing yet.
    wheel_link& open(unsigned slot) noexcept {
        wheel_link& end = slots_[slot];
        const std::uint64_t bit = std::uint64_t{1} << (slot % 64);
        if ((occupied_[slot / 64] & bit) == 0) {
            occupied_[slot / 64] |= bit;
            used_ |= 1u << (slot / 64);
            end.next = end.back = &end;
        }
        return end;
    }
    void close(unsigned slot) noexcept {
        occupied_[slot / 64] &= ~(std::uint64_t{1} << (slot % 64));
        if (occupied_[slot / 64] == 0) {
            used_ &= ~(1u << (slot / 64));
        }
    }

    // Requires: not empty, not moving.
    unsigned first_slot() const noexcept {
        const auto level = static_cast<unsigned>(std::countr_zero(used_));
        return level * 64 + static_cast<unsigned>(std::countr_zero(occupied_[level]));
    }
    std::uint64_t start_of(unsigned slot) const noexcept {
        const unsigned shift = slot / 64 * 6;
        return (reached_ >> (shift + 6) << (shift + 6)) | std::uint64_t{slot % 64} << shift;
    }

    // The earliest time in a list of few; `many` where it is longer.
    std::int64_t earliest(const wheel_link& end, std::int64_t many) const noexcept {
        std::int64_t least = never_ns;
        int looked = 0;
        for (const wheel_link* l = end.next; l != &end; l = l->next) {
            if (++looked > few) {
                return many;
            }
            least = at(l) < least ? at(l) : least;
        }
        return least;
    }

    void descend(unsigned slot, std::uint64_t start, std::uint64_t now) noexcept;

    std::uint64_t reached_ = 0;
    std::uint32_t used_ = 0;                  // a bit for each level that is not empty, and for
    std::uint64_t occupied_[levels + 1] = {}; // each of its slots
    wheel_link slots_[moving + 1] = {};       // the ends of circular lists
};

// The nodes of the first slot, whose time has come, are to move down.
inline void timer_wheel::descend(unsigned slot, std::uint64_t start, std::uint64_t now) noexcept {
    wheel_link& from = slots_[slot];
    // Those few that are alone for a while go the whole way at once.
    const std::uint64_t least = tick_of(earliest(from, 0));
    const std::uint64_t to = least < now ? least : now;
    reached_ = to < start ? start : to;
    wheel_link& end = open(moving);
    end.next = from.next;
    end.back = from.back;
    end.next->back = end.back->next = &end;
    close(slot);
}

inline wheel_node* timer_wheel::take(std::int64_t now, unsigned& moves) noexcept {
    const std::uint64_t tick = tick_of(now);
    for (;;) {
        if (is_moving()) {
            if (moves == 0) {
                return nullptr;
            }
            --moves;
            auto& n = static_cast<wheel_node&>(*slots_[moving].next);
            remove(n);
            push(n);
            continue;
        }
        if (used_ == 0) {
            break;
        }
        const unsigned slot = first_slot();
        const std::uint64_t start = start_of(slot);
        if (start > tick) {
            break;
        }
        if (slot >= 64) {
            descend(slot, start, tick);
            continue;
        }
        auto& n = static_cast<wheel_node&>(*slots_[slot].next);
        if (n.at > now) {
            break;
        }
        remove(n);
        return &n;
    }
    // No slot begins before the present: every node keeps its place.
    reached_ = tick > reached_ ? tick : reached_;
    return nullptr;
}

inline std::int64_t timer_wheel::next_ns() const noexcept {
    if (used_ == 0) {
        return never_ns;
    }
    const unsigned slot = first_slot();
    if (slot < 64) {
        return at(slots_[slot].next);
    }
    return earliest(slots_[slot], static_cast<std::int64_t>(start_of(slot) << 10));
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
