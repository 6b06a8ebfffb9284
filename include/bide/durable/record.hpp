// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_RECORD_HPP
#define BIDE_DURABLE_RECORD_HPP

/// \file
/// The rules of durable locks: a lock is one record, and these rules say how it may change.
///
/// Nothing here reads a clock, a store or a process. The caller stores the changed record.
///
/// A contender is identified by the nonce of its ticket. If a request was carried out and its reply
/// was lost, the contender finds its entry in the record. Every grant gets a fencing token that is
/// larger than all earlier ones, and a lane: a number below `permits` that no other holder has.
///
/// A grant ends when its lease expires. A place in the queue ends if it is not refreshed in time.
/// The caller supplies the judge that decides this (durable/expiry.hpp):
/// \code
/// judge.expired(holder)           // the lease expired, or the holder is gone
/// judge.expired(waiter, at_head)  // the waiter is gone; at_head: no live waiter is before it
/// \endcode
///
/// A contender is granted its permits if the free permits suffice for all waiters before it and for
/// itself. So the order of arrival is kept, and a contender that asks for all permits, for example
/// a writer, is not starved.
///
/// All times are in milliseconds, on the clock that the record names.

#include <bide/durable/errors.hpp>
#include <bide/durable/record_types.hpp>

namespace bide { inline namespace BIDE_ABI { namespace durable {

// ---- entries of a record
//
// A contender stores an observation in an entry whose times it cannot read: see durable/expiry.hpp.
//   - A stored observation ends no lease early. If the entry has changed after the contender saw
//     it, the compare-and-swap that stores the observation fails. A renewal or refresh of the entry
//     removes the observation, or makes it void: see stored_observation::moves.
//   - If an entry has eight observations, each of another boot, a further one replaces one that a
//     hash of the time selects. The oldest, the first to show the expiry, stays in 7 cases of 8.

namespace detail {

// Returns true if the text is UTF-8 of `least` to `most` bytes.
inline bool is_text(std::string_view text, std::size_t least, std::size_t most) noexcept {
    bool good = text.size() >= least && text.size() <= most;
    while (good && !text.empty()) {
        const std::size_t length = bide::detail::utf8_length(text);
        text.remove_prefix(length);
        good = length != 0;
    }
    return good;
}

// Returns the grant with that nonce and the token `fence`; 0 stands for any token except `but`.
// Returns nullptr if there is none.
inline holder* find_holder(record& r, std::string_view nonce, std::int64_t fence = 0,
                           std::int64_t but = 0) noexcept {
    const auto found = std::ranges::find_if(r.holders, [&](const holder& h) {
        return h.nonce == nonce && h.fence != but && (fence == 0 || h.fence == fence);
    });
    return found != r.holders.end() ? &*found : nullptr;
}

// Returns the count of moves (moves_of()) after one more. Only equality of counts matters.
inline std::int64_t next_move(std::int64_t moves) noexcept {
    return moves < largest_number ? moves + 1 : 0;
}

// Returns true if times are on the boottime clock of the boot that wrote them.
inline bool has_boots(lock_clock clock) noexcept {
    return clock == lock_clock::boottime || clock == lock_clock::observed;
}
// Returns true if a contender of the boot `here` can read the times that one of `boot` wrote.
inline bool reads_times(lock_clock clock, const std::string& boot,
                        const std::string& here) noexcept {
    return !has_boots(clock) || (!boot.empty() && boot == here);
}
// Returns true if `self` may judge the entry by its times. That is never so with
// lock_clock::observed: clones of a virtual machine may have one boot id and different clocks.
inline bool has_same_clock(const record& r, const origin& it, const origin& self) noexcept {
    return r.clock != lock_clock::observed && reads_times(r.clock, it.boot, self.boot);
}

// Sets the minimum hold time, which never ends after the lease.
inline void hold_until(const record& r, holder& h, std::int64_t time, const origin& self) {
    h.held_until = time;
    h.held_boot = has_boots(r.clock) ? self.boot : std::string();
}

// Begins a lease now, which never ends before the present one. Contenders that cannot read
// `expires_at` observe the entry for `lease_ms`.
inline void extend(const record& r, holder& h, std::int64_t lease_ms, std::int64_t now,
                   const origin& self) {
    // What is left of the lease; all of it, at most, if its times cannot be read here.
    const bool is_known = reads_times(r.clock, h.from.boot, self.boot);
    const std::int64_t left = is_known ? std::min(h.lease_ms, h.expires_at - now) : h.lease_ms;
    if (h.held_until != 0 && !reads_times(r.clock, h.held_boot, self.boot)) {
        hold_until(r, h, now + std::max<std::int64_t>(left, 0), self);
    }
    h.lease_ms = std::max(lease_ms, left);
    h.expires_at = is_known ? std::max(h.expires_at, now + lease_ms) : now + h.lease_ms;
    if (!is_known) { // the times are on this clock now; an inheritable grant keeps its mark
        const std::int64_t mark = h.from.pid == 0 ? h.from.mark : 0;
        h.from = mark != 0 ? origin{.host = self.host, .boot = self.boot, .mark = mark} : self;
    }
    h.renewals = next_move(h.renewals);
    h.observed.clear();
}

// Turns a grant that is released now into a resting entry, which holds the permits until the
// minimum hold time has passed. Returns false if that time has passed. Even if a clock was set
// back, the entry lasts no longer than the lease.
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

// Returns the lowest lane that no holder has.
inline std::int64_t lowest_free_lane(const record& r) {
    std::int64_t lane = 0;
    while (std::ranges::find(r.holders, lane, &holder::lane) != r.holders.end()) {
        ++lane;
    }
    return lane;
}

// Returns the count of moves: of the renewals of a grant, or the refreshes of a place in the queue.
inline std::int64_t moves_of(const holder& h) noexcept { return h.renewals; }
inline std::int64_t moves_of(const waiter& w) noexcept { return w.refreshes; }

// Returns the observation of that boot, unless the entry moved after it; nullptr if there is none.
template <class Entry>
const stored_observation* find_observation(const Entry& e, std::string_view boot) noexcept {
    const auto found = std::ranges::find_if(e.observed, [&](const stored_observation& one) {
        return one.boot == boot && one.moves == moves_of(e);
    });
    return found != e.observed.end() ? &*found : nullptr;
}

// Stores an observation in each entry whose times the contender cannot read, unless the entry has a
// valid one of the contender's boot. The observation begins at `now`. Stores nothing with
// lock_clock::observed, where machines may share a boot id. Returns false if it stored nothing.
inline bool observe(record& r, const contender& self, std::int64_t now) {
    const std::string& boot = self.from.boot;
    bool changed = false;
    const auto see = [&](auto& e) {
        if (has_same_clock(r, e.from, self.from) || e.nonce == self.nonce) {
            return;
        }
        const stored_observation* const known = find_observation(e, boot);
        if (known != nullptr && known->since <= now) { // a time in the future is of another clock
            return;
        }
        std::erase_if(e.observed, [&](const stored_observation& old) {
            return old.moves != moves_of(e) || old.boot == boot;
        });
        if (e.observed.size() >= most_observations) {
            // Chooses an index by the upper bits of a product with 2^64 / (golden ratio). So times
            // at regular intervals get all indices.
            const auto spread = (static_cast<std::uint64_t>(now) * 0x9e3779b97f4a7c15U) >> 33;
            e.observed.erase(e.observed.begin() +
                             static_cast<std::ptrdiff_t>(spread % e.observed.size()));
        }
        e.observed.push_back({boot, moves_of(e), now, {}});
        changed = true;
    };
    if (r.clock == lock_clock::boottime && !boot.empty()) {
        std::for_each(r.holders.begin(), r.holders.end(), see);
        std::for_each(r.waiters.begin(), r.waiters.end(), see);
    }
    return changed;
}

} // namespace detail

// ---- the rules of contenders

/// Makes an empty record, for the first contender.
inline record fresh_record(const terms& t) {
    return {.permits = t.permits,
            .clock = t.clock,
            .fence = std::clamp<std::int64_t>(t.first_fence, 1, largest_first_fence)};
}

/// Returns the least token of a grant at `unix_ms`, in milliseconds since 1970.
///
/// A new token is the larger of this one and the record's next token. So it is larger than every
/// token of a lost value, unless the clock is behind the time of the last grant in that value. A
/// millisecond has 1,024 tokens. The microseconds within it, `us`, select one of them; `us` is 0 if
/// the clock does not tell them. The token reaches 2^53 in the year 2248.
inline std::int64_t floor_of(std::int64_t unix_ms, std::int64_t us = 0) noexcept {
    constexpr std::int64_t room = std::int64_t{1} << 40;
    constexpr std::int64_t highest = largest_number - room;
    return std::clamp<std::int64_t>(unix_ms, 0, highest / 1024) * 1024 + 1 + us;
}

/// Returns true if the rules accept a contender.
inline bool is_valid(const contender& self) noexcept {
    using detail::is_text;
    const auto& labels = self.about.labels;
    bool good = is_text(self.holder_id, 1, longest_name) && is_text(self.nonce, 1, longest_name) &&
                self.weight >= 1 && self.weight <= largest_permits &&
                is_text(self.about.note, 0, longest_note) && labels.size() <= most_labels;
    for (auto one = labels.begin(); good && one != labels.end(); ++one) {
        good = is_text(one->key, 1, longest_label) && is_text(one->value, 0, longest_label) &&
               std::ranges::find(labels.begin(), one, one->key, &label::key) == one;
    }
    return good;
}
/// Returns true if the rules accept the terms and the time.
inline bool is_valid(const terms& t, std::int64_t now) noexcept {
    const auto is_within = [](std::int64_t n, std::int64_t least, std::int64_t most) {
        return n >= least && n <= most;
    };
    return is_within(t.permits, 1, largest_permits) && is_within(t.lease_ms, 1, largest_duration) &&
           is_within(t.at_least_ms, 0, largest_duration) &&
           is_within(t.waiter_ttl_ms, 1, largest_duration) && is_within(now, 0, largest_time);
}

/// Returns the number of free permits. After a resize() to fewer than are held, it is negative.
inline std::int64_t free_permits(const record& r) noexcept {
    std::int64_t free = r.permits;
    for (const holder& h : r.holders) {
        free -= h.weight;
    }
    return free;
}

/// Removes the entries that have expired, except the place of `self` in the queue. If `removed` is
/// not nullptr, adds the removed entries to its lists. Returns true if it removed an entry.
template <class Judge>
bool sweep(record& r, const Judge& judge, std::string_view self = {},
           inspection* removed = nullptr) {
    const std::size_t holders = std::erase_if(r.holders, [&](const holder& one) {
        const bool gone = judge.expired(one);
        if (gone && removed != nullptr) {
            removed->expired.push_back(one);
        }
        return gone;
    });
    bool at_head = true;
    const std::size_t waiters = std::erase_if(r.waiters, [&](const waiter& one) {
        const bool gone = one.nonce != self && judge.expired(one, at_head);
        if (gone && removed != nullptr) {
            removed->vanished.push_back(one);
        }
        at_head = at_head && gone;
        return gone;
    });
    return holders + waiters != 0;
}

namespace detail {

inline acquire_outcome refused(std::error_code why, bool changed = false) noexcept {
    return {.changed = changed, .error = why};
}

// Makes the contender a holder. `place` is its place in the queue; the end if it has none.
inline acquire_outcome grant(record& r, std::vector<waiter>::iterator place, const contender& self,
                             const terms& t, std::int64_t now) {
    const std::int64_t fence = std::max(r.fence, std::min(t.first_fence, largest_first_fence));
    if (fence >= largest_number) {
        return refused(durable_errc::corrupt_record);
    }
    r.fence = fence + 1;
    const std::int64_t lease_ms = std::max(t.lease_ms, t.at_least_ms);
    const std::int64_t lane = lowest_free_lane(r);
    holder mine{{self, now + lease_ms}, fence, lane, lease_ms};
    if (t.at_least_ms != 0) {
        hold_until(r, mine, now + t.at_least_ms, self.from);
    }
    if (place != r.waiters.end()) {
        r.waiters.erase(place);
    }
    r.holders.push_back(std::move(mine));
    return {.status = acquire_status::granted, .changed = true, .fence = fence, .lane = lane};
}

// Enters the contender in the queue, or refreshes its place there. A contender that stays in the
// queue sees for itself when a lease expires. So it stores observations only with a refresh.
inline acquire_outcome wait(record& r, std::vector<waiter>::iterator place, const contender& self,
                            const terms& t, std::int64_t now) {
    const bool is_queued = place != r.waiters.end();
    acquire_outcome out{.status = acquire_status::waiting, .position = place - r.waiters.begin()};
    for (const holder& h : r.holders) {
        if (has_same_clock(r, h.from, self.from) &&
            (out.next_ms == 0 || h.expires_at < out.next_ms)) {
            out.next_ms = h.expires_at;
        }
    }
    if (!is_queued && t.enqueue && r.waiters.size() >= t.max_waiters) {
        return refused(durable_errc::queue_full, observe(r, self, now));
    }
    if (!is_queued && !t.enqueue) {
        out.changed = observe(r, self, now);
        return out;
    }
    waiter fresh;
    fresh.ttl_ms = t.waiter_ttl_ms;
    fresh.expires_at = now + fresh.ttl_ms;
    if (t.listens) { // pass_on() may grant it this lease
        fresh.lease_ms = t.lease_ms;
        fresh.at_least_ms = t.at_least_ms;
    }
    if (is_queued) {
        const auto& mine = place->about.labels; // in the order of their keys
        const auto& its = self.about.labels;
        const std::int64_t left = place->expires_at - now;
        if (left >= fresh.ttl_ms - fresh.ttl_ms / 3 && left <= fresh.ttl_ms &&
            place->lease_ms == fresh.lease_ms && place->at_least_ms == fresh.at_least_ms &&
            place->from == self.from && place->about.note == self.about.note &&
            std::is_permutation(mine.begin(), mine.end(), its.begin(), its.end())) {
            return out;
        }
        fresh.refreshes = next_move(place->refreshes);
        fresh.extra = std::move(place->extra);
    } else {
        place = r.waiters.emplace(place);
    }
    *place = std::move(fresh);
    static_cast<contender&>(*place) = self;
    observe(r, self, now);
    out.changed = true;
    return out;
}

} // namespace detail

/// If the free permits suffice for the contender and for all waiters ahead, acquires the permits.
/// If they do not suffice, enters the queue.
///
/// A further call refreshes the place in the queue. A contender that holds the permits already gets
/// the same grant, and its lease begins again. A contender that listens (terms::listens) keeps the
/// lease that pass_on() has begun. A contender that is not granted its permits stores observations,
/// in each entry without a valid one of its boot. A waiter also stores that it removed expired
/// entries, because other processes notify it by what is stored (concerned_by_change()).
template <class Judge>
acquire_outcome acquire(record& r, const contender& self, const terms& t, std::int64_t now,
                        const Judge& judge) {
    const bool adopts = r.permits != t.permits && !r.resized; // the number of permits of the terms
    if (!is_valid(self) || !is_valid(t, now)) {
        return detail::refused(durable_errc::invalid_argument);
    }
    if (r.clock != t.clock) {
        return detail::refused(durable_errc::clock_mismatch);
    }
    if (adopts && !t.adopt_permits) {
        return detail::refused(durable_errc::permits_mismatch);
    }
    // pass_on() may have granted the permits. If the contender can read the times of that grant,
    // and more than half of the lease is left, the lease stays as it is.
    const holder* const found = t.listens ? detail::find_holder(r, self.nonce) : nullptr;
    const std::int64_t left = found != nullptr ? found->expires_at - now : 0;
    if (left > t.lease_ms / 2 && left <= found->lease_ms && found->weight == self.weight &&
        detail::has_same_clock(r, found->from, self.from)) {
        return {.status = acquire_status::held,
                .fence = found->fence,
                .lane = found->lane,
                .expires_at = found->expires_at};
    }
    const bool has_removed = sweep(r, judge, self.nonce);
    if (adopts && !(r.holders.empty() && r.waiters.empty())) {
        return detail::refused(durable_errc::permits_mismatch, detail::observe(r, self, now));
    }
    r.permits = adopts ? t.permits : r.permits;
    if (self.weight > r.permits) {
        return detail::refused(r.permits == t.permits ? durable_errc::too_heavy
                                                      : durable_errc::permits_mismatch);
    }
    if (holder* const mine = detail::find_holder(r, self.nonce)) {
        if (mine->weight != self.weight) {
            return detail::refused(durable_errc::invalid_argument);
        }
        detail::extend(r, *mine, t.lease_ms, now, self.from);
        mine->from = self.from;
        mine->about = self.about;
        return {.status = acquire_status::held,
                .changed = true,
                .fence = mine->fence,
                .lane = mine->lane};
    }
    std::int64_t wanted = self.weight; // with the permits of the waiters ahead
    auto place = r.waiters.begin();
    for (; place != r.waiters.end() && place->nonce != self.nonce; ++place) {
        wanted += place->weight;
    }
    if (place != r.waiters.end() && place->weight != self.weight) {
        return detail::refused(durable_errc::invalid_argument);
    }
    acquire_outcome out = wanted <= free_permits(r) ? detail::grant(r, place, self, t, now)
                                                    : detail::wait(r, place, self, t, now);
    if (out.status == acquire_status::waiting && t.enqueue) {
        out.changed = out.changed || has_removed;
    }
    return out;
}

/// Renews a lease: the lease begins again now, and never ends earlier than before.
///
/// A lease that expired is lost, even if the permits are free. `self` tells where the caller runs.
///
/// Returns: no error if the lease was renewed, and then the caller has to store the record;
/// otherwise durable_errc::lock_lost, invalid_argument or clock_mismatch.
template <class Judge>
std::error_code renew(record& r, std::string_view nonce, std::int64_t fence, const terms& t,
                      std::int64_t now, const Judge& judge, const origin& self) {
    if (!is_valid(t, now) || r.clock != t.clock) {
        return is_valid(t, now) ? durable_errc::clock_mismatch : durable_errc::invalid_argument;
    }
    holder* const mine = fence == 0 ? nullptr : detail::find_holder(r, nonce, fence);
    if (mine == nullptr) {
        return durable_errc::lock_lost;
    }
    holder longer = *mine;
    detail::extend(r, longer, t.lease_ms, now, self);
    const std::int64_t minimum = std::exchange(longer.held_until, 0);
    if (judge.expired(*mine) || judge.expired(longer)) { // the latter: its process has ended
        return durable_errc::lock_lost;
    }
    longer.held_until = minimum;
    *mine = std::move(longer);
    return {};
}

/// Removes the grant of this nonce with the token `fence`. If `fence` is 0, removes the grant with
/// any token except `how.but`; if there is none, removes the place in the queue. If the minimum
/// hold time of the grant has not passed at `now`, its entry stays as a resting entry
/// (is_resting()), unless `how.undo` is true. `self` tells where the caller runs.
inline release_status release(record& r, std::string_view nonce, std::int64_t fence,
                              std::int64_t now, const origin& self, release_terms how = {}) {
    if (holder* const mine = detail::find_holder(r, nonce, fence, how.but)) {
        if (how.undo || !detail::rest(r, *mine, now, self)) {
            r.holders.erase(r.holders.begin() + (mine - r.holders.data()));
        }
        return release_status::released;
    }
    const auto is_its = [&](const waiter& w) { return w.nonce == nonce; };
    return fence == 0 && std::erase_if(r.waiters, is_its) != 0 ? release_status::withdrawn
                                                               : release_status::not_there;
}

/// Lists the holders and waiters, as the judge sees them now.
template <class Judge> inspection inspect(const record& r, const Judge& judge) {
    inspection seen{r, {}, {}, 0};
    sweep(seen.live, judge, {}, &seen);
    seen.free = free_permits(seen.live);
    return seen;
}

// ---- the rules of the queue
//
// These rules select the waiters that are granted their permits by a change of another process
// (pass_on()), and the processes that are notified of a change. If pass_on() grants nothing, the
// first waiter acquires its permits by a change of its own.
//
// The first waiter depends on the processes of all holders. A later waiter depends on the process
// of the waiter directly ahead of it. While these processes run, one of them makes the change that
// concerns the waiter, and notifies the waiter. If such a process ends without a change, the waiter
// notices the end. A process without an entry, or one that cannot reach the waiter, may change the
// record without a notification. So every waiter also reads the record from time to time.

namespace detail {

// Returns true if the waiter listens (terms::listens), runs on the machine of `self`, and other
// contenders notice the end of its process.
inline bool is_near(const waiter& w, const origin& self) noexcept {
    const bool has_mark = w.from.mark % (1 << 24) != 0;
    const bool is_seen = (w.from.space != 0 && w.from.space == self.space) || has_mark;
    return w.lease_ms != 0 && w.from.pid != 0 && is_seen && !w.from.boot.empty() &&
           w.from.boot == self.boot;
}

// Returns true if is_it() returns true for a process that the waiter of that index depends on.
template <class F> bool any_before(const record& r, std::size_t index, F is_it) {
    const auto is_from_it = [&](const entry& one) { return is_it(one.from); };
    return index == 0 ? std::any_of(r.holders.begin(), r.holders.end(), is_from_it)
                      : is_from_it(r.waiters[index - 1]);
}

} // namespace detail

/// Grants free permits to the waiters in order, after a change that the caller stores together with
/// the grants. Stops at the first waiter that asks for more than is free, that does not listen
/// (terms::listens), or that does not run on this machine. A waiter at the head that has expired
/// loses its place. If the clock of the terms is not that of the record, changes nothing.
template <class Judge>
void pass_on(record& r, const terms& t, std::int64_t now, const Judge& judge, const origin& self) {
    if (!is_valid(t, now) || r.clock != t.clock) {
        return;
    }
    const bool has_common_clock = // of the contenders of one boot
        r.clock == lock_clock::boottime || r.clock == lock_clock::server;
    while (!r.waiters.empty() && free_permits(r) > 0) {
        const waiter& next = r.waiters.front();
        if (judge.expired(next, true)) {
            r.waiters.erase(r.waiters.begin());
            continue;
        }
        if (next.weight > free_permits(r) || !has_common_clock || !detail::is_near(next, self)) {
            return;
        }
        const contender its = next; // a copy: the grant removes the waiter
        terms on = t;
        on.lease_ms = next.lease_ms;
        on.at_least_ms = next.at_least_ms;
        if (detail::grant(r, r.waiters.begin(), its, on, now).error) {
            return;
        }
    }
}

/// Returns the marks (origin::mark) of the processes that have to read the record after a change.
/// These processes have waiters that were granted their permits, lost their places, or now depend
/// on another process. The first waiter's process, too, has to read if its permits are free:
/// pass_on() does not grant every waiter its permits.
inline std::vector<std::int64_t> concerned_by_change(const record& before, const record& after) {
    std::vector<std::int64_t> marks;
    std::size_t next = 0; // in the queue after the change: the order has not changed
    for (std::size_t was = 0; was != before.waiters.size(); ++was) {
        const waiter& w = before.waiters[was];
        const bool waits = next != after.waiters.size() && after.waiters[next].nonce == w.nonce;
        const auto is_new = [&](const origin& now) {
            return !detail::any_before(before, was, [&](const origin& it) { return it == now; });
        };
        const bool is_concerned = !waits || detail::any_before(after, next, is_new) ||
                                  (next == 0 && w.weight <= free_permits(after));
        next += waits ? 1 : 0;
        if (is_concerned && w.from.mark != 0 &&
            std::find(marks.begin(), marks.end(), w.from.mark) == marks.end()) {
            marks.push_back(w.from.mark);
        }
    }
    return marks;
}

/// Returns true if the waiter is notified of every change that concerns it: each process ahead of
/// it can notify the waiter's process.
inline bool is_told(const record& r, std::size_t index) noexcept {
    const waiter& w = r.waiters[index];
    const auto reaches_it = [&](const auto& entry) {
        return entry.from.network == w.from.network && detail::is_near(w, entry.from);
    };
    return r.clock != lock_clock::caller && w.from.mark != 0 && w.from.network != 0 &&
           std::all_of(r.holders.begin(), r.holders.end(), reaches_it) &&
           std::all_of(r.waiters.begin(), r.waiters.begin() + static_cast<std::ptrdiff_t>(index),
                       reaches_it);
}

// ---- changes that no contender makes: by an administrator, and after the store has lost a value

/// Removes the grant with the token `fence`, even if its entry is a resting one (is_resting()). The
/// holder notices this at its next renewal. The resource notices it when it sees the next token.
/// Returns: false if there is no such grant.
inline bool force_release(record& r, std::int64_t fence, admin_note note) {
    if (std::erase_if(r.holders, [&](const holder& h) { return h.fence == fence; }) == 0) {
        return false;
    }
    r.admin = std::move(note);
    return true;
}

/// Changes the number of permits, as durable_admin::resize() says.
/// Returns: false if `permits` is out of range.
inline bool resize(record& r, std::int64_t permits, admin_note note) {
    if (permits < 1 || permits > largest_permits) {
        return false;
    }
    r.permits = permits;
    r.resized = true;
    r.admin = std::move(note);
    return true;
}

/// Makes a record that replaces one that cannot be read. Its tokens begin with the larger of
/// `min_fence` and terms::first_fence, at most with largest_first_fence, so that 2^32 are left.
inline record repair(const terms& t, std::int64_t min_fence, admin_note note) {
    record r = fresh_record(t);
    r.fence = std::clamp(std::max(min_fence, r.fence), std::int64_t{1}, largest_first_fence);
    r.admin = std::move(note);
    return r;
}

/// Changes a record that is valid again because the store has lost a later one:
/// - If terms::first_fence is larger than the next token of the record, it becomes the next token.
///   Otherwise the next token grows by fence_leap. (If the record that replaces the lost one is
///   lost, too, a second leap leads to the same tokens.)
/// - The counts of renewals of all holders continue from the new token. So no later renewal has the
///   count of a lost one, which an observer may have seen for a long time.
/// - If the lost record was acknowledged, a holder that only that record shows may still work. So
///   the record gets a holder of all permits, for the longest lease of this record and the terms.
inline void make_up_for_lost(record& r, bool acknowledged, const terms& t, std::int64_t now,
                             const origin& self) {
    const std::int64_t before = r.fence;
    r.fence = std::min(std::max(t.first_fence, before + (t.first_fence > before ? 1 : fence_leap)),
                       largest_number);
    if (before >= largest_number) {
        return;
    }
    std::int64_t lease_ms = std::max(t.lease_ms, t.at_least_ms);
    for (holder& h : r.holders) {
        h.renewals = r.fence;
        lease_ms = std::max(lease_ms, h.lease_ms);
    }
    if (!acknowledged) {
        return;
    }
    // Each contender that finds the record makes this nonce, and a token of at least the lost one.
    const contender unknown{.holder_id = "of a record that was damaged",
                            .nonce = "lost-" + std::to_string(before),
                            .weight = r.permits,
                            .from = {self.host, self.boot}};
    r.holders.push_back(
        {{unknown, now + lease_ms}, r.fence - 1, detail::lowest_free_lane(r), lease_ms});
}

}}} // namespace bide::BIDE_ABI::durable

#endif
