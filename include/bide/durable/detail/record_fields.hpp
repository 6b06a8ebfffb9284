// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_RECORD_FIELDS_HPP
#define BIDE_DURABLE_DETAIL_RECORD_FIELDS_HPP

// The fields of a record, for its reader and its writer. `f` gets each field of an object:
//   f.number(name, value, least, most)             required
//   f.maybe_number(name, value, least, most, has)  optional; absent if not `has`
//   f.text(name, value)                            required, and not empty
//   f.maybe_text(name, value, longest)             optional; absent if it is empty
//   f.any_text(name, value)                        optional, of any length; written if it is empty
//   f.clock(name, value), f.list(name, values)     required
//   f.maybe_list(name, values), f.object(name, value), f.labels(name, values)  optional

#include <bide/core/config.hpp>
#include <bide/durable/record_types.hpp>
#include <bide/durable/slot.hpp>

#include <concepts>
#include <string_view>
#include <type_traits>

namespace bide { inline namespace BIDE_ABI { namespace durable { namespace detail {

struct clock_name {
    lock_clock clock;
    std::string_view name;
};
inline constexpr clock_name clock_names[] = {{lock_clock::caller, "caller"},
                                             {lock_clock::boottime, "boottime"},
                                             {lock_clock::server, "server"},
                                             {lock_clock::observed, "observed"}};

// T is U or const U.
template <class T, class U>
concept is_a = std::same_as<std::remove_const_t<T>, U>;

template <class F> void fields(is_a<stored_observation> auto& o, F& f) {
    f.text("boot", o.boot);
    f.number("moves", o.moves, 0, largest_number);
    f.number("since", o.since, 0, largest_number);
}

// What a holder and a waiter have in common.
template <class Entry, class F> void entry_fields(Entry& e, F& f) {
    const bool bound = e.from.pid != 0;
    f.text("holderId", e.holder_id);
    f.text("nonce", e.nonce);
    f.number("weight", e.weight, 1, largest_permits);
    f.maybe_text("host", e.from.host, longest_name);
    f.maybe_text("boot", e.from.boot, longest_name);
    f.maybe_number("pid", e.from.pid, 1, largest_number, bound);
    f.maybe_number("start", e.from.start, 0, largest_number, bound || e.from.start != 0);
    f.maybe_number("space", e.from.space, 0, largest_number, bound || e.from.space != 0);
    f.maybe_number("mark", e.from.mark, 1, largest_number, e.from.mark != 0);
    f.maybe_number("network", e.from.network, 1, largest_number, e.from.network != 0);
    f.maybe_text("note", e.about.note, longest_note);
    f.labels("labels", e.about.labels);
    f.maybe_list("observed", e.observed);
}

template <class F> void fields(is_a<holder> auto& h, F& f) {
    entry_fields(h, f);
    f.number("fence", h.fence, 1, largest_number);
    f.number("lane", h.lane, 0, largest_permits);
    f.number("leaseMs", h.lease_ms, 1, largest_duration);
    f.number("leaseExpiresAt", h.expires_at, 0, largest_number);
    f.number("renewals", h.renewals, 0, largest_number);
    f.maybe_number("heldUntil", h.held_until, 1, largest_number, h.held_until != 0);
    f.maybe_text("heldBoot", h.held_boot, longest_name);
}

template <class F> void fields(is_a<waiter> auto& w, F& f) {
    entry_fields(w, f);
    f.number("ttlMs", w.ttl_ms, 1, largest_duration);
    f.number("expiresAt", w.expires_at, 0, largest_number);
    f.number("refreshes", w.refreshes, 0, largest_number);
    f.maybe_number("leaseMs", w.lease_ms, 1, largest_duration, w.lease_ms != 0);
    f.maybe_number("atLeastMs", w.at_least_ms, 1, largest_duration, w.at_least_ms != 0);
}

template <class F> void fields(is_a<admin_note> auto& note, F& f) {
    f.number("at", note.at, 0, largest_number);
    f.any_text("by", note.by);
    f.any_text("what", note.what);
}

template <class F> void fields(is_a<record> auto& r, F& f) {
    f.number("permits", r.permits, 1, largest_permits);
    f.clock("clock", r.clock);
    f.number("fence", r.fence, 1, largest_number);
    f.list("holders", r.holders);
    f.list("waiters", r.waiters);
    f.object("admin", r.admin);
}

}}}} // namespace bide::BIDE_ABI::durable::detail

#endif
