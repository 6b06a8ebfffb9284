// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_MERGE_HPP
#define BIDE_PARALLEL_PARALLEL_MERGE_HPP

/// \file
/// Merges two sorted ranges: parallel_merge() into a third range, parallel_inplace_merge() within a
/// range. The loop of parallel_merge() runs over the places that are written. By a binary search,
/// each part of the loop finds which elements of both ranges belong to its places. So the work of a
/// part does not depend on how the ranges interleave.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/parallel/detail/merge_sort.hpp>
#include <bide/parallel/detail/parallel_loop.hpp>
#include <bide/parallel/detail/sort_parts.hpp>
#include <bide/parallel/fork_join.hpp>
#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/parallel_range.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// Returns how many of the first n elements of the merged sequence come from the left range. Among
// equal elements, those of the left range come first. comes_first(r, l) returns true if the right
// element `r` comes before the left element `l`.
template <class Left, class Right, class ComesFirst>
std::uint64_t taken_from_left(const elements<Left>& left, const elements<Right>& right,
                              std::uint64_t n, const ComesFirst& comes_first) {
    std::uint64_t low = n > right.size ? n - right.size : 0;
    std::uint64_t high = lesser_of(n, left.size);
    while (low != high) {
        const std::uint64_t middle = low + (high - low) / 2;
        // The left element at `middle` is one of the first n, unless the right element at n -
        // middle - 1 comes before it.
        if (comes_first(*right.at(n - middle - 1), *left.at(middle))) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

// True if elements of both ranges are copied without branches that depend on them.
template <class Left, class Right>
inline constexpr bool merges_branchless =
    is_cheap_to_copy<std::iter_value_t<Left>> &&
    std::is_same_v<std::iter_value_t<Left>, std::iter_value_t<Right>> &&
    std::is_same_v<std::remove_cvref_t<std::iter_reference_t<Left>>, std::iter_value_t<Left>> &&
    std::is_lvalue_reference_v<std::iter_reference_t<Left>> &&
    std::is_same_v<std::iter_reference_t<Left>, std::iter_reference_t<Right>>;

// Merges [left, left_end) and [right, right_end), and writes the result from `to` on, without
// branches that depend on the elements.
template <class Left, class Right, class Out, class ComesFirst>
void merge_copies(Left left, const Left left_end, Right right, const Right right_end, Out to,
                  const ComesFirst& comes_first) {
    while (left != left_end && right != right_end) {
        // In a round, neither side can run out.
        for (auto i = (std::min)(static_cast<std::uint64_t>(left_end - left),
                                 static_cast<std::uint64_t>(right_end - right));
             i != 0; --i, ++to) {
            const std::ptrdiff_t from_right = detail::as_number(comes_first(*right, *left));
            const auto* const next =
                from_right != 0 ? std::addressof(*right) : std::addressof(*left);
            *to = *next;
            right += static_cast<std::iter_difference_t<Right>>(from_right);
            left += static_cast<std::iter_difference_t<Left>>(1 - from_right);
        }
    }
    std::ranges::copy(right, right_end, std::ranges::copy(left, left_end, to).out);
}

// Merges the two parts of a range, of which the first has `size` elements.
template <class On, class It, class Compare>
void inplace_merge(const On& on, const elements<It>& all, std::uint64_t size, Compare& less) {
    const auto begin = detail::unwrap(all.first);
    const auto middle = detail::unwrap(all.at(size));
    const auto end = detail::unwrap(all.end());
    detail::in_one_fork(on, all.size, all.size, [&](auto& state) {
        if (begin == middle || middle == end || !less(*middle, *(middle - 1))) {
            return state.count(all.size);
        }
        using place = std::remove_const_t<decltype(begin)>;
        merge_sort<decltype(on.forks()), place, Compare> merging(on.forks(), begin, end, less,
                                                                 state);
        if (!merging) {
            BIDE_THROW(std::bad_alloc());
        }
        long_runs<place> runs;
        runs.assign(begin, middle, end);
        merging.run(runs);
    });
}

} // namespace detail

/// Merges the sorted ranges `left` and `right` by copying their elements to consecutive places from
/// `out` on, in order. Of equal elements, those of `left` come first, and elements of one range
/// keep their order. Returns the iterator behind the last place. The places must not overlap the
/// ranges. The ranges are compared by less(project_right(r), project_left(l)).
/// Blocks: until all places are written. Meanwhile the caller writes parts of them.
/// Throws: the exception of a comparison or a copy. If several parts of the loop throw, the
/// exception of the first part. After an exception or a stop, some of the places are written. Other
/// exceptions are those of parallel_for().
/// Requires: each range is sorted by less; otherwise each place gets an arbitrary element of the
/// ranges. less and the projections may be called by several threads at once.
/// Cancellation: see fork_options::stop. fork_options::progress counts the places that are written.
template <parallel_range Left, parallel_range Right, class Out, class Compare = std::ranges::less,
          class ProjectLeft = std::identity, class ProjectRight = std::identity>
    requires std::random_access_iterator<Out> && (!detail::packs_bits<Out>) &&
             std::mergeable<std::ranges::iterator_t<Left>, std::ranges::iterator_t<Right>, Out,
                            Compare, ProjectLeft, ProjectRight>
Out parallel_merge(const fork_policy& on, Left&& left, Right&& right, Out out, Compare less = {},
                   ProjectLeft project_left = {}, ProjectRight project_right = {}) {
    const auto l = detail::elements_of(left);
    const auto r = detail::elements_of(right);
    const auto comes_first = [&](auto&& b, auto&& a) -> bool {
        return std::invoke(less, std::invoke(project_right, std::forward<decltype(b)>(b)),
                           std::invoke(project_left, std::forward<decltype(a)>(a)));
    };
    const detail::elements<Out> to{std::move(out), l.size + r.size};
    fork_options options = on.options();
    if (options.grain == 0) {
        options.grain = 8'192; // the two searches of a part cost little beside its copies
    }
    const auto merge_part = [&](std::uint64_t begin, std::uint64_t end) {
        const auto from = detail::taken_from_left(l, r, begin, comes_first);
        // If comparisons contradict each other, this search may find a place before `from`, or a
        // place that is too far behind it.
        const auto until = std::clamp(detail::taken_from_left(l, r, end, comes_first), from,
                                      (std::min)(from + (end - begin), l.size));
        if constexpr (detail::merges_branchless<std::ranges::iterator_t<Left>,
                                                std::ranges::iterator_t<Right>>) {
            detail::merge_copies(l.at(from), l.at(until), r.at(begin - from), r.at(end - until),
                                 to.at(begin), comes_first);
        } else {
            std::ranges::merge(l.at(from), l.at(until), r.at(begin - from), r.at(end - until),
                               to.at(begin), std::ref(less), std::ref(project_left),
                               std::ref(project_right));
        }
    };
    detail::loop_over(fork_policy(on.where(), std::move(options)), to.numbers(), merge_part);
    return to.end();
}

/// Merges [left, left_end) and [right, right_end) in the same way.
template <class Left, detail::parallel_end<Left> LeftEnd, class Right,
          detail::parallel_end<Right> RightEnd, class... Args>
auto parallel_merge(const fork_policy& on, Left left, LeftEnd left_end, Right right,
                    RightEnd right_end, Args&&... args) {
    return bide::parallel_merge(on, detail::elements_of(left, left_end),
                                detail::elements_of(right, right_end), std::forward<Args>(args)...);
}

/// Merges two sorted parts of a range, the part before `middle` and the part from `middle` on, by
/// less(projection(a), projection(b)). Allocates a buffer for as many elements as the range has. Of
/// equal elements, those of the first part come first, and those of one part keep their order.
/// Blocks, requires: as parallel_stable_sort().
/// Throws: as parallel_stable_sort(). If there is no memory for the buffer, throws std::bad_alloc
/// with nothing changed; std::inplace_merge would work without a buffer.
/// Cancellation: as parallel_stable_sort().
template <parallel_range Range, class Compare = std::less<>, class Projection = std::identity>
    requires std::sortable<std::ranges::iterator_t<Range>, Compare, Projection>
void parallel_inplace_merge(const fork_policy& on, Range&& range,
                            std::ranges::iterator_t<Range> middle, Compare less = {},
                            Projection projection = {}) {
    auto&& call = detail::callable(less, projection);
    const auto all = detail::elements_of(range);
    detail::inplace_merge(on, all, static_cast<std::uint64_t>(middle - all.first), call);
}

/// Does the same in [first, last).
template <class It, detail::parallel_end<It> End, class... Args>
    requires detail::sortable_by<It, std::decay_t<Args>...>
void parallel_inplace_merge(const fork_policy& on, It first, It middle, End last, Args&&... args) {
    bide::parallel_inplace_merge(on, detail::elements_of(first, last), middle,
                                 std::forward<Args>(args)...);
}

}} // namespace bide::BIDE_ABI

#endif
