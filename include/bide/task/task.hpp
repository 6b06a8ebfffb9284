// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_TASK_HPP
#define BIDE_TASK_TASK_HPP

/// \file
/// task<T>, a lazy coroutine that runs where its awaiter runs, and sync_wait(), which runs a
/// task to its end.

// An await of a task uses no stack. Parent and child transfer control to each other by symmetric
// transfer. If the compiler does not emit a tail call, they use the trampoline of core/resume.hpp.
// A task passes its executor and its context to the tasks that it awaits.

#include <bide/core/async_op.hpp>
#include <bide/task/detail/coroutine_frame.hpp>
#include <bide/task/task_tag.hpp>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

struct task_access;

inline bool is_stopped_error(const std::exception_ptr& error) noexcept {
#if BIDE_EXCEPTIONS
    try {
        std::rethrow_exception(error);
    } catch (const stopped_error&) {
        return true;
    } catch (...) {
    }
#else
    static_cast<void>(error);
#endif
    return false;
}

// The exception of a coroutine or a function, if it has thrown.
class kept_failure {
public:
    std::exception_ptr& error() noexcept { return error_; }
    void unhandled_exception() noexcept { error_ = std::current_exception(); }

    bool is_stopped() const noexcept { return error_ && is_stopped_error(error_); }

    // Throws: the exception, if there is one.
    void rethrow_if_failed() {
        if (error_) {
            std::rethrow_exception(std::exchange(error_, nullptr));
        }
    }

protected:
    // Calls a function, and stores its exception.
    template <class F> void guard(F&& function) noexcept {
        BIDE_TRY { static_cast<void>(std::forward<F>(function)()); }
        BIDE_CATCH { unhandled_exception(); }
    }

private:
    std::exception_ptr error_;
};

// The outcome of a coroutine or a function: a value or an exception. A reference is stored as a
// pointer. The promise of a task derives from this class.
template <class T> class kept_outcome : public kept_failure {
    using stored = std::conditional_t<std::is_reference_v<T>, std::remove_reference_t<T>*, T>;

public:
    kept_outcome() noexcept {}
    kept_outcome(const kept_outcome&) = delete;
    kept_outcome& operator=(const kept_outcome&) = delete;
    ~kept_outcome() { drop_value(); }

    // Stores the value.
    template <class U = T>
        requires std::is_convertible_v<U&&, T>
    void return_value(U&& value) {
        if constexpr (std::is_reference_v<T>) {
            value_ = __builtin_addressof(value);
        } else {
            const volatile void* const place = __builtin_addressof(value_);
            ::new (const_cast<void*>(place)) T(static_cast<T>(std::forward<U>(value)));
        }
        has_value_ = true;
    }

    // Calls a function, and stores its value or exception as the outcome.
    template <class F> void compute(F&& function) noexcept {
        guard([&] { return_value(std::forward<F>(function)()); });
    }

    // Takes over the outcome of another object. If the move of the value throws, that exception is
    // the outcome.
    void keep(kept_outcome& from) noexcept {
        error() = std::move(from.error());
        if (!error()) {
            guard([&] { return_value(from.value()); });
        }
    }

    // Moves the value out and destroys it. Terminates if there is none.
    T value() {
        if (!has_value_) {
            fatal("task ended without co_return, and has no value");
        }
        if constexpr (std::is_reference_v<T>) {
            return static_cast<T>(*value_);
        } else {
            struct emptied {
                kept_outcome& all;
                ~emptied() { all.drop_value(); }
            } const after{*this};
            return std::move(value_);
        }
    }

    // Moves the outcome out.
    // Throws: the exception.
    T take() {
        rethrow_if_failed();
        return value();
    }

    void drop() noexcept {
        error() = nullptr;
        drop_value();
    }

private:
    void drop_value() noexcept {
        if (std::exchange(has_value_, false)) {
            value_.~stored();
        }
    }

    union {
        char none_;
        stored value_;
    };
    bool has_value_ = false;
};

