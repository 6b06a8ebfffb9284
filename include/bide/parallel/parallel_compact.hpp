// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_COMPACT_HPP
#define BIDE_PARALLEL_PARALLEL_COMPACT_HPP

/// \file
/// Moves elements to the beginning of their range, in their order: parallel_remove_if(),
/// parallel_unique(), parallel_stable_partition().
///
/// The results are those of std's algorithms, on any number of workers. The predicate is called
/// once for each element. Besides the thread at the front, each thief that took a part around an
/// element may move it once.

#include <bide/core/config.hpp>
#include <bide/parallel/detail/compact_front.hpp>
#include <bide/parallel/detail/element_range.hpp>
#include <bide/parallel/detail/ordered_loop.hpp>
#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/parallel_count.hpp>
#include <bide/parallel/parallel_find.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <iterator>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Predicate, class Projection> struct keeps_unmatched {
    static constexpr bool asks_last = false;
    Predicate& predicate;
    Projection& projection;
    template <class It> bool operator()(const It& it, const It*) const {
        return !std::invoke(predicate, std::invoke(projection, *it));
    }
};

template <class Equal, class Projection> struct keeps_first {
    static constexpr bool asks_last = true;
    Equal& equal;
    Projection& projection;
    template <class It> bool operator()(const It& it, const It* last) const {
        return last == nullptr ||
               !std::invoke(equal, std::invoke(projection, **last), std::invoke(projection, *it));
    }
};

template <class Forker, class It, class Predicate, class Projection>
It remove_if_on(Forker forks, const fork_options& options, const elements<It>& in,
                Predicate& predicate, Projection& projection) {
    keeps_unmatched<Predicate, Projection> keeps{predicate, projection};
    compact_front front(in, keeps);
    detail::run_in_order(forks, options, in.size, front);
    return in.at(front.kept());
}

template <class Forker, class It, class Equal, class Projection>
It unique_on(Forker forks, const fork_options& options, const elements<It>& in, Equal& equal,
             Projection& projection) {
    keeps_first<Equal, Projection> keeps{equal, projection};
    compact_front front(in, keeps);
    detail::run_in_order(forks, options, in.size, front);
    return in.at(front.kept());
}

template <class Forker, class It, class Predicate, class Projection>
It stable_partition_on(Forker forks, const fork_options& options, const elements<It>& in,
                       Predicate& predicate, Projection& projection) {
    auto keeps = [&](const It& it) -> bool {
        return std::invoke(predicate, std::invoke(projection, *it));
    };
    partition_front front(in, keeps);
    detail::run_in_order(forks, options, in.size, front);
    front.put_back();
    return in.at(front.kept());
}

} // namespace detail

/// Removes the elements for which predicate(projection(element)) is true: moves the remaining
/// elements to the beginning, in their order. Returns the iterator behind them. The elements from
/// there on are valid but unspecified.
/// Blocks: until all calls have ended. Meanwhile the caller makes some of them.
/// Throws: of the calls that threw, the exception of the first in the order of the range.
/// stopped_error after a stop. Otherwise as join(). After an exception, all elements are valid but
/// unspecified.
/// Requires: predicate and projection may be called by several threads at once.
/// Cancellation: see fork_options::stop.
/// Complexity: n calls of the predicate. It allocates no memory.
template <parallel_range Range, class Predicate, class Projection = std::identity>
    requires std::permutable<std::ranges::iterator_t<Range>> &&
             detail::finds_in<Predicate, std::ranges::iterator_t<Range>, Projection>
std::ranges::borrowed_iterator_t<Range> parallel_remove_if(const fork_policy& on, Range&& range,
                                                           Predicate predicate,
                                                           Projection projection = {}) {
    return detail::remove_if_on(on.forks(), on.options(), detail::elements_of(range), predicate,
                                projection);
}

/// Removes elements of [first, last) in the same way.
template <class It, class End, class Predicate, class Projection = std::identity>
    requires parallel_bounds<It, End> && std::permutable<It> &&
             detail::finds_in<Predicate, It, Projection>
It parallel_remove_if(const fork_policy& on, It first, End last, Predicate predicate,
                      Projection projection = {}) {
    return detail::remove_if_on(on.forks(), on.options(), detail::elements_of(first, last),
                                predicate, projection);
}

/// Removes all but the first of each group of neighbours that are equal by equal(projection(a),
/// projection(b)). Otherwise as parallel_remove_if().
/// Requires: equal is an equivalence relation.
template <parallel_range Range, class Equal = std::ranges::equal_to,
          class Projection = std::identity>
    requires std::permutable<std::ranges::iterator_t<Range>> &&
             detail::compares_in<Equal, std::ranges::iterator_t<Range>, Projection>
std::ranges::borrowed_iterator_t<Range> parallel_unique(const fork_policy& on, Range&& range,
                                                        Equal equal = {},
                                                        Projection projection = {}) {
    return detail::unique_on(on.forks(), on.options(), detail::elements_of(range), equal,
                             projection);
}

/// Removes elements of [first, last) in the same way.
template <class It, class End, class Equal = std::ranges::equal_to,
          class Projection = std::identity>
    requires parallel_bounds<It, End> && std::permutable<It> &&
             detail::compares_in<Equal, It, Projection>
It parallel_unique(const fork_policy& on, It first, End last, Equal equal = {},
                   Projection projection = {}) {
    return detail::unique_on(on.forks(), on.options(), detail::elements_of(first, last), equal,
                             projection);
}

/// Moves the elements for which predicate(projection(element)) is true before the unmatched
/// elements. Within both groups, elements keep their order. Returns an iterator to the first
/// unmatched element. Allocates memory for the unmatched elements.
/// Throws: as parallel_remove_if(), and std::bad_alloc if there is no memory. Unless a move has
/// thrown, each element is still in the range.
/// Blocks, requires, cancellation: as parallel_remove_if().
template <parallel_range Range, class Predicate, class Projection = std::identity>
    requires std::permutable<std::ranges::iterator_t<Range>> &&
             detail::finds_in<Predicate, std::ranges::iterator_t<Range>, Projection>
std::ranges::borrowed_iterator_t<Range>
parallel_stable_partition(const fork_policy& on, Range&& range, Predicate predicate,
                          Projection projection = {}) {
    return detail::stable_partition_on(on.forks(), on.options(), detail::elements_of(range),
                                       predicate, projection);
}

/// Partitions [first, last) in the same way.
template <class It, class End, class Predicate, class Projection = std::identity>
    requires parallel_bounds<It, End> && std::permutable<It> &&
             detail::finds_in<Predicate, It, Projection>
It parallel_stable_partition(const fork_policy& on, It first, End last, Predicate predicate,
                             Projection projection = {}) {
    return detail::stable_partition_on(on.forks(), on.options(), detail::elements_of(first, last),
                                       predicate, projection);
}

} // namespace bide::inline BIDE_ABI

#endif
