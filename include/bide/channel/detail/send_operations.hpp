// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_SEND_OPERATIONS_HPP
#define BIDE_CHANNEL_DETAIL_SEND_OPERATIONS_HPP

// The sending operations of a channel or handle. Self has source(), a Source of item_wait.hpp with
// send_n(), and hold(), whose keep_alive keeps the source alive for an operation that waits.

#include <bide/channel/detail/element.hpp>
#include <bide/channel/detail/item_wait.hpp>
#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/result.hpp>

#include <chrono>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Self, class T, class Platform> class send_operations {
    using sent = result<void, send_error<T>>;
    static constexpr bool is_copyable = std::is_copy_constructible_v<T>;

public:
    /// Sends an item, behind all items in the channel; a priority_channel orders them. In each form
    /// of send, an item that was not sent comes back in the error. If a form throws, the caller's
    /// item is unchanged.
    /// Blocks: while the channel is full.
    /// Returns: errc::closed, with the item, if the channel is closed.
    /// Memory order: what happens before the call happens before the return of the recv() that
    /// takes the item.
    sent send(T&& value) { return send_by(value, deadline::never()); }
    /// Sends a copy of `value`. Otherwise the same as the function above.
    sent send(const T& value)
        requires is_copyable
    {
        return send(T(value));
    }

    /// Sends as send() does, unless a stop is requested first.
    /// Returns: as send(), or errc::stopped.
    sent send(typename Platform::stop_token token, T&& value) { return send_by(value, token); }
    /// Sends a copy of `value`. Otherwise the same as the function above.
    sent send(typename Platform::stop_token token, const T& value)
        requires is_copyable
    {
        return send(std::move(token), T(value));
    }

    /// Sends as send() does if there is room. Never blocks, except while another thread is between
    /// two steps of its own receive.
    /// Returns: as send(), or errc::full.
    sent try_send(T&& value) noexcept(!allocates<Self>) {
        return to_result(source().send(value), value);
    }
    /// Sends a copy of `value`. Otherwise the same as the function above.
    sent try_send(const T& value) noexcept(!allocates<Self> &&
                                           std::is_nothrow_copy_constructible_v<T>)
        requires is_copyable
    {
        return try_send(T(value));
    }

    /// Sends as send() does, but waits at most `rest`.
    /// Returns: as send(), or errc::timeout.
    template <class R, class P>
    sent try_send_for(T&& value, const std::chrono::duration<R, P>& rest) {
        return send_by(value, deadline::after(rest));
    }
    /// Sends a copy of `value`. Otherwise the same as the function above.
    template <class R, class P>
        requires is_copyable
    sent try_send_for(const T& value, const std::chrono::duration<R, P>& rest) {
        return try_send_for(T(value), rest);
    }
    /// Sends as send() does, but waits until a point in time.
    /// Returns: as send(), or errc::timeout.
    template <class C, class D>
    sent try_send_until(T&& value, const std::chrono::time_point<C, D>& when) {
        return send_by(value, deadline::at(when));
    }
    /// Sends a copy of `value`. Otherwise the same as the function above.
    template <class C, class D>
        requires is_copyable
    sent try_send_until(const T& value, const std::chrono::time_point<C, D>& when) {
        return try_send_until(T(value), when);
    }

    /// Sends as send() does, for a coroutine.
    /// GCC before 13 destroys an aggregate twice that is written inside the co_await expression.
    /// With it, braces do not compile. async_send(item{...}), which cannot be rejected, must not be
    /// written: use async_emplace(), or give the item a name first.
    basic_async_op<sent, Platform> async_send(T value)
        requires(!is_broken_in_braces<T>)
    {
        return async_emplace(std::move(value));
    }
    /// \overload
    template <class U>
        requires(is_broken_in_braces<T> && std::is_convertible_v<U, T>)
    basic_async_op<sent, Platform> async_send(U&& value) {
        return async_emplace(std::forward<U>(value));
    }

    // Only braces call it: they deduce no U, and every other argument prefers a non-const function.
    basic_async_op<sent, Platform> async_send(T) const
        requires(is_broken_in_braces<T>)
    {
        static_assert(!is_broken_in_braces<T>,
                      "bide: before version 13, GCC destroys twice what braces make in a co_await "
                      "expression: write co_await c.async_emplace(...)");
    }

    /// Constructs an item from arguments, T(args...) or T{args...} of an aggregate, and sends it as
    /// send() does.
    /// Throws: what the constructor of T throws; nothing was sent then.
    template <class... Args>
        requires element_of<T, Args...>
    sent emplace(Args&&... args) {
        return send(make_element<T>(std::forward<Args>(args)...));
    }
    /// Constructs an item as emplace() does and sends it as try_send() does.
    template <class... Args>
        requires element_of<T, Args...>
    sent try_emplace(Args&&... args) {
        return try_send(make_element<T>(std::forward<Args>(args)...));
    }
    /// Constructs an item as emplace() does and sends it as try_send_for() does.
    template <class R, class P, class... Args>
        requires element_of<T, Args...>
    sent try_emplace_for(const std::chrono::duration<R, P>& rest, Args&&... args) {
        return try_send_for(make_element<T>(std::forward<Args>(args)...), rest);
    }
    /// Constructs an item as emplace() does and sends it as try_send_until() does.
    template <class C, class D, class... Args>
        requires element_of<T, Args...>
    sent try_emplace_until(const std::chrono::time_point<C, D>& when, Args&&... args) {
        return try_send_until(make_element<T>(std::forward<Args>(args)...), when);
    }

    /// Sends as emplace() does, for a coroutine. The item is constructed in this call, not by
    /// co_await.
    template <class... Args>
        requires element_of<T, Args...>
    basic_async_op<sent, Platform> async_emplace(Args&&... args) {
        auto& to = source();
        return {typename waits<decltype(to)>::sending{to},
                send_payload<T>(hold(), std::forward<Args>(args)...)};
    }

    /// Sends as async_send() does, but `value` belongs to the caller until it is sent.
    /// Requires: `value` and the channel stay in place until the operation is over.
    basic_async_op<result<void>, Platform> async_send_from(T& value) noexcept {
        auto& to = source();
        return {typename waits<decltype(to)>::sending_from{to, value}};
    }

    /// Moves as many of the first items into the channel as there is room for. Never blocks.
    /// Returns: the number of items moved. The other items are unchanged.
    std::size_t try_send_n(std::span<T> items) noexcept {
        return source().send_n([items](std::size_t i) noexcept -> T& { return items[i]; },
                               items.size());
    }

protected:
    send_operations() = default;
    send_operations(const send_operations&) = default;
    send_operations& operator=(const send_operations&) = default;
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
        const wait_status now = source().send(value);
        return to_result(now != wait_status::waiting ? now : wait_to_send(value, limit), value);
    }
    template <class Limit> BIDE_NOINLINE wait_status wait_to_send(T& value, const Limit& limit) {
        auto& to = source();
        const keep_alive alive = hold();
        return waits<decltype(to)>::send(to, value, limit);
    }
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
