// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_DIVIDE_HPP
#define BIDE_PARALLEL_DETAIL_DIVIDE_HPP

// Partitions a range in place, by one thread or in parallel. If a predicate throws, every element
// is still in the range.
//
// In parallel, each chunk is partitioned on its own. Then the elements that are on the wrong side
// of the border are swapped in pairs. The chunks depend on the size alone, so the result is the same
// on any number of workers.

#include <bide/core/config.hpp>
#include <bide/parallel/detail/fork_each.hpp>
#include <bide/parallel/detail/sort_parts.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace bide::inline BIDE_ABI {
namespace detail {

// Where the left part ends, and whether the elements were divided already.
template <class It> struct division {
    It middle;
    bool was_divided;
};

// Partitions elements that are cheap to copy, without branches that depend on them. One element is
// taken out, which leaves a gap. Each step moves the first element of the right part to the gap, and
// the next element to the end of the left part; where it came from is the new gap. If the element
// belongs to the right part, the end stays where it is. (Lomuto's scheme in a cycle; Peters,
// "Branchless Lomuto Partitioning", and Bergdoll, "ipnsort".)
template <class It, class Pred> It cyclic_partition(It first, It last, Pred goes_left) {
    struct gap {
        ~gap() { *at = element; }
        std::iter_value_t<It> element;
        It at;
    };
    if (first == last) {
        return first;
    }
    It left = first;
    gap out{*first, first};
    for (It at = first + 1; at != last; ++at) {
        const bool is_left = goes_left(*at);
        *out.at = *left;
        *left = *at;
        out.at = at;
        left += is_left ? 1 : 0;
    }
    const bool is_left = goes_left(out.element);
    *out.at = *left;
    out.at = left;
    return is_left ? left + 1 : left;
}

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
            return {detail::cyclic_partition(first, last, goes_left), false};
        }
    }
}

// The misplaced elements of one side: up to as many pieces of the range as there are chunks.
template <class It, std::size_t most> class misplaced_pieces {
    using difference = std::iter_difference_t<It>;

public:
    // A place among the misplaced elements.
    struct cursor {
        // Returns how many elements follow in the same piece. Requires: an element follows.
        difference available() {
            if (at == pieces->ends_[piece]) {
                ++piece;
                at = pieces->begins_[piece];
            }
            return pieces->ends_[piece] - at;
        }
        const misplaced_pieces* pieces;
        std::size_t piece;
        It at;
    };

    void add(It begin, It end) {
        if (begin < end) {
            begins_[size_] = begin;
            ends_[size_] = end;
            ++size_;
            elements_ += end - begin;
        }
    }
    difference elements() const noexcept { return elements_; }

    // Returns the place of the nth element. Requires: n < elements().
    cursor at(difference n) const {
        std::size_t piece = 0;
        for (; n >= ends_[piece] - begins_[piece]; ++piece) {
            n -= ends_[piece] - begins_[piece];
        }
        return {this, piece, begins_[piece] + n};
    }

private:
    std::array<It, most> begins_{};
    std::array<It, most> ends_{};
    std::size_t size_ = 0;
    difference elements_ = 0;
};

// The most chunks of a partition.
inline constexpr std::size_t most_divide_chunks = 64;

// As divide(), in parallel. Calls divide_chunk(begin, end) for each chunk, at least `least_chunk`
// elements; it returns how divide() has divided them. If it leaves out a chunk, the result is of no
// use.
template <class Forker, class It, class DivideChunk>
division<It> divide_by_chunks(const Forker& forks, It first, It last, std::uint64_t least_chunk,
                              const DivideChunk& divide_chunk) {
    using difference = std::iter_difference_t<It>;
    constexpr difference least_swaps = 16'384; // of one arm
    const auto size = static_cast<std::uint64_t>(last - first);
    const auto chunks = static_cast<std::size_t>(
        std::clamp<std::uint64_t>(size / least_chunk, 1, most_divide_chunks));
    const auto begin_of = [=](std::size_t chunk) {
        return first + static_cast<difference>(size * chunk / chunks);
    };
    std::array<division<It>, most_divide_chunks> parts{};
    detail::fork_each(forks, 0, chunks, [&](std::size_t chunk) {
        parts[chunk] = divide_chunk(begin_of(chunk), begin_of(chunk + 1));
    });
    division<It> all{first, true};
    for (std::size_t chunk = 0; chunk != chunks; ++chunk) {
        all.middle += parts[chunk].middle - begin_of(chunk);
        all.was_divided = all.was_divided && parts[chunk].was_divided;
    }
    misplaced_pieces<It, most_divide_chunks> of_left;
    misplaced_pieces<It, most_divide_chunks> of_right;
    for (std::size_t chunk = 0; chunk != chunks; ++chunk) {
        const It middle = parts[chunk].middle;
        of_left.add((std::max)(begin_of(chunk), all.middle), middle);
        of_right.add(middle, (std::min)(begin_of(chunk + 1), all.middle));
    }
    const difference misplaced = of_left.elements();
    if (misplaced == 0) {
        return all;
    }
    const auto jobs = static_cast<std::size_t>((misplaced - 1) / least_swaps + 1);
    detail::fork_each_surely(forks, 0, jobs, [&](std::size_t job) {
        const difference begin = static_cast<difference>(job) * least_swaps;
        auto left = of_left.at(begin);
        auto right = of_right.at(begin);
        for (auto left_over = (std::min)(misplaced - begin, least_swaps); left_over != 0;) {
            const auto swaps = (std::min)({left.available(), right.available(), left_over});
            std::ranges::swap_ranges(left.at, left.at + swaps, right.at, right.at + swaps);
            left.at += swaps;
            right.at += swaps;
            left_over -= swaps;
        }
    });
    all.was_divided = false;
    return all;
}

// Ranges from this size on are partitioned in parallel by a sort.
inline constexpr std::ptrdiff_t parallel_divide_size = 262'144;

// As divide(), in parallel. Calls leaves_out(first) before each chunk; if it returns true, the
// chunk is not partitioned, and the result is of no use.
template <class Forker, class It, class Pred, class LeavesOut>
division<It> divide_in_parallel(const Forker& forks, It first, It last, const Pred& goes_left,
                                const LeavesOut& leaves_out) {
    return detail::divide_by_chunks(forks, first, last, 16'384, [&](It begin, It end) {
        return leaves_out(begin) ? division<It>{begin, false}
                                 : detail::divide(begin, end, goes_left);
    });
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
