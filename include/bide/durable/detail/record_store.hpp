// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_RECORD_STORE_HPP
#define BIDE_DURABLE_DETAIL_RECORD_STORE_HPP

// An update of the record of one lock, in its slot. Its parts:
//
//   store_time         when a read was made, and until when a lease is good
//   record_view        the record at the time of a read, and which of its leases have expired
//   process_identity   which contenders of the record belong to this process
//   process_part       what each process has of its own: its waiting contenders, and the turn, the
//                      right of one of its contenders to update the record
//   update_tries       until when an update is tried, and the pause between two tries
//   record_update      one update: load, judge, change, compare-and-swap. If another contender has
//                      changed the record meanwhile, it tries again.
//
// If it is unknown whether a change was stored, the record is read again and the rule applied
// again. The entry with the nonce of the ticket shows the rule what was done already.
//
// A child of fork() begins with a process_part of its own. Its slot object is a copy of its
// parent's.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/process_wide.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/change_watch.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/expiry.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/record_json.hpp>
#include <bide/durable/slot.hpp>
#include <bide/sync/mutex.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// The time of a read.
struct read_time {
    std::int64_t now_ms = 0;      // on the record's clock
    bool is_given = false;        // durable_options::now gave now_ms
    std::int64_t looked_ms = 0;   // boottime_ms() before the read
    std::int64_t sent_ms = 0;     // boottime_ms() when a lease that is stored begins
    std::int64_t first_fence = 0; // the least token of a grant that is made now
};

// It refers to the caller's clock, which has to outlive it.
struct store_time {
    lock_clock clock;
    std::int64_t lease_ms;
    std::int64_t margin_ms; // how much earlier than its contenders a holder regards a lease as lost
    double drift;           // durable_options::drift
    const std::function<std::chrono::milliseconds()>& callers_clock; // durable_options::now

    bool is_sane() const noexcept {
        return margin_ms > 0 && margin_ms < lease_ms && drift >= 0 && drift <= 10;
    }
    // Returns the time of the read of a snapshot. `looked_ms` is boottime_ms() before that read.
    // Throws: what the caller's clock throws.
    result<read_time, std::error_code> of(const slot_snapshot& from, std::int64_t looked_ms) const;

    // Returns the end, on boottime_ms(), of a lease that is stored after that read.
    std::int64_t good_until(const read_time& read) const noexcept {
        return read.sent_ms + lease_ms - margin_ms;
    }
    durable::expiry_judge judge(const read_time& read, const durable::origin& here,
                                const durable::observations& seen) const {
        const durable::expiry_judge by_clock(clock, read.now_ms, here);
        return read.is_given ? by_clock : by_clock.bounded_by(seen, read.looked_ms, drift);
    }

    // Returns the time to note in a record that replaces an unreadable one.
    std::int64_t of_note() const noexcept {
        return clock == lock_clock::boottime ? durable::boottime_ms() : durable::unix_ms();
    }
    // Returns the least token of a grant that is made after that read.
    static std::int64_t first_fence(const slot_snapshot& from) noexcept {
        return from.counter     ? *from.counter
               : from.server_ms ? durable::floor_of(*from.server_ms)
                                : durable::floor_of_now();
    }
};

inline result<read_time, std::error_code> store_time::of(const slot_snapshot& from,
                                                         std::int64_t looked_ms) const {
    read_time read;
    read.looked_ms = read.sent_ms = looked_ms;
    switch (clock) {
    case lock_clock::caller:
        read.is_given = bool(callers_clock);
        read.now_ms = callers_clock ? callers_clock().count() : durable::unix_ms();
        break;
    case lock_clock::boottime:
        // The lease may begin now, after the read, because the compare-and-swap fails if the value
        // has changed since the read. The later begin makes the own lease longer.
        read.now_ms = read.sent_ms = durable::boottime_ms();
        break;
    case lock_clock::server:
        if (!from.server_ms) { // no other time may replace it
            return unexpected{make_error_code(durable_errc::storage_error)};
        }
        read.now_ms = *from.server_ms;
        break;
    case lock_clock::observed:
        read.now_ms = durable::boottime_ms(); // only this machine reads it
        break;
    }
    read.first_fence = read.is_given ? durable::floor_of(read.now_ms) // depends on no other clock
                                     : first_fence(from);
    return read;
}

