// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_ADJACENT_DIFFERENCE_HPP
#define BIDE_PARALLEL_PARALLEL_ADJACENT_DIFFERENCE_HPP

#include <bide/core/config.hpp>
#include <bide/parallel/detail/element_range.hpp>
#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/parallel_for.hpp>
#include <bide/parallel/parallel_transform.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <iterator>

namespace bide::inline BIDE_ABI {
namespace detail {

// The result of an operation for an element and the one before it.
template <class Op, class It>
using difference_t =
    std::invoke_result_t<Op&, std::iter_reference_t<It>, std::iter_reference_t<It>>;

template <class Out, class Op, class It>
concept takes_differences =
    std::invocable<Op&, std::iter_reference_t<It>, std::iter_reference_t<It>> &&
    parallel_output<Out, std::iter_reference_t<It>> && parallel_output<Out, difference_t<Op, It>>;

template <class It, class Out, class Op>
Out differences_in(const fork_policy& on, const elements<It>& in, const Out& out, Op& op) {
    const elements<Out> places{out, in.size};
    detail::loop_on(on.forks(), in.numbers(), on.options(),
                    [&](std::uint64_t from, std::uint64_t to) {
                        const It end = in.at(to);
                        It it = in.at(from);
                        Out place = places.at(from);
                        if (from == 0) {
                            *place = *it;
                            ++it;
                            ++place;
                        }
                        for (; it != end; ++it, static_cast<void>(++place)) {
                            It before = it;
                            --before;
                            *place = std::invoke(op, *it, *before);
                        }
                    });
    return places.at(in.size);
}

} // namespace detail

/// Writes to consecutive places from `out` on: the first element of the range, then
/// op(element, the element before it) for each other one. Returns the iterator behind the last
/// place. The places and the range must not overlap, as with std::execution::par.
/// Blocks, throws, cancellation: as parallel_for(). After an exception or a stop, some of the
/// places are written.
/// Requires: op may be called by several threads at once.
template <parallel_range Range, class Out, class Op = std::minus<>>
    requires detail::takes_differences<Out, Op, std::ranges::iterator_t<Range>>
Out parallel_adjacent_difference(const fork_policy& on, Range&& range, Out out, Op op = {}) {
    return detail::differences_in(on, detail::elements_of(range), out, op);
}

/// Writes the differences of [first, last) in the same way.
template <class It, class End, class Out, class Op = std::minus<>>
    requires parallel_bounds<It, End> && detail::takes_differences<Out, Op, It>
Out parallel_adjacent_difference(const fork_policy& on, It first, End last, Out out, Op op = {}) {
    return detail::differences_in(on, detail::elements_of(first, last), out, op);
}

} // namespace bide::inline BIDE_ABI

#endif
