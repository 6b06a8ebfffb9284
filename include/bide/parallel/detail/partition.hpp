#ifndef BIDE_PARALLEL_DETAIL_PARTITION_HPP
#define BIDE_PARALLEL_DETAIL_PARTITION_HPP

#include <bide/core/config.hpp>
#include <bide/parallel/detail/sort_parts.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// Where the elements that go left end, and whether they all stood there before.
template <class It> struct division {
    It middle;
    bool was_divided;
};

// Without branches that depend on elements: two blocks, one from each end, of each the offsets of
// the elements that stand on the wrong side; then as many pairs as there are change places.
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

    // Fills the sides that are empty, with a block or with what is left.
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

    // In a cycle, which is two moves a pair instead of three; pair by pair where the sides are equal
    // in number, which keeps reversed sequences what they are: reversed ones, to be found.
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

    // One side may have elements without a partner: they are changed for those at the border.
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

// Elements for which goes_left is true before those for which it is not.
template <class It, class Pred> division<It> divide(It first, It last, Pred goes_left) {
    for (bool was_divided = true;; was_divided = false) {
        while (first != last && goes_left(*first)) {
            ++first;
        }
        if (first == last) {
            return {first, was_divided};
        }
        do { // *first is not asked again: it might answer otherwise
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

// Moves the pivot from the front to its place, the last one of the left part.
template <class It> It place_pivot(It begin, It middle) {
    if (--middle != begin) {
        std::ranges::iter_swap(begin, middle);
    }
    return middle;
}

// By the pivot *begin, which ends up between the parts: [begin, middle) is less, (middle, end) is
// not. Returns the pivot's place.
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

// The same where nothing is less than the pivot: [begin, middle] is equal, (middle, end) greater.
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

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