// The record that this process read or wrote last, with its stored text. If a read finds the same
// text, the text is not parsed again. Most reads do: the process has written the text itself, or
// the queue stands still.
class last_record {
public:
    // Returns the record of the text.
    // Throws: std::bad_alloc.
    result<durable::record, std::error_code> decode(const std::string& text) {
        if (text_.empty() || text_ != text) {
            const auto decoded = durable::decode(text);
            if (!decoded) {
                return decoded;
            }
            note(text, *decoded);
        }
        return record_;
    }
    // Requires: the text is encode() of the record, and the record is decode() of the text.
    void note(const std::string& text, const durable::record& of) {
        text_.clear(); // in case that a copy throws
        record_ = of;
        text_ = text;
    }

    // Returns the record of the last call of either function.
    const durable::record& get() const noexcept { return record_; }

private:
    std::string text_; // empty: none
    durable::record record_;
};

// It refers to its arguments, which have to outlive it.
class record_view {
public:
    record_view(const store_time& time, const durable::process_knowledge& known,
                const durable::origin& here, const durable::observations& seen) noexcept
        : time_(time), processes_(known), here_(here), seen_(seen) {}

    durable::record record{};
    read_time at{};
    bool exists = false;
    bool is_mended = false; // the record differs from what was read, and has to be stored

    // Reads the snapshot.
    // Throws: what durable_options::now throws, std::bad_alloc.
    std::error_code read(const slot_snapshot& from, std::int64_t looked_ms,
                         const durable::terms& terms, last_record& last);

    // Notes the entries of the record in `seen`, which the judge reads.
    // Requires: read() was called.
    void note_in(durable::observations& seen) const {
        if (!at.is_given) {
            seen.note(record, durable::boottime_ms());
        }
    }

    const durable::origin& here() const noexcept { return here_; }
    durable::expiry_judge judge() const {
        return time_.judge(at, here_, seen_).knowing(&processes_);
    }
    std::int64_t good_until() const noexcept { return time_.good_until(at); }
    // Returns the end, on boottime_ms() and less the margin, of a lease that another contender has
    // stored. `expires_at` is its end on the record's clock.
    std::int64_t good_until(std::int64_t expires_at) const noexcept {
        return at.looked_ms + (expires_at - at.now_ms) - time_.margin_ms;
    }
    // Returns the time of a change by an administrator, for people.
    std::int64_t note_ms() const noexcept {
        return time_.clock == lock_clock::observed ? durable::unix_ms() : at.now_ms;
    }

private:
    const store_time& time_;
    const durable::process_knowledge& processes_;
    const durable::origin& here_;
    const durable::observations& seen_;
};

inline std::error_code record_view::read(const slot_snapshot& from, std::int64_t looked_ms,
                                         const durable::terms& terms, last_record& last) {
    const auto time = time_.of(from, looked_ms);
    if (!time) {
        return time.error();
    }
    at = *time;
    exists = from.version != 0;
    durable::terms first = terms;
    first.first_fence = at.first_fence;
    if (exists) {
        auto decoded = last.decode(from.value);
        if (!decoded) {
            return decoded.error();
        }
        record = std::move(*decoded);
    } else {
        record = durable::fresh_record(first);
    }
    if (from.fell_back || from.lost_acknowledged) { // a record that was lost whole has no value
        durable::make_up_for_lost(record, from.lost_acknowledged, first, at.now_ms, here_);
        is_mended = true;
    }
    return {};
}

// ---- this process

// The marks of presence of the tickets that are bound to this process.
//
// Such a ticket may outlive the lock object whose mark of presence shows that the process runs. So
// this table keeps the mark open until a lock object of this process knows that the ticket holds
// nothing: the object released the grant, or a renewal by the object found the grant lost. If a
// ticket is never used again, its mark stays open until the process ends.
class BIDE_SHARED bound_tickets {
public:
    // Keeps the mark open for the ticket.
    // Throws: std::bad_alloc.
    static void keep(const std::string& nonce, const std::shared_ptr<slot_presence>& mark) {
        bound_tickets* const all = here();
        if (all == nullptr) {
            throw_error(std::make_error_code(std::errc::not_enough_memory));
        }
        const std::lock_guard held(all->lock_);
        all->marks_.emplace(key(nonce, mark->mark()), mark);
    }

