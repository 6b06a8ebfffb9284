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

// What every durable lock has: steps of an acquisition for those who keep time themselves, a look
// from outside, and the operations of an administrator.
class durable_lock {
public:
    // ---- One step at a time, without waiting: for work that is suspended and taken up again, in
    // this process or in another, and for replays. The forms with `now` are for lock_clock::caller
    // and depend on nothing else; with other clocks they answer durable_errc::clock_mismatch.
    // Blocks, all of them: for the store, which is called on this thread: for
    // durable_options::patience, and for what one operation of the slot takes besides. Errors:
    // durable_errc, errno's, the store's.

    // Takes what the ticket asks for if it is its turn, else its place in the queue, to be called
    // again before the waiter's time is over. Once acquired it answers the same, with a new lease.
    result<durable_attempt, std::error_code> try_acquire(durable_ticket& t) {
        return answer(parts_.engine->acquire(t, std::nullopt, intent::queue), t);
    }
    result<durable_attempt, std::error_code> try_acquire(durable_ticket& t,
                                                         std::chrono::milliseconds now) {
        return answer(parts_.engine->acquire(t, now, intent::queue), t);
    }

    // A lease from now on. False: it is lost.
    result<bool, std::error_code> renew(const durable_ticket& t) {
        return is_there(parts_.engine->renew(t, std::nullopt), t);
    }
    result<bool, std::error_code> renew(const durable_ticket& t, std::chrono::milliseconds now) {
        return is_there(parts_.engine->renew(t, now), t);
    }

    // Gives back what this ticket's grant holds, or its place in the queue. False: neither was there.
    result<bool, std::error_code> release(const durable_ticket& t) {
        return parts_.engine->release(t);
    }

    // ---- The same inside a transaction of the caller's, on a slot that is about the same place as
    // this lock's and a connection of the caller's: what the lock does and the caller's own work are
    // committed together, or not at all. Who renews first in a transaction, and then works in it,
    // works under the lock whatever its lease does. What they answer is true once the transaction
    // is committed; after one that was not, look again. Errors: durable_errc::conflict_timeout: the
    // record has changed meanwhile, begin again.

    template <transactional_slot S>
    result<durable_attempt, std::error_code>
    try_acquire_in(S& slot, typename S::transaction& in, durable_ticket& t, given_time now = {}) {
        return answer(parts_.engine->acquire_in(slot, in, t, now), t, true);
    }
    template <transactional_slot S>
    result<bool, std::error_code> renew_in(S& slot, typename S::transaction& in,
                                           const durable_ticket& t, given_time now = {}) {
        return is_there(parts_.engine->renew_in(slot, in, t, now), t, true);
    }
    template <transactional_slot S>
    result<bool, std::error_code> release_in(S& slot, typename S::transaction& in,
                                             const durable_ticket& t) {
        return parts_.engine->release_in(slot, in, t);
    }

    // Who holds it and who waits, now. Nothing: it was never used.
    // Blocks: for the store, on a store thread, and no longer than durable_options::patience and
    // attempt_limit: errc::timeout.
    result<std::optional<durable::inspection>, std::error_code> inspect() {
        return look_from_outside(std::nullopt);
    }
    result<std::optional<durable::inspection>, std::error_code>
    inspect(std::chrono::milliseconds now) {
        return look_from_outside(now);
    }

    // Where the lock is kept, and what the store said when a call failed last: one line for people,
    // without passwords. Empty where the slot says nothing.
    std::string explain() const { return parts_.engine->explain(); }

    // What somebody may do from outside, who is noted in the record.
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
            [engine, now] { return engine->inspect(now); }, engine->patience());
    }
    // What a ticket has that is bound to this process goes on without this object.
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
        a.acquired = got->outcome.is != durable::standing::waiting;
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
