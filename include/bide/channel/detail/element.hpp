#ifndef BIDE_CHANNEL_DETAIL_ELEMENT_HPP
#define BIDE_CHANNEL_DETAIL_ELEMENT_HPP

#include <bide/core/config.hpp>

#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// What is asked of the elements of any channel; true, or it does not compile and says why. The
// destructor comes first: where it may throw, no move is said to be nothrow either.
//
// Nothing else is asked. So an element is constructed in place by direct initialisation and never
// assigned, and its address is taken by std::addressof(). An element of any alignment is aligned
// inside a channel.
template <class T> constexpr bool check_element() noexcept {
    static_assert(std::is_object_v<T> && !std::is_const_v<T>, "a channel of plain objects");
    static_assert(std::is_nothrow_destructible_v<T>,
                  "bide: a channel's elements must not throw when destroyed");
    static_assert(std::is_nothrow_move_constructible_v<T>,
                  "bide: a channel's elements must not throw when moved: declare the move "
                  "constructor noexcept, or send a std::unique_ptr<T>");
    return true;
}
template <class T> inline constexpr bool is_element = check_element<T>();

// An element is made of arguments by parentheses. An aggregate is made by braces where the compiler
// has no parentheses for those (clang before 16).
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

// What braces make of T in a co_await expression is destroyed twice.
template <class T>
inline constexpr bool is_broken_in_braces =
    BIDE_BRACED_AWAIT_BUG && std::is_aggregate_v<T> && !std::is_trivially_destructible_v<T>;

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
