#ifndef BIDE_CHANNEL_DETAIL_SEND_FACE_HPP
#define BIDE_CHANNEL_DETAIL_SEND_FACE_HPP

// The sending half of a channel's face, the same for all that have one. Self has source(), a Source
// of item_wait.hpp with send_n(), and hold(), which keeps that alive: what it returns, and, as a
// keeper, what a coroutine carries.

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

template <class Self, class T, class Platform> class send_face {
    using sent = result<void, send_error<T>>;

public:
    // Puts an item in, behind all that are inside. In every form, one that was not put in comes
    // back in the error.
    // Blocks: while it is full. errc::closed.
    // Order: everything before it happens-before the return of the recv that takes the item.
    sent send(T value) { return send_by(value, deadline::never()); }

    // As send(); errc::stopped when a stop is requested first.
    sent send(std::stop_token token, T value) { return send_by(value, token); }

    // Never waits, but for a thread between two steps of its own receive. errc::full, errc::closed.
    sent try_send(T value) noexcept(noexcept(std::declval<Self&>().source().send(value))) {
        return to_result(source().send(value), value);
    }

    // As send(), for at most that long; errc::timeout.
    template <class R, class P>
    sent try_send_for(T value, const std::chrono::duration<R, P>& rest) {
        return send_by(value, deadline::after(rest));
    }
    template <class C, class D>
    sent try_send_until(T value, const std::chrono::time_point<C, D>& when) {
        return send_by(value, deadline::at(when));
    }

    // As send(), for a coroutine.
    basic_async_op<sent, Platform> async_send(T value) {
        auto& to = source();
        return {waits<decltype(to)>::send_ops, wait_target{&to, this},
                send_cargo<T>(std::move(value), hold())};
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
    ~send_face() = default;

private:
    friend keeper;
    auto& source() noexcept { return static_cast<Self&>(*this).source(); }
    keeper hold() noexcept { return static_cast<Self&>(*this).hold(); }
    template <class Source> using waits = item_wait<T, Platform, std::remove_reference_t<Source>>;

    template <class Limit> sent send_by(T& value, const Limit& limit) {
        auto& to = source();
        fate what = to.send(value);
        if (what == fate::waiting) {
            const keeper alive = hold();
            what = waits<decltype(to)>::send(to, value, limit);
        }
        return to_result(what, value);
    }
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
