// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_ELEMENT_HPP
#define BIDE_CHANNEL_DETAIL_ELEMENT_HPP

#include <bide/core/config.hpp>

#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// The requirements on the items of any channel; if one is missing, a message says which. The
// destructor is checked first: if it may throw, std::is_nothrow_move_constructible is false as
// well.
//
// Nothing else is required. So an item is constructed in place by direct initialisation and never
// assigned, and its address is taken by std::addressof(). An item of any alignment is aligned
// inside a channel.
template <class T> constexpr bool check_element() noexcept {
    static_assert(std::is_object_v<T> && !std::is_const_v<T>,
                  "bide: a channel's elements must be objects that are not const");
    static_assert(std::is_nothrow_destructible_v<T>,
                  "bide: a channel's elements must not throw when destroyed");
    static_assert(std::is_nothrow_move_constructible_v<T>,
                  "bide: a channel's elements must not throw when moved: declare the move "
                  "constructor noexcept, or send a std::unique_ptr<T>");
    return true;
}
template <class T> inline constexpr bool is_element = check_element<T>();

// Constructs an item from arguments in parentheses. If the compiler cannot initialise an aggregate
// by parentheses (clang before 16), an aggregate is constructed with braces.
template <class T, class... Args>
concept element_of = std::is_constructible_v<T, Args...> ||
                     requires(Args&&... args) { T{std::forward<Args>(args)...}; };

template <class T, class... Args> T make_element(Args&&... args) {
    if constexpr (std::is_constructible_v<T, Args...>) {
        return T(std::forward<Args>(args)...);
    } else {
        return T{std::forward<Args>(args)...};
    }
}

// True if a T that braces make in a co_await expression is destroyed twice.
template <class T>
inline constexpr bool is_broken_in_braces =
    BIDE_BRACED_AWAIT_BUG && std::is_aggregate_v<T> && !std::is_trivially_destructible_v<T>;

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
