// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_RECORD_VIEW_HPP
#define BIDE_DURABLE_DETAIL_RECORD_VIEW_HPP

// A view of a record at one moment: what was read from the slot, the time of that read, and the
// judge of its leases.

#include <bide/core/config.hpp>
#include <bide/durable/detail/change_watch.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/expiry.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/record_admin.hpp>
#include <bide/durable/record_json.hpp>
#include <bide/durable/slot.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// A time that the caller gives, for lock_clock::caller; otherwise none.
using given_time = std::optional<std::chrono::milliseconds>;

// Returns the first token of a record that is made in an empty slot.
inline std::int64_t first_fence_of(const slot_snapshot& absent) noexcept {
    return absent.counter     ? *absent.counter
           : absent.server_ms ? durable::floor_of(*absent.server_ms)
                              : durable::floor_of_now();
}

// What the marks of a slot and a watch tell about processes.
template <class Slot> class slot_knowledge final : public durable::process_knowledge {
public:
    // `watch` is nullptr if the reader does not have the turn.
    slot_knowledge(Slot& slot, const change_watch* watch) noexcept : slot_(slot), watch_(watch) {}

    bool runs(const durable::origin& it) const noexcept override {
        return watch_ != nullptr && watch_->runs(it);
    }
    presence is_present([[maybe_unused]] std::int64_t mark) const override {
        if constexpr (requires { slot_.is_present(mark); }) {
            return slot_.is_present(mark);
        } else {
            return presence::unknown;
        }
    }

private:
    Slot& slot_;
    const change_watch* watch_;
};

struct record_view {
    explicit record_view(const durable::process_knowledge& known) noexcept : processes(&known) {}

    durable::record record{};
    bool exists = false;
    bool is_mended = false;     // the record differs from what was read, and has to be stored
    bool is_given_time = false; // the caller gave now_ms
    std::int64_t now_ms = 0;    // on the record's clock
    std::int64_t looked_ms = 0; // boottime_ms() before the read
    std::int64_t sent_ms = 0;   // boottime_ms() when a lease that is stored begins
    const durable::origin* here = nullptr;
    const durable::observations* seen = nullptr;
    const durable::process_knowledge* processes;

    // Reads the snapshot.
    // Requires: `here` is set.
    std::error_code read(const slot_snapshot& from, std::int64_t looked, given_time now,
                         const durable::terms& terms,
                         const std::function<std::chrono::milliseconds()>& callers_clock);

    // Notes the record there, for the judge.
    // Requires: read() was called.
    void observe(durable::observations& by) {
        if (!is_given_time) {
            by.note(record, durable::boottime_ms());
        }
        seen = &by;
    }

    durable::expiry_judge judge(lock_clock clock, double drift) const {
        const durable::expiry_judge by_clock(clock, now_ms, *here);
        return (is_given_time ? by_clock : by_clock.bounded_by(*seen, looked_ms, drift))
            .knowing(processes);
    }
};

inline std::error_code
record_view::read(const slot_snapshot& from, std::int64_t looked, given_time now,
                  const durable::terms& terms,
                  const std::function<std::chrono::milliseconds()>& callers_clock) {
    looked_ms = sent_ms = looked;
    exists = from.version != 0;
    std::int64_t made_ms = durable::unix_ms();
    switch (terms.clock) {
    case lock_clock::caller:
        is_given_time = now || callers_clock;
        now_ms = now ? now->count() : callers_clock ? callers_clock().count() : made_ms;
        made_ms = now_ms;
        break;
    case lock_clock::boottime:
        // The value that was read does not change until the swap, so the lease may begin here: a
        // later begin makes the own lease longer.
        now_ms = sent_ms = durable::boottime_ms();
        break;
    case lock_clock::server:
        if (!from.server_ms) { // no other time may replace it
            return make_error_code(durable_errc::storage_error);
        }
        now_ms = *from.server_ms;
        break;
    case lock_clock::observed:
        now_ms = made_ms; // only for people
        break;
    }
    durable::terms first = terms;
    first.first_fence = is_given_time ? durable::floor_of(made_ms) // depends on no other clock
                                      : first_fence_of(from);
    if (!exists) {
        record = durable::fresh_record(first);
        return {};
    }
    auto decoded = durable::decode(from.value);
    if (!decoded) {
        return decoded.error();
    }
    record = std::move(*decoded);
    if (from.fell_back) {
        durable::make_up_for_lost(record, from.lost_acknowledged, first, now_ms, *here);
        is_mended = from.lost_acknowledged;
    }
    return {};
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
