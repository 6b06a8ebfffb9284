// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_SORT_HPP
#define BIDE_PARALLEL_PARALLEL_SORT_HPP

/// \file
/// Sorts in parallel: parallel_sort() in place, parallel_stable_sort() stably. Neither is ever
/// quadratic. Both take nearly linear time if the range is sorted, reversed, all equal, or made of
/// a few sorted pieces. parallel_sort() also does if there are few distinct values.

#include <bide/core/config.hpp>
#include <bide/parallel/detail/element_range.hpp>
#include <bide/parallel/detail/sort_on.hpp>
#include <bide/parallel/fork_policy.hpp>

#include <algorithm>
#include <functional>
#include <iterator>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class It, class Compare, class Projection>
void sort_elements(const fork_policy& on, const elements<It>& all, Compare& less,
                   Projection& projection) {
    auto&& call = detail::callable(less, projection);
    detail::sort_on(on.forks(), detail::unwrap(all.first), detail::unwrap(all.at(all.size)), call,
                    on.options());
}

template <class It, class Compare, class Projection>
void stable_sort_elements(const fork_policy& on, const elements<It>& all, Compare& less,
                          Projection& projection) {
    auto&& call = detail::callable(less, projection);
    detail::stable_sort_on(on.forks(), detail::unwrap(all.first), detail::unwrap(all.at(all.size)),
                           call, on.options());
}

} // namespace detail

/// Sorts [first, last) by less(projection(a), projection(b)). Equal elements end up in an order that
/// depends on the range alone, not on the number of workers. Elements are moved by
/// std::ranges::iter_move() or swapped by std::ranges::iter_swap(), and copied only if copying is
/// trivial. So the iterator's reference may be a proxy. If the range is made of a few sorted pieces,
/// they are merged in a buffer, if there is memory for it. Otherwise the sort works in place.
/// Blocks: until the range is sorted. Meanwhile the caller sorts parts of it. A short range is
/// sorted by the calling thread alone.
/// Throws: what a comparison throws; if several throw, the exception of the first in the order of
/// the range. The range then has the same elements as before, in some order. If a move throws, all
/// elements are alive, but their values are unspecified. stopped_error as join(), with nothing
/// changed. std::bad_alloc if a thread finds no memory to fork; the range is then as after a
/// comparison that throws.
/// Requires: less is a strict weak order; otherwise the elements end up in any order. Several
/// threads may call less at once, and access different elements at once, which excludes
/// vector<bool>.
/// Cancellation: a stop takes effect between parts of the sort. If it leaves out a part, throws
/// stopped_error, and the range has the same elements as before, in some order. options.progress
/// counts the elements whose place is final. options.grain is ignored.
/// Complexity: O(n log n) comparisons.
template <class It, class End, class Compare = std::less<>, class Projection = std::identity>
    requires parallel_bounds<It, End> && std::sortable<It, Compare, Projection>
void parallel_sort(const fork_policy& on, It first, End last, Compare less = {},
                   Projection projection = {}) {
    detail::sort_elements(on, detail::elements_of(first, last), less, projection);
}

/// Sorts a range in the same way: `parallel_sort(s, people, {}, &person::age)`.
template <parallel_range Range, class Compare = std::ranges::less, class Projection = std::identity>
    requires std::sortable<std::ranges::iterator_t<Range>, Compare, Projection>
void parallel_sort(const fork_policy& on, Range&& range, Compare less = {},
                   Projection projection = {}) {
    detail::sort_elements(on, detail::elements_of(range), less, projection);
}

/// Sorts as parallel_sort() does, but equal elements keep their order. So the result is the same on
/// any number of workers. Allocates a buffer for as many elements, once, before anything is changed.
/// Throws: as parallel_sort(). std::bad_alloc, with nothing changed, if there is no memory for the
/// buffer.
/// Cancellation: as parallel_sort(). The places become final in the last merge.
template <class It, class End, class Compare = std::less<>, class Projection = std::identity>
    requires parallel_bounds<It, End> && std::sortable<It, Compare, Projection>
void parallel_stable_sort(const fork_policy& on, It first, End last, Compare less = {},
                          Projection projection = {}) {
    detail::stable_sort_elements(on, detail::elements_of(first, last), less, projection);
}

/// Sorts a range stably, in the same way.
template <parallel_range Range, class Compare = std::ranges::less, class Projection = std::identity>
    requires std::sortable<std::ranges::iterator_t<Range>, Compare, Projection>
void parallel_stable_sort(const fork_policy& on, Range&& range, Compare less = {},
                          Projection projection = {}) {
    detail::stable_sort_elements(on, detail::elements_of(range), less, projection);
}

} // namespace bide::inline BIDE_ABI

#endif
