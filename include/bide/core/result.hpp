// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_RESULT_HPP
#define BIDE_CORE_RESULT_HPP

/// \file
/// Holds a value, or the error that explains why there is none. result and unexpected have the
/// members of std::expected and std::unexpected. They are always types of bide, so that C++20 and
/// C++23 translation units link together. They differ from the standard's types in these points:
///
/// \code
/// value()      If there is no value, throws the exception of the error: closed_error, stopped_error
///              or std::system_error, not bad_expected_access. The error is an errc, a
///              std::error_code, or an object with an errc as its member `code`. For any other
///              error type, value() does not compile.
/// unexpect     Is bide::unexpect, because C++20 has no std::unexpect.
/// assignment   If the type's own assignment is missing or may throw, and its move constructor does
///              not throw, a new value (or error) replaces the old one. An exception leaves the old
///              one unchanged.
/// constexpr    All members except swap, emplace and the assignments. Copy and move assignment are
///              constexpr for trivial types.
/// trivial      Copies, moves and the destructor are trivial if both types are trivially copyable,
///              movable and assignable; else none of them is.
/// \endcode

#include <bide/core/config.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/wait_status.hpp>
#include <bide/fwd.hpp>

#include <concepts>
#include <initializer_list>
#include <new>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {

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

// The value of a result<void>.
struct nothing {};

// Mark the next argument as a function that returns the value, or the error.
struct value_of_call {};
struct error_of_call {};

// Returns the address at which a member of a union is constructed.
template <class T> void* place(T& member) noexcept {
    return const_cast<void*>(static_cast<const volatile void*>(__builtin_addressof(member)));
}
template <class T, class... Args> void construct(T& member, Args&&... args) {
    ::new (detail::place(member)) T(std::forward<Args>(args)...);
}
template <class T> constexpr void destroy(T& member) noexcept { member.~T(); }

// Moves a value back to its place, unless `done`.
template <class T> struct put_back {
    T& where;
    T& kept;
    bool done = false;
    ~put_back() {
        if (!done) {
            detail::construct(where, std::move(kept));
        }
    }
};

// Does what std::invoke(f, x) does, without <functional>.
template <class F, class X> constexpr decltype(auto) call_with(F&& f, X&& x) {
    if constexpr (std::is_member_object_pointer_v<std::remove_cvref_t<F>>) {
        if constexpr (requires { std::forward<X>(x).*f; }) {
            return (std::forward<X>(x).*f);
        } else {
            return ((*std::forward<X>(x)).*f);
        }
    } else if constexpr (std::is_member_function_pointer_v<std::remove_cvref_t<F>>) {
        if constexpr (requires { (std::forward<X>(x).*f)(); }) {
            return (std::forward<X>(x).*f)();
        } else {
            return ((*std::forward<X>(x)).*f)();
        }
    } else {
        return std::forward<F>(f)(std::forward<X>(x));
    }
}

// Holds one of the two. The owner knows which one, and destroys it.
template <class T, class E, bool Trivial> union value_or_error {
    template <class... Args>
    constexpr explicit value_or_error(std::in_place_t, Args&&... args)
        : value(std::forward<Args>(args)...) {}
    template <class... Args>
    constexpr explicit value_or_error(unexpect_t, Args&&... args)
        : error(std::forward<Args>(args)...) {}
    template <class F>
    constexpr value_or_error(value_of_call, F&& make) : value(std::forward<F>(make)()) {}
    template <class F>
    constexpr value_or_error(error_of_call, F&& make) : error(std::forward<F>(make)()) {}

    T value;
    E error;
};

template <class T, class E> union value_or_error<T, E, false> {
    template <class... Args>
    constexpr explicit value_or_error(std::in_place_t, Args&&... args)
        : value(std::forward<Args>(args)...) {}
    template <class... Args>
    constexpr explicit value_or_error(unexpect_t, Args&&... args)
        : error(std::forward<Args>(args)...) {}
    template <class F>
    constexpr value_or_error(value_of_call, F&& make) : value(std::forward<F>(make)()) {}
    template <class F>
    constexpr value_or_error(error_of_call, F&& make) : error(std::forward<F>(make)()) {}
    constexpr ~value_or_error() {}

    T value;
    E error;
};

