// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_RESULT_HPP
#define BIDE_CORE_RESULT_HPP

/// \file
/// Holds a value, or the error that explains why there is none.
///
/// \code
/// bide::result<int> got = channel.recv(token);
/// if (got) {
///     use(*got);
/// } else if (got.error() == bide::errc::closed) {
///     return;
/// }
/// \endcode
///
/// result and unexpected are used like std::expected and std::unexpected, and have members of the
/// same names. They are always types of bide, so that C++20 and C++23 translation units link
/// together. If there is no value, value() throws the exception of the error: closed_error,
/// stopped_error or std::system_error. The error is an errc, a std::error_code, or an object with
/// an errc as its member `code`. For any other error type, value() does not compile.

#include <bide/core/errc.hpp>
#include <bide/core/wait_status.hpp>

#include <concepts>

namespace bide { inline namespace BIDE_ABI {

/// Selects a constructor whose other arguments make the error.
inline constexpr unexpect_t unexpect{};

namespace detail {

template <class T> inline constexpr bool is_result = false;
template <class T, class E> inline constexpr bool is_result<result<T, E>> = true;
template <class T> inline constexpr bool is_unexpected = false;
template <class E> inline constexpr bool is_unexpected<unexpected<E>> = true;
template <class T>
inline constexpr bool is_tag = std::is_same_v<T, std::in_place_t> || std::is_same_v<T, unexpect_t>;

template <class T>
inline constexpr bool is_result_part =
    std::is_object_v<T> && !std::is_array_v<T> && !is_tag<T> && !is_unexpected<std::remove_cv_t<T>>;

// True if a U can be converted to the value of a result<T, E>.
template <class T, class E, class U>
concept makes_value =
    !std::is_same_v<std::remove_cvref_t<U>, result<T, E>> && !is_tag<std::remove_cvref_t<U>> &&
    !is_unexpected<std::remove_cvref_t<U>> && std::is_constructible_v<T, U> &&
    !(std::is_same_v<std::remove_cv_t<T>, bool> && is_result<std::remove_cvref_t<U>>);

// The type of the value of a result<void>.
struct nothing {
    friend constexpr bool operator==(nothing, nothing) noexcept { return true; }
};
template <class T> using stored = std::conditional_t<std::is_void_v<T>, nothing, T>;

// True if a result<T, E> converts from Other, another result type with values U and errors G. The
// conversion makes a T from a U, or an E from a G. If a T other than bool can be made from the
// Other object itself, this is false: the constructor from a value then makes that T.
template <class T, class E, class Other, class U, class G>
concept converts_to =
    !std::is_same_v<std::remove_cvref_t<Other>, result<T, E>> && std::is_constructible_v<E, G> &&
    std::is_void_v<T> == std::is_void_v<typename std::remove_cvref_t<Other>::value_type> &&
    std::is_constructible_v<stored<T>, U> &&
    (std::is_void_v<T> || std::is_same_v<std::remove_cv_t<T>, bool> ||
     (!std::is_constructible_v<T, Other> &&
      !std::is_constructible_v<T, std::remove_cvref_t<Other>&>));

template <class T, class U>
concept equal_to = requires(const T& a, const U& b) {
    { a == b } -> std::convertible_to<bool>;
};

template <class T>
inline constexpr bool is_trivial_to_move =
    std::is_trivially_copyable_v<T> && std::is_trivially_move_constructible_v<T> &&
    std::is_trivially_move_assignable_v<T>;

// Holds the value or the error. Copies, moves and the destructor are trivial if those of both types
// are.
template <class T, class E, bool Trivial = is_trivial_to_move<T> && is_trivial_to_move<E>>
class result_storage {
protected:
    template <class... Args>
    constexpr explicit result_storage(std::in_place_t, Args&&... args)
        : value_(std::forward<Args>(args)...), has_value_(true) {}
    template <class... Args>
    constexpr explicit result_storage(unexpect_t, Args&&... args)
        : error_(std::forward<Args>(args)...), has_value_(false) {}

