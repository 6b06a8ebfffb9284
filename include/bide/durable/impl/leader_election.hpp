// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_IMPL_LEADER_ELECTION_HPP
#define BIDE_DURABLE_IMPL_LEADER_ELECTION_HPP

// Implements a candidate of a leader_election, its campaigns, its terms and its runs as coroutines.
// The blocking functions run these coroutines and wait for them.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/timer.hpp>
#include <bide/core/wake_scope.hpp>
#include <bide/durable/detail/acquisition.hpp>
#include <bide/durable/detail/background.hpp>
#include <bide/durable/detail/lock_engine.hpp>
#include <bide/durable/detail/per_process.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/guard.hpp>
#include <bide/durable/leader_election.hpp>
#include <bide/durable/options.hpp>
#include <bide/durable/record_types.hpp>
#include <bide/durable/slot.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/task/compose.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// ---- campaigns and terms

struct stops_other {
    std::stop_source other;
    void operator()() {
        std::stop_source mine(other); // a callback of it may end the term, and destroy this
        mine.request_stop();
    }
};
using linked_stop = std::stop_callback<stops_other>;

// A term of a candidate. The loss of the lock stops the term's source.
struct held_term {
    held_term(durable_guard of, const std::stop_source& ends)
        : guard(std::move(of)), on_loss(guard.lost(), stops_other{ends}) {}

    durable_guard guard;
    linked_stop on_loss;
};

// What one process has of a candidate. User code and the store are never called under the lock.
struct candidate {
    candidate() = default;
    candidate(const candidate&) = delete;
    candidate& operator=(const candidate&) = delete;

    mutex lock;
    // Under the lock:
    bool campaigns = false;                  // a campaign is under way
    bool runs = false;                       // a run is under way
    bool resigned = false;                   // since the latest campaign of the run began
    std::stop_source ends{std::nostopstate}; // of the campaign, and of the term that it wins
    std::unique_ptr<held_term> term;         // nullptr: it does not lead, or lost it unnoticed

    bool leads() { return term != nullptr && term->guard.is_held(); } // under the lock

    // Takes the term out.
    std::unique_ptr<held_term> take() {
        const std::lock_guard held(lock);
        return std::exchange(term, nullptr);
    }
};

struct election {
    election(slot_ref slot, durable_options options)
        : engine(std::make_shared<lock_engine>(std::move(slot), 1, std::move(options))) {}

    candidate& own() {
        return candidates.get([] { return candidate(); });
    }
    // Wakes what waits for a change.
    void tell() {
        const wake_scope<native_platform> away(&service_executor<native_platform>);
        engine->signal().signal();
    }

    const std::shared_ptr<lock_engine> engine;
    per_process<candidate> candidates;
};

// A campaign, from its begin to its end.
class campaign_scope {
public:
    campaign_scope(std::shared_ptr<election> of, bool is_of_run) : of_(std::move(of)) {
        candidate& me = of_->own();
        std::unique_ptr<held_term> lost; // its destructor calls no store
        const std::lock_guard held(me.lock);
        leads_ = !is_of_run && me.leads();
        if (me.campaigns || me.runs != is_of_run) {
            error_ = std::make_error_code(std::errc::operation_in_progress);
        } else if (!leads_) {
            lost = std::exchange(me.term, nullptr);
            me.campaigns = begun_ = true;
            me.resigned = false;
            me.ends = ends_ = std::stop_source();
        }
    }
    campaign_scope(const campaign_scope&) = delete;
    campaign_scope& operator=(const campaign_scope&) = delete;
    ~campaign_scope() { end(nullptr); }

    bool begun() const noexcept { return begun_; }
    // Returns what a campaign that has not begun returns.
    result<void, std::error_code> refused() const {
        return error_ ? result<void, std::error_code>(unexpected{error_})
                      : result<void, std::error_code>();
    }
    const std::stop_source& ends() const noexcept { return ends_; }

    // Begins a term. Returns the guard if the campaign was stopped meanwhile: there is no term.
    std::optional<durable_guard> win(durable_guard guard) {
        auto term = std::make_unique<held_term>(std::move(guard), ends_);
        end(&term);
        return term != nullptr ? std::optional(std::move(term->guard)) : std::nullopt;
    }

private:
    void end(std::unique_ptr<held_term>* won) {
        if (!std::exchange(begun_, false)) {
            return;
        }
        candidate& me = of_->own();
        const std::lock_guard held(me.lock);
        me.campaigns = false;
        if (won != nullptr && (!ends_.stop_requested() || !(*won)->guard.is_held())) {
            me.term = std::move(*won);
        }
    }