// Knows which of the two it holds, and changes one into the other. If a change throws, it holds the
// same one as before.
template <class T, class E, bool Trivial> class result_parts {
protected:
    struct converted {};
    using either = value_or_error<T, E, Trivial>;

    template <class... Args>
    constexpr explicit result_parts(std::in_place_t tag, Args&&... args)
        : either_(tag, std::forward<Args>(args)...), has_value_(true) {}
    template <class... Args>
    constexpr explicit result_parts(unexpect_t tag, Args&&... args)
        : either_(tag, std::forward<Args>(args)...), has_value_(false) {}
    template <class F>
    constexpr result_parts(value_of_call tag, F&& make)
        : either_(tag, std::forward<F>(make)), has_value_(true) {}
    template <class F>
    constexpr result_parts(error_of_call tag, F&& make)
        : either_(tag, std::forward<F>(make)), has_value_(false) {}
    template <class Other>
    constexpr result_parts(converted, Other&& other)
        : either_(other.has_value_ ? either(std::in_place, std::forward<Other>(other).either_.value)
                                   : either(unexpect, std::forward<Other>(other).either_.error)),
          has_value_(other.has_value_) {}

    // Become the value, or the error, that `from` makes.
    template <class From> void set_value(From&& from) {
        if (has_value_) {
            replace(either_.value, std::forward<From>(from));
        } else {
            turn(either_.error, either_.value, std::forward<From>(from));
            has_value_ = true;
        }
    }
    template <class From> void set_error(From&& from) {
        if (!has_value_) {
            replace(either_.error, std::forward<From>(from));
        } else {
            turn(either_.value, either_.error, std::forward<From>(from));
            has_value_ = false;
        }
    }
    template <class Other> void set(Other&& other) {
        if (other.has_value_) {
            set_value(std::forward<Other>(other).either_.value);
        } else {
            set_error(std::forward<Other>(other).either_.error);
        }
    }

    template <class... Args> T& emplace_value(Args&&... args) noexcept {
        end();
        detail::construct(either_.value, std::forward<Args>(args)...);
        has_value_ = true;
        return either_.value;
    }

    void swap_parts(result_parts& other) {
        using std::swap;
        if (has_value_ && other.has_value_) {
            swap(either_.value, other.either_.value);
        } else if (!has_value_ && !other.has_value_) {
            swap(either_.error, other.either_.error);
        } else {
            result_parts& good = has_value_ ? *this : other;
            result_parts& bad = has_value_ ? other : *this;
            if constexpr (std::is_nothrow_move_constructible_v<E>) {
                trade(bad.either_.error, bad.either_.value, good.either_.value, good.either_.error);
            } else {
                trade(good.either_.value, good.either_.error, bad.either_.error, bad.either_.value);
            }
            swap(has_value_, other.has_value_);
        }
    }

    constexpr void end() noexcept {
        if (has_value_) {
            detail::destroy(either_.value);
        } else {
            detail::destroy(either_.error);
        }
    }

    either either_;
    bool has_value_;

private:
    template <class, class, bool> friend class result_parts;

    template <class V, class From> static void replace(V& to, From&& from) {
        if constexpr (std::is_nothrow_assignable_v<V&, From> ||
                      !std::is_nothrow_move_constructible_v<V>) {
            to = std::forward<From>(from);
        } else {
            V made(std::forward<From>(from));
            detail::destroy(to);
            detail::construct(to, std::move(made));
        }
    }

    template <class Old, class New, class From> static void turn(Old& old, New& to, From&& from) {
        if constexpr (std::is_nothrow_move_constructible_v<New>) {
            New made(std::forward<From>(from)); // `from` may be part of `old`
            detail::destroy(old);
            detail::construct(to, std::move(made));
        } else if constexpr (std::is_nothrow_constructible_v<New, From>) {
            detail::destroy(old);
            detail::construct(to, std::forward<From>(from));
        } else {
            Old kept(std::move(old));
            detail::destroy(old);
            put_back<Old> undo{old, kept};
            detail::construct(to, std::forward<From>(from));
            undo.done = true;
        }
    }

    // Moves `first` to `first_to` and `second` to `second_to`. `second_to` shares the place of
    // `first`, and `first_to` shares the place of `second`. A move of First does not throw.
    template <class First, class Second>
    static void trade(First& first, Second& second_to, Second& second, First& first_to) {
        First kept(std::move(first));
        detail::destroy(first);
        put_back<First> undo{first, kept};
        detail::construct(second_to, std::move(second));
        undo.done = true;
        detail::destroy(second);
        detail::construct(first_to, std::move(kept));
    }
};