// The outcome without a value: an exception, or none. keep() takes over only the exception.
template <> class kept_outcome<void> : public kept_failure {
public:
    template <class F> void compute(F&& function) noexcept { guard(std::forward<F>(function)); }
    void keep(kept_failure& from) noexcept { error() = std::move(from.error()); }
    void return_void() const noexcept {}
    void value() const noexcept {}
    void take() { rethrow_if_failed(); }
    void drop() noexcept { error() = nullptr; }
};

class task_promise_base : public chain_promise {
public:
    struct final_awaiter {
        final_awaiter() noexcept {}
        bool await_ready() const noexcept { return false; }
        // The transfer, or the call of ended(), is the last access to the frame.
        template <class Promise>
        std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> h) const noexcept {
            task_promise_base& p = h.promise();
            if (p.parent_) {
                auto* const node = ::new (static_cast<void*>(&p.to_parent_)) transfer_node();
                return transfer<native_platform>(p.parent_, *node);
            }
            return p.context_->ended();
        }
        void await_resume() const noexcept {}
    };
    final_awaiter final_suspend() const noexcept { return final_awaiter(); }

    executor_ref exchange_scheduler(executor_ref to) noexcept {
        return std::exchange(executor_, to);
    }

    // Sets or returns the number of the task's tag. Requires, for both: the task has not begun.
    void set_tag(std::uint8_t tag) noexcept { tag_ = tag; }
    std::uint8_t tag() const noexcept { return tag_; }

    // Makes this coroutine the first one of a chain. No coroutine awaits it.
    void begin(basic_task_context<native_platform>& context, executor_ref where) noexcept {
        context_ = &context;
        executor_ = where;
    }

private:
    template <class> friend class bide::task;

    std::coroutine_handle<> parent_; // the awaiting coroutine; empty in the first one of a chain
};

// An awaitable whose value is the promise of the awaiting task. It does not suspend the task.
class this_promise {
public:
    this_promise() noexcept {}
    bool await_ready() const noexcept { return false; }
    template <class Promise> bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
        promise_ = &h.promise();
        return false;
    }
    task_promise_base& await_resume() const noexcept { return *promise_; }

private:
    task_promise_base* promise_ = nullptr;
};

template <class T> class task_promise : public task_promise_base, public kept_outcome<T> {};

// Blocks a thread until a task has ended, and runs the runnables that are posted to the thread
// meanwhile.
class sync_loop final : basic_task_context<native_platform> {
    using local = worker_local<native_platform>;

public:
    sync_loop() noexcept {
        run_.run = waker(
            [](void* self) noexcept {
                resume<native_platform>(static_cast<sync_loop*>(self)->at_->leaf);
            },
            this);
    }

    // Runs the coroutine of a task on this thread until its end.
    template <class Promise> void run(std::coroutine_handle<Promise> frame) noexcept {
        frame.promise().begin(*this, queue_);
        run_with_budget([frame]() noexcept { resume<native_platform>(frame); });
        drive();
    }

    // Runs the coroutine of a task on `where`.
    template <class Promise>
    void run(executor_ref where, std::coroutine_handle<Promise> frame) noexcept {
        frame.promise().begin(*this, where);
        start_.leaf = frame;
        where.post(resumption(start_));
        drive();
    }

private:
    bool begin_wait(suspension& at) noexcept override {
        resumption(at);
        return true;
    }
    void end_wait() noexcept override {}
    void wake() noexcept override {
        const executor_ref where = *at_->where;
        where.post(run_);
    }
    executor_ref goes_on_at() const noexcept override { return {}; }
    bool is_cancelled() noexcept override { return false; }
    runnable& resumption(suspension& at) noexcept override {
        at_ = &at;
        return run_;
    }
    std::coroutine_handle<> ended() noexcept override {
        queue_.post(finished_); // the last access to the loop
        return std::noop_coroutine();
    }

