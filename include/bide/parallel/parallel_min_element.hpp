// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_MIN_ELEMENT_HPP
#define BIDE_PARALLEL_PARALLEL_MIN_ELEMENT_HPP

/// \file
/// Finds the least or the greatest element: parallel_min_element(), parallel_max_element(). The
/// result does not depend on how the range is divided, so both are parallel loops.

#include <bide/parallel/parallel_for.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// True if the comparison is the > of two values of type T. For <, see plain_less.
template <class Compare, class T>
concept plain_greater =
    std::is_same_v<Compare, std::ranges::greater> || std::is_same_v<Compare, std::greater<>> ||
    std::is_same_v<Compare, std::greater<T>>;

// Returns an iterator to the best number: the first number for which is_better(other, number) is
// false for all other numbers. If there is no such number, because some numbers are unordered
// (NaN), returns any iterator. Finds the best number of each block, in columns that vector
// instructions can compare. Then searches the block of the best number.
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

// Returns the first of the least or greatest elements.
template <bool Greatest, class It, class Compare, class Projection>
It best_element(const fork_policy& on, const elements<It>& all, Compare& less,
                Projection& projection) {
    using value = std::iter_value_t<It>;
    const auto better = [&](const It& a, const It& b) -> bool {
        return std::invoke(less, std::invoke(projection, Greatest ? *b : *a),
                           std::invoke(projection, Greatest ? *a : *b));
    };
    const auto best_of = [&](const It& first, const It& last) -> It {
        if constexpr (plain_numbers<It> && std::is_same_v<Projection, std::identity> &&
                      (plain_less<Compare, value> || plain_greater<Compare, value>)) {
            using is_better = std::conditional_t<plain_less<Compare, value> != Greatest,
                                                 std::less<>, std::greater<>>;
            const auto* const begin = detail::unwrap(first);
            return first +
                   (detail::best_number(begin, begin + (last - first), is_better()) - begin);
        } else {
            It here = first;
            for (It it = here; ++it != last;) {
                if (better(it, here)) {
                    here = it;
                }
            }
            return here;
        }
    };
    native_platform::atomic<std::uint64_t> best{0};
    detail::loop_over(on, all.numbers(), [&](std::uint64_t from, std::uint64_t to) {
        const It here = best_of(all.at(from), all.at(to));
        const std::uint64_t mine = from + static_cast<std::uint64_t>(here - all.at(from));
        // Order: relaxed, all three; the number publishes no other data, because the elements were
        // written before the loop.
        std::uint64_t seen = best.load(std::memory_order_relaxed);
        while (mine != seen &&
               (mine < seen ? !better(all.at(seen), here) : better(here, all.at(seen))) &&
               !best.compare_exchange_weak(seen, mine, std::memory_order_relaxed,
                                           std::memory_order_relaxed)) {
        }
    });
    // Order: relaxed; the loop's joins order this load after the leaves.
    return all.at(best.load(std::memory_order_relaxed));
}

} // namespace detail

/// Returns an iterator to the first of the least elements by less(projection(a), projection(b)). If
/// the range is empty, returns its end.
/// Blocks, throws, cancellation: as parallel_for().
/// Requires: less is a strict weak order; otherwise the result is any element. less and projection
/// may be called by several threads at once.
template <parallel_range Range, class Compare = std::ranges::less, class Projection = std::identity>
    requires detail::compares_in<Compare, std::ranges::iterator_t<Range>, Projection>
std::ranges::borrowed_iterator_t<Range> parallel_min_element(const fork_policy& on, Range&& range,
                                                             Compare less = {},
                                                             Projection projection = {}) {
    return detail::best_element<false>(on, detail::elements_of(range), less, projection);
}

/// Returns the least element of [first, last) in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_min_element);

/// Returns an iterator to the first of the greatest elements by less(projection(a), projection(b)).
/// If the range is empty, returns its end. Everything else is as in parallel_min_element().
template <parallel_range Range, class Compare = std::ranges::less, class Projection = std::identity>
    requires detail::compares_in<Compare, std::ranges::iterator_t<Range>, Projection>
std::ranges::borrowed_iterator_t<Range> parallel_max_element(const fork_policy& on, Range&& range,
                                                             Compare less = {},
                                                             Projection projection = {}) {
    return detail::best_element<true>(on, detail::elements_of(range), less, projection);
}

/// Returns the greatest element of [first, last) in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_max_element);

}} // namespace bide::BIDE_ABI

#endif
