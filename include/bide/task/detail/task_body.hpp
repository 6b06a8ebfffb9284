// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_DETAIL_TASK_BODY_HPP
#define BIDE_TASK_DETAIL_TASK_BODY_HPP

// Every cell of a task has two parts: the body, which runs, and the outcome, which is kept when the
// body is destroyed. That holds for spawned tasks, for members of groups and for children of
// when_all.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/detail/is_task.hpp>
#include <bide/core/detail/task_context.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/task/detail/awaited_frame.hpp>
#include <bide/task/task.hpp>

#include <coroutine>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// ---- The source of a task: the task itself, or a callable that returns one

template <class S> struct task_source_traits {};
template <class T> struct task_source_traits<task<T>> {
    using value = T;
};
template <class F>
    requires(std::is_invocable_v<F&> && is_task<std::invoke_result_t<F&>>)
struct task_source_traits<F> : task_source_traits<std::invoke_result_t<F&>> {};

// The type of the task's value.
template <class S> using task_value_t = typename task_source_traits<S>::value;

template <class S>
concept task_source = requires { typename task_value_t<S>; };

// A function that returns no task, for a child whose value is dropped.
template <class F>
concept plain_function =
    std::is_invocable_v<F&&> && !task_source<F> && !is_task<std::invoke_result_t<F&&>>;
template <plain_function F> task<std::invoke_result_t<F&&>> call_in_task(F function) {
    co_return std::move(function)();
}

// ---- The outcome

inline bool is_stopped_error(const std::exception_ptr& error) noexcept {
#if BIDE_EXCEPTIONS
    try {
        std::rethrow_exception(error);
    } catch (const stopped_error&) {
        return true;
    } catch (...) {
        return false;
    }
#else
    static_cast<void>(error);
    return false;
#endif
}

// The outcome of a task that has run: a value or an exception.
// kept_outcome<void> is the outcome of a task of any type, without the value.
template <class T> class kept_outcome {
    struct nothing {};

public:
    kept_outcome() noexcept {}

    // Moves the outcome out of the promise of a coroutine that has ended. If the move of the value
    // throws, that exception is the outcome.
    template <class Promise> void keep(Promise& from) noexcept {
        error_ = std::move(from.error());
        if constexpr (!std::is_void_v<T>) {
            if (!error_) {
                compute([&]() -> T { return from.outcome().take(); });
            }
        }
    }

    // Calls a function. Its value or exception is the outcome.
    template <class F> void compute(F&& function) noexcept {
#if BIDE_EXCEPTIONS
        try {
            set(std::forward<F>(function));
        } catch (...) {
            error_ = std::current_exception();
        }
#else
        set(std::forward<F>(function));
#endif
    }

    std::exception_ptr& error() noexcept { return error_; }

    // Returns true if the task ended by stopped_error.
    bool is_stopped() const noexcept { return error_ && is_stopped_error(error_); }

    // Throws: the exception, if there is one.
    void rethrow_if_failed() {
#if BIDE_EXCEPTIONS
        if (error_) {
            std::rethrow_exception(std::exchange(error_, nullptr));
        }
#endif
    }

    // Moves the value out.
    // Requires: there is one.
    T value() {
        if constexpr (!std::is_void_v<T>) {
            return value_.take();
        }
    }

    // Destroys the outcome, before the cell is.
    void drop() noexcept {
        error_ = nullptr;
        if constexpr (!std::is_void_v<T>) {
            value_.drop();
        }
    }

    // Moves the outcome out.
    // Throws: the exception of the task.
    T take() {
        rethrow_if_failed();
        return value();
    }

private:
    template <class F> void set(F&& function) {
        if constexpr (std::is_void_v<T>) {
            std::invoke(std::forward<F>(function));
        } else {
            value_.set(std::invoke(std::forward<F>(function)));
        }
    }

    std::exception_ptr error_;
    [[no_unique_address]] std::conditional_t<std::is_void_v<T>, nothing, task_outcome<T>> value_;
};

// ---- The body

// Owns a frame that no coroutine awaits.
struct lone_frame {
    std::coroutine_handle<> to;
};

// What a task runs: its coroutine, and the callable that it came from. A lambda coroutine uses the
// captures until its end, so the callable is destroyed after the frame.
//
// Frame is lone_frame, or awaited_frame if a coroutine awaits the task together with
// other tasks.
template <task_source S, class Frame = lone_frame> class task_body {
    using value = task_value_t<S>;
    using promise_type = typename task<value>::promise_type;
    struct nothing {};

public:
    task_body() noexcept {}
    task_body(const task_body&) = delete;
    task_body& operator=(const task_body&) = delete;
    ~task_body() { destroy(); }

    // What task::named() and task::tagged() have set.
    struct labels {
        const char* name;
        std::uint8_t tag;
    };

    // Takes the source: a task, or a callable, which is then called at its final address. Returns
    // the labels of the task.
    // Throws: what the move of a callable throws; what its call throws.
    // Requires: a task that was not moved from; terminates otherwise.
    labels open(S&& source) {
        if constexpr (is_task<S>) {
            return adopt(source);
        } else {
            callable_.emplace(std::move(source));
            task<value> made = std::invoke(*callable_);
            return adopt(made);
        }
    }

    // Prepares the coroutine to be the first of a chain, and returns it.
    std::coroutine_handle<> begin(basic_task_context<native_platform>& context,
                                  executor_ref where) noexcept {
        promise().begin(context, where);
        return frame_.to;
    }

    // Moves the outcome into `outcome`, and destroys the coroutine and the callable.
    // Requires: the coroutine has ended.
    template <class T> void end(kept_outcome<T>& outcome) noexcept {
        outcome.keep(promise());
        destroy();
    }

    void destroy() noexcept {
        if (frame_.to) {
            awaited_frame* const awaits = promise().awaited_frames();
            destroy_frame(std::exchange(frame_.to, nullptr), awaits);
        }
        if constexpr (!is_task<S>) {
            callable_.reset();
        }
    }

    Frame& frame() noexcept { return frame_; }

private:
    promise_type& promise() const noexcept {
        return std::coroutine_handle<promise_type>::from_address(frame_.to.address()).promise();
    }

    labels adopt(task<value>& t) noexcept {
        frame_.to = task_access::release(t);
        if (!frame_.to) {
            fatal("a task was spawned or composed after it was moved from");
        }
        if constexpr (std::is_same_v<Frame, awaited_frame>) {
            frame_.awaits = &promise().awaited_frames();
        }
        return {task_access::name_of(t), promise().tag()};
    }

    [[no_unique_address]] std::conditional_t<is_task<S>, nothing, std::optional<S>> callable_;
    Frame frame_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
