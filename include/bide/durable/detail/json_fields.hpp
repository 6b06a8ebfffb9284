// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_JSON_FIELDS_HPP
#define BIDE_DURABLE_DETAIL_JSON_FIELDS_HPP

// Reads and writes objects as JSON. A function fields(object, f) lists the fields of an object: it calls
// f(name, value, how) for each of them. The type of the value decides what is stored:
//
//   std::int64_t       a number           std::vector<label>   an object of texts
//   bool               true or false      std::vector<T>       an array of objects
//   std::string        a text             std::optional<T>     an object; absent without a value
//   lock_clock         its name
//
// If an object has a member `extra`, the reader keeps in it, as a JSON object, the fields that
// fields() does not list. No general JSON library is used, because it would make a tree of the
// text: with sixteen waiters, a change of a record took 570 microseconds that way. This code takes
// a thirtieth.

#include <bide/core/config.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/record_types.hpp>
#include <bide/durable/slot_types.hpp>
#include <bide/sched/detail/quoted.hpp>

#include <algorithm>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace durable { namespace detail {

// T is U or const U.
template <class T, class U>
concept is_a = std::same_as<std::remove_const_t<T>, U>;

// How a field is stored.
struct stored_as {
    bool is_required = true; // an object without the field is not valid
    bool is_written = true;
    std::int64_t least = 0; // of a number
    std::int64_t most = largest_number;
    std::size_t longest = longest_name; // of a text, in bytes
    bool may_be_empty = false;          // a text
};
constexpr stored_as number(std::int64_t least, std::int64_t most = largest_number) noexcept {
    return {.least = least, .most = most};
}
constexpr stored_as maybe_number(std::int64_t least, std::int64_t most, bool is_written) noexcept {
    return {.is_required = false, .is_written = is_written, .least = least, .most = most};
}
inline stored_as maybe_text(const std::string& text, std::size_t longest = longest_name) noexcept {
    return {.is_required = false,
            .is_written = !text.empty(),
            .longest = longest,
            .may_be_empty = true};
}
constexpr stored_as any_text() noexcept {
    return {.is_required = false, .longest = std::string::npos, .may_be_empty = true};
}
constexpr stored_as maybe(bool is_written) noexcept {
    return {.is_required = false, .is_written = is_written};
}

struct clock_name {
    lock_clock clock;
    std::string_view name;
};
inline constexpr clock_name clock_names[] = {{lock_clock::caller, "caller"},
                                             {lock_clock::boottime, "boottime"},
                                             {lock_clock::server, "server"},
                                             {lock_clock::observed, "observed"}};

// Returns how many characters at the front of the text are ASCII that stands for itself in JSON.
inline std::size_t plain_size(std::string_view text) noexcept {
    std::size_t size = 0;
    while (size != text.size() && text[size] >= ' ' && text[size] <= '~' && text[size] != '"' &&
           text[size] != '\\') {
        ++size;
    }
    return size;
}

template <class T> bool all_differ(std::vector<T>& values) {
    std::sort(values.begin(), values.end());
    return std::adjacent_find(values.begin(), values.end()) == values.end();
}

// ---- reading

// The limit of nesting: functions call themselves for each level.
inline constexpr int deepest_nesting = 64;

// A field of any name.
struct json_member {
    std::string name;
    std::string_view name_as_json;
    std::string_view value; // as JSON
};

// Reads a text from its front to its end. After the first error, what was read is of no use.
class json_reader {
public:
    explicit json_reader(std::string_view text) noexcept : left_(text) {}

    // Returns true if all of the text was read without an error.
    bool has_ended() noexcept {
        space();
        return good_ && left_.empty();
    }

    // Reads an object with fields().
    template <class T> void object(T& into);
    // Reads an object. No two of its fields have one name.
    std::vector<json_member> members();

private:
    class field_reader;

