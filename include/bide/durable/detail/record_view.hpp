// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_RECORD_VIEW_HPP
#define BIDE_DURABLE_DETAIL_RECORD_VIEW_HPP

// A view of a record at one moment: the value that was read from the slot, the time of that read, the
// judge that decides which leases have expired, and the end of an own lease on this machine.
// durable/expiry.hpp describes the clocks.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/expiry.hpp>
#include <bide/durable/options.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/record_admin.hpp>
#include <bide/durable/record_json.hpp>
#include <bide/durable/slot_types.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// The time of a read.
struct read_time {
    std::int64_t now_ms = 0;      // on the record's clock
    bool is_given = false;        // the caller gave now_ms
    std::int64_t looked_ms = 0;   // boottime_ms() before the read
    std::int64_t sent_ms = 0;     // boottime_ms() when a lease that is stored begins
    std::int64_t first_fence = 0; // the first token of a record that is made now
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
    // Returns an error if the clock takes no time from the caller.
    std::error_code check(given_time now) const noexcept {
        return !now || clock == lock_clock::caller ? std::error_code()
                                                   : make_error_code(durable_errc::clock_mismatch);
    }

    // Returns the time of the read of a snapshot. `looked_ms` is boottime_ms() before that read.
    // Throws: what the caller's clock throws.
    result<read_time, std::error_code> of(const slot_snapshot& from, std::int64_t looked_ms,
                                          given_time now) const;

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
    // Returns the first token of a record that is made in an empty slot.
    static std::int64_t first_fence(const slot_snapshot& absent) noexcept {
        return absent.counter     ? *absent.counter
               : absent.server_ms ? durable::floor_of(*absent.server_ms)
                                  : durable::floor_of_now();
    }
};

inline result<read_time, std::error_code>
store_time::of(const slot_snapshot& from, std::int64_t looked_ms, given_time now) const {
    read_time read;
    read.looked_ms = read.sent_ms = looked_ms;
    switch (clock) {
    case lock_clock::caller:
        read.is_given = now || callers_clock;
        read.now_ms = now             ? now->count()
                      : callers_clock ? callers_clock().count()
                                      : durable::unix_ms();
        break;
    case lock_clock::boottime:
        // The value that was read does not change until the swap, so the lease may begin here: a
        // later begin makes the own lease longer.
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

// The record that this process read or wrote last, with its stored text. Most reads find the same
// text: what the process wrote itself, or a queue that stands still. It is not parsed again.
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
    std::error_code read(const slot_snapshot& from, std::int64_t looked_ms, given_time now,
                         const durable::terms& terms, last_record& last);

    // Notes the record in `by`, for the judge.
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
    // Returns the end of a lease that another contender has stored, which expires at that time on
    // the record's clock.
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
                                         given_time now, const durable::terms& terms,
                                         last_record& last) {
    const auto time = time_.of(from, looked_ms, now);
    if (!time) {
        return time.error();
    }
    at = *time;
    exists = from.version != 0;
    durable::terms first = terms;
    first.first_fence = at.first_fence;
    if (!exists) {
        record = durable::fresh_record(first);
        return {};
    }
    auto decoded = last.decode(from.value);
    if (!decoded) {
        return decoded.error();
    }
    record = std::move(*decoded);
    if (from.fell_back) {
        durable::make_up_for_lost(record, from.lost_acknowledged, first, at.now_ms, here_);
        is_mended = true;
    }
    return {};
}

}}} // namespace bide::BIDE_ABI::detail

#endif
