#ifndef BIDE_DURABLE_RECORD_HPP
#define BIDE_DURABLE_RECORD_HPP

// What a durable lock is: one record, and the rules by which it may change. Nothing here reads a
// clock, a store or a process: a rule takes a record and what the caller knows, changes the record,
// and says what came of it. Whoever stores the result by compare-and-swap has a lock.
//
// Holders hold permits, waiters are in the order of their coming. A contender is known by the nonce
// of its ticket: two with the same name are still two, and one whose request was carried out
// without its hearing of it finds itself in the record. Every grant draws a fencing token that is
// larger than all before, which a resource can check; and a lane, the lowest that no other holder
// has, for resources that come in `permits` copies.
//
// Nobody is in the record for ever: a hold is over when its lease is, a place in the queue when its
// waiter has not refreshed it for too long. Who judges that is the caller's: a judge answers
//   judge.expired(holder, grace)    its lease has been over for `grace` milliseconds
//   judge.expired(waiter, at_head)  it is gone; at_head: nobody is left before it
// (see durable/expiry.hpp).
//
// Admission is by prefix sums: a contender is granted its permits when what is free is enough for
// all who came before it and for itself. So the order is kept without free permits having to wait
// for the first in line to come and look, and who wants all permits, a writer say, is not starved by
// those who want one.
//
// All times are in milliseconds, on whatever clock the record says.

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

