#ifndef BIDE_TASK_TASK_HPP
#define BIDE_TASK_TASK_HPP

// task<T>: a lazy coroutine that runs where its awaiter runs, and sync_wait, which runs one to its
// end.
//
// Awaiting a task costs no stack: parent and child hand the thread to each other by symmetric
// transfer, or by the trampoline of core/resume.hpp where the compiler does not tail-call. A task
// passes its executor on to the tasks that it awaits.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/detail/task_context.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/ready_queue.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/waker.hpp>
#include <bide/fwd.hpp>
#include <bide/task/detail/awaited_frame.hpp>
#include <bide/task/detail/frame_memory.hpp>

#include <coroutine>
#include <cstddef>
#include <exception>
#include <memory>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {

namespace detail {

template <class T> class owned_frame;

class task_promise_base {
public:
    // Throws: std::bad_alloc.
    static void* operator new(std::size_t size) { return frame_memory::allocate(size); }
    static void operator delete(void* frame, std::size_t size) noexcept {
        frame_memory::release(frame, size);
    }

    std::suspend_always initial_suspend() const noexcept { return {}; }

    struct final_awaiter {
        final_awaiter() noexcept {}
        bool await_ready() const noexcept { return false; }
        // Nothing of the frame is touched after it was passed on.
        template <class Promise>
        std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> h) const noexcept {
            task_promise_base& p = h.promise();
            if (p.parent_) {
                return transfer<native_platform>(p.parent_, p.node_);
            }
            p.context_->ended();
            return std::noop_coroutine();
        }
        void await_resume() const noexcept {}
    };
    final_awaiter final_suspend() const noexcept { return final_awaiter(); }

    void unhandled_exception() noexcept { error_ = std::current_exception(); }

    executor_ref get_scheduler() const noexcept { return executor_; }
    basic_task_context<native_platform>* task_context() const noexcept { return context_; }
    awaited_frame*& awaited_frames() noexcept { return awaited_frames_; }

    // What it is the first coroutine of; instead of being awaited.
    void begin(basic_task_context<native_platform>& context, executor_ref where) noexcept {
        context_ = &context;
        executor_ = where;
    }

    // Once it has ended.
    std::exception_ptr& error() noexcept { return error_; }

protected:
    ~task_promise_base() = default;

    void rethrow_if_failed() {
#if BIDE_EXCEPTIONS
        if (error_) {
            std::rethrow_exception(std::move(error_));
        }
#endif
    }

private:
    template <class> friend class bide::task;

    std::coroutine_handle<> parent_; // who awaits; else the context is told of the end
    basic_task_context<native_platform>* context_ = nullptr;
    executor_ref executor_;
    transfer_node node_;
    std::exception_ptr error_;
    awaited_frame* awaited_frames_ = nullptr; // what it awaits, if that is a task or several
};

// Where a task leaves its outcome. References are kept as pointers.
template <class T> class task_outcome {
    using stored = std::conditional_t<std::is_reference_v<T>, std::remove_reference_t<T>*, T>;

public:
    task_outcome() noexcept {}
    task_outcome(const task_outcome&) = delete;
    task_outcome& operator=(const task_outcome&) = delete;
    ~task_outcome() {
        if (has_value_) {
            std::destroy_at(std::addressof(value_));
        }
    }

    template <class U> void set(U&& value) {
        if constexpr (std::is_reference_v<T>) {
            value_ = std::addressof(value);
        } else {
            std::construct_at(std::addressof(value_), std::forward<U>(value));
        }
        has_value_ = true;
    }

    // Once. Terminates where there is none.
    T take() {
        if (!has_value_) {
            fatal("task ended without co_return, and has no value");
        }
        if constexpr (std::is_reference_v<T>) {
            return static_cast<T>(*value_);
        } else {
            struct emptied {
                task_outcome& all;
                ~emptied() {
                    all.has_value_ = false;
                    std::destroy_at(std::addressof(all.value_));
                }
            } const after{*this};
            return std::move(value_);
        }
    }

private:
    union {
        char none_ = 0;
        stored value_;
    };
    bool has_value_ = false;
};

template <class T> class task_promise : public task_promise_base {
public:
    template <class U = T>
        requires std::is_convertible_v<U&&, T>
    void return_value(U&& value) {
        outcome_.set(std::forward<U>(value));
    }

    T take() {
        rethrow_if_failed();
        return outcome_.take();
    }
    task_outcome<T>& outcome() noexcept { return outcome_; }

private:
    task_outcome<T> outcome_;
};

template <> class task_promise<void> : public task_promise_base {
public:
    void return_void() const noexcept {}
    void take() { rethrow_if_failed(); }
};

} // namespace detail

