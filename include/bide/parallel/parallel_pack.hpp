// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_PACK_HPP
#define BIDE_PARALLEL_PARALLEL_PACK_HPP

/// \file
/// Copies some elements of a range to consecutive places, in their order: parallel_copy_if(),
/// parallel_unique_copy(), parallel_partition_copy(). The algorithms that work in place are in
/// parallel_compact.hpp.
///
/// The results are those of std's algorithms, on any number of workers. The predicate is called
/// once for each element.

#include <bide/core/config.hpp>
#include <bide/parallel/detail/element_range.hpp>
#include <bide/parallel/detail/ordered_loop.hpp>
#include <bide/parallel/detail/pack_front.hpp>
#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/parallel_count.hpp>
#include <bide/parallel/parallel_find.hpp>
#include <bide/parallel/parallel_transform.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <iterator>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// Returns how many elements are kept.
template <class Forker, class It, class Keeps, class Output>
std::uint64_t pack_on(Forker forks, const fork_options& options, const elements<It>& in,
                      Keeps keeps, const Output& output) {
    pack_front<It, Keeps, Output> front(in, options.grain, keeps, output);
    detail::run_in_order(forks, options, in.size, front);
    return front.kept();
}

template <class Forker, class It, class Out, class Predicate, class Projection>
Out copy_if_on(Forker forks, const fork_options& options, const elements<It>& in, const Out& out,
               Predicate& predicate, Projection& projection) {
    const elements<Out> to{out, in.size};
    return to.at(detail::pack_on(
        forks, options, in,
        [&](const It& it) -> bool { return std::invoke(predicate, std::invoke(projection, *it)); },
        kept_output<It, Out>{to}));
}

template <class Forker, class It, class Out, class Equal, class Projection>
Out unique_copy_on(Forker forks, const fork_options& options, const elements<It>& in,
                   const Out& out, Equal& equal, Projection& projection) {
    const elements<Out> to{out, in.size};
    return to.at(detail::pack_on(
        forks, options, in,
        [&](const It& it) -> bool {
            if (it == in.first) {
                return true;
            }
            It before = it;
            --before;
            return !std::invoke(equal, std::invoke(projection, *before),
                                std::invoke(projection, *it));
        },
        kept_output<It, Out>{to}));
}

template <class Forker, class It, class Out, class Other, class Predicate, class Projection>
std::pair<Out, Other> partition_copy_on(Forker forks, const fork_options& options,
                                        const elements<It>& in, const Out& out, const Other& other,
                                        Predicate& predicate, Projection& projection) {
    const elements<Out> to{out, in.size};
    const elements<Other> rest{other, in.size};
    const std::uint64_t kept = detail::pack_on(
        forks, options, in,
        [&](const It& it) -> bool { return std::invoke(predicate, std::invoke(projection, *it)); },
        parted_output<It, Out, Other>{to, rest});
    return {to.at(kept), rest.at(in.size - kept)};
}

} // namespace detail

/// Copies the elements for which predicate(projection(element)) is true to consecutive places from
/// `out` on, in their order. Returns the iterator behind the last of these places. The places and
/// the range must not overlap; no place behind the last one is written.
/// Blocks: until all calls have ended. Meanwhile the caller makes some of them.
/// Throws: what the first call in the order of the range threw; the elements before it are copied.
/// stopped_error after a stop. Otherwise as join(). If a copy throws, some calls of the predicate
/// behind it may have been made.
/// Requires: predicate and projection may be called by several threads at once.
/// Cancellation: see fork_options::stop.
/// Complexity: n calls of the predicate. Up to n bytes of memory.
template <parallel_range Range, class Out, class Predicate, class Projection = std::identity>
    requires detail::finds_in<Predicate, std::ranges::iterator_t<Range>, Projection> &&
             parallel_output<Out, std::ranges::range_reference_t<Range>>
Out parallel_copy_if(const fork_policy& on, Range&& range, Out out, Predicate predicate,
                     Projection projection = {}) {
    return detail::copy_if_on(on.forks(), on.options(), detail::elements_of(range), out, predicate,
                              projection);
}

/// Copies elements of [first, last) in the same way.
template <class It, class End, class Out, class Predicate, class Projection = std::identity>
    requires parallel_bounds<It, End> && detail::finds_in<Predicate, It, Projection> &&
             parallel_output<Out, std::iter_reference_t<It>>
Out parallel_copy_if(const fork_policy& on, It first, End last, Out out, Predicate predicate,
                     Projection projection = {}) {
    return detail::copy_if_on(on.forks(), on.options(), detail::elements_of(first, last), out,
                              predicate, projection);
}

/// Copies the first of each group of neighbours that are equal by equal(projection(a),
/// projection(b)). Otherwise as parallel_copy_if().
/// Requires: equal is an equivalence relation: neighbours of the range are compared.
template <parallel_range Range, class Out, class Equal = std::ranges::equal_to,
          class Projection = std::identity>
    requires detail::compares_in<Equal, std::ranges::iterator_t<Range>, Projection> &&
             parallel_output<Out, std::ranges::range_reference_t<Range>>
Out parallel_unique_copy(const fork_policy& on, Range&& range, Out out, Equal equal = {},
                         Projection projection = {}) {
    return detail::unique_copy_on(on.forks(), on.options(), detail::elements_of(range), out, equal,
                                  projection);
}

/// Copies elements of [first, last) in the same way.
template <class It, class End, class Out, class Equal = std::ranges::equal_to,
          class Projection = std::identity>
    requires parallel_bounds<It, End> && detail::compares_in<Equal, It, Projection> &&
             parallel_output<Out, std::iter_reference_t<It>>
Out parallel_unique_copy(const fork_policy& on, It first, End last, Out out, Equal equal = {},
                         Projection projection = {}) {
    return detail::unique_copy_on(on.forks(), on.options(), detail::elements_of(first, last), out,
                                  equal, projection);
}

/// Copies the elements for which predicate(projection(element)) is true to consecutive places from
/// `matches` on, and the unmatched elements to places from `others` on, both in their order. Returns
/// the iterators behind the last places. Otherwise as parallel_copy_if().
template <parallel_range Range, class Out, class Other, class Predicate,
          class Projection = std::identity>
    requires detail::finds_in<Predicate, std::ranges::iterator_t<Range>, Projection> &&
             parallel_output<Out, std::ranges::range_reference_t<Range>> &&
             parallel_output<Other, std::ranges::range_reference_t<Range>>
std::pair<Out, Other> parallel_partition_copy(const fork_policy& on, Range&& range, Out matches,
                                              Other others, Predicate predicate,
                                              Projection projection = {}) {
    return detail::partition_copy_on(on.forks(), on.options(), detail::elements_of(range), matches,
                                     others, predicate, projection);
}

/// Copies the elements of [first, last) in the same way.
template <class It, class End, class Out, class Other, class Predicate,
          class Projection = std::identity>
    requires parallel_bounds<It, End> && detail::finds_in<Predicate, It, Projection> &&
             parallel_output<Out, std::iter_reference_t<It>> &&
             parallel_output<Other, std::iter_reference_t<It>>
std::pair<Out, Other> parallel_partition_copy(const fork_policy& on, It first, End last,
                                              Out matches, Other others, Predicate predicate,
                                              Projection projection = {}) {
    return detail::partition_copy_on(on.forks(), on.options(), detail::elements_of(first, last),
                                     matches, others, predicate, projection);
}

} // namespace bide::inline BIDE_ABI

#endif
