// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_LOOP_RANGE_HPP
#define BIDE_PARALLEL_DETAIL_LOOP_RANGE_HPP

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class T>
concept loop_index = std::integral<T> && !std::same_as<std::remove_cv_t<T>, bool> && sizeof(T) <= 8;

// The indices [first, last). Sizes and steps are unsigned, so nothing overflows, even if the range
// is as wide as its type.
template <loop_index Index> struct loop_range {
    using unsigned_index = std::make_unsigned_t<Index>;

    Index first;
    Index last;

    bool empty() const noexcept { return first == last; }

    std::uint64_t size() const noexcept {
        return static_cast<unsigned_index>(static_cast<unsigned_index>(last) -
                                           static_cast<unsigned_index>(first));
    }

    // Requires: n <= size().
    Index at(std::uint64_t n) const noexcept {
        return static_cast<Index>(
            static_cast<unsigned_index>(static_cast<unsigned_index>(first) + n));
    }

    Index middle() const noexcept { return at(size() / 2); }
};

// Makes a range from bounds of any two types, compared as numbers. If first >= last, it is empty.
// Throws: std::invalid_argument if the first index is negative and the common type is unsigned.
template <loop_index First, loop_index Last>
loop_range<std::common_type_t<First, Last>> range_of(First first, Last last) {
    using index = std::common_type_t<First, Last>;
    if (!std::cmp_less(+first, +last)) {
        return {index{}, index{}};
    }
    const auto begin = static_cast<index>(first);
    if (std::cmp_not_equal(+begin, +first)) {
        BIDE_THROW(std::invalid_argument("bide: the first index of the loop is negative, but the "
                                         "common type of the bounds is unsigned"));
    }
    return {begin, static_cast<index>(last)};
}

// Converts a grain.
// Throws: std::invalid_argument if it is negative or larger than the largest std::size_t.
template <loop_index Grain> std::size_t grain_of(Grain grain) {
    if (!std::in_range<std::size_t>(+grain)) {
        BIDE_THROW(std::invalid_argument("bide: the grain is negative or too large"));
    }
    return static_cast<std::size_t>(grain);
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
