// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_IMPL_GUARD_HPP
#define BIDE_DURABLE_IMPL_GUARD_HPP

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/grant.hpp>
#include <bide/durable/detail/store_call.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/guard.hpp>
#include <bide/durable/ticket.hpp>
#include <bide/task/task.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI {

BIDE_DURABLE_INLINE durable_guard::~durable_guard() {
    if (grant_ != nullptr) {
        detail::end_grant(grant_);
    }
}

BIDE_DURABLE_INLINE std::int64_t durable_guard::fence() const noexcept {
    return grant_->ticket().fence;
}
BIDE_DURABLE_INLINE std::int64_t durable_guard::lane() const noexcept { return grant_->lane(); }
BIDE_DURABLE_INLINE const durable_ticket& durable_guard::ticket() const noexcept {
    return grant_->ticket();
}
BIDE_DURABLE_INLINE std::stop_token durable_guard::lost() const noexcept { return grant_->lost(); }
BIDE_DURABLE_INLINE std::stop_token durable_guard::at_risk() const noexcept {
    return grant_->at_risk();
}
BIDE_DURABLE_INLINE durable_loss durable_guard::loss() const noexcept { return grant_->loss(); }
BIDE_DURABLE_INLINE bool durable_guard::is_held() const noexcept { return grant_->is_held(); }
BIDE_DURABLE_INLINE void durable_guard::check() const {
    if (!is_held()) {
        detail::throw_error(make_error_code(durable_errc::lock_lost));
    }
}
BIDE_DURABLE_INLINE std::chrono::milliseconds durable_guard::remaining() const noexcept {
    return grant_->remaining();
}

BIDE_DURABLE_INLINE result<void, std::error_code> durable_guard::renew() {
    return detail::call_for(grant_, detail::renewing(grant_));
}
BIDE_DURABLE_INLINE task<result<void, std::error_code>> durable_guard::async_renew() {
    return detail::async_call_store<result<void, std::error_code>>(detail::renewing(grant_),
                                                                   grant_->retry_time());
}

BIDE_DURABLE_INLINE result<void, std::error_code> durable_guard::release() {
    return detail::release_grant(std::exchange(grant_, nullptr));
}
BIDE_DURABLE_INLINE result<void, std::error_code>
durable_guard::release_for(std::chrono::nanoseconds limit) {
    const std::shared_ptr<detail::grant> ended = std::exchange(grant_, nullptr);
    detail::call_limits limits = ended->retry_time();
    limits.until = deadline::after(limit);
    return detail::call_store<result<void, std::error_code>>(detail::giving_back(ended), limits,
                                                             detail::call_kind::has_to_run);
}
BIDE_DURABLE_INLINE task<result<void, std::error_code>> durable_guard::async_release() {
    return release_task(std::move(*this));
}
BIDE_DURABLE_INLINE task<result<void, std::error_code>>
durable_guard::release_task(durable_guard mine) {
    const std::shared_ptr<detail::grant> ended = std::exchange(mine.grant_, nullptr);
    auto released = detail::async_call_store<result<void, std::error_code>>(
        detail::giving_back(ended), ended->retry_time(), detail::call_kind::has_to_run);
    co_return co_await std::move(released);
}

BIDE_DURABLE_INLINE int durable_guard::descriptor() const noexcept { return grant_->descriptor(); }
BIDE_DURABLE_INLINE result<bool, std::error_code> durable_guard::hand_over() {
    return detail::hand_over_grant(std::exchange(grant_, nullptr));
}

BIDE_DURABLE_INLINE durable_ticket durable_guard::detach() {
    durable_ticket t = grant_->ticket();
    grant_->detach();
    grant_.reset();
    return t;
}

}} // namespace bide::BIDE_ABI

#endif
