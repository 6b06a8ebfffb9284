#ifndef BIDE_DURABLE_DETAIL_RECORD_ENTRIES_HPP
#define BIDE_DURABLE_DETAIL_RECORD_ENTRIES_HPP

// What the rules of durable/record.hpp do to one entry of a record: a holder, or a waiter.
//
// Observations are stored for contenders that live shorter than a lease. If a contender of a known
// boot cannot read the times of an entry, as its writer is of another boot or of an unknown one, the
// contender stores in the entry since when it has seen it. A later contender of the same boot goes on
// from there.
//   - They end no lease early. An observation is stored by the compare-and-swap of the very value
//     that was seen, and is read on the clock that it was written on. Each move of the entry (a
//     renewal, a refresh) clears it; and where a writer that does not know of observations keeps it,
//     the count of moves is another one, which makes it void.
//   - Contenders of several boots do not undo each other's for ever. An observation that is valid is
//     replaced only by that of a fifth boot, in the order of their coming. While at most four boots
//     have contenders, at most four observations are stored between two moves of the entry: after
//     four all are of these boots, and none of them stores a second one. With more boots, each
//     attempt stores one at most, and the contenders that live longer than the lease observe it by
//     themselves; they make no change for the sake of an observation.

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

// How often something moved, for who watches it: all that counts is that it is another number.
inline std::int64_t next_move(std::int64_t moves) noexcept {
    return moves < largest_number ? moves + 1 : 0;
}

// The holder's times are on the clock that `self` reads.
inline bool has_same_clock(const record& r, const origin& it, const origin& self) noexcept {
    return r.clock != lock_clock::observed &&
           (r.clock != lock_clock::boottime || (!it.boot.empty() && it.boot == self.boot));
}

// Begins a lease now that is never shorter than what is left of the present one: neither by the
// clock nor for an observer, which goes by its length.
inline void extend(const record& r, holder& h, std::int64_t lease_ms, std::int64_t now,
                   const origin& self) {
    if (has_same_clock(r, h.from, self)) {
        h.lease_ms = std::max(lease_ms, std::min(h.lease_ms, h.expires_at - now));
        h.expires_at = std::max(h.expires_at, now + lease_ms);
    } else { // what is left is not known here: all of it, at most
        h.lease_ms = std::max(lease_ms, h.lease_ms);
        h.expires_at = r.clock == lock_clock::observed ? std::max(h.expires_at, now + lease_ms)
                                                       : now + h.lease_ms;
        if (r.clock == lock_clock::boottime) { // the times are of this clock now
            const std::int64_t mark = h.from.pid == 0 ? h.from.mark : 0;
            h.from = self;
            if (mark != 0) { // it is not this process's: children may have it
                h.from.pid = h.from.start = h.from.space = 0;
                h.from.mark = mark;
            }
        }
    }
    h.renewals = next_move(h.renewals);
    h.observed.clear();
}

inline std::int64_t lowest_free_lane(const record& r) {
    std::int64_t lane = 0;
    const auto is_taken = [&](const holder& h) { return h.lane == lane; };
    while (std::any_of(r.holders.begin(), r.holders.end(), is_taken)) {
        ++lane;
    }
    return lane;
}

// When the next lease is over, of those whose clock can be read here; 0: there is none.
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

// How often an entry moved: a hold was renewed, a place in the queue refreshed.
inline std::int64_t moves_of(const holder& h) noexcept { return h.renewals; }
inline std::int64_t moves_of(const waiter& w) noexcept { return w.refreshes; }

// What contenders of that boot have stored of an entry as it is now; nullptr: nothing.
template <class Entry>
const stored_observation* find_observation(const Entry& e, std::string_view boot) noexcept {
    for (const stored_observation& o : e.observed) {
        if (o.boot == boot && o.moves == moves_of(e)) {
            return &o;
        }
    }
    return nullptr;
}

// Stores that a contender of that boot sees the entry at `now`. False: that is stored already.
template <class Entry> bool observe(Entry& e, std::int64_t now, const std::string& boot) {
    const stored_observation* const known = find_observation(e, boot);
    if (known != nullptr && known->since <= now) { // a time to come is of another clock
        return false;
    }
    std::erase_if(e.observed, [&](const stored_observation& o) {
        return o.moves != moves_of(e) || o.boot == boot;
    });
    if (e.observed.size() >= most_observations) {
        e.observed.erase(e.observed.begin(), e.observed.end() - (most_observations - 1));
    }
    e.observed.push_back({boot, moves_of(e), now, {}});
    return true;
}

// Stores that a contender sees, at `now`, the entries whose times it cannot read. Not with
// lock_clock::observed: several machines may have one boot id, clones of a virtual machine for
// example, and then not one clock. False: there is nothing to be stored.
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
