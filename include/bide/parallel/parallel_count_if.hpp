// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_COUNT_IF_HPP
#define BIDE_PARALLEL_PARALLEL_COUNT_IF_HPP

/// \file
/// Counts the elements that match: parallel_count_if().

#include <bide/parallel/parallel_for.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// Returns for how many elements is_match(*it) is true.
template <class It, class IsMatch>
BIDE_INLINE std::uint64_t count_matches(const It& first, const It& last, IsMatch&& is_match) {
    if constexpr (std::contiguous_iterator<It>) {
        auto* at = detail::unwrap(first);
        auto* const end = detail::unwrap(last);
        std::uint64_t count = 0;
        for (; end - at >= plain_block; at += plain_block) {
            std::uint32_t here = 0;
            for (int k = 0; k < plain_block; ++k) {
                here += is_match(at[k]) ? 1U : 0U;
            }
            count += here;
        }
        for (; at != end; ++at) {
            count += is_match(*at) ? 1U : 0U;
        }
        return count;
    } else {
        std::uint64_t count = 0;
        for (It it = first; it != last; ++it) {
            count += is_match(*it) ? 1U : 0U;
        }
        return count;
    }
}

} // namespace detail

/// Returns the number of elements for which predicate(projection(element)) is true.
/// Blocks, throws, cancellation: as parallel_for().
/// Requires: predicate and projection may be called by several threads at once.
template <parallel_range Range, class Predicate, class Projection = std::identity>
    requires detail::finds_in<Predicate, std::ranges::iterator_t<Range>, Projection>
std::ranges::range_difference_t<Range> parallel_count_if(const fork_policy& on, Range&& range,
                                                         Predicate predicate,
                                                         Projection projection = {}) {
    using reference = std::ranges::range_reference_t<Range>;
    using projected = std::invoke_result_t<Projection&, reference>;
    const auto all = detail::elements_of(range);
    native_platform::atomic<std::uint64_t> count{0};
    detail::loop_over(on, all.numbers(), [&](std::uint64_t from, std::uint64_t to) {
        std::uint64_t here = 0;
        detail::run_with_callee<projected>(predicate, [&](auto& callee) {
            here = detail::count_matches(all.at(from), all.at(to), [&](auto&& element) -> bool {
                return std::invoke(
                    callee, std::invoke(projection, static_cast<decltype(element)>(element)));
            });
        });
        // Order: relaxed; the loop's joins order this addition before the load below.
        count.fetch_add(here, std::memory_order_relaxed);
    });
    // Order: relaxed; the loop's joins order this load after the additions.
    return static_cast<std::ranges::range_difference_t<Range>>(
        count.load(std::memory_order_relaxed));
}

/// Counts in [first, last) in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_count_if);

}} // namespace bide::BIDE_ABI

#endif