// Adds copies, moves and a destructor; for trivial types, the implicit ones.
template <class T, class E, bool Trivial = is_trivial_to_move<T> && is_trivial_to_move<E>>
class result_storage : public result_parts<T, E, Trivial> {
protected:
    using result_parts<T, E, Trivial>::result_parts;
};

template <class T, class E> class result_storage<T, E, false> : public result_parts<T, E, false> {
    using parts = result_parts<T, E, false>;
    static constexpr bool is_changeable =
        std::is_nothrow_move_constructible_v<T> || std::is_nothrow_move_constructible_v<E>;

protected:
    using parts::parts;

public:
    constexpr result_storage(const result_storage& other) noexcept(
        std::is_nothrow_copy_constructible_v<T> && std::is_nothrow_copy_constructible_v<E>)
        requires(std::is_copy_constructible_v<T> && std::is_copy_constructible_v<E>)
        : parts(typename parts::converted(), other) {}
    constexpr result_storage(result_storage&& other) noexcept(
        std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_constructible_v<E>)
        requires(std::is_move_constructible_v<T> && std::is_move_constructible_v<E>)
        : parts(typename parts::converted(), std::move(other)) {}

    result_storage&
    operator=(const result_storage& other) noexcept(is_nothrow_replaceable<T, const T&> &&
                                                    is_nothrow_replaceable<E, const E&>)
        requires(is_replaceable<T, const T&> && is_replaceable<E, const E&> && is_changeable)
    {
        if (this != &other) {
            this->set(other);
        }
        return *this;
    }
    result_storage& operator=(result_storage&& other) noexcept(is_nothrow_replaceable<T, T> &&
                                                               is_nothrow_replaceable<E, E>)
        requires(is_replaceable<T, T> && is_replaceable<E, E> && is_changeable)
    {
        if (this != &other) {
            this->set(std::move(other));
        }
        return *this;
    }

    constexpr ~result_storage() { this->end(); }
};

/// Holds the members that all results share.
template <class T, class E>
class result_chain : public result_storage<std::conditional_t<std::is_void_v<T>, nothing, T>, E> {
    using V = std::conditional_t<std::is_void_v<T>, nothing, T>;

public:
    /// Is the type of the value.
    using value_type = T;
    /// Is the type of the error.
    using error_type = E;
    /// Is the type that wraps the error.
    using unexpected_type = unexpected<E>;
    /// Is a result with another type of value.
    template <class U> using rebind = result<U, E>;

    /// Returns whether there is a value.
    constexpr bool has_value() const noexcept { return this->has_value_; }
    /// Returns whether there is a value.
    constexpr explicit operator bool() const noexcept { return this->has_value_; }

    /// Returns the error.
    /// Requires: !has_value().
    constexpr E& error() & noexcept { return this->either_.error; }
    constexpr const E& error() const& noexcept { return this->either_.error; }
    constexpr E&& error() && noexcept { return std::move(this->either_.error); }
    constexpr const E&& error() const&& noexcept { return std::move(this->either_.error); }

    /// Returns the error; `other`, converted to E, if there is a value.
    template <class G = E>
        requires std::is_copy_constructible_v<E>
    constexpr E error_or(G&& other) const& {
        return has_value() ? static_cast<E>(std::forward<G>(other)) : error();
    }
    template <class G = E> constexpr E error_or(G&& other) && {
        return has_value() ? static_cast<E>(std::forward<G>(other)) : std::move(error());
    }

    /// Returns f(value), which is a result<U, E>; the error if there is no value.
    template <class F>
        requires std::is_constructible_v<E, E&>
    constexpr auto and_then(F&& f) & {
        return and_then_of(*this, std::forward<F>(f));
    }
    template <class F>
        requires std::is_constructible_v<E, const E&>
    constexpr auto and_then(F&& f) const& {
        return and_then_of(*this, std::forward<F>(f));
    }
    template <class F>
        requires std::is_constructible_v<E, E>
    constexpr auto and_then(F&& f) && {
        return and_then_of(std::move(*this), std::forward<F>(f));
    }
    template <class F>
        requires std::is_constructible_v<E, const E>
    constexpr auto and_then(F&& f) const&& {
        return and_then_of(std::move(*this), std::forward<F>(f));
    }

