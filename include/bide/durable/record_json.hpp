#ifndef BIDE_DURABLE_RECORD_JSON_HPP
#define BIDE_DURABLE_RECORD_JSON_HPP

// The record as it is stored: JSON, for every language to read. Written without white space; times
// and numbers are integers below 2^53.
//
//   {"v":1,"permits":3,"clock":"boottime","fence":42,
//    "holders":[{"holderId":"billing-7","nonce":"9f..","fence":41,"lane":0,"weight":1,
//                "leaseMs":30000,"leaseExpiresAt":1717000030000,"renewals":4,
//                "host":"h1","boot":"..","pid":812,"start":99123,"space":4026531836,
//                "mark":71,"observed":[{"boot":"..","moves":4,"since":1200500}]}],
//    "waiters":[{"holderId":"billing-9","nonce":"a1..","weight":1,"ttlMs":30000,
//                "expiresAt":1717000030000,"refreshes":0,"host":"h2","boot":".."}],
//    "admin":{"at":1717000000000,"by":"ops","what":"force_release 40"}}
//
// `clock` is one of caller, boottime, server, observed. `fence` is the next token, larger than every
// holder's. host, boot, pid, start, space, mark and observed may be absent, and so may admin. A
// waiter may have observed, too. An observation whose `moves` is not the entry's `renewals` or
// `refreshes` is void: programs of earlier versions keep the field when they renew. Fields of other
// names are kept as they are. Anything else that is not as shown is corrupt, and so is an object
// with two fields of one name, and what is nested deeper than anybody means it: a record that cannot
// be read is never taken for an empty one. The fields may come in any order; they are written by
// that of the alphabet.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/record_fields.hpp>
#include <bide/durable/detail/record_reader.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/slot.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace bide::inline BIDE_ABI {
namespace durable {
namespace detail {

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

// ---- writing

inline void write_number(std::string& out, std::int64_t number) {
    char digits[24];
    const auto [end, error] = std::to_chars(std::begin(digits), std::end(digits), number);
    out.append(digits, end);
}

inline void write_text(std::string& out, std::string_view text) {
    const bool is_plain = std::all_of(text.begin(), text.end(), [](char c) {
        return c >= ' ' && c <= '~' && c != '"' && c != '\\';
    });
    if (is_plain) {
        out.push_back('"');
        out.append(text);
        out.push_back('"');
    } else {
        out += json(text).dump(-1, ' ', false, json::error_handler_t::replace);
    }
}

// Writes an object of the fields that it is shown, and of what is kept of unknown ones; where both
// have a name, of the former.
class object_writer {
public:
    object_writer(std::string& out, const std::string& extra) : out_(out) {
        if (!extra.empty()) {
            extra_ = json::parse(extra, nullptr, false);
        }
        if (!extra_.is_object()) {
            extra_ = nullptr;
        }
        next_extra_ = extra_.cbegin();
        out_.push_back('{');
    }
    object_writer(const object_writer&) = delete;
    object_writer& operator=(const object_writer&) = delete;

    // The last to be called.
    void end() {
        while (next_extra_ != extra_.cend()) {
            write_extra();
        }
        out_.push_back('}');
    }

    bool number(std::string_view name, std::int64_t value, std::int64_t, std::int64_t) {
        begin(name);
        write_number(out_, value);
        return false;
    }
    bool maybe_number(std::string_view name, std::int64_t value, std::int64_t least,
                      std::int64_t most, bool has) {
        return has && number(name, value, least, most);
    }
    bool text(std::string_view name, std::string_view value) {
        begin(name);
        write_text(out_, value);
        return false;
    }
    bool maybe_text(std::string_view name, std::string_view value, std::int64_t, bool has) {
        return has && text(name, value);
    }
    bool note(std::string_view name, const std::optional<admin_note>& value) {
        if (value) {
            begin(name);
            object_writer inner(out_, value->extra);
            each_note_field(*value, inner);
            inner.end();
        }
        return false;
    }
    bool clock(std::string_view name, lock_clock value) {
        for (const clock_name& one : clock_names) {
            if (one.clock == value) {
                text(name, one.name);
            }
        }
        return false;
    }
    bool observations(std::string_view name, const std::vector<stored_observation>& all) {
        return !all.empty() && list(name, all, [](const stored_observation& o, object_writer& to) {
            each_observation_field(o, to);
        });
    }
    bool version(std::string_view name) { return number(name, record_format, 0, 0); }
    bool holders(std::string_view name, const std::vector<holder>& all) {
        return list(name, all,
                    [](const holder& h, object_writer& to) { each_holder_field(h, to); });
    }
    bool waiters(std::string_view name, const std::vector<waiter>& all) {
        return list(name, all,
                    [](const waiter& w, object_writer& to) { each_waiter_field(w, to); });
    }

private:
    // Names need no escapes, and come by the order of the alphabet, as the unknown ones do.
    void begin(std::string_view name) {
        while (next_extra_ != extra_.cend() && next_extra_.key() <= name) {
            if (next_extra_.key() == name) {
                ++next_extra_;
            } else {
                write_extra();
            }
        }
        separate();
        out_.push_back('"');
        out_.append(name);
        out_.append("\":");
    }
    void write_extra() {
        separate();
        write_text(out_, next_extra_.key());
        out_.push_back(':');
        out_ += next_extra_->dump(-1, ' ', false, json::error_handler_t::replace);
        ++next_extra_;
    }
    void separate() {
        if (out_.back() != '{') {
            out_.push_back(',');
        }
    }

    template <class T, class Write>
    bool list(std::string_view name, const std::vector<T>& all, Write write) {
        begin(name);
        out_.push_back('[');
        for (const T& one : all) {
            if (out_.back() != '[') {
                out_.push_back(',');
            }
            object_writer inner(out_, one.extra);
            write(one, inner);
            inner.end();
        }
        out_.push_back(']');
        return false;
    }

    std::string& out_;
    json extra_;
    json::const_iterator next_extra_{};
};

} // namespace detail

// Throws: std::bad_alloc.
// Requires: every text of the record is UTF-8 (what is not is replaced).
inline std::string encode(const record& r) {
    std::string out;
    out.reserve(128 + 320 * (r.holders.size() + r.waiters.size()));
    detail::object_writer writer(out, r.extra);
    detail::each_record_field(r, writer);
    writer.end();
    return out;
}

// Errors: durable_errc::corrupt_record, unsupported_record_version.
// Throws: std::bad_alloc.
inline result<record, std::error_code> decode(std::string_view text) {
    const auto corrupt = unexpected{make_error_code(durable_errc::corrupt_record)};
    record r;
    detail::record_reader reader(r);
    // The parser would take a zero byte for the end.
    if (text.find('\0') != text.npos ||
        !detail::json::sax_parse(text.begin(), text.end(), &reader) || !reader.has_version()) {
        return corrupt;
    }
    if (!reader.is_ours()) {
        return unexpected{make_error_code(durable_errc::unsupported_record_version)};
    }
    if (!reader.good() || !detail::is_consistent(r)) {
        return corrupt;
    }
    return r;
}

} // namespace durable
} // namespace bide::inline BIDE_ABI

#endif
