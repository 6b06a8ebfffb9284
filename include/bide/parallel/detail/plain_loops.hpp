// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_PLAIN_LOOPS_HPP
#define BIDE_PARALLEL_DETAIL_PLAIN_LOOPS_HPP

// The loops inside the leaves of the parallel algorithms. They run in blocks of a constant number of
// iterations, because compilers that optimise for size and speed at once, such as g++ 12 with -O2,
// use vector instructions only if they know the number. The ends of most leaves are at multiples of
// that number.

#include <bide/core/config.hpp>
#include <bide/parallel/detail/element_range.hpp>
#include <bide/parallel/detail/loop_range.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

inline constexpr int plain_block = 64;

// Calls f(i) for each index of [first, last), in order.
template <loop_index Index, class F> BIDE_INLINE void each_index(Index first, Index last, F&& f) {
    std::uint64_t left = loop_range<Index>{first, last}.size();
    for (; left >= plain_block; left -= plain_block) {
        for (int k = 0; k < plain_block; ++k) {
            f(static_cast<Index>(first + static_cast<Index>(k)));
        }
        first = static_cast<Index>(first + static_cast<Index>(plain_block));
    }
    for (; first != last; ++first) {
        f(first);
    }
}

// Calls f(*it) for each iterator of [first, last), in order.
template <class It, class F> BIDE_INLINE void each_element(const It& first, const It& last, F&& f) {
    if constexpr (std::contiguous_iterator<It>) {
        auto* const at = detail::unwrap(first);
        detail::each_index(std::size_t{0}, static_cast<std::size_t>(last - first),
                           [&](std::size_t i) { f(at[i]); });
    } else {
        for (It it = first; it != last; ++it) {
            f(*it);
        }
    }
}

// Returns for how many elements is_match(*it) is true.
template <class It, class IsMatch>
BIDE_INLINE std::uint64_t count_matches(const It& first, const It& last, IsMatch&& is_match) {
    if constexpr (std::contiguous_iterator<It>) {
        auto* at = detail::unwrap(first);
        auto* const end = detail::unwrap(last);
        std::uint64_t count = 0;
        for (; end - at >= plain_block; at += plain_block) {
            std::uint32_t here = 0;
            for (int k = 0; k < plain_block; ++k) {
                here += is_match(at[k]) ? 1U : 0U;
            }
            count += here;
        }
        for (; at != end; ++at) {
            count += is_match(*at) ? 1U : 0U;
        }
        return count;
    } else {
        std::uint64_t count = 0;
        for (It it = first; it != last; ++it) {
            count += is_match(*it) ? 1U : 0U;
        }
        return count;
    }
}

// True if the elements are numbers in consecutive places that the projection leaves as they are.
template <class It, class Projection>
concept plain_numbers =
    std::contiguous_iterator<It> &&
    std::is_same_v<std::remove_cvref_t<Projection>, std::identity> &&
    std::is_arithmetic_v<std::iter_value_t<It>> &&
    std::is_same_v<std::remove_cvref_t<std::iter_reference_t<It>>, std::iter_value_t<It>> &&
    !std::is_volatile_v<std::remove_reference_t<std::iter_reference_t<It>>>;

// True if the comparison is <, or >, of two values of type T.
template <class Compare, class T>
concept plain_less = std::is_same_v<Compare, std::ranges::less> ||
                     std::is_same_v<Compare, std::less<>> || std::is_same_v<Compare, std::less<T>>;
template <class Compare, class T>
concept plain_greater =
    std::is_same_v<Compare, std::ranges::greater> || std::is_same_v<Compare, std::greater<>> ||
    std::is_same_v<Compare, std::greater<T>>;

// Returns the first number for which no other one has is_better(other, number). If there is none,
// because numbers are unordered, returns any of them. Compares block by block in several columns,
// and then searches the block of the best number.
// Requires: first != last.
template <class T, class IsBetter>
const T* best_number(const T* const first, const T* const last, IsBetter is_better) {
    constexpr std::ptrdiff_t columns = 64 / sizeof(T);
    constexpr std::ptrdiff_t block = 16 * columns;
    const auto better_of = [is_better](T a, T b) { return is_better(a, b) ? a : b; };
    const T* where = first; // the block of the best number begins here
    T best = *first;
    const T* at = first;
    for (; last - at >= block; at += block) {
        T found[static_cast<std::size_t>(columns)];
        std::copy_n(at, columns, found);
        for (const T* row = at + columns; row != at + block; row += columns) {
            for (std::ptrdiff_t k = 0; k < columns; ++k) {
                found[k] = better_of(row[k], found[k]);
            }
        }
        T here = found[0];
        for (std::ptrdiff_t k = 1; k < columns; ++k) {
            here = better_of(found[k], here);
        }
        if (is_better(here, best)) {
            best = here;
            where = at;
        }
    }
    for (; at != last; ++at) {
        if (is_better(*at, best)) {
            best = *at;
            where = at;
        }
    }
    while (is_better(best, *where)) {
        ++where;
    }
    return where;
}

// Returns the first place of [first, last) that holds the number, or `last`.
template <class T> const T* find_number(const T* first, const T* const last, T value) {
    for (; last - first >= plain_block; first += plain_block) {
        std::uint32_t matches = 0;
        for (int k = 0; k < plain_block; ++k) {
            matches += first[k] == value ? 1U : 0U;
        }
        if (matches != 0) {
            break;
        }
    }
    while (first != last && !(*first == value)) {
        ++first;
    }
    return first;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
