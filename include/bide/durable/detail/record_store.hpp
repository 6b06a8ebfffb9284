#ifndef BIDE_DURABLE_DETAIL_RECORD_STORE_HPP
#define BIDE_DURABLE_DETAIL_RECORD_STORE_HPP

// Carries a rule of durable/record.hpp out on a slot: load, judge, change, compare-and-swap, and
// again where somebody else was first. Of one process one contender at a time does so: they have
// their turns in the order of their coming, and do not conflict with each other.
//
// A change whose fate is unknown is not guessed at: the record is read again and the rule applied
// again, which by the nonce finds what was done already.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/blocking_section.hpp>
#include <bide/durable/detail/change_signal.hpp>
#include <bide/durable/detail/change_watch.hpp>
#include <bide/durable/detail/process_identity.hpp>
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
    change_signal& signal() noexcept { return *signal_; }

    // Of a contender; bound to this process or not.
    durable::origin origin(bool bound) { return self_.origin(bound, slot_); }

    // A mark that no other contender has, for a hold that children inherit; and what is known of it.
    result<std::shared_ptr<slot_presence>, std::error_code> be_present() {
        return slot_.be_present();
    }
    presence is_present(std::int64_t mark) { return slot_.is_present(mark); }

    // What is bound to this process stays so when this object has ended.
    void keep_mark() noexcept { self_.keep_mark(); }

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
    void follow(const sight& s) { watch_.follow(s.record, *s.here); }
    bool is_watched() const noexcept { return watch_.is_open(); }
    bool can_be_watched() const noexcept { return watch_.can_open(slot_); }

    // What the store said of the last operation that failed, for people; may be empty.
    std::string explain() const;

    // While this process has waiters the slot may be watched. They never wait for the turn. A call
    // that has it keeps the watch open; then the next call closes it.
    void begin_waiting() noexcept;
    void end_waiting() noexcept;

private:
    // A look of one whose turn it is.
    std::error_code see(const slot_snapshot& from, std::int64_t looked_ms, given_time now,
                        sight& into) {
        into.here = self_.here();
        const std::error_code error = into.read(from, looked_ms, now, terms_, options_.now);
        if (!error) {
            into.observe(seen_);
        }
        return error;
    }
    std::error_code failed(std::error_code error);
    std::error_code check(given_time now) const noexcept {
        return !now || terms_.clock == lock_clock::caller
                   ? std::error_code()
                   : make_error_code(durable_errc::clock_mismatch);
    }
    void close_idle_watch() noexcept { // in its turn
        // Order: relaxed; a waiter that is counted later opens the watch in a later turn.
        if (waiting_.load(std::memory_order_relaxed) == 0) {
            watch_.close();
        }
    }
    template <class Rule>
    cas_result try_locked(given_time now, bool maybe_done, Rule& rule, std::error_code& error);
    void back_off(unsigned attempt, deadline until);

    slot_ref slot_;
    const durable_options options_;
    durable::terms terms_;
    std::int64_t margin_ms_ = 0;
    const std::shared_ptr<change_signal> signal_;
    process_identity self_;

    mutable mutex state_;           // within a turn, or without one
    durable::observations seen_in_; // under state_: in transactions of callers
    std::string trouble_;           // under state_

    mutex turn_;
    // In their turn:
    change_watch watch_;
    durable::observations seen_;
    std::minstd_rand random_;

    native_platform::atomic<unsigned> waiting_{0}; // of this process
};

inline record_store::record_store(slot_ref slot, std::int64_t permits, durable_options options)
    : slot_(std::move(slot)), options_(std::move(options)),
      signal_(std::make_shared<change_signal>()), watch_(signal_), random_(std::random_device()()) {
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

// In words of the slot's, for explain().
inline std::error_code record_store::failed(std::error_code error) {
    std::string why = slot_.explain();
    const std::lock_guard held(state_);
    trouble_ = std::move(why);
    return error;
}
inline std::string record_store::explain() const {
    const std::lock_guard held(state_);
    return trouble_;
}

inline void record_store::back_off(unsigned attempt, deadline until) {
    const std::int64_t most_ns = std::int64_t{200'000} << std::min(attempt, 7U);
    const std::int64_t ns = std::uniform_int_distribution<std::int64_t>(0, most_ns)(random_);
    const std::int64_t rest_ns = until.steady_ns() - native_platform::now();
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(ns, rest_ns)));
}

// Under the store's own lock nobody comes in between.
template <class Rule>
cas_result record_store::try_locked(given_time now, bool maybe_done, Rule& rule,
                                    std::error_code& error) {
    const std::int64_t looked_ms = durable::boottime_ms();
    return slot_.update_locked([&](const slot_snapshot& from) -> std::optional<std::string> {
        const slot_knowledge processes(slot_, &watch_);
        sight s(processes);
        error = see(from, looked_ms, now, s);
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
    if (!turn_.try_lock_for(std::chrono::nanoseconds(rest))) {
        return make_error_code(durable_errc::conflict_timeout);
    }
    const std::lock_guard turn(turn_, std::adopt_lock);
    const blocking_section section;
    close_idle_watch();
    if (what == intent::watch) {
        watch_.open(slot_);
    }
    if (what >= intent::wait) {
        watch_.drain();
    }

    bool maybe_done = false;
    std::optional<slot_snapshot> known;
    std::int64_t known_looked_ms = 0;
    for (unsigned attempt = 0;; ++attempt) {
        cas_result tried;
        const std::int64_t looked_ms = durable::boottime_ms();
        if (attempt != 0 && slot_.is_locked()) {
            std::error_code error;
            tried = try_locked(now, maybe_done, rule, error);
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
            const slot_knowledge processes(slot_, &watch_);
            sight s(processes);
            if (const std::error_code error = see(*known, known_looked_ms, now, s)) {
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
            back_off(attempt, until);
        }
    }
}

inline result<bool, std::error_code> record_store::repair(std::int64_t min_fence,
                                                          durable::admin_note note) {
    const std::lock_guard turn(turn_);
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
    waiting_.fetch_add(1, std::memory_order_relaxed);
}
inline void record_store::end_waiting() noexcept {
    // Order: relaxed; a number by itself.
    if (waiting_.fetch_sub(1, std::memory_order_relaxed) == 1 && turn_.try_lock()) {
        const std::lock_guard turn(turn_, std::adopt_lock);
        close_idle_watch();
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
    const auto loaded = slot.load_in(in);
    if (!loaded) {
        return loaded.error();
    }
    const slot_knowledge processes(slot, nullptr);
    sight s(processes);
    s.here = self_.here();
    if (const std::error_code error = s.read(*loaded, looked_ms, now, terms_, options_.now)) {
        return error;
    }
    durable::observations seen;
    {
        const std::lock_guard held(state_);
        s.observe(seen_in_);
        seen = seen_in_; // for this look: another thread may look meanwhile
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
    return tried.error;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
