// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_RECORD_UPDATE_HPP
#define BIDE_DURABLE_DETAIL_RECORD_UPDATE_HPP

// One update of a record: loads it, applies a rule, and stores the result by compare-and-swap. If
// another contender was first, it tries again.
//
// If it is unknown whether a change was stored, the record is read again and the rule applied
// again. By the nonce of the ticket the rule finds what was done already.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/platform.hpp>
#include <bide/durable/detail/caller_transaction.hpp>
#include <bide/durable/detail/change_watch.hpp>
#include <bide/durable/detail/process_identity.hpp>
#include <bide/durable/detail/record_view.hpp>
#include <bide/durable/detail/wake_socket.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/expiry.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/record_json.hpp>
#include <bide/durable/record_queue.hpp>
#include <bide/durable/record_types.hpp>
#include <bide/durable/slot.hpp>
#include <bide/sync/mutex.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace detail {

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

// The part of a record_store that each process has of its own (detail/per_process.hpp).
//
// In one process one contender at a time updates the record: it has the turn. The contenders take
// turns in the order of arrival, so they do not conflict with each other. A child of fork() begins
// with a free turn, whatever the threads of its parent did at the time of the fork.
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

    mutex state;                   // may be locked with the turn, or without it
    durable::observations seen_in; // under state: seen in transactions of callers
    std::string trouble;           // under state

    mutex turn;
    last_record last;                                // used with the turn
    durable::observations seen;                      // used with the turn
    std::minstd_rand random{std::random_device()()}; // used with the turn
};

// The tries of one update: until when they go on, the pause between two, and the error if they end
// without a decision.
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

    // Tries until a try decides, or the time is up. try_once() returns a cas_result. pauses(tried)
    // tells whether a sleep precedes the next try. failed(error) returns the error, and keeps what
    // the slot says about it.
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

// What the marks of a slot and a watch tell about processes.
template <class Slot> class slot_knowledge final : public durable::process_knowledge {
public:
    // `watch` is nullptr if the reader does not have the turn.
    slot_knowledge(Slot& of, const change_watch* watch) noexcept : slot_(of), watch_(watch) {}

    bool runs(const durable::origin& it) const noexcept override {
        return watch_ != nullptr && watch_->runs(it);
    }
    presence is_present(std::int64_t mark) const override { return slot_.is_present(mark); }

private:
    Slot& slot_;
    const change_watch* watch_;
};

// What an update needs besides its slot and its rule.
struct update_context {
    const store_time& time;
    const durable::terms& terms;
    process_part& mine;
    given_time now;
};

// An update with the turn. For the rule see record_store::update().
template <class Rule> class record_update {
public:
    record_update(slot& of, update_context with, Rule& rule)
        : slot_(of), with_(with), rule_(rule), processes_(slot_, &with_.mine.changes.watch()) {}

    std::error_code run(update_tries& tries);

private:
    // Tries by a load and a compare-and-swap.
    cas_result try_swap(bool maybe_done);
    // Tries under the store's own lock, where no conflict is possible.
    cas_result try_locked(bool maybe_done);

    // Applies the rule to a snapshot. Returns the value to store, if there is one.
    std::optional<std::string> apply(const slot_snapshot& from, std::int64_t looked_ms,
                                     bool maybe_done, std::error_code& error);
    std::error_code failed(std::error_code error) {
        return with_.mine.failed(error, slot_.explain());
    }
    static cas_result refused(std::error_code error) { return {cas_status::failed, 0, {}, error}; }

    slot& slot_;
    const update_context with_;
    Rule& rule_;
    const slot_knowledge<slot> processes_;
    std::vector<std::int64_t> concerned_; // by the change of this try: marks of processes
    std::optional<slot_snapshot> known_;  // what the next try need not load
    std::int64_t looked_ms_ = 0;          // boottime_ms() before known_ was read
};

template <class Rule>
std::optional<std::string> record_update<Rule>::apply(const slot_snapshot& from,
                                                      std::int64_t looked_ms, bool maybe_done,
                                                      std::error_code& error) {
    process_part& mine = with_.mine;
    record_view s(with_.time, processes_, mine.self.here(), mine.seen);
    error = s.read(from, looked_ms, with_.now, with_.terms, mine.last);
    if (error) {
        return std::nullopt;
    }
    s.note_in(mine.seen);
    concerned_.clear();
    if (!rule_(s, maybe_done)) {
        return std::nullopt;
    }
    if (s.exists) {
        durable::pass_on(s.record, with_.terms, s.at.now_ms, s.judge(), s.here());
        concerned_ = durable::concerned_by_change(mine.last.get(), s.record);
    }
    std::string changed = durable::encode(s.record);
    mine.last.note(changed, s.record);
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
        with_.mine.random,
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
        [&](std::error_code error) { return failed(error); });
}

// An update inside a transaction of the caller, tried once. It does not take the turn: the
// contender that has the turn may wait for this transaction to end.
template <class Rule>
std::error_code update_in_transaction(caller_transaction& in, update_context with, Rule& rule) {
    const blocking_section section;
    const std::int64_t looked_ms = durable::boottime_ms();
    process_part& mine = with.mine;
    const auto failed = [&](std::error_code error) { return mine.failed(error, in.explain()); };
    const auto loaded = in.load();
    if (!loaded) {
        return failed(loaded.error());
    }
    const slot_knowledge processes(in, nullptr);
    durable::observations seen;
    record_view s(with.time, processes, mine.self.here(), seen);
    last_record none; // another thread may have the turn
    if (const std::error_code error = s.read(*loaded, looked_ms, with.now, with.terms, none)) {
        return failed(error);
    }
    {
        const std::lock_guard held(mine.state);
        s.note_in(mine.seen_in);
        seen = mine.seen_in; // a copy for this view: another thread may change it meanwhile
    }
    if (!rule(s, false)) {
        return {};
    }
    const cas_result tried = in.compare_exchange(loaded->version, durable::encode(s.record));
    switch (tried.status) {
    case cas_status::stored: return {};
    case cas_status::conflict: return make_error_code(durable_errc::conflict_timeout);
    case cas_status::failed:
    case cas_status::indeterminate: break;
    }
    return failed(tried.error);
}

}}} // namespace bide::BIDE_ABI::detail

#endif
