#ifndef BIDE_CORE_DETAIL_COROUTINE_WAIT_HPP
#define BIDE_CORE_DETAIL_COROUTINE_WAIT_HPP

#include <bide/core/config.hpp>
#include <bide/core/detail/task_context.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/timer.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waker.hpp>

#include <coroutine>
#include <cstddef>
#include <system_error>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// Where coroutines without an executor go on that must not do so on this thread. Terminates where
// there is no such thread and none can be started.
template <class Platform> executor_ref service_executor() noexcept {
    const executor_ref worker = current_worker<Platform>();
    return worker ? worker : executor_ref(required_service<Platform>());
}

// The same for coroutines that may go on on this thread as well. Empty: no thread can be started.
template <class Platform> executor_ref spare_executor() noexcept {
    const executor_ref worker = current_worker<Platform>();
    if (worker) {
        return worker;
    }
    std::error_code error;
    auto* const service = started_service<Platform>(error);
    return service != nullptr ? executor_ref(*service) : executor_ref();
}

// The time-out of a wait that the running task is about to begin, to go on here, is its scheduler's
// affair: the task ends before that does. All others are the service's.
template <class Platform> void add_timer(timer& t) noexcept {
    const auto& here = worker_local<Platform>::get();
    if (here.host != nullptr && here.running != nullptr &&
        here.running->will_go_on(here.host->executor())) {
        here.host->add_timer(t);
    } else {
        required_service<Platform>().add(t);
    }
}

// Throws: std::system_error where time-outs are the service's and it cannot be started.
template <class Platform> void prepare_timers() {
    if (worker_local<Platform>::get().host == nullptr) {
        timer_service<Platform>();
    }
}

// Resumes what is no part of the task that releases it on this thread.
template <class Platform> void resume_apart(std::coroutine_handle<> to) noexcept {
    auto& here = worker_local<Platform>::get();
    auto* const outer = std::exchange(here.running, nullptr);
    resume<Platform>(to);
    here.running = outer;
}

// A coroutine's place in a queue, and its way back from there.
template <class Platform> class coroutine_wait {
public:
    using waiter = basic_waiter<Platform>;

    template <class Promise>
    coroutine_wait(std::coroutine_handle<Promise> h, std::ptrdiff_t amount,
                   executor_ref resume_on) noexcept
        : node(amount, waker(&on_complete, this)), at_{h, resume_on, {}} {
        if constexpr (!std::is_void_v<Promise>) {
            context_ = task_context_of<Platform>(h.promise());
            if (!at_.where) {
                at_.where = executor_of(h.promise());
            }
        }
        if (!at_.where) {
            at_.where = current_worker<Platform>();
        }
        runnable_.run = waker(&resume_frame, h.address());
    }
    coroutine_wait(const coroutine_wait&) = delete;
    coroutine_wait& operator=(const coroutine_wait&) = delete;

    // Before the wait is queued. False: the task is cancelled; the wait is not to be queued, unless it
    // outlasts that. `interrupt` may run from here on.
    bool begin(waker interrupt) noexcept {
        at_.interrupt = interrupt;
        may_wait_ = context_ == nullptr || context_->begin_wait(at_);
        return may_wait_;
    }

    bool is_cancelled() noexcept { return context_ != nullptr && context_->is_cancelled(); }

    // It was not queued.
    void end() noexcept {
        if (context_ != nullptr && may_wait_) {
            context_->end_wait();
        }
    }

    // Sends the coroutine on its way after a stop or a time-out, never on this thread.
    // Nothing of *this is touched afterwards.
    void go_elsewhere() noexcept {
        if (context_ != nullptr) {
            wake_task();
        } else {
            (at_.where ? at_.where : service_executor<Platform>()).post(runnable_);
        }
    }

    // Sends it on its way without a wait, after what is queued already. False: there is nowhere to
    // send it, go on. Nothing of *this is touched afterwards.
    bool go_behind() noexcept {
        const executor_ref where = at_.where;
        runnable& r = context_ != nullptr ? context_->resumption(at_) : runnable_;
        if (!where) {
            return wake_scope<Platform>::run_behind(r, &spare_executor<Platform>);
        }
        auto* const host = worker_local<Platform>::get().host;
        if (host != nullptr && host->executor() == where) {
            host->yield(r);
        } else {
            where.post(r);
        }
        return true;
    }

    // The coroutine is going to be destroyed; where it was to be resumed on this thread, it is not.
    void forget() noexcept { wake_scope<Platform>::forget(runnable_); }

    waiter node;

private:
    static void resume_frame(void* address) noexcept {
        resume_apart<Platform>(std::coroutine_handle<>::from_address(address));
    }

    void wake_task() noexcept {
        if (may_wait_) {
            context_->wake();
        } else {
            const executor_ref where = at_.where;
            where.post(context_->resumption(at_));
        }
    }

    static void on_complete(void* self) noexcept {
        auto& wait = *static_cast<coroutine_wait*>(self);
        if (wait.context_ != nullptr) {
            wait.wake_task();
        } else if (wait.at_.where) {
            wait.at_.where.post(wait.runnable_);
        } else {
            wake_scope<Platform>::run(wait.runnable_, &spare_executor<Platform>);
        }
    }

    suspension at_;
    basic_task_context<Platform>* context_ = nullptr; // its task, if it is part of one
    runnable runnable_;                               // without one
    bool may_wait_ = true;                            // its task says so
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
