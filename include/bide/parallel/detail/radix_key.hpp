// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_RADIX_KEY_HPP
#define BIDE_PARALLEL_DETAIL_RADIX_KEY_HPP

#include <bide/core/config.hpp>

#include <bit>
#include <climits>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class T>
concept radix_number = (std::integral<T> && sizeof(T) <= 8) ||
                       (std::floating_point<T> && std::numeric_limits<T>::is_iec559 &&
                        (sizeof(T) == sizeof(std::uint32_t) || sizeof(T) == sizeof(std::uint64_t)));

// Returns an unsigned number, so that these numbers have the order of the keys. Negative integers
// get the sign bit inverted, negative floating-point numbers all bits.
template <radix_number T> constexpr auto radix_key(T number) noexcept {
    if constexpr (std::is_same_v<T, bool>) {
        return static_cast<unsigned char>(number ? 1 : 0);
    } else if constexpr (std::integral<T>) {
        using bits = std::make_unsigned_t<T>;
        constexpr auto sign =
            static_cast<bits>(std::is_signed_v<T> ? bits{1} << (sizeof(T) * CHAR_BIT - 1) : 0);
        return static_cast<bits>(static_cast<bits>(number) ^ sign);
    } else {
        using bits =
            std::conditional_t<sizeof(T) == sizeof(std::uint32_t), std::uint32_t, std::uint64_t>;
        constexpr bits sign = bits{1} << (sizeof(T) * CHAR_BIT - 1);
        const auto given = std::bit_cast<bits>(number);
        return static_cast<bits>((given & sign) != 0 ? ~given : given | sign);
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
