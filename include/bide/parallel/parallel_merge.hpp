// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_MERGE_HPP
#define BIDE_PARALLEL_PARALLEL_MERGE_HPP

/// \file
/// Merges two sorted ranges into a third place: parallel_merge(). The loop runs over the places that
/// are written. A part finds by a binary search which elements of both ranges belong there. So its
/// work does not depend on how the ranges interleave.

#include <bide/core/config.hpp>
#include <bide/parallel/detail/element_range.hpp>
#include <bide/parallel/detail/sort_parts.hpp>
#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/fork_progress.hpp>
#include <bide/parallel/parallel_for.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// Returns how many of the first n elements of the merged sequence come from the left range. Of equal
// elements, the left ones come first. comes_first(r, l): the right element comes before the left one.
template <class Left, class Right, class ComesFirst>
std::uint64_t taken_from_left(const elements<Left>& left, const elements<Right>& right,
                              std::uint64_t n, const ComesFirst& comes_first) {
    std::uint64_t low = n > right.size ? n - right.size : 0;
    std::uint64_t high = (std::min)(n, left.size);
    while (low != high) {
        const std::uint64_t middle = low + (high - low) / 2;
        // The element at `middle` is among the first n unless the right one at n - middle - 1 comes
        // first.
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

// Writes [left, left_end) and [right, right_end), merged, from `to` on.
template <class Left, class Right, class Out, class ComesFirst>
void merge_copies(Left left, const Left left_end, Right right, const Right right_end, Out to,
                  const ComesFirst& comes_first) {
    while (left != left_end && right != right_end) {
        if constexpr (merges_branchless<Left, Right>) {
            // In rounds in which neither side can run out.
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
        } else {
            if (comes_first(*right, *left)) {
                *to = *right;
                ++right;
            } else {
                *to = *left;
                ++left;
            }
            ++to;
        }
    }
    std::ranges::copy(right, right_end, std::ranges::copy(left, left_end, to).out);
}

template <class Left, class Right, class Out, class Compare, class ProjectLeft, class ProjectRight>
Out merge_in(const fork_policy& on, const elements<Left>& left, const elements<Right>& right,
             Out out, Compare& less, ProjectLeft& project_left, ProjectRight& project_right) {
    const auto comes_first = [&](auto&& r, auto&& l) -> bool {
        return std::invoke(less, std::invoke(project_right, std::forward<decltype(r)>(r)),
                           std::invoke(project_left, std::forward<decltype(l)>(l)));
    };
    const elements<Out> to{out, left.size + right.size};
    fork_options options = on.options();
    if (options.grain == 0) {
        options.grain = 8'192; // the two searches of a part cost little beside its copies
    }
    detail::loop_on(on.forks(), to.numbers(), options, [&](std::uint64_t begin, std::uint64_t end) {
        const auto from = detail::taken_from_left(left, right, begin, comes_first);
        // If comparisons contradict each other, the second search may go back, or too far.
        const auto until = std::clamp(detail::taken_from_left(left, right, end, comes_first), from,
                                      (std::min)(from + (end - begin), left.size));
        detail::merge_copies(left.at(from), left.at(until), right.at(begin - from),
                             right.at(end - until), to.at(begin), comes_first);
    });
    return to.at(to.size);
}

} // namespace detail

/// Merges the sorted ranges `left` and `right` by copying their elements to consecutive places from
/// `out` on, in order. Of equal elements, those of `left` come first, and those of one range keep
/// their order. Returns the iterator behind the last place. The places must not overlap the ranges.
/// The ranges are compared by less(project_right(r), project_left(l)).
/// Blocks: until all places are written. Meanwhile the caller writes parts of them.
/// Throws: the exception of a comparison or a copy; if several parts throw, that of the first part.
/// After an exception or a stop, some of the places are written. Otherwise as parallel_for().
/// Requires: each range is sorted by less; otherwise each place gets some element of the ranges.
/// less and the projections may be called by several threads at once.
/// Cancellation: see fork_options::stop. options.progress counts the places that are written.
template <parallel_range Left, parallel_range Right, class Out, class Compare = std::ranges::less,
          class ProjectLeft = std::identity, class ProjectRight = std::identity>
    requires std::random_access_iterator<Out> && (!detail::packs_bits<Out>) &&
             std::mergeable<std::ranges::iterator_t<Left>, std::ranges::iterator_t<Right>, Out,
                            Compare, ProjectLeft, ProjectRight>
Out parallel_merge(const fork_policy& on, Left&& left, Right&& right, Out out, Compare less = {},
                   ProjectLeft project_left = {}, ProjectRight project_right = {}) {
    return detail::merge_in(on, detail::elements_of(left), detail::elements_of(right),
                            std::move(out), less, project_left, project_right);
}

/// Merges [left, left_end) and [right, right_end) in the same way.
template <class Left, class LeftEnd, class Right, class RightEnd, class Out,
          class Compare = std::ranges::less, class ProjectLeft = std::identity,
          class ProjectRight = std::identity>
    requires parallel_bounds<Left, LeftEnd> && parallel_bounds<Right, RightEnd> &&
             std::random_access_iterator<Out> && (!detail::packs_bits<Out>) &&
             std::mergeable<Left, Right, Out, Compare, ProjectLeft, ProjectRight>
Out parallel_merge(const fork_policy& on, Left left, LeftEnd left_end, Right right,
                   RightEnd right_end, Out out, Compare less = {}, ProjectLeft project_left = {},
                   ProjectRight project_right = {}) {
    return detail::merge_in(on, detail::elements_of(left, left_end),
                            detail::elements_of(right, right_end), std::move(out), less,
                            project_left, project_right);
}

} // namespace bide::inline BIDE_ABI

#endif
