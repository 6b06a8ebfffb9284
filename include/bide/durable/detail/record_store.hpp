#ifndef BIDE_DURABLE_DETAIL_RECORD_STORE_HPP
#define BIDE_DURABLE_DETAIL_RECORD_STORE_HPP

// Carries a rule of durable/record.hpp out on a slot: load, judge, change, compare-and-swap, and
// again where somebody else was first. Of one process one contender at a time does so: they have
// their turns in the order of their coming, and do not conflict with each other.
//
// A change whose fate is unknown is not guessed at: the record is read again and the rule applied
// again, which by the nonce finds what was done already.
//
// A child of fork() begins with a turn of its own, which is free, whatever the threads of its parent
// did at the time of the fork. The slot object is a copy of its parent's.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/blocking_section.hpp>
#include <bide/durable/detail/change_signal.hpp>
#include <bide/durable/detail/per_process.hpp>
#include <bide/durable/detail/process_part.hpp>
#include <bide/durable/detail/record_sight.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/expiry.hpp>
#include <bide/durable/options.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/record_admin.hpp>
#include <bide/durable/record_json.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/ticket.hpp>
#include <bide/sync/mutex.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <unistd.h>

namespace bide::inline BIDE_ABI {
namespace detail {

// What becomes of one whose turn it is not.
enum class intent {
    nothing, // it leaves no trace
    queue,   // it has its place
    wait,    // and is going to wait for the signal
    watch    // which is to tell of changes of the slot, from before this look on
};

class record_store {
public:
    // Throws: std::system_error (durable_errc::invalid_argument) for what cannot be meant.
    record_store(slot_ref slot, std::int64_t permits, durable_options options);
    record_store(const record_store&) = delete;
    record_store& operator=(const record_store&) = delete;

    const durable_options& options() const noexcept { return options_; }
    const durable::terms& terms() const noexcept { return terms_; }
    change_signal& signal() { return *own().signal; }

    // Of a contender; bound to this process or not.
    durable::origin origin(bool bound) { return own().self.origin(bound, slot_); }

    // A mark that no other contender has, for a hold that children inherit; and what is known of it.
    result<std::shared_ptr<slot_presence>, std::error_code> be_present() {
        return slot_.be_present();
    }
    presence is_present(std::int64_t mark) { return slot_.is_present(mark); }

    // A ticket that is bound to this process stays so when this object has ended: see
    // bound_tickets.
    // Throws: std::bad_alloc.
    void keep_mark(const std::string& nonce) { own().self.keep_mark(nonce); }

    using sight = record_sight;

    durable::expiry_judge judge_of(const sight& s) const {
        return s.judge(terms_.clock, options_.drift);
    }

    // Until when, on this machine, a lease is good that begins with what was seen.
    std::int64_t good_until(const sight& s) const noexcept {
        return s.sent_ms + terms_.lease_ms - margin_ms_;
    }

    // rule(sight, maybe_done) changes the record and says whether it is to be stored; maybe_done: an
    // earlier try may have been. Several tries may be needed: what the last one says counts. Tries
    // end with the patience of the options, or with the deadline where that is earlier.
    // Errors: durable_errc::store_busy: there was no turn until then, so nothing was changed.
    template <class Rule>
    std::error_code update(given_time now, intent what, deadline until, Rule rule);

    // The same, once, inside the caller's transaction on a slot of the same place. Not with
    // lock_clock::observed.
    // Errors: durable_errc::conflict_timeout: another transaction was first.
    template <transactional_slot S, class Rule>
    std::error_code update_in(S& slot, typename S::transaction& in, given_time now, Rule rule);

    // Over whatever is there, but for what can be read: then false.
    result<bool, std::error_code> repair(std::int64_t min_fence, durable::admin_note note);

    // In a rule of one that is going to wait: it listens to those who are in the way.
    void follow(const sight& s) { own().watch.follow(s.record, *s.here); }
    bool is_watched() { return own().watch.is_open(); }
    bool can_be_watched() { return own().watch.can_open(slot_); }

    // What the store said of the last operation that failed, for people; may be empty.
    std::string explain();

    // While this process has waiters the slot may be watched. They never wait for the turn. A call
    // that has it keeps the watch open; then the next call closes it.
    void begin_waiting() noexcept;
    void end_waiting() noexcept;

private:
    process_part& own() {
        return own_.get([] { return process_part(); });
    }

