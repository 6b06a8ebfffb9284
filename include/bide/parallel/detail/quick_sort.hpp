// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_QUICK_SORT_HPP
#define BIDE_PARALLEL_DETAIL_QUICK_SORT_HPP

// Pattern-defeating quicksort (Peters: "Pattern-defeating Quicksort", 2021). The two parts of a
// partition are sorted in parallel.
//
// If there are many equal elements, one pass separates those that equal the last pivot. A partition
// that moved nothing suggests that the range is sorted: an insertion sort tries, and gives up
// early. A partition that cuts off less than an eighth is bad: some elements are swapped, and after
// log2(n) bad partitions heap sort takes over. So every input takes O(n log n) at most.

#include <bide/core/config.hpp>
#include <bide/parallel/detail/loop_state.hpp>
#include <bide/parallel/detail/small_sort.hpp>
#include <bide/parallel/detail/sort_parts.hpp>
#include <bide/parallel/fork_progress.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// ---- Partitions

// Where the left part ends, and whether the elements were divided already.
template <class It> struct division {
    It middle;
    bool was_divided;
};

// Partitions without branches that depend on elements. Reads a block from each end, notes the
// offsets of the elements that stand on the wrong side, and swaps as many pairs as there are.
// (Edelkamp, Weiss: "BlockQuicksort", ESA 2016, as in Peters' pdqsort.)
template <class It, class Pred> class block_partition {
    using difference = std::iter_difference_t<It>;
    static constexpr std::size_t block = 64;

public:
    block_partition(It first, It last, Pred& goes_left) noexcept
        : first_(first), last_(last), goes_left_(goes_left) {}

    It run() {
        left_.base = first_;
        right_.base = last_;
        while (first_ != last_) {
            look();
            const std::size_t pairs = (std::min)(left_.size, right_.size);
            swap_pairs(pairs);
            left_.drop(pairs, first_);
            right_.drop(pairs, last_);
        }
        return place_rest();
    }

private:
    struct side {
        void drop(std::size_t n, It next) {
            size -= n;
            begin += n;
            if (size == 0) {
                begin = 0;
                base = next;
            }
        }
        It base{};
        std::size_t begin = 0;
        std::size_t size = 0;
        unsigned char offsets[block];
    };

    // Fills each empty side with the offsets of a block, or of what is left.
    void look() {
        const auto unknown = static_cast<std::size_t>(last_ - first_);
        const bool both = left_.size == 0 && right_.size == 0;
        const std::size_t for_left = left_.size != 0 ? 0 : both ? unknown / 2 : unknown;
        const std::size_t for_right = right_.size != 0 ? 0 : unknown - for_left;
        if (for_left >= block) {
            look_left(block);
        } else if (for_left != 0) {
            look_left(for_left);
        }
        if (for_right >= block) {
            look_right(block);
        } else if (for_right != 0) {
            look_right(for_right);
        }
    }

    void look_left(std::size_t n) {
        std::size_t found = 0;
        It at = first_;
        for (std::size_t i = 0; i != n; ++i, ++at) {
            left_.offsets[found] = static_cast<unsigned char>(i);
            found += goes_left_(*at) ? 0 : 1;
        }
        first_ = at;
        left_.size = found;
    }

    void look_right(std::size_t n) {
        std::size_t found = 0;
        It at = last_;
        for (std::size_t i = 1; i <= n; ++i) {
            --at;
            right_.offsets[found] = static_cast<unsigned char>(i);
            found += goes_left_(*at) ? 1 : 0;
        }
        last_ = at;
        right_.size = found;
    }

    It misplaced_left(std::size_t i) const {
        return left_.base + static_cast<difference>(left_.offsets[left_.begin + i]);
    }
    It misplaced_right(std::size_t i) const {
        return right_.base - static_cast<difference>(right_.offsets[right_.begin + i]);
    }

    // Moves the elements in a cycle, which takes two moves for a pair instead of three. If both
    // sides have the same number, swaps pair by pair, so that a reversed sequence is recognised as
    // reversed.
    void swap_pairs(std::size_t pairs) {
        if (pairs == 0) {
            return;
        }
        if (left_.size == right_.size) {
            for (std::size_t i = 0; i != pairs; ++i) {
                std::ranges::iter_swap(misplaced_left(i), misplaced_right(i));
            }
            return;
        }
        It left = misplaced_left(0);
        It right = misplaced_right(0);
        const std::iter_value_t<It> first = *left;
        *left = *right;
        for (std::size_t i = 1; i != pairs; ++i) {
            left = misplaced_left(i);
            *right = *left;
            right = misplaced_right(i);
            *left = *right;
        }
        *right = first;
    }

    // One side may have elements without a partner: swaps them with the elements at the border.
    It place_rest() {
        while (left_.size != 0) {
            --left_.size;
            std::ranges::iter_swap(misplaced_left(left_.size), --last_);
            first_ = last_;
        }
        while (right_.size != 0) {
            --right_.size;
            std::ranges::iter_swap(misplaced_right(right_.size), first_);
            ++first_;
        }
        return first_;
    }

    It first_;
    It last_;
    Pred& goes_left_;
    side left_;
    side right_;
};

// Moves the elements for which goes_left is true before those for which it is false.
template <class It, class Pred> division<It> divide(It first, It last, Pred goes_left) {
    for (bool was_divided = true;; was_divided = false) {
        while (first != last && goes_left(*first)) {
            ++first;
        }
        if (first == last) {
            return {first, was_divided};
        }
        do { // goes_left(*first) is not called again: the answer might differ
            if (--last == first) {
                return {first, was_divided};
            }
        } while (!goes_left(*last));
        std::ranges::iter_swap(first, last);
        ++first;
        if constexpr (sorts_branchless<It>) {
            return {block_partition<It, Pred>(first, last, goes_left).run(), false};
        }
    }
}

