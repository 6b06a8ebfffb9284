// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_COUNT_HPP
#define BIDE_PARALLEL_PARALLEL_COUNT_HPP

/// \file
/// How many elements match, and which one is the least or the greatest: reductions whose result does
/// not depend on how the range is divided, so that they are loops.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/parallel/detail/element_range.hpp>
#include <bide/parallel/detail/plain_loops.hpp>
#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/parallel_find.hpp>
#include <bide/parallel/parallel_for.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <iterator>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class It, class Predicate, class Projection>
std::iter_difference_t<It> count_in(const fork_policy& on, const elements<It>& all,
                                    Predicate& predicate, Projection& projection) {
    using projected = std::invoke_result_t<Projection&, std::iter_reference_t<It>>;
    native_platform::atomic<std::uint64_t> count{0};
    detail::loop_on(
        on.forks(), all.numbers(), on.options(), [&](std::uint64_t from, std::uint64_t to) {
            std::uint64_t here = 0;
            detail::run_with_callee<projected>(predicate, [&](auto& callee) {
                here = detail::count_matches(all.at(from), all.at(to), [&](auto&& element) -> bool {
                    return std::invoke(
                        callee, std::invoke(projection, static_cast<decltype(element)>(element)));
                });
            });
            // Order: relaxed; the loop's joins order it before the reader.
            count.fetch_add(here, std::memory_order_relaxed);
        });
    // Order: relaxed; as above.
    return static_cast<std::iter_difference_t<It>>(count.load(std::memory_order_relaxed));
}

// Returns the first element of [first, last) for which no other one has better(other, element).
template <class It, class Better>
It best_serially(const It& first, const It& last, Better& better) {
    It here = first;
    for (It it = here; ++it != last;) {
        if (better(it, here)) {
            here = it;
        }
    }
    return here;
}

// Returns the first such element of all. find_best(first, last) is the same for a part.
template <class It, class Better, class FindBest>
It best_in(const fork_policy& on, const elements<It>& all, Better better, FindBest find_best) {
    native_platform::atomic<std::uint64_t> best{0};
    detail::loop_on(
        on.forks(), all.numbers(), on.options(), [&](std::uint64_t from, std::uint64_t to) {
            const It here = find_best(all.at(from), all.at(to));
            const std::uint64_t mine = from + static_cast<std::uint64_t>(here - all.at(from));
            // Order: relaxed, all three; only the number is published, and the elements
            // were there before the loop.
            std::uint64_t seen = best.load(std::memory_order_relaxed);
            while (mine != seen &&
                   (mine < seen ? !better(all.at(seen), here) : better(here, all.at(seen))) &&
                   !best.compare_exchange_weak(seen, mine, std::memory_order_relaxed,
                                               std::memory_order_relaxed)) {
            }
        });
    // Order: relaxed; the loop's joins order the leaves before it.
    return all.at(best.load(std::memory_order_relaxed));
}

// What compares elements of a range.
template <class Compare, class It, class Projection>
concept compares_in =
    std::regular_invocable<Projection&, std::iter_reference_t<It>> &&
    std::predicate<Compare&, std::invoke_result_t<Projection&, std::iter_reference_t<It>>,
                   std::invoke_result_t<Projection&, std::iter_reference_t<It>>>;

template <class It, class IsBetter>
It best_number_in(const fork_policy& on, const elements<It>& all, auto better, IsBetter is_better) {
    return detail::best_in(on, all, better, [is_better](const It& first, const It& last) {
        const auto* const begin = detail::unwrap(first);
        return first + (detail::best_number(begin, begin + (last - first), is_better) - begin);
    });
}

// better(a, b) compares elements. If the elements are plain numbers and `less` is < or >, is_better
// compares them as values.
template <class Less, class It, class Projection, class Better, class IsLess, class IsGreater>
It best_element(const fork_policy& on, const elements<It>& all, Better better, IsLess is_less,
                IsGreater is_greater) {
    using value = std::iter_value_t<It>;
    if constexpr (plain_numbers<It, Projection> && plain_less<Less, value>) {
        return detail::best_number_in(on, all, better, is_less);
    } else if constexpr (plain_numbers<It, Projection> && plain_greater<Less, value>) {
        return detail::best_number_in(on, all, better, is_greater);
    } else {
        return detail::best_in(on, all, better, [&better](const It& first, const It& last) {
            return detail::best_serially(first, last, better);
        });
    }
}

