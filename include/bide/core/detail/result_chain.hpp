// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_RESULT_CHAIN_HPP
#define BIDE_CORE_DETAIL_RESULT_CHAIN_HPP

// The members that result<T, E> and result<void, E> share: which of the two it holds, the error,
// and the functions that continue from the value or from the error.

#include <bide/core/config.hpp>
#include <bide/core/detail/result_storage.hpp>
#include <bide/core/errc.hpp>

#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

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
} // namespace bide::inline BIDE_ABI

#endif
