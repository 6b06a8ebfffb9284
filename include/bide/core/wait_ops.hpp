// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_WAIT_OPS_HPP
#define BIDE_CORE_WAIT_OPS_HPP

/// \file
/// The functions by which a coroutine (core/async_op.hpp) or a select (channel/select.hpp) waits on
/// a primitive: to try, to enqueue, to cancel, and to make the result.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/core/waiter.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {

/// The result type of an operation whose value is a T. A primitive's own empty T may stand for a
/// result<void, E>.
template <class T> struct as_result {
    /// The result type.
    using type = result<T>;
};
/// \overload
template <class U, class E> struct as_result<result<U, E>> {
    /// The result type.
    using type = result<U, E>;
};
/// The result type of an operation whose value is a T.
template <class T> using as_result_t = typename as_result<T>::type;

namespace detail {

struct no_payload {};

} // namespace detail

/// What a wait for an R carries until it is over: the item to send, or the place for the item to
/// receive. A specialisation names its type; without one it carries nothing.
/// Requires: the type is nothrow-movable while the wait has not begun.
template <class R> struct wait_payload {
    /// The type of the payload.
    using type = detail::no_payload;
};
/// The payload of a wait for an R.
template <class R> using wait_payload_t = typename wait_payload<R>::type;

/// True for operations without errors that may wait for a time: their waits have a timer.
template <class T> inline constexpr bool may_wait_for_time = std::is_void_v<T>;
/// \overload
template <> inline constexpr bool may_wait_for_time<std::uint64_t> = true;

/// What an operation waits for.
struct wait_target {
    void* queue = nullptr;     ///< The object that has the queue.
    void* owner = nullptr;     ///< The object that the result refers to.
    std::ptrdiff_t amount = 1; ///< How much is asked for, in the unit of the primitive.
    void* payload = nullptr;   ///< The wait_payload, if there is one.

    /// Sets the payload, which stays in place from here on.
    template <class Payload> void carry(Payload& p) noexcept {
        if constexpr (!std::is_same_v<Payload, detail::no_payload>) {
            payload = &p;
        }
    }
};

/// The steps of a wait, without the type of its result.
template <class Platform> struct wait_steps {
    /// A node in the queue of a primitive.
    using waiter = basic_waiter<Platform>;

    /// Tries to complete the wait. Returns waiting if it would have to wait.
    wait_status (*try_now)(const wait_target&) noexcept;
    /// Enqueues the waiter. Returns true if the wait is complete, and the waiter is not queued.
    bool (*enqueue)(const wait_target&, waiter&) noexcept;
    /// Cancels the wait. Returns true if this call decided it.
    bool (*cancel)(const wait_target&, waiter&, wait_status why) noexcept;
    /// If true, other tasks run first, even if the wait can complete immediately.
    bool yields_first = false;
    /// If true, the wait cannot be a case of a select: its decision claims no choice.
    bool stands_alone = false;
    /// What happens if the waiting task is cancelled. If nullptr, the wait ends with `stopped`.
    /// Else this function is called, which makes the wait end soon. The wait goes on until then,
    /// and its outcome is `stopped`.
    void (*on_cancel)(const wait_target&) noexcept = nullptr;
};

/// The steps of a wait and its result; R is a result<...>.
template <class R, class Platform> struct wait_ops : wait_steps<Platform> {
    /// A node in the queue of a primitive.
    using typename wait_steps<Platform>::waiter;
    /// The steps.
    using steps = wait_steps<Platform>;
    /// Makes the result of a wait. Throws only if the primitive says so.
    using collector = R (*)(const wait_target&, wait_status what);
    /// Undoes the outcome of a wait that no caller collects.
    using returner = void (*)(const wait_target&, wait_status what) noexcept;

    /// Constructs the functions of a wait. If `returns` is nullptr, an outcome is undone by
    /// collecting it and destroying the result.
    constexpr wait_ops(decltype(steps::try_now) tries, decltype(steps::enqueue) enqueues,
                       decltype(steps::cancel) cancels, collector collects,
                       returner returns = nullptr, bool yields = false) noexcept
        : steps{tries, enqueues, cancels, yields}, collect(collects), returns_(returns) {}

    /// Returns a copy for a wait that cannot be a case of a select.
    constexpr wait_ops standing_alone() const noexcept {
        wait_ops copy = *this;
        copy.stands_alone = true;
        return copy;
    }

    /// Returns a copy for a wait that a cancelled task does not leave early.
    constexpr wait_ops outlasting_cancel(decltype(steps::on_cancel) cancels) const noexcept {
        wait_ops copy = *this;
        copy.on_cancel = cancels;
        return copy;
    }

    /// Makes the result.
    collector collect;

    /// Undoes an outcome that no caller collects.
    void give_back(const wait_target& t, wait_status what) const noexcept {
        if (returns_ != nullptr) {
            returns_(t, what);
        } else {
            static_cast<void>(collect(t, what));
        }
    }

private:
    returner returns_;
};

/// A wait that has not begun.
template <class R, class Platform> struct basic_wait {
    const wait_ops<R, Platform>* ops;                ///< Its functions.
    wait_target target;                              ///< What it waits for.
    [[no_unique_address]] wait_payload_t<R> payload; ///< What it carries.

    /// Constructs a wait.
    basic_wait(const wait_ops<R, Platform>& how, wait_target what,
               wait_payload_t<R> carried = {}) noexcept
        : ops(&how), target(what), payload(std::move(carried)) {}
};

/// Returns the errc of a status that is not `granted`.
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

} // namespace bide::inline BIDE_ABI

#endif