    /// Returns the value; f(error), which is a result<T, G>, if there is none.
    template <class F>
        requires std::is_constructible_v<V, V&>
    constexpr auto or_else(F&& f) & {
        return or_else_of(*this, std::forward<F>(f));
    }
    template <class F>
        requires std::is_constructible_v<V, const V&>
    constexpr auto or_else(F&& f) const& {
        return or_else_of(*this, std::forward<F>(f));
    }
    template <class F>
        requires std::is_constructible_v<V, V>
    constexpr auto or_else(F&& f) && {
        return or_else_of(std::move(*this), std::forward<F>(f));
    }
    template <class F>
        requires std::is_constructible_v<V, const V>
    constexpr auto or_else(F&& f) const&& {
        return or_else_of(std::move(*this), std::forward<F>(f));
    }

    /// Returns a result<U, E> with f(value) as its value; the error if there is no value.
    template <class F>
        requires std::is_constructible_v<E, E&>
    constexpr auto transform(F&& f) & {
        return transform_of(*this, std::forward<F>(f));
    }
    template <class F>
        requires std::is_constructible_v<E, const E&>
    constexpr auto transform(F&& f) const& {
        return transform_of(*this, std::forward<F>(f));
    }
    template <class F>
        requires std::is_constructible_v<E, E>
    constexpr auto transform(F&& f) && {
        return transform_of(std::move(*this), std::forward<F>(f));
    }
    template <class F>
        requires std::is_constructible_v<E, const E>
    constexpr auto transform(F&& f) const&& {
        return transform_of(std::move(*this), std::forward<F>(f));
    }

    /// Returns the value; a result<T, G> with f(error) as its error if there is none.
    template <class F>
        requires std::is_constructible_v<V, V&>
    constexpr auto transform_error(F&& f) & {
        return transform_error_of(*this, std::forward<F>(f));
    }
    template <class F>
        requires std::is_constructible_v<V, const V&>
    constexpr auto transform_error(F&& f) const& {
        return transform_error_of(*this, std::forward<F>(f));
    }
    template <class F>
        requires std::is_constructible_v<V, V>
    constexpr auto transform_error(F&& f) && {
        return transform_error_of(std::move(*this), std::forward<F>(f));
    }
    template <class F>
        requires std::is_constructible_v<V, const V>
    constexpr auto transform_error(F&& f) const&& {
        return transform_error_of(std::move(*this), std::forward<F>(f));
    }

protected:
    constexpr void require_value() const {
        static_assert(
            requires(const E& e) { detail::throw_error(detail::code_of(e)); },
            "value() throws the code of the error: an errc, a std::error_code, or a "
            "member `code`");
        if (!has_value()) {
            detail::throw_error(detail::code_of(error()));
        }
    }

    using result_storage<V, E>::result_storage;

private:
    template <class F, class Self> static constexpr decltype(auto) on_value(F&& f, Self&& self) {
        if constexpr (std::is_void_v<T>) {
            return std::forward<F>(f)();
        } else {
            return detail::call_with(std::forward<F>(f), std::forward<Self>(self).either_.value);
        }
    }
    template <class F, class Self> static constexpr decltype(auto) on_error(F&& f, Self&& self) {
        return detail::call_with(std::forward<F>(f), std::forward<Self>(self).either_.error);
    }

    // Returns the same value in a result with another type of error.
    template <class R, class Self> static constexpr R with_value(Self&& self) {
        if constexpr (std::is_void_v<T>) {
            return R();
        } else {
            return R(std::in_place, std::forward<Self>(self).either_.value);
        }
    }

    template <class Self, class F> static constexpr auto and_then_of(Self&& self, F&& f) {
        using R =
            std::remove_cvref_t<decltype(on_value(std::forward<F>(f), std::forward<Self>(self)))>;
        static_assert(is_result<R>, "and_then() takes a function that returns a result<U, E>");
        static_assert(std::is_same_v<typename R::error_type, E>,
                      "and_then() takes a function that returns a result<U, E>");
        if (!self.has_value_) {
            return R(unexpect, std::forward<Self>(self).either_.error);
        }
        return R(on_value(std::forward<F>(f), std::forward<Self>(self)));
    }

