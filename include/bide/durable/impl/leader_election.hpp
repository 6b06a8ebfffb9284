// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_IMPL_LEADER_ELECTION_HPP
#define BIDE_DURABLE_IMPL_LEADER_ELECTION_HPP

// The campaigns, terms and runs of a candidate are coroutines. The blocking functions run them.

#include <bide/durable/detail/acquisition.hpp>
#include <bide/durable/leader_election.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// ---- campaigns and terms

// The state of a candidate in one process. The lock is not held during calls to user code or the
// store.
struct candidate {
    mutex lock;
    // Under the lock:
    bool is_busy = false;                    // a campaign or a run is under way
    bool runs = false;                       // it is a run
    std::stop_source ends{std::nostopstate}; // of the campaign, and of the term that it wins
    std::unique_ptr<linked_guard> term;      // its loss stops `ends`; nullptr: it does not lead

    // Requires: the lock is held.
    bool leads() const noexcept { return term != nullptr && term->guard.is_held(); }

    std::int64_t token() {
        const std::lock_guard held(lock);
        return leads() ? term->guard.fence() : 0;
    }
    // Takes the term out.
    std::unique_ptr<linked_guard> take() {
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
    // Wakes all that wait for a change of the record.
    void tell() {
        const wake_scope<native_platform> away(&service_executor<native_platform>);
        engine->signal().signal();
    }

    const std::shared_ptr<lock_engine> engine;
    per_process<candidate> candidates;
};
using election_ptr = std::shared_ptr<election>;
using election_answer = result<void, std::error_code>;

// Makes the candidate busy with a campaign or a run, until the result is destroyed. Returns nullptr
// if the candidate is busy already, or if it wants to begin a run and leads already. If an
// exception ends a run, the result also releases the term of that run.
inline auto busy_scope(election_ptr of, bool runs) {
    auto end = [of, runs](candidate*) {
        candidate& me = of->own(); // of this process: a child of fork() may end the parent's scope
        const std::unique_ptr<linked_guard> term = runs ? me.take() : nullptr;
        const std::lock_guard held(me.lock);
        me.is_busy = me.runs = false;
    };
    candidate& me = of->own();
    const std::lock_guard held(me.lock);
    const bool begins = !me.is_busy && !(runs && me.leads());
    if (begins) {
        me.is_busy = true;
        me.runs = runs;
    }
    return std::unique_ptr<candidate, decltype(end)>(begins ? &me : nullptr, end);
}

inline task<election_answer> release_term(election_ptr it, std::unique_ptr<linked_guard> term) {
    auto releasing = term->guard.async_release();
    auto released = co_await std::move(releasing);
    it->tell();
    co_return released;
}

// Campaigns until the candidate leads. Returns the token of the term. A stop of `ends` ends the
// campaign. Once the candidate leads, a stop of `ends` ends the term.
inline task<result<std::int64_t, std::error_code>> elect(election_ptr it, acquire_request request,
                                                         std::stop_source ends) {
    {
        candidate& me = it->own();
        const std::unique_ptr<linked_guard> lost = me.take(); // its destructor calls no store
        const std::lock_guard held(me.lock);
        me.ends = ends;
    }
    request.weight = 1;
    request.stop = ends.get_token();
    auto waiting = acquire_task(it->engine, std::move(request));
    auto won = co_await std::move(waiting);
    if (!won) {
        co_return unexpected{won.error()};
    }
    const std::int64_t token = won->fence();
    auto term = std::make_unique<linked_guard>(std::move(*won), ends);
    {
        candidate& me = it->own();
        const std::lock_guard held(me.lock);
        if (!ends.stop_requested() || !term->guard.is_held()) {
            me.term = std::move(term);
        }
    }
    if (term != nullptr) { // the campaign was stopped meanwhile: there is no term
        auto releasing = release_term(std::move(it), std::move(term));
        static_cast<void>(co_await std::move(releasing));
        co_return unexpected{make_error_code(errc::stopped)};
    }
    it->tell();
    co_return token;
}

inline task<election_answer> campaign_of(election_ptr it, acquire_request request) {
    const auto mine = busy_scope(it, false);
    if (mine == nullptr) {
        co_return unexpected{std::make_error_code(std::errc::operation_in_progress)};
    }
    if (it->own().token() != 0) {
        co_return election_answer();
    }
    const std::stop_source ends;
    const linked_stop on_stop(request.stop, stops_other{ends});
    auto electing = elect(it, std::move(request), ends);
    const auto won = co_await std::move(electing);
    co_return won ? election_answer() : unexpected{won.error()};
}

// Ends the campaign or the term.
inline task<election_answer> resign_from(election_ptr it) {
    std::stop_source ends{std::nostopstate};
    std::unique_ptr<linked_guard> term;
    {
        candidate& me = it->own();
        const std::lock_guard held(me.lock);
        ends = me.ends;
        if (!me.runs) { // the run releases its term itself
            term = std::exchange(me.term, nullptr);
        }
    }
    ends.request_stop();
    if (term == nullptr) { // a campaign may have won before it was stopped
        candidate& me = it->own();
        const std::lock_guard held(me.lock);
        if (!me.runs && me.ends == ends) {
            term = std::exchange(me.term, nullptr);
        }
    }
    if (term == nullptr) {
        co_return election_answer();
    }
    auto releasing = release_term(std::move(it), std::move(term));
    co_return co_await std::move(releasing);
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

inline task<leader_answer> wait_for_leader(election_ptr it, leader_wait what) {
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
        if (!seen || (*seen ? (*seen)->token : 0) != what.known) {
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

// ---- runs

inline task<election_answer>
run_election(election_ptr it, std::function<task<>(leader_term)> on_elected, std::stop_token stop) {
    if (!on_elected) {
        co_return unexpected{make_error_code(durable_errc::invalid_argument)};
    }
    const auto mine = busy_scope(it, true);
    if (mine == nullptr) {
        co_return unexpected{std::make_error_code(std::errc::operation_in_progress)};
    }
    const std::stop_token cancelled = this_task::get_stop_token();
    while (!stop.stop_requested()) {
        if (cancelled.stop_requested()) { // the campaign would succeed if it need not wait
            co_return unexpected{make_error_code(errc::stopped)};
        }
        const std::stop_source ends;
        const linked_stop on_stop(stop, stops_other{ends});
        const linked_stop on_cancel(cancelled, stops_other{ends});
        auto electing = elect(it, {}, ends);
        const auto won = co_await std::move(electing);
        if (won) {
            auto work = on_elected({*won, ends.get_token()});
            co_await std::move(work);
            std::unique_ptr<linked_guard> term = it->own().take();
            if (term == nullptr) { // a child of fork() has returned from on_elected
                co_return unexpected{make_error_code(errc::stopped)};
            }
            auto releasing = release_term(it, std::move(term));
            static_cast<void>(co_await std::move(releasing));
            continue;
        }
        const std::error_code error = won.error();
        if (error == errc::stopped || stop.stop_requested()) { // a stop, or resign()
            continue;
        }
        if (error != durable_errc::lock_lost && error != durable_errc::queue_full &&
            !may_pass(error)) {
            co_return unexpected{error};
        }
        const deadline again = deadline::after(it->engine->options().poll_most);
        auto pause = sleep_until(again).with_stop(stop);
        static_cast<void>(co_await std::move(pause));
    }
    co_return election_answer();
}

} // namespace detail

BIDE_DURABLE_INLINE leader_election::leader_election(slot_ref slot, durable_options options)
    : it_(std::make_shared<detail::election>(std::move(slot), std::move(options))) {}

BIDE_DURABLE_INLINE result<void, std::error_code>
leader_election::campaign(acquire_request request) {
    return sync_wait(detail::campaign_of(it_, std::move(request)));
}
BIDE_DURABLE_INLINE task<result<void, std::error_code>>
leader_election::async_campaign(acquire_request request) {
    return detail::campaign_of(it_, std::move(request));
}

BIDE_DURABLE_INLINE result<void, std::error_code> leader_election::resign() {
    return sync_wait(detail::resign_from(it_));
}
BIDE_DURABLE_INLINE task<result<void, std::error_code>> leader_election::async_resign() {
    return detail::resign_from(it_);
}

BIDE_DURABLE_INLINE bool leader_election::is_leader() const { return token() != 0; }
BIDE_DURABLE_INLINE std::int64_t leader_election::token() const { return it_->own().token(); }
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

BIDE_DURABLE_INLINE result<void, std::error_code>
leader_election::run(std::function<void(leader_term)> on_elected, std::stop_token stop) {
    if (!on_elected) {
        return unexpected{make_error_code(durable_errc::invalid_argument)};
    }
    const auto work = [&on_elected](leader_term term) -> task<> {
        on_elected(std::move(term));
        co_return;
    };
    return sync_wait(detail::run_election(it_, work, std::move(stop)));
}
BIDE_DURABLE_INLINE task<result<void, std::error_code>>
leader_election::async_run(std::function<task<>(leader_term)> on_elected, std::stop_token stop) {
    return detail::run_election(it_, std::move(on_elected), std::move(stop));
}

BIDE_DURABLE_INLINE std::string leader_election::explain() const { return it_->engine->explain(); }

}} // namespace bide::BIDE_ABI

#endif
