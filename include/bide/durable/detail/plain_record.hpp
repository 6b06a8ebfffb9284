// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_PLAIN_RECORD_HPP
#define BIDE_DURABLE_DETAIL_PLAIN_RECORD_HPP

// Records as plain JSON: the fields in the order of detail/record_fields.hpp, no unknown ones, no white
// space, and strings of printable ASCII without escapes. Nearly every record is plain. Any other text
// is left to the JSON library, which makes a tree of it: with 16 waiters that takes 150 us, and a plain
// record takes a tenth.

#include <bide/core/config.hpp>
#include <bide/durable/detail/record_fields.hpp>
#include <bide/durable/record_types.hpp>
#include <bide/durable/slot.hpp>

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

namespace bide { inline namespace BIDE_ABI { namespace durable { namespace detail {

inline bool is_plain(char c) noexcept { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; }

// Writes fields. If one is not plain, good() becomes false, and the text is of no use.
class plain_writer {
public:
    explicit plain_writer(std::string& to) : to_(to) {}

    bool good() const noexcept { return good_; }

    template <class T> void value(const T& of) {
        if constexpr (requires { of.extra; }) {
            good_ = good_ && of.extra.empty();
        }
        to_ += '{';
        if constexpr (is_a<T, record>) {
            number("v", record_format, 0, 0);
        }
        fields(of, *this);
        to_ += '}';
    }

    void number(const char* name, std::int64_t n, std::int64_t, std::int64_t) {
        begin(name);
        char digits[24];
        const auto [end, error] = std::to_chars(std::begin(digits), std::end(digits), n);
        to_.append(digits, end);
    }
    void maybe_number(const char* name, std::int64_t n, std::int64_t, std::int64_t, bool has) {
        if (has) {
            number(name, n, 0, 0);
        }
    }
    void text(const char* name, std::string_view t) {
        begin(name);
        string(t);
    }
    void maybe_text(const char* name, const std::string& t, std::size_t) {
        if (!t.empty()) {
            text(name, t);
        }
    }
    void any_text(const char* name, const std::string& t) { text(name, t); }
    void clock(const char* name, lock_clock value) {
        for (const clock_name& one : clock_names) {
            if (one.clock == value) {
                text(name, one.name);
            }
        }
    }
    // Written by the library: two keys may be the same text once they are UTF-8.
    void labels(const char*, const std::vector<label>& values) { good_ = good_ && values.empty(); }
    template <class T> void list(const char* name, const std::vector<T>& all) {
        begin(name);
        to_ += '[';
        for (const T& one : all) {
            if (to_.back() != '[') {
                to_ += ',';
            }
            value(one);
        }
        to_ += ']';
    }
    template <class T> void maybe_list(const char* name, const std::vector<T>& all) {
        if (!all.empty()) {
            list(name, all);
        }
    }
    template <class T> void object(const char* name, const std::optional<T>& of) {
        if (of) {
            begin(name);
            value(*of);
        }
    }

private:
    void begin(const char* name) {
        if (to_.back() != '{') {
            to_ += ',';
        }
        to_ += '"';
        to_ += name;
        to_ += "\":";
    }
    void string(std::string_view t) {
        good_ = good_ && std::all_of(t.begin(), t.end(), &is_plain);
        to_ += '"';
        to_ += t;
        to_ += '"';
    }

    std::string& to_;
    bool good_ = true;
};

// Reads fields. If the text is not plain, or a field is not valid, good() becomes false, and what was
// read is of no use.
class plain_reader {
public:
    explicit plain_reader(std::string_view from) noexcept : left_(from) {}

    // True if all of the text was read.
    bool good() const noexcept { return good_ && left_.empty(); }

    template <class T> void value(T& of) {
        expect("{");
        is_first_ = true;
        if constexpr (is_a<T, record>) {
            std::int64_t version = 0;
            number("v", version, record_format, record_format);
        }
        fields(of, *this);
        expect("}");
        is_first_ = false;
    }

