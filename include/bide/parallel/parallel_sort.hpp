// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_SORT_HPP
#define BIDE_PARALLEL_PARALLEL_SORT_HPP

/// \file
/// Sorts in parallel: parallel_sort() in place, parallel_stable_sort() stably. Neither takes
/// quadratic time for any input. Both take nearly linear time if the range is sorted, reversed, all
/// equal, or made of a few sorted pieces. parallel_sort() also takes nearly linear time if there
/// are few distinct values.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/parallel/detail/elements.hpp>
#include <bide/parallel/detail/merge_sort.hpp>
#include <bide/parallel/detail/quick_sort.hpp>
#include <bide/parallel/detail/sort_parts.hpp>
#include <bide/parallel/fork_join.hpp>
#include <bide/parallel/fork_policy.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <new>
#include <utility>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// Chooses the algorithm that sorts a range: a merge of the pieces that are sorted already, or a
// quick sort or merge sort of the whole range.

// Ranges up to this size are not searched for runs: the search would cost more than it saves.
inline constexpr std::ptrdiff_t too_small_for_runs = 64;

// If there is one run, makes it ascend, without a buffer. Returns false if there are more.
template <class Forker, class It>
bool settle_one_run(const Forker& forks, const long_runs<It>& runs, sort_state<Forker>& state) {
    if (runs.size() != 1) {
        return false;
    }
    if (runs.descends(0)) {
        detail::reverse_in_parallel(forks, runs.begin_of(0), runs.end_of(0));
    }
    state.count(static_cast<std::uint64_t>(runs.end_of(0) - runs.begin_of(0)));
    return true;
}

// Sorts a range of few runs by merging. If the range has many runs, or if there is no memory,
// returns false.
template <class Forker, class It, class Compare>
bool merge_few_runs(Forker forks, It begin, It end, Compare& less, sort_state<Forker>& state) {
    long_runs<It> runs;
    if (end - begin <= too_small_for_runs || !runs.find(forks, begin, end, less)) {
        return false;
    }
    if (detail::settle_one_run(forks, runs, state)) {
        return true;
    }
    merge_sort<Forker, It, Compare> merging(forks, begin, end, less, state);
    if (!merging) {
        return false;
    }
    merging.run(runs);
    return true;
}

template <class Forker, class It, class Compare>
void sort_here(Forker forks, It begin, It end, Compare& less, sort_state<Forker>& state) {
    if (!detail::merge_few_runs(forks, begin, end, less, state)) {
        quick_sort<Forker, It, Compare>(forks, begin, less, state).run(begin, end);
    }
}

template <class Forker, class It, class Compare>
void stable_sort_here(Forker forks, It begin, It end, Compare& less, sort_state<Forker>& state) {
    if (end - begin <= too_small_for_runs / 4) {
        detail::insertion_sort(begin, end, less);
        return state.count(static_cast<std::uint64_t>(end - begin));
    }
    long_runs<It> runs;
    const bool has_runs = end - begin > too_small_for_runs && runs.find(forks, begin, end, less);
    if (has_runs && detail::settle_one_run(forks, runs, state)) {
        return;
    }
    merge_sort<Forker, It, Compare> merging(forks, begin, end, less, state);
    if (!merging) {
        BIDE_THROW(std::bad_alloc());
    }
    if (has_runs) {
        merging.run(runs);
    } else {
        merging.run();
    }
}

template <class On, class It, class Compare>
void sort(const On& on, const elements<It>& all, Compare& less) {
    detail::in_one_fork(on, all.size, all.size, [&](auto& state) {
        detail::sort_here(on.forks(), detail::unwrap(all.first), detail::unwrap(all.end()), less,
                          state);
    });
}

template <class On, class It, class Compare>
void stable_sort(const On& on, const elements<It>& all, Compare& less) {
    detail::in_one_fork(on, all.size, all.size, [&](auto& state) {
        detail::stable_sort_here(on.forks(), detail::unwrap(all.first), detail::unwrap(all.end()),
                                 less, state);
    });
}

} // namespace detail

/// Sorts the range by less(projection(a), projection(b)): `parallel_sort(s, people, {},
/// &person::age)`. The order of equal elements depends only on the range, and not on the number of
/// workers. Elements are moved by std::ranges::iter_move() or swapped by std::ranges::iter_swap(),
/// and copied only if copying is trivial. So the iterator's reference may be a proxy. If the range
/// is made of a few sorted pieces, they are merged in a buffer, if there is memory for it.
/// Otherwise the sort works in place.
/// Blocks: until the range is sorted. Meanwhile the caller sorts parts of it. A short range is
/// sorted by the calling thread alone.
/// Throws: what a comparison throws. If several comparisons throw, the exception of the first one
/// in the order of the range. The range then has the same elements as before, in some order. If a
/// move throws, all elements are alive, but their values are unspecified. stopped_error as join(),
/// with nothing changed. std::bad_alloc if a thread finds no memory to fork; the range is then as
/// after a comparison that throws.
/// Requires: less is a strict weak order; otherwise the elements end up in any order. Several
/// threads may call less at once. They also access different elements at once, which excludes
/// vector<bool>.
/// Cancellation: a stop takes effect between parts of the sort. If it leaves out a part, throws
/// stopped_error, and the range has the same elements as before, in some order.
/// fork_options::progress counts the elements whose place is final. fork_options::grain is ignored.
/// Complexity: O(n log n) comparisons.
template <parallel_range Range, class Compare = std::ranges::less, class Projection = std::identity>
    requires std::sortable<std::ranges::iterator_t<Range>, Compare, Projection>
void parallel_sort(const fork_policy& on, Range&& range, Compare less = {},
                   Projection projection = {}) {
    auto&& call = detail::callable(less, projection);
    detail::sort(on, detail::elements_of(range), call);
}

/// Sorts [first, last) in the same way.
template <class It, detail::parallel_end<It> End, class Compare = std::less<>,
          class Projection = std::identity>
    requires std::sortable<It, Compare, Projection>
void parallel_sort(const fork_policy& on, It first, End last, Compare less = {},
                   Projection projection = {}) {
    bide::parallel_sort(on, detail::elements_of(first, last), std::move(less),
                        std::move(projection));
}

/// Sorts as parallel_sort() does, but equal elements keep their order. So the result is the same on
/// any number of workers. Before it changes anything, it allocates a buffer for as many elements.
/// Throws: as parallel_sort(). std::bad_alloc, with nothing changed, if there is no memory for the
/// buffer.
/// Cancellation: as parallel_sort(). The places of the elements become final in the last merge.
template <parallel_range Range, class Compare = std::ranges::less, class Projection = std::identity>
    requires std::sortable<std::ranges::iterator_t<Range>, Compare, Projection>
void parallel_stable_sort(const fork_policy& on, Range&& range, Compare less = {},
                          Projection projection = {}) {
    auto&& call = detail::callable(less, projection);
    detail::stable_sort(on, detail::elements_of(range), call);
}

/// Sorts [first, last) stably, in the same way.
template <class It, detail::parallel_end<It> End, class Compare = std::less<>,
          class Projection = std::identity>
    requires std::sortable<It, Compare, Projection>
void parallel_stable_sort(const fork_policy& on, It first, End last, Compare less = {},
                          Projection projection = {}) {
    bide::parallel_stable_sort(on, detail::elements_of(first, last), std::move(less),
                               std::move(projection));
}

}} // namespace bide::BIDE_ABI

#endif