    template <class Self, class F> static constexpr auto or_else_of(Self&& self, F&& f) {
        using R =
            std::remove_cvref_t<decltype(on_error(std::forward<F>(f), std::forward<Self>(self)))>;
        static_assert(is_result<R>, "or_else() takes a function that returns a result<T, G>");
        static_assert(std::is_same_v<typename R::value_type, T>,
                      "or_else() takes a function that returns a result<T, G>");
        if (self.has_value_) {
            return with_value<R>(std::forward<Self>(self));
        }
        return R(on_error(std::forward<F>(f), std::forward<Self>(self)));
    }

    template <class Self, class F> static constexpr auto transform_of(Self&& self, F&& f) {
        using U =
            std::remove_cv_t<decltype(on_value(std::forward<F>(f), std::forward<Self>(self)))>;
        using R = result<U, E>;
        if (!self.has_value_) {
            return R(unexpect, std::forward<Self>(self).either_.error);
        }
        const auto call = [&]() -> decltype(auto) {
            return on_value(std::forward<F>(f), std::forward<Self>(self));
        };
        if constexpr (std::is_void_v<U>) {
            call();
            return R();
        } else {
            return R(value_of_call(), call);
        }
    }

    template <class Self, class F> static constexpr auto transform_error_of(Self&& self, F&& f) {
        using G =
            std::remove_cv_t<decltype(on_error(std::forward<F>(f), std::forward<Self>(self)))>;
        using R = result<T, G>;
        if (self.has_value_) {
            return with_value<R>(std::forward<Self>(self));
        }
        return R(error_of_call(), [&]() -> decltype(auto) {
            return on_error(std::forward<F>(f), std::forward<Self>(self));
        });
    }
};

} // namespace detail

/// Wraps an error from which a result is made.
template <class E> class unexpected {
    static_assert(detail::is_result_part<E> && !std::is_const_v<E> && !std::is_volatile_v<E>,
                  "unexpected<E> of object types");

public:
    /// Copies or moves the error.
    constexpr unexpected(const unexpected&) = default;
    constexpr unexpected(unexpected&&) = default; ///< \overload
    /// Makes the error of `cause`.
    template <class G = E>
        requires(!std::is_same_v<std::remove_cvref_t<G>, unexpected> &&
                 !std::is_same_v<std::remove_cvref_t<G>, std::in_place_t> &&
                 std::is_constructible_v<E, G>)
    constexpr explicit unexpected(G&& cause) noexcept(std::is_nothrow_constructible_v<E, G>)
        : error_(std::forward<G>(cause)) {}
    /// Makes the error of the arguments.
    template <class... Args>
        requires std::is_constructible_v<E, Args...>
    constexpr explicit unexpected(std::in_place_t, Args&&... args) noexcept(
        std::is_nothrow_constructible_v<E, Args...>)
        : error_(std::forward<Args>(args)...) {}
    /// \overload
    template <class U, class... Args>
        requires std::is_constructible_v<E, std::initializer_list<U>&, Args...>
    constexpr explicit unexpected(std::in_place_t, std::initializer_list<U> all, Args&&... args)
        : error_(all, std::forward<Args>(args)...) {}

    /// Copies or moves the error.
    constexpr unexpected& operator=(const unexpected&) = default;
    constexpr unexpected& operator=(unexpected&&) = default; ///< \overload

    /// Returns the error.
    constexpr E& error() & noexcept { return error_; }
    constexpr const E& error() const& noexcept { return error_; }              ///< \overload
    constexpr E&& error() && noexcept { return std::move(error_); }            ///< \overload
    constexpr const E&& error() const&& noexcept { return std::move(error_); } ///< \overload

    /// Swaps the errors.
    constexpr void swap(unexpected& other) noexcept(std::is_nothrow_swappable_v<E>)
        requires std::is_swappable_v<E>
    {
        using std::swap;
        swap(error_, other.error_);
    }

private:
    E error_;
};
/// Deduces the type of the error.
template <class E> unexpected(E) -> unexpected<E>;

