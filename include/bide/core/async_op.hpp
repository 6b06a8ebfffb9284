// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_ASYNC_OP_HPP
#define BIDE_CORE_ASYNC_OP_HPP

/// \file
/// The operation that each async_*() returns: the wait of a coroutine in the queue of a primitive.
///
/// The coroutine may belong to any library. Its promise meets these requirements, each only if the
/// promise has the member:
///
/// - await_transform passes the operation on as an rvalue, or awaits the awaiter that operator
///   co_await() returns. It may do so with a coroutine_handle<>, which hides the next two members.
///   That of asio::awaitable admits operations of Asio only: interop/asio.hpp makes one.
/// - get_scheduler() returns an executor by reference or by pointer, or an executor_ref.
/// - task_context(), if its result converts to a basic_task_context*, returns the task that the
///   coroutine is part of, or nullptr.
/// - unhandled_exception lets no exception leave resume(). The release that resumes the coroutine
///   is noexcept, so the program would terminate.
///
/// Only the wait resumes the coroutine. Until then its owner neither resumes it nor reads its state.
/// Without as_result(), await_resume() throws closed, stopped and timeout inside the coroutine.
///
/// Destroys: a coroutine that waits may be destroyed, which cancels the wait; what was granted goes
/// back. That holds for each async operation of the library, and for a coroutine or task whose child
/// waits. It requires that no other thread is about to resume the coroutine. These threads are:
///
/// - A thread whose release, notification or close has let the wait through, until that call has
///   returned. If it calls on this thread, the coroutine may be destroyed inside of that call.
/// - Without an executor: a thread that takes the coroutine over because the releaser blocks
///   (core/wake_scope.hpp), and bide's service (core/timer.hpp) from the stop or the time-out on. Both
///   until the coroutine has suspended again.
/// - With an executor: its threads. The coroutine may be destroyed on a thread that keeps the executor
///   from running. What was posted for the coroutine must not run then.
///
/// With BIDE_DEADLOCK_CHECK (core/deadlock_check.hpp), a coroutine that is destroyed while a release
/// on another thread resumes it is reported. Waits by callbacks need no such care
/// (core/callback_wait.hpp).
//
// A releaser cannot say that it has returned: a coroutine that it has posted may have run to its end,
// and its frame with the node may be gone. A callback_wait outlives the report of its releaser, because
// its owner waits for it. A coroutine that did so would wait in each resumption for the releaser, which
// may lose its processor between the post and the report.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/wait_limits.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/timer.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/fwd.hpp>

#include <chrono>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {

