// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_SMALL_SORT_HPP
#define BIDE_PARALLEL_DETAIL_SMALL_SORT_HPP

// A stable sort of a few elements that are cheap to copy, without branches that depend on them.
// Groups of four are sorted by selection, then merged from both ends at once, which gives the
// processor two independent chains of loads (van den Hoven, "fluxsort"; Bergdoll, Peters,
// "driftsort").

#include <bide/core/config.hpp>
#include <bide/parallel/detail/sort_parts.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <type_traits>

namespace bide::inline BIDE_ABI {
namespace detail {

inline constexpr std::ptrdiff_t small_sort_size = 32;

// Makes one step of a merge from the front: of equal elements, the left one goes first.
template <class From, class To, class Compare>
void merge_first(From& left, From& right, To& to, Compare& less) {
    const std::ptrdiff_t second = detail::as_number(less(*right, *left));
    *to = *detail::choose(second, left, right);
    ++to;
    right = detail::ahead(right, second);
    left = detail::ahead(left, 1 - second);
}

// Makes one step from the back: of equal elements, the right one goes last.
template <class From, class To, class Compare>
void merge_last(From& left, From& right, To& to, Compare& less) {
    const std::ptrdiff_t first = detail::as_number(less(*right, *left));
    *to = *detail::choose(first, right, left);
    --to;
    left = detail::ahead(left, -first);
    right = detail::ahead(right, first - 1);
}

// Merges the sorted halves of n elements; if n is odd, the first half is the smaller one. If
// comparisons contradict each other, the elements are only copied.
template <class From, class To, class Compare>
void merge_halves(From from, std::iter_difference_t<From> n, To to, Compare& less) {
    const std::iter_difference_t<From> half = n / 2;
    From left = from;
    From right = from + half;
    From left_back = right - 1;
    From right_back = from + n - 1;
    To front = to;
    To back = detail::ahead(to, n - 1);
    for (auto i = half; i != 0; --i) {
        detail::merge_first(left, right, front, less);
        detail::merge_last(left_back, right_back, back, less);
    }
    if (n % 2 != 0) {
        const bool is_left = left <= left_back;
        *front = is_left ? *left : *right;
        left += is_left ? 1 : 0;
        right += is_left ? 0 : 1;
    }
    if (left != left_back + 1 || right != right_back + 1) {
        std::copy(from, from + n, to);
    }
}

// Sorts up to four elements from one place to another.
template <class From, class T, class Compare>
void sort_four(From from, std::iter_difference_t<From> n, T* to, Compare& less) {
    if (n < 4) {
        if (n == 0) {
            return;
        }
        to[0] = from[0];
        if (n == 1) {
            return;
        }
        const bool swapped = less(from[1], from[0]);
        to[0] = from[swapped ? 1 : 0];
        to[1] = from[swapped ? 0 : 1];
        if (n == 3) {
            T third = from[2];
            const bool before_second = less(third, to[1]);
            const bool before_first = before_second && less(third, to[0]);
            to[2] = before_second ? to[1] : third;
            to[1] = before_first ? to[0] : before_second ? third : to[1];
            to[0] = before_first ? third : to[0];
        }
        return;
    }
    // Puts the elements of each pair in order. Then finds the least and the greatest element, then
    // the order of the other two.
    const auto one = less(from[1], from[0]) ? 1 : 0;
    const auto two = less(from[3], from[2]) ? 1 : 0;
    T a = from[one];
    T b = from[1 - one];
    T c = from[2 + two];
    T d = from[3 - two];
    const bool c_first = less(c, a);
    const bool b_last = less(d, b);
    T rest_1 = c_first ? a : b_last ? c : b;
    T rest_2 = b_last ? d : c_first ? b : c;
    const bool swapped = less(rest_2, rest_1);
    to[0] = c_first ? c : a;
    to[1] = swapped ? rest_2 : rest_1;
    to[2] = swapped ? rest_1 : rest_2;
    to[3] = b_last ? b : d;
}

// Sorts n elements, at most 4 << levels, from one place to another. `spare` has room for as many.
template <int levels, class From, class T, class Compare>
void sort_few(From from, std::iter_difference_t<From> n, T* to, T* spare, Compare& less) {
    if constexpr (levels == 0) {
        detail::sort_four(from, n, to, less);
    } else {
        const auto half = n / 2;
        detail::sort_few<levels - 1>(from, half, spare, to, less);
        detail::sort_few<levels - 1>(from + half, n - half, spare + half, to + half, less);
        detail::merge_halves(spare, n, to, less);
    }
}

// Sorts at most small_sort_size elements in place. Stable.
template <class It, class Compare> void small_sort(It begin, It end, Compare& less) {
    using value = std::iter_value_t<It>;
    static_assert(sorts_branchless<It>);
    alignas(value) std::byte memory[2 * small_sort_size * sizeof(value)];
    value* const sorted = reinterpret_cast<value*>(memory);
    value* const spare = sorted + small_sort_size;
    const auto n = end - begin;
    const auto half = n / 2;
    const auto sort_both = [&]<int levels>(std::integral_constant<int, levels>) {
        detail::sort_few<levels>(begin, half, sorted, spare, less);
        detail::sort_few<levels>(begin + half, n - half, sorted + half, spare + half, less);
    };
    It at = begin;
    for (auto left = n; left > 1 && !less(at[1], *at); --left) {
        ++at;
    }
    if (end - at < 2) {
        return;
    }
    if (n > 16) {
        sort_both(std::integral_constant<int, 2>());
    } else if (n > 8) {
        sort_both(std::integral_constant<int, 1>());
    } else {
        sort_both(std::integral_constant<int, 0>());
    }
    // The range is unchanged up to here. From here on its elements are in `sorted`.
    struct copy_back {
        ~copy_back() {
            if (!is_merged) {
                std::copy(from, from + n, to);
            }
        }
        const value* from;
        std::iter_difference_t<It> n;
        It to;
        bool is_merged;
    } guard{sorted, n, begin, false};
    detail::merge_halves(sorted, n, begin, less);
    guard.is_merged = true;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
