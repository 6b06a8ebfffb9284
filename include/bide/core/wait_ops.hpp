// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_WAIT_OPS_HPP
#define BIDE_CORE_WAIT_OPS_HPP

/// \file
/// Describes an operation: the struct by which a coroutine (core/async_op.hpp) or a select
/// (channel/select.hpp) waits on a primitive. The primitive defines the struct. The struct holds
/// the arguments of the wait and has functions for its steps:
///
/// \code
/// struct acquiring {
///     basic_semaphore& from;
///     std::ptrdiff_t amount;
///
///     // Tries to complete the wait. Returns `waiting` if the caller would have to wait.
///     wait_status try_now() const noexcept;
///     // Queues the waiter and returns `waiting`. If the wait is complete, settles the waiter
///     // instead, that is, stores its outcome, and returns that outcome.
///     wait_status enqueue(basic_waiter<Platform>&) const noexcept;
///     // Cancels the wait. Returns true if this call decided it. If `why` has the value
///     // wait_status::destroyed, the waiter must afterwards be granted or be in no queue.
///     bool cancel(basic_waiter<Platform>&, wait_status why) const noexcept;
///     // Makes the result of the wait. Throws only if the primitive says so.
///     result<basic_permit<Platform>> collect(wait_status what) const;
///
///     // The members below are optional.
///     // Returns what is waited for, for dumps, reports and probes: the primitive or a part of it.
///     const basic_semaphore& primitive() const noexcept;
///     // Undoes an outcome that no caller collects. Without this function, the outcome is
///     // collected and its result is destroyed.
///     void give_back(wait_status what) const noexcept;
///     // Called if the waiting task is cancelled. Makes the wait end soon; its outcome then is
///     // `stopped`. Without this function, the wait ends at once with `stopped`.
///     void on_cancel() const noexcept;
///     // Called before the waiter is queued, if this thread has nothing else to run. Calls
///     // again() a few times. Each again() tries the operation, because another thread may be
///     // about to complete it. Returns when again() has returned true.
///     template <class Again> void yield_before_wait(Again&& again) const noexcept;
///     // Returns the runnable whose run completes the wait. It may have run already. If it is the
///     // next job of this worker, the worker runs it before the wait begins, inside of the job
///     // that runs the coroutine.
///     runnable& awaited_job() const noexcept;
///     // Returns a runnable in the payload. When the waiter is granted, the runnable calls
///     // try_now() once more, in place of the coroutine. If that returns `waiting`, the wait
///     // begins anew.
///     detail::retry_on_grant<Platform>& retry_on_grant(payload&) const noexcept;
///     // True: try_now() completes the wait, but other tasks run before the coroutine continues.
///     static constexpr bool yields_first = true;
///     // True: the wait cannot be a case of a select, because it is decided without a claim of
///     // the object that the cases share (basic_choice in core/waiter.hpp).
///     static constexpr bool stands_alone = true;
/// };
/// \endcode
///
/// The primitive returns {acquiring{*this, n}} as a basic_async_op. The struct is copied bytewise,
/// and consists of three words of 64 bits at most: references, pointers and numbers.
///
/// If the wait carries more data, such as an item, wait_payload names the type of these data. Each
/// function of the operation may take a reference to the payload, as its last parameter.

#include <bide/core/detail/noted.hpp>
#include <bide/core/result.hpp>
#include <bide/core/wake_scope.hpp>

#include <cstring>

namespace bide { inline namespace BIDE_ABI {

template <class Platform> class basic_waiter;

namespace detail {

template <class Platform> executor_ref spare_executor() noexcept; // core/timer.hpp

// The runnable of a wait that may begin again after a grant. When such a wait is granted, this
// runnable runs in place of the coroutine: it tries the operation, and resumes the coroutine or
// queues the wait again. It lies in the payload of the wait.
template <class Platform> class retry_on_grant {
public:
    // Returns a waker that makes `then` run on `where`.
    waker by(executor_ref where, waker then) noexcept {
        where_ = where;
        runnable_.run = then;
        return waker(&on_grant, this);
    }

    // Takes the runnable out of the list of this thread.
    void forget() noexcept { wake_scope<Platform>::forget(runnable_); }

private:
    static void on_grant(void* self) noexcept {
        auto& retry = *static_cast<retry_on_grant*>(self);
        if (const executor_ref where = retry.where_) {
            where.post(retry.runnable_);
        } else {
            wake_scope<Platform>::run(retry.runnable_, &spare_executor<Platform>);
        }
    }

    runnable runnable_;
    executor_ref where_;
};

} // namespace detail

/// The result type of an operation whose value is a T: result<T>. If an operation is to return a
/// result<void, E>, its primitive defines an empty T and specialises this class for that T.
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

/// Names the type of the payload of a wait for an R. The payload is the data that the wait holds
/// until its end, such as the item to send, or the place for the item to receive. Without a
/// specialisation, the wait has no payload.
/// Requires: until the wait begins, a move of the payload does not throw.
template <class R> struct wait_payload {
    /// The type of the payload.
    using type = detail::no_payload;
};
/// The payload of a wait for an R.
template <class R> using wait_payload_t = typename wait_payload<R>::type;

/// Is true if T is the value of operations that report no error and may wait for a time. Their
/// waits have a timer.
template <class T> inline constexpr bool may_wait_for_time = std::is_void_v<T>;
/// \overload
template <> inline constexpr bool may_wait_for_time<std::uint64_t> = true;

/// An operation that a wait for an R can be made of. The head of this file describes it.
template <class Op, class R>
concept wait_operation =
    std::is_trivially_copyable_v<Op> &&
    (requires(const Op& op, wait_status what, wait_payload_t<R>& carried) {
        { op.collect(what, carried) } -> std::same_as<R>;
    } || requires(const Op& op, wait_status what) {
        { op.collect(what) } -> std::same_as<R>;
    });

/// A type-erased operation. If it has a payload, it is the base of a wait_target_with.
// A copy of the bytes of a wait_target is a copy of the operation.
class BIDE_MAY_ALIAS wait_target {
public:
    /// Waits for nothing.
    wait_target() noexcept = default;

