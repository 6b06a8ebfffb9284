// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_COROUTINE_WAIT_HPP
#define BIDE_CORE_DETAIL_COROUTINE_WAIT_HPP

#include <bide/core/config.hpp>
#include <bide/core/detail/task_context.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/ready_queue.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/wait_status.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waker.hpp>

#include <coroutine>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// Defined in core/timer.hpp.
template <class Platform> executor_ref service_executor() noexcept;
template <class Platform> executor_ref spare_executor() noexcept;

// Resumes a coroutine that is not part of the task that runs on this thread.
template <class Platform> void resume_apart(std::coroutine_handle<> to) noexcept {
    auto& here = worker_local<Platform>::get();
    auto* const outer = std::exchange(here.running, nullptr);
    resume<Platform>(to);
    here.running = outer;
}

// Holds the node of a coroutine's wait, and resumes the coroutine after it.
template <class Platform> class coroutine_wait {
public:
    using waiter = basic_waiter<Platform>;

    template <class Promise>
    coroutine_wait(std::coroutine_handle<Promise> h, executor_ref resume_on) noexcept
        : node(1, waker(&on_complete, this)), at_{resume_on, {}} {
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

    // Tries the wait a few times, as a thread that blocks does, if that is of use and nothing else
    // is queued for the thread. So another thread that is about to complete the wait need not wake
    // this one. Returns true if the wait is complete; it was not begun.
    bool completes_alone(const wait_steps<Platform>& how, const wait_target& what) noexcept {
        auto& here = worker_local<Platform>::get();
        if (here.alone == nullptr || how.try_longer == nullptr || !here.alone->empty() ||
            is_cancelled()) {
            return false;
        }
        const wait_status seen = how.try_longer(what);
        if (seen == wait_status::waiting) {
            here.alone = nullptr;
            return false;
        }
        node.settle(seen);
        return true;
    }

    // Begins the wait, before it is queued. From here on a canceller of the task may run
    // `interrupt`. Returns false if the task is cancelled. The caller then queues the wait only if
    // a cancellation does not end this kind of wait.
    bool begin(waker interrupt) noexcept {
        at_.interrupt = interrupt;
        may_wait_ = context_ == nullptr || context_->begin_wait(leaf(), at_);
        return may_wait_;
    }

    // Returns whether the task is cancelled.
    bool is_cancelled() noexcept { return context_ != nullptr && context_->is_cancelled(); }

    // Ends a wait that was not queued.
    void end() noexcept {
        if (context_ != nullptr && may_wait_) {
            context_->end_wait();
        }
    }

    // Resumes the coroutine after a stop or a time-out, never on this thread. This is the last
    // access to *this.
    void go_elsewhere() noexcept {
        if (context_ != nullptr) {
            wake_task();
        } else {
            (at_.where ? at_.where : service_executor<Platform>()).post(runnable_);
        }
    }

    // Resumes the coroutine without a wait, after the runnables that are queued already. Returns
    // false if there is no place to queue it; the coroutine then continues. If it returns true, the
    // call was the last access to *this.
    bool go_behind() noexcept {
        return post_behind(context_ != nullptr ? context_->resumption(leaf(), at_) : runnable_);
    }

    // Runs `then` in the same place, which calls begin_turn(); otherwise as go_behind().
    bool go_behind(waker then) noexcept {
        at_.interrupt = std::exchange(runnable_.run, then); // not in use before begin()
        const bool queued = post_behind(runnable_);
        if (!queued) {
            begin_turn();
        }
        return queued;
    }

    // From here on the coroutine may wait. Returns its task, or nullptr.
    basic_task_context<Platform>* begin_turn() noexcept {
        runnable_.run = at_.interrupt;
        return context_;
    }

    // Resumes the coroutine on this thread. This is the last access to *this.
    void go_on() noexcept {
        runnable& r = context_ != nullptr ? context_->resumption(leaf(), at_) : runnable_;
        r.run.wake();
    }

    // Takes the coroutine out of the runnables of this thread, because it is about to be destroyed.
    void forget() noexcept { wake_scope<Platform>::forget(runnable_); }

    waiter node;

private:
    static void resume_frame(void* address) noexcept {
        resume_apart<Platform>(std::coroutine_handle<>::from_address(address));
    }

    bool post_behind(runnable& r) noexcept {
        const executor_ref where = at_.where;
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

    std::coroutine_handle<> leaf() const noexcept {
        return std::coroutine_handle<>::from_address(runnable_.run.context());
    }

    void wake_task() noexcept {
        if (may_wait_) {
            context_->wake();
        } else {
            const executor_ref where = at_.where;
            where.post(context_->resumption(leaf(), at_));
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
    basic_task_context<Platform>* context_ = nullptr; // of its task; nullptr: it is part of none
    // Resumes a coroutine that is part of no task; its context is the coroutine, in any case. Also
    // for go_behind().
    runnable runnable_;
    bool may_wait_ = true; // false: its task is cancelled
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
