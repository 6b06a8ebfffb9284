// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_ETCD_BASE64_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_ETCD_BASE64_HPP

// Base64 (RFC 4648, section 4), with padding, on one line.

#include <bide/core/config.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bide::inline BIDE_ABI {
namespace detail {

inline std::string to_base64(std::string_view bytes) {
    constexpr std::string_view digits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    text.reserve((bytes.size() + 2) / 3 * 4);
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        const std::size_t n = bytes.size() - i < 3 ? bytes.size() - i : 3;
        std::uint32_t bits = 0;
        for (std::size_t j = 0; j < 3; ++j) {
            bits = bits << 8 | (j < n ? static_cast<unsigned char>(bytes[i + j]) : 0u);
        }
        for (std::size_t j = 0; j < 4; ++j) {
            text += j <= n ? digits[bits >> (18 - 6 * j) & 63u] : '=';
        }
    }
    return text;
}

inline int base64_digit(char c) noexcept {
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

// Returns nullopt if to_base64() cannot have written the text.
inline std::optional<std::string> from_base64(std::string_view text) {
    if (text.size() % 4 != 0) {
        return std::nullopt;
    }
    std::string bytes;
    bytes.reserve(text.size() / 4 * 3);
    for (std::size_t i = 0; i < text.size(); i += 4) {
        const bool is_last = i + 4 == text.size();
        const std::size_t padding = !is_last || text[i + 3] != '=' ? 0 : text[i + 2] != '=' ? 1 : 2;
        std::uint32_t bits = 0;
        for (std::size_t j = 0; j < 4; ++j) {
            const int digit = j < 4 - padding ? base64_digit(text[i + j]) : 0;
            if (digit < 0) {
                return std::nullopt;
            }
            bits = bits << 6 | static_cast<std::uint32_t>(digit);
        }
        if ((bits & ((1u << 8 * padding) - 1)) != 0) {
            return std::nullopt; // the unused bits are not zero
        }
        for (std::size_t j = 0; j + padding < 3; ++j) {
            bytes += static_cast<char>(bits >> (16 - 8 * j) & 255u);
        }
    }
    return bytes;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
