// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SQLITE_TEXT_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SQLITE_TEXT_HPP

// Which names may stand in a statement, and which keys are the same text in every encoding of
// SQLite.

#include <bide/core/config.hpp>

#include <cstddef>
#include <string_view>

namespace bide::inline BIDE_ABI {
namespace detail {

// Returns true if the name consists of letters, digits and _, and is not reserved by SQLite. Such a
// name needs no escapes between quotes.
constexpr bool is_sqlite_name(std::string_view name) noexcept {
    constexpr std::string_view reserved = "sqlite_";
    if (name.empty() || name.size() > 64 || (name[0] >= '0' && name[0] <= '9')) {
        return false;
    }
    std::size_t alike = 0;
    for (std::size_t i = 0; i < name.size(); ++i) {
        const bool is_upper = name[i] >= 'A' && name[i] <= 'Z';
        const char c = is_upper ? static_cast<char>(name[i] - 'A' + 'a') : name[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_')) {
            return false;
        }
        alike += alike == i && i < reserved.size() && c == reserved[i] ? 1 : 0;
    }
    return alike != reserved.size();
}

// True if the text is well-formed UTF-8 without zero bytes.
constexpr bool is_sqlite_text(std::string_view text) noexcept {
    for (std::size_t i = 0; i < text.size();) {
        const auto lead = static_cast<unsigned char>(text[i++]);
        if (lead == 0) {
            return false;
        }
        if (lead < 0x80) {
            continue;
        }
        const int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
        if (lead < 0xc2 || lead > 0xf4) {
            return false;
        }
        unsigned code = lead & (0x3fu >> more);
        for (int left = more; left > 0; --left, ++i) {
            if (i == text.size() || (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) {
                return false;
            }
            code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3fu);
        }
        const unsigned least = more == 3 ? 0x10000 : more == 2 ? 0x800 : 0x80;
        if (code < least || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
            return false;
        }
    }
    return true;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
