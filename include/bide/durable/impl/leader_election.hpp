// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_IMPL_LEADER_ELECTION_HPP
#define BIDE_DURABLE_IMPL_LEADER_ELECTION_HPP

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/election.hpp>
#include <bide/durable/detail/election_run.hpp>
#include <bide/durable/detail/leader_changes.hpp>
#include <bide/durable/detail/store_call.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/leader_election.hpp>
#include <bide/task/task.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace bide { inline namespace BIDE_ABI {

BIDE_DURABLE_INLINE leader_election::leader_election(slot_ref slot, durable_options options)
    : it_(std::make_shared<detail::election>(std::move(slot), std::move(options))) {}

BIDE_DURABLE_INLINE result<void, std::error_code>
leader_election::campaign(acquire_request request) {
    return detail::campaign_of(it_, std::move(request), false);
}
BIDE_DURABLE_INLINE task<result<void, std::error_code>>
leader_election::async_campaign(acquire_request request) {
    return detail::async_campaign_of(it_, std::move(request), false);
}

BIDE_DURABLE_INLINE result<void, std::error_code> leader_election::resign() {
    const auto term = detail::end_term(*it_);
    if (term == nullptr) {
        return {};
    }
    auto released = term->guard.release();
    it_->tell();
    return released;
}
BIDE_DURABLE_INLINE task<result<void, std::error_code>> leader_election::async_resign() {
    return [](std::shared_ptr<detail::election> it) -> task<result<void, std::error_code>> {
        const auto term = detail::end_term(*it);
        if (term == nullptr) {
            co_return result<void, std::error_code>();
        }
        auto releasing = term->guard.async_release();
        auto released = co_await std::move(releasing);
        it->tell();
        co_return released;
    }(it_);
}

BIDE_DURABLE_INLINE bool leader_election::is_leader() const { return token() != 0; }
BIDE_DURABLE_INLINE std::int64_t leader_election::token() const {
    detail::candidate& me = it_->own();
    const std::lock_guard held(me.lock);
    return me.leads() ? me.term->guard.fence() : 0;
}
BIDE_DURABLE_INLINE std::stop_token leader_election::lost() const {
    detail::candidate& me = it_->own();
    const std::lock_guard held(me.lock);
    if (me.leads()) {
        return me.ends.get_token();
    }
    std::stop_source none;
    none.request_stop();
    return none.get_token();
}

BIDE_DURABLE_INLINE result<std::optional<leader_info>, std::error_code>
leader_election::leader() const {
    return detail::call_store<detail::change_of_leader::answer>(
        [it = it_] { return detail::read_leader(*it); }, it_->engine->retry_time());
}
BIDE_DURABLE_INLINE task<result<std::optional<leader_info>, std::error_code>>
leader_election::async_leader() const {
    return detail::async_call_store<detail::change_of_leader::answer>(
        [it = it_] { return detail::read_leader(*it); }, it_->engine->retry_time());
}
BIDE_DURABLE_INLINE result<std::optional<leader_info>, std::error_code>
leader_election::wait_for_change(leader_wait what) const {
    return detail::wait_for_leader(it_, std::move(what));
}
BIDE_DURABLE_INLINE task<result<std::optional<leader_info>, std::error_code>>
leader_election::async_wait_for_change(leader_wait what) const {
    return detail::async_wait_for_leader(it_, std::move(what));
}

BIDE_DURABLE_INLINE result<void, std::error_code> leader_election::run(leader_callbacks calls,
                                                                       std::stop_token stop) {
    if (!calls.on_elected) {
        return unexpected{make_error_code(durable_errc::invalid_argument)};
    }
    std::jthread observer; // joined after the run has stopped it
    detail::run_scope mine(it_);
    if (!mine.begun()) {
        return unexpected{std::make_error_code(std::errc::operation_in_progress)};
    }
    if (calls.on_new_leader) {
        const std::stop_token watching = mine.watching.get_token();
        observer = std::jthread([it = it_, &calls, watching] {
            detail::observe_leaders(it, calls.on_new_leader, watching);
        });
    }
    return detail::run_election(mine, it_, calls, stop);
}
BIDE_DURABLE_INLINE task<result<void, std::error_code>>
leader_election::async_run(async_leader_callbacks calls, std::stop_token stop) {
    return detail::async_run_observed(it_, std::move(calls), std::move(stop));
}

BIDE_DURABLE_INLINE std::string leader_election::explain() const { return it_->engine->explain(); }

}} // namespace bide::BIDE_ABI

#endif
