// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_INPLACE_MERGE_HPP
#define BIDE_PARALLEL_PARALLEL_INPLACE_MERGE_HPP

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/parallel/detail/element_range.hpp>
#include <bide/parallel/detail/merge_sort.hpp>
#include <bide/parallel/detail/runs.hpp>
#include <bide/parallel/detail/sort_on.hpp>
#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/fork_progress.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <new>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Forker, class It, class Compare>
void inplace_merge_on(Forker forks, It begin, It middle, It end, Compare& less,
                      const fork_options& options) {
    const auto size = static_cast<std::uint64_t>(end - begin);
    detail::in_one_fork(forks, size, options, size, [&](sort_state<Forker>& state) {
        if (begin == middle || middle == end || !less(*middle, *(middle - 1))) {
            return state.count(size);
        }
        merge_sort<Forker, It, Compare> merging(forks, begin, end, less, state);
        if (!merging) {
            BIDE_THROW(std::bad_alloc());
        }
        long_runs<It> runs;
        runs.assign(begin, middle, end);
        merging.run(runs);
    });
}

template <class It, class Compare, class Projection>
void inplace_merge_in(const fork_policy& on, const elements<It>& all, const It& middle,
                      Compare& less, Projection& projection) {
    auto&& call = detail::callable(less, projection);
    const auto first = detail::unwrap(all.first);
    detail::inplace_merge_on(on.forks(), first, first + (middle - all.first),
                             detail::unwrap(all.at(all.size)), call, on.options());
}

} // namespace detail

/// Merges the sorted ranges [first, middle) and [middle, last) by less(projection(a),
/// projection(b)). Allocates a buffer for as many elements. Of equal elements, those of the first
/// range come first, and those of one range keep their order.
/// Blocks, requires: as parallel_stable_sort().
/// Throws: as parallel_stable_sort(). If there is no memory for the buffer, throws std::bad_alloc
/// with nothing changed, where std::inplace_merge works without a buffer.
/// Cancellation: as parallel_stable_sort().
template <class It, class End, class Compare = std::less<>, class Projection = std::identity>
    requires parallel_bounds<It, End> && std::sortable<It, Compare, Projection>
void parallel_inplace_merge(const fork_policy& on, It first, It middle, End last, Compare less = {},
                            Projection projection = {}) {
    detail::inplace_merge_in(on, detail::elements_of(first, last), middle, less, projection);
}

/// Does the same in a range.
template <parallel_range Range, class Compare = std::ranges::less, class Projection = std::identity>
    requires std::sortable<std::ranges::iterator_t<Range>, Compare, Projection>
void parallel_inplace_merge(const fork_policy& on, Range&& range,
                            std::ranges::iterator_t<Range> middle, Compare less = {},
                            Projection projection = {}) {
    detail::inplace_merge_in(on, detail::elements_of(range), middle, less, projection);
}

} // namespace bide::inline BIDE_ABI

#endif
