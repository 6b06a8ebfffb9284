// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_IMPL_RECORD_JSON_HPP
#define BIDE_DURABLE_IMPL_RECORD_JSON_HPP

// Records as JSON: the text becomes a tree of nlohmann's, and the fields are taken out of it. What
// is left of an object are its unknown fields.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/plain_record.hpp>
#include <bide/durable/detail/record_fields.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/record_json.hpp>
#include <bide/durable/record_types.hpp>
#include <bide/durable/slot.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace durable {
namespace detail {

using json = nlohmann::json;

// ---- the tree

// Returns the number of names in all objects of a tree.
inline std::size_t names_in(const json& tree) {
    std::size_t names = tree.is_object() ? tree.size() : 0;
    if (tree.is_structured()) {
        for (const json& one : tree) {
            names += names_in(one);
        }
    }
    return names;
}

// The limit of nesting: functions call themselves for each level.
inline constexpr int deepest_nesting = 64;

// Parses the text. The result is discarded if the text is not JSON, if it is nested too deeply, or
// if an object has two fields of one name: a reader that takes the first one would see another
// record than a reader that takes the last one, as the parser does.
inline json parse(std::string_view text) {
    const json refused(json::value_t::discarded);
    std::size_t names = 0; // one for each colon that is in no string
    int depth = 0;
    bool is_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '\0') { // the parser would take it for the end
            return refused;
        }
        if (is_string) {
            i += c == '\\' ? 1 : 0;
            is_string = c != '"';
            continue;
        }
        is_string = c == '"';
        names += c == ':' ? 1 : 0;
        depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
        if (depth > deepest_nesting) {
            return refused;
        }
    }
    json tree = json::parse(text.begin(), text.end(), nullptr, false);
    return names_in(tree) == names ? tree : refused;
}

