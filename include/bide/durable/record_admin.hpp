#ifndef BIDE_DURABLE_RECORD_ADMIN_HPP
#define BIDE_DURABLE_RECORD_ADMIN_HPP

// How a record changes from outside: by an administrator, who leaves a note in it, and where the
// store has lost or damaged what it kept. Rules as those of durable/record.hpp: no clock, no store.

#include <bide/core/config.hpp>
#include <bide/durable/record.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bide::inline BIDE_ABI {
namespace durable {

// Takes a hold away; false: there is none with this token. Its holder learns of it by its next
// renewal; the resource, by the next token.
inline bool force_release(record& r, std::int64_t fence, admin_note note) {
    if (std::erase_if(r.holders, [&](const holder& h) { return h.fence == fence; }) == 0) {
        return false;
    }
    r.admin = std::move(note);
    return true;
}

// Takes a place in the queue away; false: there is none. A waiter that lives comes back at the end.
inline bool evict_waiter(record& r, std::string_view nonce, admin_note note) {
    if (std::erase_if(r.waiters, [&](const waiter& w) { return w.nonce == nonce; }) == 0) {
        return false;
    }
    r.admin = std::move(note);
    return true;
}

// Another number of permits. With fewer than are held nobody is admitted until enough are released;
// contenders that still go by the old number are refused.
inline bool resize(record& r, std::int64_t permits, admin_note note) {
    if (permits < 1 || permits > largest_permits) {
        return false;
    }
    r.permits = permits;
    r.admin = std::move(note);
    return true;
}

// A new record in the place of one that cannot be read. No token below `min_fence`, nor below the
// first one of the terms, is given out again. Four billion tokens are left in any case.
inline record repair(const terms& t, std::int64_t min_fence, admin_note note) {
    record r = fresh_record(t);
    r.fence = std::clamp(std::max(min_fence, r.fence), std::int64_t{1}, largest_first_fence);
    r.admin = std::move(note);
    return r;
}

// Makes up for a later record that was lost. Its grants are not known: the tokens go on from the
// first token of the terms, or leap where that is not larger. A leap alone would not do: what is
// stored in the place of the lost record may be lost, too, and then this one is read again.
// If the lost record was acknowledged, a holder that only it showed may be at work: then one of all
// permits is entered, for the longest lease that there is a sign of.
inline void make_up_for_lost(record& r, bool acknowledged, const terms& t, std::int64_t now,
                             const origin& self) {
    const std::int64_t before = r.fence;
    r.fence = std::min(std::max(t.first_fence, before + (t.first_fence > before ? 1 : fence_leap)),
                       largest_number);
    if (!acknowledged || before >= largest_number) {
        return;
    }
    holder unknown;
    unknown.holder_id = "of a record that was damaged";
    unknown.nonce = "lost-" + std::to_string(before); // of every contender that finds it the same
    unknown.fence = before;
    unknown.weight = r.permits;
    unknown.lease_ms = t.lease_ms;
    for (holder& h : r.holders) {
        unknown.lease_ms = std::max(unknown.lease_ms, h.lease_ms);
        h.renewals = r.fence; // a renewal never looks like one that was lost, which others may know
    }
    unknown.expires_at = now + unknown.lease_ms;
    unknown.lane = detail::lowest_free_lane(r);
    unknown.from.host = self.host;
    unknown.from.boot = self.boot;
    r.holders.push_back(std::move(unknown));
}

} // namespace durable
} // namespace bide::inline BIDE_ABI

#endif
