// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_LEADER_CHANGES_HPP
#define BIDE_DURABLE_DETAIL_LEADER_CHANGES_HPP

// How observers of a leader_election read the leader and wait for a change.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/election.hpp>
#include <bide/durable/detail/store_call.hpp>
#include <bide/durable/leader_election.hpp>
#include <bide/durable/options.hpp>
#include <bide/durable/record_types.hpp>
#include <bide/sync/event.hpp>
#include <bide/task/task.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

inline result<std::optional<leader_info>, std::error_code> read_leader(election& it) {
    const auto seen = it.engine->inspect();
    if (!seen) {
        return unexpected{seen.error()};
    }
    std::optional<leader_info> now;
    if (*seen && !(*seen)->live.holders.empty()) {
        const durable::holder& h = (*seen)->live.holders.front();
        candidate& me = it.own();
        const std::lock_guard held(me.lock);
        now = leader_info{h.holder_id, h.fence, h.from.host, h.from.pid,
                          me.leads() && me.term->guard.fence() == h.fence};
    }
    return now;
}

// The wait for a change of the leader: reads, and when to read again if no change is signalled.
class change_of_leader {
public:
    using answer = result<std::optional<leader_info>, std::error_code>;

    change_of_leader(std::shared_ptr<election> of, leader_wait what)
        : of_(std::move(of)), what_(std::move(what)), until_(deadline::after(what_.timeout)),
          began_ns_(native_platform::now()) {}

    const std::stop_token& stop() const noexcept { return what_.stop; }
    std::function<answer()> read() {
        changed_ = of_->engine->signal().next();
        return [it = of_] { return read_leader(*it); };
    }
    call_limits limits() const {
        call_limits limits = of_->engine->retry_time();
        limits.stop = what_.stop;
        return limits;
    }
    // Returns true if the wait is over.
    bool is_over(const answer& seen) {
        const std::int64_t now = native_platform::now();
        if (!seen || (*seen ? (*seen)->token : 0) != what_.known) {
            return true;
        }
        why_ = what_.stop.stop_requested() ? errc::stopped : errc::timeout;
        const durable_options& o = of_->engine->options();
        const auto in_ns = [](std::chrono::milliseconds t) { return deadline::saturated_ns(t); };
        const std::int64_t rest =
            std::clamp((now - began_ns_) / 8, in_ns(o.poll_least), in_ns(o.poll_most));
        const deadline next = deadline::after(std::chrono::nanoseconds(rest));
        again_ = next.steady_ns() < until_.steady_ns() ? next : until_;
        return why_ == errc::stopped || now >= until_.steady_ns();
    }
    answer result_of(answer seen) const { // requires: is_over(seen)
        if (seen && (*seen ? (*seen)->token : 0) == what_.known) {
            return unexpected{make_error_code(why_)};
        }
        return seen;
    }
    event& changed() noexcept { return *changed_; }
    deadline again() const noexcept { return again_; }

private:
    const std::shared_ptr<election> of_;
    const leader_wait what_;
    const deadline until_;
    const std::int64_t began_ns_;
    std::shared_ptr<event> changed_;
    deadline again_ = deadline::poll();
    errc why_ = errc::timeout;
};

inline change_of_leader::answer wait_for_leader(const std::shared_ptr<election>& it,
                                                leader_wait what) {
    change_of_leader mine(it, std::move(what));
    const auto look = [it]() noexcept { it->tell(); };
    const std::stop_callback on_stop(mine.stop(), look);
    for (;;) {
        auto seen = call_store(mine.read(), mine.limits());
        if (mine.is_over(seen)) {
            return mine.result_of(std::move(seen));
        }
        mine.changed().wait_for(
            std::chrono::nanoseconds(mine.again().steady_ns() - native_platform::now()));
    }
}

inline task<change_of_leader::answer> async_wait_for_leader(std::shared_ptr<election> it,
                                                            leader_wait what) {
    change_of_leader mine(it, std::move(what));
    for (;;) {
        auto reading = async_call_store(mine.read(), mine.limits());
        auto seen = co_await std::move(reading);
        if (mine.is_over(seen)) {
            co_return mine.result_of(std::move(seen));
        }
        auto change =
            mine.changed().async_wait().with_deadline(mine.again()).with_stop(mine.stop());
        const auto changed = co_await std::move(change);
        if (!changed && changed.error() == errc::stopped) {
            co_return unexpected{make_error_code(errc::stopped)};
        }
    }
}

}}} // namespace bide::BIDE_ABI::detail

#endif
