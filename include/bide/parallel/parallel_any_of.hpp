// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_ANY_OF_HPP
#define BIDE_PARALLEL_PARALLEL_ANY_OF_HPP

/// \file
/// Tells whether elements match: parallel_any_of(), parallel_all_of() and parallel_none_of().

#include <bide/parallel/parallel_find.hpp>

namespace bide { inline namespace BIDE_ABI {

/// Returns true if predicate(projection(element)) is true for at least one element of the range.
/// Everything else is as in parallel_find_any().
template <parallel_range Range, class Predicate, class Projection = std::identity>
    requires detail::finds_in<Predicate, std::ranges::iterator_t<Range>, Projection>
bool parallel_any_of(const fork_policy& on, Range&& range, Predicate predicate,
                     Projection projection = {}) {
    const auto all = detail::elements_of(range);
    return detail::find_match<detail::wanted_match::any>(on, all, predicate, projection) !=
           all.size;
}

/// Tests [first, last) in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_any_of);

/// Returns true if predicate(projection(element)) is true for no element of the range. Everything
/// else is as in parallel_find_any().
template <parallel_range Range, class Predicate, class Projection = std::identity>
    requires detail::finds_in<Predicate, std::ranges::iterator_t<Range>, Projection>
bool parallel_none_of(const fork_policy& on, Range&& range, Predicate predicate,
                      Projection projection = {}) {
    return !bide::parallel_any_of(on, range, std::move(predicate), std::move(projection));
}

/// Tests [first, last) in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_none_of);

/// Returns true if predicate(projection(element)) is true for all elements of the range. Searches
/// for an element for which the predicate is false. Everything else is as in parallel_find_any().
template <parallel_range Range, class Predicate, class Projection = std::identity>
    requires detail::finds_in<Predicate, std::ranges::iterator_t<Range>, Projection>
bool parallel_all_of(const fork_policy& on, Range&& range, Predicate predicate,
                     Projection projection = {}) {
    return !bide::parallel_any_of(on, range, std::not_fn(std::move(predicate)),
                                  std::move(projection));
}

/// Tests [first, last) in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_all_of);

}} // namespace bide::BIDE_ABI

#endif
