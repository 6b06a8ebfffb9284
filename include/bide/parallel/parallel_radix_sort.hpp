// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_RADIX_SORT_HPP
#define BIDE_PARALLEL_PARALLEL_RADIX_SORT_HPP

/// \file
/// Sorts by the bits of a number instead of by comparisons: parallel_radix_sort().

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/parallel/detail/element_range.hpp>
#include <bide/parallel/detail/radix_key.hpp>
#include <bide/parallel/detail/radix_sort.hpp>
#include <bide/parallel/detail/sort_on.hpp>
#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/fork_progress.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <new>
#include <type_traits>

namespace bide::inline BIDE_ABI {

/// True for a projection to a number that parallel_radix_sort() sorts by: an integer of up to 64
/// bits, bool and characters included, or a float or double in the format of IEEE 754.
template <class Projection, class It>
concept radix_projection = std::regular_invocable<Projection&, std::iter_reference_t<It>> &&
                           std::regular_invocable<Projection&, std::iter_value_t<It>&> &&
                           detail::radix_number<detail::mapped_t<Projection, It>>;

namespace detail {

template <class Forker, class It, class Projection>
void radix_sort_on(Forker forks, It begin, It end, Projection& projection,
                   const fork_options& options) {
    const auto size = static_cast<std::uint64_t>(end - begin);
    auto key = [&projection](auto&& element) {
        using number = std::remove_cvref_t<decltype(std::invoke(
            projection, std::forward<decltype(element)>(element)))>;
        return detail::radix_key<number>(
            std::invoke(projection, std::forward<decltype(element)>(element)));
    };
    detail::in_one_fork(forks, size, options, size, [&](sort_state<Forker>& state) {
        radix_sort<Forker, It, decltype(key)> sort(forks, begin, end, key, state);
        if (!sort) {
            BIDE_THROW(std::bad_alloc());
        }
        sort.run();
    });
}

template <class It, class Projection>
void radix_sort_in(const fork_policy& on, const elements<It>& all, Projection& projection) {
    detail::radix_sort_on(on.forks(), detail::unwrap(all.first), detail::unwrap(all.at(all.size)),
                          projection, on.options());
}

} // namespace detail

/// Sorts [first, last) by the numbers projection(element), the least one first. Equal numbers keep
/// their order, so the result is the same on any number of workers. Before anything is changed,
/// allocates a buffer for as many elements, and about one byte more for each element.
///
/// Floating-point numbers have the total order of IEEE 754: NaN with the sign bit set, numbers from
/// -infinity to -0.0, then from +0.0 to +infinity, and NaN without the sign bit. So -0.0 comes
/// before +0.0, and NaN has a place, too.
/// Blocks: until the range is sorted. Meanwhile the caller sorts parts of it. A short range is
/// sorted by the calling thread alone.
/// Throws: std::bad_alloc, with nothing changed, if there is no memory for the buffers. If the
/// projection throws, or a thread finds no memory to fork, the range has the same elements as before,
/// in some order. If a move throws, all elements are alive, but their values are unspecified.
/// Otherwise as parallel_sort().
/// Requires: projection may be called by several threads at once. If it returns different numbers
/// for one element, the elements end up in any order.
/// Cancellation: as parallel_sort().
/// Complexity: about one pass over the elements for each 8 bits in which the numbers differ, or for
/// each factor of 256 in the number of elements, whichever is less.
template <class It, class End, class Projection = std::identity>
    requires parallel_bounds<It, End> && std::permutable<It> && radix_projection<Projection, It>
void parallel_radix_sort(const fork_policy& on, It first, End last, Projection projection = {}) {
    detail::radix_sort_in(on, detail::elements_of(first, last), projection);
}

/// Sorts a range in the same way: `parallel_radix_sort(s, orders, &order::number)`.
template <parallel_range Range, class Projection = std::identity>
    requires std::permutable<std::ranges::iterator_t<Range>> &&
             radix_projection<Projection, std::ranges::iterator_t<Range>>
void parallel_radix_sort(const fork_policy& on, Range&& range, Projection projection = {}) {
    detail::radix_sort_in(on, detail::elements_of(range), projection);
}

} // namespace bide::inline BIDE_ABI

#endif