// Writes a tree without white space. Text that is not valid UTF-8 is replaced.
inline std::string dump(const json& tree) {
    return tree.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Returns the text with U+FFFD for what is not valid UTF-8.
inline std::string as_utf8(std::string_view text) {
    return json::parse(dump(text)).get_ref<const std::string&>();
}

// ---- reading

template <class T> bool read(json& object, T& into);

// Takes fields out of an object, and tells whether all were valid.
class field_reader {
public:
    explicit field_reader(json& object) : object_(object), good_(object.is_object()) {}

    bool good() const noexcept { return good_; }

    void number(const char* name, std::int64_t& value, std::int64_t least, std::int64_t most) {
        read_number(take(name, true), value, least, most);
    }
    void maybe_number(const char* name, std::int64_t& value, std::int64_t least, std::int64_t most,
                      bool) {
        read_number(take(name, false), value, least, most);
    }
    void text(const char* name, std::string& value) {
        read_text(take(name, true), value, longest_name);
        good_ = good_ && !value.empty();
    }
    void maybe_text(const char* name, std::string& value, std::size_t longest) {
        read_text(take(name, false), value, longest);
    }
    void any_text(const char* name, std::string& value) {
        read_text(take(name, false), value, std::string::npos);
    }
    void flag(const char* name, bool& value) {
        const json taken = take(name, false);
        expect(taken.is_boolean() || taken.is_discarded());
        value = taken.is_boolean() && taken.get<bool>();
    }
    void clock(const char* name, lock_clock& value) {
        const json taken = take(name, true);
        const auto* const known =
            std::find_if(std::begin(clock_names), std::end(clock_names),
                         [&](const clock_name& one) { return taken == one.name; });
        expect(known != std::end(clock_names));
        value = good_ ? known->clock : value;
    }
    void labels(const char* name, std::vector<label>& values) {
        json taken = take(name, false);
        expect((taken.is_object() && taken.size() <= most_labels) || taken.is_discarded());
        if (good_ && taken.is_object()) {
            for (auto& [key, value] : taken.get_ref<json::object_t&>()) {
                label& one = values.emplace_back();
                one.key = key;
                read_text(std::move(value), one.value, longest_label);
                expect(!key.empty() && key.size() <= longest_label);
            }
        }
    }
    template <class T> void list(const char* name, std::vector<T>& values) {
        read_list(take(name, true), values);
    }
    template <class T> void maybe_list(const char* name, std::vector<T>& values) {
        read_list(take(name, false), values);
    }
    template <class T> void object(const char* name, std::optional<T>& value) {
        json taken = take(name, false);
        expect(taken.is_discarded() || read(taken, value.emplace()));
    }

private:
    void expect(bool is_so) noexcept { good_ = good_ && is_so; }

    // Returns the field, and removes it from the object; discarded if there is none.
    json take(const char* name, bool is_required) {
        const auto found = object_.find(name);
        if (found == object_.end()) {
            expect(!is_required);
            return json::value_t::discarded;
        }
        json value = std::move(*found);
        object_.erase(found);
        return value;
    }

    void read_number(const json& taken, std::int64_t& value, std::int64_t least,
                     std::int64_t most) {
        if (taken.is_discarded()) {
            return;
        }
        // Above the signed range, a number would become negative.
        const bool fits = taken.is_number_integer() &&
                          (!taken.is_number_unsigned() ||
                           taken.get<std::uint64_t>() <= std::uint64_t{largest_number});
        value = fits ? taken.get<std::int64_t>() : 0;
        expect(fits && value >= least && value <= most);
    }
    void read_text(json&& taken, std::string& value, std::size_t longest) {
        if (taken.is_discarded()) {
            return;
        }
        expect(taken.is_string());
        if (good_) {
            value = std::move(taken.get_ref<std::string&>());
            expect(value.size() <= longest);
        }
    }
    template <class T> void read_list(json&& taken, std::vector<T>& values) {
        expect(taken.is_array() || taken.is_discarded());
        if (taken.is_array()) {
            values.reserve(taken.size());
            for (json& one : taken) {
                expect(good_ && read(one, values.emplace_back()));
            }
        }
    }

    json& object_;
    bool good_;
};

// Reads an object. What is left are its unknown fields.
template <class T> bool read(json& object, T& into) {
    field_reader reader(object);
    fields(into, reader);
    if constexpr (requires { into.extra; }) {
        into.extra = object.empty() ? std::string() : dump(object);
    }
    return reader.good();
}

// Reads a text of this version. Returns `invalid` if it has no version, or invalid fields.
template <class T> std::error_code read_text(std::string_view text, T& into, durable_errc invalid) {
    json object = parse(text);
    const auto version = object.find("v");
    if (version == object.end() || !version->is_number_integer()) {
        return make_error_code(invalid);
    }
    if (*version != record_format) {
        return make_error_code(durable_errc::unsupported_record_version);
    }
    object.erase(version);
    return read(object, into) ? std::error_code() : make_error_code(invalid);
}

// ---- writing

template <class T> json written(const T& from);

// Puts fields into an object.
class field_writer {
public:
    explicit field_writer(json& object) : to_(object) {}

    void number(const char* name, std::int64_t value, std::int64_t, std::int64_t) {
        to_[name] = value;
    }
    void maybe_number(const char* name, std::int64_t value, std::int64_t, std::int64_t, bool has) {
        if (has) {
            to_[name] = value;
        }
    }
    void text(const char* name, const std::string& value) { to_[name] = value; }
    void maybe_text(const char* name, const std::string& value, std::size_t) {
        if (!value.empty()) {
            to_[name] = value;
        }
    }
    void any_text(const char* name, const std::string& value) { to_[name] = value; }
    void flag(const char* name, bool value) { to_[name] = value; }
    void clock(const char* name, lock_clock value) {
        for (const clock_name& one : clock_names) {
            if (one.clock == value) {
                to_[name] = one.name;
            }
        }
    }
    void labels(const char* name, const std::vector<label>& values) {
        for (const label& one : values) {
            to_[name][as_utf8(one.key)] = one.value; // two equal names would make it unreadable
        }
    }
    template <class T> void list(const char* name, const std::vector<T>& values) {
        json& all = to_[name] = json::array();
        for (const T& one : values) {
            all.push_back(written(one));
        }
    }
    template <class T> void maybe_list(const char* name, const std::vector<T>& values) {
        if (!values.empty()) {
            list(name, values);
        }
    }
    template <class T> void object(const char* name, const std::optional<T>& value) {
        if (value) {
            to_[name] = written(*value);
        }
    }

private:
    json& to_;
};

// Returns an object with its known and unknown fields. A known field replaces an unknown one.
template <class T> json written(const T& from) {
    json object = json::object();
    if constexpr (requires { from.extra; }) {
        json extra = from.extra.empty() ? json() : json::parse(from.extra, nullptr, false);
        if (extra.is_object()) {
            object = std::move(extra);
        }
    }
    field_writer writer(object);
    fields(from, writer);
    return object;
}

// Returns the text of an object of this version.
template <class T> std::string write_text(const T& from) {
    json object = written(from);
    object["v"] = record_format;
    return dump(object);
}

// ---- the whole

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
    const auto all_differ = [](auto& of) {
        std::sort(of.begin(), of.end());
        return std::adjacent_find(of.begin(), of.end()) == of.end();
    };
    return all_differ(nonces) && all_differ(fences) && all_differ(lanes) &&
           fences.back() == r.fence;
}

} // namespace detail

BIDE_DURABLE_INLINE std::string encode(const record& r) {
    auto plain = detail::write_plain(r);
    return plain ? std::move(*plain) : detail::write_text(r);
}

BIDE_DURABLE_INLINE result<record, std::error_code> decode(std::string_view text) {
    std::optional<record> r = detail::read_plain(text);
    if (!r) {
        r.emplace();
        if (const auto error = detail::read_text(text, *r, durable_errc::corrupt_record)) {
            return unexpected{error};
        }
    }
    if (!detail::is_consistent(*r)) {
        return unexpected{make_error_code(durable_errc::corrupt_record)};
    }
    return std::move(*r);
}

}}} // namespace bide::BIDE_ABI::durable

#endif
