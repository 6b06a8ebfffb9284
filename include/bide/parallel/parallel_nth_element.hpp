// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_NTH_ELEMENT_HPP
#define BIDE_PARALLEL_PARALLEL_NTH_ELEMENT_HPP

/// \file
/// Sorts a part of a range: parallel_nth_element() finds the element that a sort would put at one
/// place, parallel_partial_sort() sorts the least elements. Neither is ever quadratic.

#include <bide/core/config.hpp>
#include <bide/parallel/detail/element_range.hpp>
#include <bide/parallel/detail/select.hpp>
#include <bide/parallel/detail/sort_on.hpp>
#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/fork_progress.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Forker, class It, class Compare>
void nth_element_on(Forker forks, It begin, It nth, It end, Compare& less,
                    const fork_options& options) {
    const auto size = static_cast<std::uint64_t>(end - begin);
    detail::in_one_fork(forks, size, options, size, [&](sort_state<Forker>& state) {
        if (nth == end) {
            return state.count(size);
        }
        detail::select(forks, begin, nth, end, less, state);
    });
}

template <class Forker, class It, class Compare>
void partial_sort_on(Forker forks, It begin, It middle, It end, Compare& less,
                     const fork_options& options) {
    const auto size = static_cast<std::uint64_t>(end - begin);
    const auto sorted = static_cast<std::uint64_t>(middle - begin);
    detail::in_one_fork(forks, size, options, size + sorted, [&](sort_state<Forker>& state) {
        if (begin == middle || middle == end) {
            state.count(size);
        } else {
            detail::select(forks, begin, middle, end, less, state);
        }
        if (begin != middle && !state.leaves_out(0)) {
            detail::sort_here(forks, begin, middle, less, state);
        }
    });
}

template <class It, class Compare, class Projection>
void nth_element_in(const fork_policy& on, const elements<It>& all, const It& nth, Compare& less,
                    Projection& projection) {
    auto&& call = detail::callable(less, projection);
    const auto first = detail::unwrap(all.first);
    detail::nth_element_on(on.forks(), first, first + (nth - all.first),
                           detail::unwrap(all.at(all.size)), call, on.options());
}

template <class It, class Compare, class Projection>
void partial_sort_in(const fork_policy& on, const elements<It>& all, const It& middle,
                     Compare& less, Projection& projection) {
    auto&& call = detail::callable(less, projection);
    const auto first = detail::unwrap(all.first);
    detail::partial_sort_on(on.forks(), first, first + (middle - all.first),
                            detail::unwrap(all.at(all.size)), call, on.options());
}

} // namespace detail

/// Moves to `nth` the element that a sort of [first, last) by less(projection(a), projection(b))
/// would put there. Then no element before it is greater, and no element behind it is less. If nth
/// is the end, does nothing. The order of the other elements depends on the range and nth alone,
/// not on the number of workers.
/// Blocks, throws, requires: as parallel_sort().
/// Cancellation: as parallel_sort(). options.progress counts the elements that need not be looked at
/// again.
/// Complexity: O(n) comparisons for random elements, and O(n log n) in the worst case.
template <class It, class End, class Compare = std::less<>, class Projection = std::identity>
    requires parallel_bounds<It, End> && std::sortable<It, Compare, Projection>
void parallel_nth_element(const fork_policy& on, It first, It nth, End last, Compare less = {},
                          Projection projection = {}) {
    detail::nth_element_in(on, detail::elements_of(first, last), nth, less, projection);
}

/// Does the same in a range.
template <parallel_range Range, class Compare = std::ranges::less, class Projection = std::identity>
    requires std::sortable<std::ranges::iterator_t<Range>, Compare, Projection>
void parallel_nth_element(const fork_policy& on, Range&& range, std::ranges::iterator_t<Range> nth,
                          Compare less = {}, Projection projection = {}) {
    detail::nth_element_in(on, detail::elements_of(range), nth, less, projection);
}

/// Moves the least elements of [first, last) by less(projection(a), projection(b)) to the places
/// before `middle`, and sorts them. The other elements end up behind them. Equal elements end up in
/// any order. The order depends on the range and middle alone, not on the number of workers.
/// Blocks, throws, requires: as parallel_sort().
/// Cancellation: as parallel_sort(). options.progress counts the elements that are on the right side
/// of `middle`, and then those whose place before it is final.
/// Complexity: O(n + m log m) comparisons for random elements, where m elements are sorted, and
/// O(n log n) in the worst case.
template <class It, class End, class Compare = std::less<>, class Projection = std::identity>
    requires parallel_bounds<It, End> && std::sortable<It, Compare, Projection>
void parallel_partial_sort(const fork_policy& on, It first, It middle, End last, Compare less = {},
                           Projection projection = {}) {
    detail::partial_sort_in(on, detail::elements_of(first, last), middle, less, projection);
}

/// Does the same in a range.
template <parallel_range Range, class Compare = std::ranges::less, class Projection = std::identity>
    requires std::sortable<std::ranges::iterator_t<Range>, Compare, Projection>
void parallel_partial_sort(const fork_policy& on, Range&& range,
                           std::ranges::iterator_t<Range> middle, Compare less = {},
                           Projection projection = {}) {
    detail::partial_sort_in(on, detail::elements_of(range), middle, less, projection);
}

} // namespace bide::inline BIDE_ABI

#endif
