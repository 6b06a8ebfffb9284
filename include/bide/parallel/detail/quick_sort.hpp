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
#include <bide/parallel/detail/divide.hpp>
#include <bide/parallel/detail/loop_state.hpp>
#include <bide/parallel/detail/small_sort.hpp>
#include <bide/parallel/detail/sort_parts.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// ---- Partitions

// Moves the pivot from the front to its place, the last one of the left part. Returns the place.
template <class It> It place_pivot(It begin, It middle) {
    if (--middle != begin) {
        std::ranges::iter_swap(begin, middle);
    }
    return middle;
}

// Partitions by the pivot *begin, which moves between the parts: [begin, middle) is less, (middle,
// end) is not. `middle` of the result is the pivot's place. Calls divide(first, last, goes_left).
template <class It, class Compare, class Divide>
division<It> partition_less(It begin, It end, Compare& less, const Divide& divide) {
    division<It> parts{};
    if constexpr (sorts_branchless<It>) {
        // By value: what is stored during the partition does not change the copy.
        parts = divide(begin + 1, end,
                       [&less, pivot = std::iter_value_t<It>(*begin)](
                           auto&& element) mutable -> bool { return less(element, pivot); });
    } else {
        parts = divide(begin + 1, end, [&](auto&& e) -> bool {
            return less(std::forward<decltype(e)>(e), *begin);
        });
    }
    parts.middle = detail::place_pivot(begin, parts.middle);
    return parts;
}

// Partitions by the pivot *begin if no element is less than the pivot: [begin, middle] is equal,
// (middle, end) is greater. Returns the pivot's place.
template <class It, class Compare, class Divide>
It partition_equal(It begin, It end, Compare& less, const Divide& divide) {
    It middle{};
    if constexpr (sorts_branchless<It>) {
        middle = divide(begin + 1, end,
                        [&less, pivot = std::iter_value_t<It>(*begin)](
                            auto&& element) mutable -> bool { return !less(pivot, element); })
                     .middle;
    } else {
        middle = divide(begin + 1, end, [&](auto&& e) -> bool {
                     return !less(*begin, std::forward<decltype(e)>(e));
                 }).middle;
    }
    return detail::place_pivot(begin, middle);
}

// The division of one thread.
struct divide_serially {
    template <class It, class Pred> division<It> operator()(It first, It last, Pred pred) const {
        return detail::divide(first, last, pred);
    }
};

// From this size on, a pivot is a median of medians.
inline constexpr std::ptrdiff_t many_for_pivot = 128;

// Moves the median of three elements, or of three such medians, to the front.
template <class It, class Compare> void choose_pivot(It begin, It end, Compare& less) {
    const auto size = end - begin;
    const It middle = begin + size / 2;
    if (size > many_for_pivot) {
        detail::sort_three(begin, middle, end - 1, less);
        detail::sort_three(begin + 1, middle - 1, end - 2, less);
        detail::sort_three(begin + 2, middle + 1, end - 3, less);
        detail::sort_three(middle - 1, middle, middle + 1, less);
        std::ranges::iter_swap(begin, middle);
    } else {
        detail::sort_three(middle, begin, end - 1, less);
    }
}

// Swaps elements, so that the next pivots are chosen from other ones.
template <class It> void break_patterns(It begin, It end) {
    using difference = std::iter_difference_t<It>;
    const difference quarter = (end - begin) / 4;
    if (quarter < 6) {
        return;
    }
    for (difference i = 0; i != (end - begin > many_for_pivot ? 3 : 1); ++i) {
        std::ranges::iter_swap(begin + i, begin + quarter + i);
        std::ranges::iter_swap(end - 1 - i, end - quarter - i);
    }
}

// ---- The sort

