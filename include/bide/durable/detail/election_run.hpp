// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_ELECTION_RUN_HPP
#define BIDE_DURABLE_DETAIL_ELECTION_RUN_HPP

// leader_election::run() and async_run(): campaigns, terms, and the observer beside them.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/election.hpp>
#include <bide/durable/detail/leader_changes.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/leader_election.hpp>
#include <bide/durable/options.hpp>
#include <bide/sync/event.hpp>
#include <bide/task/compose.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <system_error>
#include <tuple>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// Whether a run tries again after the error.
inline bool passes(const std::error_code& error) noexcept {
    return error == durable_errc::lock_lost || error == durable_errc::queue_full ||
           (error != std::errc::operation_in_progress && may_pass(error));
}

// The run of a candidate. Its destructor releases a term that an exception has ended.
class run_scope {
public:
    explicit run_scope(std::shared_ptr<election> of) : of_(std::move(of)) {
        candidate& me = of_->own();
        const std::lock_guard held(me.lock);
        begun_ = !me.runs && !me.campaigns && !me.leads();
        me.runs = me.runs || begun_;
    }
    run_scope(const run_scope&) = delete;
    run_scope& operator=(const run_scope&) = delete;
    ~run_scope() {
        watching.request_stop();
        if (begun_) {
            candidate& me = of_->own();
            const std::unique_ptr<held_term> term = me.take();
            const std::lock_guard held(me.lock);
            me.runs = false;
        }
    }

    bool begun() const noexcept { return begun_; }
    election& of() noexcept { return *of_; }
    bool was_resigned() {
        candidate& me = of_->own();
        const std::lock_guard held(me.lock);
        return me.resigned;
    }
    leader_term term() {
        candidate& me = of_->own();
        const std::lock_guard held(me.lock);
        return {me.term->guard.fence(), me.ends.get_token()};
    }
    std::stop_source term_source() {
        candidate& me = of_->own();
        const std::lock_guard held(me.lock);
        return me.ends;
    }
    // Returns how a term ended whose release returned this. was_held: until the release.
    term_end end_of(bool was_held, const result<void, std::error_code>& released, bool is_stopped) {
        const bool is_lost =
            !was_held || (!released && released.error() == durable_errc::lock_lost);
        return is_lost          ? term_end::lost
               : was_resigned() ? term_end::resigned
               : is_stopped     ? term_end::stopped
                                : term_end::finished;
    }

    std::stop_source watching; // stops the observer of the run

private:
    const std::shared_ptr<election> of_;
    bool begun_ = false;
};

// Tells the callbacks of the end of a term.
template <class Callbacks>
void tell_end(const Callbacks& calls, term_end how, const result<void, std::error_code>& released) {
    if (!released && how != term_end::lost && released.error() != errc::stopped && calls.on_error) {
        calls.on_error(released.error());
    }
    if (calls.on_lost) {
        calls.on_lost(how);
    }
}

// Whether an error of a campaign ends the run, and with which result.
template <class Callbacks>
std::optional<result<void, std::error_code>> end_of_run(run_scope& mine, const Callbacks& calls,
                                                        std::error_code error, bool is_stopped) {
    if (is_stopped) {
        return result<void, std::error_code>();
    }
    if (error == errc::stopped && mine.was_resigned()) {
        return std::nullopt;
    }
    if (error == errc::stopped || !passes(error)) {
        return result<void, std::error_code>(unexpected{error});
    }
    if (calls.on_error) {
        calls.on_error(error);
    }
    return std::nullopt;
}

// Waits for a time or a stop.
inline void pause_for(std::chrono::nanoseconds rest, const std::stop_token& stop) {
    event stopped;
    const auto tell = [&stopped]() noexcept { stopped.set(); };
    const std::stop_callback on_stop(stop, tell);
    stopped.wait_for(rest);
}

// Notes the leader that an observer has seen, and tells of it.
inline void note_leader(const change_of_leader::answer& seen, std::int64_t& known,
                        const std::function<void(const leader_info&)>& on_new_leader) {
    known = *seen ? (*seen)->token : 0;
    if (*seen) {
        on_new_leader(**seen);
    }
}

inline void observe_leaders(const std::shared_ptr<election>& it,
                            const std::function<void(const leader_info&)>& on_new_leader,
                            const std::stop_token& stop) {
    for (std::int64_t known = 0; !stop.stop_requested();) {
        leader_wait what;
        what.known = known;
        what.stop = stop;
        const auto seen = wait_for_leader(it, std::move(what));
        if (seen) {
            note_leader(seen, known, on_new_leader);
        } else {
            pause_for(it->engine->options().poll_most, stop);
        }
    }
}

