// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_RANGE_HPP
#define BIDE_PARALLEL_PARALLEL_RANGE_HPP

/// \file
/// The ranges that the parallel algorithms take: parallel_range, parallel_bounds, parallel_output.
//
// The algorithms give numbers to the iterations of a loop and to the elements of a range. Some
// compilers, such as g++ 12 with -O2, use vector instructions only if a loop has a constant number
// of iterations. So plain loops run in blocks of a constant number of iterations.

#include <bide/core/detail/fatal.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span> // the concepts of ranges; <ranges> would add its views, which take long to compile
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// std::min() and std::max() without the header <algorithm>.
constexpr std::uint64_t lesser_of(std::uint64_t a, std::uint64_t b) noexcept {
    return b < a ? b : a;
}
constexpr std::uint64_t greater_of(std::uint64_t a, std::uint64_t b) noexcept {
    return a < b ? b : a;
}

template <class T>
concept loop_index = std::integral<T> && !std::same_as<std::remove_cv_t<T>, bool> && sizeof(T) <= 8;

// The indices [first, last). Sizes and steps are unsigned, so nothing overflows, even if the range
// has almost all values of the type.
template <loop_index Index> struct loop_range {
    using unsigned_index = std::make_unsigned_t<Index>;

    Index first;
    Index last;

    bool empty() const noexcept { return first == last; }

    std::uint64_t size() const noexcept {
        return static_cast<unsigned_index>(static_cast<unsigned_index>(last) -
                                           static_cast<unsigned_index>(first));
    }

    // Requires: n <= size().
    Index at(std::uint64_t n) const noexcept {
        return static_cast<Index>(
            static_cast<unsigned_index>(static_cast<unsigned_index>(first) + n));
    }

    Index middle() const noexcept { return at(size() / 2); }
};

// Makes a range from bounds of any two types. The bounds are compared as numbers. If first >= last,
// the range is empty.
// Throws: std::invalid_argument if the first index is negative and the common type is unsigned.
template <loop_index First, loop_index Last>
loop_range<std::common_type_t<First, Last>> range_of(First first, Last last) {
    using index = std::common_type_t<First, Last>;
    if (!std::cmp_less(+first, +last)) {
        return {index{}, index{}};
    }
    const auto begin = static_cast<index>(first);
    if (std::cmp_not_equal(+begin, +first)) {
        BIDE_THROW(std::invalid_argument("bide: the first index of the loop is negative, but the "
                                         "common type of the bounds is unsigned"));
    }
    return {begin, static_cast<index>(last)};
}

// True for iterators of vector<bool> and of similar ranges: neighbouring elements share a word, and
// two threads must not write to the same word.
template <class It>
concept packs_bits =
    std::is_same_v<std::iter_value_t<It>, bool> && std::is_class_v<std::iter_reference_t<It>> &&
    std::is_assignable_v<std::iter_reference_t<It>&, bool>;

} // namespace detail

/// True for an iterator and a sentinel whose range the parallel algorithms can divide: the iterator
/// is random-access, and the distance to the sentinel is known. The iterators of vector<bool> are
/// excluded, because threads that write to neighbouring elements would write to one word. The
/// iterators of a const vector<bool> are not excluded.
template <class It, class End>
concept parallel_bounds = std::random_access_iterator<It> && std::sized_sentinel_for<End, It> &&
                          (!detail::packs_bits<It>);

/// True for a range that the parallel algorithms can divide: arrays, std::vector, std::deque,
/// std::span, and views of them that keep random access and size, such as std::views::iota,
/// transform, take and drop. Other ranges, such as std::list or a filtered view, are refused. Copy
/// their elements, or pointers to them, to a vector first.
template <class Range>
concept parallel_range =
    std::ranges::random_access_range<Range> && std::ranges::sized_range<Range> &&
    parallel_bounds<std::ranges::iterator_t<Range>, std::ranges::sentinel_t<Range>>;

