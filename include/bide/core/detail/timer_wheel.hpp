// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_TIMER_WHEEL_HPP
#define BIDE_CORE_DETAIL_TIMER_WHEEL_HPP

// A hierarchical timing wheel (Varghese, Lauck, SOSP 1987, scheme 6) of intrusive nodes. Inserting
// and removing a node take constant time and no memory. No thread has to tick: a bitmap names the
// next occupied slot.
//
// A time is a number of ticks of 1024 ns, written in nine digits of six bits. `reached_` is the
// tick that the wheel has reached, never later than the present. A node is at the level of the
// highest digit in which its tick differs from `reached_`, in the slot of that digit. So all nodes
// at a level come before all nodes at higher levels, and the first occupied slot of the lowest
// occupied level holds the next node. When the time of a slot above level 0 has come, its nodes
// move down: a few nodes move to their final level at once, many nodes move one level at a time.
//
// Nodes of one tick stay in the order of their times if few of them arrive out of order. If many
// do, a node may wait for another node of its tick, for less than 1024 ns. No node is returned
// early.

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
    static constexpr std::int64_t never_ns = (std::numeric_limits<std::int64_t>::max)();

    // Inserts `n`.
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

    // Removes `n`.
    // Requires: `n` is in this wheel.
    void remove(wheel_node& n) noexcept {
        wheel_link* const next = n.next;
        wheel_link* const back = n.back;
        back->next = next;
        next->back = back;
        n.next = nullptr;
        if (next == back) { // both are the end of the list, which is empty now
            close(static_cast<unsigned>(next - slots_));
        }
    }

    // Removes and returns the first node that is due at `now`, or one behind it: passes over up to
    // `skipped` nodes of its tick, as long as the next one is due, too. Makes at most `moves` moves and
    // decrements `moves` for each. Returns nullptr if no node is due. Also returns nullptr if the
    // moves are spent; then is_moving() is true and the caller calls again.
    wheel_node* take(std::int64_t now, unsigned& moves, unsigned skipped = 0) noexcept;

    // Returns whether nodes are still to move down.
    bool is_moving() const noexcept { return (used_ & 1u << levels) != 0; }

    // Returns the earliest time of a node, or a time before it if the search would take long;
    // never_ns if the wheel is empty.
    // Requires: !is_moving().
    std::int64_t next_ns() const noexcept;

private:
    static constexpr unsigned levels = 9;
    static constexpr unsigned moving = levels * 64; // the list of nodes that are to move down
    static constexpr int few = 16;                  // a list up to this length is searched

    static std::uint64_t tick_of(std::int64_t ns) noexcept {
        return ns < 0 ? 0 : static_cast<std::uint64_t>(ns) >> 10;
    }
    static unsigned digit(std::uint64_t tick, unsigned level) noexcept {
        return static_cast<unsigned>(tick >> (6 * level)) & 63;
    }
    static std::int64_t at(const wheel_link* l) noexcept {
        return static_cast<const wheel_node*>(l)->at;
    }

    // Returns the list of a slot. If the slot's bit is not set, makes the list empty and sets the
    // bit.
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

    // Requires: the wheel is not empty, and !is_moving().
    unsigned first_slot() const noexcept {
        const auto level = static_cast<unsigned>(std::countr_zero(used_));
        return level * 64 + static_cast<unsigned>(std::countr_zero(occupied_[level]));
    }
    std::uint64_t start_of(unsigned slot) const noexcept {
        const unsigned shift = slot / 64 * 6;
        return (reached_ >> (shift + 6) << (shift + 6)) | std::uint64_t{slot % 64} << shift;
    }

    // Returns the earliest time in a list of at most `few` nodes; `many` if the list is longer.
    std::int64_t earliest(const wheel_link& end, std::int64_t many) const noexcept {
        std::int64_t least = never_ns;
        int count = 0;
        for (const wheel_link* l = end.next; l != &end; l = l->next) {
            if (++count > few) {
                return many;
            }
            least = at(l) < least ? at(l) : least;
        }
        return least;
    }

    void descend(unsigned slot, std::uint64_t start, std::uint64_t now) noexcept;

    std::uint64_t reached_ = 0;
    std::uint32_t used_ = 0;                  // a bit for each level with nodes
    std::uint64_t occupied_[levels + 1] = {}; // a bit for each slot with nodes
    wheel_link slots_[moving + 1] = {};       // the ends of circular lists
};

// Moves the nodes of the first slot to the list `moving`, because the time of the slot has come.
inline void timer_wheel::descend(unsigned slot, std::uint64_t start, std::uint64_t now) noexcept {
    wheel_link& from = slots_[slot];
    // A short list moves to its final level at once: `reached_` advances to its earliest node.
    const std::uint64_t least = tick_of(earliest(from, 0));
    const std::uint64_t to = least < now ? least : now;
    reached_ = to < start ? start : to;
    wheel_link& end = open(moving);
    end.next = from.next;
    end.back = from.back;
    end.next->back = end.back->next = &end;
    close(slot);
}

inline wheel_node* timer_wheel::take(std::int64_t now, unsigned& moves, unsigned skipped) noexcept {
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
        wheel_link* l = slots_[slot].next;
        if (at(l) > now) {
            break;
        }
        for (; skipped != 0 && l->next != &slots_[slot] && at(l->next) <= now; --skipped) {
            l = l->next;
        }
        auto& n = static_cast<wheel_node&>(*l);
        remove(n);
        return &n;
    }
    // No slot begins before the present, so every node keeps its slot.
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
