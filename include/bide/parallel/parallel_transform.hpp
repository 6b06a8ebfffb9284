// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_TRANSFORM_HPP
#define BIDE_PARALLEL_PARALLEL_TRANSFORM_HPP

/// \file
/// Writes a value for each element of a range: parallel_transform(), parallel_copy(),
/// parallel_fill(). There is no parallel_generate(): calls of a generator by several threads have no
/// order, so a function of the index says more, `parallel_transform(s, iota(0, n), out, f)`.

#include <bide/core/config.hpp>
#include <bide/parallel/detail/element_range.hpp>
#include <bide/parallel/detail/plain_loops.hpp>
#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/parallel_for.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {

/// True for an iterator to which the parallel algorithms can write: the places of different elements
/// can be found, and written to, independently. `Value` is what is written.
template <class Out, class Value>
concept parallel_output = std::random_access_iterator<Out> &&
                          std::indirectly_writable<Out, Value> && (!detail::packs_bits<Out>);

namespace detail {

// If all elements are in consecutive places, these two count one index, in blocks, instead of moving
// an iterator for each range.
template <class It, class Out, class F>
BIDE_INLINE void transform_serially(It it, const It& last, Out target, F& f) {
    if constexpr (std::contiguous_iterator<It> && std::contiguous_iterator<Out>) {
        auto* const in = detail::unwrap(it);
        auto* const out = detail::unwrap(target);
        detail::each_index(std::size_t{0}, static_cast<std::size_t>(last - it),
                           [&](std::size_t i) { out[i] = std::invoke(f, in[i]); });
    } else {
        for (; it != last; ++it, ++target) {
            *target = std::invoke(f, *it);
        }
    }
}

template <class It, class Second, class Out, class F>
BIDE_INLINE void transform_pairs_serially(It it, const It& last, Second other, Out target, F& f) {
    if constexpr (std::contiguous_iterator<It> && std::contiguous_iterator<Second> &&
                  std::contiguous_iterator<Out>) {
        auto* const in = detail::unwrap(it);
        auto* const second = detail::unwrap(other);
        auto* const out = detail::unwrap(target);
        detail::each_index(std::size_t{0}, static_cast<std::size_t>(last - it),
                           [&](std::size_t i) { out[i] = std::invoke(f, in[i], second[i]); });
    } else {
        for (; it != last; ++it, ++other, ++target) {
            *target = std::invoke(f, *it, *other);
        }
    }
}

template <class It, class Out, class F>
Out transform_in(const fork_policy& on, const elements<It>& all, Out out, F& f) {
    const elements<Out> to{out, all.size};
    using reference = std::iter_reference_t<It>;
    detail::loop_on(
        on.forks(), all.numbers(), on.options(), [&](std::uint64_t begin, std::uint64_t end) {
            detail::run_with_callee<reference>(f, [&](auto& callee) {
                detail::transform_serially(all.at(begin), all.at(end), to.at(begin), callee);
            });
        });
    return to.at(all.size);
}

template <class It, class Second, class Out, class F>
Out transform_pairs_in(const fork_policy& on, const elements<It>& all, Second second, Out out,
                       F& f) {
    const elements<Second> seconds{second, all.size};
    const elements<Out> to{out, all.size};
    detail::loop_on(on.forks(), all.numbers(), on.options(),
                    [&](std::uint64_t begin, std::uint64_t end) {
                        detail::transform_pairs_serially(all.at(begin), all.at(end),
                                                         seconds.at(begin), to.at(begin), f);
                    });
    return to.at(all.size);
}

template <class It, class Out>
Out copy_in(const fork_policy& on, const elements<It>& all, Out out) {
    const elements<Out> to{out, all.size};
    detail::loop_on(on.forks(), all.numbers(), on.options(),
                    [&](std::uint64_t begin, std::uint64_t end) {
                        std::ranges::copy(all.at(begin), all.at(end), to.at(begin));
                    });
    return to.at(all.size);
}

template <class It, class T>
void fill_in(const fork_policy& on, const elements<It>& all, const T& value) {
    if constexpr (plain_numbers<It, std::identity> && std::is_arithmetic_v<T>) {
        using number = std::iter_value_t<It>;
        return detail::loop_on(
            on.forks(), all.numbers(), on.options(),
            [&all, copy = static_cast<number>(value)](std::uint64_t begin, std::uint64_t end) {
                const number own = copy; // its address is not known outside, as that of `copy` is
                detail::each_element(all.at(begin), all.at(end),
                                     [own](number& element) { element = own; });
            });
    }
    detail::loop_on(on.forks(), all.numbers(), on.options(),
                    [&](std::uint64_t begin, std::uint64_t end) {
                        std::ranges::fill(all.at(begin), all.at(end), value);
                    });
}

template <class F, class It>
using transformed_t = std::invoke_result_t<F&, std::iter_reference_t<It>>;

} // namespace detail