    void expect(bool is_so) noexcept { good_ = good_ && is_so; }
    void space() noexcept {
        if (!left_.empty() && left_[0] <= ' ') {
            left_.remove_prefix(std::min(left_.find_first_not_of(" \t\n\r"), left_.size()));
        }
    }
    bool take_if(std::string_view text) noexcept {
        const bool is_it = good_ && left_.starts_with(text);
        left_.remove_prefix(is_it ? text.size() : 0);
        return is_it;
    }
    void take(std::string_view text) noexcept {
        space();
        expect(take_if(text));
    }
    // Reads the name of a field, if it is this one. `has_comma`: a comma comes before it.
    bool take_name(std::string_view name, bool has_comma) noexcept {
        const std::string_view before = left_;
        const bool is_it = take_if(has_comma ? ",\"" : "\"") && take_if(name) && take_if("\":");
        left_ = is_it ? left_ : before;
        return is_it;
    }
    // Calls part() for each part between the brackets, and reads what follows it.
    template <class Part> void parts(std::string_view open, std::string_view close, Part part) {
        take(open);
        expect(++depth_ <= deepest_nesting);
        space();
        for (bool is_over = take_if(close); good_ && !is_over;) {
            part();
            space();
            is_over = take_if(close);
            expect(is_over || take_if(","));
        }
        --depth_;
    }
    // Returns what read() reads, as JSON.
    template <class Read> std::string_view text_of(Read read) {
        space();
        const char* const begin = left_.data();
        read();
        return {begin, static_cast<std::size_t>(left_.data() - begin)};
    }

    void read(std::int64_t& value, const stored_as& how) noexcept {
        space();
        const auto [end, error] = std::from_chars(left_.data(), left_.data() + left_.size(), value);
        const std::string_view all(left_.data(), static_cast<std::size_t>(end - left_.data()));
        const std::string_view digits = all.substr(all.starts_with('-') ? 1 : 0);
        expect(error == std::errc() && value >= how.least && value <= how.most &&
               (digits.size() == 1 || digits[0] != '0'));
        left_.remove_prefix(all.size());
    }
    void read(bool& value, const stored_as&) {
        const std::string_view word = text_of([this] { skip(); });
        expect(word == "true" || word == "false");
        value = word == "true";
    }
    void read(std::string& value, const stored_as& how) {
        string(value);
        expect(value.size() <= how.longest && (how.may_be_empty || !value.empty()));
    }
    void read(lock_clock& value, const stored_as&) {
        std::string text;
        string(text);
        const auto* const known =
            std::find_if(std::begin(clock_names), std::end(clock_names),
                         [&](const clock_name& one) { return one.name == text; });
        expect(known != std::end(clock_names));
        value = good_ ? known->clock : value;
    }
    void read(std::vector<label>& values, const stored_as&);
    template <class T> void read(std::vector<T>& values, const stored_as&) {
        parts("[", "]", [&] { object(values.emplace_back()); });
    }
    template <class T> void read(std::optional<T>& value, const stored_as&) {
        object(value.emplace());
    }
    template <class T> void read_all(std::string_view text, T& value, const stored_as& how) {
        json_reader in(text);
        in.read(value, how);
        expect(in.has_ended());
    }

    void skip(); // a value of any kind
    void string(std::string& to);
    void escape(std::string& to);
    std::uint32_t hexadecimal() noexcept;
    static bool is_number(std::string_view text) noexcept;

    std::string_view left_;
    int depth_ = 0;
    bool good_ = true;
};

// Reads the fields that fields() lists. If `all` is nullptr, reads them from the text, where they
// stand in the order in which this version writes them. Otherwise takes them from `all`, in any
// order.
class json_reader::field_reader {
public:
    field_reader(json_reader& from, std::vector<json_member>* all) noexcept
        : from_(from), all_(all) {}