    // Closes the marks of a ticket that holds nothing and waits for nothing.
    static void forget(const std::string& nonce) noexcept {
        bound_tickets* const all = here();
        if (all == nullptr) {
            return;
        }
        table gone; // closed after the lock
        const std::lock_guard held(all->lock_);
        auto entry = all->marks_.lower_bound(key(nonce, 0));
        while (entry != all->marks_.end() && entry->first.first == nonce) {
            gone.insert(all->marks_.extract(entry++));
        }
    }

private:
    using key = std::pair<std::string, std::int64_t>; // the nonce, and the mark's name
    using table = std::map<key, std::shared_ptr<slot_presence>>;

    static bound_tickets* here() noexcept {
        return process_wide<bound_tickets, native_platform>::get(
            +[]() noexcept { return new (std::nothrow) bound_tickets; });
    }

    mutex lock_;
    table marks_; // under lock_
};

class process_identity {
public:
    process_identity() = default;
    process_identity(const process_identity&) = delete;
    process_identity& operator=(const process_identity&) = delete;

    // Returns where this process runs.
    const durable::origin& here() const noexcept { return here_; }

    // Returns the origin of a contender. `bound` tells whether the contender is bound to this
    // process. The first bound contender takes a mark of presence, which stays open as long as this
    // object.
    durable::origin origin(bool bound, slot& in);

    // Returns the mark of presence of this process; 0 if it has none yet.
    std::int64_t mark() const noexcept {
        // Order: acquire [process_identity.mark]; the mark is seen.
        return has_mark_.load(std::memory_order_acquire) ? mark_->mark() : 0;
    }

    // Keeps the mark open for this ticket: see bound_tickets.
    // Throws: std::bad_alloc.
    void keep_mark(const std::string& nonce) {
        // Order: acquire [process_identity.mark]; the mark is seen.
        if (has_mark_.load(std::memory_order_acquire)) {
            bound_tickets::keep(nonce, mark_);
        }
    }

    // Called in a child of fork() for the parent's object. It closes the mark in the child, because
    // a mark that the child has open would outlive the parent.
    void leave() noexcept {
        // Order: acquire [process_identity.mark]; the mark is seen.
        if (has_mark_.load(std::memory_order_acquire)) {
            mark_->leave();
            mark_.reset();
        }
    }

private:
    const durable::origin here_ = durable::this_origin(true);
    mutex lock_;
    std::shared_ptr<slot_presence> mark_; // under lock_ until has_mark_, then it stays
    bool can_have_none_ = false;          // under lock_
    native_platform::atomic<bool> has_mark_{false};
};

inline durable::origin process_identity::origin(bool bound, slot& in) {
    durable::origin from = here_;
    if (!bound) {
        from.pid = from.start = from.space = from.network = 0;
        return from;
    }
    const std::lock_guard held(lock_);
    if (mark_ == nullptr && !can_have_none_) {
        auto taken = in.be_present();
        if (taken) {
            mark_ = std::move(*taken);
            // Order: release [process_identity.mark]; publishes the mark.
            has_mark_.store(true, std::memory_order_release);
        } else { // only the pid identifies it; after a passing error the next contender tries again
            can_have_none_ = taken.error() == std::errc::operation_not_supported;
        }
    }
    from.mark = mark_ != nullptr ? mark_->mark() : 0;
    return from;
}

// ---- an update

// Announces that this thread may block on a store. If the thread is a scheduler's worker, another
// thread takes over the worker.
class blocking_section {
public:
    blocking_section() noexcept : host_(worker_local<native_platform>::get().host) {
        if (host_ != nullptr) {
            host_->blocks();
        }
    }
    blocking_section(const blocking_section&) = delete;
    blocking_section& operator=(const blocking_section&) = delete;
    ~blocking_section() {
        if (host_ != nullptr) {
            host_->unblocks();
        }
    }

private:
    basic_worker_host<native_platform>* const host_;
};

// The state that each process keeps for one slot of a lock (durable/process.hpp).
//
// In one process, one contender at a time updates the record. It holds the mutex `turn`; the other
// comments say that it has the turn. The contenders get the turn in the order of arrival, so they
// do not conflict with each other. In a child of fork() the turn is free, even if a thread of the
// parent had it at the time of the fork.
struct process_part {
    process_part() = default;
    process_part(const process_part&) = delete;
    process_part& operator=(const process_part&) = delete;

