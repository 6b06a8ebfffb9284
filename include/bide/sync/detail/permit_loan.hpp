// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_DETAIL_PERMIT_LOAN_HPP
#define BIDE_SYNC_DETAIL_PERMIT_LOAN_HPP

// A loan of a permit queue: permits that a layer above it holds, for callers that do not access the
// queue (detail/biased_permits.hpp). A loan begins if there are no waiters, and ends before the first
// waiter that needs its permits is queued. Both happen under the lock of the queue:
//
//   loan, then a waiter    the waiter acquires the lock after the loan began, and ends it
//   a waiter, then loan    the loan finds `queued`, and does not begin
//
// A waiter that ended the loan before it was queued, and released the lock in between, could be
// followed by another loan. Then it would wait for permits that no caller gives back.

#include <bide/core/config.hpp>
#include <bide/core/wait_status.hpp>
#include <bide/core/waiter_queue.hpp>
#include <bide/sync/detail/permit_queue.hpp>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform>
template <class Wanted, class Open>
void basic_permit_queue<Platform>::lend(word n, Wanted&& wanted, Open&& open) noexcept {
    word seen = lock::acquire(word_);
    bool lent = false;
    while (!lent && (seen & queued) == 0 && seen / one >= n && wanted()) {
        // Order: relaxed; the caller has a permit, so it came after the last owner of all permits.
        // The lock stays held. Failure: look again.
        lent = word_.compare_exchange_weak(seen, seen - n * one, std::memory_order_relaxed,
                                           std::memory_order_relaxed);
    }
    if (lent) {
        open();
    }
    lock::release(word_);
}

// Ends the loan, and returns the word.
// Requires: the lock is held.
template <class Platform>
template <class Recall>
auto basic_permit_queue<Platform>::recalled(Recall& recall) noexcept -> word {
    const word back = recall() * one;
    // Order: release [permit.release]; the caller that takes these permits sees what was done before
    // they came back. If there is a loan, there are no waiters, so they are free. Also release
    // [lock_bits.release], and so made for zero permits, too: recall() accessed data under the lock,
    // and the last step of link() is no release.
    return word_.fetch_add(back, std::memory_order_release) + back;
}

template <class Platform>
template <class Recall>
void basic_permit_queue<Platform>::recall(Recall&& recall) noexcept {
    lock::acquire(word_);
    recalled(recall);
    lock::release(word_);
}

template <class Platform>
template <class Recall>
wait_status basic_permit_queue<Platform>::recall_and_enqueue(node& w, Recall&& recall) noexcept {
    lock::acquire(word_);
    const word seen = recalled(recall);
    return settle_if_over(w, link(w, seen, true));
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