template <class Forker, class It, class Compare> class quick_sort {
    using difference = std::iter_difference_t<It>;
    using state = basic_loop_state<typename Forker::platform>;

public:
    // Sorts [begin, end), which is a part of what begins at `origin`.
    quick_sort(Forker forks, It origin, Compare& less, state& shared) noexcept
        : forks_(forks), origin_(origin), less_(less), state_(shared) {}

    void run(It begin, It end) {
        const auto size = static_cast<std::size_t>(end - begin);
        sort<true>(begin, end, static_cast<int>(std::bit_width(size)), true);
    }

private:
    // Parts up to `small_size` are not divided. A fork needs two parts of at least fork_size.
    static constexpr difference small_size = sorts_branchless<It> ? small_sort_size : 24;
    static constexpr difference fork_size = sort_fork_size;

    // Unless this is the leftmost part, *(begin - 1) exists and is not greater than any element. A
    // part that is `large` may be divided among threads, and counts the elements that have found
    // their place.
    template <bool large> void sort(It begin, It end, int bad_ones, bool leftmost) {
        for (;;) {
            const difference size = end - begin;
            if constexpr (large) {
                if (size < fork_size) {
                    sort<false>(begin, end, bad_ones, leftmost);
                    return settle(size);
                }
                if (leaves_out(begin)) {
                    return;
                }
            } else if (size <= small_size) {
                return sort_small(begin, end);
            }
            detail::choose_pivot(begin, end, less_);
            if (!leftmost && !less_(*(begin - 1), *begin)) {
                const It next = detail::partition_equal(begin, end, less_, how<large>()) + 1;
                if constexpr (large) {
                    if (leaves_out(begin)) {
                        return;
                    }
                    settle(next - begin);
                }
                begin = next;
                continue;
            }
            const division<It> parts = detail::partition_less(begin, end, less_, how<large>());
            if constexpr (large) {
                if (leaves_out(begin)) {
                    return;
                }
            }
            const It pivot = parts.middle;
            const It right = pivot + 1;
            const difference smaller = (std::min)(pivot - begin, end - right);
            if (smaller < size / 8) {
                if (--bad_ones == 0) {
                    detail::heap_sort(begin, end, less_);
                    if constexpr (large) {
                        settle(size);
                    }
                    return;
                }
                detail::break_patterns(begin, pivot);
                detail::break_patterns(right, end);
            } else if (parts.was_divided && detail::sort_if_nearly(begin, pivot, less_) &&
                       detail::sort_if_nearly(right, end, less_)) {
                if constexpr (large) {
                    settle(size);
                }
                return;
            }
            if constexpr (large) {
                settle(1);
                if (smaller >= fork_size) {
                    return forks_.both([=, this] { sort_arm(begin, pivot, bad_ones, leftmost); },
                                       [=, this] { sort_arm(right, end, bad_ones, false); });
                }
            }
            sort<large>(begin, pivot, bad_ones, leftmost);
            begin = right;
            leftmost = false;
        }
    }

    // Sorts one of two parts in parallel.
    void sort_arm(It begin, It end, int bad_ones, bool leftmost) {
        state_.run(number_of(begin), 0, [&] { sort<true>(begin, end, bad_ones, leftmost); });
    }

    // How a part is divided: in parallel if it is large.
    template <bool large> auto how() const {
        if constexpr (large) {
            return [this](It first, It last, const auto& pred) {
                if (last - first < parallel_divide_size) {
                    return detail::divide(first, last, pred);
                }
                return detail::divide_in_parallel(forks_, first, last, pred,
                                                  [this](It at) { return leaves_out(at); });
            };
        } else {
            return divide_serially();
        }
    }

    void sort_small(It begin, It end) {
        if constexpr (sorts_branchless<It>) {
            detail::small_sort(begin, end, less_);
        } else {
            detail::insertion_sort(begin, end, less_);
        }
    }

    std::uint64_t number_of(It at) const { return static_cast<std::uint64_t>(at - origin_); }
    // Returns true if a part before `at` has thrown, or after a stop.
    bool leaves_out(It at) const { return state_.leaves_out(number_of(at)); }
    void settle(difference elements) const { state_.count(static_cast<std::uint64_t>(elements)); }

    const Forker forks_;
    const It origin_;
    Compare& less_;
    state& state_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