// Moves the pivot from the front to its place, the last one of the left part. Returns the place.
template <class It> It place_pivot(It begin, It middle) {
    if (--middle != begin) {
        std::ranges::iter_swap(begin, middle);
    }
    return middle;
}

// Partitions by the pivot *begin, which moves between the parts: [begin, middle) is less, (middle,
// end) is not. `middle` of the result is the pivot's place.
template <class It, class Compare> division<It> partition_less(It begin, It end, Compare& less) {
    division<It> parts{};
    if constexpr (sorts_branchless<It>) {
        std::iter_value_t<It> pivot = *begin;
        parts = detail::divide(begin + 1, end, [&](auto&& e) { return less(e, pivot); });
    } else {
        parts = detail::divide(
            begin + 1, end, [&](auto&& e) { return less(std::forward<decltype(e)>(e), *begin); });
    }
    parts.middle = detail::place_pivot(begin, parts.middle);
    return parts;
}

// Partitions by the pivot *begin if no element is less than the pivot: [begin, middle] is equal,
// (middle, end) is greater. Returns the pivot's place.
template <class It, class Compare> It partition_equal(It begin, It end, Compare& less) {
    It middle{};
    if constexpr (sorts_branchless<It>) {
        std::iter_value_t<It> pivot = *begin;
        middle = detail::divide(begin + 1, end, [&](auto&& e) { return !less(pivot, e); }).middle;
    } else {
        middle = detail::divide(begin + 1, end, [&](auto&& e) {
                     return !less(*begin, std::forward<decltype(e)>(e));
                 }).middle;
    }
    return detail::place_pivot(begin, middle);
}

// ---- The sort

template <class Forker, class It, class Compare> class quick_sort {
    using difference = std::iter_difference_t<It>;

public:
    quick_sort(Forker forks, It begin, It end, Compare& less) noexcept
        : forks_(forks), begin_(begin), end_(end), less_(less) {}

    void run() {
        const auto size = static_cast<std::size_t>(end_ - begin_);
        const int bad_ones = static_cast<int>(std::bit_width(size));
        sort(begin_, end_, bad_ones, true);
    }

private:
    // Parts up to `small_size` are not divided. From `many` on, the pivot is a median of medians. A
    // fork needs two parts of at least fork_size.
    static constexpr difference small_size = sorts_branchless<It> ? small_sort_size : 24;
    static constexpr difference many = 128;
    static constexpr difference fork_size = sort_fork_size;

    // Unless this is the leftmost part, *(begin - 1) exists and is not greater than any element.
    void sort(It begin, It end, int bad_ones, bool leftmost) {
        for (;;) {
            const difference size = end - begin;
            if (size <= small_size) {
                return sort_small(begin, end);
            }
            choose_pivot(begin, end);
            if (!leftmost && !less_(*(begin - 1), *begin)) {
                begin = detail::partition_equal(begin, end, less_) + 1;
                continue;
            }
            const division<It> parts = detail::partition_less(begin, end, less_);
            const It pivot = parts.middle;
            const It right = pivot + 1;
            const difference smaller = (std::min)(pivot - begin, end - right);
            if (smaller < size / 8) {
                if (--bad_ones == 0) {
                    return detail::heap_sort(begin, end, less_);
                }
                break_patterns(begin, pivot);
                break_patterns(right, end);
            } else if (parts.was_divided && detail::sort_if_nearly(begin, pivot, less_) &&
                       detail::sort_if_nearly(right, end, less_)) {
                return;
            }
            if (smaller >= fork_size) {
                return forks_.both([=, this] { sort_arm(begin, pivot, bad_ones, leftmost); },
                                   [=, this] { sort_arm(right, end, bad_ones, false); });
            }
            sort(begin, pivot, bad_ones, leftmost);
            begin = right;
            leftmost = false;
        }
    }

    // Sorts one of two parts in parallel. Leaves it as it is if a part before it has thrown.
    void sort_arm(It begin, It end, int bad_ones, bool leftmost) {
        const auto at = static_cast<std::uint64_t>(begin - begin_);
        if (!state_.leaves_out(at)) {
            state_.run(at, 0, [&] { sort(begin, end, bad_ones, leftmost); });
        }
    }

    void sort_small(It begin, It end) {
        if constexpr (sorts_branchless<It>) {
            detail::small_sort(begin, end, less_);
        } else {
            detail::insertion_sort(begin, end, less_);
        }
    }

    // Moves the median of three elements, or of three such medians, to the front.
    void choose_pivot(It begin, It end) {
        const difference size = end - begin;
        const It middle = begin + size / 2;
        if (size > many) {
            detail::sort_three(begin, middle, end - 1, less_);
            detail::sort_three(begin + 1, middle - 1, end - 2, less_);
            detail::sort_three(begin + 2, middle + 1, end - 3, less_);
            detail::sort_three(middle - 1, middle, middle + 1, less_);
            std::ranges::iter_swap(begin, middle);
        } else {
            detail::sort_three(middle, begin, end - 1, less_);
        }
    }

    // Swaps elements, so that the next pivots are chosen from other ones.
    void break_patterns(It begin, It end) {
        const difference size = end - begin;
        if (size <= small_size) {
            return;
        }
        const difference quarter = size / 4;
        for (difference i = 0; i != (size > many ? 3 : 1); ++i) {
            std::ranges::iter_swap(begin + i, begin + quarter + i);
            std::ranges::iter_swap(end - 1 - i, end - quarter - i);
        }
    }

    const Forker forks_;
    const It begin_;
    const It end_;
    Compare& less_;
    const fork_options default_options_{};
    basic_loop_state<typename Forker::platform> state_{default_options_, 0};
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
