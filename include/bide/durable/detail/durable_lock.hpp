// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_DURABLE_LOCK_HPP
#define BIDE_DURABLE_DETAIL_DURABLE_LOCK_HPP

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/admin.hpp>
#include <bide/durable/detail/acquire_calls.hpp>
#include <bide/durable/detail/acquisition.hpp>
#include <bide/durable/detail/store_call.hpp>
#include <bide/durable/guard.hpp>
#include <bide/durable/options.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/ticket.hpp>
#include <bide/task/task.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

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
    result<durable_attempt, std::error_code> try_acquire(durable_ticket& t) {
        return answer(parts_.engine->acquire(t, std::nullopt, intent::queue), t);
    }
    /// Tries as try_acquire(t) does, at the time `now` of lock_clock::caller.
    result<durable_attempt, std::error_code> try_acquire(durable_ticket& t,
                                                         std::chrono::milliseconds now) {
        return answer(parts_.engine->acquire(t, now, intent::queue), t);
    }

    /// Renews the lease of the ticket's grant: it begins again now.
    ///
    /// Returns: false if the grant is lost.
    /// Blocks: as try_acquire().
    result<bool, std::error_code> renew(const durable_ticket& t) {
        return is_there(parts_.engine->renew(t, std::nullopt), t);
    }
    /// Renews as renew(t) does, at the time `now` of lock_clock::caller.
    result<bool, std::error_code> renew(const durable_ticket& t, std::chrono::milliseconds now) {
        return is_there(parts_.engine->renew(t, now), t);
    }

    /// Releases the ticket's grant, or its place in the queue.
    ///
    /// Returns: false if there was neither.
    /// Blocks: as try_acquire().
    result<bool, std::error_code> release(const durable_ticket& t) {
        return parts_.engine->release(t);
    }

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
    template <transactional_slot S>
    result<durable_attempt, std::error_code>
    try_acquire_in(S& slot, typename S::transaction& in, durable_ticket& t, given_time now = {}) {
        return answer(parts_.engine->acquire_in(slot, in, t, now), t, true);
    }
    /// Renews as renew() does, inside the transaction `in`.
    template <transactional_slot S>
    result<bool, std::error_code> renew_in(S& slot, typename S::transaction& in,
                                           const durable_ticket& t, given_time now = {}) {
        return is_there(parts_.engine->renew_in(slot, in, t, now), t, true);
    }
    /// Releases as release() does, inside the transaction `in`.
    template <transactional_slot S>
    result<bool, std::error_code> release_in(S& slot, typename S::transaction& in,
                                             const durable_ticket& t) {
        return parts_.engine->release_in(slot, in, t);
    }

    /// Lists the holders and the waiters.
    ///
    /// Returns: nothing if the lock was never used; errc::timeout if the store does not answer in
    /// time.
    /// Blocks: for the store, on a store thread, for at most durable_options::retry_time plus
    /// attempt_limit.
    result<std::optional<durable::inspection>, std::error_code> inspect() {
        return look_from_outside(std::nullopt);
    }
    /// Lists the holders and the waiters as inspect() does, at the time `now` of
    /// lock_clock::caller.
    result<std::optional<durable::inspection>, std::error_code>
    inspect(std::chrono::milliseconds now) {
        return look_from_outside(now);
    }

    /// Returns the place where the lock is kept, and the store's text about the last call that
    /// failed. It is one line for people, without passwords. Empty if the slot explains nothing.
    std::string explain() const { return parts_.engine->explain(); }

    /// Returns the operations of an administrator. The record notes the name `by`.
    durable_admin admin(std::string by) const {
        return durable_admin(parts_.engine, std::move(by));
    }

protected:
    durable_lock(slot_ref slot, std::int64_t permits, durable_options options)
        : parts_(lock_parts::make(std::move(slot), permits, std::move(options))) {}

    durable_ticket make_ticket(std::string holder_id, std::int64_t weight) const {
        return parts_.ticket(std::move(holder_id), weight, false);
    }
    result<durable_guard, std::error_code> wait(acquire_request request) const {
        return acquire_blocking(parts_, std::move(request));
    }
    task<result<durable_guard, std::error_code>> async_wait(acquire_request request) const {
        return acquire_task(parts_, std::move(request));
    }
    static acquire_request now_or_never(std::int64_t weight) {
        acquire_request request;
        request.weight = weight;
        request.timeout = std::chrono::nanoseconds(0);
        return request;
    }
    std::int64_t permit_count() const noexcept { return parts_.engine->permits(); }

private:
    result<std::optional<durable::inspection>, std::error_code> look_from_outside(given_time now) {
        const auto engine = parts_.engine;
        return call_store<result<std::optional<durable::inspection>, std::error_code>>(
            [engine, now] { return engine->inspect(now); }, engine->retry_time());
    }
    // The grant of a ticket that is bound to this process may outlive this object.
    template <class Got> void keep(const Got& got, const durable_ticket& t, bool in_transaction) {
        if (t.process_bound && (got || may_pass(got.error()))) {
            parts_.engine->keep_mark(in_transaction ? std::string() : t.nonce);
        }
    }
    result<durable_attempt, std::error_code>
    answer(const result<lock_engine::acquired, std::error_code>& got, durable_ticket& t,
           bool in_transaction = false) {
        keep(got, t, in_transaction);
        if (!got) {
            return unexpected{got.error()};
        }
        durable_attempt a;
        a.acquired = got->outcome.status != durable::acquire_status::waiting;
        a.fence = got->outcome.fence;
        a.lane = got->outcome.lane;
        a.position = got->outcome.position;
        a.retry_in = std::chrono::milliseconds(got->expiry_in_ms);
        t.fence = a.fence;
        return a;
    }
    result<bool, std::error_code>
    is_there(const result<std::optional<std::int64_t>, std::error_code>& renewed,
             const durable_ticket& t, bool in_transaction = false) {
        if (!renewed || *renewed) {
            keep(renewed, t, in_transaction);
        }
        if (!renewed) {
            return unexpected{renewed.error()};
        }
        return renewed->has_value();
    }

    lock_parts parts_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
