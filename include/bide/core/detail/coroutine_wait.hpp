// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_COROUTINE_WAIT_HPP
#define BIDE_CORE_DETAIL_COROUTINE_WAIT_HPP

#include <bide/core/config.hpp>
#include <bide/core/detail/executor_users.hpp>
#include <bide/core/detail/noted.hpp>
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
#include <new>
#include <type_traits>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

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

// The runnable of a wait that may begin again after a grant. When such a wait is granted, this
// runnable runs in place of the coroutine: it tries the operation, and resumes the coroutine or
// queues the wait again. It lies in the payload of the wait.
template <class Platform> class retry_on_grant {
public:
    // Sets what runs on `where` when the returned waker is called.
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

// Holds the node of a coroutine's wait, and resumes the coroutine after the wait.
//
// A coroutine is part of a task or stands alone. The two kinds need different data to be resumed,
// and these data share their memory. yield() lets other tasks run before the wait begins, if the
// budget is spent: it queues a runnable of the coroutine behind the jobs that are queued already.
// If the coroutine is part of a task, that is the runnable of the task. If it stands alone, that is
// a member of this object.
template <class Platform> class coroutine_wait {
    using context = basic_task_context<Platform>;

public:
    using waiter = basic_waiter<Platform>;

    // `where` is the executor that resumes the coroutine. If `where` is empty, it is set to the
    // coroutine's own executor, or to the current worker if the coroutine has none. If `where` is
    // not the coroutine's own executor, and the wait is not posted there at once, `where` counts
    // the wait as a user (executor_users.hpp).
    // Requires: `where` outlives this object.
    template <class Promise>
    coroutine_wait(std::coroutine_handle<Promise> coroutine, executor_ref& where,
                   bool is_posted) noexcept
        : node(1, waker(&on_complete, this)) {
        context* of = nullptr;
        executor_ref own;
        if constexpr (!std::is_void_v<Promise>) {
            of = bide::task_context_of<Platform>(coroutine.promise());
            own = bide::executor_of(coroutine.promise());
        }
        if (where) {
            is_user_ = !is_posted && !(where == own) && executor_use::begin(where);
        } else {
            where = own ? own : current_worker<Platform>();
        }
        if (of != nullptr) {
            ::new (static_cast<void*>(&task_)) in_task{{&where, {}}, of, coroutine};
        } else {
            is_alone_ = true;
            ::new (static_cast<void*>(&alone_)) alone{&where, {}};
            alone_.resumes.run = waker(&resume_frame, coroutine.address());
        }
    }
    coroutine_wait(const coroutine_wait&) = delete;
    coroutine_wait& operator=(const coroutine_wait&) = delete;
    ~coroutine_wait() {
        if (is_user_) {
            executor_use::end(where());
        }
    }

    // Tries the operation a few times before the wait begins, as a thread does before it blocks. If
    // another thread is about to complete the wait, that thread then need not wake this one. Makes
    // no attempt outside of sync_wait(), or if another job is queued for this thread. Returns true
    // if the operation is complete.
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
        if (!is_alone_) {
            task_.at.interrupt = interrupt;
            may_wait_ = task_.of->begin_wait(task_.leaf, task_.at);
        }
        return may_wait_;
    }

    bool is_cancelled() noexcept { return !is_alone_ && task_.of->is_cancelled(); }

    // Sets the function that runs in place of the coroutine when the wait is granted: `then`, which
    // calls begin_retry().
    void retry_by(const wait_steps<Platform>& how, const wait_target& what, waker then) noexcept {
        if (how.retry_on_grant != nullptr) {
            node.set_waker(how.retry_on_grant(what).by(where(), then));
        }
    }
    // Prepares another wait. Returns the task of the coroutine, or nullptr.
    context* begin_retry() noexcept {
        BIDE_PROBE(wait_end, &node, static_cast<int>(node.outcome()));
        end();
        node.reset(1);
        return is_alone_ ? nullptr : task_.of;
    }

    void end() noexcept {
        if (!is_alone_ && may_wait_) {
            task_.of->end_wait();
        }
    }

    // Resumes the coroutine after a stop or a time-out, never on this thread. This is the last
    // access to *this.
    void resume_elsewhere() noexcept {
        BIDE_PROBE(wait_end, &node, static_cast<int>(node.outcome()));
        if (!is_alone_) {
            wake_task();
        } else {
            const executor_ref where = *alone_.where;
            (where ? where : service_executor<Platform>()).post(alone_.resumes);
        }
    }

    // Resumes the coroutine without a wait, after the runnables that are queued already. Returns
    // false if this thread has no queue for it; the coroutine then continues. If it returns true,
    // this call was the last access to *this.
    bool yield() noexcept { return post_last(resumption(), &basic_worker_host<Platform>::yield); }

    // Called when the budget is spent. Does the same as yield(), but `then` runs in place of the
    // coroutine. `then` calls end_yield().
    bool yield(waker then) noexcept {
        runnable& r = resumption();
        const waker was = std::exchange(r.run, then);
        if (is_alone_) {
            node.set_waker(was);
        } else {
            task_.at.interrupt = was;
        }
        const bool queued = post_last(r, &basic_worker_host<Platform>::yield_spent);
        if (!queued) {
            end_yield();
        }
        return queued;
    }

    // After this call the coroutine may wait. Returns its task, or nullptr.
    context* end_yield() noexcept {
        if (is_alone_) {
            alone_.resumes.run = node.set_waker(waker(&on_complete, this));
            return nullptr;
        }
        resumption().run = task_.at.interrupt;
        return task_.of;
    }

    // Resumes the coroutine on this thread. This is the last access to *this.
    void resume_here() noexcept { resumption().run.wake(); }

    // Takes the runnables of this wait out of the lists of this thread, because the coroutine is
    // about to be destroyed. If the coroutine is part of a task, the owner of the task takes out
    // the runnable of the task.
    void forget(const wait_steps<Platform>& how, const wait_target& what) noexcept {
        if (is_alone_) {
            wake_scope<Platform>::forget(alone_.resumes);
        }
        if (how.retry_on_grant != nullptr) {
            how.retry_on_grant(what).forget();
        }
    }

    [[no_unique_address]] waiter node; // the next members lie in its padding

private:
    struct in_task {
        suspension at;
        context* of;
        std::coroutine_handle<> leaf;
    };
    struct alone {
        executor_ref* where;
        runnable resumes;
    };

    static void resume_frame(void* address) noexcept {
        resume_apart<Platform>(std::coroutine_handle<>::from_address(address));
    }

    // Returns the runnable that resumes the coroutine without a wait.
    runnable& resumption() noexcept {
        return is_alone_ ? alone_.resumes : task_.of->resumption(task_.leaf, task_.at);
    }

    executor_ref where() const noexcept { return is_alone_ ? *alone_.where : *task_.at.where; }

    using yielding = void (basic_worker_host<Platform>::*)(runnable&) noexcept;
    bool post_last(runnable& r, yielding how) noexcept {
        const executor_ref to = where();
        if (!to) {
            return wake_scope<Platform>::run_behind(r, &spare_executor<Platform>);
        }
        auto* const host = worker_local<Platform>::get().host;
        if (host != nullptr && host->executor() == to) {
            (host->*how)(r);
        } else {
            to.post(r);
        }
        return true;
    }

    void wake_task() noexcept {
        if (may_wait_) {
            task_.of->wake();
        } else {
            const executor_ref to = where();
            to.post(resumption());
        }
    }

    static void on_complete(void* self) noexcept {
        auto& wait = *static_cast<coroutine_wait*>(self);
        BIDE_CHECKED(noted_wake<Platform> noted(&wait.node);)
        BIDE_PROBE(wait_end, &wait.node, static_cast<int>(wait.node.outcome()));
        if (!wait.is_alone_) {
            wait.wake_task();
        } else if (const executor_ref to = *wait.alone_.where) {
            to.post(wait.alone_.resumes);
        } else {
            BIDE_CHECKED(noted.lasts();)
            wake_scope<Platform>::run(wait.alone_.resumes, &spare_executor<Platform>);
        }
    }

    bool is_alone_ = false; // it is part of no task
    bool may_wait_ = true;  // false: its task is cancelled
    bool is_user_ = false;  // of the executor that resumes it (executor_users.hpp)
    union {
        in_task task_;
        alone alone_;
    };
};

}}} // namespace bide::BIDE_ABI::detail

#endif
