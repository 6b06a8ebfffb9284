// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_LOCK_ENGINE_HPP
#define BIDE_DURABLE_DETAIL_LOCK_ENGINE_HPP

// The rules of durable/record.hpp as operations on the record of one lock, in its slot.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/change_watch.hpp>
#include <bide/durable/detail/record_store.hpp>
#include <bide/durable/detail/store_call.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/expiry.hpp>
#include <bide/durable/options.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/record_json.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/ticket.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

class renewer;     // detail/grant.hpp
class withdrawals; // detail/acquisition.hpp

// What an acquisition asks for in addition to its ticket.
struct acquire_wishes {
    durable::description about{};
    std::int64_t at_least_ms = 0;
    bool listens = false; // terms::listens
};

class lock_engine {
public:
    // Throws: std::system_error (durable_errc::invalid_argument) if an option is out of range.
    lock_engine(slot_ref slot, std::int64_t permits, durable_options options);

    struct acquired {
        durable::acquire_outcome outcome;
        std::int64_t good_until_ms =
            0; // granted, held: until when the lease is good, on boottime_ms()
        std::int64_t expiry_in_ms = 0; // waiting: time until the next lease expires; 0: not known
        bool is_watched = false;       // waiting: changes have signalled since before the read
        bool can_be_watched = false; // waiting: changes could signal; try again with intent::watch
    };

    // Each operation reads the record once and changes it.

    // Acquires the permits, or enters the queue. The outcome is never `refused`: a refusal is
    // returned as an error. The engine tries until `until` at most; see update(). If `of` is not
    // nullptr, the grant is bound to this mark of presence, and not to the process. Otherwise the
    // grant is bound to the process if t.process_bound is true.
    result<acquired, std::error_code> acquire(const durable_ticket& t, intent what,
                                              deadline until = deadline::never(),
                                              const slot_presence* of = nullptr,
                                              const acquire_wishes& wanted = {});

    // Renews. Returns until when the lease is good, on this machine; nothing if it is lost.
    result<std::optional<std::int64_t>, std::error_code> renew(const durable_ticket& t) {
        auto renewed = renew_on(main_, t, deadline::never());
        if (renewed && !*renewed) {
            holds_nothing(t);
        }
        return renewed;
    }
    // Renews as renew() does, for renewals in the background. If the slot offers for_renewals(),
    // the renewal uses that slot, which has a process_part and so a turn of its own. So a call that
    // hangs on the lock's slot does not delay the renewal.
    result<std::optional<std::int64_t>, std::error_code> renew_apart(const durable_ticket& t,
                                                                     deadline until) {
        return renew_on(apart_ != nullptr ? *apart_ : main_, t, until);
    }

    struct taking_back {
        // If true, writes the record even if nothing is taken back. The write changes the version,
        // so a delayed write of an earlier try cannot take effect afterwards.
        bool settle = false;
        durable::release_terms terms{};
    };
    // Releases a grant or a place in the queue. Returns false if there was neither.
    result<bool, std::error_code> release(const durable_ticket& t) { return release(t, {}); }
    result<bool, std::error_code> release(const durable_ticket& t, taking_back how,
                                          deadline until = deadline::never());

    result<std::optional<durable::inspection>, std::error_code> inspect();

    // Makes a change from outside: change(record, time). Returns false if the record is unchanged.
    template <class Change> result<bool, std::error_code> administer(Change change);
    // Replaces a record that cannot be read. Returns false if it can be read: then nothing changes.
    result<bool, std::error_code> repair(std::int64_t min_fence, durable::admin_note note);

    // If the ticket is bound to this process, keeps the ticket's mark of presence open even if
    // there is no guard: see bound_tickets.
    // Throws: std::bad_alloc.
    void keep_mark(const durable_ticket& t) {
        if (t.process_bound) {
            main_.own().self.keep_mark(t.nonce);
        }
    }

    slot& on() const noexcept { return *main_.of; }              // for what needs no turn
    const std::string& store() const noexcept { return store_; } // slot::store()
    // Returns what the store said of the last operation that failed, for people; may be empty.
    std::string explain() { return printable_line(main_.own().explain()); }

