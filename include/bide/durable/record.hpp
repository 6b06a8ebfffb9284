// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_RECORD_HPP
#define BIDE_DURABLE_RECORD_HPP

/// \file
/// The rules of durable locks: a lock is one record, and these rules say how it may change.
///
/// Nothing here reads a clock, a store or a process. A rule takes a record and what the caller
/// knows, changes the record, and returns the outcome. A caller that stores the changed record by
/// compare-and-swap has a lock.
///
/// Holders hold permits. Waiters are in the order of arrival. A contender is identified by the
/// nonce of its ticket: two contenders with the same name are still two. A contender whose request
/// was carried out, but whose reply was lost, finds itself in the record. Every grant gets a
/// fencing token that is larger than all earlier tokens, which a resource can check. It also gets a
/// lane, the lowest number that no other holder has, for resources that come in `permits` copies.
///
/// No entry stays forever. A grant ends when its lease expires. A place in the queue ends if its
/// waiter does not refresh it in time. The caller supplies the judge that decides this:
/// \code
/// judge.expired(holder, grace)    // the lease expired at least `grace` milliseconds ago
/// judge.expired(waiter, at_head)  // the waiter is gone; at_head: no live waiter is before it
/// \endcode
/// See durable/expiry.hpp.
///
/// A grant may have a minimum hold time: so long after the grant, no other contender gets its
/// permits. If it is released earlier, its entry rests until then. If its process ends, its lease
/// goes on until then: such a lease is never shorter than the minimum hold time.
///
/// Admission is by prefix sums. A contender is granted its permits if the free permits suffice for
/// all waiters before it and for itself. So the order is kept, and free permits need not wait until
/// the first waiter calls. A contender of all permits, for example a writer, is not starved by
/// contenders of one permit.
///
/// All times are in milliseconds, on the clock that the record names.

#include <bide/core/config.hpp>
#include <bide/durable/detail/record_entries.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/record_types.hpp>
#include <bide/durable/slot.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace durable {

/// Makes an empty record, for the first contender.
inline record fresh_record(const terms& t) {
    record r;
    r.permits = t.permits;
    r.clock = t.clock;
    r.fence = std::clamp<std::int64_t>(t.first_fence, 1, largest_first_fence);
    return r;
}

/// Returns the first token of a record that is made at `unix_ms`, in milliseconds since 1970.
///
/// It is larger than every token of a record that was lost, unless the clock is behind that
/// record's last grant: it was set back, or it is the clock of another machine. No lock grants
/// 1,024 times per millisecond. The token reaches 2^53 in the year 2248. `us` is the microseconds
/// of that millisecond, if the clock tells them.
inline std::int64_t floor_of(std::int64_t unix_ms, std::int64_t us = 0) noexcept {
    constexpr std::int64_t room = std::int64_t{1} << 40;
    constexpr std::int64_t highest = largest_number - room;
    return std::clamp<std::int64_t>(unix_ms, 0, highest / 1024) * 1024 + 1 + us;
}

/// Returns an error if a description is not valid. Does not check that it is UTF-8.
inline std::error_code check(const description& about) noexcept {
    bool good = about.note.size() <= longest_note && about.labels.size() <= most_labels;
    for (auto one = about.labels.begin(); one != about.labels.end(); ++one) {
        const auto has_key = [&](const label& other) { return other.key == one->key; };
        good = good && !one->key.empty() && one->key.size() <= longest_label &&
               one->value.size() <= longest_label &&
               std::none_of(about.labels.begin(), one, has_key);
    }
    return good ? std::error_code() : make_error_code(durable_errc::invalid_argument);
}
/// Returns an error if a contender is not valid.
inline std::error_code check(const contender& self) noexcept {
    const bool named = !self.holder_id.empty() && self.holder_id.size() <= longest_name &&
                       !self.nonce.empty() && self.nonce.size() <= longest_name;
    return named && self.weight >= 1 && self.weight <= largest_permits
               ? check(self.about)
               : make_error_code(durable_errc::invalid_argument);
}
/// Returns an error if the terms or the time are not valid.
inline std::error_code check(const terms& t, std::int64_t now) noexcept {
    const auto is_within = [](std::int64_t n, std::int64_t least, std::int64_t most) {
        return n >= least && n <= most;
    };
    const bool meant =
        is_within(t.permits, 1, largest_permits) && is_within(t.lease_ms, 1, largest_duration) &&
        is_within(t.at_least_ms, 0, largest_duration) &&
        is_within(t.waiter_ttl_ms, 1, largest_duration) &&
        is_within(t.reclaim_delay_ms, 0, largest_duration) && is_within(now, 0, largest_time);
    return meant ? std::error_code() : make_error_code(durable_errc::invalid_argument);
}

