// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_RESULT_STORAGE_HPP
#define BIDE_CORE_DETAIL_RESULT_STORAGE_HPP

// Decides which types form a result<T, E> and which of its members exist, and stores its value or its
// error in one place, with copies, moves and assignments.

#include <bide/core/config.hpp>
#include <bide/fwd.hpp>

#include <concepts>
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

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