    const durable_options& options() const noexcept { return options_; }
    std::chrono::nanoseconds grace() const noexcept { // durable_options::attempt_limit
        return std::chrono::nanoseconds(deadline::saturated_ns(options().attempt_limit));
    }
    call_limits retry_time() const { // the limits of a call that has no other ones
        return {deadline::after(options().retry_time), grace(), {}};
    }
    std::int64_t permits() const noexcept { return terms_.permits; }
    bool is_local() const noexcept { return !main_.of.guarantees().multi_host; }
    std::int64_t warn_before_ms() const noexcept { // durable_options::warn_before
        return options_.warn_before.count() != 0 ? options_.warn_before.count()
                                                 : (time_.lease_ms - time_.margin_ms) / 3;
    }

    // Wakes the contenders of this process that wait.
    change_signal& signal() { return main_.own().changes.signal(); }

    // While this process has waiters, a watch of the slot may be open. begin_waiting() and
    // end_waiting() never wait for the turn, a mutex (process_part). If another call has the turn,
    // end_waiting() leaves the watch open, and the next call closes it. `hears_all`: the waiter
    // wants to be notified of every change.
    void begin_waiting(bool hears_all) noexcept { main_.own().changes.begin(hears_all); }
    void end_waiting(bool hears_all) noexcept;
    bool has_waited() { return main_.own().changes.has_waited(); }

    // The jobs of this lock in the background, in each process.
    per_process<std::shared_ptr<detail::withdrawals>> withdrawals;
    per_process<std::shared_ptr<detail::renewer>> renewer;

private:
    // A slot, and the state that each process keeps for it.
    struct access {
        explicit access(slot_ref to) noexcept : of(std::move(to)) {}
        process_part& own() {
            return parts.get([] { return process_part(); });
        }

        slot_ref of;
        per_process<process_part> parts;
    };

    static void holds_nothing(const durable_ticket& t) noexcept {
        if (t.process_bound) {
            bound_tickets::forget(t.nonce);
        }
    }

    // Carries out a rule. rule(record_view, maybe_done) changes the record and returns true if it
    // has to be stored. maybe_done is true if an earlier try may have been stored. The rule is
    // called once for each try, and its last call counts. update() stops trying after the
    // retry_time of the options, or at `until` if that is earlier.
    //
    // Returns: durable_errc::store_busy if other contenders of this process had the turn
    // (process_part) until that time, so nothing was changed; the other errors of the slot and of
    // the record.
    template <class Rule>
    std::error_code update(access& by, intent what, deadline until, Rule rule);

    result<std::optional<std::int64_t>, std::error_code>
    renew_on(access& by, const durable_ticket& t, deadline until);

    // Returns the error, and tells the observer of it.
    std::error_code told(std::error_code error) const noexcept {
        if (error && options_.observer != nullptr) {
            options_.observer->store_failed(error);
        }
        return error;
    }

    const durable_options options_;
    std::unique_ptr<access> apart_; // nullptr: renewals use main_
    access main_;
    const std::string store_;
    const store_time time_;
    durable::terms terms_;
};

inline lock_engine::lock_engine(slot_ref slot, std::int64_t permits, durable_options options)
    : options_(std::move(options)), main_(std::move(slot)), store_(main_.of->store()),
      time_{options_.clock.value_or(main_.of.guarantees().clock), options_.lease.count(),
            options_.margin.count() != 0 ? options_.margin.count()
                                         : options_.lease.count() / 10 + 1,
            options_.drift, options_.now} {
    terms_.permits = permits;
    terms_.clock = time_.clock;
    terms_.lease_ms = time_.lease_ms;
    terms_.waiter_ttl_ms =
        options_.waiter_ttl.count() != 0 ? options_.waiter_ttl.count() : terms_.lease_ms;
    terms_.max_waiters = options_.max_waiters;
    terms_.adopt_permits = options_.adopt_permits;
    const bool sane =
        !durable::check(terms_, 0) && time_.is_sane() && options_.retry_time.count() > 0 &&
        options_.attempt_limit.count() >= 0 && options_.warn_before.count() >= 0 &&
        options_.warn_before.count() < time_.lease_ms - time_.margin_ms &&
        options_.poll_least.count() > 0 && options_.poll_most >= options_.poll_least &&
        options_.holder_id.size() <= durable::longest_name && is_utf8(options_.holder_id) &&
        (terms_.clock != lock_clock::server || main_.of.guarantees().clock == lock_clock::server);
    if (!sane) {
        BIDE_THROW(std::system_error(make_error_code(durable_errc::invalid_argument),
                                     "bide: the options of a durable lock"));
    }
    if (!store_.empty()) {
        apart_ = std::make_unique<access>(main_.of.for_renewals());
    }
}

