// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_IMPL_DURABLE_LOCK_HPP
#define BIDE_DURABLE_IMPL_DURABLE_LOCK_HPP

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/acquire_calls.hpp>
#include <bide/durable/detail/acquisition.hpp>
#include <bide/durable/detail/durable_lock.hpp>
#include <bide/durable/detail/lock_engine.hpp>
#include <bide/durable/detail/store_call.hpp>
#include <bide/durable/errors.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// The grant of a ticket that is bound to this process may outlive the lock object.
template <class Got>
void keep_mark(lock_engine& engine, const Got& got, const durable_ticket& t, bool in_transaction) {
    if (t.process_bound && (got || may_pass(got.error()))) {
        engine.keep_mark(in_transaction ? std::string() : t.nonce);
    }
}

inline result<durable_attempt, std::error_code>
attempt_of(lock_engine& engine, const result<lock_engine::acquired, std::error_code>& got,
           durable_ticket& t, bool in_transaction = false) {
    keep_mark(engine, got, t, in_transaction);
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

inline result<bool, std::error_code>
is_there(lock_engine& engine, const result<std::optional<std::int64_t>, std::error_code>& renewed,
         const durable_ticket& t, bool in_transaction = false) {
    if (!renewed || *renewed) {
        keep_mark(engine, renewed, t, in_transaction);
    }
    if (!renewed) {
        return unexpected{renewed.error()};
    }
    return renewed->has_value();
}

inline result<std::optional<durable::inspection>, std::error_code>
inspect_on_store_thread(const std::shared_ptr<lock_engine>& engine, given_time now) {
    return call_store<result<std::optional<durable::inspection>, std::error_code>>(
        [engine, now] { return engine->inspect(now); }, engine->retry_time());
}

BIDE_DURABLE_INLINE durable_lock::durable_lock(slot_ref slot, std::int64_t permits,
                                               durable_options options)
    : parts_(std::make_shared<lock_parts>(
          lock_parts::make(std::move(slot), permits, std::move(options)))) {}

BIDE_DURABLE_INLINE result<durable_attempt, std::error_code>
durable_lock::try_acquire(durable_ticket& t) {
    lock_engine& engine = *parts_->engine;
    return attempt_of(engine, engine.acquire(t, std::nullopt, intent::queue), t);
}
BIDE_DURABLE_INLINE result<durable_attempt, std::error_code>
durable_lock::try_acquire(durable_ticket& t, std::chrono::milliseconds now) {
    lock_engine& engine = *parts_->engine;
    return attempt_of(engine, engine.acquire(t, now, intent::queue), t);
}
BIDE_DURABLE_INLINE result<durable_attempt, std::error_code>
durable_lock::try_acquire_in(caller_transaction& in, durable_ticket& t, given_time now) {
    lock_engine& engine = *parts_->engine;
    return attempt_of(engine, engine.acquire_in(in, t, now), t, true);
}

BIDE_DURABLE_INLINE result<bool, std::error_code> durable_lock::renew(const durable_ticket& t) {
    lock_engine& engine = *parts_->engine;
    return is_there(engine, engine.renew(t, std::nullopt), t);
}
BIDE_DURABLE_INLINE result<bool, std::error_code>
durable_lock::renew(const durable_ticket& t, std::chrono::milliseconds now) {
    lock_engine& engine = *parts_->engine;
    return is_there(engine, engine.renew(t, now), t);
}
BIDE_DURABLE_INLINE result<bool, std::error_code>
durable_lock::renew_in(caller_transaction& in, const durable_ticket& t, given_time now) {
    lock_engine& engine = *parts_->engine;
    return is_there(engine, engine.renew_in(in, t, now), t, true);
}

BIDE_DURABLE_INLINE result<bool, std::error_code> durable_lock::release(const durable_ticket& t) {
    return parts_->engine->release(t);
}
BIDE_DURABLE_INLINE result<bool, std::error_code>
durable_lock::release_in(caller_transaction& in, const durable_ticket& t) {
    return parts_->engine->release_in(in, t);
}

BIDE_DURABLE_INLINE result<std::optional<durable::inspection>, std::error_code>
durable_lock::inspect() {
    return inspect_on_store_thread(parts_->engine, std::nullopt);
}
BIDE_DURABLE_INLINE result<std::optional<durable::inspection>, std::error_code>
durable_lock::inspect(std::chrono::milliseconds now) {
    return inspect_on_store_thread(parts_->engine, now);
}

BIDE_DURABLE_INLINE std::string durable_lock::explain() const { return parts_->engine->explain(); }

BIDE_DURABLE_INLINE durable_admin durable_lock::admin(std::string by) const {
    return durable_admin(parts_->engine, std::move(by));
}

BIDE_DURABLE_INLINE durable_ticket durable_lock::make_ticket(std::string holder_id,
                                                             std::int64_t weight) const {
    return parts_->ticket(std::move(holder_id), weight, false);
}
BIDE_DURABLE_INLINE result<durable_guard, std::error_code>
durable_lock::wait(acquire_request request) const {
    return acquire_blocking(*parts_, std::move(request));
}
BIDE_DURABLE_INLINE task<result<durable_guard, std::error_code>>
durable_lock::async_wait(acquire_request request) const {
    return acquire_task(*parts_, std::move(request));
}
BIDE_DURABLE_INLINE std::int64_t durable_lock::permit_count() const noexcept {
    return parts_->engine->permits();
}

}}} // namespace bide::BIDE_ABI::detail

#endif
