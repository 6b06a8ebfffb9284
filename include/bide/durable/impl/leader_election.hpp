// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_IMPL_LEADER_ELECTION_HPP
#define BIDE_DURABLE_IMPL_LEADER_ELECTION_HPP

#include <bide/durable/detail/acquisition.hpp>
#include <bide/durable/leader_election.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// The state of a candidate in one process. User code and the store are called without the lock.
struct candidate {
    // Requires: the lock is held.
    bool leads() const noexcept { return term != nullptr && term->is_held(); }
    std::int64_t token() {
        const std::lock_guard held(lock);
        return leads() ? term->fence() : 0;
    }
    // Sets a member, and returns what it was before.
    template <class T> T set(T candidate::* member, std::type_identity_t<T> now) {
        const std::lock_guard held(lock);
        return std::exchange(this->*member, std::move(now));
    }

    mutex lock;
    // Under the lock:
    bool runs = false;
    std::stop_source ends{std::nostopstate}; // of the campaign, and of the term that it wins
    const durable_guard* term = nullptr;     // nullptr: it does not lead
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
                          me.leads() && me.term->fence() == h.fence};
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

// A term of the candidate, from its election to the destruction of this object. In a child of
// fork(), the destructor has no effect: the child's candidate has no term.
struct term_of_run {
    term_of_run(election& its, durable_guard won, const std::stop_source& ends)
        : of(its), held(std::move(won), ends) {
        of.own().set(&candidate::term, &held.guard);
    }
    ~term_of_run() { of.own().set(&candidate::term, nullptr); }

    election& of;
    linked_guard held; // its loss stops `ends`
};

inline task<election_answer>
run_election(election_ptr it, std::function<task<>(leader_term)> on_elected, std::stop_token stop) {
    if (!on_elected) {
        co_return unexpected{make_error_code(durable_errc::invalid_argument)};
    }
    candidate& me = it->own();
    if (me.set(&candidate::runs, true)) {
        co_return unexpected{std::make_error_code(std::errc::operation_in_progress)};
    }
    const auto end = [](election* of) { of->own().set(&candidate::runs, false); };
    const std::unique_ptr<election, decltype(end)> at_the_end(it.get(), end);
    const std::stop_token cancelled = this_task::get_stop_token();
    while (!stop.stop_requested()) {
        if (cancelled.stop_requested()) { // else a campaign without a wait would succeed
            co_return unexpected{make_error_code(errc::stopped)};
        }
        const std::stop_source ends;
        const linked_stop on_stop(stop, stops_other{ends});
        const linked_stop on_cancel(cancelled, stops_other{ends});
        me.set(&candidate::ends, ends);
        acquire_request request;
        request.stop = ends.get_token();
        auto electing = acquire_task(it->engine, std::move(request));
        auto won = co_await std::move(electing);
        if (won) {
            term_of_run term(*it, std::move(*won), ends);
            it->tell();
            if (!ends.stop_requested()) {
                auto work = on_elected({term.held.guard.fence(), ends.get_token()});
                co_await std::move(work);
            }
            if (&it->own() != &me) { // a child of fork() has returned from on_elected
                co_return unexpected{make_error_code(errc::stopped)};
            }
            me.set(&candidate::term, nullptr);
            auto releasing = term.held.guard.async_release();
            static_cast<void>(co_await std::move(releasing));
            it->tell();
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

BIDE_DURABLE_INLINE void leader_election::resign() {
    detail::candidate& me = it_->own();
    std::unique_lock held(me.lock);
    std::stop_source ends = me.ends;
    held.unlock();
    ends.request_stop();
}

BIDE_DURABLE_INLINE bool leader_election::is_leader() const { return token() != 0; }
BIDE_DURABLE_INLINE std::int64_t leader_election::token() const { return it_->own().token(); }

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
