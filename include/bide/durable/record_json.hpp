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
/// The fields may come in any order. Fields with other names are kept unchanged, and written behind
/// the known ones. Every other deviation makes the record corrupt. So does an object with two
/// fields of one name, and nesting deeper than 64 levels.

#include <bide/durable/errors.hpp>
#include <bide/durable/record_types.hpp>

#include <charconv>

namespace bide { inline namespace BIDE_ABI { namespace durable {

namespace detail {

// Reads and writes objects as JSON. A function fields(object, f) lists the fields of an object: it
// calls f(name, value, how) for each of them. The type of the value decides how it is stored. A
// std::vector<label> is an object of texts. A std::optional is absent if it has no value. A
// std::string_view is any value, as JSON, and can only be read.
//
// If an object has a member `extra`, the reader keeps in it, as a JSON object, the fields that
// fields() does not list. With a general JSON library, which makes a tree of the text, a change of
// a record with sixteen waiters took ten times as long.

// T is U or const U.
template <class T, class U>
concept is_a = std::same_as<std::remove_const_t<T>, U>;

// How a field is stored.
struct stored_as {
    std::int64_t least = 1; // the least number, or the least size of a text in bytes
    std::int64_t most = longest_name;
    bool is_required = true; // an object without the field is not valid
    bool is_written = true;  // false: it is written unless it is zero or empty
};
constexpr stored_as number(std::int64_t least, std::int64_t most = largest_number) noexcept {
    return {least, most};
}
constexpr stored_as text(std::int64_t longest = largest_number) noexcept { return {0, longest}; }
// A field that may be absent.
constexpr stored_as maybe(stored_as how, bool is_written = false) noexcept {
    how.is_required = false;
    how.is_written = is_written;
    return how;
}

// In the order of lock_clock.
inline constexpr std::string_view clock_names[] = {"caller", "boottime", "server", "observed"};

// Returns how many characters at the front of the text are ASCII that JSON does not escape.
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

// Functions call themselves for each level.
inline constexpr int deepest_nesting = 64;

// Any object, of which only the version is kept.
struct json_object {
    std::string_view v{};
};
template <class F> void fields(json_object& any, F& f) { f("v", any.v, maybe({})); }

// After the first error, the values read are not valid.
class json_reader {
public:
    explicit json_reader(std::string_view text) noexcept : left_(text) {}

    // Returns true if all of the text was read without an error.
    bool has_ended() noexcept {
        space();
        return good_ && left_.empty();
    }

    // Reads an object. Calls fields() until the object ends. One call reads the fields as far as
    // the text has them in the order of the list: all of them, if this version wrote the text.
    template <class T> void object(T& into) {
        field_reader one(*this);
        std::string others; // the fields that are not listed
        std::vector<std::string> names;
        do {
            one.next_bit = 1;
            const std::uint32_t seen = one.seen;
            fields(into, one);
            if (!one.is_over && one.seen == seen) { // it is not listed
                skip();
                others.append(names.empty() ? "{" : ",").append(one.begin, left_.data());
                names.push_back(one.name);
                one.next();
            }
        } while (!one.is_over);
        expect((one.required & ~one.seen) == 0 && all_differ(names));
        if constexpr (requires { into.extra; }) {
            others.append(names.empty() ? "" : "}");
            into.extra = std::move(others);
        }
    }

private:
    // An element of an array, or a member of an object. The constructor finds the first one.
    struct part {
        part(json_reader& of, char bracket) : from(of), close(bracket) {
            from.take(close == '}' ? '{' : '[');
            from.expect(++from.depth_ <= deepest_nesting);
            next();
        }
        // Finds the next element, or the next member and its name.
        // Requires: the value of the present element or member was read.
        void next() {
            from.space();
            is_over = !from.good_ || from.take_if(close);
            if (is_over) {
                --from.depth_;
                return;
            }
            from.expect(begin == nullptr || from.take_if(','));
            from.space();
            begin = from.left_.data();
            if (close == '}') {
                from.string(name);
                from.take(':');
            }
        }

