// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_COUNT_HPP
#define BIDE_PARALLEL_PARALLEL_COUNT_HPP

/// \file
/// How many elements match, and which one is the least or the greatest: reductions whose result does
/// not depend on how the range is divided, so that they are loops.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/parallel/detail/element_range.hpp>
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
    detail::loop_on(on.forks(), all.numbers(), on.options(),
                    [&](std::uint64_t from, std::uint64_t to) {
                        std::uint64_t here = 0;
                        detail::run_with_callee<projected>(predicate, [&](auto& callee) {
                            const It end = all.at(to);
                            for (It it = all.at(from); it != end; ++it) {
                                here += std::invoke(callee, std::invoke(projection, *it)) ? 1 : 0;
                            }
                        });
                        // Order: relaxed; the loop's joins order it before the reader.
                        count.fetch_add(here, std::memory_order_relaxed);
                    });
    // Order: relaxed; as above.
    return static_cast<std::iter_difference_t<It>>(count.load(std::memory_order_relaxed));
}

// Returns the first element for which no other one has better(other, element).
template <class It, class Better>
It best_in(const fork_policy& on, const elements<It>& all, Better better) {
    native_platform::atomic<std::uint64_t> best{0};
    detail::loop_on(
        on.forks(), all.numbers(), on.options(), [&](std::uint64_t from, std::uint64_t to) {
            const It end = all.at(to);
            It here = all.at(from);
            for (It it = here; ++it != end;) {
                if (better(it, here)) {
                    here = it;
                }
            }
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

template <class It, class Compare, class Projection>
It least_in(const fork_policy& on, const elements<It>& all, Compare& less, Projection& projection) {
    return detail::best_in(on, all, [&](const It& a, const It& b) -> bool {
        return std::invoke(less, std::invoke(projection, *a), std::invoke(projection, *b));
    });
}

template <class It, class Compare, class Projection>
It greatest_in(const fork_policy& on, const elements<It>& all, Compare& less,
               Projection& projection) {
    return detail::best_in(on, all, [&](const It& a, const It& b) -> bool {
        return std::invoke(less, std::invoke(projection, *b), std::invoke(projection, *a));
    });
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
