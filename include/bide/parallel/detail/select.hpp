// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_SELECT_HPP
#define BIDE_PARALLEL_DETAIL_SELECT_HPP

// Quickselect: partitions the range, then the part that has the wanted place. All threads take part
// in a partition of a large part. After log2(n) bad partitions, the part is sorted by heap sort. So
// every input takes O(n log n) at most.

#include <bide/core/config.hpp>
#include <bide/parallel/detail/divide.hpp>
#include <bide/parallel/detail/loop_state.hpp>
#include <bide/parallel/detail/quick_sort.hpp>
#include <bide/parallel/detail/sort_parts.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace bide::inline BIDE_ABI {
namespace detail {

// Moves to `nth` the element that a sort would put there. No element before it is greater, and no
// element behind it is less. The state's iterations are the elements; those that need not be looked
// at again are counted.
// Requires: begin <= nth < end.
template <class Forker, class It, class Compare, class State>
void select(const Forker& forks, It begin, It nth, It end, Compare& less, State& state) {
    using difference = std::iter_difference_t<It>;
    const It origin = begin;
    const auto leaves_out = [&](It at) {
        return state.leaves_out(static_cast<std::uint64_t>(at - origin));
    };
    const auto divide = [&](It first, It last, const auto& goes_left) {
        return last - first < parallel_divide_size
                   ? detail::divide(first, last, goes_left)
                   : detail::divide_in_parallel(forks, first, last, goes_left, leaves_out);
    };
    auto bad_ones = static_cast<int>(std::bit_width(static_cast<std::size_t>(end - begin)));
    bool leftmost = true;
    while (end - begin > 24) {
        if (leaves_out(origin)) {
            return;
        }
        const difference size = end - begin;
        detail::choose_pivot(begin, end, less);
        if (!leftmost && !less(*(begin - 1), *begin)) {
            const It next = detail::partition_equal(begin, end, less, divide) + 1;
            if (leaves_out(origin)) {
                return;
            }
            if (nth < next) {
                return state.count(static_cast<std::uint64_t>(size));
            }
            state.count(static_cast<std::uint64_t>(next - begin));
            begin = next;
            continue;
        }
        const It pivot = detail::partition_less(begin, end, less, divide).middle;
        if (leaves_out(origin)) {
            return;
        }
        if (pivot == nth) {
            return state.count(static_cast<std::uint64_t>(size));
        }
        if ((std::min)(pivot - begin, end - pivot - 1) < size / 8 && --bad_ones == 0) {
            break;
        }
        if (nth < pivot) {
            state.count(static_cast<std::uint64_t>(end - pivot));
            end = pivot;
        } else {
            state.count(static_cast<std::uint64_t>(pivot + 1 - begin));
            begin = pivot + 1;
            leftmost = false;
        }
        detail::break_patterns(begin, end);
    }
    if (!leaves_out(origin)) {
        detail::heap_sort(begin, end, less);
        state.count(static_cast<std::uint64_t>(end - begin));
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
