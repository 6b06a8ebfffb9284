#ifndef BIDE_CHANNEL_DETAIL_SEND_OPERATIONS_HPP
#define BIDE_CHANNEL_DETAIL_SEND_OPERATIONS_HPP

// The sending half of a channel's face, the same for all that have one. Self has source(), a Source
// of item_wait.hpp with send_n(), and hold(), which keeps that alive: what it returns, and, as a
// keep_alive, what a coroutine carries.

#include <bide/channel/detail/element.hpp>
#include <bide/channel/detail/item_wait.hpp>
#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/result.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Self, class T, class Platform> class send_operations {
    using sent = result<void, send_error<T>>;
    static constexpr bool is_copyable = std::is_copy_constructible_v<T>;

public:
    // Puts an item in, behind all that are inside. In every form, one that was not put in comes
    // back in the error. Where a form throws, the caller's item is as it was.
    // Blocks: while it is full. errc::closed.
    // Order: everything before it happens-before the return of the recv that takes the item.
    sent send(T&& value) { return send_by(value, deadline::never()); }
    sent send(const T& value)
        requires is_copyable
    {
        return send(T(value));
    }

    // As send(); errc::stopped when a stop is requested first.
    sent send(std::stop_token token, T&& value) { return send_by(value, token); }
    sent send(std::stop_token token, const T& value)
        requires is_copyable
    {
        return send(std::move(token), T(value));
    }

    // Never waits, but for a thread between two steps of its own receive. errc::full, errc::closed.
    sent try_send(T&& value) noexcept(!allocates<Self>) {
        return to_result(source().send(value), value);
    }
    sent try_send(const T& value) noexcept(!allocates<Self> &&
                                           std::is_nothrow_copy_constructible_v<T>)
        requires is_copyable
    {
        return try_send(T(value));
    }

    // As send(), for at most that long; errc::timeout.
    template <class R, class P>
    sent try_send_for(T&& value, const std::chrono::duration<R, P>& rest) {
        return send_by(value, deadline::after(rest));
    }
    template <class R, class P>
        requires is_copyable
    sent try_send_for(const T& value, const std::chrono::duration<R, P>& rest) {
        return try_send_for(T(value), rest);
    }
    template <class C, class D>
    sent try_send_until(T&& value, const std::chrono::time_point<C, D>& when) {
        return send_by(value, deadline::at(when));
    }
    template <class C, class D>
        requires is_copyable
    sent try_send_until(const T& value, const std::chrono::time_point<C, D>& when) {
        return try_send_until(T(value), when);
    }

    // As send(), for a coroutine. GCC before 13 destroys an aggregate twice that is written inside
    // the co_await expression: there, braces do not compile, and async_send(item{...}), which
    // cannot be refused, must not be written. Use async_emplace(), or name the item before.
    basic_async_op<sent, Platform> async_send(T value)
        requires(!is_broken_in_braces<T>)
    {
        return async_emplace(std::move(value));
    }
    template <class U>
        requires(is_broken_in_braces<T> && std::is_convertible_v<U, T>)
    basic_async_op<sent, Platform> async_send(U&& value) {
        return async_emplace(std::forward<U>(value));
    }

    // Taken by braces only: these deduce no U, and all else prefers what is not const.
    basic_async_op<sent, Platform> async_send(T) const
        requires(is_broken_in_braces<T>)
    {
        static_assert(!is_broken_in_braces<T>,
                      "bide: before version 13, GCC destroys twice what braces make in a co_await "
                      "expression: write co_await c.async_emplace(...)");
    }

    // As send(), try_send() and so on, but makes the item of arguments: T(args...), or T{args...} of
    // an aggregate.
    // Throws: what that does, before anything else is done.
    template <class... Args>
        requires element_of<T, Args...>
    sent emplace(Args&&... args) {
        return send(make_element<T>(std::forward<Args>(args)...));
    }
    template <class... Args>
        requires element_of<T, Args...>
    sent try_emplace(Args&&... args) {
        return try_send(make_element<T>(std::forward<Args>(args)...));
    }
    template <class R, class P, class... Args>
        requires element_of<T, Args...>
    sent try_emplace_for(const std::chrono::duration<R, P>& rest, Args&&... args) {
        return try_send_for(make_element<T>(std::forward<Args>(args)...), rest);
    }
    template <class C, class D, class... Args>
        requires element_of<T, Args...>
    sent try_emplace_until(const std::chrono::time_point<C, D>& when, Args&&... args) {
        return try_send_until(make_element<T>(std::forward<Args>(args)...), when);
    }

    // As emplace(), for a coroutine. The item is made here, not when it is awaited.
    template <class... Args>
        requires element_of<T, Args...>
    basic_async_op<sent, Platform> async_emplace(Args&&... args) {
        auto& to = source();
        return {waits<decltype(to)>::send_ops, wait_target{&to, this},
                send_payload<T>(hold(), std::forward<Args>(args)...)};
    }

    // As async_send(), but `value` stays the caller's until it is sent, and where it is, too; and
    // so does the channel.
    basic_async_op<result<void>, Platform> async_send_from(T& value) noexcept {
        auto& to = source();
        return {waits<decltype(to)>::send_from_ops, wait_target{&to, std::addressof(value)}};
    }

    // Moves as many of the first items as there is room for, without waiting; says how many. The
    // others are untouched.
    std::size_t try_send_n(std::span<T> items) noexcept {
        return source().send_n([items](std::size_t i) noexcept -> T& { return items[i]; },
                               items.size());
    }

protected:
    ~send_operations() = default;

private:
    friend keep_alive;
    template <class Of>
    static constexpr bool allocates =
        std::remove_reference_t<decltype(std::declval<Of&>().source())>::send_allocates;
    auto& source() noexcept { return static_cast<Self&>(*this).source(); }
    keep_alive hold() noexcept { return static_cast<Self&>(*this).hold(); }
    template <class Source> using waits = item_wait<T, Platform, std::remove_reference_t<Source>>;

    template <class Limit> sent send_by(T& value, const Limit& limit) {
        auto& to = source();
        wait_status what = to.send(value);
        if (what == wait_status::waiting) {
            const keep_alive alive = hold();
            what = waits<decltype(to)>::send(to, value, limit);
        }
        return to_result(what, value);
    }
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