    void number(const char* name, std::int64_t& n, std::int64_t least, std::int64_t most) {
        good_ = good_ && begin(name);
        const auto [end, error] = std::from_chars(left_.data(), left_.data() + left_.size(), n);
        const auto size = static_cast<std::size_t>(end - left_.data());
        good_ = good_ && error == std::errc() && n >= least && n <= most && left_[0] != '-' &&
                (left_[0] != '0' || size == 1);
        left_.remove_prefix(good_ ? size : 0);
    }
    void maybe_number(const char* name, std::int64_t& n, std::int64_t least, std::int64_t most,
                      bool) {
        if (is_next(name)) {
            number(name, n, least, most);
        }
    }
    void text(const char* name, std::string& t) {
        string(name, t, longest_name);
        good_ = good_ && !t.empty();
    }
    void maybe_text(const char* name, std::string& t, std::size_t longest) {
        if (is_next(name)) {
            string(name, t, longest);
        }
    }
    void any_text(const char* name, std::string& t) { string(name, t, std::string::npos); }
    void clock(const char* name, lock_clock& value) {
        std::string text;
        string(name, text, longest_name);
        const auto* const known =
            std::find_if(std::begin(clock_names), std::end(clock_names),
                         [&](const clock_name& one) { return one.name == text; });
        good_ = good_ && known != std::end(clock_names);
        value = good_ ? known->clock : value;
    }
    void labels(const char*, const std::vector<label>&) noexcept {} // they are not plain
    template <class T> void list(const char* name, std::vector<T>& all) {
        good_ = good_ && begin(name);
        expect("[");
        while (good_ && !left_.starts_with(']')) {
            if (!all.empty()) {
                expect(",");
            }
            value(all.emplace_back());
        }
        expect("]");
    }
    template <class T> void maybe_list(const char* name, std::vector<T>& all) {
        if (is_next(name)) {
            list(name, all);
            good_ = good_ && !all.empty();
        }
    }
    template <class T> void object(const char* name, std::optional<T>& of) {
        if (is_next(name)) {
            begin(name);
            value(of.emplace());
        }
    }

private:
    void expect(std::string_view what) noexcept {
        good_ = good_ && left_.starts_with(what);
        left_.remove_prefix(good_ ? what.size() : 0);
    }
    // Returns how long the beginning of a field of that name is; 0 if another one comes next.
    std::size_t size_of(std::string_view name) const noexcept {
        std::string_view at = left_;
        const std::size_t before = is_first_ ? 0 : 1;
        const std::size_t size = before + 1 + name.size() + 2;
        const bool is_it = at.size() >= size && (is_first_ || at[0] == ',') && at[before] == '"' &&
                           at.substr(before + 1, name.size()) == name &&
                           at.substr(size - 2, 2) == "\":";
        return is_it ? size : 0;
    }
    bool is_next(const char* name) const noexcept { return good_ && size_of(name) != 0; }
    bool begin(const char* name) noexcept {
        const std::size_t size = size_of(name);
        left_.remove_prefix(size);
        is_first_ = false;
        return size != 0;
    }
    void string(const char* name, std::string& t, std::size_t longest) {
        good_ = good_ && begin(name);
        expect("\"");
        const auto end = std::find_if_not(left_.begin(), left_.end(), &is_plain);
        const auto size = static_cast<std::size_t>(end - left_.begin());
        if (good_ && size <= longest) {
            t.assign(left_.substr(0, size));
        }
        good_ = good_ && size <= longest;
        left_.remove_prefix(good_ ? size : 0);
        expect("\"");
    }

    std::string_view left_;
    bool is_first_ = true; // no field of this object was read
    bool good_ = true;
};

// Returns the text of a plain record; nothing if it is not plain.
inline std::optional<std::string> write_plain(const record& r) {
    std::string text;
    text.reserve(128 + 384 * (r.holders.size() + r.waiters.size()));
    plain_writer writer(text);
    writer.value(r);
    return writer.good() ? std::optional(std::move(text)) : std::nullopt;
}
// Reads a plain record. Returns nothing if the text is not one.
inline std::optional<record> read_plain(std::string_view text) {
    std::optional<record> r(std::in_place);
    plain_reader reader(text);
    reader.value(*r);
    return reader.good() ? std::move(r) : std::nullopt;
}

}}}} // namespace bide::BIDE_ABI::durable::detail

#endif