template <class Rule>
std::error_code lock_engine::update(access& by, intent what, deadline until, Rule rule) {
    update_tries tries(until, options_.retry_time);
    process_part& mine = by.own();
    if (!mine.turn.try_lock_for(tries.rest())) {
        return told(make_error_code(durable_errc::store_busy));
    }
    const std::lock_guard turn(mine.turn, std::adopt_lock);
    const blocking_section section;
    mine.changes.prepare(what, *by.of, mine.self.mark());
    return told(record_update<Rule>(*by.of, time_, terms_, mine, rule).run(tries));
}

inline result<lock_engine::acquired, std::error_code>
lock_engine::acquire(const durable_ticket& t, intent what, deadline until, const slot_presence* of,
                     const acquire_wishes& wanted) {
    const auto& labels = wanted.about.labels;
    const bool is_text = is_utf8(t.holder_id) && is_utf8(t.nonce) && is_utf8(wanted.about.note) &&
                         std::all_of(labels.begin(), labels.end(), [](const durable::label& one) {
                             return is_utf8(one.key) && is_utf8(one.value);
                         });
    if (!is_text) {
        return unexpected{make_error_code(durable_errc::invalid_argument)};
    }
    process_part& mine = main_.own();
    durable::terms terms = terms_;
    terms.enqueue = what != intent::nothing;
    terms.at_least_ms = wanted.at_least_ms;
    terms.listens = wanted.listens;
    durable::contender self{t.holder_id, t.nonce, t.weight,
                            mine.self.origin(t.process_bound && of == nullptr, on()), wanted.about};
    if (of != nullptr) {
        self.from.mark = of->mark();
    }
    acquired got;
    bool is_true_unstored = false; // only observations were to be stored
    const auto rule = [&](record_view& view, bool maybe_done) {
        durable::acquire_outcome& out = got.outcome;
        terms.first_fence = view.at.first_fence;
        got.expiry_in_ms = 0; // of an earlier try
        out = durable::acquire(view.record, self, terms, view.at.now_ms, view.judge());
        got.good_until_ms =
            out.expires_at != 0 ? view.good_until(out.expires_at) : view.good_until();
        if (out.status == durable::acquire_status::waiting) {
            got.expiry_in_ms =
                out.next_ms == 0 ? 0 : std::max<std::int64_t>(out.next_ms - view.at.now_ms, 1);
            if (what >= intent::wait) {
                mine.changes.follow(view.record, view.here());
                got.is_watched = mine.changes.watch().hears();
                got.can_be_watched = mine.changes.watch().can_open();
            }
        }
        const bool is_refused = out.status == durable::acquire_status::refused;
        is_true_unstored = !maybe_done && (is_refused || out.is_only_observed);
        return out.changed || (view.is_mended && !is_refused);
    };
    const std::error_code error = update(main_, what, until, rule);
    if (error && !is_true_unstored) {
        return unexpected{error};
    }
    if (got.outcome.status == durable::acquire_status::refused) {
        return unexpected{got.outcome.error};
    }
    return got;
}

inline result<std::optional<std::int64_t>, std::error_code>
lock_engine::renew_on(access& by, const durable_ticket& t, deadline until) {
    const durable::origin origin = main_.own().self.origin(t.process_bound, on());
    durable::renew_outcome outcome;
    std::int64_t good_until_ms = 0;
    const std::error_code error = update(by, intent::nothing, until, [&](record_view& view, bool) {
        outcome = durable::renew(view.record, t.nonce, t.fence, terms_, view.at.now_ms,
                                 view.judge(), origin);
        good_until_ms = view.good_until();
        return outcome.changed;
    });
    if (error) {
        return unexpected{error};
    }
    if (outcome.status == durable::renew_status::refused) {
        return unexpected{outcome.error};
    }
    return outcome.status == durable::renew_status::renewed ? std::optional(good_until_ms)
                                                            : std::nullopt;
}

