// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_ELEMENT_RANGE_HPP
#define BIDE_PARALLEL_DETAIL_ELEMENT_RANGE_HPP

// How the parallel algorithms see iterators: a loop over the numbers of the elements, and for each
// part of it the iterators of the part.

#include <bide/core/config.hpp>
#include <bide/parallel/detail/loop_range.hpp>

#include <algorithm> // the concepts of ranges; <ranges> would add its views, which take long to compile
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// True for vector<bool> and the like: neighbours share a word, which two threads must not write to.
template <class It>
concept packs_bits =
    std::is_same_v<std::iter_value_t<It>, bool> && std::is_class_v<std::iter_reference_t<It>> &&
    std::is_assignable_v<std::iter_reference_t<It>&, bool>;

} // namespace detail

/// True for an iterator and a sentinel whose range the parallel algorithms can divide: the iterator
/// is random-access, and the sentinel's distance is known. The iterators of vector<bool> are
/// excluded, because threads that write to neighbours would write to one word; those of a const
/// vector<bool> are not.
template <class It, class End>
concept parallel_bounds = std::random_access_iterator<It> && std::sized_sentinel_for<End, It> &&
                          (!detail::packs_bits<It>);

/// True for a range that the parallel algorithms can divide: arrays, std::vector, std::deque,
/// std::span, and views of them that keep random access and size, such as std::views::iota,
/// transform, take and drop. Other ranges, such as std::list or a filtered view, are refused: copy
/// the elements, or pointers to them, to a vector first.
template <class Range>
concept parallel_range =
    std::ranges::random_access_range<Range> && std::ranges::sized_range<Range> &&
    parallel_bounds<std::ranges::iterator_t<Range>, std::ranges::sentinel_t<Range>>;

namespace detail {

// The type of the values that a function gives for elements.
template <class F, class It>
using mapped_t = std::remove_cvref_t<std::invoke_result_t<F&, std::iter_reference_t<It>>>;

// Returns a pointer for a contiguous iterator, and any other iterator unchanged. So templates are
// instantiated for fewer types.
template <std::random_access_iterator It> auto unwrap(It it) noexcept {
    if constexpr (std::contiguous_iterator<It>) {
        return std::to_address(it);
    } else {
        return it;
    }
}

// The elements from an iterator on, by their numbers.
template <std::random_access_iterator It> struct elements {
    It first;
    std::uint64_t size;

    It at(std::uint64_t n) const { return first + static_cast<std::iter_difference_t<It>>(n); }
    loop_range<std::uint64_t> numbers() const noexcept { return {0, size}; }
};

// Returns no elements if `last` is before `first`.
template <class It, class End> elements<It> elements_of(It first, const End& last) {
    const auto n = last - first;
    return {std::move(first), n > 0 ? static_cast<std::uint64_t>(n) : 0};
}

template <class Range> auto elements_of(Range& range) {
    using iterator = std::ranges::iterator_t<Range>;
    return elements<iterator>{std::ranges::begin(range),
                              static_cast<std::uint64_t>(std::ranges::size(range))};
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