    union {
        T value_;
        E error_;
    };
    bool has_value_;
};

template <class T, class E> class result_storage<T, E, false> {
    static constexpr bool is_changeable =
        std::is_nothrow_move_constructible_v<E> &&
        (std::is_nothrow_move_constructible_v<T> || std::is_move_assignable_v<T>);

protected:
    template <class... Args>
    constexpr explicit result_storage(std::in_place_t, Args&&... args)
        : value_(std::forward<Args>(args)...), has_value_(true) {}
    template <class... Args>
    constexpr explicit result_storage(unexpect_t, Args&&... args)
        : error_(std::forward<Args>(args)...), has_value_(false) {}

    constexpr void end() noexcept {
        if (has_value_) {
            value_.~T();
        } else {
            error_.~E();
        }
    }
    template <class Other> void begin(Other&& from) {
        has_value_ = from.has_value_;
        if (has_value_) {
            ::new (place(value_)) T(std::forward<Other>(from).value_);
        } else {
            ::new (place(error_)) E(std::forward<Other>(from).error_);
        }
    }

public:
    result_storage(const result_storage& other) noexcept(std::is_nothrow_copy_constructible_v<T> &&
                                                         std::is_nothrow_copy_constructible_v<E>)
        requires(std::is_copy_constructible_v<T> && std::is_copy_constructible_v<E>)
    {
        begin(other);
    }
    result_storage(result_storage&& other) noexcept(std::is_nothrow_move_constructible_v<T> &&
                                                    std::is_nothrow_move_constructible_v<E>)
        requires(std::is_move_constructible_v<T> && std::is_move_constructible_v<E>)
    {
        begin(std::move(other));
    }
    // If a copy or a move throws, the old value or error stays.
    result_storage& operator=(const result_storage& other)
        requires(std::is_copy_constructible_v<T> && std::is_copy_constructible_v<E> &&
                 is_changeable)
    {
        return *this = result_storage(other);
    }
    result_storage&
    operator=(result_storage&& other) noexcept(std::is_nothrow_move_constructible_v<T>)
        requires is_changeable
    {
        if (this == &other) {
            return *this;
        }
        if constexpr (!std::is_nothrow_move_constructible_v<T>) {
            if (has_value_ && other.has_value_) {
                value_ = std::move(other.value_);
                return *this;
            }
            if (other.has_value_) {
                result_storage kept(unexpect, std::move(error_));
                restores undo{*this, kept};
                end();
                begin(std::move(other));
                undo.is_needed = false;
                return *this;
            }
        }
        end();
        begin(std::move(other));
        return *this;
    }
    constexpr ~result_storage() { end(); }

protected:
    union {
        T value_;
        E error_;
    };
    bool has_value_;

private:
    // Moves an error back if the value could not be made.
    struct restores {
        result_storage& to;
        result_storage& kept;
        bool is_needed = true;
        ~restores() {
            if (is_needed) {
                to.begin(std::move(kept));
            }
        }
    };

    template <class M> static void* place(M& member) noexcept {
        return const_cast<void*>(static_cast<const volatile void*>(__builtin_addressof(member)));
    }
};

// Does what std::invoke(f, x) does, without <functional>.
template <class F, class X> constexpr decltype(auto) call_with(F&& f, X&& x) {
    if constexpr (std::is_member_object_pointer_v<std::remove_cvref_t<F>>) {
        return (std::forward<X>(x).*f);
    } else if constexpr (std::is_member_function_pointer_v<std::remove_cvref_t<F>>) {
        return (std::forward<X>(x).*f)();
    } else {
        return std::forward<F>(f)(std::forward<X>(x));
    }
}

} // namespace detail

/// Wraps an error from which a result is made.
template <class E> class unexpected {
    static_assert(detail::is_result_part<E> && !std::is_const_v<E> && !std::is_volatile_v<E>,
                  "unexpected<E> of object types");

public:
    /// Makes the error from `cause`.
    template <class G = E>
        requires(!std::is_same_v<std::remove_cvref_t<G>, unexpected> &&
                 !std::is_same_v<std::remove_cvref_t<G>, std::in_place_t> &&
                 std::is_constructible_v<E, G>)
    constexpr explicit unexpected(G&& cause) noexcept(std::is_nothrow_constructible_v<E, G>)
        : error_(std::forward<G>(cause)) {}
    /// Makes the error from the arguments.
    template <class... Args>
        requires std::is_constructible_v<E, Args...>
    constexpr explicit unexpected(std::in_place_t, Args&&... args) noexcept(
        std::is_nothrow_constructible_v<E, Args...>)
        : error_(std::forward<Args>(args)...) {}

    /// Returns the error.
    constexpr const E& error() const& noexcept { return error_; }
    constexpr E& error() & noexcept { return error_; }              ///< \overload
    constexpr E&& error() && noexcept { return std::move(error_); } ///< \overload

private:
    E error_;
};
/// Deduces the type of the error.
template <class E> unexpected(E) -> unexpected<E>;

/// Holds a T or an E. A result<void, E> holds success or an E. A result can be assigned if two
/// conditions hold: a move of an E does not throw; a T is assignable, or its move does not throw.
/// If an assignment has to construct a T or an E, and this throws, the result is unchanged.
template <class T, class E>
class [[nodiscard]] result : public detail::result_storage<detail::stored<T>, E> {
    static constexpr bool has_no_value = std::is_void_v<T>;
    using V = detail::stored<T>;
    static_assert(detail::is_result_part<V> && detail::is_result_part<E> && !std::is_const_v<E> &&
                      !std::is_volatile_v<E>,
                  "result<T, E> of object types");
    using base = detail::result_storage<V, E>;

