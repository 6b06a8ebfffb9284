// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_DURABLE_LOCK_HPP
#define BIDE_DURABLE_DETAIL_DURABLE_LOCK_HPP

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/admin.hpp>
#include <bide/durable/detail/caller_transaction.hpp>
#include <bide/durable/guard.hpp>
#include <bide/durable/options.hpp>
#include <bide/durable/record_types.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/ticket.hpp>
#include <bide/fwd.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

struct lock_parts;

/// The operations that every durable lock has: single steps of an acquisition, for callers that
/// decide themselves when to try again; inspect(); and the operations of an administrator.
class durable_lock {
public:
    // ---- single steps, without waiting
    //
    // They are for work that is suspended and later resumed, in this process or in another one, and
    // for replays. The functions that take `now` require lock_clock::caller and read no clock. With
    // another clock they return durable_errc::clock_mismatch.
    //
    // Each calls the store on this thread and returns an error as std::error_code: a durable_errc,
    // an errno code, or one of the store.
    // Blocks: for at most durable_options::retry_time plus one operation of the slot.

    /// Acquires the permits of the ticket if it is its turn; otherwise enters the queue. Call it
    /// again before the waiter's time ends. Once acquired, further calls return the same grant, and
    /// its lease begins again.
    ///
    /// Blocks: for at most durable_options::retry_time plus one operation of the slot.
    result<durable_attempt, std::error_code> try_acquire(durable_ticket& t);
    /// Tries as try_acquire(t) does, at the time `now` of lock_clock::caller.
    result<durable_attempt, std::error_code> try_acquire(durable_ticket& t,
                                                         std::chrono::milliseconds now);

    /// Renews the lease of the ticket's grant: it begins again now.
    ///
    /// Returns: false if the grant is lost.
    /// Blocks: as try_acquire().
    result<bool, std::error_code> renew(const durable_ticket& t);
    /// Renews as renew(t) does, at the time `now` of lock_clock::caller.
    result<bool, std::error_code> renew(const durable_ticket& t, std::chrono::milliseconds now);

    /// Releases the ticket's grant, or its place in the queue.
    ///
    /// Returns: false if there was neither.
    /// Blocks: as try_acquire().
    result<bool, std::error_code> release(const durable_ticket& t);

    // ---- the same steps inside a transaction of the caller
    //
    // The slot refers to the same value as the slot of this lock, and has a connection of the
    // caller. The change of the lock and the caller's own work are committed together, or not at
    // all. If a caller renews in a transaction, and then works in that transaction, its work is
    // protected even if the lease expires meanwhile. The results of these functions become valid
    // when the transaction is committed. If it is not committed, call try_acquire() again. On
    // durable_errc::conflict_timeout the record has changed since the transaction began: begin a
    // new transaction.

    /// Tries as try_acquire() does, inside the transaction `in`.
    template <any_slot S>
    result<durable_attempt, std::error_code>
    try_acquire_in(S& slot, typename S::transaction& in, durable_ticket& t, given_time now = {}) {
        transaction_on_slot<S> on(slot, in);
        return try_acquire_in(on, t, now);
    }
    /// Renews as renew() does, inside the transaction `in`.
    template <any_slot S>
    result<bool, std::error_code> renew_in(S& slot, typename S::transaction& in,
                                           const durable_ticket& t, given_time now = {}) {
        transaction_on_slot<S> on(slot, in);
        return renew_in(on, t, now);
    }
    /// Releases as release() does, inside the transaction `in`.
    template <any_slot S>
    result<bool, std::error_code> release_in(S& slot, typename S::transaction& in,
                                             const durable_ticket& t) {
        transaction_on_slot<S> on(slot, in);
        return release_in(on, t);
    }

    /// Lists the holders and the waiters.
    ///
    /// Returns: nothing if the lock was never used; errc::timeout if the store does not answer in
    /// time.
    /// Blocks: for the store, on a store thread, for at most durable_options::retry_time plus
    /// attempt_limit.
    result<std::optional<durable::inspection>, std::error_code> inspect();
    /// Lists the holders and the waiters as inspect() does, at the time `now` of
    /// lock_clock::caller.
    result<std::optional<durable::inspection>, std::error_code>
    inspect(std::chrono::milliseconds now);

    /// Returns the place where the lock is kept, and the store's text about the last call that
    /// failed. It is one line for people, without passwords. Empty if the slot explains nothing.
    std::string explain() const;

    /// Returns the operations of an administrator. The record notes the name `by`.
    durable_admin admin(std::string by) const;

protected:
    durable_lock(slot_ref slot, std::int64_t permits, durable_options options);

    durable_ticket make_ticket(std::string holder_id, std::int64_t weight) const;
    result<durable_guard, std::error_code> wait(acquire_request request) const;
    task<result<durable_guard, std::error_code>> async_wait(acquire_request request) const;
    static acquire_request now_or_never(std::int64_t weight) {
        acquire_request request;
        request.weight = weight;
        request.timeout = std::chrono::nanoseconds(0);
        return request;
    }
    std::int64_t permit_count() const noexcept;

private:
    result<durable_attempt, std::error_code> try_acquire_in(caller_transaction& in,
                                                            durable_ticket& t, given_time now);
    result<bool, std::error_code> renew_in(caller_transaction& in, const durable_ticket& t,
                                           given_time now);
    result<bool, std::error_code> release_in(caller_transaction& in, const durable_ticket& t);

    std::shared_ptr<lock_parts> parts_;
};

}}} // namespace bide::BIDE_ABI::detail

#if defined(BIDE_DURABLE_HEADER_ONLY)
#include <bide/durable/impl/durable_lock.hpp>
#endif

#endif