template <class It, class Compare, class Projection>
It least_in(const fork_policy& on, const elements<It>& all, Compare& less, Projection& projection) {
    return detail::best_element<Compare, It, Projection>(
        on, all,
        [&](const It& a, const It& b) -> bool {
            return std::invoke(less, std::invoke(projection, *a), std::invoke(projection, *b));
        },
        std::less<>(), std::greater<>());
}

template <class It, class Compare, class Projection>
It greatest_in(const fork_policy& on, const elements<It>& all, Compare& less,
               Projection& projection) {
    return detail::best_element<Compare, It, Projection>(
        on, all,
        [&](const It& a, const It& b) -> bool {
            return std::invoke(less, std::invoke(projection, *b), std::invoke(projection, *a));
        },
        std::greater<>(), std::less<>());
}

} // namespace detail

/// Returns the number of elements for which predicate(projection(element)) is true.
/// Blocks, throws, cancellation: as parallel_for().
/// Requires: predicate and projection may be called by several threads at once.
template <parallel_range Range, class Predicate, class Projection = std::identity>
    requires detail::finds_in<Predicate, std::ranges::iterator_t<Range>, Projection>
std::ranges::range_difference_t<Range> parallel_count_if(const fork_policy& on, Range&& range,
                                                         Predicate predicate,
                                                         Projection projection = {}) {
    return detail::count_in(on, detail::elements_of(range), predicate, projection);
}

/// Counts in [first, last) in the same way.
template <class It, class End, class Predicate, class Projection = std::identity>
    requires parallel_bounds<It, End> && detail::finds_in<Predicate, It, Projection>
std::iter_difference_t<It> parallel_count_if(const fork_policy& on, It first, End last,
                                             Predicate predicate, Projection projection = {}) {
    return detail::count_in(on, detail::elements_of(first, last), predicate, projection);
}

/// Returns an iterator to the first of the least elements by less(projection(a), projection(b)), or
/// the end of an empty range.
/// Blocks, throws, cancellation: as parallel_for().
/// Requires: less is a strict weak order; otherwise the result is any element. less and projection
/// may be called by several threads at once.
template <parallel_range Range, class Compare = std::ranges::less, class Projection = std::identity>
    requires detail::compares_in<Compare, std::ranges::iterator_t<Range>, Projection>
std::ranges::borrowed_iterator_t<Range> parallel_min_element(const fork_policy& on, Range&& range,
                                                             Compare less = {},
                                                             Projection projection = {}) {
    return detail::least_in(on, detail::elements_of(range), less, projection);
}

/// Returns the least element of [first, last) in the same way.
template <class It, class End, class Compare = std::ranges::less, class Projection = std::identity>
    requires parallel_bounds<It, End> && detail::compares_in<Compare, It, Projection>
It parallel_min_element(const fork_policy& on, It first, End last, Compare less = {},
                        Projection projection = {}) {
    return detail::least_in(on, detail::elements_of(first, last), less, projection);
}

/// Returns an iterator to the first of the greatest elements by less(projection(a),
/// projection(b)), or the end of an empty range. Otherwise as parallel_min_element().
template <parallel_range Range, class Compare = std::ranges::less, class Projection = std::identity>
    requires detail::compares_in<Compare, std::ranges::iterator_t<Range>, Projection>
std::ranges::borrowed_iterator_t<Range> parallel_max_element(const fork_policy& on, Range&& range,
                                                             Compare less = {},
                                                             Projection projection = {}) {
    return detail::greatest_in(on, detail::elements_of(range), less, projection);
}

/// Returns the greatest element of [first, last) in the same way.
template <class It, class End, class Compare = std::ranges::less, class Projection = std::identity>
    requires parallel_bounds<It, End> && detail::compares_in<Compare, It, Projection>
It parallel_max_element(const fork_policy& on, It first, End last, Compare less = {},
                        Projection projection = {}) {
    return detail::greatest_in(on, detail::elements_of(first, last), less, projection);
}

} // namespace bide::inline BIDE_ABI

#endif