    void drive() noexcept {
        for (;;) {
            // If this thread runs a worker of a scheduler, another thread takes the worker over
            // during a sleep, but not during a spin. So only a thread that runs no worker spins.
            if (queue_.empty() && local::get().host == nullptr) {
                basic_spin<native_platform>::until([this]() noexcept { return !queue_.empty(); });
            }
            runnable* const next = queue_.pop(deadline::never());
            if (next == &finished_) {
                return;
            }
            run_with_budget([next]() noexcept { next->run.wake(); });
        }
    }

    template <class Run> void run_with_budget(Run run) noexcept {
        local& here = local::get();
        const task_budget<native_platform> budget(here);
        const auto* const was_alone = std::exchange(here.alone, &queue_);
        run();
        here.alone = was_alone;
    }

    basic_ready_queue<native_platform> queue_;
    suspension* at_ = nullptr; // where the chain resumes
    suspension start_{};
    runnable run_;
    runnable finished_; // marks the end of the chain in the queue; never run
};

} // namespace detail

/// A coroutine that starts when it is awaited. It can be moved, and awaited once, as an rvalue.
///
/// \code
/// bide::task<int> half(int n) { co_return n / 2; }
/// bide::task<int> quarter(int n) { co_return co_await half(co_await half(n)); }
/// int two = bide::sync_wait(quarter(8));
/// \endcode
///
/// An awaited task may be destroyed before its end. The operation that the task waits for is then
/// cancelled, and gives back the permits or items that it was granted. In a chain of tasks, the
/// innermost one is destroyed first, on a bounded stack. Requires: no other thread is about to
/// resume the destroyed task (core/async_op.hpp).
///
/// If the body of a task<T> ends without co_return, and T is not void, the task has no value. If
/// the value is then requested, the program terminates with a message. The C++ standard makes such
/// an end undefined behaviour. But GCC 12 and clang 14 and 19 run the body to its end at every
/// level of optimisation, and clang warns (-Wreturn-type).
template <class T> class [[nodiscard("co_await it or pass it to sync_wait")]] task {
public:
    /// The promise of the coroutine; for the compiler.
    struct promise_type : detail::task_promise<T> {
        /// Makes the task; called by the compiler.
        task get_return_object() noexcept {
            return task(std::coroutine_handle<promise_type>::from_promise(*this));
        }
    };

    /// Takes the coroutine over; `other` is empty afterwards.
    task(task&& other) noexcept
        : frame_(std::exchange(other.frame_, nullptr)), name_(other.name_) {}
    /// Takes the coroutine over, and destroys the previous coroutine of this object.
    task& operator=(task&& other) noexcept {
        task moved(std::move(other));
        std::swap(frame_, moved.frame_);
        name_ = moved.name_;
        return *this;
    }
    task(const task&) = delete;
    /// Destroys the coroutine, if it was neither awaited nor spawned.
    ~task() {
        if (frame_) { // it has not started, or has ended
            frame_.destroy();
        }
    }

    /// Sets the name of the task in dumps and traces, if it is spawned.
    /// Requires: the text outlives the scheduler and its trace, as a literal does. The text is not
    /// copied.
    task named(const char* name) && noexcept {
        name_ = name;
        return std::move(*this);
    }

    /// Sets the tag of the task in dumps and traces, if it is spawned. If spawn_options::tag is
    /// set, too, that tag is used. If the task is a member of a group or a set, this tag replaces
    /// the tag of the task that made the group.
    /// Requires: the task was not moved from; terminates with a message otherwise.
    task tagged(task_tag tag) && noexcept {
        promise().set_tag(detail::tag_access::number_of(tag));
        return std::move(*this);
    }

    /// Does not compile: only operations have with_timeout(), which limits one wait. To limit a
    /// task with all its waits, use bide::with_timeout() or bide::with_deadline()
    /// (task/with_deadline.hpp).
    template <class... Time> task with_timeout(const Time&... /*duration*/) && {
        static_assert(
            (std::is_void_v<Time> && ...),
            "bide: a task has no with_timeout(): write bide::with_timeout(task, duration)");
        return std::move(*this);
    }
    /// \overload
    template <class... Time> task with_deadline(const Time&... /*when*/) && {
        static_assert((std::is_void_v<Time> && ...),
                      "bide: a task has no with_deadline(): write bide::with_deadline(task, when)");
        return std::move(*this);
    }

    /// Awaits the task; made by operator co_await.
    struct awaiter {
        /// Takes the coroutine over.
        explicit awaiter(task&& from) noexcept { child_.to = std::exchange(from.frame_, nullptr); }
        awaiter(const awaiter&) = delete;
        awaiter& operator=(const awaiter&) = delete;
        /// Destroys the coroutine, and the coroutines that it awaits.
        ~awaiter() {
            if (child_.to) {
                awaiting_.end(); // if await_resume() was not called
                detail::destroy_frame(child_.to, child().awaited_frames());
            }
        }

        /// Returns false. Terminates if the task was moved from or has ended.
        bool await_ready() const noexcept {
            if (!child_.to || child_.to.done()) {
                detail::fatal("task awaited that was moved from or has ended");
            }
            return false;
        }
        /// Starts the task in the context and on the executor of the awaiting coroutine.
        template <class Promise>
        std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> parent) noexcept {
            promise_type& p = child();
            if constexpr (!std::is_void_v<Promise>) {
                p.executor_ = bide::executor_of(parent.promise());
                p.context_ = bide::task_context_of<native_platform>(parent.promise());
                awaiting_.begin(parent, &child_);
            } else {
                p.context_ = nullptr;
            }
            child_.awaits = &p.awaited_frames();
            p.parent_ = parent;
            return transfer<native_platform>(child_.to, child_);
        }
        /// Returns the value of the task.
        /// Throws: what the task threw.
        T await_resume() {
            awaiting_.end();
            return child().take();
        }

    private:
        promise_type& child() const noexcept { return detail::promise_of<promise_type>(child_.to); }

        detail::awaited_frame child_;
        detail::awaiting awaiting_;
    };
    /// Starts the task and waits for its end.
    awaiter operator co_await() && noexcept { return awaiter(std::move(*this)); }
    /// Does not compile: a task is awaited once, as an rvalue.
    template <class Refused = void> void operator co_await() & {
        static_assert(!std::is_void_v<Refused>,
                      "bide: a task is awaited once: write co_await std::move(task)");
    }

