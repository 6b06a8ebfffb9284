#ifndef BIDE_DURABLE_RECORD_JSON_HPP
#define BIDE_DURABLE_RECORD_JSON_HPP

// The record as it is stored: JSON, for every language to read. Written without white space; times
// and numbers are integers below 2^53.
//
//   {"v":1,"permits":3,"clock":"boottime","fence":42,
//    "holders":[{"holderId":"billing-7","nonce":"9f..","fence":41,"lane":0,"weight":1,
//                "leaseMs":30000,"leaseExpiresAt":1717000030000,"renewals":4,
//                "host":"h1","boot":"..","pid":812,"start":99123,"space":4026531836}],
//    "waiters":[{"holderId":"billing-9","nonce":"a1..","weight":1,"ttlMs":30000,
//                "expiresAt":1717000030000,"refreshes":0,"host":"h2","boot":".."}],
//    "admin":{"at":1717000000000,"by":"ops","what":"force_release 40"}}
//
// `clock` is one of caller, boottime, server, observed. `fence` is the next token, larger than every
// holder's. host, boot, pid, start and space may be absent, and so may admin. Fields of other names
// are kept as they are. Anything else that is not as shown is corrupt, and so is what is nested
// deeper than anybody means it: a record that cannot be read is never taken for an empty one.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/slot.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

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

// What the parser would not refuse: a zero byte, which it takes for the end; and more levels than
// anybody means, as JSON is written by a function that calls itself for each one.
inline constexpr int deepest_nesting = 64;
inline bool is_plausible(std::string_view text) noexcept {
    int depth = 0;
    bool in_quotes = false;
    for (std::size_t i = 0; i < text.size() && depth <= deepest_nesting; ++i) {
        const char c = text[i];
        if (c == 0) {
            return false;
        }
        if (in_quotes) {
            i += c == '\\' ? 1 : 0;
            in_quotes = c != '"';
        } else {
            in_quotes = c == '"';
            depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
        }
    }
    return depth <= deepest_nesting;
}

// Takes known fields out of an object, and says whether all of them were as they should be. What is
// left is unknown.
class field_reader {
public:
    explicit field_reader(json& object) : object_(object), good_(object.is_object()) {}

    std::int64_t number(const char* name, std::int64_t least, std::int64_t most) {
        return read_number(name, least, most, true, 0);
    }
    std::int64_t number_or(const char* name, std::int64_t least, std::int64_t most,
                           std::int64_t otherwise) {
        return read_number(name, least, most, false, otherwise);
    }

    std::string text(const char* name, bool required, std::size_t most = longest_name) {
        json value;
        if (!take(name, required, value)) {
            return {};
        }
        if (!value.is_string() || value.get_ref<const std::string&>().size() > most ||
            (required && value.get_ref<const std::string&>().empty())) {
            good_ = false;
            return {};
        }
        return std::move(value.get_ref<std::string&>());
    }

    bool take(const char* name, bool required, json& into) {
        if (!good_) {
            return false;
        }
        const auto found = object_.find(name);
        if (found == object_.end()) {
            good_ = !required;
            return false;
        }
        into = std::move(*found);
        object_.erase(found);
        return true;
    }

    void fail() noexcept { good_ = false; }
    bool good() const noexcept { return good_; }

    // What nobody asked for.
    std::string rest() const { return good_ && !object_.empty() ? object_.dump() : std::string(); }

private:
    std::int64_t read_number(const char* name, std::int64_t least, std::int64_t most, bool required,
                             std::int64_t otherwise) {
        json value;
        if (!take(name, required, value)) {
            return otherwise;
        }
        // Unsigned ones beyond the signed would come out negative.
        const bool fits = value.is_number_integer() &&
                          (!value.is_number_unsigned() ||
                           value.get<std::uint64_t>() <= std::uint64_t{largest_number});
        const std::int64_t number = fits ? value.get<std::int64_t>() : 0;
        if (!fits || number < least || number > most) {
            good_ = false;
        }
        return number;
    }

    json& object_;
    bool good_;
};

inline origin read_origin(field_reader& in) {
    origin from;
    from.host = in.text("host", false);
    from.boot = in.text("boot", false);
    from.pid = in.number_or("pid", 1, largest_number, 0);
    from.start = in.number_or("start", 0, largest_number, 0);
    from.space = in.number_or("space", 0, largest_number, 0);
    return from;
}

inline bool read_holder(json& object, holder& h) {
    field_reader in(object);
    h.holder_id = in.text("holderId", true);
    h.nonce = in.text("nonce", true);
    h.fence = in.number("fence", 1, largest_number);
    h.lane = in.number("lane", 0, largest_permits);
    h.weight = in.number("weight", 1, largest_permits);
    h.lease_ms = in.number("leaseMs", 1, largest_duration);
    h.expires_at = in.number("leaseExpiresAt", 0, largest_number);
    h.renewals = in.number("renewals", 0, largest_number);
    h.from = read_origin(in);
    h.extra = in.rest();
    return in.good();
}

inline bool read_waiter(json& object, waiter& w) {
    field_reader in(object);
    w.holder_id = in.text("holderId", true);
    w.nonce = in.text("nonce", true);
    w.weight = in.number("weight", 1, largest_permits);
    w.ttl_ms = in.number("ttlMs", 1, largest_duration);
    w.expires_at = in.number("expiresAt", 0, largest_number);
    w.refreshes = in.number("refreshes", 0, largest_number);
    w.from = read_origin(in);
    w.extra = in.rest();
    return in.good();
}

