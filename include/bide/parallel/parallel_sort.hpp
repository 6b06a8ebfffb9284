// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_SORT_HPP
#define BIDE_PARALLEL_PARALLEL_SORT_HPP

/// \file
/// Sorts in parallel: parallel_sort() in place, parallel_stable_sort() stably. No input takes
/// quadratic time. Both take nearly linear time if the range is sorted, reversed, all equal, or
/// made of a few sorted pieces. parallel_sort() also takes nearly linear time if there are few
/// distinct values.

#include <bide/parallel/parallel_merge.hpp>
#include <bide/parallel/parallel_partition.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// Sorts a part of a range. If the part is one ascending run, does nothing; if it is one descending
// run, reverses it. If it consists of a few runs, merges the runs. For any other part, a stable
// sort uses merge sort, and an unstable sort uses quick sort. An unstable sort also uses quick sort
// if there is no memory to merge runs.
// Throws: std::bad_alloc if a stable sort finds no memory.
template <bool Stable, class Forker, class It, class Compare>
void sort_here(Forker forks, It begin, It end, Compare& less, sort_state<Forker>& state) {
    constexpr std::ptrdiff_t too_small_for_runs = 64; // the search would cost more than it saves
    const auto size = static_cast<std::uint64_t>(end - begin);
    if (Stable && end - begin <= too_small_for_runs / 4) {
        detail::insertion_sort(begin, end, less);
        return state.count(size);
    }
    long_runs<It> runs;
    const bool has_runs = end - begin > too_small_for_runs && runs.find(forks, begin, end, less);
    if (has_runs && runs.size() == 1) {
        if (runs.descends(0)) {
            detail::reverse_in_parallel(forks, begin, end);
        }
        return state.count(size);
    }
    if (Stable || has_runs) {
        merge_sort merging(forks, begin, end, less, state);
        if (merging && has_runs) {
            return merging.run(runs);
        }
        if constexpr (Stable) {
            if (merging) {
                return merging.run();
            }
            BIDE_THROW(std::bad_alloc());
        }
    }
    if constexpr (!Stable) {
        quick_sort(forks, begin, less, state).run(begin, end);
    }
}

template <bool Stable, class On, class It, class Compare>
void sort(const On& on, const elements<It>& all, Compare& less) {
    detail::in_one_fork(on, all.size, all.size, [&](auto& state) {
        detail::sort_here<Stable>(on.forks(), detail::unwrap(all.first), detail::unwrap(all.end()),
                                  less, state);
    });
}

} // namespace detail

/// Sorts the range in place: element a comes before element b if less(projection(a), projection(b))
/// is true. For example, `parallel_sort(s, people, {}, &person::age)` sorts people by their age.
///
/// Equal elements may change their order. Their new order depends only on the range: it is the same
/// on any number of workers. If the range consists of a few sorted pieces, the pieces are merged in
/// a buffer, if there is memory for it. In all other cases, the sort needs no memory.
///
/// An element is moved by std::ranges::iter_move() or swapped by std::ranges::iter_swap(). It is
/// copied only if it is trivially copyable. So an iterator may return a proxy in place of a
/// reference.
/// Blocks: until the range is sorted. Meanwhile the caller sorts parts of it. A short range is
/// sorted by the calling thread alone.
/// Throws: what a comparison throws. If several comparisons throw, the exception of the first one
/// in the order of the range. In this case, the range has the same elements as before, in some
/// order. If a move throws, all elements are alive, but their values are unspecified. stopped_error
/// if the scheduler is shutting down, as in join(), with nothing changed. std::bad_alloc if there
/// is no memory to fork. The range is then in the same state as if a comparison had thrown.
/// Requires: less is a strict weak order; otherwise the elements end up in any order. Several
/// threads may call less at once. Several threads also access different elements at once, which
/// excludes vector<bool>.
/// Cancellation: a stop takes effect between parts of the sort. If a part is skipped, throws
/// stopped_error, and the range has the same elements as before, in some order.
/// fork_options::progress counts the elements whose place is final. fork_options::grain is ignored.
/// Complexity: O(n log n) comparisons.
template <parallel_range Range, class Compare = std::less<>, class Projection = std::identity>
    requires std::sortable<std::ranges::iterator_t<Range>, Compare, Projection>
void parallel_sort(const fork_policy& on, Range&& range, Compare less = {},
                   Projection projection = {}) {
    auto&& call = detail::callable(less, projection);
    detail::sort<false>(on, detail::elements_of(range), call);
}

/// Sorts [first, last) in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_sort, requires detail::sortable_by<It, std::decay_t<Args>...>);

/// Sorts as parallel_sort() does, but equal elements keep their order. So the result is the same on
/// any number of workers. Before it changes anything, it allocates a buffer of the size of the
/// range.
/// Throws: as parallel_sort(). std::bad_alloc, with nothing changed, if there is no memory for the
/// buffer.
/// Cancellation: as parallel_sort(). fork_options::progress counts the elements in the last merge,
/// because their places are not final before.
template <parallel_range Range, class Compare = std::less<>, class Projection = std::identity>
    requires std::sortable<std::ranges::iterator_t<Range>, Compare, Projection>
void parallel_stable_sort(const fork_policy& on, Range&& range, Compare less = {},
                          Projection projection = {}) {
    auto&& call = detail::callable(less, projection);
    detail::sort<true>(on, detail::elements_of(range), call);
}

/// Sorts [first, last) stably, in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_stable_sort,
                            requires detail::sortable_by<It, std::decay_t<Args>...>);

}} // namespace bide::BIDE_ABI

#endif
