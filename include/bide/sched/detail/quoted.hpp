// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_QUOTED_HPP
#define BIDE_SCHED_DETAIL_QUOTED_HPP

#include <bide/core/config.hpp>

#include <cstddef>
#include <cstdio>
#include <string_view>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// Returns the number of bytes of the UTF-8 character at the front of `text`, or 0 if there is none.
inline std::size_t utf8_length(std::string_view text) noexcept {
    const auto at = [text](std::size_t i) noexcept {
        return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
    };
    const unsigned first = at(0);
    if (first < 0x80) {
        return text.empty() ? 0 : 1;
    }
    if (first < 0xc2 || first > 0xf4) {
        return 0;
    }
    const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    for (std::size_t i = 1; i < length; ++i) {
        if ((at(i) & 0xc0) != 0x80) {
            return 0;
        }
    }
    // True if the character is overlong, half of a surrogate pair, or beyond U+10FFFF.
    const bool wrong = (first == 0xe0 && at(1) < 0xa0) || (first == 0xed && at(1) >= 0xa0) ||
                       (first == 0xf0 && at(1) < 0x90) || (first == 0xf4 && at(1) >= 0x90);
    return wrong ? 0 : length;
}

// Writes `text` as a JSON string: one line in quotes, without control characters. Bytes that are
// not UTF-8 become U+FFFD.
inline void write_quoted(std::FILE* to, std::string_view text) noexcept {
    std::fputc('"', to);
    while (!text.empty()) {
        const auto first = static_cast<unsigned char>(text[0]);
        std::size_t length = utf8_length(text);
        if (length == 0) {
            std::fputs("\\ufffd", to);
            length = 1;
        } else if (first < ' ' || first == 0x7f) {
            std::fprintf(to, "\\u%04x", first + 0U);
        } else {
            if (first == '"' || first == '\\') {
                std::fputc('\\', to);
            }
            std::fwrite(text.data(), 1, length, to);
        }
        text.remove_prefix(length);
    }
    std::fputc('"', to);
}

}}} // namespace bide::BIDE_ABI::detail

#endif