/// Holds a T or an E.
template <class T, class E> class [[nodiscard]] result : public detail::result_chain<T, E> {
    static_assert(detail::is_result_part<T> && detail::is_result_part<E> && !std::is_const_v<E> &&
                      !std::is_volatile_v<E>,
                  "result<T, E> of object types");
    using base = detail::result_chain<T, E>;

    template <class A, class B>
    static constexpr bool is_explicit =
        !std::is_convertible_v<A, T> || !std::is_convertible_v<B, E>;

public:
    /// Holds a value-initialised T.
    constexpr result() noexcept(std::is_nothrow_default_constructible_v<T>)
        requires std::is_default_constructible_v<T>
        : base(std::in_place) {}

    /// Holds the value that `from` makes.
    template <class U = T>
        requires detail::makes_value<T, E, U>
    constexpr explicit(!std::is_convertible_v<U, T>)
        result(U&& from) noexcept(std::is_nothrow_constructible_v<T, U>)
        : base(std::in_place, std::forward<U>(from)) {}

    /// Holds the error that `cause` makes.
    template <class G>
        requires std::is_constructible_v<E, const G&>
    constexpr explicit(!std::is_convertible_v<const G&, E>)
        result(const unexpected<G>& cause) noexcept(std::is_nothrow_constructible_v<E, const G&>)
        : base(unexpect, cause.error()) {}
    /// \overload
    template <class G>
        requires std::is_constructible_v<E, G>
    constexpr explicit(!std::is_convertible_v<G, E>)
        result(unexpected<G>&& cause) noexcept(std::is_nothrow_constructible_v<E, G>)
        : base(unexpect, std::move(cause).error()) {}

    /// Converts the value or the error of another result. If the other result itself makes a T,
    /// that T is the value.
    template <class U, class G>
        requires detail::converts_to<T, E, result<U, G>, const U&, const G&>
    constexpr explicit(is_explicit<const U&, const G&>) result(const result<U, G>& other)
        : base(typename base::converted(), other) {}
    /// \overload
    template <class U, class G>
        requires detail::converts_to<T, E, result<U, G>, U, G>
    constexpr explicit(is_explicit<U, G>) result(result<U, G>&& other)
        : base(typename base::converted(), std::move(other)) {}

    /// Holds the value that the arguments make.
    template <class... Args>
        requires std::is_constructible_v<T, Args...>
    constexpr explicit result(std::in_place_t tag,
                              Args&&... args) noexcept(std::is_nothrow_constructible_v<T, Args...>)
        : base(tag, std::forward<Args>(args)...) {}
    /// \overload
    template <class U, class... Args>
        requires std::is_constructible_v<T, std::initializer_list<U>&, Args...>
    constexpr explicit result(std::in_place_t tag, std::initializer_list<U> all, Args&&... args)
        : base(tag, all, std::forward<Args>(args)...) {}
    /// Holds the error that the arguments make.
    template <class... Args>
        requires std::is_constructible_v<E, Args...>
    constexpr explicit result(unexpect_t tag,
                              Args&&... args) noexcept(std::is_nothrow_constructible_v<E, Args...>)
        : base(tag, std::forward<Args>(args)...) {}
    /// \overload
    template <class U, class... Args>
        requires std::is_constructible_v<E, std::initializer_list<U>&, Args...>
    constexpr explicit result(unexpect_t tag, std::initializer_list<U> all, Args&&... args)
        : base(tag, all, std::forward<Args>(args)...) {}

    /// Becomes the value that `value` makes.
    template <class U = T>
        requires detail::assigns_value<T, E, U>
    result& operator=(U&& value) {
        this->set_value(std::forward<U>(value));
        return *this;
    }
    /// Becomes the error that `e` makes.
    template <class G>
        requires detail::assigns_error<T, E, const G&>
    result& operator=(const unexpected<G>& e) {
        this->set_error(e.error());
        return *this;
    }
    /// \overload
    template <class G>
        requires detail::assigns_error<T, E, G>
    result& operator=(unexpected<G>&& e) {
        this->set_error(std::move(e).error());
        return *this;
    }

    /// Destroys the value or the error, and makes a value of the arguments.
    template <class... Args>
        requires std::is_nothrow_constructible_v<T, Args...>
    T& emplace(Args&&... args) noexcept {
        return this->emplace_value(std::forward<Args>(args)...);
    }
    /// \overload
    template <class U, class... Args>
        requires std::is_nothrow_constructible_v<T, std::initializer_list<U>&, Args...>
    T& emplace(std::initializer_list<U> list, Args&&... args) noexcept {
        return this->emplace_value(list, std::forward<Args>(args)...);
    }

    /// Swaps the values or errors.
    void swap(result& other) noexcept(detail::is_nothrow_to_swap<T, E>)
        requires detail::swappable<T, E>
    {
        this->swap_parts(other);
    }

    /// Returns the value.
    /// Throws: if there is an error, std::system_error with its code; for errc::closed and
    /// errc::stopped, closed_error and stopped_error.
    constexpr T& value() & {
        this->require_value();
        return **this;
    }
    /// \overload
    constexpr const T& value() const& {
        this->require_value();
        return **this;
    }
    /// \overload
    constexpr T&& value() && {
        this->require_value();
        return *std::move(*this);
    }
    /// \overload
    constexpr const T&& value() const&& {
        this->require_value();
        return *std::move(*this);
    }

    /// Returns the value.
    /// Requires: has_value().
    constexpr T& operator*() & noexcept { return this->either_.value; }
    constexpr const T& operator*() const& noexcept { return this->either_.value; }   ///< \overload
    constexpr T&& operator*() && noexcept { return std::move(this->either_.value); } ///< \overload
    /// \overload
    constexpr const T&& operator*() const&& noexcept { return std::move(this->either_.value); }
    /// \overload
    constexpr T* operator->() noexcept { return __builtin_addressof(this->either_.value); }
    /// \overload
    constexpr const T* operator->() const noexcept {
        return __builtin_addressof(this->either_.value);
    }

    /// Returns the value; `other`, converted to T, if there is none.
    template <class U = std::remove_cv_t<T>>
        requires std::is_copy_constructible_v<T>
    constexpr T value_or(U&& other) const& {
        return this->has_value() ? **this : static_cast<T>(std::forward<U>(other));
    }
    /// \overload
    template <class U = std::remove_cv_t<T>> constexpr T value_or(U&& other) && {
        return this->has_value() ? *std::move(*this) : static_cast<T>(std::forward<U>(other));
    }

private:
    template <class, class> friend class detail::result_chain;

    /// \cond
    template <class F>
    constexpr result(detail::value_of_call tag, F&& make) : base(tag, std::forward<F>(make)) {}
    template <class F>
    constexpr result(detail::error_of_call tag, F&& make) : base(tag, std::forward<F>(make)) {}
    /// \endcond
};

