// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_FILL_HPP
#define BIDE_PARALLEL_PARALLEL_FILL_HPP

#include <bide/core/config.hpp>
#include <bide/parallel/detail/elements.hpp>
#include <bide/parallel/detail/parallel_loop.hpp>
#include <bide/parallel/fork_join.hpp>
#include <bide/parallel/fork_policy.hpp>

#include <cstdint>
#include <iterator>
#include <span> // the concepts of ranges
#include <type_traits>
#include <utility>

namespace bide { inline namespace BIDE_ABI {

/// Assigns `value` to each element of the range. `value` must not be an element of the range.
/// Otherwise as parallel_for().
template <parallel_range Range, class T>
    requires parallel_output<std::ranges::iterator_t<Range>, const T&>
void parallel_fill(const fork_policy& on, Range&& range, const T& value) {
    using iterator = std::ranges::iterator_t<Range>;
    const auto all = detail::elements_of(range);
    if constexpr (detail::plain_numbers<iterator> && std::is_arithmetic_v<T>) {
        using number = std::iter_value_t<iterator>;
        detail::loop_over(
            on, all.numbers(),
            [&all, copy = static_cast<number>(value)](std::uint64_t from, std::uint64_t to) {
                const number own = copy; // unlike `copy`, no other code knows its address
                detail::each_element(all.at(from), all.at(to),
                                     [own](number& element) { element = own; });
            });
    } else {
        detail::loop_over(on, all.numbers(), [&](std::uint64_t from, std::uint64_t to) {
            detail::each_element(all.at(from), all.at(to), [&value](auto&& element) {
                static_cast<decltype(element)>(element) = value;
            });
        });
    }
}

/// Assigns `value` to each element of [first, last) in the same way.
template <class It, detail::parallel_end<It> End, class... Args>
auto parallel_fill(const fork_policy& on, It first, End last, Args&&... args) {
    return bide::parallel_fill(on, detail::elements_of(std::move(first), last),
                               std::forward<Args>(args)...);
}

}} // namespace bide::BIDE_ABI

#endif