    template <class T> void operator()(std::string_view name, T& value, const stored_as& how = {}) {
        if (all_ == nullptr && from_.take_name(name, has_read_)) {
            has_read_ = true;
            return from_.read(value, how);
        }
        if (all_ != nullptr) {
            const auto found = std::find_if(all_->begin(), all_->end(),
                                            [&](const auto& one) { return one.name == name; });
            if (found != all_->end()) {
                from_.read_all(found->value, value, how);
                all_->erase(found);
                return;
            }
        }
        from_.expect(!how.is_required);
    }

private:
    json_reader& from_;
    std::vector<json_member>* const all_;
    bool has_read_ = false;
};

template <class T> void json_reader::object(T& into) {
    const json_reader before = *this;
    field_reader in_order(*this, nullptr);
    take("{");
    fields(into, in_order);
    take("}");
    if (good_) {
        return;
    }
    *this = before; // its fields are in another order, or there are others, or it is not valid
    into = T();
    std::vector<json_member> all = members();
    field_reader by_name(*this, &all);
    fields(into, by_name);
    if constexpr (requires { into.extra; }) {
        for (const json_member& one : all) {
            into.extra.append(into.extra.empty() ? "{" : ",");
            into.extra.append(one.name_as_json).append(":").append(one.value);
        }
        into.extra.append(all.empty() ? "" : "}");
    }
}

inline std::vector<json_member> json_reader::members() {
    std::vector<json_member> all;
    parts("{", "}", [&] {
        json_member& one = all.emplace_back();
        one.name_as_json = text_of([&] { string(one.name); });
        take(":");
        one.value = text_of([this] { skip(); });
    });
    std::vector<std::string_view> names;
    for (const json_member& one : all) {
        names.push_back(one.name);
    }
    expect(all_differ(names));
    return all;
}

inline void json_reader::read(std::vector<label>& values, const stored_as&) {
    for (const json_member& one : members()) {
        label& made = values.emplace_back(label{one.name, {}});
        read_all(one.value, made.value, {.longest = longest_label, .may_be_empty = true});
        expect(!one.name.empty() && one.name.size() <= longest_label);
    }
    expect(values.size() <= most_labels);
    std::sort(values.begin(), values.end(),
              [](const label& a, const label& b) { return a.key < b.key; });
}

inline void json_reader::skip() {
    space();
    if (left_.starts_with('{')) {
        members();
    } else if (left_.starts_with('[')) {
        parts("[", "]", [this] { skip(); });
    } else if (left_.starts_with('"')) {
        std::string dropped;
        string(dropped);
    } else {
        const std::string_view word =
            left_.substr(0, left_.find_first_not_of("+-.0123456789Eaeflnrstu"));
        expect(word == "true" || word == "false" || word == "null" || is_number(word));
        left_.remove_prefix(word.size());
    }
}

inline bool json_reader::is_number(std::string_view text) noexcept {
    const auto take_digits = [&text] {
        const std::size_t size = std::min(text.find_first_not_of("0123456789"), text.size());
        text.remove_prefix(size);
        return size;
    };
    text.remove_prefix(text.starts_with('-') ? 1 : 0);
    const bool has_zero = text.starts_with('0');
    const std::size_t whole = take_digits();
    bool is_good = whole == 1 || (whole != 0 && !has_zero);
    if (text.starts_with('.')) {
        text.remove_prefix(1);
        is_good = is_good && take_digits() != 0;
    }
    if (text.starts_with('e') || text.starts_with('E')) {
        text.remove_prefix(1);
        text.remove_prefix(text.starts_with('+') || text.starts_with('-') ? 1 : 0);
        is_good = is_good && take_digits() != 0;
    }
    return is_good && text.empty();
}

