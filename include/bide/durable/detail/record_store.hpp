// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_RECORD_STORE_HPP
#define BIDE_DURABLE_DETAIL_RECORD_STORE_HPP

// The record of one lock, in its slot. It carries out the rules of durable/record.hpp. Its parts:
//
//   store_time       when a read was made, and until when a lease is good
//   process_part     what each process has of its own: the turn, and its waiting contenders
//   update_tries     until when an update is tried, and the pause between two tries
//   record_update    one update: load, judge, change, compare-and-swap
//
// A child of fork() begins with a process_part of its own. Its slot object is a copy of its
// parent's.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/caller_transaction.hpp>
#include <bide/durable/detail/change_watch.hpp>
#include <bide/durable/detail/per_process.hpp>
#include <bide/durable/detail/record_update.hpp>
#include <bide/durable/detail/record_view.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/options.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/record_admin.hpp>
#include <bide/durable/record_json.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/ticket.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

class record_store {
public:
    // Throws: std::system_error (durable_errc::invalid_argument) if an option is out of range.
    record_store(slot_ref slot, std::int64_t permits, durable_options options);
    record_store(const record_store&) = delete;
    record_store& operator=(const record_store&) = delete;

    const durable_options& options() const noexcept { return options_; }
    const durable::terms& terms() const noexcept { return terms_; }
    bool is_local() const noexcept { return !slot_.guarantees().multi_host; }
    std::int64_t warn_before_ms() const noexcept { // durable_options::warn_before
        return options_.warn_before.count() != 0 ? options_.warn_before.count()
                                                 : (time_.lease_ms - time_.margin_ms) / 3;
    }

    // Returns the origin of a contender that is bound to this process or not.
    durable::origin origin(bool bound) { return own().self.origin(bound, *slot_); }

    // Takes a mark for a grant that children inherit; returns whether a mark is held.
    result<std::shared_ptr<slot_presence>, std::error_code> be_present() {
        return slot_->be_present();
    }
    presence is_present(std::int64_t mark) { return slot_->is_present(mark); }

    // Keeps the mark of a ticket that is bound to this process, after this object has ended: see
    // bound_tickets.
    // Throws: std::bad_alloc.
    void keep_mark(const std::string& nonce) { own().self.keep_mark(nonce); }

    // Carries out a rule. rule(record_view, maybe_done) changes the record and returns true if it
    // has to be stored. maybe_done is true if an earlier try may have been stored. The rule is
    // called once a try, and its last call counts. The tries end after the retry_time of the
    // options, or at `until` if that is earlier.
    //
    // Returns: durable_errc::store_busy if this process had no turn until then, so nothing was
    // changed; the other errors of the slot and of the record.
    template <class Rule>
    std::error_code update(given_time now, intent what, deadline until, Rule rule);

    // As update(), but tries once, inside a transaction of the caller on the same value.
    //
    // Returns: durable_errc::conflict_timeout if another transaction was first;
    // durable_errc::clock_mismatch with lock_clock::observed.
    template <class Rule>
    std::error_code update_in(caller_transaction& in, given_time now, Rule rule);

    // Replaces a record that cannot be read. Returns false if it can be read: then nothing changes.
    result<bool, std::error_code> repair(std::int64_t min_fence, durable::admin_note note);

    // Returns what the store said of the last operation that failed, for people; may be empty.
    std::string explain() { return own().explain(); }

    // Wakes the contenders of this process that wait.
    change_signal& signal() { return own().changes.signal(); }

    // While this process has waiters the slot may be watched. These calls never wait for the turn.
    // If another call has the turn, the watch stays open until the next call closes it.
    // `hears_all`: the waiter wants to hear every change.
    void begin_waiting(bool hears_all) noexcept { own().changes.begin(hears_all); }
    void end_waiting(bool hears_all) noexcept;
    bool has_waited() { return own().changes.has_waited(); }

    // Called in the rule of a contender that is going to wait: follows the processes on which it
    // depends.
    void follow(const record_view& s) { own().changes.follow(s.record, s.here()); }
    bool is_watched() { return own().changes.watch().hears(); }
    bool can_be_watched() { return own().changes.watch().can_open(); }

private:
    process_part& own() {
        return own_.get([] { return process_part(); });
    }
    // Returns the error, and keeps the slot's explanation for explain().
    std::error_code failed(std::error_code error) {
        return told(own().failed(error, slot_->explain()));
    }
    // Returns the error, and tells the observer of it.
    std::error_code told(std::error_code error) const noexcept {
        if (error && options_.observer != nullptr) {
            options_.observer->store_failed(error);
        }
        return error;
    }