/// Returns the number of free permits. It is negative if a resize() has left fewer permits than are
/// held.
inline std::int64_t free_permits(const record& r) noexcept {
    std::int64_t free = r.permits;
    for (const holder& h : r.holders) {
        free -= h.weight;
    }
    return free;
}

/// Removes the entries that have expired, except the place of `self` in the queue. A resting entry
/// has no grace: its holder does not work any more.
template <class Judge>
void sweep(record& r, const Judge& judge, std::int64_t grace_ms, std::string_view self = {}) {
    std::erase_if(r.holders,
                  [&](const auto& of) { return judge.expired(of, is_resting(of) ? 0 : grace_ms); });
    bool at_head = true;
    std::erase_if(r.waiters, [&](const waiter& one) {
        if (one.nonce == self) {
            at_head = false;
            return false;
        }
        const bool gone = judge.expired(one, at_head);
        at_head = at_head && gone;
        return gone;
    });
}

namespace detail {

inline acquire_outcome refused(std::error_code why, bool changed = false) noexcept {
    acquire_outcome out;
    out.error = why;
    out.changed = changed;
    return out;
}

// Returns an error if a contender cannot ask for permits of this record, whatever is held of it.
inline std::error_code check(const record& r, const contender& self, const terms& t,
                             std::int64_t now) noexcept {
    if (durable::check(self) || durable::check(t, now)) {
        return make_error_code(durable_errc::invalid_argument);
    }
    if (r.clock != t.clock) {
        return make_error_code(durable_errc::clock_mismatch);
    }
    return r.permits == t.permits || t.adopt_permits
               ? std::error_code()
               : make_error_code(durable_errc::permits_mismatch);
}

// Gives a record without holders and waiters the permits of the terms. Returns false if the record
// has other permits, and holders or waiters.
inline bool adopt(record& r, const terms& t) noexcept {
    if (r.permits == t.permits) {
        return true;
    }
    if (!r.holders.empty() || !r.waiters.empty()) {
        return false;
    }
    r.permits = t.permits;
    return true;
}

// The outcome of a contender that holds its permits now.
inline acquire_outcome has_permits(acquire_status status, const holder& mine) {
    acquire_outcome out;
    out.status = status;
    out.changed = true;
    out.fence = mine.fence;
    out.lane = mine.lane;
    return out;
}

// Answers a contender that listens, and finds the grant that pass_on() has made for it. Returns nothing
// if there is none, if its times are on another clock, or if most of its lease is over.
inline std::optional<acquire_outcome> found_grant(record& r, const contender& self, const terms& t,
                                                  std::int64_t now) {
    const holder* const mine = t.listens ? find_holder(r, self.nonce, 0) : nullptr;
    const std::int64_t left = mine != nullptr ? mine->expires_at - now : 0;
    if (left <= t.lease_ms / 2 || left > mine->lease_ms || mine->weight != self.weight ||
        !has_same_clock(r, mine->from, self.from)) {
        return std::nullopt;
    }
    acquire_outcome out = has_permits(acquire_status::held, *mine);
    out.changed = false;
    out.expires_at = mine->expires_at;
    return out;
}

// Answers a contender that holds its permits already, and extends its lease.
inline acquire_outcome already_holds(const record& r, holder& mine, const contender& self,
                                     const terms& t, std::int64_t now) {
    if (mine.weight != self.weight) {
        return refused(durable_errc::invalid_argument);
    }
    extend(r, mine, t.lease_ms, now, self.from);
    mine.from = self.from;
    mine.about = self.about;
    return has_permits(acquire_status::held, mine);
}

// Makes the contender a holder.
inline acquire_outcome grant(record& r, const queue_place& place, const contender& self,
                             const terms& t, std::int64_t now) {
    if (r.fence >= largest_number) {
        return refused(durable_errc::corrupt_record);
    }
    if (place.is_taken) {
        r.waiters.erase(r.waiters.begin() + static_cast<std::ptrdiff_t>(place.index));
    }
    holder mine;
    mine.holder_id = self.holder_id;
    mine.nonce = self.nonce;
    mine.lane = lowest_free_lane(r);
    mine.fence = r.fence++;
    mine.weight = self.weight;
    mine.lease_ms = std::max(t.lease_ms, t.at_least_ms);
    mine.expires_at = now + mine.lease_ms;
    if (t.at_least_ms != 0) {
        hold_until(r, mine, now + t.at_least_ms, self.from);
    }
    mine.from = self.from;
    mine.about = self.about;
    r.holders.push_back(std::move(mine));
    return has_permits(acquire_status::granted, r.holders.back());
}

// Makes the contender wait, or returns that it would have to wait. Also stores the contender's
// observations, in two cases: the record changes anyway, or the contender has no place in the
// queue. A contender with a place may live long enough to observe by itself, so the record is not
// changed only for its observations.
inline acquire_outcome wait(record& r, const queue_place& place, const contender& self,
                            const terms& t, std::int64_t now) {
    acquire_outcome out;
    out.status = acquire_status::waiting;
    out.position = static_cast<std::int64_t>(place.index);
    out.next_ms = next_expiry(r, t.reclaim_delay_ms, self.from);
    if (place.is_taken) {
        out.changed = refresh(r.waiters[place.index], self, t, now);
    } else if (t.enqueue && r.waiters.size() >= t.max_waiters) {
        return refused(durable_errc::queue_full, observe(r, self, now));
    } else if (t.enqueue) {
        waiter mine;
        mine.holder_id = self.holder_id;
        mine.nonce = self.nonce;
        mine.weight = self.weight;
        mine.ttl_ms = t.waiter_ttl_ms;
        mine.expires_at = now + t.waiter_ttl_ms;
        mine.from = self.from;
        mine.about = self.about;
        plan_grant(mine, t);
        r.waiters.push_back(std::move(mine));
        out.changed = true;
    }
    if (out.changed || !place.is_taken) {
        out.is_only_observed = observe(r, self, now) && !out.changed;
        out.changed = out.is_only_observed || out.changed;
    }
    return out;
}

} // namespace detail