    template <class A, class B>
    static constexpr bool is_explicit =
        !std::is_convertible_v<A, V> || !std::is_convertible_v<B, E>;

public:
    /// Is the type of the value.
    using value_type = T;
    /// Is the type of the error.
    using error_type = E;
    /// Is the type that wraps the error.
    using unexpected_type = unexpected<E>;
    /// Is a result with another type of value.
    template <class U> using rebind = result<U, E>;

    /// Holds a value-initialised T, or success.
    constexpr result() noexcept(std::is_nothrow_default_constructible_v<V>)
        requires std::is_default_constructible_v<V>
        : base(std::in_place) {}
    /// Holds the value that `from` makes.
    template <class U = T>
        requires(!has_no_value && detail::makes_value<T, E, U>)
    constexpr explicit(!std::is_convertible_v<U, T>)
        result(U&& from) noexcept(std::is_nothrow_constructible_v<T, U>)
        : base(std::in_place, std::forward<U>(from)) {}
    /// Holds the value that the arguments make.
    template <class... Args>
        requires std::is_constructible_v<V, Args...>
    constexpr explicit result(std::in_place_t tag,
                              Args&&... args) noexcept(std::is_nothrow_constructible_v<V, Args...>)
        : base(tag, std::forward<Args>(args)...) {}
    /// Holds the error that the arguments make.
    template <class... Args>
        requires std::is_constructible_v<E, Args...>
    constexpr explicit result(unexpect_t tag,
                              Args&&... args) noexcept(std::is_nothrow_constructible_v<E, Args...>)
        : base(tag, std::forward<Args>(args)...) {}
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

    /// Converts the value or the error of another result. If a T can be made of the other result
    /// object itself, that T is the value.
    template <class U, class G>
        requires detail::converts_to<T, E, const result<U, G>&, const detail::stored<U>&, const G&>
    constexpr explicit(is_explicit<const detail::stored<U>&, const G&>)
        result(const result<U, G>& other)
        : result(other.has_value() ? result(std::in_place, *other)
                                   : result(unexpect, other.error())) {}
    /// \overload
    template <class U, class G>
        requires detail::converts_to<T, E, result<U, G>, detail::stored<U>, G>
    constexpr explicit(is_explicit<detail::stored<U>, G>) result(result<U, G>&& other)
        : result(other.has_value() ? result(std::in_place, *std::move(other))
                                   : result(unexpect, std::move(other).error())) {}