inline result<bool, std::error_code> lock_engine::release(const durable_ticket& t, taking_back how,
                                                          deadline until) {
    bool was_there = false;
    const auto rule = [&](record_view& view, bool maybe_done) {
        const durable::release_outcome outcome =
            durable::release(view.record, t.nonce, t.fence, view.at.now_ms, view.here(), how.terms);
        was_there = outcome.status != durable::release_status::not_there || maybe_done;
        return outcome.changed || how.settle;
    };
    if (const std::error_code error = update(main_, intent::nothing, until, rule)) {
        return unexpected{error};
    }
    if (was_there) {
        signal().signal();
    }
    if (how.terms.but == 0) {
        holds_nothing(t);
    }
    return was_there;
}

inline result<std::optional<durable::inspection>, std::error_code> lock_engine::inspect() {
    std::optional<durable::inspection> seen;
    const auto look = [&](record_view& s, bool) {
        seen.reset();
        if (s.exists) {
            seen = durable::inspect(s.record, s.judge());
        }
        return false;
    };
    if (const std::error_code error = update(main_, intent::nothing, deadline::never(), look)) {
        return unexpected{error};
    }
    return seen;
}

template <class Change> result<bool, std::error_code> lock_engine::administer(Change change) {
    bool done = false;
    std::error_code refused; // a time that no record can have
    const auto rule = [&](record_view& view, bool maybe_done) {
        refused = durable::check(terms_, view.at.now_ms);
        if (refused) {
            return false;
        }
        const bool changed = view.exists && change(view.record, view.note_ms());
        done = changed || maybe_done;
        return changed;
    };
    if (const std::error_code error = update(main_, intent::nothing, deadline::never(), rule)) {
        return unexpected{error};
    }
    if (refused) {
        return unexpected{refused};
    }
    signal().signal();
    return done;
}

inline result<bool, std::error_code> lock_engine::repair(std::int64_t min_fence,
                                                         durable::admin_note note) {
    process_part& mine = main_.own();
    const std::lock_guard turn(mine.turn);
    const blocking_section section;
    const auto failed = [&](std::error_code error) {
        return told(mine.failed(error, main_.of->explain()));
    };
    const auto loaded = main_.of->load();
    if (!loaded && loaded.error() != durable_errc::corrupt_record) {
        return unexpected{failed(loaded.error())};
    }
    if (loaded && loaded->version != 0) {
        const auto there = durable::decode(loaded->value);
        if (there) {
            return false;
        }
        if (there.error() ==
            durable_errc::unsupported_record_version) { // a program of a later version can read it
            return unexpected{there.error()};
        }
    }
    note.at = time_.of_note();
    durable::terms first = terms_;
    first.first_fence = loaded ? store_time::first_fence(*loaded) : durable::floor_of_now();
    const std::string made = durable::encode(durable::repair(first, min_fence, std::move(note)));
    const cas_result tried = loaded ? main_.of->compare_exchange(loaded->version, made)
                                    : main_.of->replace_damaged(made);
    if (tried.status == cas_status::stored) {
        return true;
    }
    if (tried.error == std::errc::operation_not_supported) { // the slot cannot replace it
        return unexpected{failed(durable_errc::corrupt_record)};
    }
    return unexpected{failed(tried.error ? tried.error : durable_errc::conflict_timeout)};
}

inline void lock_engine::end_waiting(bool hears_all) noexcept {
    process_part& mine = main_.own();
    if (mine.changes.end(hears_all) && mine.turn.try_lock()) {
        const std::lock_guard turn(mine.turn, std::adopt_lock);
        mine.changes.close_if_idle();
    }
}

}}} // namespace bide::BIDE_ABI::detail

#endif
