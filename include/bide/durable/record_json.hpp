// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_RECORD_JSON_HPP
#define BIDE_DURABLE_RECORD_JSON_HPP

/// \file
/// The stored format of the record: JSON, which every language can read. It is written without
/// white space. Times and numbers are integers below 2^53, and text is UTF-8.
///
/// \code
/// {"v":1,"permits":3,"clock":"boottime","fence":42,
///  "holders":[{"holderId":"billing-7","nonce":"9f..","fence":41,"lane":0,"weight":1,
///              "leaseMs":30000,"leaseExpiresAt":1717000030000,"renewals":4,
///              "host":"h1","boot":"..","pid":812,"start":99123,"space":4026531836,
///              "mark":71,"observed":[{"boot":"..","moves":4,"since":1200500}],
///              "heldUntil":1717000060000,"heldBoot":"..",
///              "note":"nightly run","labels":{"team":"billing"}}],
///  "waiters":[{"holderId":"billing-9","nonce":"a1..","weight":1,"ttlMs":30000,
///              "expiresAt":1717000030000,"refreshes":0,"host":"h2","boot":"..","pid":90,
///              "network":4026531840,"leaseMs":30000,"atLeastMs":5000}],
///  "admin":{"at":1717000000000,"by":"ops","what":"force_release 40"}}
/// \endcode
///
/// `clock` is one of caller, boottime, server, observed. `fence` is the next token, which is larger
/// than the token of every holder. `"resized":true` behind `permits` says that an administrator has
/// set the permits. These fields may be absent: resized, admin, host, boot, pid, start, space,
/// mark, network, observed, note, labels, heldUntil, heldBoot, and leaseMs and atLeastMs of a
/// waiter. The nonce of a resting entry is `rest-` and its token. A waiter with `leaseMs` may be
/// granted its permits by another contender. `network` is the network namespace of a process, which
/// only processes of that namespace can wake.
///
/// Programs of earlier versions keep observations and `heldUntil` unchanged when they renew. So an
/// observation is void if its `moves` differs from the entry's `renewals` or `refreshes`, and
/// `heldBoot` tells which boot's clock `heldUntil` is on.
///
/// Fields with other names are kept unchanged. Every other deviation makes the record corrupt. So
/// does an object with two fields of one name, and nesting deeper than 64 levels. A record that
/// cannot be read is never treated as an empty one. The fields may come in any order. Known fields
/// are written in a fixed order; unknown fields follow, unchanged.

#include <bide/durable/detail/json_fields.hpp>

namespace bide { inline namespace BIDE_ABI { namespace durable {

namespace detail {

template <class F> void fields(is_a<stored_observation> auto& o, F& f) {
    f("boot", o.boot);
    f("moves", o.moves, number(0));
    f("since", o.since, number(0));
}

// What a holder and a waiter have in common.
template <class Entry, class F> void entry_fields(Entry& e, F& f) {
    const bool is_bound = e.from.pid != 0;
    f("holderId", e.holder_id);
    f("nonce", e.nonce);
    f("weight", e.weight, number(1, largest_permits));
    f("host", e.from.host, maybe(text(longest_name)));
    f("boot", e.from.boot, maybe(text(longest_name)));
    f("pid", e.from.pid, maybe(number(1)));
    f("start", e.from.start, maybe(number(0), is_bound));
    f("space", e.from.space, maybe(number(0), is_bound));
    f("mark", e.from.mark, maybe(number(1)));
    f("network", e.from.network, maybe(number(1)));
    f("note", e.about.note, maybe(text(longest_note)));
    f("labels", e.about.labels, maybe({}));
    f("observed", e.observed, maybe({}));
}

template <class F> void fields(is_a<holder> auto& h, F& f) {
    entry_fields(h, f);
    f("fence", h.fence, number(1));
    f("lane", h.lane, number(0, largest_permits));
    f("leaseMs", h.lease_ms, number(1, largest_duration));
    f("leaseExpiresAt", h.expires_at, number(0));
    f("renewals", h.renewals, number(0));
    f("heldUntil", h.held_until, maybe(number(1)));
    f("heldBoot", h.held_boot, maybe(text(longest_name)));
}

template <class F> void fields(is_a<waiter> auto& w, F& f) {
    entry_fields(w, f);
    f("ttlMs", w.ttl_ms, number(1, largest_duration));
    f("expiresAt", w.expires_at, number(0));
    f("refreshes", w.refreshes, number(0));
    f("leaseMs", w.lease_ms, maybe(number(1, largest_duration)));
    f("atLeastMs", w.at_least_ms, maybe(number(1, largest_duration)));
}

template <class F> void fields(is_a<admin_note> auto& note, F& f) {
    f("at", note.at, number(0));
    f("by", note.by, maybe(text(), true));
    f("what", note.what, maybe(text(), true));
}

template <class F> void fields(is_a<record> auto& r, F& f) {
    std::int64_t version = record_format;
    f("v", version, number(record_format, record_format));
    f("permits", r.permits, number(1, largest_permits));
    f("resized", r.resized, maybe({}));
    f("clock", r.clock);
    f("fence", r.fence, number(1));
    f("holders", r.holders);
    f("waiters", r.waiters);
    f("admin", r.admin, maybe({}));
}

// Tells whether nonces, tokens and lanes are unique, and every token is below the next one.
inline bool is_consistent(const record& r) {
    std::vector<std::string_view> nonces;
    std::vector<std::int64_t> fences{r.fence};
    std::vector<std::int64_t> lanes;
    for (const holder& h : r.holders) {
        nonces.push_back(h.nonce);
        fences.push_back(h.fence);
        lanes.push_back(h.lane);
    }
    for (const waiter& w : r.waiters) {
        nonces.push_back(w.nonce);
    }
    return all_differ(nonces) && all_differ(fences) && all_differ(lanes) &&
           fences.back() == r.fence;
}

} // namespace detail

/// Writes a record as JSON. Text that is not valid UTF-8 is replaced.
/// Requires: the keys of labels are valid UTF-8, and `extra` is as decode() has read it.
/// Throws: std::bad_alloc.
inline std::string encode(const record& r) {
    return detail::write_text(r, 128 + 384 * (r.holders.size() + r.waiters.size()));
}

/// Reads a record from JSON.
/// Returns: the record, or durable_errc::corrupt_record or unsupported_record_version.
/// Throws: std::bad_alloc.
inline result<record, std::error_code> decode(std::string_view text) {
    record r;
    const std::error_code corrupt = make_error_code(durable_errc::corrupt_record);
    if (const std::error_code error = detail::read_text(text, r, corrupt)) {
        return unexpected{error};
    }
    if (!detail::is_consistent(r)) {
        return unexpected{corrupt};
    }
    return r;
}

}}} // namespace bide::BIDE_ABI::durable

#endif