    // Called in a child of fork() on its parent's object: closes files.
    void leave() noexcept {
        self.leave();
        if (turn.try_lock()) {
            const std::lock_guard held(turn, std::adopt_lock);
            changes.leave();
        }
    }

    // Returns the error, and keeps what the store says about it for explain().
    std::error_code failed(std::error_code error, std::string why) {
        const std::lock_guard held(state);
        trouble = std::move(why);
        return error;
    }
    // Returns what the store said of the last operation that failed.
    std::string explain() {
        const std::lock_guard held(state);
        return trouble;
    }

    process_identity self;
    change_wait changes;

    mutex state;         // may be locked with the turn, or without it
    std::string trouble; // under state

    mutex turn;
    last_record last;                                // used with the turn
    durable::observations seen;                      // used with the turn
    std::minstd_rand random{std::random_device()()}; // used with the turn
};

// Controls the tries of one update: until when there are further tries, the pause between two
// tries, and the error if no try has decided.
class update_tries {
public:
    // Tries end with `until`, or after retry_time if that is earlier.
    update_tries(deadline until, std::chrono::milliseconds retry_time) noexcept : until_(until) {
        const deadline retry_end = deadline::after(retry_time);
        if (retry_end.steady_ns() < until_.steady_ns()) {
            until_ = retry_end;
        }
    }

    std::chrono::nanoseconds rest() const noexcept {
        return std::chrono::nanoseconds(until_.steady_ns() - native_platform::now());
    }
    // Returns true if an earlier try may have been stored.
    bool maybe_done() const noexcept { return maybe_done_; }
    // Returns true if the slot offers update_locked(), as far as is known.
    bool may_lock() const noexcept { return may_lock_; }

    // Tries once: by swap() the first time, later by locked() if the slot offers update_locked().
    template <class Swap, class Locked> cas_result once(Swap swap, Locked locked) {
        if (ended_ != 0 && may_lock_) {
            cas_result tried = locked();
            may_lock_ = tried.error != std::errc::operation_not_supported;
            if (may_lock_) {
                return tried;
            }
        }
        return swap();
    }

    // Calls try_once() until a try has stored or failed, or the time is up. try_once() returns a
    // cas_result. pauses(tried) gets that result, and tells whether to sleep before the next try.
    // failed(error) returns the error, and keeps the slot's text about it.
    template <class Try, class Pauses, class Failed>
    std::error_code run(std::minstd_rand& random, Try try_once, Pauses pauses, Failed failed) {
        for (;;) {
            const cas_result tried = try_once();
            if (tried.status == cas_status::stored) {
                return {};
            }
            if (tried.status == cas_status::failed) {
                return failed(tried.error);
            }
            if (const std::error_code error = end_try(tried.status)) {
                return maybe_done() ? failed(error) : error;
            }
            if (pauses(tried)) {
                pause(random);
            }
        }
    }

private:
    // Notes that a try ended without a decision. Returns an error if it was the last one.
    std::error_code end_try(cas_status how) noexcept {
        ++ended_;
        maybe_done_ = maybe_done_ || how == cas_status::indeterminate;
        if (native_platform::now() < until_.steady_ns()) {
            return {};
        }
        return make_error_code(maybe_done_ ? durable_errc::indeterminate
                                           : durable_errc::conflict_timeout);
    }

    // Sleeps before the next try: up to 0.2 ms after the first try, twice that after the second,
    // and so on, up to 25.6 ms.
    // Requires: end_try() was called.
    void pause(std::minstd_rand& random) const {
        const std::int64_t most_ns = std::int64_t{200'000} << std::min(ended_ - 1, 7U);
        const std::int64_t ns = std::uniform_int_distribution<std::int64_t>(0, most_ns)(random);
        std::this_thread::sleep_for(std::min(std::chrono::nanoseconds(ns), rest()));
    }

    deadline until_;
    unsigned ended_ = 0;
    bool maybe_done_ = false;
    bool may_lock_ = true;
};

// Tells whether processes run: asks the watch, and the marks of presence of the slot.
class slot_knowledge final : public durable::process_knowledge {
public:
    slot_knowledge(const slot& of, const change_watch& watch) noexcept : slot_(of), watch_(watch) {}