inline void json_reader::string(std::string& to) {
    take("\"");
    to.clear();
    while (good_ && !left_.starts_with('"')) {
        const std::size_t size = plain_size(left_);
        to.append(left_.substr(0, size));
        left_.remove_prefix(size);
        if (left_.starts_with('\\')) {
            escape(to);
        } else if (!left_.starts_with('"')) {
            const std::size_t length = bide::detail::utf8_length(left_);
            expect(length != 0 && static_cast<unsigned char>(left_[0]) >= ' ');
            to.append(left_.substr(0, length));
            left_.remove_prefix(length);
        }
    }
    left_.remove_prefix(good_ ? 1 : 0);
}

inline std::uint32_t json_reader::hexadecimal() noexcept {
    std::uint32_t value = 0;
    const std::string_view digits = left_.substr(0, 4);
    const char* const end = digits.data() + digits.size();
    const auto [read_to, error] = std::from_chars(digits.data(), end, value, 16);
    expect(digits.size() == 4 && error == std::errc() && read_to == end);
    left_.remove_prefix(digits.size());
    return value;
}

inline void json_reader::escape(std::string& to) {
    constexpr std::string_view letters = "\"\\/bfnrt";
    const std::size_t known = left_.size() < 2 ? letters.npos : letters.find(left_[1]);
    const bool is_hexadecimal = left_.starts_with("\\u");
    expect(known != letters.npos || is_hexadecimal);
    left_.remove_prefix(std::min<std::size_t>(2, left_.size()));
    if (!is_hexadecimal) {
        to += known != letters.npos ? "\"\\/\b\f\n\r\t"[known] : ' ';
        return;
    }
    std::uint32_t code = hexadecimal();
    expect(code < 0xdc00 || code > 0xdfff);
    if (code >= 0xd800 && code < 0xdc00) { // a pair of surrogates
        expect(left_.starts_with("\\u"));
        left_.remove_prefix(good_ ? 2 : 0);
        const std::uint32_t low = hexadecimal();
        expect(low >= 0xdc00 && low <= 0xdfff);
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    const auto add = [&](std::uint32_t bits, std::uint32_t shift, std::uint32_t mask) {
        to += static_cast<char>(bits | (code >> shift & mask));
    };
    if (code < 0x80) {
        return add(0, 0, 0x7f);
    }
    if (code >= 0x10000) {
        add(0xf0, 18, 0x07);
        add(0x80, 12, 0x3f);
    } else if (code >= 0x800) {
        add(0xe0, 12, 0x0f);
    } else {
        add(0xc0, 6, 0x1f);
    }
    if (code >= 0x800) {
        add(0x80, 6, 0x3f);
    }
    add(0x80, 0, 0x3f);
}

// ---- writing

// Returns the text with U+FFFD for each byte that is not UTF-8.
inline std::string as_utf8(std::string_view text) {
    std::string made;
    while (!text.empty()) {
        const std::size_t length = bide::detail::utf8_length(text);
        made.append(length != 0 ? text.substr(0, length) : "\xef\xbf\xbd");
        text.remove_prefix(std::max<std::size_t>(length, 1));
    }
    return made;
}

// Writes fields to a text, without white space. Text that is not valid UTF-8 is replaced.
class json_writer {
public:
    explicit json_writer(std::string& to) noexcept : to_(to) {}

    template <class T> void object(const T& from) {
        to_ += '{';
        fields(from, *this);
        if constexpr (requires { from.extra; }) {
            if (!from.extra.empty()) {
                others(from);
            }
        }
        to_ += '}';
    }
    template <class T>
    void operator()(std::string_view name, const T& value, const stored_as& how = {}) {
        if (how.is_written) {
            write(name);
            to_ += ':';
            write(value);
        }
    }

private:
    // Tells whether an object lists a field of that name.
    struct known_name {
        std::string_view name;
        bool is_known = false;
        template <class T> void operator()(std::string_view one, const T&, const stored_as& = {}) {
            is_known = is_known || one == name;
        }
    };

    void separate() {
        if (to_.back() != '{' && to_.back() != '[' && to_.back() != ':') {
            to_ += ',';
        }
    }
    void write(std::int64_t value) {
        char digits[24];
        to_.append(digits, std::to_chars(std::begin(digits), std::end(digits), value).ptr);
    }
    void write(bool value) { to_ += value ? "true" : "false"; }
    void write(lock_clock value) {
        for (const clock_name& one : clock_names) {
            if (one.clock == value) {
                write(one.name);
            }
        }
    }
    void write(std::string_view text);
    void write(const std::string& text) { write(std::string_view(text)); }
    void write(const std::vector<label>& values);
    template <class T> void write(const std::vector<T>& values) {
        to_ += '[';
        for (const T& one : values) {
            separate();
            object(one);
        }
        to_ += ']';
    }
    template <class T> void write(const std::optional<T>& value) { object(*value); }
    // Writes the unknown fields. A known field replaces an unknown one.
    template <class T> void others(const T& from) {
        json_reader in(from.extra);
        const std::vector<json_member> all = in.members();
        for (std::size_t i = 0; in.has_ended() && i != all.size(); ++i) {
            known_name asked{all[i].name};
            fields(from, asked);
            if (!asked.is_known) {
                separate();
                to_.append(all[i].name_as_json).append(":").append(all[i].value);
            }
        }
    }

    std::string& to_;
};

inline void json_writer::write(std::string_view text) {
    separate();
    to_ += '"';
    while (!text.empty()) {
        const std::size_t size = plain_size(text);
        to_.append(text.substr(0, size));
        text.remove_prefix(size);
        if (text.empty()) {
            break;
        }
        const std::size_t length = bide::detail::utf8_length(text);
        constexpr std::string_view escaped = "\"\\\b\f\n\r\t";
        const std::size_t known = escaped.find(text[0]);
        const auto first = static_cast<unsigned char>(text[0]);
        if (known != escaped.npos) {
            to_ += '\\';
            to_ += "\"\\bfnrt"[known];
        } else if (first < ' ') {
            to_.append("\\u00")
                .append(1, "01"[first >> 4])
                .append(1, "0123456789abcdef"[first & 15]);
        } else {
            to_.append(length != 0 ? text.substr(0, length) : "\xef\xbf\xbd");
        }
        text.remove_prefix(std::max<std::size_t>(length, 1));
    }
    to_ += '"';
}

// Writes labels in the order of their keys. Keys that are not valid UTF-8 are replaced by valid
// ones, which may make two keys equal. Of equal keys only the last one is written: a text with two
// equal keys cannot be read.
inline void json_writer::write(const std::vector<label>& values) {
    std::map<std::string, std::string_view> all;
    for (const label& one : values) {
        all[as_utf8(one.key)] = one.value;
    }
    to_ += '{';
    for (const auto& [key, value] : all) {
        write(std::string_view(key));
        to_ += ':';
        write(value);
    }
    to_ += '}';
}

// ---- texts with a version

// Reads a text of this version. Returns `invalid` if it has no version, or invalid fields.
template <class T>
std::error_code read_text(std::string_view text, T& into, std::error_code invalid) {
    json_reader in(text);
    in.object(into);
    if (in.has_ended()) {
        return {};
    }
    json_reader again(text);
    for (const json_member& one : again.members()) {
        const auto is_integer = [&](auto number) {
            const char* const end = one.value.data() + one.value.size();
            const auto [read_to, error] = std::from_chars(one.value.data(), end, number);
            return error == std::errc() && read_to == end;
        };
        if (one.name == "v" && one.value != std::to_string(record_format) &&
            (is_integer(std::int64_t{}) || is_integer(std::uint64_t{})) && again.has_ended()) {
            return make_error_code(durable_errc::unsupported_record_version);
        }
    }
    return invalid;
}

template <class T> std::string write_text(const T& from, std::size_t size = 256) {
    std::string text;
    text.reserve(size);
    json_writer(text).object(from);
    return text;
}

}}}} // namespace bide::BIDE_ABI::durable::detail

#endif