private:
    friend promise_type;
    template <class U> friend U sync_wait(task<U>);
    template <executor S, class U> friend U sync_wait(S&, task<U>);
    friend detail::task_access;

    explicit task(std::coroutine_handle<promise_type> of) noexcept : frame_(of) {}

    promise_type& promise() const noexcept {
        if (!frame_) {
            detail::fatal("task run that was moved from");
        }
        return frame_.promise();
    }

    std::coroutine_handle<promise_type> frame_;
    const char* name_ = nullptr;
};

namespace detail {

// Takes a task apart, for an object that runs the task as the first one of a chain.
struct task_access {
    template <class T>
    static std::coroutine_handle<typename task<T>::promise_type> release(task<T>& t) noexcept {
        return std::exchange(t.frame_, nullptr);
    }
    template <class T> static const char* name_of(const task<T>& t) noexcept { return t.name_; }
};

} // namespace detail

/// Runs the task on this thread to its end. An operation of bide that the task awaits resumes the
/// task on this thread.
///
/// If the caller is a task of a scheduler, this call blocks that task. A cancellation of the caller
/// does not reach the task `t`.
/// Blocks: while the task waits.
/// Throws: what the task throws.
template <class T> T sync_wait(task<T> t) {
    auto& promise = t.promise();
    detail::sync_loop loop;
    loop.run(t.frame_);
    return promise.take();
}

/// Runs the task on an executor, and waits for its end.
/// Blocks: until the task has ended.
/// Throws: what the task throws.
template <executor S, class T> T sync_wait(S& where, task<T> t) {
    auto& promise = t.promise();
    detail::sync_loop loop;
    loop.run(where, t.frame_);
    return promise.take();
}

}} // namespace bide::BIDE_ABI

#endif