        json_reader& from;
        const char close;
        bool is_over = false;        // there is no further one, or there was an error
        const char* begin = nullptr; // where it begins in the text
        std::string name;            // of a member
    };

    // Is called by fields(). Reads the members that are listed.
    struct field_reader : part {
        explicit field_reader(json_reader& of) : part(of, '}') {}

        template <class T>
        void operator()(std::string_view its_name, T& value, const stored_as& how = {}) {
            const std::uint32_t mine = std::exchange(next_bit, next_bit << 1);
            required |= how.is_required ? mine : 0;
            if (!is_over && name == its_name) {
                from.expect((seen & mine) == 0);
                seen |= mine;
                from.read(value, how);
                next();
            }
        }

        std::uint32_t next_bit = 1; // each field that is listed has a bit
        std::uint32_t required = 0;
        std::uint32_t seen = 0;
    };

    void expect(bool is_so) noexcept { good_ = good_ && is_so; }
    void space() noexcept {
        if (!left_.empty() && left_[0] <= ' ') {
            left_.remove_prefix(std::min(left_.find_first_not_of(" \t\n\r"), left_.size()));
        }
    }
    bool take_if(char c) noexcept {
        const bool is_it = good_ && !left_.empty() && left_[0] == c;
        left_.remove_prefix(is_it ? 1 : 0);
        return is_it;
    }
    bool take_if(std::string_view text) noexcept {
        const bool is_it = good_ && left_.starts_with(text);
        left_.remove_prefix(is_it ? text.size() : 0);
        return is_it;
    }
    void take(char c) noexcept {
        space();
        expect(take_if(c));
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
    void read(std::string_view& value, const stored_as&) { value = skip(); }
    void read(bool& value, const stored_as&) noexcept {
        space();
        value = take_if("true");
        expect(value || take_if("false"));
    }
    void read(std::string& value, const stored_as& how) {
        string(value);
        const auto size = static_cast<std::int64_t>(value.size());
        expect(size >= how.least && size <= how.most);
    }
    void read(lock_clock& value, const stored_as&) {
        std::string name;
        string(name);
        const auto* const known = std::find(std::begin(clock_names), std::end(clock_names), name);
        expect(known != std::end(clock_names));
        value = static_cast<lock_clock>(good_ ? known - std::begin(clock_names) : 0);
    }
    void read(std::vector<label>& values, const stored_as&) {
        for (part one(*this, '}'); !one.is_over; one.next()) {
            expect(!one.name.empty() && one.name.size() <= longest_label);
            read(values.emplace_back(label{one.name, {}}).value, text(longest_label));
        }
        std::ranges::sort(values, {}, &label::key);
        expect(values.size() <= most_labels &&
               std::ranges::adjacent_find(values, {}, &label::key) == values.end());
    }
    template <class T> void read(std::vector<T>& values, const stored_as&) {
        for (part one(*this, ']'); !one.is_over; one.next()) {
            object(values.emplace_back());
        }
    }
    template <class T> void read(std::optional<T>& value, const stored_as&) {
        object(value.emplace());
    }

    // Reads a value of any kind. Returns it as JSON.
    std::string_view skip() {
        space();
        const char* const begin = left_.data();
        if (left_.starts_with('{')) {
            json_object any;
            object(any);
        } else if (left_.starts_with('[')) {
            for (part one(*this, ']'); !one.is_over; one.next()) {
                skip();
            }
        } else if (left_.starts_with('"')) {
            std::string dropped;
            string(dropped);
        } else if (!take_if("true") && !take_if("false") && !take_if("null")) {
            number();
        }
        return {begin, static_cast<std::size_t>(left_.data() - begin)};
    }

    void number() noexcept {
        const auto digits = [this] {
            const std::size_t size = std::min(left_.find_first_not_of("0123456789"), left_.size());
            expect(size != 0);
            left_.remove_prefix(size);
        };
        take_if('-');
        if (!take_if('0')) {
            digits();
        }
        if (take_if('.')) {
            digits();
        }
        if (take_if('e') || take_if('E')) {
            static_cast<void>(take_if('+') || take_if('-'));
            digits();
        }
    }

    void string(std::string& to) {
        take('"');
        std::size_t size = plain_size(left_);
        to.assign(left_.data(), size);
        left_.remove_prefix(size);
        while (good_ && !take_if('"')) {
            if (take_if('\\')) {
                escape(to);
                continue;
            }
            size = std::max(plain_size(left_), bide::detail::utf8_length(left_));
            expect(size != 0 && static_cast<unsigned char>(left_[0]) >= ' ');
            to.append(left_.data(), size);
            left_.remove_prefix(size);
        }
    }

    void escape(std::string& to) {
        constexpr std::string_view letters = "\"\\/bfnrt";
        const std::size_t known = left_.empty() ? letters.npos : letters.find(left_[0]);
        if (known != letters.npos) {
            to += "\"\\/\b\f\n\r\t"[known];
            left_.remove_prefix(1);
            return;
        }
        const auto hexadecimal = [this] {
            expect(take_if('u'));
            std::uint32_t value = 0;
            const char* const begin = left_.data();
            const std::size_t most = std::min<std::size_t>(left_.size(), 4);
            expect(std::from_chars(begin, begin + most, value, 16).ptr - begin == 4);
            left_.remove_prefix(most);
            return value;
        };
        std::uint32_t code = hexadecimal();
        if (code >= 0xd800 && code <= 0xdfff) { // a pair of surrogates
            expect(code < 0xdc00 && take_if('\\'));
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

    std::string_view left_;
    int depth_ = 0;
    bool good_ = true;
};

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
        if (how.is_written || value != T()) {
            separate();
            to_.append("\"").append(name).append("\":");
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
    void write(std::string_view text) {
        separate();
        to_ += '"';
        while (!text.empty()) {
            const std::size_t plain = plain_size(text);
            const std::size_t length = plain != 0 ? plain : bide::detail::utf8_length(text);
            constexpr std::string_view escaped = "\"\\\b\f\n\r\t";
            const std::size_t known = plain != 0 ? escaped.npos : escaped.find(text[0]);
            const auto first = static_cast<unsigned char>(text[0]);
            if (known != escaped.npos) {
                to_.append({'\\', "\"\\bfnrt"[known]});
            } else if (first < ' ') {
                to_.append({'\\', 'u', '0', '0', "01"[first >> 4], "0123456789abcdef"[first & 15]});
            } else {
                to_.append(length != 0 ? text.substr(0, length) : "\xef\xbf\xbd");
            }
            text.remove_prefix(std::max<std::size_t>(length, 1));
        }
        to_ += '"';
    }
    void write(const std::vector<label>& values) {
        to_ += '{';
        for (const label& one : values) {
            write(one.key);
            to_ += ':';
            write(one.value);
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

// ---- texts with a version

// Reads a text of this version. Returns `invalid` if it has no version, or invalid fields.
template <class T>
result<T, std::error_code> read_text(std::string_view text, durable_errc invalid) {
    T read;
    json_reader in(text);
    in.object(read);
    if (in.has_ended()) {
        return read;
    }
    json_object found;
    json_reader again(text);
    again.object(found);
    const bool is_later = again.has_ended() && !found.v.empty() &&
                          found.v.find_first_not_of("-0123456789") == found.v.npos &&
                          found.v != std::to_string(record_format);
    return unexpected{
        make_error_code(is_later ? durable_errc::unsupported_record_version : invalid)};
}

template <class T> std::string write_text(const T& from, std::size_t size = 256) {
    std::string text;
    text.reserve(size);
    json_writer(text).object(from);
    return text;
}

// ---- the fields of a record

template <class F> void fields(is_a<stored_observation> auto& o, F& f) {
    f("boot", o.boot);
    f("moves", o.moves, number(0));
    f("since", o.since, number(0));
}

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
    auto r = detail::read_text<record>(text, durable_errc::corrupt_record);
    if (r && !detail::is_consistent(*r)) {
        return unexpected{make_error_code(durable_errc::corrupt_record)};
    }
    return r;
}

}}} // namespace bide::BIDE_ABI::durable

#endif