/// Holds success or an E.
template <class E> class [[nodiscard]] result<void, E> : public detail::result_chain<void, E> {
    static_assert(detail::is_result_part<E> && !std::is_const_v<E> && !std::is_volatile_v<E>,
                  "result<void, E> of an object type");
    using base = detail::result_chain<void, E>;

public:
    /// Holds success.
    constexpr result() noexcept : base(std::in_place) {}
    constexpr explicit result(std::in_place_t tag) noexcept : base(tag) {} ///< \overload

    /// Holds the error that `cause` makes.
    template <class G>
        requires std::is_constructible_v<E, const G&>
    constexpr explicit(!std::is_convertible_v<const G&, E>)
        result(const unexpected<G>& cause) noexcept(std::is_nothrow_constructible_v<E, const G&>)
        : base(unexpect, cause.error()) {}
    /// \overload
    template <class G>
        requires std::is_constructible_v<E, G>
    constexpr explicit(!std::is_convertible_v<G, E>)
        result(unexpected<G>&& cause) noexcept(std::is_nothrow_constructible_v<E, G>)
        : base(unexpect, std::move(cause).error()) {}

    /// Converts the error of another result.
    template <class U, class G>
        requires std::is_void_v<U> && detail::converts_to<void, E, result<U, G>, U, const G&>
    constexpr explicit(!std::is_convertible_v<const G&, E>) result(const result<U, G>& other)
        : base(typename base::converted(), other) {}
    /// \overload
    template <class U, class G>
        requires std::is_void_v<U> && detail::converts_to<void, E, result<U, G>, U, G>
    constexpr explicit(!std::is_convertible_v<G, E>) result(result<U, G>&& other)
        : base(typename base::converted(), std::move(other)) {}

    /// Holds the error that the arguments make.
    template <class... Args>
        requires std::is_constructible_v<E, Args...>
    constexpr explicit result(unexpect_t tag,
                              Args&&... args) noexcept(std::is_nothrow_constructible_v<E, Args...>)
        : base(tag, std::forward<Args>(args)...) {}
    /// \overload
    template <class U, class... Args>
        requires std::is_constructible_v<E, std::initializer_list<U>&, Args...>
    constexpr explicit result(unexpect_t tag, std::initializer_list<U> all, Args&&... args)
        : base(tag, all, std::forward<Args>(args)...) {}

    /// Becomes the error that `e` makes.
    template <class G>
        requires detail::assigns_error<void, E, const G&>
    result& operator=(const unexpected<G>& e) {
        this->set_error(e.error());
        return *this;
    }
    /// \overload
    template <class G>
        requires detail::assigns_error<void, E, G>
    result& operator=(unexpected<G>&& e) {
        this->set_error(std::move(e).error());
        return *this;
    }

    /// Becomes success.
    void emplace() noexcept { this->emplace_value(); }

    /// Swaps success or errors.
    void swap(result& other) noexcept(detail::is_nothrow_to_swap<detail::nothing, E>)
        requires detail::swappable<detail::nothing, E>
    {
        this->swap_parts(other);
    }

    /// Checks for success.
    /// Throws: if there is an error, the same exceptions as result<T, E>::value().
    constexpr void value() const { this->require_value(); }

    /// Does nothing.
    /// Requires: has_value().
    constexpr void operator*() const noexcept {}

private:
    template <class, class> friend class detail::result_chain;

    /// \cond
    template <class F>
    constexpr result(detail::error_of_call tag, F&& make) : base(tag, std::forward<F>(make)) {}
    /// \endcond
};

