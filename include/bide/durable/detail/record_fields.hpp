#ifndef BIDE_DURABLE_DETAIL_RECORD_FIELDS_HPP
#define BIDE_DURABLE_DETAIL_RECORD_FIELDS_HPP

// The fields of a record, for its reader and its writer.

#include <bide/core/config.hpp>
#include <bide/durable/record_types.hpp>
#include <bide/durable/slot.hpp>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <limits>
#include <string_view>

namespace bide::inline BIDE_ABI {
namespace durable {

inline constexpr std::int64_t record_format = 1;

namespace detail {

using json = nlohmann::json;

struct clock_name {
    lock_clock clock;
    std::string_view name;
};
inline constexpr clock_name clock_names[] = {{lock_clock::caller, "caller"},
                                             {lock_clock::boottime, "boottime"},
                                             {lock_clock::server, "server"},
                                             {lock_clock::observed, "observed"}};

inline constexpr std::int64_t any_length = std::numeric_limits<std::int64_t>::max();

// ---- the fields of each object, by the order of the alphabet, as they are written
//
// `f` is shown one after another until it answers true:
//   f.number(name, value, least, most)            has to be there
//   f.text(name, value)                           has to be there, and not empty
//   f.maybe_number(name, value, least, most, has) may be absent, and is where it is not `has`
//   f.maybe_text(name, value, longest, has)       the same
//   f.observations(name, value)                   a list; absent where it is empty
// and what only a record has: f.note, f.clock, f.version, f.holders, f.waiters.

template <class Observation, class F> bool each_observation_field(Observation& o, F& f) {
    return f.text("boot", o.boot) || f.number("moves", o.moves, 0, largest_number) ||
           f.number("since", o.since, 0, largest_number);
}

template <class Holder, class F> bool each_holder_field(Holder& h, F& f) {
    auto& from = h.from;
    const bool bound = from.pid != 0;
    return f.maybe_text("boot", from.boot, longest_name, !from.boot.empty()) ||
           f.number("fence", h.fence, 1, largest_number) || f.text("holderId", h.holder_id) ||
           f.maybe_text("host", from.host, longest_name, !from.host.empty()) ||
           f.number("lane", h.lane, 0, largest_permits) ||
           f.number("leaseExpiresAt", h.expires_at, 0, largest_number) ||
           f.number("leaseMs", h.lease_ms, 1, largest_duration) ||
           f.maybe_number("mark", from.mark, 1, largest_number, from.mark != 0) ||
           f.text("nonce", h.nonce) || f.observations("observed", h.observed) ||
           f.maybe_number("pid", from.pid, 1, largest_number, bound) ||
           f.number("renewals", h.renewals, 0, largest_number) ||
           f.maybe_number("space", from.space, 0, largest_number, bound || from.space != 0) ||
           f.maybe_number("start", from.start, 0, largest_number, bound || from.start != 0) ||
           f.number("weight", h.weight, 1, largest_permits);
}

template <class Waiter, class F> bool each_waiter_field(Waiter& w, F& f) {
    auto& from = w.from;
    const bool bound = from.pid != 0;
    return f.maybe_text("boot", from.boot, longest_name, !from.boot.empty()) ||
           f.number("expiresAt", w.expires_at, 0, largest_number) ||
           f.text("holderId", w.holder_id) ||
           f.maybe_text("host", from.host, longest_name, !from.host.empty()) ||
           f.maybe_number("mark", from.mark, 1, largest_number, from.mark != 0) ||
           f.text("nonce", w.nonce) || f.observations("observed", w.observed) ||
           f.maybe_number("pid", from.pid, 1, largest_number, bound) ||
           f.number("refreshes", w.refreshes, 0, largest_number) ||
           f.maybe_number("space", from.space, 0, largest_number, bound || from.space != 0) ||
           f.maybe_number("start", from.start, 0, largest_number, bound || from.start != 0) ||
           f.number("ttlMs", w.ttl_ms, 1, largest_duration) ||
           f.number("weight", w.weight, 1, largest_permits);
}

template <class Note, class F> bool each_note_field(Note& note, F& f) {
    return f.number("at", note.at, 0, largest_number) ||
           f.maybe_text("by", note.by, any_length, true) ||
           f.maybe_text("what", note.what, any_length, true);
}

template <class Record, class F> bool each_record_field(Record& r, F& f) {
    return f.note("admin", r.admin) || f.clock("clock", r.clock) ||
           f.number("fence", r.fence, 1, largest_number) || f.holders("holders", r.holders) ||
           f.number("permits", r.permits, 1, largest_permits) || f.version("v") ||
           f.waiters("waiters", r.waiters);
}

} // namespace detail
} // namespace durable
} // namespace bide::inline BIDE_ABI

#endif
