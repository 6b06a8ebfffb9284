// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_NTH_ELEMENT_HPP
#define BIDE_PARALLEL_PARALLEL_NTH_ELEMENT_HPP

/// \file
/// Sorts a part of a range. parallel_nth_element() puts at one given place the element that a sort
/// would put there. parallel_partial_sort() sorts only the least elements. No input takes quadratic
/// time.

#include <bide/parallel/parallel_sort.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// `nth` is the number of the place.
template <class On, class It, class Compare>
void nth_element(const On& on, const elements<It>& all, std::uint64_t nth, Compare& less) {
    detail::in_one_fork(on, all.size, all.size, [&](auto& state) {
        if (nth == all.size) {
            return state.count(all.size);
        }
        const auto begin = detail::unwrap(all.first);
        quick_sort(on.forks(), begin, less, state)
            .select(begin, detail::unwrap(all.at(nth)), detail::unwrap(all.end()));
    });
}

template <class On, class It, class Compare>
void partial_sort(const On& on, const elements<It>& all, std::uint64_t sorted, Compare& less) {
    const auto begin = detail::unwrap(all.first);
    const auto middle = detail::unwrap(all.at(sorted));
    detail::in_one_fork(on, all.size, all.size + sorted, [&](auto& state) {
        if (sorted == 0 || sorted == all.size) {
            state.count(all.size);
        } else {
            quick_sort(on.forks(), begin, less, state)
                .select(begin, middle, detail::unwrap(all.end()));
        }
        if (sorted != 0 && !state.leaves_out(0)) {
            detail::sort_here<false>(on.forks(), begin, middle, less, state);
        }
    });
}

} // namespace detail

/// Moves to `nth` the element that a sort of the range by less(projection(a), projection(b)) would
/// put there. Afterwards no element before `nth` is greater, and no element behind it is less. If
/// nth is the end, does nothing. The order of the other elements depends only on the range and nth,
/// and not on the number of workers.
/// Blocks, throws, requires: as parallel_sort().
/// Cancellation: as parallel_sort(). fork_options::progress counts the elements that the algorithm
/// need not examine again.
/// Complexity: O(n) comparisons for random elements, and O(n log n) in the worst case.
template <parallel_range Range, class Compare = std::less<>, class Projection = std::identity>
    requires std::sortable<std::ranges::iterator_t<Range>, Compare, Projection>
void parallel_nth_element(const fork_policy& on, Range&& range, std::ranges::iterator_t<Range> nth,
                          Compare less = {}, Projection projection = {}) {
    auto&& call = detail::callable(less, projection);
    const auto all = detail::elements_of(range);
    detail::nth_element(on, all, static_cast<std::uint64_t>(nth - all.first), call);
}

/// Does the same in [first, last).
template <class It, detail::parallel_end<It> End, class... Args>
    requires detail::sortable_by<It, std::decay_t<Args>...>
void parallel_nth_element(const fork_policy& on, It first, It nth, End last, Args&&... args) {
    bide::parallel_nth_element(on, detail::elements_of(first, last), nth,
                               std::forward<Args>(args)...);
}

/// Moves the least elements of the range by less(projection(a), projection(b)) to the places before
/// `middle`, and sorts them. The other elements end up behind them. Equal elements end up in any
/// order. The order depends only on the range and middle, and not on the number of workers.
/// Blocks, throws, requires: as parallel_sort().
/// Cancellation: as parallel_sort(). fork_options::progress first counts the elements that are
/// known to be on the correct side of `middle`. Then it counts the elements before `middle` whose
/// place is final.
/// Complexity: O(n + m log m) comparisons for random elements, where m elements are sorted, and
/// O(n log n) in the worst case.
template <parallel_range Range, class Compare = std::less<>, class Projection = std::identity>
    requires std::sortable<std::ranges::iterator_t<Range>, Compare, Projection>
void parallel_partial_sort(const fork_policy& on, Range&& range,
                           std::ranges::iterator_t<Range> middle, Compare less = {},
                           Projection projection = {}) {
    auto&& call = detail::callable(less, projection);
    const auto all = detail::elements_of(range);
    detail::partial_sort(on, all, static_cast<std::uint64_t>(middle - all.first), call);
}

/// Does the same in [first, last).
template <class It, detail::parallel_end<It> End, class... Args>
    requires detail::sortable_by<It, std::decay_t<Args>...>
void parallel_partial_sort(const fork_policy& on, It first, It middle, End last, Args&&... args) {
    bide::parallel_partial_sort(on, detail::elements_of(first, last), middle,
                                std::forward<Args>(args)...);
}

}} // namespace bide::BIDE_ABI

#endif
