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
#include <utility>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace durable { namespace detail {

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

// Returns true if times are on the boottime clock of the boot that wrote them.
inline bool has_boots(lock_clock clock) noexcept {
    return clock == lock_clock::boottime || clock == lock_clock::observed;
}
// Returns true if a contender of the boot `here` reads the times that one of `boot` wrote.
inline bool reads_times(lock_clock clock, const std::string& boot,
                        const std::string& here) noexcept {
    return !has_boots(clock) || (!boot.empty() && boot == here);
}
// Returns true if `self` may judge the entry by its times. With lock_clock::observed only the owner
// reads them: clones of a virtual machine may have one boot id and different clocks.
inline bool has_same_clock(const record& r, const origin& it, const origin& self) noexcept {
    return r.clock != lock_clock::observed && reads_times(r.clock, it.boot, self.boot);
}

// Sets the minimum hold time, which never ends after the lease.
inline void hold_until(const record& r, holder& h, std::int64_t time, const origin& self) {
    h.held_until = time;
    h.held_boot = has_boots(r.clock) ? self.boot : std::string();
}

// Begins a lease now. The new lease never ends before the present one, neither on the clock nor for
// a contender that observes it for its length.
inline void extend(const record& r, holder& h, std::int64_t lease_ms, std::int64_t now,
                   const origin& self) {
    // What is left of the lease; if that is not known here, at most all of it.
    const bool is_known = reads_times(r.clock, h.from.boot, self.boot);
    const std::int64_t left = is_known ? std::min(h.lease_ms, h.expires_at - now) : h.lease_ms;
    if (h.held_until != 0 && !reads_times(r.clock, h.held_boot, self.boot)) {
        hold_until(r, h, now + std::max<std::int64_t>(left, 0), self);
    }
    h.lease_ms = std::max(lease_ms, left);
    h.expires_at = is_known ? std::max(h.expires_at, now + lease_ms) : now + h.lease_ms;
    if (!is_known) { // from here on the times are on this clock
        const std::int64_t mark = h.from.pid == 0 ? h.from.mark : 0;
        h.from = self;
        if (mark != 0) { // the mark is not of this process: children may have it
            h.from.pid = h.from.start = h.from.space = h.from.network = 0;
            h.from.mark = mark;
        }
    }
    h.renewals = next_move(h.renewals);
    h.observed.clear();
}

// Makes a resting entry of a grant that is released now. Returns false if its minimum hold time has
// passed. What is left is at most the lease, wherever a clock was set back.
inline bool rest(const record& r, holder& h, std::int64_t now, const origin& self) {
    if (h.held_until == 0) {
        return false;
    }
    now = std::clamp<std::int64_t>(now, 0, largest_time);
    if (reads_times(r.clock, h.held_boot, self.boot)) {
        h.lease_ms = std::min(h.lease_ms, h.held_until - now);
    }
    if (h.lease_ms <= 0) {
        return false;
    }
    h.expires_at = now + h.lease_ms;
    hold_until(r, h, h.expires_at, self);
    h.nonce = "rest-" + std::to_string(h.fence);
    h.from = {h.from.host, self.boot};
    h.renewals = next_move(h.renewals);
    h.observed.clear();
    return true;
}

// A contender's place in the queue, or the one that it would get.
struct queue_place {
    std::size_t index = 0;   // how many waiters are ahead of the contender
    std::int64_t weight = 0; // the permits that they wait for
    bool is_taken = false;   // the contender has this place
};
inline queue_place place_of(const record& r, std::string_view nonce) noexcept {
    queue_place place;
    for (const waiter& w : r.waiters) {
        if (w.nonce == nonce) {
            place.is_taken = true;
            break;
        }
        ++place.index;
        place.weight += w.weight;
    }
    return place;
}

// Compares descriptions, whatever the order of their labels.
inline bool tells_same(const description& a, const description& b) noexcept {
    return a.note == b.note &&
           std::is_permutation(a.labels.begin(), a.labels.end(), b.labels.begin(), b.labels.end());
}

// Writes down the grant that pass_on() is to make, if the contender listens.
inline void plan_grant(waiter& mine, const terms& t) noexcept {
    mine.lease_ms = t.listens ? t.lease_ms : 0;
    mine.at_least_ms = t.listens ? t.at_least_ms : 0;
}

// Keeps the contender's place in the queue from expiring. Returns true if the record has changed.
inline bool refresh(waiter& mine, const contender& self, const terms& t, std::int64_t now) {
    const std::int64_t left = mine.expires_at - now;
    const std::pair planned(mine.lease_ms, mine.at_least_ms);
    plan_grant(mine, t);
    if (left >= t.waiter_ttl_ms - t.waiter_ttl_ms / 3 && left <= t.waiter_ttl_ms &&
        std::pair(mine.lease_ms, mine.at_least_ms) == planned && mine.from == self.from &&
        tells_same(mine.about, self.about)) {
        return false;
    }
    mine.about = self.about;
    mine.ttl_ms = t.waiter_ttl_ms;
    mine.expires_at = now + t.waiter_ttl_ms;
    mine.refreshes = next_move(mine.refreshes);
    mine.from = self.from;
    mine.observed.clear();
    return true;
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
            const std::int64_t over = h.expires_at + (is_resting(h) ? 0 : grace_ms);
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
    return bide::detail::integer_cast<std::size_t>(
               (static_cast<std::uint64_t>(now) * 0x9e3779b97f4a7c15U) >> 33) %
           size;
}

// Stores that a contender of that boot sees the entry at `now`. False: that is stored already.
template <class Entry> bool observe(Entry& e, std::int64_t now, const std::string& boot) {
    const stored_observation* const known = find_observation(e, boot);
    if (known != nullptr && known->since <= now) { // a time in the future is of another clock
        return false;
    }
    std::erase_if(e.observed, [&](const stored_observation& old) {
        return old.moves != moves_of(e) || old.boot == boot;
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

}}}} // namespace bide::BIDE_ABI::durable::detail

#endif
