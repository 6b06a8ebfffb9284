#ifndef BIDE_PARALLEL_PARALLEL_SORT_HPP
#define BIDE_PARALLEL_PARALLEL_SORT_HPP

// Sorting in parallel, in place or stably. Neither is ever quadratic, and both are near linear on
// what is sorted, reversed, equal, or made of a few sorted pieces; the unstable one also where there
// are few distinct values.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/parallel/detail/forker.hpp>
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

// Ranges up to this size are not searched for runs: there is not enough to be won.
inline constexpr std::ptrdiff_t too_small_for_runs = 64;

// Of vector<bool> and its like: neighbours share a word, which two threads must not write to.
template <class It>
concept packs_bits = std::is_same_v<std::iter_value_t<It>, bool> &&
                     !std::is_lvalue_reference_v<std::iter_reference_t<It>>;

// Reverses a single run if need be, without a buffer. False: there is more to do.
template <class It> bool settle_one_run(const long_runs<It>& runs) {
    if (runs.size() != 1) {
        return false;
    }
    if (runs.descends(0)) {
        std::ranges::reverse(runs.begin_of(0), runs.end_of(0));
    }
    return true;
}

// As above, but by merging, if there is memory for it.
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

// Calls it in one fork-join from beginning to end: a scheduler that is shut down meanwhile waits for
// the whole of it. Shorter ranges are not forked.
template <class Forker, class It, class Sort>
void in_one_fork(Forker forks, It begin, It end, const Sort& sort) {
    if (end - begin < sort_fork_size) {
        sort();
    } else {
        forks.enter(sort);
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

// Sorts [first, last) by less(a, b). Equal elements end up in any order. Elements are moved by
// std::ranges::iter_move() or swapped by std::ranges::iter_swap(), never copied unless that is
// trivial; so the iterator's reference may be a proxy. A few pieces that are sorted are merged, in a
// buffer, if there is memory for it; otherwise it works in place.
// Blocks: until it is sorted; the caller sorts parts of it, beside the workers. A short range
// is sorted by the calling thread alone.
// Throws: what a comparison throws, the first one in the order of the range if several do; the
// range then has the same elements as before, in some order. If a move throws, they live, but their
// values are unspecified. stopped_error as join(), with nothing changed; std::bad_alloc where a
// thread finds no memory to fork: then as where a comparison throws.
// Requires: less is a strict weak order, or else the elements end up in any order; it may be called
// from several threads at once. So may different elements be accessed, which excludes vector<bool>.
template <std::random_access_iterator It, class Compare = std::less<>>
    requires std::sortable<It, Compare> && (!detail::packs_bits<It>)
void parallel_sort(scheduler& s, It first, It last, Compare less = {}) {
    auto&& call = detail::callable(less);
    detail::sort_on(detail::forker(s), detail::bare(first), detail::bare(last), call);
}

// The same, but equal elements keep their order, and there is a buffer for as many elements, which
// is allocated once, before anything is touched.
// Throws: as parallel_sort(); for want of that buffer std::bad_alloc, with nothing changed.
template <std::random_access_iterator It, class Compare = std::less<>>
    requires std::sortable<It, Compare> && (!detail::packs_bits<It>)
void parallel_stable_sort(scheduler& s, It first, It last, Compare less = {}) {
    auto&& call = detail::callable(less);
    detail::stable_sort_on(detail::forker(s), detail::bare(first), detail::bare(last), call);
}

} // namespace bide::inline BIDE_ABI

#endif