    const std::shared_ptr<election> of_;
    std::stop_source ends_{std::nostopstate};
    std::error_code error_{};
    bool begun_ = false;
    bool leads_ = false;
};

inline acquire_request request_of(acquire_request request, const std::stop_source& ends) {
    request.weight = 1;
    request.stop = ends.get_token();
    return request;
}
inline result<void, std::error_code> stopped_campaign() {
    return unexpected{make_error_code(errc::stopped)};
}

inline task<result<void, std::error_code>> campaign_of(std::shared_ptr<election> it,
                                                       acquire_request request, bool is_of_run) {
    campaign_scope mine(it, is_of_run);
    if (!mine.begun()) {
        co_return mine.refused();
    }
    const linked_stop on_stop(request.stop, stops_other{mine.ends()});
    auto waiting = acquire_task(it->engine, request_of(std::move(request), mine.ends()));
    auto won = co_await std::move(waiting);
    if (!won) {
        co_return unexpected{won.error()};
    }
    if (auto unwanted = mine.win(std::move(*won))) {
        auto released = unwanted->async_release();
        static_cast<void>(co_await std::move(released));
        co_return stopped_campaign();
    }
    it->tell();
    co_return result<void, std::error_code>();
}

// Ends the campaign or the term. Returns the term that the caller has to release.
inline std::unique_ptr<held_term> end_term(election& it) {
    candidate& me = it.own();
    std::stop_source ends{std::nostopstate};
    std::unique_ptr<held_term> term;
    {
        const std::lock_guard held(me.lock);
        ends = me.ends;
        if (me.runs) {
            me.resigned = true;
        } else {
            term = std::exchange(me.term, nullptr);
        }
    }
    ends.request_stop();
    return term;
}

inline task<result<void, std::error_code>> resign_from(std::shared_ptr<election> it) {
    const std::unique_ptr<held_term> term = end_term(*it);
    if (term == nullptr) {
        co_return result<void, std::error_code>();
    }
    auto releasing = term->guard.async_release();
    auto released = co_await std::move(releasing);
    it->tell();
    co_return released;
}

// ---- observers

using leader_answer = result<std::optional<leader_info>, std::error_code>;

