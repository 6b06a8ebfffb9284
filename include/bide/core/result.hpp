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
#include <bide/core/detail/result_chain.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/wait_status.hpp>
#include <bide/fwd.hpp>

#include <initializer_list>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {

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
