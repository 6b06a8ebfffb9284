// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_LOCK_ENGINE_HPP
#define BIDE_DURABLE_DETAIL_LOCK_ENGINE_HPP

// The rules of durable/record.hpp as operations on a slot.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/per_process.hpp>
#include <bide/durable/detail/record_store.hpp>
#include <bide/durable/detail/store_call.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/options.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/ticket.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

class renewer;     // detail/grant.hpp
class withdrawals; // detail/acquisition.hpp

// What an acquisition asks for beside its ticket.
struct acquire_wishes {
    durable::description about{};
    std::int64_t at_least_ms = 0;
    bool listens = false; // terms::listens
};

class lock_engine {
public:
    // Throws: std::system_error (durable_errc::invalid_argument) if an option is out of range.
    lock_engine(slot_ref slot, std::int64_t permits, durable_options options)
        : apart_(slot->store().empty()
                     ? nullptr
                     : std::make_unique<record_store>(slot.for_renewals(), permits, options)),
          store_(std::move(slot), permits, std::move(options)) {}

    struct acquired {
        durable::acquire_outcome outcome;
        std::int64_t good_until_ms =
            0; // granted, held: until when the lease is good, on boottime_ms()
        std::int64_t expiry_in_ms = 0; // waiting: time until the next lease expires; 0: not known
        bool is_watched = false;       // waiting: changes have signalled since before the read
        bool can_be_watched = false; // waiting: changes could signal; try again with intent::watch
    };

    // Each operation reads the record once and changes it.

    // Acquires, or enters the queue. The outcome is never `refused`, which is returned as an error.
    // At `until` the tries end; see record_store::update(). If `of` is not nullptr, the grant is
    // bound to this mark and not to the process. Otherwise the ticket decides.
    result<acquired, std::error_code> acquire(const durable_ticket& t, intent what,
                                              deadline until = deadline::never(),
                                              const slot_presence* of = nullptr,
                                              const acquire_wishes& wanted = {});

    // Renews. Returns until when the lease is good, on this machine; nothing if it is lost.
    result<std::optional<std::int64_t>, std::error_code> renew(const durable_ticket& t) {
        auto renewed = renew_on(store_, t, deadline::never());
        if (renewed && !*renewed) {
            holds_nothing(t);
        }
        return renewed;
    }
    // Renews as renew() does, for renewals in the background. If the slot offers for_renewals(),
    // the call uses that slot, which has its own turn. So a call that hangs on the lock's slot does
    // not delay it.
    result<std::optional<std::int64_t>, std::error_code> renew_apart(const durable_ticket& t,
                                                                     deadline until) {
        return renew_on(apart_ != nullptr ? *apart_ : store_, t, until);
    }

    struct taking_back {
        // If true, writes the record even if nothing is taken back. So a delayed write of an
        // earlier try cannot take effect afterwards.
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
    result<bool, std::error_code> repair(std::int64_t min_fence, durable::admin_note note) {
        return store_.repair(min_fence, std::move(note));
    }

    // Marks of presence, for grants that children inherit.
    result<std::shared_ptr<slot_presence>, std::error_code> be_present() {
        return store_.be_present();
    }
    presence is_present(std::int64_t mark) { return store_.is_present(mark); }

    // Keeps the mark of a ticket without a guard, if the ticket is bound to this process.
    // Throws: std::bad_alloc.
    void keep_mark(const durable_ticket& t) {
        if (t.process_bound) {
            store_.keep_mark(t.nonce);
        }
    }

    std::string explain() { return store_.explain(); }
    std::string store() const { return store_.shared_store(); } // slot::store()

    const durable_options& options() const noexcept { return store_.options(); }
    std::chrono::nanoseconds grace() const noexcept { // durable_options::attempt_limit
        return std::chrono::nanoseconds(deadline::saturated_ns(options().attempt_limit));
    }
    call_limits retry_time() const { // the limits of a call that has no other ones
        return {deadline::after(options().retry_time), grace(), {}};
    }
    std::int64_t permits() const noexcept { return store_.terms().permits; }
    bool is_local() const noexcept { return store_.is_local(); } // not slot_guarantees::multi_host
    std::int64_t warn_before_ms() const noexcept { return store_.warn_before_ms(); }
    change_signal& signal() { return store_.signal(); }
    void begin_waiting(bool hears_all) noexcept { store_.begin_waiting(hears_all); }
    void end_waiting(bool hears_all) noexcept { store_.end_waiting(hears_all); }
    bool has_waited() { return store_.has_waited(); }