/// Writes f(element) for each element of the range to consecutive places from `out` on, in any
/// order. Returns the iterator behind the last of these places. `out` may be the beginning of the
/// range itself; otherwise the places and the range must not overlap.
/// Blocks, throws, cancellation: as parallel_for(). After an exception or a stop, some of the places
/// are written.
/// Requires: f may be called by several threads at once; it is copied as the body of
/// parallel_for().
template <parallel_range Range, class Out, class F>
    requires parallel_output<Out, detail::transformed_t<F, std::ranges::iterator_t<Range>>>
Out parallel_transform(const fork_policy& on, Range&& range, Out out, F f) {
    return detail::transform_in(on, detail::elements_of(range), std::move(out), f);
}

/// Transforms [first, last) in the same way.
template <class It, class End, class Out, class F>
    requires parallel_bounds<It, End> && parallel_output<Out, detail::transformed_t<F, It>>
Out parallel_transform(const fork_policy& on, It first, End last, Out out, F f) {
    return detail::transform_in(on, detail::elements_of(first, last), std::move(out), f);
}

/// Writes f(a, b) for each element a of [first, last) and the element b at the same place from
/// `second` on. Otherwise as above; `out` may be `second`, too.
template <class It, class End, class Second, class Out, class F>
    requires parallel_bounds<It, End> && std::random_access_iterator<Second> &&
             parallel_output<Out, std::invoke_result_t<F&, std::iter_reference_t<It>,
                                                       std::iter_reference_t<Second>>>
Out parallel_transform(const fork_policy& on, It first, End last, Second second, Out out, F f) {
    return detail::transform_pairs_in(on, detail::elements_of(first, last), std::move(second),
                                      std::move(out), f);
}

/// Copies the elements of the range to consecutive places from `out` on, and returns the iterator
/// behind the last of these places, which must not overlap the range.
/// Otherwise as parallel_transform().
template <parallel_range Range, class Out>
    requires parallel_output<Out, std::ranges::range_reference_t<Range>>
Out parallel_copy(const fork_policy& on, Range&& range, Out out) {
    return detail::copy_in(on, detail::elements_of(range), std::move(out));
}

/// Copies [first, last) in the same way.
template <class It, class End, class Out>
    requires parallel_bounds<It, End> && parallel_output<Out, std::iter_reference_t<It>>
Out parallel_copy(const fork_policy& on, It first, End last, Out out) {
    return detail::copy_in(on, detail::elements_of(first, last), std::move(out));
}

/// Assigns `value` to each element of the range. `value` must not be an element of the range.
/// Otherwise as parallel_for().
template <parallel_range Range, class T>
    requires parallel_output<std::ranges::iterator_t<Range>, const T&>
void parallel_fill(const fork_policy& on, Range&& range, const T& value) {
    detail::fill_in(on, detail::elements_of(range), value);
}

/// Assigns `value` to each element of [first, last) in the same way.
template <class It, class End, class T>
    requires parallel_bounds<It, End> && parallel_output<It, const T&>
void parallel_fill(const fork_policy& on, It first, End last, const T& value) {
    detail::fill_in(on, detail::elements_of(first, last), value);
}

} // namespace bide::inline BIDE_ABI

#endif