template <class T, class Read>
bool read_list(field_reader& in, const char* name, std::vector<T>& into, Read read) {
    json list;
    if (!in.take(name, true, list) || !list.is_array()) {
        return false;
    }
    into.resize(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
        if (!read(list[i], into[i])) {
            return false;
        }
    }
    return true;
}

// No two of anything that there can be one of only.
inline bool is_consistent(const record& r) {
    std::vector<std::string_view> nonces;
    std::vector<std::int64_t> fences;
    std::vector<std::int64_t> lanes;
    for (const holder& h : r.holders) {
        if (h.fence >= r.fence) {
            return false;
        }
        nonces.push_back(h.nonce);
        fences.push_back(h.fence);
        lanes.push_back(h.lane);
    }
    for (const waiter& w : r.waiters) {
        nonces.push_back(w.nonce);
    }
    const auto all_differ = [](auto& of) {
        std::sort(of.begin(), of.end());
        return std::adjacent_find(of.begin(), of.end()) == of.end();
    };
    return all_differ(nonces) && all_differ(fences) && all_differ(lanes);
}

inline void write_origin(json& into, const origin& from) {
    const auto put = [&](const char* name, const auto& value, bool is_there) {
        if (is_there) {
            into[name] = value;
        }
    };
    put("host", from.host, !from.host.empty());
    put("boot", from.boot, !from.boot.empty());
    put("pid", from.pid, from.pid != 0);
    put("start", from.start, from.pid != 0 || from.start != 0);
    put("space", from.space, from.pid != 0 || from.space != 0);
}

inline json with_extra(const std::string& extra) {
    if (extra.empty()) {
        return json::object();
    }
    json object = json::parse(extra, nullptr, false);
    return object.is_object() ? object : json::object();
}

} // namespace detail

// Throws: std::bad_alloc.
// Requires: every text of the record is UTF-8 (what is not is replaced).
inline std::string encode(const record& r) {
    using detail::json;
    json out = detail::with_extra(r.extra);
    out["v"] = record_format;
    out["permits"] = r.permits;
    for (const auto& [clock, name] : detail::clock_names) {
        if (clock == r.clock) {
            out["clock"] = name;
        }
    }
    out["fence"] = r.fence;
    json& holders = out["holders"] = json::array();
    for (const holder& h : r.holders) {
        json one = detail::with_extra(h.extra);
        one["holderId"] = h.holder_id;
        one["nonce"] = h.nonce;
        one["fence"] = h.fence;
        one["lane"] = h.lane;
        one["weight"] = h.weight;
        one["leaseMs"] = h.lease_ms;
        one["leaseExpiresAt"] = h.expires_at;
        one["renewals"] = h.renewals;
        detail::write_origin(one, h.from);
        holders.push_back(std::move(one));
    }
    json& waiters = out["waiters"] = json::array();
    for (const waiter& w : r.waiters) {
        json one = detail::with_extra(w.extra);
        one["holderId"] = w.holder_id;
        one["nonce"] = w.nonce;
        one["weight"] = w.weight;
        one["ttlMs"] = w.ttl_ms;
        one["expiresAt"] = w.expires_at;
        one["refreshes"] = w.refreshes;
        detail::write_origin(one, w.from);
        waiters.push_back(std::move(one));
    }
    if (r.admin) {
        json note = detail::with_extra(r.admin->extra);
        note["at"] = r.admin->at;
        note["by"] = r.admin->by;
        note["what"] = r.admin->what;
        out["admin"] = std::move(note);
    }
    return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Errors: durable_errc::corrupt_record, unsupported_record_version.
// Throws: std::bad_alloc.
inline result<record, std::error_code> decode(std::string_view text) {
    using detail::json;
    const auto corrupt = unexpected{make_error_code(durable_errc::corrupt_record)};
    if (!detail::is_plausible(text)) {
        return corrupt;
    }
    json object = json::parse(text.begin(), text.end(), nullptr, false);
    detail::field_reader in(object);
    json version;
    if (!in.take("v", true, version) || !version.is_number_integer()) {
        return corrupt;
    }
    if (version != record_format) {
        return unexpected{make_error_code(durable_errc::unsupported_record_version)};
    }

    record r;
    r.permits = in.number("permits", 1, largest_permits);
    r.fence = in.number("fence", 1, largest_number);
    const std::string clock = in.text("clock", true);
    const auto* const named =
        std::find_if(std::begin(detail::clock_names), std::end(detail::clock_names),
                     [&](const detail::clock_name& c) { return c.name == clock; });
    if (named == std::end(detail::clock_names) ||
        !detail::read_list(in, "holders", r.holders, &detail::read_holder) ||
        !detail::read_list(in, "waiters", r.waiters, &detail::read_waiter)) {
        return corrupt;
    }
    r.clock = named->clock;
    json note;
    if (in.take("admin", false, note)) {
        detail::field_reader of(note);
        admin_note& admin = r.admin.emplace();
        admin.at = of.number("at", 0, largest_number);
        admin.by = of.text("by", false, text.size());
        admin.what = of.text("what", false, text.size());
        admin.extra = of.rest();
        if (!of.good()) {
            return corrupt;
        }
    }
    r.extra = in.rest();
    if (!in.good() || !detail::is_consistent(r)) {
        return corrupt;
    }
    return r;
}

} // namespace durable
} // namespace bide::inline BIDE_ABI

#endif