/// Swaps two errors.
template <class E>
    requires std::is_swappable_v<E>
constexpr void swap(unexpected<E>& a, unexpected<E>& b) noexcept(noexcept(a.swap(b))) {
    a.swap(b);
}
/// Swaps two results.
template <class T, class E>
    requires requires(result<T, E>& r) { r.swap(r); }
void swap(result<T, E>& a, result<T, E>& b) noexcept(noexcept(a.swap(b))) {
    a.swap(b);
}

/// Compares two errors.
template <class E, class G>
    requires detail::equal_to<E, G>
constexpr bool operator==(const unexpected<E>& a, const unexpected<G>& b) {
    return a.error() == b.error();
}
/// Compares two results: equal if both hold equal values, or both hold equal errors.
template <class T, class E, class U, class G>
    requires(detail::equal_to<T, U> && detail::equal_to<E, G>)
constexpr bool operator==(const result<T, E>& a, const result<U, G>& b) {
    if (a.has_value() != b.has_value()) {
        return false;
    }
    return a.has_value() ? static_cast<bool>(*a == *b) : static_cast<bool>(a.error() == b.error());
}
/// \overload
template <class E, class G>
    requires detail::equal_to<E, G>
constexpr bool operator==(const result<void, E>& a, const result<void, G>& b) {
    return a.has_value() == b.has_value() && (a.has_value() || a.error() == b.error());
}
/// Compares with a value: equal if the result holds an equal value.
template <class T, class E, class U>
    requires(!detail::is_result<U> && !detail::is_unexpected<U> && detail::equal_to<T, U>)
constexpr bool operator==(const result<T, E>& a, const U& value) {
    return a.has_value() && static_cast<bool>(*a == value);
}
/// Compares with an error: equal if the result holds an equal error.
template <class T, class E, class G>
    requires detail::equal_to<E, G>
constexpr bool operator==(const result<T, E>& a, const unexpected<G>& e) {
    return !a.has_value() && static_cast<bool>(a.error() == e.error());
}

/// Returns the result of a wait without a value.
inline result<void> result_of(wait_status what) noexcept {
    return what == wait_status::granted ? result<void>() : unexpected{errc_of(what)};
}

} // namespace bide::inline BIDE_ABI

#endif
