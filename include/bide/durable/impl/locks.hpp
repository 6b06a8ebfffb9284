// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_IMPL_LOCKS_HPP
#define BIDE_DURABLE_IMPL_LOCKS_HPP

// The definitions of locks.hpp, which does not include task/task.hpp: a program without coroutines
// does not need it.

#include <bide/core/config.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/acquisition.hpp>
#include <bide/durable/detail/lock_engine.hpp>
#include <bide/durable/detail/store_call.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/guard.hpp>
#include <bide/durable/locks.hpp>
#include <bide/durable/options.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/ticket.hpp>
#include <bide/task/task.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

BIDE_DURABLE_INLINE durable_lock::durable_lock(slot_ref slot, std::int64_t permits,
                                               durable_options options)
    : engine_(std::make_shared<lock_engine>(std::move(slot), permits, std::move(options))) {}

// A grant of a ticket that is bound to this process may outlive the lock object. So the ticket's
// mark of presence stays open, unless the ticket certainly has neither a grant nor a place in the
// queue.
BIDE_DURABLE_INLINE result<durable_attempt, std::error_code>
durable_lock::try_acquire(durable_ticket& t) {
    const auto got = engine_->acquire(t, intent::queue);
    if (got || may_pass(got.error())) {
        engine_->keep_mark(t);
    }
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

BIDE_DURABLE_INLINE result<bool, std::error_code> durable_lock::renew(const durable_ticket& t) {
    const auto renewed = engine_->renew(t);
    if (renewed ? renewed->has_value() : may_pass(renewed.error())) {
        engine_->keep_mark(t);
    }
    return renewed ? result<bool, std::error_code>(renewed->has_value())
                   : unexpected{renewed.error()};
}

BIDE_DURABLE_INLINE result<bool, std::error_code> durable_lock::release(const durable_ticket& t) {
    return engine_->release(t);
}

BIDE_DURABLE_INLINE result<std::optional<durable::inspection>, std::error_code>
durable_lock::inspect() {
    return call_store<result<std::optional<durable::inspection>, std::error_code>>(
        [of = engine_] { return of->inspect(); }, engine_->retry_time());
}

BIDE_DURABLE_INLINE std::string durable_lock::explain() const { return engine_->explain(); }

BIDE_DURABLE_INLINE durable_admin durable_lock::admin(std::string by) const {
    return durable_admin(engine_, std::move(by));
}

BIDE_DURABLE_INLINE durable_ticket durable_lock::make_ticket(std::string holder_id,
                                                             std::int64_t weight) const {
    return ticket_of(*engine_, std::move(holder_id), weight, false);
}
BIDE_DURABLE_INLINE result<durable_guard, std::error_code>
durable_lock::wait(acquire_request request) const {
    return acquire_blocking(engine_, std::move(request));
}
BIDE_DURABLE_INLINE task<result<durable_guard, std::error_code>>
durable_lock::async_wait(acquire_request request) const {
    return acquire_task(engine_, std::move(request));
}
BIDE_DURABLE_INLINE std::int64_t durable_lock::permit_count() const noexcept {
    return engine_->permits();
}

} // namespace detail

BIDE_DURABLE_INLINE task<result<durable_guard, std::error_code>>
durable_mutex::async_acquire(acquire_request request) {
    return async_wait(std::move(request));
}

BIDE_DURABLE_INLINE task<result<durable_guard, std::error_code>>
durable_semaphore::async_acquire(acquire_request request) {
    return async_wait(std::move(request));
}

BIDE_DURABLE_INLINE task<result<durable_guard, std::error_code>>
durable_shared_mutex::async_acquire(acquire_request request) {
    return async_wait(weighing(std::move(request), permit_count()));
}
BIDE_DURABLE_INLINE task<result<durable_guard, std::error_code>>
durable_shared_mutex::async_acquire_shared(acquire_request request) {
    return async_wait(weighing(std::move(request), 1));
}

// ---- durable_admin

namespace detail {

// Calls what(engine, note) on a store thread, for an administrator.
template <class What>
result<bool, std::error_code> administer(std::shared_ptr<lock_engine> engine, const std::string& by,
                                         std::string what_for, std::string_view why, What what) {
    if (!why.empty()) {
        what_for.append(": ").append(why);
    }
    auto answer = call_store<result<bool, std::error_code>>(
        [engine, what, note = durable::admin_note{0, by, what_for, {}}] {
            return what(*engine, note);
        },
        engine->retry_time());
    if (!answer && answer.error() == errc::timeout) {
        return unexpected{make_error_code(durable_errc::indeterminate)};
    }
    return answer;
}

} // namespace detail

BIDE_DURABLE_INLINE result<bool, std::error_code>
durable_admin::force_release(std::int64_t fence, std::string_view why) {
    return detail::administer(engine_, by_, "force_release " + std::to_string(fence), why,
                              [fence](detail::lock_engine& on, durable::admin_note note) {
                                  return on.administer([&](durable::record& r, std::int64_t now) {
                                      note.at = now;
                                      return durable::force_release(r, fence, note);
                                  });
                              });
}

BIDE_DURABLE_INLINE result<bool, std::error_code> durable_admin::resize(std::int64_t permits,
                                                                        std::string_view why) {
    return detail::administer(engine_, by_, "resize " + std::to_string(permits), why,
                              [permits](detail::lock_engine& on, durable::admin_note note) {
                                  return on.administer([&](durable::record& r, std::int64_t now) {
                                      note.at = now;
                                      return durable::resize(r, permits, note);
                                  });
                              });
}

BIDE_DURABLE_INLINE result<bool, std::error_code> durable_admin::repair(std::int64_t min_fence,
                                                                        std::string_view why) {
    return detail::administer(engine_, by_, "repair", why,
                              [min_fence](detail::lock_engine& on, durable::admin_note note) {
                                  return on.repair(min_fence, std::move(note));
                              });
}

}} // namespace bide::BIDE_ABI

#endif
