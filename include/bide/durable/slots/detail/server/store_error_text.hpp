// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SERVER_STORE_ERROR_TEXT_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SERVER_STORE_ERROR_TEXT_HPP

// A server's error text for messages: one line of bounded length, without passwords.

#include <bide/core/config.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace bide::inline BIDE_ABI {
namespace detail {

// Cuts the text to `most` bytes, replaces each control character by a blank, and removes blanks at
// the end.
inline std::string one_line(std::string_view text, std::size_t most = 300) {
    std::string line(text.substr(0, most));
    for (char& c : line) {
        if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') {
            c = ' ';
        }
    }
    const std::size_t last = line.find_last_not_of(' ');
    line.resize(last == line.npos ? 0 : last + 1);
    return line;
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

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