    // What works for this lock in the background, in each process.
    per_process<std::shared_ptr<detail::withdrawals>> withdrawals;
    per_process<std::shared_ptr<detail::renewer>> renewer;

private:
    static void holds_nothing(const durable_ticket& t) noexcept {
        if (t.process_bound) {
            bound_tickets::forget(t.nonce);
        }
    }

    result<std::optional<std::int64_t>, std::error_code>
    renew_on(record_store& on, const durable_ticket& t, deadline until);

    const std::unique_ptr<record_store> apart_; // nullptr: renewals use store_
    record_store store_;
};

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
    durable::terms terms = store_.terms();
    terms.enqueue = what != intent::nothing;
    terms.at_least_ms = wanted.at_least_ms;
    terms.listens = wanted.listens;
    durable::contender self{t.holder_id, t.nonce, t.weight,
                            store_.origin(t.process_bound && of == nullptr), wanted.about};
    if (of != nullptr) {
        self.from.mark = of->mark();
    }
    acquired got;
    bool is_true_unstored = false; // only observations were to be stored
    const std::error_code error =
        store_.update(what, until, [&](record_view& view, bool maybe_done) {
            got.outcome = durable::acquire(view.record, self, terms, view.at.now_ms, view.judge());
            got.good_until_ms = got.outcome.expires_at != 0
                                    ? view.good_until(got.outcome.expires_at)
                                    : view.good_until();
            if (got.outcome.status == durable::acquire_status::waiting) {
                got.expiry_in_ms =
                    got.outcome.next_ms == 0
                        ? 0
                        : std::max<std::int64_t>(got.outcome.next_ms - view.at.now_ms, 1);
                if (what >= intent::wait) {
                    store_.follow(view);
                    got.is_watched = store_.is_watched();
                    got.can_be_watched = store_.can_be_watched();
                }
            }
            is_true_unstored =
                !maybe_done && (got.outcome.status == durable::acquire_status::refused ||
                                got.outcome.is_only_observed);
            return got.outcome.changed ||
                   (view.is_mended && got.outcome.status != durable::acquire_status::refused);
        });
    if (error && !is_true_unstored) {
        return unexpected{error};
    }
    if (got.outcome.status == durable::acquire_status::refused) {
        return unexpected{got.outcome.error};
    }
    return got;
}

inline result<std::optional<std::int64_t>, std::error_code>
lock_engine::renew_on(record_store& on, const durable_ticket& t, deadline until) {
    const durable::origin origin = store_.origin(t.process_bound);
    durable::renew_outcome outcome;
    std::int64_t good_until_ms = 0;
    const std::error_code error = on.update(intent::nothing, until, [&](record_view& view, bool) {
        outcome = durable::renew(view.record, t.nonce, t.fence, on.terms(), view.at.now_ms,
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
    if (const std::error_code error = store_.update(intent::nothing, until, rule)) {
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
    if (const std::error_code error = store_.update(intent::nothing, deadline::never(), look)) {
        return unexpected{error};
    }
    return seen;
}

template <class Change> result<bool, std::error_code> lock_engine::administer(Change change) {
    bool done = false;
    std::error_code refused; // a time that no record can have
    const auto rule = [&](record_view& view, bool maybe_done) {
        refused = durable::check(store_.terms(), view.at.now_ms);
        if (refused) {
            return false;
        }
        const bool changed = view.exists && change(view.record, view.note_ms());
        done = changed || maybe_done;
        return changed;
    };
    if (const std::error_code error = store_.update(intent::nothing, deadline::never(), rule)) {
        return unexpected{error};
    }
    if (refused) {
        return unexpected{refused};
    }
    signal().signal();
    return done;
}

}}} // namespace bide::BIDE_ABI::detail

#endif
