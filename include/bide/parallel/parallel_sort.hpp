// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_SORT_HPP
#define BIDE_PARALLEL_PARALLEL_SORT_HPP

/// \file
/// Sorts in parallel: parallel_sort() in place, parallel_stable_sort() stably. Neither is ever
/// quadratic. Both take nearly linear time if the range is sorted, reversed, all equal, or made of
/// a few sorted pieces. parallel_sort() also does if there are few distinct values.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/parallel/detail/element_range.hpp>
#include <bide/parallel/detail/fork_entry.hpp>
#include <bide/parallel/detail/merge_sort.hpp>
#include <bide/parallel/detail/quick_sort.hpp>
#include <bide/parallel/detail/runs.hpp>
#include <bide/parallel/detail/sort_parts.hpp>
#include <bide/sched/scheduler.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <new>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// Ranges up to this size are not searched for runs: the search would cost more than it saves.
inline constexpr std::ptrdiff_t too_small_for_runs = 64;

// If there is one run, makes it ascend, without a buffer. Returns false if there are more.
template <class It> bool settle_one_run(const long_runs<It>& runs) {
    if (runs.size() != 1) {
        return false;
    }
    if (runs.descends(0)) {
        std::ranges::reverse(runs.begin_of(0), runs.end_of(0));
    }
    return true;
}

// Sorts a range of few runs by merging. Returns false if the range has many runs, or if there is no
// memory.
template <class Forker, class It, class Compare>
bool merge_few_runs(Forker forks, It begin, It end, Compare& less) {
    long_runs<It> runs;
    if (end - begin <= too_small_for_runs || !runs.find(forks, begin, end, less)) {
        return false;
    }
    if (detail::settle_one_run(runs)) {
        return true;
    }
    merge_sort<Forker, It, Compare> merging(forks, begin, end, less);
    if (!merging) {
        return false;
    }
    merging.run(runs);
    return true;
}

// Calls sort() in one fork-join, so that a shutdown of the scheduler waits for the whole sort. A
// range shorter than sort_fork_size is sorted without a fork-join.
template <class Forker, class It, class Sort>
void in_one_fork(Forker forks, It begin, It end, const Sort& sort) {
    if (end - begin < sort_fork_size) {
        sort();
    } else {
        forks.enter(sort);
    }
}

// Returns what can be called as less(projection(a), projection(b)).
template <class Compare, class Projection>
decltype(auto) callable(Compare& less, Projection& projection) noexcept {
    if constexpr (std::is_same_v<Projection, std::identity>) {
        return detail::callable(less);
    } else {
        return [&less, &projection](auto&& a, auto&& b) -> bool {
            return std::invoke(less, std::invoke(projection, static_cast<decltype(a)>(a)),
                               std::invoke(projection, static_cast<decltype(b)>(b)));
        };
    }
}

template <class Forker, class It, class Compare>
void sort_on(Forker forks, It begin, It end, Compare& less) {
    detail::in_one_fork(forks, begin, end, [&] {
        if (!detail::merge_few_runs(forks, begin, end, less)) {
            quick_sort<Forker, It, Compare>(forks, begin, end, less).run();
        }
    });
}

template <class Forker, class It, class Compare>
void stable_sort_here(Forker forks, It begin, It end, Compare& less) {
    long_runs<It> runs;
    const bool has_runs = end - begin > too_small_for_runs && runs.find(forks, begin, end, less);
    if (has_runs && detail::settle_one_run(runs)) {
        return;
    }
    merge_sort<Forker, It, Compare> merging(forks, begin, end, less);
    if (!merging) {
        BIDE_THROW(std::bad_alloc());
    }
    if (has_runs) {
        merging.run(runs);
    } else {
        merging.run();
    }
}

template <class Forker, class It, class Compare>
void stable_sort_on(Forker forks, It begin, It end, Compare& less) {
    if (end - begin <= too_small_for_runs / 4) {
        return detail::insertion_sort(begin, end, less);
    }
    detail::in_one_fork(forks, begin, end,
                        [&] { detail::stable_sort_here(forks, begin, end, less); });
}

} // namespace detail

/// Sorts [first, last) by less(a, b). Equal elements end up in any order. Elements are moved by
/// std::ranges::iter_move() or swapped by std::ranges::iter_swap(), and copied only if copying is
/// trivial. So the iterator's reference may be a proxy. If the range is made of a few sorted
/// pieces, they are merged in a buffer, if there is memory for it. Otherwise the sort works in
/// place.
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
/// Complexity: O(n log n) comparisons.
template <std::random_access_iterator It, class Compare = std::less<>>
    requires std::sortable<It, Compare> && (!detail::packs_bits<It>)
void parallel_sort(scheduler& s, It first, It last, Compare less = {}) {
    auto&& call = detail::callable(less);
    detail::sort_on(detail::forker(s), detail::unwrap(first), detail::unwrap(last), call);
}

/// Sorts [first, last) by less(projection(a), projection(b)), otherwise as above.
template <std::random_access_iterator It, class Compare, class Projection>
    requires std::sortable<It, Compare, Projection> && (!detail::packs_bits<It>)
void parallel_sort(scheduler& s, It first, It last, Compare less, Projection projection) {
    auto&& call = detail::callable(less, projection);
    detail::sort_on(detail::forker(s), detail::unwrap(first), detail::unwrap(last), call);
}

/// Sorts a range, by less(projection(a), projection(b)): `parallel_sort(s, people, {}, &person::age)`.
template <parallel_range Range, class Compare = std::ranges::less, class Projection = std::identity>
    requires std::sortable<std::ranges::iterator_t<Range>, Compare, Projection>
void parallel_sort(scheduler& s, Range&& range, Compare less = {}, Projection projection = {}) {
    const auto all = detail::elements_of(range);
    bide::parallel_sort(s, all.first, all.at(all.size), std::move(less), std::move(projection));
}

/// Sorts as parallel_sort() does, but equal elements keep their order. Allocates a buffer for as
/// many elements, once, before anything is changed.
/// Throws: as parallel_sort(). std::bad_alloc, with nothing changed, if there is no memory for the
/// buffer.
template <std::random_access_iterator It, class Compare = std::less<>>
    requires std::sortable<It, Compare> && (!detail::packs_bits<It>)
void parallel_stable_sort(scheduler& s, It first, It last, Compare less = {}) {
    auto&& call = detail::callable(less);
    detail::stable_sort_on(detail::forker(s), detail::unwrap(first), detail::unwrap(last), call);
}

/// Sorts [first, last) stably by less(projection(a), projection(b)), otherwise as above.
template <std::random_access_iterator It, class Compare, class Projection>
    requires std::sortable<It, Compare, Projection> && (!detail::packs_bits<It>)
void parallel_stable_sort(scheduler& s, It first, It last, Compare less, Projection projection) {
    auto&& call = detail::callable(less, projection);
    detail::stable_sort_on(detail::forker(s), detail::unwrap(first), detail::unwrap(last), call);
}

/// Sorts a range stably, by less(projection(a), projection(b)).
template <parallel_range Range, class Compare = std::ranges::less, class Projection = std::identity>
    requires std::sortable<std::ranges::iterator_t<Range>, Compare, Projection>
void parallel_stable_sort(scheduler& s, Range&& range, Compare less = {},
                          Projection projection = {}) {
    const auto all = detail::elements_of(range);
    bide::parallel_stable_sort(s, all.first, all.at(all.size), std::move(less),
                               std::move(projection));
}

} // namespace bide::inline BIDE_ABI

#endif
