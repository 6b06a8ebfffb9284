// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SERVER_TEXT_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SERVER_TEXT_HPP

// Texts of stores: error texts as one printable line of bounded length and without passwords;
// numbers.

#include <bide/core/config.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// Returns the length of the printable UTF-8 character that the text begins with, or 0.
inline std::size_t printable_length(std::string_view text) noexcept {
    const auto byte = [text](std::size_t i) {
        return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
    };
    const unsigned first = byte(0);
    if (first < 0x80) {
        return first > ' ' && first != 0x7f ? 1 : 0;
    }
    const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    for (std::size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xc0) != 0x80) {
            return 0;
        }
    }
    // The last condition refuses control characters, U+0080 to U+009F.
    return first >= 0xc2 && first <= 0xf4 && (first != 0xc2 || byte(1) >= 0xa0) ? length : 0;
}

// Replaces each run of other than printable characters by one blank, and cuts the text to `most`
// bytes.
inline std::string one_line(std::string_view text, std::size_t most = 300) {
    std::string line;
    while (!text.empty()) {
        const std::size_t length = printable_length(text);
        if (line.size() + std::max<std::size_t>(length, 1) > most) {
            break;
        }
        if (length != 0) {
            line += text.substr(0, length);
        } else if (!line.empty() && line.back() != ' ') {
            line += ' ';
        }
        text.remove_prefix(std::max<std::size_t>(length, 1));
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

// If the text quotes the secret, keeps only its first word, or nothing if that quotes it, too.
inline std::string without_secret(std::string error_text, std::string_view secret) {
    if (!secret.empty() && error_text.find(secret) != error_text.npos) {
        const std::string first = error_text.substr(0, error_text.find(' '));
        const bool is_safe = first.find(secret) == first.npos;
        error_text =
            (is_safe ? first + " " : std::string()) + "(the error text quotes the password)";
    }
    return error_text;
}

}}} // namespace bide::BIDE_ABI::detail

#endif
