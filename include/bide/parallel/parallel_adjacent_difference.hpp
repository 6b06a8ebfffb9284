// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_ADJACENT_DIFFERENCE_HPP
#define BIDE_PARALLEL_PARALLEL_ADJACENT_DIFFERENCE_HPP

/// \file
/// Writes the differences of neighbours: parallel_adjacent_difference().

#include <bide/parallel/parallel_for.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

template <class Out, class Op, class It>
concept takes_differences =
    std::invocable<Op&, std::iter_reference_t<It>, std::iter_reference_t<It>> &&
    parallel_output<Out, std::iter_reference_t<It>> &&
    parallel_output<
        Out, std::invoke_result_t<Op&, std::iter_reference_t<It>, std::iter_reference_t<It>>>;

} // namespace detail

/// Writes to consecutive places from `out` on: the first element of the range, then op(element,
/// previous element) for each other element. Returns the iterator behind the last place. The places
/// and the range must not overlap, as with std::execution::par.
/// Blocks, throws, cancellation: as parallel_for(). After an exception or a stop, some of the
/// places are written.
/// Requires: op may be called by several threads at once.
template <parallel_range Range, class Out, class Op = std::minus<>>
    requires detail::takes_differences<Out, Op, std::ranges::iterator_t<Range>>
Out parallel_adjacent_difference(const fork_policy& on, Range&& range, Out out, Op op = {}) {
    const auto in = detail::elements_of(range);
    const detail::elements<Out> places{std::move(out), in.size};
    detail::loop_over(on, in.numbers(), [&](std::uint64_t from, std::uint64_t to) {
        const auto end = in.at(to);
        auto it = in.at(from);
        Out place = places.at(from);
        if (from == 0) {
            *place = *it;
            ++it;
            ++place;
        }
        for (; it != end; ++it, static_cast<void>(++place)) {
            auto before = it;
            --before;
            *place = std::invoke(op, *it, *before);
        }
    });
    return places.end();
}

/// Writes the differences of [first, last) in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_adjacent_difference);

}} // namespace bide::BIDE_ABI

#endif