    /// Stores an operation.
    template <class Op>
        requires(!std::derived_from<Op, wait_target>)
    explicit wait_target([[maybe_unused]] const Op& what) noexcept {
        static_assert(std::is_trivially_copyable_v<Op>,
                      "bide: an operation is copied bytewise: it has references and numbers only");
        static_assert(sizeof(Op) <= sizeof op_ && alignof(Op) <= alignof(std::uint64_t),
                      "bide: an operation has three words; what else a wait needs is its payload");
        if constexpr (!std::is_empty_v<Op>) {
            std::memcpy(op_, &what, sizeof(Op));
        }
    }

    /// Returns the operation.
    /// Requires: an Op was stored.
    template <class Op> const Op& operation() const noexcept {
        return *std::launder(reinterpret_cast<const Op*>(op_));
    }

    /// Returns the payload.
    /// Requires: this object is the base of a wait_target_with<Payload>.
    template <class Payload> Payload& carried() const noexcept;

private:
    alignas(std::uint64_t) std::byte op_[3 * sizeof(std::uint64_t)];
};

/// A type-erased operation and its payload. It must not move after the wait has begun.
template <class Payload> struct wait_target_with : wait_target {
    /// Waits for nothing.
    wait_target_with() noexcept = default;
    /// Stores an operation, or copies one, and constructs its payload from `args`.
    template <class Op, class... Args>
        requires(!std::same_as<Op, wait_target_with>)
    explicit wait_target_with(const Op& what, Args&&... args) noexcept
        : wait_target(what), payload(std::forward<Args>(args)...) {}

    [[no_unique_address]] mutable Payload payload{}; ///< What the wait carries.
};

template <class Payload> Payload& wait_target::carried() const noexcept {
    return static_cast<const wait_target_with<Payload>&>(*this).payload;
}

/// The steps of a wait, as functions that know neither the type of its operation nor that of its
/// result. The head of this file explains them.
template <class Platform> struct wait_steps {
    /// A node in the queue of a primitive.
    using waiter = basic_waiter<Platform>;

    /// Tries to complete the wait.
    wait_status (*try_now)(const wait_target&) noexcept;
    /// Enqueues the waiter. Returns true if the wait is complete, and the waiter is not queued.
    bool (*enqueue)(const wait_target&, waiter&) noexcept;
    /// Cancels the wait.
    bool (*cancel)(const wait_target&, waiter&, wait_status why) noexcept;
    /// Tries a few times; nullptr if the operation has no yield_before_wait().
    wait_status (*try_longer)(const wait_target&) noexcept;
    /// Returns the runnable that completes the wait; nullptr if there is none.
    runnable& (*awaited_job)(const wait_target&) noexcept;
    /// Is called if the waiting task is cancelled. If nullptr, the wait then ends with `stopped`.
    void (*on_cancel)(const wait_target&) noexcept;
    /// Returns the runnable that calls try_now() after a grant. If nullptr, a grant ends the wait.
    detail::retry_on_grant<Platform>& (*retry_on_grant)(const wait_target&) noexcept;
    /// Undoes an outcome that no caller collects; nullptr if there is nothing to undo.
    void (*give_back)(const wait_target&, wait_status what) noexcept;
    /// If true, other tasks run first.
    bool yields_first;
    /// If true, the wait cannot be a case of a select.
    bool stands_alone;
#if defined(BIDE_DEADLOCK_CHECK)
    /// Returns what is waited for.
    detail::wait_subject (*subject)(const wait_target&) noexcept = nullptr;
#endif
};

/// The steps of a wait and its result; R is a result<...>.
template <class R, class Platform> struct wait_ops : wait_steps<Platform> {
    /// Makes the result of a wait.
    R (*collect)(const wait_target&, wait_status what);
};

namespace detail {

// The functions of wait_steps and wait_ops that call those of an Op.
template <class Op, class Payload, class Platform> struct wait_calls {
    using waiter = basic_waiter<Platform>;

    static wait_status try_now(const wait_target& t) noexcept {
        const Op& op = t.operation<Op>();
        if constexpr (requires(Payload& p) { op.try_now(p); }) {
            return op.try_now(t.carried<Payload>());
        } else {
            return op.try_now();
        }
    }
    static bool enqueue(const wait_target& t, waiter& w) noexcept {
        const Op& op = t.operation<Op>();
        BIDE_PROBE_IF(w.choice() == nullptr, wait_begin, subject(t).primitive, &w, 1);
        if constexpr (requires(Payload& p) { op.enqueue(w, p); }) {
            return op.enqueue(w, t.carried<Payload>()) != wait_status::waiting;
        } else {
            return op.enqueue(w) != wait_status::waiting;
        }
    }
    static bool cancel(const wait_target& t, waiter& w, wait_status why) noexcept {
        const Op& op = t.operation<Op>();
        if constexpr (requires(Payload& p) { op.cancel(w, why, p); }) {
            return op.cancel(w, why, t.carried<Payload>());
        } else {
            return op.cancel(w, why);
        }
    }
    template <class R> static R collect(const wait_target& t, wait_status what) {
        const Op& op = t.operation<Op>();
        if constexpr (requires(Payload& p) { op.collect(what, p); }) {
            return op.collect(what, t.carried<Payload>());
        } else {
            return op.collect(what);
        }
    }
    static constexpr bool gives_back = requires(const Op& op, wait_status what, Payload& p) {
        op.give_back(what, p);
    } || requires(const Op& op, wait_status what) { op.give_back(what); };
    static void give_back(const wait_target& t, wait_status what) noexcept {
        const Op& op = t.operation<Op>();
        if constexpr (requires(Payload& p) { op.give_back(what, p); }) {
            op.give_back(what, t.carried<Payload>());
        } else if constexpr (gives_back) {
            op.give_back(what);
        }
    }
    template <class R> static void drop(const wait_target& t, wait_status what) noexcept {
        static_cast<void>(collect<R>(t, what));
    }
    static detail::retry_on_grant<Platform>& retry_on_grant(const wait_target& t) noexcept {
        return t.operation<Op>().retry_on_grant(t.carried<Payload>());
    }
    static wait_status try_longer(const wait_target& t) noexcept {
        wait_status seen = wait_status::waiting;
        t.operation<Op>().yield_before_wait(
            [&]() noexcept { return (seen = try_now(t)) != wait_status::waiting; });
        return seen;
    }
#if defined(BIDE_DEADLOCK_CHECK) || BIDE_USDT
    static wait_subject subject(const wait_target& t) noexcept {
        const Op& op = t.operation<Op>();
        if constexpr (requires(Payload& p) { op.primitive(p); }) {
            return subject_of(op, t.carried<Payload>());
        } else {
            return subject_of(op);
        }
    }
#endif
    static runnable& awaited_job(const wait_target& t) noexcept {
        return t.operation<Op>().awaited_job();
    }
    static void on_cancel(const wait_target& t) noexcept { t.operation<Op>().on_cancel(); }

    static constexpr wait_steps<Platform> steps() noexcept {
        wait_steps<Platform> s{&try_now, &enqueue, &cancel, nullptr, nullptr,
                               nullptr,  nullptr,  nullptr, false,   false};
        if constexpr (requires(const Op& op, bool (&again)()) { op.yield_before_wait(again); }) {
            s.try_longer = &try_longer;
        }
        if constexpr (requires(const Op& op) { op.awaited_job(); }) {
            s.awaited_job = &awaited_job;
        }
        if constexpr (requires(const Op& op) { op.on_cancel(); }) {
            s.on_cancel = &on_cancel;
        }
        if constexpr (requires(const Op& op, Payload& p) { op.retry_on_grant(p); }) {
            s.retry_on_grant = &retry_on_grant;
        }
        if constexpr (gives_back) {
            s.give_back = &give_back;
        }
        if constexpr (requires { Op::yields_first; }) {
            s.yields_first = Op::yields_first;
        }
        if constexpr (requires { Op::stands_alone; }) {
            s.stands_alone = Op::stands_alone;
        }
        BIDE_CHECKED(s.subject = &subject;)
        return s;
    }
    // If the operation has no give_back(), a result that no caller takes is collected and
    // destroyed.
    template <class R> static constexpr wait_steps<Platform> steps_of_result() noexcept {
        wait_steps<Platform> s = steps();
        if constexpr (!gives_back) {
            s.give_back = &drop<R>;
        }
        return s;
    }
};

template <class Op, class Payload, class Platform>
inline constexpr wait_steps<Platform> steps_of = wait_calls<Op, Payload, Platform>::steps();

template <class Op, class R, class Platform,
          class Calls = wait_calls<Op, wait_payload_t<R>, Platform>>
inline constexpr wait_ops<R, Platform> ops_of{Calls::template steps_of_result<R>(),
                                              &Calls::template collect<R>};

} // namespace detail

/// A wait that has not begun.
template <class R, class Platform> struct basic_wait {
    const wait_ops<R, Platform>* ops;           ///< Its functions.
    wait_target_with<wait_payload_t<R>> target; ///< What it waits for, and what it carries.
};

}} // namespace bide::BIDE_ABI

#endif