/// A wait of a coroutine, for co_await. `Stops` is the number of its stop tokens.
template <class T, class Platform, int Stops> class [[nodiscard("co_await it")]] basic_async_op {
    using R = as_result_t<T>;
    using ops = wait_ops<R, Platform>;
    using payload = wait_payload_t<R>;
    using limits = detail::wait_limits_t<T, Platform, Stops>;
    template <class U, int More = 0> using same = basic_async_op<U, Platform, Stops + More>;

public:
    /// The type of its value.
    using value_type = T;

    /// Constructs a wait from the operation of a primitive (core/wait_ops.hpp).
    template <wait_operation<R> Op>
    basic_async_op(const Op& what, payload carried = {}) noexcept
        : ops_(&detail::ops_of<Op, R, Platform>), target_(what), payload_(std::move(carried)) {}

    /// Constructs a wait whose payload is constructed from `args`.
    template <wait_operation<R> Op, class... Args>
    basic_async_op(std::in_place_t, const Op& what, Args&&... args) noexcept
        : ops_(&detail::ops_of<Op, R, Platform>), target_(what),
          payload_(std::forward<Args>(args)...) {}

    /// Constructs a wait for a time: collect() gets timed_out at the deadline.
    template <wait_operation<R> Op>
        requires may_wait_for_time<T>
    basic_async_op(const Op& what, deadline until) noexcept : basic_async_op(what) {
        limits_.until = until;
    }

    /// Takes over an operation that was not awaited.
    basic_async_op(basic_async_op&&) noexcept = default;
    basic_async_op& operator=(basic_async_op&&) = delete;

    /// Returns closed, stopped and timeout as an errc instead of throwing them.
    same<R> as_result() && noexcept { return std::move(*this).widen(); }

    /// Ends the wait with errc::stopped when a stop is requested. It takes up to two tokens.
    /// Throws: std::system_error if the service threads of bide cannot be started. Threads that
    /// belong to no scheduler need these.
    same<R, 1> with_stop(typename Platform::stop_token token) && {
        static_assert(Stops < 2, "a wait takes two stop tokens at most");
        detail::prepare_timers<Platform>();
        same<R, 1> op = std::move(*this).template widen<1>();
        op.limits_.stops[Stops] = std::move(token);
        return op;
    }

    /// Ends the wait with errc::timeout at the deadline. If the deadline has passed, makes one
    /// attempt. Of several deadlines the earliest counts.
    /// Throws: as with_stop().
    same<R> with_deadline(deadline until) && {
        detail::prepare_timers<Platform>();
        same<R> op = std::move(*this).widen();
        deadline& set = op.limits_.until;
        if (set.is_never() || until.steady_ns() < set.steady_ns()) {
            set = until;
        }
        return op;
    }
    /// \overload
    template <class C, class D>
    same<R> with_deadline(const std::chrono::time_point<C, D>& when) && {
        return std::move(*this).with_deadline(deadline::at(when));
    }
    /// Ends the wait with errc::timeout after `rest`.
    /// Throws: as with_stop().
    template <class Rep, class Period>
    same<R> with_timeout(const std::chrono::duration<Rep, Period>& rest) && {
        return std::move(*this).with_deadline(deadline::after(rest));
    }

    /// Resumes the coroutine on `s`, whatever its own executor is.
    /// Requires: `s` lives until then. A strand, a run_loop, a poll_executor or an executor of Asio
    /// that ends before terminates with a message; a scheduler does not check it.
    template <executor S> basic_async_op resume_on(S& s) && noexcept {
        basic_async_op op(std::move(*this));
        op.executor_ = s;
        return op;
    }

    /// The awaiter of the operation.
    class awaiter;
    awaiter operator co_await() && noexcept { return awaiter(*this); } ///< Returns the awaiter.
    /// Refuses: an operation is awaited once, as an rvalue.
    template <class Refused = void> void operator co_await() & {
        static_assert(!std::is_void_v<Refused>,
                      "bide: an operation is awaited once: write co_await std::move(operation)");
    }
    /// Makes it a case of a select, which has its own limits and executor.
    basic_wait<R, Platform> as_case() && noexcept { return {ops_, target_, std::move(payload_)}; }

private:
    template <class, class, int> friend class basic_async_op;
    template <class, class> friend class basic_callback_wait;

    // The same wait with other limits.
    basic_async_op(const ops& what, const wait_target& target, payload&& carried) noexcept
        : ops_(&what), target_(target), payload_(std::move(carried)) {}

    template <int More = 0> same<R, More> widen() && noexcept {
        if constexpr (std::is_same_v<same<R, More>, basic_async_op>) {
            return std::move(*this);
        } else {
            same<R, More> op(*ops_, target_, std::move(payload_));
            op.executor_ = executor_;
            if constexpr (detail::is_result<T> || may_wait_for_time<T>) {
                op.limits_.until = limits_.until;
            }
            if constexpr (Stops != 0) {
                for (int i = 0; i < Stops; ++i) {
                    op.limits_.stops[i] = std::move(limits_.stops[i]);
                }
            }
            return op;
        }
    }

    const ops* ops_;
    wait_target target_;
    executor_ref executor_;
    [[no_unique_address]] payload payload_;
    [[no_unique_address]] limits limits_;
};

} // namespace bide::inline BIDE_ABI

#include <bide/core/detail/op_awaiter.hpp>

#endif
