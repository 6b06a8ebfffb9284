#ifndef BIDE_CORE_DETAIL_TASK_CONTEXT_HPP
#define BIDE_CORE_DETAIL_TASK_CONTEXT_HPP

#include <bide/core/config.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/waker.hpp>

#include <coroutine>

namespace bide::inline BIDE_ABI {

// Where a chain of coroutines is suspended: in the awaiter of its last one.
struct suspension {
    std::coroutine_handle<> leaf;
    executor_ref where; // it goes on
    waker interrupt;    // ends its wait, on any thread
};

// What a chain of coroutines that await each other is part of: a scheduler's task, or what a thread
// runs by sync_wait. At any time the chain runs, or waits in its last coroutine, or is about to run
// again. Promises hand their context on to the coroutines that they await, by a member
// task_context(); a promise without one has its waits resumed as core/async_op.hpp says.
template <class Platform> class basic_task_context {
public:
    // The chain is about to wait; `at` stays where it is until it goes on. From here on somebody who
    // cancels it may run at.interrupt, once; the wait is to end then, by wake().
    // False: it is cancelled, let it not wait.
    [[nodiscard]] virtual bool begin_wait(suspension& at) noexcept = 0;

    // It need not wait after all. When it returns, nobody runs `interrupt`.
    virtual void end_wait() noexcept = 0;

    // Its wait is over: it goes on. Once for each begin_wait() without end_wait(), by whoever
    // decided the wait. Nothing of the chain is touched afterwards.
    virtual void wake() noexcept = 0;

    // On the thread that it runs on: begin_wait() was called, and it will go on at `there`.
    virtual bool will_go_on(executor_ref there) const noexcept = 0;

    // Cancelled, or its scheduler is at its end, and nothing keeps that from taking effect.
    virtual bool is_cancelled() noexcept = 0;

    // For a wait that begin_wait() has refused, and whose children begin all the same: it has begun so
    // many of these that this one is to be stopped. Each call counts.
    virtual bool has_begun_enough() noexcept { return false; }

    // What resumes it, for one who posts it himself: the chain goes on without having waited.
    virtual runnable& resumption(suspension& at) noexcept = 0;

    // The first coroutine of the chain is at its end, suspended, with its outcome in the promise.
    virtual void ended() noexcept = 0;

protected:
    ~basic_task_context() = default;
};

// The context that a promise names, or nullptr.
template <class Platform, class Promise>
basic_task_context<Platform>* task_context_of(Promise& promise) noexcept {
    using context = basic_task_context<Platform>;
    if constexpr (requires { static_cast<context*>(promise.task_context()); }) {
        return promise.task_context();
    } else {
        return nullptr;
    }
}

} // namespace bide::inline BIDE_ABI

#endif
