// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_RECORD_ENTRIES_HPP
#define BIDE_DURABLE_DETAIL_RECORD_ENTRIES_HPP

// How the rules of durable/record.hpp change one entry of a record: a holder or a waiter.
//
// Observations are stored for contenders that live shorter than a lease. A contender cannot read
// the times of an entry if the writer of the entry belongs to another boot, or to an unknown one.
// If the contender's own boot is known, it then stores in the entry the time since which it has
// seen the entry unchanged. A later contender of the same boot goes on from that time.
//   - They end no lease early. An observation is stored by the compare-and-swap of the very value
//     that was seen, and is read on the clock that it was written on. Each move of the entry (a
//     renewal, a refresh) clears it; and where a writer that does not know of observations keeps it,
//     the count of moves is another one, which makes it void.
//   - Contenders of several boots do not undo each other's for ever. An observation that is valid is
//     replaced only where eight boots have stored one. While at most eight boots have contenders, at
//     most eight observations are stored between two moves of the entry: each boot stores one.
//     With more boots, each attempt stores one at most. It replaces any of the eight, as its time
//     has it, and not the oldest, which is the next to end the lease. So an observation outlives N
//     further boots with a probability of (7/8)^N. Contenders that live longer than the lease
//     observe it by themselves; they make no change for the sake of an observation.

#include <bide/core/config.hpp>
#include <bide/durable/record_types.hpp>
#include <bide/durable/slot.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bide::inline BIDE_ABI {
namespace durable {
namespace detail {

inline holder* find_holder(record& r, std::string_view nonce, std::int64_t fence) noexcept {
    for (holder& h : r.holders) {
        if (h.nonce == nonce && (fence == 0 || h.fence == fence)) {
            return &h;
        }
    }
    return nullptr;
}

// Returns the next count of moves. Observers only compare counts for equality.
inline std::int64_t next_move(std::int64_t moves) noexcept {
    return moves < largest_number ? moves + 1 : 0;
}

// Returns true if `self` reads the clock that the entry's times are on.
inline bool has_same_clock(const record& r, const origin& it, const origin& self) noexcept {
    return r.clock != lock_clock::observed &&
           (r.clock != lock_clock::boottime || (!it.boot.empty() && it.boot == self.boot));
}

// Begins a lease now. The new lease never ends before the present one, neither on the clock nor for
// a contender that observes it for its length.
inline void extend(const record& r, holder& h, std::int64_t lease_ms, std::int64_t now,
                   const origin& self) {
    if (has_same_clock(r, h.from, self)) {
        h.lease_ms = std::max(lease_ms, std::min(h.lease_ms, h.expires_at - now));
        h.expires_at = std::max(h.expires_at, now + lease_ms);
    } else { // how much is left is not known here: at most all of it
        h.lease_ms = std::max(lease_ms, h.lease_ms);
        h.expires_at = r.clock == lock_clock::observed ? std::max(h.expires_at, now + lease_ms)
                                                       : now + h.lease_ms;
        if (r.clock == lock_clock::boottime) { // from here on the times are on this clock
            const std::int64_t mark = h.from.pid == 0 ? h.from.mark : 0;
            h.from = self;
            if (mark != 0) { // the mark is not of this process: children may have it
                h.from.pid = h.from.start = h.from.space = 0;
                h.from.mark = mark;
            }
        }
    }
    h.renewals = next_move(h.renewals);
    h.observed.clear();
}

// Returns the lowest lane that no holder has.
inline std::int64_t lowest_free_lane(const record& r) {
    std::int64_t lane = 0;
    const auto is_taken = [&](const holder& h) { return h.lane == lane; };
    while (std::any_of(r.holders.begin(), r.holders.end(), is_taken)) {
        ++lane;
    }
    return lane;
}

// Returns when the next lease expires, of those whose clock `self` reads; 0 if there is none.
inline std::int64_t next_expiry(const record& r, std::int64_t grace_ms,
                                const origin& self) noexcept {
    std::int64_t next = 0;
    for (const holder& h : r.holders) {
        if (has_same_clock(r, h.from, self)) {
            const std::int64_t over = h.expires_at + grace_ms;
            next = next == 0 || over < next ? over : next;
        }
    }
    return next;
}

// Returns how often an entry moved: a grant was renewed, a place in the queue was refreshed.
inline std::int64_t moves_of(const holder& h) noexcept { return h.renewals; }
inline std::int64_t moves_of(const waiter& w) noexcept { return w.refreshes; }

// Returns what contenders of that boot have stored of an entry as it is; nullptr: nothing.
template <class Entry>
const stored_observation* find_observation(const Entry& e, std::string_view boot) noexcept {
    for (const stored_observation& o : e.observed) {
        if (o.boot == boot && o.moves == moves_of(e)) {
            return &o;
        }
    }
    return nullptr;
}

// Returns the index of the observation that is replaced at that time, out of `size`. Multiplies the
// time by 2^64 / (golden ratio) and uses the upper bits. So times at regular intervals are spread
// over all indices.
inline std::size_t to_be_replaced(std::int64_t now, std::size_t size) noexcept {
    return static_cast<std::size_t>((static_cast<std::uint64_t>(now) * 0x9e3779b97f4a7c15U) >> 33) %
           size;
}

// Stores that a contender of that boot sees the entry at `now`. False: that is stored already.
template <class Entry> bool observe(Entry& e, std::int64_t now, const std::string& boot) {
    const stored_observation* const known = find_observation(e, boot);
    if (known != nullptr && known->since <= now) { // a time in the future is of another clock
        return false;
    }
    std::erase_if(e.observed, [&](const stored_observation& o) {
        return o.moves != moves_of(e) || o.boot == boot;
    });
    if (e.observed.size() >= most_observations) {
        const std::size_t at = to_be_replaced(now, e.observed.size());
        e.observed.erase(e.observed.begin() + static_cast<std::ptrdiff_t>(at));
    }
    e.observed.push_back({boot, moves_of(e), now, {}});
    return true;
}

// Stores that a contender sees, at `now`, the entries whose times it cannot read. Stores nothing
// with lock_clock::observed: several machines, for example clones of a virtual machine, may have
// one boot id and different clocks. Returns false if there was nothing to store.
inline bool observe(record& r, const contender& self, std::int64_t now) {
    if (r.clock != lock_clock::boottime || self.from.boot.empty()) {
        return false;
    }
    bool changed = false;
    for (holder& h : r.holders) {
        if (!has_same_clock(r, h.from, self.from)) {
            changed = observe(h, now, self.from.boot) || changed;
        }
    }
    for (waiter& w : r.waiters) {
        if (w.nonce != self.nonce && !has_same_clock(r, w.from, self.from)) {
            changed = observe(w, now, self.from.boot) || changed;
        }
    }
    return changed;
}

} // namespace detail
} // namespace durable
} // namespace bide::inline BIDE_ABI

#endif