    /// Returns whether there is a value.
    constexpr bool has_value() const noexcept { return this->has_value_; }
    /// Returns whether there is a value.
    constexpr explicit operator bool() const noexcept { return this->has_value_; }

    /// Returns the value.
    /// Throws: the exception of the error if there is no value.
    constexpr const V& value() const&
        requires(!has_no_value)
    {
        require_value();
        return this->value_;
    }
    /// \overload
    constexpr V& value() &
            requires(!has_no_value) {
                require_value();
                return this->value_;
            }
            /// \overload
            constexpr V&& value() &&
        requires(!has_no_value) {
            require_value();
            return std::move(this->value_);
        }
        /// \overload
        constexpr void value() const&
            requires has_no_value
    {
        require_value();
    }

    /// Returns the value.
    /// Requires: has_value().
    constexpr const V& operator*() const& noexcept { return this->value_; }
    constexpr V& operator*() & noexcept { return this->value_; }              ///< \overload
    constexpr V&& operator*() && noexcept { return std::move(this->value_); } ///< \overload
    /// \overload
    constexpr V* operator->() noexcept { return __builtin_addressof(this->value_); }
    /// \overload
    constexpr const V* operator->() const noexcept { return __builtin_addressof(this->value_); }

    /// Returns the error.
    /// Requires: !has_value().
    constexpr const E& error() const& noexcept { return this->error_; }
    constexpr E& error() & noexcept { return this->error_; }              ///< \overload
    constexpr E&& error() && noexcept { return std::move(this->error_); } ///< \overload

    /// Returns the value. If there is none, returns `other`, converted to T.
    template <class U = std::remove_cv_t<T>> constexpr V value_or(U&& other) const& {
        return has_value() ? **this : static_cast<V>(std::forward<U>(other));
    }
    /// \overload
    template <class U = std::remove_cv_t<T>> constexpr V value_or(U&& other) && {
        return has_value() ? *std::move(*this) : static_cast<V>(std::forward<U>(other));
    }
    /// Returns the error. If there is none, returns `other`, converted to E.
    template <class G = E> constexpr E error_or(G&& other) const& {
        return has_value() ? static_cast<E>(std::forward<G>(other)) : error();
    }
    /// \overload
    template <class G = E> constexpr E error_or(G&& other) && {
        return has_value() ? static_cast<E>(std::forward<G>(other)) : std::move(error());
    }

    /// Returns f(value), a result<U, E>. If there is no value, returns the error.
    template <class F> constexpr auto and_then(F&& f) const& { return then(*this, f); }
    /// \overload
    template <class F> constexpr auto and_then(F&& f) && { return then(std::move(*this), f); }
    /// Returns the value. If there is none, returns f(error), a result<T, G>.
    template <class F> constexpr auto or_else(F&& f) const& { return otherwise(*this, f); }
    /// \overload
    template <class F> constexpr auto or_else(F&& f) && { return otherwise(std::move(*this), f); }
    /// Returns a result<U, E> that holds f(value). If there is no value, returns the error.
    template <class F> constexpr auto transform(F&& f) const& { return map(*this, f); }
    /// \overload
    template <class F> constexpr auto transform(F&& f) && { return map(std::move(*this), f); }
    /// Returns the value. If there is none, returns a result<T, G> that holds the error f(error).
    template <class F> constexpr auto transform_error(F&& f) const& { return map_error(*this, f); }
    /// \overload
    template <class F> constexpr auto transform_error(F&& f) && {
        return map_error(std::move(*this), f);
    }

