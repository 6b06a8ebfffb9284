// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_IMPL_LOCKS_HPP
#define BIDE_DURABLE_IMPL_LOCKS_HPP

// The definitions of locks.hpp and options.hpp. Those headers do not include task/task.hpp, which a
// program without coroutines does not need.

#include <bide/durable/detail/acquisition.hpp>

namespace bide { inline namespace BIDE_ABI {

// ---- tickets as JSON

namespace durable::detail {

template <class F> void fields(is_a<durable_ticket> auto& t, F& f) {
    std::int64_t version = record_format;
    f("v", version, number(record_format, record_format));
    f("holderId", t.holder_id);
    f("nonce", t.nonce);
    f("weight", t.weight, number(1, largest_permits));
    f("fence", t.fence, maybe(number(0), true));
    f("bound", t.process_bound, maybe({}, true));
}

} // namespace durable::detail

BIDE_DURABLE_INLINE std::string durable_ticket::to_string() const {
    return durable::detail::write_text(*this);
}

BIDE_DURABLE_INLINE result<durable_ticket, std::error_code>
durable_ticket::parse(std::string_view text) {
    return durable::detail::read_text<durable_ticket>(text, durable_errc::invalid_argument);
}

// ---- locks

BIDE_DURABLE_INLINE durable_semaphore::durable_semaphore(slot_ref slot, std::int64_t permits,
                                                         durable_options options)
    : engine_(std::make_shared<detail::lock_engine>(std::move(slot), permits, std::move(options))) {
}

BIDE_DURABLE_INLINE std::int64_t durable_semaphore::permits() const noexcept {
    return engine_->terms().permits;
}
BIDE_DURABLE_INLINE result<durable_guard, std::error_code>
durable_semaphore::acquire(acquire_request request) const {
    return detail::acquire_blocking(engine_, std::move(request));
}
BIDE_DURABLE_INLINE task<result<durable_guard, std::error_code>>
durable_semaphore::async_acquire(acquire_request request) const {
    return detail::acquire_task(engine_, std::move(request));
}
BIDE_DURABLE_INLINE durable_ticket durable_semaphore::ticket(std::string holder_id,
                                                             std::int64_t weight) const {
    return engine_->ticket(std::move(holder_id), weight, false);
}

// The mark of presence stays open (see bound_tickets), unless the store has answered that the
// ticket has neither a grant nor a place in the queue.
BIDE_DURABLE_INLINE result<durable_attempt, std::error_code>
durable_semaphore::try_acquire(durable_ticket& t) {
    const auto got = engine_->acquire(t, detail::intent::queue, engine_->terms());
    if (got || may_pass(got.error())) {
        engine_->keep_mark(t);
    }
    if (!got) {
        return unexpected{got.error()};
    }
    const durable::acquire_outcome& is = got->outcome;
    t.fence = is.fence;
    return durable_attempt{is.status != durable::acquire_status::waiting, is.fence, is.lane,
                           is.position, std::chrono::milliseconds(got->expiry_in_ms)};
}

BIDE_DURABLE_INLINE result<bool, std::error_code>
durable_semaphore::renew(const durable_ticket& t) {
    const auto renewed = engine_->renew(t);
    if (renewed || may_pass(renewed.error())) {
        engine_->keep_mark(t);
    }
    if (!renewed && renewed.error() == durable_errc::lock_lost) {
        return false;
    }
    return renewed.transform([](std::int64_t) { return true; });
}

BIDE_DURABLE_INLINE result<bool, std::error_code>
durable_semaphore::release(const durable_ticket& t) {
    return engine_->release(t);
}

BIDE_DURABLE_INLINE result<std::optional<durable::inspection>, std::error_code>
durable_semaphore::inspect() const {
    return detail::call_store<result<std::optional<durable::inspection>, std::error_code>>(
        [of = engine_] { return of->inspect(); }, engine_->retry_time());
}

BIDE_DURABLE_INLINE std::string durable_semaphore::explain() const { return engine_->explain(); }

BIDE_DURABLE_INLINE task<result<durable_guard, std::error_code>>
durable_shared_mutex::async_acquire(acquire_request request) const {
    request.weight = permits();
    return durable_semaphore::async_acquire(std::move(request));
}
BIDE_DURABLE_INLINE task<result<durable_guard, std::error_code>>
durable_shared_mutex::async_acquire_shared(acquire_request request) const {
    request.weight = 1;
    return durable_semaphore::async_acquire(std::move(request));
}

// ---- guards

BIDE_DURABLE_INLINE durable_guard::~durable_guard() {
    if (grant_ == nullptr) {
        return;
    }
    // If the grant is not held any more, another contender may hold the lock. Then the store is not
    // called, because it may hang. If give_back() throws, the grant ends with its lease.
    const auto give_back = [this] {
        static_cast<void>(detail::call_for(grant_, detail::giving_back(grant_, true)));
    };
    if (!grant_->is_held() || !detail::try_to(give_back)) {
        grant_->leave();
    }
}

BIDE_DURABLE_INLINE std::int64_t durable_guard::lane() const noexcept { return grant_->lane; }
BIDE_DURABLE_INLINE const durable_ticket& durable_guard::ticket() const noexcept {
    return grant_->ticket;
}
BIDE_DURABLE_INLINE std::stop_token durable_guard::lost() const noexcept { return grant_->lost(); }
BIDE_DURABLE_INLINE durable_loss durable_guard::loss() const noexcept { return grant_->loss(); }
BIDE_DURABLE_INLINE bool durable_guard::is_held() const noexcept { return grant_->is_held(); }
BIDE_DURABLE_INLINE std::chrono::milliseconds durable_guard::remaining() const noexcept {
    return grant_->remaining();
}

BIDE_DURABLE_INLINE result<void, std::error_code> durable_guard::renew() {
    return detail::call_for(
        grant_, [held = grant_] { return held->renew(); }, detail::call_kind::may_be_skipped);
}
BIDE_DURABLE_INLINE task<result<void, std::error_code>> durable_guard::async_renew() {
    return detail::async_call_store<result<void, std::error_code>>(
        [held = grant_] { return held->renew(); }, grant_->retry_time());
}

BIDE_DURABLE_INLINE result<void, std::error_code> durable_guard::release() {
    const auto ended = std::exchange(grant_, nullptr);
    return detail::call_for(ended, detail::giving_back(ended)).transform([](bool) {});
}
BIDE_DURABLE_INLINE task<result<void, std::error_code>> durable_guard::async_release() {
    return release_task(std::move(*this));
}
BIDE_DURABLE_INLINE task<result<void, std::error_code>>
durable_guard::release_task(durable_guard mine) {
    const std::shared_ptr<detail::grant> ended = std::exchange(mine.grant_, nullptr);
    auto releasing = detail::async_call_store<result<bool, std::error_code>>(
        detail::giving_back(ended), ended->retry_time(), detail::call_kind::has_to_run);
    const auto released = co_await std::move(releasing);
    co_return released.transform([](bool) {});
}

BIDE_DURABLE_INLINE int durable_guard::descriptor() const noexcept { return grant_->descriptor(); }
BIDE_DURABLE_INLINE result<bool, std::error_code> durable_guard::hand_over() {
    const auto ended = std::exchange(grant_, nullptr);
    return detail::call_for(ended, detail::giving_back(ended, true));
}

BIDE_DURABLE_INLINE durable_ticket durable_guard::detach() {
    durable_ticket t = grant_->ticket;
    grant_->detach();
    grant_.reset();
    return t;
}

// ---- durable_admin

namespace detail {

// Calls what(engine, note) on a store thread, for an administrator.
template <class What>
result<bool, std::error_code> administer(std::shared_ptr<lock_engine> engine, const std::string& by,
                                         std::string change, std::string_view why, What what) {
    if (!why.empty()) {
        change.append(": ").append(why);
    }
    const auto call = [engine, what, note = durable::admin_note{0, by, change, {}}] {
        return what(*engine, note);
    };
    return call_store<result<bool, std::error_code>>(call, engine->retry_time())
        .transform_error([](const std::error_code& error) {
            return error == errc::timeout ? make_error_code(durable_errc::indeterminate) : error;
        });
}

} // namespace detail

BIDE_DURABLE_INLINE result<bool, std::error_code>
durable_admin::force_release(std::int64_t fence, std::string_view why) {
    return detail::administer(engine_, by_, "force_release " + std::to_string(fence), why,
                              [fence](auto& on, auto& note) {
                                  return on.administer(&durable::force_release, fence, note);
                              });
}

BIDE_DURABLE_INLINE result<bool, std::error_code> durable_admin::resize(std::int64_t permits,
                                                                        std::string_view why) {
    return detail::administer(
        engine_, by_, "resize " + std::to_string(permits), why,
        [permits](auto& on, auto& note) { return on.administer(&durable::resize, permits, note); });
}

BIDE_DURABLE_INLINE result<bool, std::error_code> durable_admin::repair(std::int64_t min_fence,
                                                                        std::string_view why) {
    return detail::administer(engine_, by_, "repair", why, [min_fence](auto& on, auto& note) {
        return on.repair(min_fence, note);
    });
}

}} // namespace bide::BIDE_ABI

#endif
