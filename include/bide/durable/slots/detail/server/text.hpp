// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SERVER_TEXT_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SERVER_TEXT_HPP

// Functions on the texts of stores. They make an error text one printable line of bounded length,
// keep passwords out of it, and read numbers.

#include <bide/sched/detail/quoted.hpp>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <system_error>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// Replaces each run of bytes that are not printable UTF-8 by a blank. Cuts the text to `most`
// bytes.
inline std::string one_line(std::string_view text, std::size_t most = 300) {
    std::string line;
    while (!text.empty()) {
        const std::size_t length = std::max<std::size_t>(utf8_length(text), 1);
        const std::string_view one = text.substr(0, length);
        const bool is_control = length == 1 ? one[0] <= ' ' || one[0] > '~' : one < "\xc2\xa0";
        if (line.size() + length > most) {
            break;
        }
        if (!is_control) {
            line += one;
        } else if (!line.empty() && line.back() != ' ') {
            line += ' ';
        }
        text.remove_prefix(length);
    }
    line.resize(line.find_last_not_of(' ') + 1);
    return line;
}

// Reads a number from 0 to `most`, without a sign or leading zeros. Returns -1 for anything else.
inline std::int64_t read_number(std::string_view digits, std::int64_t most) noexcept {
    std::int64_t number = -1;
    const char* const last = digits.data() + digits.size();
    const auto [end, error] = std::from_chars(digits.data(), last, number);
    const bool has_zero = digits.size() > 1 && digits.front() == '0';
    const bool fits = error == std::errc() && end == last && !has_zero && number >= 0;
    return fits && number <= most ? number : -1;
}

// Whether the text has one of these parts.
template <class... Parts> bool says(std::string_view text, Parts... parts) noexcept {
    return ((text.find(parts) != text.npos) || ...);
}

// Returns the text. If the text quotes the secret, returns at most its first word, with a remark.
inline std::string without_secret(std::string error_text, std::string_view secret) {
    if (secret.empty() || !says(error_text, secret)) {
        return error_text;
    }
    const std::string first = error_text.substr(0, error_text.find(' '));
    return (says(first, secret) ? "" : first + " ") + "(the error text quotes the password)";
}

}}} // namespace bide::BIDE_ABI::detail

#endif