inline leader_answer read_leader(election& it) {
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

inline std::int64_t token_of(const std::optional<leader_info>& leader) noexcept {
    return leader ? leader->token : 0;
}

inline task<leader_answer> wait_for_leader(std::shared_ptr<election> it, leader_wait what) {
    const deadline until = deadline::after(what.timeout);
    const std::int64_t began_ns = native_platform::now();
    const durable_options& o = it->engine->options();
    const std::int64_t least_ns = deadline::saturated_ns(o.poll_least);
    const std::int64_t most_ns = deadline::saturated_ns(o.poll_most);
    for (;;) {
        const std::shared_ptr<event> changed = it->engine->signal().next();
        const std::function<leader_answer()> read = [it] { return read_leader(*it); };
        call_limits limits = it->engine->retry_time();
        limits.stop = what.stop;
        auto reading = async_call_store(read, std::move(limits));
        auto seen = co_await std::move(reading);
        if (!seen || token_of(*seen) != what.known) {
            co_return seen;
        }
        const std::int64_t now = native_platform::now();
        if (what.stop.stop_requested() || now >= until.steady_ns()) {
            co_return unexpected{
                make_error_code(what.stop.stop_requested() ? errc::stopped : errc::timeout)};
        }
        const deadline again = deadline::after(
            std::chrono::nanoseconds(std::clamp((now - began_ns) / 8, least_ns, most_ns)));
        auto change = changed->async_wait()
                          .with_deadline(again.steady_ns() < until.steady_ns() ? again : until)
                          .with_stop(what.stop);
        const auto woken = co_await std::move(change);
        if (!woken && woken.error() == errc::stopped) {
            co_return unexpected{make_error_code(errc::stopped)};
        }
    }
}

inline task<> observe_leaders(std::shared_ptr<election> it,
                              std::function<void(const leader_info&)> on_new_leader,
                              std::stop_token stop) {
    for (std::int64_t known = 0; on_new_leader && !stop.stop_requested();) {
        leader_wait what;
        what.known = known;
        what.stop = stop;
        auto waiting = wait_for_leader(it, std::move(what));
        const auto seen = co_await std::move(waiting);
        if (seen) {
            known = token_of(*seen);
            if (*seen) {
                on_new_leader(**seen);
            }
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

// ---- runs

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

inline task<result<void, std::error_code>> run_election(std::shared_ptr<election> it,
                                                        async_leader_callbacks calls,
                                                        std::stop_token stop,
                                                        std::stop_source watching) {
    if (!calls.on_elected) {
        co_return unexpected{make_error_code(durable_errc::invalid_argument)};
    }
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
        auto campaign = campaign_of(it, std::move(request), true);
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
        if (term == nullptr) { // a child of fork() has returned from on_elected
            co_return stopped_campaign();
        }
        const bool was_held = term->guard.is_held(); // a store that fails tells nothing of a loss
        auto releasing = term->guard.async_release();
        const auto released = co_await std::move(releasing);
        it->tell();
        tell_end(calls, mine.end_of(was_held, released, stop.stop_requested()), released);
    }
    co_return result<void, std::error_code>();
}

inline task<result<void, std::error_code>>
run_observed(std::shared_ptr<election> it, async_leader_callbacks calls, std::stop_token stop) {
    if (!calls.on_new_leader || !calls.on_elected) {
        auto alone = run_election(it, std::move(calls), std::move(stop), std::stop_source());
        co_return co_await std::move(alone);
    }
    const std::stop_source watching;
    auto observer = observe_leaders(it, std::move(calls.on_new_leader), watching.get_token());
    auto runner = run_election(it, std::move(calls), std::move(stop), watching);
    auto both = when_all(std::move(runner), std::move(observer));
    auto ended = co_await std::move(both);
    co_return std::move(std::get<0>(ended));
}

} // namespace detail

BIDE_DURABLE_INLINE leader_election::leader_election(slot_ref slot, durable_options options)
    : it_(std::make_shared<detail::election>(std::move(slot), std::move(options))) {}

BIDE_DURABLE_INLINE result<void, std::error_code>
leader_election::campaign(acquire_request request) {
    return sync_wait(detail::campaign_of(it_, std::move(request), false));
}
BIDE_DURABLE_INLINE task<result<void, std::error_code>>
leader_election::async_campaign(acquire_request request) {
    return detail::campaign_of(it_, std::move(request), false);
}

BIDE_DURABLE_INLINE result<void, std::error_code> leader_election::resign() {
    return sync_wait(detail::resign_from(it_));
}
BIDE_DURABLE_INLINE task<result<void, std::error_code>> leader_election::async_resign() {
    return detail::resign_from(it_);
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
    return sync_wait(async_leader());
}
BIDE_DURABLE_INLINE task<result<std::optional<leader_info>, std::error_code>>
leader_election::async_leader() const {
    return detail::async_call_store<detail::leader_answer>(
        [it = it_] { return detail::read_leader(*it); }, it_->engine->retry_time());
}
BIDE_DURABLE_INLINE result<std::optional<leader_info>, std::error_code>
leader_election::wait_for_change(leader_wait what) const {
    return sync_wait(detail::wait_for_leader(it_, std::move(what)));
}
BIDE_DURABLE_INLINE task<result<std::optional<leader_info>, std::error_code>>
leader_election::async_wait_for_change(leader_wait what) const {
    return detail::wait_for_leader(it_, std::move(what));
}

BIDE_DURABLE_INLINE result<void, std::error_code> leader_election::run(leader_callbacks calls,
                                                                       std::stop_token stop) {
    async_leader_callbacks mine{{}, std::move(calls.on_lost), {}, std::move(calls.on_error)};
    if (calls.on_elected) {
        mine.on_elected = [work = std::move(calls.on_elected)](leader_term term) -> task<> {
            work(std::move(term));
            co_return;
        };
    }
    std::jthread observer; // on_elected blocks this thread
    if (calls.on_new_leader && mine.on_elected) {
        observer = std::jthread([it = it_, tell = calls.on_new_leader](std::stop_token ended) {
            sync_wait(detail::observe_leaders(it, tell, std::move(ended)));
        });
    }
    return sync_wait(detail::run_election(it_, std::move(mine), std::move(stop),
                                          std::stop_source(std::nostopstate)));
}
BIDE_DURABLE_INLINE task<result<void, std::error_code>>
leader_election::async_run(async_leader_callbacks calls, std::stop_token stop) {
    return detail::run_observed(it_, std::move(calls), std::move(stop));
}

BIDE_DURABLE_INLINE std::string leader_election::explain() const { return it_->engine->explain(); }

}} // namespace bide::BIDE_ABI

#endif
