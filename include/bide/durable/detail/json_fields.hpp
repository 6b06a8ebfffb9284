// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_JSON_FIELDS_HPP
#define BIDE_DURABLE_DETAIL_JSON_FIELDS_HPP

// Reads and writes objects as JSON. A function fields(object, f) lists the fields of an object: it calls
// f(name, value, how) for each of them. The type of the value decides what is stored:
//
//   std::int64_t       a number           std::vector<label>   an object of texts
//   bool               true or false      std::vector<T>       an array of objects
//   std::string        a text             std::optional<T>     an object; absent without a value
//   lock_clock         its name             std::string_view     anything, as JSON; only read
//
// If an object has a member `extra`, the reader keeps in it, as a JSON object, the fields that
// fields() does not list. No general JSON library is used, because it would make a tree of the
// text: with sixteen waiters, a change of a record took 570 microseconds that way. This code takes
// a thirtieth.

#include <bide/core/config.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/record_types.hpp>
#include <bide/durable/slot.hpp>
#include <bide/sched/detail/quoted.hpp>

#include <algorithm>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
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

// In the order of lock_clock.
inline constexpr std::string_view clock_names[] = {"caller", "boottime", "server", "observed"};

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

    void read(std::int64_t& value, const stored_as& how) noexcept {
        space();
        const auto [end, error] = std::from_chars(left_.data(), left_.data() + left_.size(), value);
        const std::string_view all(left_.data(), static_cast<std::size_t>(end - left_.data()));
        const std::string_view digits = all.substr(all.starts_with('-') ? 1 : 0);
        expect(error == std::errc() && value >= how.least && value <= how.most &&
               (digits.size() == 1 || digits[0] != '0'));
        left_.remove_prefix(all.size());
    }
    void read(std::string_view& value, const stored_as&) { // of any kind, as JSON
        space();
        const char* const begin = left_.data();
        skip();
        value = {begin, static_cast<std::size_t>(left_.data() - begin)};
    }
    void read(bool& value, const stored_as&) noexcept {
        space();
        value = take_if("true");
        expect(value || take_if("false"));
    }
    void read(std::string& value, const stored_as& how) {
        string(value);
        expect(value.size() <= how.longest && (how.may_be_empty || !value.empty()));
    }
    void read(lock_clock& value, const stored_as&) {
        std::string text;
        string(text);
        const auto* const known = std::find(std::begin(clock_names), std::end(clock_names), text);
        expect(known != std::end(clock_names));
        value = static_cast<lock_clock>(good_ ? known - std::begin(clock_names) : 0);
    }
    void read(std::vector<label>& values, const stored_as&);
    template <class T> void read(std::vector<T>& values, const stored_as&) {
        parts("[", "]", [&] { object(values.emplace_back()); });
    }
    template <class T> void read(std::optional<T>& value, const stored_as&) {
        object(value.emplace());
    }

    void skip(); // a value of any kind
    void number() noexcept;
    void string(std::string& to);
    void escape(std::string& to);
    std::uint32_t hexadecimal() noexcept;

    std::string_view left_;
    int depth_ = 0;
    bool good_ = true;
};

// Reads those fields of one object that fields() lists. This version writes the fields in the order
// of the list. A call of fields() goes through the list once. It reads a field of the list if that
// field is the next one in the text. If another field comes next, its name is read, and fields() is
// called again.
class json_reader::field_reader {
public:
    explicit field_reader(json_reader& from) noexcept : from_(from) {}

    template <class T> void operator()(std::string_view name, T& value, const stored_as& how = {}) {
        const std::uint32_t mine = std::exchange(next_, next_ << 1);
        required_ |= how.is_required ? mine : 0;
        if (has_name_ ? name_ == name : is_next(name)) {
            has_name_ = false;
            from_.expect((seen_ & mine) == 0);
            seen_ |= mine;
            from_.read(value, how);
        }
    }

    // Reads the object. Returns the fields that fields() does not list, as a JSON object; or an
    // empty text if there are none.
    template <class T> std::string read(T& into) {
        std::string others;
        std::vector<std::string> names; // of the others
        const char* name_begin = first_;
        while (from_.good_) {
            next_ = 1;
            fields(into, *this);
            if (std::exchange(has_name_, false)) {
                from_.skip();
                others.append(names.empty() ? "{" : ",").append(name_begin, from_.left_.data());
                names.push_back(name_);
            }
            from_.space();
            if (from_.take_if("}")) {
                break;
            }
            from_.expect(is_first() || from_.take_if(","));
            from_.space();
            name_begin = from_.left_.data();
            from_.string(name_);
            from_.take(":");
            has_name_ = true;
        }
        from_.expect((required_ & ~seen_) == 0 && all_differ(names));
        others.append(names.empty() ? "" : "}");
        return others;
    }

private:
    bool is_first() const noexcept { return from_.left_.data() == first_; }
    // Reads the name of the next field, if it is this one.
    bool is_next(std::string_view name) noexcept {
        const std::string_view before = from_.left_;
        const bool is_it = (is_first() || from_.take_if(",")) && from_.take_if("\"") &&
                           from_.take_if(name) && from_.take_if("\":");
        from_.left_ = is_it ? from_.left_ : before;
        return is_it;
    }

    json_reader& from_;
    const char* const first_ = from_.left_.data(); // where the first field begins
    std::uint32_t next_ = 1;                       // a bit for the field that is listed next
    std::uint32_t required_ = 0;
    std::uint32_t seen_ = 0;
    std::string name_;
    bool has_name_ = false; // name_ is that of the next field
};