    /// Destroys the value or the error, and makes a value from the arguments.
    template <class... Args>
        requires std::is_nothrow_constructible_v<V, Args...>
    V& emplace(Args&&... args) noexcept {
        this->~result();
        ::new (static_cast<void*>(this)) result(std::in_place, std::forward<Args>(args)...);
        return this->value_;
    }

private:
    constexpr void require_value() const {
        static_assert(
            requires(const E& e) { detail::throw_error(detail::code_of(e)); },
            "value() throws the code of the error: an errc, a std::error_code, or a "
            "member `code`");
        if (!has_value()) {
            detail::throw_error(detail::code_of(error()));
        }
    }

    template <class Self, class F> static constexpr decltype(auto) on_value(Self&& self, F& f) {
        if constexpr (has_no_value) {
            return std::forward<F>(f)();
        } else {
            return detail::call_with(std::forward<F>(f), *std::forward<Self>(self));
        }
    }
    template <class Self, class F> static constexpr decltype(auto) on_error(Self&& self, F& f) {
        return detail::call_with(std::forward<F>(f), std::forward<Self>(self).error());
    }
    template <class Self, class F> static constexpr auto then(Self&& self, F& f) {
        using R = std::remove_cvref_t<decltype(on_value(std::forward<Self>(self), f))>;
        static_assert(detail::is_result<R> && std::is_same_v<typename R::error_type, E>,
                      "and_then() takes a function that returns a result<U, E>");
        return self.has_value() ? R(on_value(std::forward<Self>(self), f))
                                : R(unexpect, std::forward<Self>(self).error());
    }
    template <class Self, class F> static constexpr auto otherwise(Self&& self, F& f) {
        using R = std::remove_cvref_t<decltype(on_error(std::forward<Self>(self), f))>;
        static_assert(detail::is_result<R> && std::is_same_v<typename R::value_type, T>,
                      "or_else() takes a function that returns a result<T, G>");
        return self.has_value() ? R(std::in_place, *std::forward<Self>(self))
                                : R(on_error(std::forward<Self>(self), f));
    }
    template <class Self, class F> static constexpr auto map(Self&& self, F& f) {
        using U = std::remove_cv_t<decltype(on_value(std::forward<Self>(self), f))>;
        using R = result<U, E>;
        if (!self.has_value()) {
            return R(unexpect, std::forward<Self>(self).error());
        }
        if constexpr (std::is_void_v<U>) {
            on_value(std::forward<Self>(self), f);
            return R();
        } else {
            return R(std::in_place, on_value(std::forward<Self>(self), f));
        }
    }
    template <class Self, class F> static constexpr auto map_error(Self&& self, F& f) {
        using R = result<T, std::remove_cv_t<decltype(on_error(std::forward<Self>(self), f))>>;
        return self.has_value() ? R(std::in_place, *std::forward<Self>(self))
                                : R(unexpect, on_error(std::forward<Self>(self), f));
    }
};

/// Compares two errors.
template <class E, class G>
    requires detail::equal_to<E, G>
constexpr bool operator==(const unexpected<E>& a, const unexpected<G>& b) {
    return static_cast<bool>(a.error() == b.error());
}

/// Compares two results: equal if both hold equal values, or both hold equal errors.
template <class T, class E, class U, class G>
    requires(detail::equal_to<detail::stored<T>, detail::stored<U>> && detail::equal_to<E, G>)
constexpr bool operator==(const result<T, E>& a, const result<U, G>& b) {
    return a.has_value() == b.has_value() &&
           (a.has_value() ? static_cast<bool>(*a == *b)
                          : static_cast<bool>(a.error() == b.error()));
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

inline errc errc_of(wait_status what) noexcept {
    switch (what) {
    case wait_status::stopped: return errc::stopped;
    case wait_status::timed_out: return errc::timeout;
    default: return errc::closed;
    }
}

/// Returns the result of a wait without a value.
inline result<void> result_of(wait_status what) noexcept {
    return what == wait_status::granted ? result<void>() : unexpected{errc_of(what)};
}

}} // namespace bide::BIDE_ABI

#endif