    bool runs(const durable::origin& it) const noexcept override { return watch_.runs(it); }
    presence is_present(std::int64_t mark) const override { return slot_.is_present(mark); }

private:
    const slot& slot_;
    const change_watch& watch_;
};

// One update of the record. The caller has the turn (process_part). lock_engine::update() describes
// the rule.
template <class Rule> class record_update {
public:
    record_update(slot& on, const store_time& time, const durable::terms& terms, process_part& mine,
                  Rule& rule)
        : slot_(on), time_(time), terms_(terms), mine_(mine), rule_(rule),
          processes_(on, mine.changes.watch()) {}

    std::error_code run(update_tries& tries);

private:
    // Tries by a load and a compare-and-swap.
    cas_result try_swap(bool maybe_done);
    // Tries under the store's own lock, where no conflict is possible.
    cas_result try_locked(bool maybe_done);

    // Applies the rule to a snapshot. Returns the value to store, if there is one.
    std::optional<std::string> apply(const slot_snapshot& from, std::int64_t looked_ms,
                                     bool maybe_done, std::error_code& error);
    static cas_result refused(std::error_code error) { return {cas_status::failed, 0, {}, error}; }

    slot& slot_;
    const store_time& time_;
    const durable::terms& terms_;
    process_part& mine_;
    Rule& rule_;
    const slot_knowledge processes_;
    std::vector<std::int64_t> concerned_; // by the change of this try: marks of processes
    std::optional<slot_snapshot> known_;  // what the next try need not load
    std::int64_t looked_ms_ = 0;          // boottime_ms() before known_ was read
};

template <class Rule>
std::optional<std::string> record_update<Rule>::apply(const slot_snapshot& from,
                                                      std::int64_t looked_ms, bool maybe_done,
                                                      std::error_code& error) {
    record_view s(time_, processes_, mine_.self.here(), mine_.seen);
    error = s.read(from, looked_ms, terms_, mine_.last);
    if (error) {
        return std::nullopt;
    }
    s.note_in(mine_.seen);
    concerned_.clear();
    if (!rule_(s, maybe_done)) {
        return std::nullopt;
    }
    if (s.exists) {
        durable::terms terms = terms_;
        terms.first_fence = s.at.first_fence;
        durable::pass_on(s.record, terms, s.at.now_ms, s.judge(), s.here());
        concerned_ = durable::concerned_by_change(mine_.last.get(), s.record);
    }
    std::string changed = durable::encode(s.record);
    mine_.last.note(changed, s.record);
    return changed;
}

template <class Rule> cas_result record_update<Rule>::try_swap(bool maybe_done) {
    const std::int64_t looked_ms = durable::boottime_ms();
    if (!known_) {
        auto loaded = slot_.load();
        if (!loaded) {
            return refused(loaded.error());
        }
        known_ = std::move(*loaded);
        looked_ms_ = looked_ms;
    }
    std::error_code error;
    const auto changed = apply(*known_, looked_ms_, maybe_done, error);
    if (error) {
        return refused(error);
    }
    if (!changed) {
        return {cas_status::stored, known_->version, {}, {}};
    }
    cas_result tried = slot_.compare_exchange(known_->version, *changed);
    known_.reset();
    if (tried.status == cas_status::conflict) {
        known_ = std::move(tried.current);
        looked_ms_ = looked_ms; // before the swap that returned it
    }
    return tried;
}

template <class Rule> cas_result record_update<Rule>::try_locked(bool maybe_done) {
    const std::int64_t looked_ms = durable::boottime_ms();
    std::error_code error;
    cas_result tried = slot_.update_locked([&](const slot_snapshot& from) {
        known_.reset();
        return apply(from, looked_ms, maybe_done, error);
    });
    return error ? refused(error) : tried;
}

template <class Rule> std::error_code record_update<Rule>::run(update_tries& tries) {
    return tries.run(
        mine_.random,
        [&] {
            const bool maybe_done = tries.maybe_done();
            const cas_result tried = tries.once([&] { return try_swap(maybe_done); },
                                                [&] { return try_locked(maybe_done); });
            if (tried.status == cas_status::stored || tried.status == cas_status::indeterminate) {
                std::for_each(concerned_.begin(), concerned_.end(), &wake_socket::wake);
            }
            return tried;
        },
        [&](const cas_result& tried) {
            const bool will_lock = tries.may_lock() && tried.status == cas_status::conflict;
            return !known_ && !will_lock;
        },
        [&](std::error_code error) { return mine_.failed(error, slot_.explain()); });
}

}}} // namespace bide::BIDE_ABI::detail

#endif
