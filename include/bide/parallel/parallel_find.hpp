// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_FIND_HPP
#define BIDE_PARALLEL_PARALLEL_FIND_HPP

/// \file
/// Searches that end as soon as the result is known. parallel_find_if() returns the first match in
/// the order of the range, parallel_find_any() returns any match.
///
/// As soon as a match is known, parts behind the match are neither searched nor divided. So each
/// thread examines few more elements than a serial search does.

#include <bide/parallel/parallel_for.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

enum class wanted_match { first, any };

// The predicate of parallel_find().
template <class T> struct equals_value {
    bool operator()(auto&& element) const { return element == value; }
    const T& value;
};

// Returns the first place of [first, last) that holds the number, or `last`.
template <class T> const T* find_number(const T* first, const T* const last, T value) {
    for (; last - first >= plain_block; first += plain_block) {
        std::uint32_t matches = 0;
        for (int k = 0; k < plain_block; ++k) {
            matches += first[k] == value ? 1U : 0U;
        }
        if (matches != 0) {
            break;
        }
    }
    while (first != last && !(*first == value)) {
        ++first;
    }
    return first;
}

// Returns how many elements are before the first match. For contiguous iterators, uses
// std::find_if, which examines several elements in one step of its loop. Other iterators may have a
// difference type that is wider than all integers, such as those of std::views::iota over 64 bits.
// std::find_if does not accept these, but std::ranges::find_if does.
template <class It, class Matches>
std::uint64_t find_serially(const It& begin, const It& end, Matches matches) {
    if constexpr (std::contiguous_iterator<It>) {
        auto* const first = detail::unwrap(begin);
        return static_cast<std::uint64_t>(std::find_if(first, detail::unwrap(end), matches) -
                                          first);
    } else {
        return static_cast<std::uint64_t>(std::ranges::find_if(begin, end, matches) - begin);
    }
}

// Returns the number of a match, or all.size if there is none.
template <wanted_match Wanted, class On, class It, class Predicate, class Projection>
std::uint64_t find_match(const On& on, const elements<It>& all, Predicate& predicate,
                         Projection& projection) {
    using platform = typename decltype(on.forks())::platform;
    using projected = std::invoke_result_t<Projection&, std::iter_reference_t<It>>;
    constexpr std::uint64_t none = (std::numeric_limits<std::uint64_t>::max)();
    if (all.size == 0) {
        return 0;
    }
    typename platform::template atomic<std::uint64_t> found{none};
    const std::uint64_t grain = on.options().grain;
    parallel_loop loop(on.forks(), on.options(), all.size, grain, 1, grain != 0);
    const auto leaf = [&](std::uint64_t from, std::uint64_t to) {
        std::uint64_t match = none;
        detail::run_with_callee<projected>(predicate, [&](auto& callee) {
            const It begin = all.at(from);
            if constexpr (plain_numbers<It> && std::is_same_v<Projection, std::identity> &&
                          std::is_same_v<Predicate, equals_value<std::iter_value_t<It>>>) {
                auto* const first = detail::unwrap(begin);
                match = from +
                        static_cast<std::uint64_t>(
                            detail::find_number(first, first + (to - from), callee.value) - first);
                match = match == to ? none : match;
                return;
            }
            const std::uint64_t at =
                detail::find_serially(begin, all.at(to), [&](auto&& element) -> bool {
                    return std::invoke(
                        callee, std::invoke(projection, static_cast<decltype(element)>(element)));
                });
            match = at == to - from ? none : from + at;
        });
        if (match != none) {
            detail::lower(found, match);
            loop.state().end_at(Wanted == wanted_match::any ? 0 : match);
        }
    };
    leaf_front front(leaf);
    const auto result = [&] {
        // Order: relaxed; the loop's joins order this load after the leaves.
        const std::uint64_t match = found.load(std::memory_order_relaxed);
        return match == none ? all.size : match;
    };
#if BIDE_EXCEPTIONS
    try {
#endif
        loop.run(front, all.size);
#if BIDE_EXCEPTIONS
    } catch (...) {
        // A serial search would make no call behind the match. So an exception of such a call is
        // dropped.
        const std::uint64_t failed_at = loop.state().failed_at();
        if (failed_at == none || result() == all.size ||
            (Wanted == wanted_match::first && failed_at < result())) {
            throw;
        }
    }
#endif
    if (result() == all.size || Wanted == wanted_match::first) {
        loop.state().finish();
    }
    return result();
}

} // namespace detail

/// Returns an iterator to the first element for which predicate(projection(element)) is true, or
/// the end of the range. As soon as a match is known, elements behind it are skipped. All calls for
/// elements before the match are made. If several threads search, some calls for elements behind
/// the match are made, too.
/// Blocks: until the match is known. Meanwhile the caller searches parts of the range.
/// Throws: of the calls that threw, the exception of the first call in the order of the range,
/// unless a match comes before it. stopped_error if an element that could be the result was skipped
/// because of a stop. Other exceptions are those of join().
/// Requires: predicate and projection may be called by several threads at once.
/// Cancellation: see fork_options::stop.
template <parallel_range Range, class Predicate, class Projection = std::identity>
    requires detail::finds_in<Predicate, std::ranges::iterator_t<Range>, Projection>
std::ranges::borrowed_iterator_t<Range> parallel_find_if(const fork_policy& on, Range&& range,
                                                         Predicate predicate,
                                                         Projection projection = {}) {
    const auto all = detail::elements_of(range);
    return all.at(detail::find_match<detail::wanted_match::first>(on, all, predicate, projection));
}

/// Searches [first, last) in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_find_if);

/// Returns an iterator to the first element whose projection equals `value`, or the end. Everything
/// else is as in parallel_find_if().
template <parallel_range Range, class T, class Projection = std::identity>
    requires std::regular_invocable<Projection&, std::ranges::range_reference_t<Range>>
std::ranges::borrowed_iterator_t<Range> parallel_find(const fork_policy& on, Range&& range,
                                                      const T& value, Projection projection = {}) {
    detail::equals_value<T> equals{value};
    const auto all = detail::elements_of(range);
    return all.at(detail::find_match<detail::wanted_match::first>(on, all, equals, projection));
}

/// Searches [first, last) in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_find);

/// Returns an iterator to an element for which predicate(projection(element)) is true, or the end.
/// If there are several such elements, returns any of them. As soon as one is known, no thread
/// begins another part of the range.
/// Throws: nothing if a match was found. If none was found: of the calls that threw, the exception
/// of the first call in the order of the range, or stopped_error after a stop. Everything else is
/// as in parallel_find_if().
template <parallel_range Range, class Predicate, class Projection = std::identity>
    requires detail::finds_in<Predicate, std::ranges::iterator_t<Range>, Projection>
std::ranges::borrowed_iterator_t<Range> parallel_find_any(const fork_policy& on, Range&& range,
                                                          Predicate predicate,
                                                          Projection projection = {}) {
    const auto all = detail::elements_of(range);
    return all.at(detail::find_match<detail::wanted_match::any>(on, all, predicate, projection));
}

}} // namespace bide::BIDE_ABI

#endif
