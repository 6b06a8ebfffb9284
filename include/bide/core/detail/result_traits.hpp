// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_RESULT_TRAITS_HPP
#define BIDE_CORE_DETAIL_RESULT_TRAITS_HPP

// Decides which types form a result<T, E>, and which of its members exist.

#include <bide/core/config.hpp>

#include <concepts>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {

template <class T, class E> class result;
template <class E> class unexpected;

/// Is the type of unexpect.
struct unexpect_t {
    explicit unexpect_t() = default;
};
/// States that the arguments after it make the error.
inline constexpr unexpect_t unexpect{};

namespace detail {

template <class T> inline constexpr bool is_result = false;
template <class T, class E> inline constexpr bool is_result<result<T, E>> = true;
template <class T> inline constexpr bool is_unexpected = false;
template <class E> inline constexpr bool is_unexpected<unexpected<E>> = true;

template <class T>
inline constexpr bool is_trivial_to_move =
    std::is_trivially_copyable_v<T> && std::is_trivially_move_constructible_v<T> &&
    std::is_trivially_move_assignable_v<T>;

// Whether a T can be replaced by the T that a From makes.
template <class T, class From>
inline constexpr bool is_replaceable =
    std::is_constructible_v<T, From> &&
    (std::is_assignable_v<T&, From> || std::is_nothrow_move_constructible_v<T>);
template <class T, class From>
inline constexpr bool is_nothrow_replaceable =
    std::is_nothrow_constructible_v<T, From> &&
    (std::is_nothrow_assignable_v<T&, From> || std::is_nothrow_move_constructible_v<T>);

template <class T>
inline constexpr bool is_tag = std::is_same_v<T, std::in_place_t> || std::is_same_v<T, unexpect_t>;

template <class T>
inline constexpr bool is_result_part =
    std::is_object_v<T> && !std::is_array_v<T> && !is_tag<T> && !is_unexpected<std::remove_cv_t<T>>;

// Whether a T can be made of a W. Then a W is a value, even if W is a result.
template <class T, class W>
inline constexpr bool is_made_of =
    std::is_constructible_v<T, W&> || std::is_convertible_v<W&, T> ||
    std::is_constructible_v<T, W> || std::is_convertible_v<W, T> ||
    std::is_constructible_v<T, const W&> || std::is_convertible_v<const W&, T> ||
    std::is_constructible_v<T, const W> || std::is_convertible_v<const W, T>;

// Whether a U makes the value of a result<T, E>.
template <class T, class E, class U>
concept makes_value =
    !std::is_same_v<std::remove_cvref_t<U>, result<T, E>> && !is_tag<std::remove_cvref_t<U>> &&
    !is_unexpected<std::remove_cvref_t<U>> &&
    !(std::is_same_v<std::remove_cv_t<T>, bool> && is_result<std::remove_cvref_t<U>>) &&
    std::is_constructible_v<T, U>;

// Whether a U, which makes the value of a result<T, E>, may be assigned to one.
template <class T, class E, class U>
concept assigns_value =
    makes_value<T, E, U> && is_replaceable<T, U> &&
    (std::is_nothrow_constructible_v<T, U> || std::is_nothrow_move_constructible_v<T> ||
     std::is_nothrow_move_constructible_v<E>);
// Whether a G, which makes the error of a result<T, E>, may be assigned to one.
template <class T, class E, class G>
concept assigns_error =
    std::is_constructible_v<E, G> && is_replaceable<E, G> &&
    (std::is_nothrow_constructible_v<E, G> || std::is_void_v<T> ||
     std::is_nothrow_move_constructible_v<T> || std::is_nothrow_move_constructible_v<E>);

// Whether an Other, with a value of type U and an error of type G, converts to a result<T, E>.
template <class T, class E, class Other, class U, class G>
concept converts_to =
    !std::is_same_v<Other, result<T, E>> && std::is_constructible_v<E, G> &&
    !is_made_of<unexpected<E>, Other> &&
    (std::is_void_v<T> || (std::is_constructible_v<T, U> &&
                           (std::is_same_v<std::remove_cv_t<T>, bool> || !is_made_of<T, Other>)));

template <class T, class E>
concept swappable =
    std::is_swappable_v<T> && std::is_swappable_v<E> && std::is_move_constructible_v<T> &&
    std::is_move_constructible_v<E> &&
    (std::is_nothrow_move_constructible_v<T> || std::is_nothrow_move_constructible_v<E>);
template <class T, class E>
inline constexpr bool is_nothrow_to_swap =
    std::is_nothrow_swappable_v<T> && std::is_nothrow_swappable_v<E> &&
    std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_constructible_v<E>;

template <class T, class U>
concept equal_to = requires(const T& a, const U& b) {
    { a == b } -> std::convertible_to<bool>;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