template <class T> void json_reader::object(T& into) {
    take("{");
    expect(++depth_ <= deepest_nesting);
    space();
    std::string others = field_reader(*this).read(into);
    --depth_;
    if constexpr (requires { into.extra; }) {
        into.extra = std::move(others);
    }
}

inline void json_reader::read(std::vector<label>& values, const stored_as&) {
    parts("{", "}", [&] {
        label& made = values.emplace_back();
        read(made.key, {.longest = longest_label});
        take(":");
        read(made.value, {.longest = longest_label, .may_be_empty = true});
    });
    const auto by_key = [](const label& a, const label& b) { return a.key < b.key; };
    std::sort(values.begin(), values.end(), by_key);
    const auto is_same = [&](const label& a, const label& b) { return !by_key(a, b); };
    expect(values.size() <= most_labels &&
           std::adjacent_find(values.begin(), values.end(), is_same) == values.end());
}

inline void json_reader::skip() {
    space();
    if (left_.starts_with('{')) {
        std::vector<std::string> names;
        parts("{", "}", [&] {
            string(names.emplace_back());
            take(":");
            skip();
        });
        expect(all_differ(names));
    } else if (left_.starts_with('[')) {
        parts("[", "]", [this] { skip(); });
    } else if (left_.starts_with('"')) {
        std::string dropped;
        string(dropped);
    } else if (!take_if("true") && !take_if("false") && !take_if("null")) {
        number();
    }
}

inline void json_reader::number() noexcept {
    const auto digits = [this] {
        const std::size_t size = std::min(left_.find_first_not_of("0123456789"), left_.size());
        expect(size != 0);
        left_.remove_prefix(size);
    };
    take_if("-");
    if (!take_if("0")) {
        digits();
    }
    if (take_if(".")) {
        digits();
    }
    if (take_if("e") || take_if("E")) {
        static_cast<void>(take_if("+") || take_if("-"));
        digits();
    }
}

inline void json_reader::string(std::string& to) {
    take("\"");
    to.clear();
    while (good_ && !take_if("\"")) {
        const std::size_t size = plain_size(left_);
        to.append(left_.substr(0, size));
        left_.remove_prefix(size);
        if (take_if("\\")) {
            escape(to);
        } else if (!left_.starts_with('"')) {
            const std::size_t length = bide::detail::utf8_length(left_);
            expect(length != 0 && static_cast<unsigned char>(left_[0]) >= ' ');
            to.append(left_.substr(0, length));
            left_.remove_prefix(length);
        }
    }
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
    const std::size_t known = left_.empty() ? letters.npos : letters.find(left_[0]);
    if (known != letters.npos) {
        to += "\"\\/\b\f\n\r\t"[known];
        left_.remove_prefix(1);
        return;
    }
    expect(take_if("u"));
    std::uint32_t code = hexadecimal();
    expect(code < 0xdc00 || code > 0xdfff);
    if (code >= 0xd800 && code < 0xdc00) { // a pair of surrogates
        expect(take_if("\\u"));
        const std::uint32_t low = hexadecimal();
        expect(low >= 0xdc00 && low <= 0xdfff);
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    // As UTF-8: the first byte tells how many follow, and each of these has six bits.
    constexpr std::uint32_t firsts[] = {0, 0xc0, 0xe0, 0xf0};
    const unsigned more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    to += static_cast<char>(firsts[more] | code >> 6 * more);
    for (unsigned left = more; left-- != 0;) {
        to += static_cast<char>(0x80 | (code >> 6 * left & 0x3f));
    }
}

// ---- writing

// Writes fields to a text, without white space. Text that is not valid UTF-8 is replaced.
class json_writer {
public:
    explicit json_writer(std::string& to) noexcept : to_(to) {}

    template <class T> void object(const T& from) {
        to_ += '{';
        fields(from, *this);
        if constexpr (requires { from.extra; }) {
            if (from.extra.size() > 2) { // without its brackets
                separate();
                to_.append(from.extra, 1, from.extra.size() - 2);
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
    void write(lock_clock value) { write(clock_names[static_cast<std::size_t>(value)]); }
    void write(std::string_view text);
    void write(const std::string& text) { write(std::string_view(text)); }
    void write(const std::vector<label>& values) {
        to_ += '{';
        for (const label& one : values) {
            write(std::string_view(one.key));
            to_ += ':';
            write(std::string_view(one.value));
        }
        to_ += '}';
    }
    template <class T> void write(const std::vector<T>& values) {
        to_ += '[';
        for (const T& one : values) {
            separate();
            object(one);
        }
        to_ += ']';
    }
    template <class T> void write(const std::optional<T>& value) { object(*value); }
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

// ---- texts with a version

struct json_version {
    std::string_view v;
};
template <class F> void fields(json_version& text, F& f) { f("v", text.v); }

// Reads a text of this version. Returns `invalid` if it has no version, or invalid fields.
template <class T>
std::error_code read_text(std::string_view text, T& into, std::error_code invalid) {
    json_reader in(text);
    in.object(into);
    if (in.has_ended()) {
        return {};
    }
    json_version found;
    json_reader again(text);
    again.object(found);
    const bool is_integer = found.v.find_first_not_of("-0123456789") == found.v.npos;
    return again.has_ended() && is_integer && found.v != std::to_string(record_format)
               ? make_error_code(durable_errc::unsupported_record_version)
               : invalid;
}

template <class T> std::string write_text(const T& from, std::size_t size = 256) {
    std::string text;
    text.reserve(size);
    json_writer(text).object(from);
    return text;
}

}}}} // namespace bide::BIDE_ABI::durable::detail

#endif