    slot_ref slot_;
    const durable_options options_;
    durable::terms terms_;
    const store_time time_;
    per_process<process_part> own_;
};

inline record_store::record_store(slot_ref slot, std::int64_t permits, durable_options options)
    : slot_(std::move(slot)), options_(std::move(options)),
      time_{options_.clock.value_or(slot_.guarantees().clock), options_.lease.count(),
            options_.margin.count() != 0 ? options_.margin.count()
                                         : options_.lease.count() / 10 + 1,
            options_.drift, options_.now} {
    terms_.permits = permits;
    terms_.clock = time_.clock;
    terms_.lease_ms = time_.lease_ms;
    terms_.waiter_ttl_ms =
        options_.waiter_ttl.count() != 0 ? options_.waiter_ttl.count() : terms_.lease_ms;
    terms_.reclaim_delay_ms = options_.reclaim_delay.count();
    terms_.max_waiters = options_.max_waiters;
    terms_.revive = options_.revive;
    terms_.adopt_permits = options_.adopt_permits;
    const bool sane =
        !durable::check(terms_, 0) && time_.is_sane() && options_.retry_time.count() > 0 &&
        options_.attempt_limit.count() >= 0 && options_.warn_before.count() >= 0 &&
        options_.warn_before.count() < time_.lease_ms - time_.margin_ms &&
        options_.poll_least.count() > 0 && options_.poll_most >= options_.poll_least &&
        options_.holder_id.size() <= durable::longest_name && is_utf8(options_.holder_id) &&
        (terms_.clock != lock_clock::server || slot_.guarantees().clock == lock_clock::server);
    if (!sane) {
        BIDE_THROW(std::system_error(make_error_code(durable_errc::invalid_argument),
                                     "bide: the options of a durable lock"));
    }
}

template <class Rule>
std::error_code record_store::update(given_time now, intent what, deadline until, Rule rule) {
    if (const std::error_code error = time_.check(now)) {
        return error;
    }
    update_tries tries(until, options_.retry_time);
    process_part& mine = own();
    if (!mine.turn.try_lock_for(tries.rest())) {
        return told(make_error_code(durable_errc::store_busy));
    }
    const std::lock_guard turn(mine.turn, std::adopt_lock);
    const blocking_section section;
    mine.changes.prepare(what, *slot_, mine.self.mark());
    return told(record_update<Rule>(*slot_, {time_, terms_, mine, now}, rule).run(tries));
}

template <class Rule>
std::error_code record_store::update_in(caller_transaction& in, given_time now, Rule rule) {
    if (const std::error_code error = time_.check(now)) {
        return error;
    }
    if (time_.clock == lock_clock::observed) { // other contenders see it only after the commit
        return make_error_code(durable_errc::clock_mismatch);
    }
    return told(update_in_transaction(in, {time_, terms_, own(), now}, rule));
}

inline result<bool, std::error_code> record_store::repair(std::int64_t min_fence,
                                                          durable::admin_note note) {
    const std::lock_guard turn(own().turn);
    const blocking_section section;
    const auto loaded = slot_->load();
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
    const cas_result tried =
        loaded ? slot_->compare_exchange(loaded->version, made) : slot_->replace_damaged(made);
    if (tried.status == cas_status::stored) {
        return true;
    }
    if (tried.error == std::errc::operation_not_supported) { // the slot cannot replace it
        return unexpected{failed(durable_errc::corrupt_record)};
    }
    return unexpected{failed(tried.error ? tried.error : durable_errc::conflict_timeout)};
}

inline void record_store::end_waiting(bool hears_all) noexcept {
    process_part& mine = own();
    if (mine.changes.end(hears_all) && mine.turn.try_lock()) {
        const std::lock_guard turn(mine.turn, std::adopt_lock);
        mine.changes.close_if_idle();
    }
}

}}} // namespace bide::BIDE_ABI::detail

#endif