    // A look of one whose turn it is.
    std::error_code see(process_part& mine, const slot_snapshot& from, std::int64_t looked_ms,
                        given_time now, sight& into) {
        into.here = &mine.self.here();
        const std::error_code error = into.read(from, looked_ms, now, terms_, options_.now);
        if (!error) {
            into.observe(mine.seen);
        }
        return error;
    }
    // With the words of the slot about it, for explain().
    std::error_code failed(std::error_code error) { return failed(error, slot_.explain()); }
    std::error_code failed(std::error_code error, std::string why);
    std::error_code check(given_time now) const noexcept {
        return !now || terms_.clock == lock_clock::caller
                   ? std::error_code()
                   : make_error_code(durable_errc::clock_mismatch);
    }
    template <class Rule>
    cas_result try_locked(process_part& mine, given_time now, bool maybe_done, Rule& rule,
                          std::error_code& error);
    static void back_off(process_part& mine, unsigned attempt, deadline until);

    slot_ref slot_;
    const durable_options options_;
    durable::terms terms_;
    std::int64_t margin_ms_ = 0;
    per_process<process_part> own_;
};

inline record_store::record_store(slot_ref slot, std::int64_t permits, durable_options options)
    : slot_(std::move(slot)), options_(std::move(options)) {
    terms_.permits = permits;
    terms_.clock = options_.clock.value_or(slot_.guarantees().clock);
    terms_.lease_ms = options_.lease.count();
    margin_ms_ = options_.margin.count() != 0 ? options_.margin.count() : terms_.lease_ms / 10 + 1;
    terms_.waiter_ttl_ms =
        options_.waiter_ttl.count() != 0 ? options_.waiter_ttl.count() : terms_.lease_ms;
    terms_.reclaim_delay_ms = options_.reclaim_delay.count();
    terms_.max_waiters = options_.max_waiters;
    terms_.revive = options_.revive;
    terms_.adopt_permits = options_.adopt_permits;
    const bool sane =
        !durable::check(terms_, 0) && margin_ms_ > 0 && margin_ms_ < terms_.lease_ms &&
        options_.drift >= 0 && options_.drift <= 10 && options_.patience.count() > 0 &&
        options_.poll_least.count() > 0 && options_.poll_most >= options_.poll_least &&
        options_.holder_id.size() <= durable::longest_name && is_utf8(options_.holder_id) &&
        (terms_.clock != lock_clock::server || slot_.is_clocked());
    if (!sane) {
        BIDE_THROW(std::system_error(make_error_code(durable_errc::invalid_argument),
                                     "bide: the options of a durable lock"));
    }
}

inline std::error_code record_store::failed(std::error_code error, std::string why) {
    process_part& mine = own();
    const std::lock_guard held(mine.state);
    mine.trouble = std::move(why);
    return error;
}
inline std::string record_store::explain() {
    process_part& mine = own();
    const std::lock_guard held(mine.state);
    return mine.trouble;
}

inline void record_store::back_off(process_part& mine, unsigned attempt, deadline until) {
    const std::int64_t most_ns = std::int64_t{200'000} << std::min(attempt, 7U);
    const std::int64_t ns = std::uniform_int_distribution<std::int64_t>(0, most_ns)(mine.random);
    const std::int64_t rest_ns = until.steady_ns() - native_platform::now();
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(ns, rest_ns)));
}

// Under the store's own lock nobody comes in between.
template <class Rule>
cas_result record_store::try_locked(process_part& mine, given_time now, bool maybe_done, Rule& rule,
                                    std::error_code& error) {
    const std::int64_t looked_ms = durable::boottime_ms();
    return slot_.update_locked([&](const slot_snapshot& from) -> std::optional<std::string> {
        const slot_knowledge processes(slot_, &mine.watch);
        sight s(processes);
        error = see(mine, from, looked_ms, now, s);
        if (error || !rule(s, maybe_done)) {
            return std::nullopt;
        }
        return durable::encode(s.record);
    });
}

template <class Rule>
std::error_code record_store::update(given_time now, intent what, deadline until, Rule rule) {
    if (const std::error_code error = check(now)) {
        return error;
    }
    const deadline patient = deadline::after(options_.patience);
    if (patient.steady_ns() < until.steady_ns()) {
        until = patient;
    }
    const std::int64_t rest = until.steady_ns() - native_platform::now();
    process_part& mine = own();
    if (!mine.turn.try_lock_for(std::chrono::nanoseconds(rest))) {
        return make_error_code(durable_errc::store_busy);
    }
    const std::lock_guard turn(mine.turn, std::adopt_lock);
    const blocking_section section;
    mine.close_idle_watch();
    if (what == intent::watch) {
        mine.watch.open(slot_);
    }
    if (what >= intent::wait) {
        mine.watch.drain();
    }

    bool maybe_done = false;
    std::optional<slot_snapshot> known;
    std::int64_t known_looked_ms = 0;
    for (unsigned attempt = 0;; ++attempt) {
        cas_result tried;
        const std::int64_t looked_ms = durable::boottime_ms();
        if (attempt != 0 && slot_.is_locked()) {
            std::error_code error;
            tried = try_locked(mine, now, maybe_done, rule, error);
            if (error) {
                return failed(error);
            }
        } else {
            if (!known) {
                auto loaded = slot_.load();
                if (!loaded) {
                    return failed(loaded.error());
                }
                known = std::move(*loaded);
                known_looked_ms = looked_ms;
            }
            const slot_knowledge processes(slot_, &mine.watch);
            sight s(processes);
            if (const std::error_code error = see(mine, *known, known_looked_ms, now, s)) {
                return failed(error);
            }
            if (!rule(s, maybe_done)) {
                return {};
            }
            tried = slot_.compare_exchange(known->version, durable::encode(s.record));
        }
        known.reset();
        switch (tried.status) {
        case cas_status::stored: return {};
        case cas_status::failed: return failed(tried.error);
        case cas_status::conflict:
            known = std::move(tried.current);
            known_looked_ms = looked_ms; // before the swap that brought it
            break;
        case cas_status::indeterminate: maybe_done = true; break;
        }
        if (native_platform::now() >= until.steady_ns()) {
            return maybe_done ? failed(durable_errc::indeterminate)
                              : make_error_code(durable_errc::conflict_timeout);
        }
        if (!known && !(slot_.is_locked() && tried.status == cas_status::conflict)) {
            back_off(mine, attempt, until);
        }
    }
}

inline result<bool, std::error_code> record_store::repair(std::int64_t min_fence,
                                                          durable::admin_note note) {
    const std::lock_guard turn(own().turn);
    const blocking_section section;
    const auto loaded = slot_.load();
    if (!loaded && loaded.error() != durable_errc::corrupt_record) {
        return unexpected{failed(loaded.error())};
    }
    if (loaded && loaded->version != 0) {
        const auto there = durable::decode(loaded->value);
        if (there) {
            return false;
        }
        if (there.error() == durable_errc::unsupported_record_version) { // others can read it
            return unexpected{there.error()};
        }
    }
    note.at = terms_.clock == lock_clock::boottime ? durable::boottime_ms() : durable::unix_ms();
    durable::terms first = terms_;
    first.first_fence = loaded ? first_fence_of(*loaded) : durable::floor_of_now();
    const std::string made = durable::encode(durable::repair(first, min_fence, std::move(note)));
    const cas_result tried = loaded ? slot_.compare_exchange(loaded->version, made)
                                    : slot_.replace_damaged(made);
    if (tried.status == cas_status::stored) {
        return true;
    }
    if (tried.error == std::errc::operation_not_supported) { // the slot cannot
        return unexpected{failed(durable_errc::corrupt_record)};
    }
    return unexpected{failed(tried.error ? tried.error : durable_errc::conflict_timeout)};
}

inline void record_store::begin_waiting() noexcept {
    // Order: relaxed; the turn orders it before the look that opens the watch.
    own().waiting.fetch_add(1, std::memory_order_relaxed);
}
inline void record_store::end_waiting() noexcept {
    process_part& mine = own();
    // Order: relaxed; a number by itself.
    if (mine.waiting.fetch_sub(1, std::memory_order_relaxed) == 1 && mine.turn.try_lock()) {
        const std::lock_guard turn(mine.turn, std::adopt_lock);
        mine.close_idle_watch();
    }
}

template <transactional_slot S, class Rule>
std::error_code record_store::update_in(S& slot, typename S::transaction& in, given_time now,
                                        Rule rule) {
    if (const std::error_code error = check(now)) {
        return error;
    }
    if (terms_.clock == lock_clock::observed) { // what others see of it is known after its end only
        return make_error_code(durable_errc::clock_mismatch);
    }
    // Not in its turn: who has that may wait for this very transaction to end.
    const blocking_section section;
    const std::int64_t looked_ms = durable::boottime_ms();
    const auto failed_in = [&](std::error_code error) {
        if constexpr (explaining_slot<S>) {
            failed(error, slot.explain());
        }
        return error;
    };
    const auto loaded = slot.load_in(in);
    if (!loaded) {
        return failed_in(loaded.error());
    }
    process_part& mine = own();
    const slot_knowledge processes(slot, nullptr);
    sight s(processes);
    s.here = &mine.self.here();
    if (const std::error_code error = s.read(*loaded, looked_ms, now, terms_, options_.now)) {
        return failed_in(error);
    }
    durable::observations seen;
    {
        const std::lock_guard held(mine.state);
        s.observe(mine.seen_in);
        seen = mine.seen_in; // for this look: another thread may look meanwhile
        s.seen = &seen;
    }
    if (!rule(s, false)) {
        return {};
    }
    const cas_result tried =
        slot.compare_exchange_in(in, loaded->version, durable::encode(s.record));
    switch (tried.status) {
    case cas_status::stored: return {};
    case cas_status::conflict: return make_error_code(durable_errc::conflict_timeout);
    case cas_status::failed:
    case cas_status::indeterminate: break;
    }
    return failed_in(tried.error);
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
