// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_PARTITION_HPP
#define BIDE_PARALLEL_PARALLEL_PARTITION_HPP

#include <bide/core/config.hpp>
#include <bide/parallel/detail/divide.hpp>
#include <bide/parallel/detail/element_range.hpp>
#include <bide/parallel/detail/loop_state.hpp>
#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/fork_progress.hpp>
#include <bide/parallel/parallel_find.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <iterator>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// The least elements of a chunk, if no grain is given: they take some microseconds.
inline constexpr std::uint64_t partition_chunk = 4'096;

template <class Forker, class It, class Predicate, class Projection>
It partition_on(Forker forks, It begin, It end, const fork_options& options, Predicate& predicate,
                Projection& projection) {
    const auto size = static_cast<std::uint64_t>(end - begin);
    const std::uint64_t least = options.grain != 0 ? options.grain : partition_chunk;
    const auto goes_left = [&](auto&& element) -> bool {
        return std::invoke(predicate,
                           std::invoke(projection, std::forward<decltype(element)>(element)));
    };
    basic_loop_state<typename Forker::platform> state(options, size);
    const auto divide_chunk = [&](It first, It last) {
        division<It> chunk{first, false};
        const auto at = static_cast<std::uint64_t>(first - begin);
        if (!state.leaves_out(at)) {
            state.run(at, static_cast<std::uint64_t>(last - first),
                      [&] { chunk = detail::divide(first, last, goes_left); });
        }
        return chunk;
    };
    It middle = begin;
    const auto run = [&] {
        middle = detail::divide_by_chunks(forks, begin, end, least, divide_chunk).middle;
    };
    if (size / 2 >= least) {
        forks.enter(run);
    } else if (size != 0) {
        run();
    }
    state.finish();
    return middle;
}

template <class It, class Predicate, class Projection>
It partition_in(const fork_policy& on, const elements<It>& all, Predicate& predicate,
                Projection& projection) {
    const auto first = detail::unwrap(all.first);
    const auto middle = detail::partition_on(on.forks(), first, detail::unwrap(all.at(all.size)),
                                             on.options(), predicate, projection);
    return all.first + static_cast<std::iter_difference_t<It>>(middle - first);
}

} // namespace detail

/// Moves the elements for which predicate(projection(element)) is true before the unmatched
/// elements. Returns an iterator to the first unmatched element. The order within both groups
/// depends on the range and the grain alone, not on the number of workers.
/// parallel_stable_partition() keeps the order.
/// Blocks: until all calls have ended. Meanwhile the caller makes some of them. A range of less than
/// 8,192 elements, or twice the grain, is partitioned by the calling thread alone.
/// Throws: what a call of the predicate threw; if several threw, the exception of the first part of
/// the range with one. The range then has the same elements as before, in some order. If a move or a
/// swap throws, all elements are alive, but their values are unspecified. stopped_error after a stop.
/// Otherwise as join().
/// Requires: predicate and projection may be called by several threads at once.
/// Cancellation: a stop takes effect between parts. If it leaves out a part, throws stopped_error,
/// and the range has the same elements as before, in some order. options.grain is the least number
/// of elements of a part; there are at most 64 parts. options.progress counts the elements that were
/// asked.
/// Complexity: n calls of the predicate, and at most n swaps. It allocates no memory.
template <parallel_range Range, class Predicate, class Projection = std::identity>
    requires std::permutable<std::ranges::iterator_t<Range>> &&
             detail::finds_in<Predicate, std::ranges::iterator_t<Range>, Projection>
std::ranges::borrowed_iterator_t<Range> parallel_partition(const fork_policy& on, Range&& range,
                                                           Predicate predicate,
                                                           Projection projection = {}) {
    return detail::partition_in(on, detail::elements_of(range), predicate, projection);
}

/// Partitions [first, last) in the same way.
template <class It, class End, class Predicate, class Projection = std::identity>
    requires parallel_bounds<It, End> && std::permutable<It> &&
             detail::finds_in<Predicate, It, Projection>
It parallel_partition(const fork_policy& on, It first, End last, Predicate predicate,
                      Projection projection = {}) {
    return detail::partition_in(on, detail::elements_of(first, last), predicate, projection);
}

} // namespace bide::inline BIDE_ABI

#endif