// Move-only, awaited once (as an rvalue), starts when awaited. Destroyed before it ended, it
// destroys its frame; what it waited for is cancelled, what it was granted goes back. A chain of
// tasks that await each other is destroyed from the inside out, and needs no stack for that.
//
// A body whose end is reached without co_return has no value, unless T is void: to ask for the value
// terminates with a message. To the standard that is undefined; GCC 12 and clang 14 and 19 take such
// a body to its end at every level of optimisation, and clang warns of it (-Wreturn-type).
template <class T> class [[nodiscard("co_await it or pass it to sync_wait")]] task {
public:
    struct promise_type : detail::task_promise<T> {
        task get_return_object() noexcept {
            return task(std::coroutine_handle<promise_type>::from_promise(*this));
        }
    };

    task(task&& other) noexcept
        : frame_(std::exchange(other.frame_, nullptr)), name_(other.name_) {}
    task& operator=(task&& other) noexcept {
        task moved(std::move(other));
        std::swap(frame_, moved.frame_);
        name_ = moved.name_;
        return *this;
    }
    task(const task&) = delete;
    ~task() {
        if (frame_) { // it has not begun, or has ended
            frame_.destroy();
        }
    }

    // What it is called in dumps and traces when it is spawned. The text is not copied: it outlives
    // the scheduler and its trace, as literals do.
    task named(const char* name) && noexcept {
        name_ = name;
        return std::move(*this);
    }

    struct awaiter {
        explicit awaiter(task&& t) noexcept : child_{std::exchange(t.frame_, nullptr)} {}
        awaiter(const awaiter&) = delete;
        awaiter& operator=(const awaiter&) = delete;
        ~awaiter() {
            if (child_.handle) {
                awaiting_.end(); // where await_resume() was left out
                detail::destroy_frame(child_.handle, child().awaited_frames());
            }
        }

        bool await_ready() const noexcept {
            if (!child_.handle || child_.handle.done()) {
                detail::fatal("task awaited that was moved from or has ended");
            }
            return false;
        }
        template <class Promise>
        std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> parent) noexcept {
            promise_type& p = child();
            if constexpr (!std::is_void_v<Promise>) {
                p.executor_ = executor_of(parent.promise());
                p.context_ = task_context_of<native_platform>(parent.promise());
                awaiting_.begin(parent, &child_);
            }
            child_.awaits = &p.awaited_frames();
            p.parent_ = parent;
            return transfer<native_platform>(child_.handle, p.node_);
        }
        // Throws: what the task threw.
        T await_resume() {
            awaiting_.end();
            return child().take();
        }

    private:
        promise_type& child() const noexcept {
            return std::coroutine_handle<promise_type>::from_address(child_.handle.address())
                .promise();
        }

        detail::awaited_frame child_;
        detail::awaiting awaiting_;
    };
    awaiter operator co_await() && noexcept { return awaiter(std::move(*this)); }

private:
    friend promise_type;
    template <class U> friend U sync_wait(task<U>);
    template <executor S, class U> friend U sync_wait(S&, task<U>);
    template <class U> friend class detail::owned_frame;

    explicit task(std::coroutine_handle<promise_type> frame) noexcept : frame_(frame) {}

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

// Where a thread waits for a task, and runs what is posted to it meanwhile.
class sync_loop final : basic_task_context<native_platform> {
    using local = worker_local<native_platform>;
    using turn = worker_turn<native_platform>;

public:
    sync_loop() noexcept {
        finished_.run =
            waker([](void* self) noexcept { static_cast<sync_loop*>(self)->done_ = true; }, this);
        run_.run = waker(
            [](void* self) noexcept {
                resume<native_platform>(static_cast<sync_loop*>(self)->at_->leaf);
            },
            this);
    }
    sync_loop(const sync_loop&) = delete;
    sync_loop& operator=(const sync_loop&) = delete;

    // Runs `frame` here until its end.
    void run(std::coroutine_handle<> frame, task_promise_base& promise) noexcept {
        promise.begin(*this, queue_);
        {
            const turn now(local::get());
            resume<native_platform>(frame);
        }
        drive();
    }

    // Runs it on `where`.
    void run(executor_ref where, std::coroutine_handle<> frame,
             task_promise_base& promise) noexcept {
        promise.begin(*this, where);
        start_.leaf = frame;
        where.post(resumption(start_));
        drive();
    }

private:
    bool begin_wait(suspension& at) noexcept override {
        at_ = &at;
        return true;
    }
    void end_wait() noexcept override {}
    void wake() noexcept override {
        const executor_ref where = at_->where;
        where.post(run_);
    }
    bool will_go_on(executor_ref) const noexcept override { return false; }
    bool is_cancelled() noexcept override { return false; }
    runnable& resumption(suspension& at) noexcept override {
        at_ = &at;
        return run_;
    }
    void ended() noexcept override { queue_.post(finished_); } // the last touch of the loop

    void drive() noexcept {
        while (!done_) {
            runnable* const next = queue_.pop(deadline::never());
            const turn now(local::get());
            next->run.wake();
        }
    }

    basic_ready_queue<native_platform> queue_;
    suspension* at_ = nullptr; // where it goes on
    suspension start_{};
    runnable run_;
    runnable finished_;
    bool done_ = false;
};

} // namespace detail

// Runs the task on this thread, to its end: what it awaits of bide's resumes it here, too. Inside a
// scheduler's task that blocks that task: cancelling it does not reach what it waits for so.
// Blocks: while the task waits. Throws: what it throws.
template <class T> T sync_wait(task<T> t) {
    auto& promise = t.promise();
    detail::sync_loop loop;
    loop.run(t.frame_, promise);
    return promise.take();
}

// Runs the task on an executor and blocks this thread until its end. Throws: what it throws.
template <executor S, class T> T sync_wait(S& where, task<T> t) {
    auto& promise = t.promise();
    detail::sync_loop loop;
    loop.run(where, t.frame_, promise);
    return promise.take();
}

} // namespace bide::inline BIDE_ABI

#endif
