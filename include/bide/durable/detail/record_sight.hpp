#ifndef BIDE_DURABLE_DETAIL_RECORD_SIGHT_HPP
#define BIDE_DURABLE_DETAIL_RECORD_SIGHT_HPP

// One look at a record: what was read from the slot, the time that goes with it, and the judge of
// its leases.

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

// A time that is the caller's, for lock_clock::caller; else there is none.
using given_time = std::optional<std::chrono::milliseconds>;

// The first token of a record that is made where there is none.
inline std::int64_t first_fence_of(const slot_snapshot& absent) noexcept {
    return absent.counter     ? *absent.counter
           : absent.server_ms ? durable::floor_of(*absent.server_ms)
                              : durable::floor_of_now();
}

// What a slot's marks and a watch tell of processes.
template <class Slot> class slot_knowledge final : public durable::process_knowledge {
public:
    // The watch is nullptr where it is not the reader's turn.
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

struct record_sight {
    explicit record_sight(const durable::process_knowledge& known) noexcept : processes(&known) {}

    durable::record record{};
    bool exists = false;
    bool is_mended = false;     // it is not what was read, and has to be stored
    bool is_given_time = false; // now_ms is the caller's
    std::int64_t now_ms = 0;    // on the record's clock
    std::int64_t looked_ms = 0; // of boottime_ms(), before it was read
    std::int64_t sent_ms = 0;   // of boottime_ms(): a lease that is stored begins then
    const durable::origin* here = nullptr;
    const durable::observations* seen = nullptr;
    const durable::process_knowledge* processes;

    // What is in the snapshot. Here is set before.
    std::error_code read(const slot_snapshot& from, std::int64_t looked, given_time now,
                         const durable::terms& terms,
                         const std::function<std::chrono::milliseconds()>& callers_clock);

    // After read(): takes note of it there, for the judge.
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
record_sight::read(const slot_snapshot& from, std::int64_t looked, given_time now,
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
        // What was read stands still until the swap: the later, the longer the own lease.
        now_ms = sent_ms = durable::boottime_ms();
        break;
    case lock_clock::server:
        if (!from.server_ms) { // nor may another time take its place
            return make_error_code(durable_errc::storage_error);
        }
        now_ms = *from.server_ms;
        break;
    case lock_clock::observed:
        now_ms = made_ms; // for people
        break;
    }
    durable::terms first = terms;
    first.first_fence = is_given_time ? durable::floor_of(made_ms) // and on nothing else
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
