// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_JOIN_HANDLE_HPP
#define BIDE_TASK_JOIN_HANDLE_HPP

/// \file
/// A handle that waits for the outcome of a spawned task.

#include <bide/core/detail/item_payload.hpp> // so that each async_op<T> has one definition
#include <bide/task/detail/task_cell.hpp>

namespace bide { inline namespace BIDE_ABI {

/// Owns the right to ask for the outcome of a spawned task. T is the type of the value.
///
/// \code
/// bide::scheduler workers;
/// bide::join_handle<int> answer = workers.spawn([] { return 42; });
/// int n = std::move(answer).join(); // in a coroutine: co_await std::move(answer).async_join()
/// \endcode
///
/// If the handle is destroyed and the task throws, the exception goes to
/// scheduler_options::on_unhandled. This holds whether the task ends before or after the
/// destruction of the handle.
/// Thread safety: one thread at a time may use a handle, except for cancel() and done(). Any thread
/// may call these concurrently.
/// Destroys: detaches the task. Never blocks, never cancels.
template <class T> class [[nodiscard]] join_handle {
    using cell = detail::joined_task<T>;
    using async_value = std::conditional_t<std::is_reference_v<T>,
                                           std::reference_wrapper<std::remove_reference_t<T>>, T>;

public:
    /// Takes the task over. The other handle is empty afterwards.
    join_handle(join_handle&&) noexcept = default;
    /// Takes the task over, and detaches the previous task of this handle.
    join_handle& operator=(join_handle&&) noexcept = default;
    /// Detaches the task.
    ~join_handle() = default;

    /// Waits for the end of the task and returns its value. If the task ran to its end, join()
    /// returns the value, even if the task was cancelled meanwhile. A task that is cancelled before
    /// its first run never starts.
    /// Blocks: until the task has ended.
    /// Throws: what the task threw; stopped_error, if the task never ran or did not catch the
    /// stopped_error of a wait; std::system_error (resource_deadlock_would_occur), if the caller is
    /// the task itself.
    /// Requires: the handle has a task; terminates otherwise.
    T join() && {
        const join_handle mine(std::move(*this));
        refuse_itself(mine.held());
        mine.cell_->ended_gate().wait();
        return mine.cell_->take();
    }
    /// Does not compile: the call consumes the handle, which must be an rvalue.
    template <class Refused = void> void join() & {
        static_assert(!std::is_void_v<Refused>,
                      "bide: write std::move(handle).join(): it consumes the handle");
    }

    /// Waits as join() does, for a coroutine. The handle moves into the operation. If the wait ends
    /// early, by a time-out or a stop, the task is detached.
    ///
    /// If the task is the next job of the caller's worker or loop, as a task is that was just
    /// spawned, the worker runs it at once, inside of the caller's job and on its stack. At most
    /// eight tasks run inside of each other. If the caller is cancelled meanwhile, it is stopped
    /// when the task waits, blocks in bide or ends. The task does not run inside if the caller has a
    /// deadline (task/with_deadline.hpp), is a child of when_any(), or runs on a strand or another
    /// executor than the worker's. Then a deadline or a sibling ends the wait at once.
    /// Returns: an operation with the value of join(). In the place of a reference, the value is a
    /// std::reference_wrapper.
    /// Throws: when awaited, as join(). If the caller is the task itself, this call throws.
    /// Requires: the operation is awaited; otherwise the outcome of the task is never destroyed.
    /// Cancellation: the wait ends, and the task is detached; the task is not cancelled.
    async_op<async_value> async_join() && {
        refuse_itself(held());
        return {joining{*cell_.release()}};
    }
    /// Does not compile: the call consumes the handle, which must be an rvalue.
    template <class Refused = void> void async_join() & {
        static_assert(!std::is_void_v<Refused>,
                      "bide: write std::move(handle).async_join(): it consumes the handle");
    }
    /// The awaiter of a handle.
    class awaiter;
    /// Waits for the outcome: `co_await std::move(handle)` is short for
    /// `co_await std::move(handle).async_join()`.
    /// Throws: as async_join().
    awaiter operator co_await() && { return awaiter(std::move(*this).async_join()); }
    /// Does not compile: the wait consumes the handle, which must be an rvalue.
    template <class Refused = void> void operator co_await() const& {
        static_assert(!std::is_void_v<Refused>,
                      "bide: write co_await std::move(handle): the wait consumes the handle");
    }

    /// Requests that the task ends. Does not wait for the end.
    ///
    /// If the task waits, this wait is stopped. If it does not wait, its next wait is stopped. A task
    /// that awaits another one may not wait yet, because its worker runs the other one first: see
    /// async_join(). A stopped wait returns errc::stopped or throws stopped_error. Each later
    /// operation that would have to wait is stopped, too. Of the operations that complete
    /// immediately, one in 128 is stopped. The task may catch the error and continue. While the
    /// task has a shield, no operation is stopped. The task reads the reason by
    /// this_task::cancel_reason().
    /// Returns: false if the task has ended.
    /// Requires: `why` is not cancel_reason::none.
    bool cancel(cancel_reason why = cancel_reason::requested) noexcept {
        return held().cancel(why);
    }

    /// Returns true if the task has ended.
    bool done() const noexcept { return held().is_complete(); }

    /// Gives up the outcome. The task continues.
    void detach() && noexcept { const join_handle dropped(std::move(*this)); }
    /// Does not compile: the call consumes the handle, which must be an rvalue.
    template <class Refused = void> void detach() & {
        static_assert(!std::is_void_v<Refused>,
                      "bide: write std::move(handle).detach(): it consumes the handle");
    }

private:
    template <class U> friend class scoped_join_handle;
    friend class cancel_handle;
    friend class run_loop;
    friend class task_runner;
    friend class scheduler;
    using node = basic_waiter<native_platform>;

    struct forgo {
        void operator()(cell* of) const noexcept { of->forgo(); }
    };

    explicit join_handle(cell& of) noexcept : cell_(&of) {}

    cell& held() const noexcept {
        if (cell_ == nullptr) {
            detail::fatal("a join_handle was used after it was moved from or joined");
        }
        return *cell_;
    }

    static void refuse_itself(const cell& of) {
        if (worker_local<native_platform>::get().running == &of) {
            BIDE_THROW(
                std::system_error(std::make_error_code(std::errc::resource_deadlock_would_occur),
                                  "a task cannot join itself"));
        }
    }

    // The operation of async_join() (core/wait_ops.hpp). collect() and give_back() consume the
    // handle.
    struct joining {
        cell& of;
        static constexpr bool stands_alone = true;
        static constexpr const char* waited_for = "the end of task";

        const auto& primitive() const noexcept { return of; }
        auto& ended() const noexcept { return of.ended_gate(); }
        wait_status try_now() const noexcept {
            return ended().is_open() ? wait_status::granted : wait_status::waiting;
        }
        runnable& awaited_job() const noexcept { return of.to_run(); }
        wait_status enqueue(node& w) const noexcept { return ended().enqueue(w); }
        bool cancel(node& w, wait_status why) const noexcept { return ended().cancel(w, why); }
        as_result_t<async_value> collect(wait_status what) const;
        void give_back(wait_status) const noexcept { const join_handle dropped(of); }
    };

    std::unique_ptr<cell, forgo> cell_;
};

namespace detail {

// An operation, as a base that is constructed before the awaiter that refers to it.
template <class Op> struct held_operation {
    Op op;
};

} // namespace detail

template <class T>
class join_handle<T>::awaiter : detail::held_operation<async_op<async_value>>,
                                public async_op<async_value>::awaiter {
    using held = detail::held_operation<async_op<async_value>>;

public:
    /// Constructs it with the operation of async_join().
    explicit awaiter(async_op<async_value> of) noexcept
        : held{std::move(of)}, async_op<async_value>::awaiter(held::op) {}
};

template <class T>
as_result_t<typename join_handle<T>::async_value>
join_handle<T>::joining::collect(wait_status what) const {
    const join_handle mine(of);
    if (what == wait_status::granted && of.is_stopped()) {
        of.kept().error() = nullptr; // reported by `what`
        what = wait_status::stopped;
    }
    if (what == wait_status::granted) {
        if constexpr (std::is_void_v<T>) {
            of.take();
            return {};
        } else {
            return of.take();
        }
    }
    if constexpr (requires { as_result_t<async_value>(unexpected{errc_of(what)}); }) {
        return unexpected{errc_of(what)};
    } else {
        detail::throw_error(errc_of(what));
    }
}

}} // namespace bide::BIDE_ABI

#endif
