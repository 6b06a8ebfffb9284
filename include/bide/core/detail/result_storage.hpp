// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_RESULT_STORAGE_HPP
#define BIDE_CORE_DETAIL_RESULT_STORAGE_HPP

// Stores the value or the error of a result<T, E> in one place, with its copies, moves and
// assignments.

#include <bide/core/config.hpp>
#include <bide/core/detail/result_traits.hpp>

#include <new>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

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
