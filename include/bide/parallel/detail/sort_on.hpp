// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_SORT_ON_HPP
#define BIDE_PARALLEL_DETAIL_SORT_ON_HPP

// How a sort begins and ends, and which algorithm sorts a range: a merge of the pieces that are
// sorted already, or a quick sort or a merge sort of all.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/parallel/detail/loop_state.hpp>
#include <bide/parallel/detail/merge_sort.hpp>
#include <bide/parallel/detail/quick_sort.hpp>
#include <bide/parallel/detail/runs.hpp>
#include <bide/parallel/detail/sort_parts.hpp>
#include <bide/parallel/fork_progress.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <type_traits>

namespace bide::inline BIDE_ABI {
namespace detail {

// Ranges up to this size are not searched for runs: the search would cost more than it saves.
inline constexpr std::ptrdiff_t too_small_for_runs = 64;

// The state that the parts of a sort share.
template <class Forker> using sort_state = basic_loop_state<typename Forker::platform>;

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

// Sorts a range of few runs by merging. Returns false if the range has many runs, or if there is no
// memory.
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

// Calls sort(state) in one fork-join, so that a shutdown of the scheduler waits for the whole sort.
// If there are less than sort_fork_size elements, calls it without a fork-join; if there are none,
// does not call it. `steps` is what the progress counts.
// Throws: stopped_error if a part was left out because of a stop.
template <class Forker, class Sort>
void in_one_fork(Forker forks, std::uint64_t elements, const fork_options& options,
                 std::uint64_t steps, const Sort& sort) {
    sort_state<Forker> state(options, steps);
    if (elements != 0 && !state.leaves_out(0)) {
        if (elements < static_cast<std::uint64_t>(sort_fork_size)) {
            sort(state);
        } else {
            forks.enter([&] { sort(state); });
        }
    }
    state.finish();
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
void sort_here(Forker forks, It begin, It end, Compare& less, sort_state<Forker>& state) {
    if (!detail::merge_few_runs(forks, begin, end, less, state)) {
        quick_sort<Forker, It, Compare>(forks, begin, less, state).run(begin, end);
    }
}

template <class Forker, class It, class Compare>
void sort_on(Forker forks, It begin, It end, Compare& less, const fork_options& options = {}) {
    const auto size = static_cast<std::uint64_t>(end - begin);
    detail::in_one_fork(forks, size, options, size, [&](sort_state<Forker>& state) {
        detail::sort_here(forks, begin, end, less, state);
    });
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

template <class Forker, class It, class Compare>
void stable_sort_on(Forker forks, It begin, It end, Compare& less,
                    const fork_options& options = {}) {
    const auto size = static_cast<std::uint64_t>(end - begin);
    detail::in_one_fork(forks, size, options, size, [&](sort_state<Forker>& state) {
        detail::stable_sort_here(forks, begin, end, less, state);
    });
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