inline task<> async_observe_leaders(std::shared_ptr<election> it,
                                    std::function<void(const leader_info&)> on_new_leader,
                                    std::stop_token stop) {
    for (std::int64_t known = 0; on_new_leader && !stop.stop_requested();) {
        leader_wait what;
        what.known = known;
        what.stop = stop;
        auto waiting = async_wait_for_leader(it, std::move(what));
        const auto seen = co_await std::move(waiting);
        if (seen) {
            note_leader(seen, known, on_new_leader);
            continue;
        }
        const deadline again = deadline::after(it->engine->options().poll_most);
        auto pause = sleep_until(again).with_stop(stop);
        const auto paused = co_await std::move(pause);
        if (!paused && paused.error() == errc::stopped) { // or its task was cancelled
            co_return;
        }
    }
}

inline result<void, std::error_code> run_election(run_scope& mine,
                                                  const std::shared_ptr<election>& it,
                                                  const leader_callbacks& calls,
                                                  const std::stop_token& stop) {
    while (!stop.stop_requested()) {
        acquire_request request;
        request.stop = stop;
        const auto won = campaign_of(it, std::move(request), true);
        if (!won) {
            if (auto end = end_of_run(mine, calls, won.error(), stop.stop_requested())) {
                return *end;
            }
            if (won.error() != errc::stopped) {
                pause_for(it->engine->options().poll_most, stop);
            }
            continue;
        }
        {
            const linked_stop on_stop(stop, stops_other{mine.term_source()});
            calls.on_elected(mine.term());
        }
        const std::unique_ptr<held_term> term = it->own().take();
        if (term == nullptr) { // a child of fork() has returned from on_elected
            return stopped_campaign();
        }
        const bool was_held = term->guard.is_held(); // a store that fails tells nothing of a loss
        const auto released = term->guard.release();
        it->tell();
        tell_end(calls, mine.end_of(was_held, released, stop.stop_requested()), released);
    }
    return {};
}

inline task<result<void, std::error_code>> async_run_election(std::shared_ptr<election> it,
                                                              async_leader_callbacks calls,
                                                              std::stop_token stop,
                                                              std::stop_source watching) {
    run_scope mine(it);
    mine.watching = std::move(watching);
    if (!mine.begun()) {
        co_return unexpected{std::make_error_code(std::errc::operation_in_progress)};
    }
    const std::stop_token cancelled = this_task::get_stop_token();
    while (!stop.stop_requested()) {
        if (cancelled.stop_requested()) { // a campaign that need not wait would succeed
            co_return stopped_campaign();
        }
        acquire_request request;
        request.stop = stop;
        auto campaign = async_campaign_of(it, std::move(request), true);
        const auto won = co_await std::move(campaign);
        if (!won) {
            if (auto end = end_of_run(mine, calls, won.error(), stop.stop_requested())) {
                co_return *end;
            }
            if (won.error() != errc::stopped) {
                const deadline again = deadline::after(it->engine->options().poll_most);
                auto pause = sleep_until(again).with_stop(stop);
                static_cast<void>(co_await std::move(pause));
            }
            continue;
        }
        {
            const linked_stop on_stop(stop, stops_other{mine.term_source()});
            const linked_stop on_cancel(cancelled, stops_other{mine.term_source()});
            auto work = calls.on_elected(mine.term());
            co_await std::move(work);
        }
        const std::unique_ptr<held_term> term = it->own().take();
        if (term == nullptr) { // as above
            co_return stopped_campaign();
        }
        const bool was_held = term->guard.is_held(); // as above
        auto releasing = term->guard.async_release();
        const auto released = co_await std::move(releasing);
        it->tell();
        tell_end(calls, mine.end_of(was_held, released, stop.stop_requested()), released);
    }
    co_return result<void, std::error_code>();
}

inline task<result<void, std::error_code>> async_run_observed(std::shared_ptr<election> it,
                                                              async_leader_callbacks calls,
                                                              std::stop_token stop) {
    if (!calls.on_elected) {
        co_return unexpected{make_error_code(durable_errc::invalid_argument)};
    }
    if (!calls.on_new_leader) {
        auto alone = async_run_election(it, std::move(calls), std::move(stop), std::stop_source());
        co_return co_await std::move(alone);
    }
    const std::stop_source watching;
    auto observer = async_observe_leaders(it, std::move(calls.on_new_leader), watching.get_token());
    auto runner = async_run_election(it, std::move(calls), std::move(stop), watching);
    auto both = when_all(std::move(runner), std::move(observer));
    auto ended = co_await std::move(both);
    co_return std::move(std::get<0>(ended));
}

}}} // namespace bide::BIDE_ABI::detail

#endif
