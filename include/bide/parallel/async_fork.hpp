// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_ASYNC_FORK_HPP
#define BIDE_PARALLEL_ASYNC_FORK_HPP

/// \file
/// A fork-join for coroutines. It begins on a worker. The coroutine uses no thread while it waits
/// for the end. sched/detail/posted_call.hpp describes the mechanism.

#include <bide/parallel/fork_join.hpp>
#include <bide/sched/detail/posted_call.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

template <class F> decltype(auto) call_with_policy(F& f, const fork_policy& on) {
    if constexpr (std::invocable<F&, const fork_policy&>) {
        return std::invoke(f, on);
    } else {
        return std::invoke(f);
    }
}

template <class F>
using forked_t =
    decltype(detail::call_with_policy(std::declval<F&>(), std::declval<const fork_policy&>()));

// The call of the function of an async_fork(), and its outcome.
template <class F> class fork_call final : public posted_call {
    using value = nonvoid_t<forked_t<F>>;
    using kept = std::conditional_t<std::is_reference_v<value>,
                                    std::add_pointer_t<std::remove_reference_t<value>>,
                                    std::remove_const_t<value>>;

    static_assert(!is_task<value>, "bide: a fork-join awaits no task");

public:
    // `on` must outlive the call.
    fork_call(const fork_policy& on, std::stop_source stop, F& body) noexcept
        : posted_call(fork_entry::core(on.where()), std::move(stop)), on_(on), function_(body) {}

    // Throws: what the function threw; stopped_error if the function was not called.
    forked_t<F> take() {
        if (!was_made() || was_stopped_) {
            throw_error(errc::stopped);
        }
#if BIDE_EXCEPTIONS
        if (error_) {
            std::rethrow_exception(std::move(error_));
        }
#endif
        if constexpr (std::is_reference_v<value>) {
            return static_cast<value>(**value_);
        } else if constexpr (!std::is_void_v<forked_t<F>>) {
            return std::move(*value_);
        }
    }

private:
    struct forward_stop {
        std::stop_source& to;
        void operator()() const noexcept { to.request_stop(); }
    };

    void call() noexcept override {
        const std::stop_callback from_options(on_.options().stop, forward_stop{stop()});
        if (stop().stop_requested()) {
            was_stopped_ = true;
            return;
        }
        fork_options mine = on_.options();
        mine.stop = stop().get_token();
        const fork_policy on(on_.where(), std::move(mine));
        const auto arm = [this, &on]() -> forked_t<F> {
            return detail::call_with_policy(function_, on);
        };
        const auto keep = [&] {
            if constexpr (std::is_reference_v<value>) {
                auto&& result =
                    detail::in_fork(on.where(), arm, 1, nullptr, on.options().max_workers);
                value_.emplace(std::addressof(result));
            } else {
                value_.emplace(
                    detail::in_fork(on.where(), arm, 1, nullptr, on.options().max_workers));
            }
        };
        detail::call_or(keep, [this] { error_ = std::current_exception(); });
    }

    const fork_policy& on_;
    F& function_;
    bool was_stopped_ = false;
    std::optional<kept> value_;
    std::exception_ptr error_;
};

} // namespace detail

/// A fork-join that a coroutine awaits.
template <class F> class [[nodiscard("co_await it")]] fork_operation {
public:
    /// Constructs the operation from a policy and a function. See async_fork().
    fork_operation(const fork_policy& on, F body) : on_(on), function_(std::move(body)) {}

    /// The awaiter of the operation.
    class awaiter {
        using wait = async_op<void>;

    public:
        /// Constructs the awaiter of an operation.
        /// Requires: the operation outlives the awaiter. A co_await expression ensures that.
        explicit awaiter(fork_operation& of) noexcept
            : call_(of.on_, std::move(of.stop_), of.function_), op_(made(call_)), wait_(op_) {}

        /// Returns false: await_suspend() posts the call.
        bool await_ready() noexcept { return wait_.await_ready(); }
        /// Posts the call, and queues the wait. Returns true if the coroutine stays suspended.
        template <class Promise> bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
            return wait_.await_suspend(h);
        }
        /// Returns the value of the function, or throws what it threw.
        detail::forked_t<F> await_resume() {
            wait_.await_resume();
            return call_.take();
        }

    private:
        static wait made(detail::posted_call& of) noexcept {
            return detail::posted_call::waiting{of};
        }

        detail::fork_call<F> call_;
        wait op_;
        typename wait::awaiter wait_;
    };
    awaiter operator co_await() && noexcept { return awaiter(*this); } ///< Returns the awaiter.

private:
    fork_policy on_;
    F function_;
    std::stop_source stop_;
};

/// Calls a function on a worker, in a fork-join, while the awaiting coroutine uses no thread.
/// Returns an operation for co_await. The value of the operation is the value of the function. The
/// function takes a fork_policy or no argument, and may call any parallel algorithms:
///
/// \code
/// auto sorts = [&](const fork_policy& on) { parallel_for(on, lists, sort_one); };
/// co_await async_fork(workers, sorts);
/// \endcode
///
/// The policy that the function gets has a separate stop token. That token is stopped if the
/// awaiting task is cancelled, or if the token in `on` is stopped. The coroutine may belong to any
/// scheduler, to a run_loop or to another library. It resumes as after any other async_op. In the
/// function, this_task refers to no task. If the function blocks, a worker blocks.
///
/// The wait allocates nothing. The call of async_fork() allocates the state of a std::stop_source.
/// With GCC before 13, define the function in an earlier statement if it has captures (see
/// task_runner::spawn()). Do the same for a policy with options in braces.
/// Blocks: never, with one exception: if the coroutine is destroyed while it waits, the destruction
/// blocks until the function has ended.
/// Throws: std::bad_alloc. When awaited: what the function throws; stopped_error if a stop was
/// requested, or the scheduler was shut down, before the function was called.
/// Cancellation: if the function has not begun, it is not called. If it has begun, its algorithms
/// are stopped, and the coroutine waits until the function has ended. If the function still returns
/// a value, the coroutine gets that value. A deadline of the task expires when a worker of the
/// task's scheduler checks the timers. So the deadline does not expire while all workers of that
/// scheduler run the function.
template <class F>
    requires std::invocable<F&, const fork_policy&> || std::invocable<F&>
fork_operation<F> async_fork(const fork_policy& on, F function) {
    return fork_operation<F>(on, std::move(function));
}

}} // namespace bide::BIDE_ABI

#endif
