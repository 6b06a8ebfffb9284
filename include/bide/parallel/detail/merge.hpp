// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_MERGE_HPP
#define BIDE_PARALLEL_DETAIL_MERGE_HPP

// Merges two sorted sequences into a third place. The objects there are alive and are overwritten.
// If a comparison throws, every element is still moved to the third place, in any order.

#include <bide/core/config.hpp>
#include <bide/parallel/detail/small_sort.hpp>
#include <bide/parallel/detail/sort_parts.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// The elements of two sequences that a merge has not moved yet. If an exception leaves the merge,
// the destructor moves these elements.
template <class From, class To> struct merge_rest {
    merge_rest(From a_first, From a_last, From b_first, From b_last, To into)
        : left(a_first), left_end(a_last), right(b_first), right_end(b_last), to(into) {}
    merge_rest(const merge_rest&) = delete;
    merge_rest& operator=(const merge_rest&) = delete;
    ~merge_rest() {
        if (!finished) {
            ignore_exceptions([this]() noexcept(is_nothrow_element_move<From, To>) { finish(); });
        }
    }
    void finish() {
        finished = true;
        detail::move_elements(right, right_end, detail::move_elements(left, left_end, to));
    }
    From left;
    From left_end;
    From right;
    From right_end;
    To to;
    bool finished = false;
};

// Merges from the front and from the back while both sides have at least 32 elements. It works in
// rounds, in which neither side can run out. If a block of one side comes before all of the next
// elements of the other side, the block is copied. So sequences that are nearly in order merge
// quickly.
template <class From, class To, class Compare>
void merge_both_ends(merge_rest<From, To>& rest, Compare& less) {
    constexpr std::iter_difference_t<From> block = 16;
    for (;;) {
        const auto n = rest.left_end - rest.left;
        const auto others = rest.right_end - rest.right;
        auto steps = (std::min)(n, others) / 2;
        if (steps < block) {
            return;
        }
        From left_back = rest.left_end - 1;
        From right_back = rest.right_end - 1;
        To back = detail::ahead(rest.to, n + others - 1);
        for (; steps >= block; steps -= block) {
            const bool copies_left = !less(*rest.right, rest.left[block - 1]);
            const bool copies_right = !less(right_back[1 - block], *left_back);
            if (!copies_left && !copies_right) {
                for (auto i = block; i != 0; --i) {
                    detail::merge_first(rest.left, rest.right, rest.to, less);
                    detail::merge_last(left_back, right_back, back, less);
                }
                continue;
            }
            if (copies_left) {
                rest.to = std::copy_n(rest.left, block, rest.to);
                rest.left += block;
            } else {
                for (auto i = block; i != 0; --i) {
                    detail::merge_first(rest.left, rest.right, rest.to, less);
                }
            }
            if (copies_right) {
                std::copy_n(right_back + (1 - block), block, back + (1 - block));
                right_back -= block;
                back -= block;
            } else {
                for (auto i = block; i != 0; --i) {
                    detail::merge_last(left_back, right_back, back, less);
                }
            }
        }
        rest.left_end = left_back + 1;
        rest.right_end = right_back + 1;
    }
}

// Merges what merge_both_ends() leaves: one side has few elements, the other side any number. If a
// block of the larger side comes before the next element of the smaller side, the block is copied.
template <class From, class To, class Compare>
void merge_few_with_many(merge_rest<From, To>& rest, Compare& less) {
    constexpr std::iter_difference_t<From> block = 16;
    while (rest.left != rest.left_end && rest.right != rest.right_end) {
        const auto n = rest.left_end - rest.left;
        const auto others = rest.right_end - rest.right;
        if (n >= block && !less(*rest.right, rest.left[block - 1])) {
            rest.to = std::copy_n(rest.left, block, rest.to);
            rest.left += block;
        } else if (others >= block && less(rest.right[block - 1], *rest.left)) {
            rest.to = std::copy_n(rest.right, block, rest.to);
            rest.right += block;
        } else {
            for (auto i = (std::min)({n, others, block}); i != 0; --i) {
                detail::merge_first(rest.left, rest.right, rest.to, less);
            }
        }
    }
}

// Merges stably: of equal elements, the left ones come first.
template <class From, class To, class Compare>
void merge(From left, From left_end, From right, From right_end, To to, Compare& less) {
    merge_rest<From, To> rest(left, left_end, right, right_end, to);
    if constexpr (sorts_branchless<From> && sorts_branchless<To>) {
        detail::merge_both_ends(rest, less);
        detail::merge_few_with_many(rest, less);
    } else {
        while (rest.left != rest.left_end && rest.right != rest.right_end) {
            // Branches, so that the processor predicts the next comparison and goes ahead.
            if (less(*rest.right, *rest.left)) {
                *rest.to = std::ranges::iter_move(rest.right);
                ++rest.right;
            } else {
                *rest.to = std::ranges::iter_move(rest.left);
                ++rest.left;
            }
            ++rest.to;
        }
    }
    rest.finish();
}

// Merges in parallel: halves the larger sequence, and cuts the other one at the place where the
// middle element of the larger one belongs. Calls watch.leaves_out() before each part, and only
// moves the part's elements if it returns true; calls watch.count(n) when n elements are merged.
template <class Forker, class From, class To, class Compare, class Watch>
void merge_parts(Forker forks, From left, From left_end, From right, From right_end, To to,
                 Compare& less, const Watch& watch) {
    const auto n = left_end - left;
    const auto others = right_end - right;
    merge_rest<From, To> rest(left, left_end, right, right_end, to);
    if (watch.leaves_out()) {
        return rest.finish();
    }
    if (n + others < 16'384) {
        rest.finished = true;
        detail::merge(left, left_end, right, right_end, to, less);
        return watch.count(n + others);
    }
    From left_cut = left + n / 2;
    From right_cut = right + others / 2;
    if (n >= others) {
        right_cut = std::ranges::partition_point(right, right_end, [&](auto&& element) -> bool {
            return less(std::forward<decltype(element)>(element), *left_cut);
        });
    } else {
        left_cut = std::ranges::partition_point(left, left_end, [&](auto&& element) -> bool {
            return !less(*right_cut, std::forward<decltype(element)>(element));
        });
    }
    const To to_cut = detail::ahead(to, (left_cut - left) + (right_cut - right));
    forks.both(
        [&] {
            rest.finished = true; // the two calls have begun and move the elements over
            detail::merge_parts(forks, left, left_cut, right, right_cut, to, less, watch);
        },
        [&] {
            detail::merge_parts(forks, left_cut, left_end, right_cut, right_end, to_cut, less,
                                watch);
        });
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