namespace bide::inline BIDE_ABI {
namespace durable {

enum class standing {
    granted, // holds it, since now
    held,    // holds it, since earlier; the lease is extended
    waiting, // is in the queue; or, without `enqueue`, would have to be
    refused  // see the error
};

struct acquire_outcome {
    standing is = standing::refused;
    bool changed = false;      // the record is another one, and has to be stored to be true
    std::int64_t fence = 0;    // granted, held
    std::int64_t lane = 0;     // granted, held
    std::int64_t position = 0; // waiting: how many are ahead of it
    std::int64_t next_ms = 0;  // waiting: when the next lease is over; 0 where that is not known
    std::error_code error{};
};

enum class renewal { renewed, lost, refused };
struct renew_outcome {
    renewal is = renewal::refused;
    bool changed = false;
    std::error_code error{};
};

enum class leaving { released, withdrawn, not_there };
struct release_outcome {
    leaving is = leaving::not_there;
    bool changed = false;
};

// An empty record, for the first contender.
inline record fresh_record(const terms& t) {
    record r;
    r.permits = t.permits;
    r.clock = t.clock;
    r.fence = std::clamp<std::int64_t>(t.first_fence, 1, largest_first_fence);
    return r;
}

// The first token of a record that is made at `unix_ms`, in milliseconds since 1970. It is larger
// than every token of a record that was lost, unless the clock was behind that record's last grant:
// it was set back, or is another machine's. No lock grants 1,024 times a millisecond. It reaches 2^53
// in the year 2248.
// `us`: the microseconds of that millisecond, where the clock tells.
inline std::int64_t floor_of(std::int64_t unix_ms, std::int64_t us = 0) noexcept {
    constexpr std::int64_t room = std::int64_t{1} << 40;
    constexpr std::int64_t highest = largest_number - room;
    return std::clamp<std::int64_t>(unix_ms, 0, highest / 1024) * 1024 + 1 + us;
}

// What is wrong with these; no error where nothing is.
inline std::error_code check(const contender& self) noexcept {
    const bool named = !self.holder_id.empty() && self.holder_id.size() <= longest_name &&
                       !self.nonce.empty() && self.nonce.size() <= longest_name;
    return named && self.weight >= 1 && self.weight <= largest_permits
               ? std::error_code()
               : make_error_code(durable_errc::invalid_argument);
}
inline std::error_code check(const terms& t, std::int64_t now) noexcept {
    const auto is_duration = [](std::int64_t ms) { return ms >= 1 && ms <= largest_duration; };
    const bool meant = t.permits >= 1 && t.permits <= largest_permits && is_duration(t.lease_ms) &&
                       is_duration(t.waiter_ttl_ms) && t.reclaim_delay_ms >= 0 &&
                       t.reclaim_delay_ms <= largest_duration && now >= 0 && now <= largest_time;
    return meant ? std::error_code() : make_error_code(durable_errc::invalid_argument);
}

// Permits that nobody holds; below zero after a resize() to fewer.
inline std::int64_t free_permits(const record& r) noexcept {
    std::int64_t free = r.permits;
    for (const holder& h : r.holders) {
        free -= h.weight;
    }
    return free;
}

// Removes who is gone, but never `self`'s place in the queue.
template <class Judge>
void sweep(record& r, const Judge& judge, std::int64_t grace_ms, std::string_view self = {}) {
    std::erase_if(r.holders, [&](const holder& h) { return judge.expired(h, grace_ms); });
    bool at_head = true;
    std::erase_if(r.waiters, [&](const waiter& w) {
        if (w.nonce == self) {
            at_head = false;
            return false;
        }
        const bool gone = judge.expired(w, at_head);
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
inline acquire_outcome refused(durable_errc why, bool changed = false) noexcept {
    return refused(make_error_code(why), changed);
}

// Why a contender cannot ask for permits of this record, whatever is held of it; no error: it can.
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

// Gives a record without holders and waiters the permits of the terms. False: there are some, which
// go by other permits.
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

// Answers a contender that holds its permits already, and extends its lease.
inline acquire_outcome already_holds(const record& r, holder& mine, const contender& self,
                                     const terms& t, std::int64_t now) {
    if (mine.weight != self.weight) {
        return refused(durable_errc::invalid_argument);
    }
    extend(r, mine, t.lease_ms, now, self.from);
    mine.from = self.from;
    acquire_outcome out;
    out.is = standing::held;
    out.changed = true;
    out.fence = mine.fence;
    out.lane = mine.lane;
    return out;
}

// A contender's place in the queue, or the one that it would get.
struct queue_place {
    std::size_t index = 0;   // how many waiters are ahead of it
    std::int64_t weight = 0; // and for how many permits they wait
    bool is_taken = false;   // by the contender
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
    mine.lease_ms = t.lease_ms;
    mine.expires_at = now + t.lease_ms;
    mine.from = self.from;
    acquire_outcome out;
    out.is = standing::granted;
    out.changed = true;
    out.fence = mine.fence;
    out.lane = mine.lane;
    r.holders.push_back(std::move(mine));
    return out;
}

// Keeps the contender's place in the queue from expiring. True: the record has changed.
inline bool refresh(waiter& mine, const contender& self, const terms& t, std::int64_t now) {
    const std::int64_t rest = mine.expires_at - now;
    if (rest >= t.waiter_ttl_ms - t.waiter_ttl_ms / 3 && rest <= t.waiter_ttl_ms &&
        mine.from == self.from) {
        return false;
    }
    mine.ttl_ms = t.waiter_ttl_ms;
    mine.expires_at = now + t.waiter_ttl_ms;
    mine.refreshes = next_move(mine.refreshes);
    mine.from = self.from;
    mine.observed.clear();
    return true;
}

// Makes the contender wait, or tells it that it would have to. Stores what it observes where the
// record changes anyway, or where the contender has no place in the queue. A contender that has one
// may live for long enough to observe by itself: it makes no change for the sake of its observations.
inline acquire_outcome wait(record& r, const queue_place& place, const contender& self,
                            const terms& t, std::int64_t now) {
    acquire_outcome out;
    out.is = standing::waiting;
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
        r.waiters.push_back(std::move(mine));
        out.changed = true;
    }
    if (out.changed || !place.is_taken) {
        out.changed = observe(r, self, now) || out.changed;
    }
    return out;
}

} // namespace detail

// Takes the permits if it is the contender's turn, else its place in the queue; called again it
// keeps that place, and the waiter's entry from expiring. A contender that already holds them gets
// the same answer, and a lease from now on. A contender that is not granted them stores since when it
// has seen the entries whose times it cannot read, if no contender of its boot has: so an acquisition
// that fails changes the record once, not each time.
template <class Judge>
acquire_outcome acquire(record& r, const contender& self, const terms& t, std::int64_t now,
                        const Judge& judge) {
    if (const std::error_code error = detail::check(r, self, t, now)) {
        return detail::refused(error);
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
    return place.weight + self.weight <= free_permits(r)
               ? detail::grant(r, place, self, t, now)
               : detail::wait(r, place, self, t, now);
}

// Gives a hold a lease from now on; never a shorter one, and never to who has none. A lease that is
// over is lost, even where nobody has taken it, unless the terms revive it and its permits are
// free: a record that was lost may have given them away. `self`: where the contender runs that
// renews it.
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
    out.is = renewal::lost;
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
    if (judge.expired(longer, 0)) {
        return out; // bound to a process that is gone: over for other contenders all the same
    }
    *mine = std::move(longer);
    out.is = renewal::renewed;
    out.changed = true;
    return out;
}

// Removes exactly this grant, or this nonce's place in the queue; with fence 0 whichever there is,
// except for the grant `but`.
// What came later is not touched.
inline release_outcome release(record& r, std::string_view nonce, std::int64_t fence,
                               std::int64_t but = 0) {
    const auto left = std::erase_if(r.holders, [&](const holder& h) {
        return h.nonce == nonce && h.fence != but && (fence == 0 || h.fence == fence);
    });
    if (left != 0) {
        return {leaving::released, true};
    }
    const auto gone =
        fence != 0 ? 0
                   : std::erase_if(r.waiters, [&](const waiter& w) { return w.nonce == nonce; });
    return gone != 0 ? release_outcome{leaving::withdrawn, true} : release_outcome{};
}

// Who holds it and who waits, as the judge sees it now.
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

} // namespace durable
} // namespace bide::inline BIDE_ABI

#endif
