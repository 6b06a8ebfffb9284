// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_FILL_HPP
#define BIDE_PARALLEL_PARALLEL_FILL_HPP

/// \file
/// Assigns a value to each element: parallel_fill().

#include <bide/parallel/parallel_for.hpp>

namespace bide { inline namespace BIDE_ABI {

/// Assigns `value` to each element of the range. `value` must not be an element of the range.
/// Everything else is as in parallel_for().
template <parallel_range Range, class T>
    requires parallel_output<std::ranges::iterator_t<Range>, const T&>
void parallel_fill(const fork_policy& on, Range&& range, const T& value) {
    using iterator = std::ranges::iterator_t<Range>;
    if constexpr (detail::plain_numbers<iterator> && std::is_arithmetic_v<T>) {
        using number = std::iter_value_t<iterator>;
        const auto assign = [own = static_cast<number>(value)](number& element) { element = own; };
        detail::for_elements(on, detail::elements_of(range), assign);
    } else {
        const auto assign = [&value](auto&& element) {
            static_cast<decltype(element)>(element) = value;
        };
        detail::for_elements(on, detail::elements_of(range), assign);
    }
}

/// Assigns `value` to each element of [first, last) in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_fill);

}} // namespace bide::BIDE_ABI

#endif