/// Acquires the permits if it is the contender's turn; otherwise enters the queue.
///
/// A further call keeps the place in the queue and its entry from expiring. A contender that holds
/// the permits already gets the same grant, and its lease begins again. A contender that listens
/// keeps the lease that pass_on() has begun.
///
/// If a contender is not granted its permits, it stores the time since which it has seen those
/// entries whose times it cannot read, unless a contender of its boot has stored such a time
/// already. So an acquisition that fails changes the record once, not at each try.
template <class Judge>
acquire_outcome acquire(record& r, const contender& self, const terms& t, std::int64_t now,
                        const Judge& judge) {
    if (const std::error_code error = detail::check(r, self, t, now)) {
        return detail::refused(error);
    }
    if (const auto found = detail::found_grant(r, self, t, now)) {
        return *found;
    }
    sweep(r, judge, t.reclaim_delay_ms, self.nonce);
    if (!detail::adopt(r, t)) {
        return detail::refused(durable_errc::permits_mismatch, detail::observe(r, self, now));
    }
    if (self.weight > r.permits) {
        return detail::refused(durable_errc::too_heavy);
    }
    if (holder* const mine = detail::find_holder(r, self.nonce, 0)) {
        return detail::already_holds(r, *mine, self, t, now);
    }
    const detail::queue_place place = detail::place_of(r, self.nonce);
    if (place.is_taken && r.waiters[place.index].weight != self.weight) {
        return detail::refused(durable_errc::invalid_argument);
    }
    return place.weight + self.weight <= free_permits(r) ? detail::grant(r, place, self, t, now)
                                                         : detail::wait(r, place, self, t, now);
}

