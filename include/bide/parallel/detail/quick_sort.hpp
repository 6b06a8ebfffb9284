#ifndef BIDE_PARALLEL_DETAIL_QUICK_SORT_HPP
#define BIDE_PARALLEL_DETAIL_QUICK_SORT_HPP

// Quicksort that knows patterns (Peters: "Pattern-defeating Quicksort", 2021), whose two parts are
// sorted side by side.
//
// Of many equal elements, those that equal the last pivot are set apart in one pass. A partition
// that had nothing to move is a hint at order: an insertion sort tries, and gives up early. One that
// cuts off less than an eighth is a bad one: some elements change places, and after log2(n) of them
// heap sort takes over, so that no input takes more than O(n log n).

#include <bide/core/config.hpp>
#include <bide/parallel/detail/loop_state.hpp>
#include <bide/parallel/detail/partition.hpp>
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
    // Smaller parts are not divided; medians of more elements from here on; both parts at least so
    // large, or else it is not worth a fork.
    static constexpr difference small_size = sorts_branchless<It> ? small_sort_size : 24;
    static constexpr difference many = 128;
    static constexpr difference fork_size = sort_fork_size;

    // If it is not the leftmost part, *(begin - 1) is there and not greater than any element.
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
                stir(begin, pivot);
                stir(right, end);
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

    // Sorts one of two parts side by side. Leaves it as it is if a part before it has thrown.
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

    // Other elements come where the next pivots are chosen from.
    void stir(It begin, It end) {
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
    const fork_options no_wishes_{};
    basic_loop_state<typename Forker::platform> state_{no_wishes_, 0};
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