namespace detail {

// True if an End can be the end of a range that begins with an It. Constrains the overloads that
// take iterators.
template <class End, class It>
concept parallel_end = parallel_bounds<It, End>;

// In bytes: the size up to which a trivially copyable object is copied where a larger one would be
// referred to, moved by its own functions or chosen by a branch. It is one cache line.
inline constexpr std::size_t largest_plain_copy = 64;

// True for values that are copied into a local object, so that the compiler may keep them in
// registers. A trivially copyable type may be move-only; such a type is excluded.
template <class T>
inline constexpr bool is_small_copy =
    std::is_trivially_copyable_v<T> && std::is_trivially_copy_constructible_v<T> &&
    sizeof(T) <= largest_plain_copy;

// The type of the values that a function returns for elements.
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

// The `size` elements from `first` on, accessed by their numbers. A view: it does not own them.
template <std::random_access_iterator It> struct elements {
    It first;
    std::uint64_t size;

    It at(std::uint64_t n) const { return first + static_cast<std::iter_difference_t<It>>(n); }
    It begin() const { return first; }
    It end() const { return at(size); }
    loop_range<std::uint64_t> numbers() const noexcept { return {0, size}; }
};

// Returns the elements of [first, last). If `last` is before `first`, there are none.
template <class It, class End> elements<It> elements_of(It first, const End& last) {
    const auto n = last - first;
    return {std::move(first), n > 0 ? static_cast<std::uint64_t>(n) : 0};
}

template <class Range> auto elements_of(Range& range) {
    return elements<std::ranges::iterator_t<Range>>{
        std::ranges::begin(range), static_cast<std::uint64_t>(std::ranges::size(range))};
}

// True for a predicate that can be called with the projected elements of a range.
template <class Predicate, class It, class Projection>
concept finds_in =
    std::regular_invocable<Projection&, std::iter_reference_t<It>> &&
    std::predicate<Predicate&, std::invoke_result_t<Projection&, std::iter_reference_t<It>>>;

// True for a comparison that can be called with the projected elements of a range.
template <class Compare, class It, class Projection>
concept compares_in =
    std::regular_invocable<Projection&, std::iter_reference_t<It>> &&
    std::predicate<Compare&, std::invoke_result_t<Projection&, std::iter_reference_t<It>>,
                   std::invoke_result_t<Projection&, std::iter_reference_t<It>>>;

// True if the comparison is the < of two values of type T.
template <class Compare, class T>
concept plain_less = std::is_same_v<Compare, std::ranges::less> ||
                     std::is_same_v<Compare, std::less<>> || std::is_same_v<Compare, std::less<T>>;

// True for an iterator to contiguous numbers.
template <class It>
concept plain_numbers =
    std::contiguous_iterator<It> && std::is_arithmetic_v<std::iter_value_t<It>> &&
    std::is_same_v<std::remove_cvref_t<std::iter_reference_t<It>>, std::iter_value_t<It>> &&
    !std::is_volatile_v<std::remove_reference_t<std::iter_reference_t<It>>>;

// True if an element can be copied as bytes. For such elements, filters copy each element, kept or
// not. So no branch depends on the answer of the predicate.
template <class It, class Out>
concept copies_bytes =
    std::contiguous_iterator<It> && std::contiguous_iterator<Out> &&
    std::same_as<std::iter_value_t<It>, std::iter_value_t<Out>> &&
    std::is_trivially_copyable_v<std::iter_value_t<It>> &&
    std::is_trivially_assignable_v<std::iter_reference_t<Out>, std::iter_reference_t<It>> &&
    std::is_same_v<std::iter_reference_t<Out>, std::iter_value_t<Out>&> &&
    sizeof(std::iter_value_t<It>) <= 32;

inline constexpr int plain_block = 64;

template <loop_index Index, class F> BIDE_INLINE void each_index(Index first, Index last, F&& f) {
    std::uint64_t left = loop_range<Index>{first, last}.size();
    for (; left >= plain_block; left -= plain_block) {
// Else, with g++, the speed of a loop of few instructions depends on its address.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC unroll 4
#endif
        for (int k = 0; k < plain_block; ++k) {
            f(static_cast<Index>(first + static_cast<Index>(k)));
        }
        first = static_cast<Index>(first + static_cast<Index>(plain_block));
    }
    for (; first != last; ++first) {
        f(first);
    }
}

template <class It, class F> BIDE_INLINE void each_element(const It& first, const It& last, F&& f) {
    if constexpr (std::contiguous_iterator<It>) {
        auto* const at = detail::unwrap(first);
        detail::each_index(std::size_t{0}, static_cast<std::size_t>(last - first),
                           [&](std::size_t i) { f(at[i]); });
    } else {
        for (It it = first; it != last; ++it) {
            f(*it);
        }
    }
}

} // namespace detail

/// Declares the overload of an algorithm that takes two iterators in place of a range. Only the
/// headers of the algorithms use it. After the name, a use may pass a requires-clause.
// The static_assert lets a use of the macro end with a semicolon.
#define BIDE_DETAIL_TAKES_ITERATORS(name, ...)                                                     \
    template <class It, detail::parallel_end<It> End, class... Args>                               \
    __VA_ARGS__ auto name(const fork_policy& on, It first, End last, Args&&... args) {             \
        return bide::name(on, detail::elements_of(first, last), std::forward<Args>(args)...);      \
    }                                                                                              \
    static_assert(true)

/// True for an iterator to which the parallel algorithms can write: it is random-access, and
/// different threads can write to different places. `Value` is the type of the written values.
template <class Out, class Value>
concept parallel_output = std::random_access_iterator<Out> &&
                          std::indirectly_writable<Out, Value> && (!detail::packs_bits<Out>);

}} // namespace bide::BIDE_ABI

/// \cond
template <class It>
inline constexpr bool std::ranges::enable_borrowed_range<bide::detail::elements<It>> = true;
/// \endcond

#endif
