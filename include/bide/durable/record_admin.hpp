// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_RECORD_ADMIN_HPP
#define BIDE_DURABLE_RECORD_ADMIN_HPP

/// \file
/// Changes of a record that no contender makes: changes by an administrator, with a note in the
/// record, and changes after the store has lost or damaged values. These are rules like those of
/// durable/record.hpp: they read no clock and no store.

#include <bide/core/config.hpp>
#include <bide/durable/record.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace durable {

/// Takes away the grant with the token `fence`, also if it rests. The holder learns of it by its
/// next renewal. The resource learns of it by the next token.
///
/// Returns: false if there is no such grant.
inline bool force_release(record& r, std::int64_t fence, admin_note note) {
    if (std::erase_if(r.holders, [&](const holder& h) { return h.fence == fence; }) == 0) {
        return false;
    }
    r.admin = std::move(note);
    return true;
}

/// Removes a waiter. A waiter that is alive enters the queue again, at its end.
///
/// Returns: false if there is no such waiter.
inline bool evict_waiter(record& r, std::string_view nonce, admin_note note) {
    if (std::erase_if(r.waiters, [&](const waiter& w) { return w.nonce == nonce; }) == 0) {
        return false;
    }
    r.admin = std::move(note);
    return true;
}

/// Changes the number of permits. If holders have more permits than the new number, no contender is
/// granted a permit until enough are released. Contenders with the old number are refused.
///
/// Returns: false if `permits` is out of range.
inline bool resize(record& r, std::int64_t permits, admin_note note) {
    if (permits < 1 || permits > largest_permits) {
        return false;
    }
    r.permits = permits;
    r.admin = std::move(note);
    return true;
}

/// Makes a record that replaces one that cannot be read. Its tokens begin with `min_fence` or the
/// first token of the terms, whichever is larger, but such that at least 2^32 tokens are left.
inline record repair(const terms& t, std::int64_t min_fence, admin_note note) {
    record r = fresh_record(t);
    r.fence = std::clamp(std::max(min_fence, r.fence), std::int64_t{1}, largest_first_fence);
    r.admin = std::move(note);
    return r;
}

/// Changes a record after a later record was lost.
///
/// The grants of the lost record are not known. So the tokens continue from the first token of the
/// terms, or leap by fence_leap if the first token is not larger. A leap alone is not enough: the
/// value that replaces the lost record may be lost, too, and then this record is read again.
///
/// A renewal may have been lost, too, after an observer had seen it. So the renewals of all holders
/// are counted from the new token: no later one looks like one that has been there for long.
///
/// If the lost record was acknowledged, it may have had a holder that this record does not show,
/// and that holder may still work. Then a holder of all permits is entered, for the longest lease
/// that the record or the terms show.
inline void make_up_for_lost(record& r, bool acknowledged, const terms& t, std::int64_t now,
                             const origin& self) {
    const std::int64_t before = r.fence;
    r.fence = std::min(std::max(t.first_fence, before + (t.first_fence > before ? 1 : fence_leap)),
                       largest_number);
    if (before >= largest_number) {
        return;
    }
    for (holder& h : r.holders) {
        h.renewals = r.fence;
    }
    if (!acknowledged) {
        return;
    }
    holder unknown;
    unknown.holder_id = "of a record that was damaged";
    unknown.nonce = "lost-" + std::to_string(before); // the same for every contender that finds it
    unknown.fence = before;
    unknown.weight = r.permits;
    unknown.lease_ms = std::max(t.lease_ms, t.at_least_ms);
    for (const holder& h : r.holders) {
        unknown.lease_ms = std::max(unknown.lease_ms, h.lease_ms);
    }
    unknown.expires_at = now + unknown.lease_ms;
    unknown.lane = detail::lowest_free_lane(r);
    unknown.from.host = self.host;
    unknown.from.boot = self.boot;
    r.holders.push_back(std::move(unknown));
}

}}} // namespace bide::BIDE_ABI::durable

#endif
