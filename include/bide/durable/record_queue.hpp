// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_RECORD_QUEUE_HPP
#define BIDE_DURABLE_RECORD_QUEUE_HPP

/// \file
/// What a change of a record means for its waiters: which of them are granted their permits with it,
/// and which of them have to read the record afterwards. These are rules like those of
/// durable/record.hpp.
///
/// Without pass_on() each waiter takes its permits itself, with a change of its own. Then a store
/// that needs a millisecond for a change needs two for each change of the holder. And every waiter
/// has to read the record after each change, as its turn may have come.
///
/// A waiter that every process ahead of it can reach need not do that. It reads the record when it
/// is told to, and when the process that it depends on has ended:
///
/// - The first waiter depends on the processes of all holders.
/// - A later waiter depends on the process of the waiter directly ahead of it.
///
/// While they run, one of them makes the change that concerns the waiter, and tells it. If a holder
/// or a waiter ends before it has told the others, the waiter that depends on it notices the end.
/// What is told by processes that have no entry, or cannot reach the waiter, may be lost: so every
/// waiter also reads the record from time to time.

#include <bide/core/config.hpp>
#include <bide/durable/detail/record_entries.hpp>
#include <bide/durable/record.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace durable {

namespace detail {

// Returns true if contenders of one boot read one clock at any time. With lock_clock::caller a
// release may have no time.
inline bool has_common_clock(const record& r) noexcept {
    return r.clock == lock_clock::boottime || r.clock == lock_clock::server;
}

// Returns true if pass_on() by `self` may grant the waiter its permits: it listens, it can read the
// times of the grant, and its end would be noticed before its lease is over.
inline bool is_served_by(const record& r, const waiter& w, const origin& self) noexcept {
    const bool is_seen = (w.from.space != 0 && w.from.space == self.space) || w.from.mark != 0;
    return has_common_clock(r) && w.lease_ms != 0 && w.from.pid != 0 && is_seen &&
           !w.from.boot.empty() && w.from.boot == self.boot;
}

// Returns true if the waiter of that index depends on the process.
inline bool depends(const record& r, std::size_t index, const origin& process) noexcept {
    const auto is_it = [&](const auto& entry) { return entry.from == process; };
    return index == 0 ? std::any_of(r.holders.begin(), r.holders.end(), is_it)
                      : is_it(r.waiters[index - 1]);
}

} // namespace detail

/// Grants free permits to the waiters whose turn it is, up to the first one that does not listen or
/// is not a process of this machine. A waiter at the head that has expired loses its place. `self`
/// tells where the caller runs.
///
/// Call it after a change that may have freed permits or a place, and store both together.
template <class Judge>
void pass_on(record& r, const terms& t, std::int64_t now, const Judge& judge, const origin& self) {
    if (check(t, now) || !detail::has_common_clock(r)) {
        return;
    }
    while (!r.waiters.empty() && free_permits(r) > 0) {
        const waiter& next = r.waiters.front();
        if (judge.expired(next, true)) {
            r.waiters.erase(r.waiters.begin());
            continue;
        }
        if (next.weight > free_permits(r) || !detail::is_served_by(r, next, self)) {
            return;
        }
        const contender its{next.holder_id, next.nonce, next.weight, next.from, next.about};
        terms on = t;
        on.lease_ms = next.lease_ms;
        on.at_least_ms = next.at_least_ms;
        if (detail::grant(r, {0, 0, true}, its, on, now).status != acquire_status::granted) {
            return;
        }
    }
}

/// Returns the marks of the processes that have to read the record after a change: those of waiters
/// that listen and were granted their permits, lost their places, or depend on another process now.
inline std::vector<std::int64_t> concerned_by_change(const record& before, const record& after) {
    std::vector<std::int64_t> marks;
    std::size_t next = 0; // in the queue after the change: the order has not changed
    for (std::size_t was = 0; was != before.waiters.size(); ++was) {
        const waiter& w = before.waiters[was];
        const bool waits = next != after.waiters.size() && after.waiters[next].nonce == w.nonce;
        const auto is_new = [&](const auto& entry) {
            return !detail::depends(before, was, entry.from);
        };
        const bool is_concerned =
            !waits || (next == 0 ? std::any_of(after.holders.begin(), after.holders.end(), is_new)
                                 : is_new(after.waiters[next - 1]));
        next += waits ? 1 : 0;
        if (is_concerned && w.lease_ms != 0 && w.from.mark != 0 &&
            std::find(marks.begin(), marks.end(), w.from.mark) == marks.end()) {
            marks.push_back(w.from.mark);
        }
    }
    return marks;
}

/// Returns true if the waiter is told of every change that concerns it: each process ahead of it can
/// reach its process, and would grant it its permits.
inline bool is_told(const record& r, std::size_t index) noexcept {
    const waiter& w = r.waiters[index];
    const auto reaches_it = [&](const auto& entry) {
        return entry.from.network == w.from.network && detail::is_served_by(r, w, entry.from);
    };
    return w.from.mark != 0 && w.from.network != 0 &&
           std::all_of(r.holders.begin(), r.holders.end(), reaches_it) &&
           std::all_of(r.waiters.begin(), r.waiters.begin() + static_cast<std::ptrdiff_t>(index),
                       reaches_it);
}

}}} // namespace bide::BIDE_ABI::durable

#endif