/// Renews a lease: it begins again now, and is never shorter than before.
///
/// A lease that expired is lost, even if no contender has taken the permits. There is one
/// exception: the terms allow revival, the permits are free, and the first waiter does not get
/// them. The second condition is needed because a record that was lost may have granted the
/// permits to another contender. `self` tells where the caller runs.
template <class Judge>
renew_outcome renew(record& r, std::string_view nonce, std::int64_t fence, const terms& t,
                    std::int64_t now, const Judge& judge, const origin& self) {
    renew_outcome out;
    if (check(t, now)) {
        out.error = make_error_code(durable_errc::invalid_argument);
        return out;
    }
    if (r.clock != t.clock) {
        out.error = make_error_code(durable_errc::clock_mismatch);
        return out;
    }
    out.status = renew_status::lost;
    holder* const mine = fence == 0 ? nullptr : detail::find_holder(r, nonce, fence);
    if (mine == nullptr) {
        return out;
    }
    if (judge.expired(*mine, 0)) {
        record others = r;
        sweep(others, judge, 0);
        const std::int64_t free = free_permits(others);
        const bool is_wanted = !others.waiters.empty() && others.waiters.front().weight <= free;
        if (!t.revive || is_wanted || mine->weight > free) {
            return out;
        }
    }
    holder longer = *mine;
    detail::extend(r, longer, t.lease_ms, now, self);
    const std::int64_t minimum = std::exchange(longer.held_until, 0);
    if (judge.expired(longer, 0)) {
        return out; // bound to a process that ended: other contenders will regard it as expired
    }
    longer.held_until = minimum;
    *mine = std::move(longer);
    out.status = renew_status::renewed;
    out.changed = true;
    return out;
}

/// Removes exactly the grant `fence` of this nonce. If `fence` is 0, removes any grant of this
/// nonce except the grant `how.but`; if there is none, removes the place in the queue. Does not
/// touch later grants.
///
/// If the minimum hold time of the grant has not passed at `now`, its entry stays and rests, unless
/// `how.undo`. `self` tells where the caller runs.
inline release_outcome release(record& r, std::string_view nonce, std::int64_t fence,
                               std::int64_t now, const origin& self, release_terms how = {}) {
    const auto mine = std::find_if(r.holders.begin(), r.holders.end(), [&](const holder& h) {
        return h.nonce == nonce && h.fence != how.but && (fence == 0 || h.fence == fence);
    });
    if (mine != r.holders.end()) {
        if (how.undo || !detail::rest(r, *mine, now, self)) {
            r.holders.erase(mine);
        }
        return {release_status::released, true};
    }
    const auto gone =
        fence != 0 ? 0
                   : std::erase_if(r.waiters, [&](const waiter& w) { return w.nonce == nonce; });
    return gone != 0 ? release_outcome{release_status::withdrawn, true} : release_outcome{};
}

/// Lists the holders and waiters, as the judge sees them now.
template <class Judge> inspection inspect(const record& r, const Judge& judge) {
    inspection seen{r, {}, {}, 0};
    sweep(seen.live, judge, 0);
    const auto left_of = [](const auto& all, const auto& live, auto& gone) {
        auto next = live.begin();
        for (const auto& one : all) {
            if (next != live.end() && next->nonce == one.nonce) {
                ++next;
            } else {
                gone.push_back(one);
            }
        }
    };
    left_of(r.holders, seen.live.holders, seen.expired);
    left_of(r.waiters, seen.live.waiters, seen.vanished);
    seen.free = free_permits(seen.live);
    return seen;
}

}}} // namespace bide::BIDE_ABI::durable

#endif
