// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_OP_AWAITER_HPP
#define BIDE_CORE_DETAIL_OP_AWAITER_HPP

// The awaiter lies in the frame of the coroutine and has the node that is queued. The steps of a wait:
//
//   await_ready     tries; an operation that can complete immediately does so, even after a stop
//   budget          after many operations in one run of its task (detail/worker_host.hpp), other
//                   tasks run first; the task keeps no lock and no item meanwhile. If it is cancelled
//                   by then, the outcome is stopped
//   inner job       if the operation waits for a job that is the next one of this thread, that job runs
//                   inside of this one (detail/inner_wait.hpp)
//   await_suspend   arms the time-out and the stop callback, then queues the node. That is the last
//                   step: afterwards another thread may resume the coroutine, and destroy the frame
//   granted         the holder of the primitive's lock decides, releases the lock, publishes, and
//                   runs the node's waker. The waker sends the coroutine to its executor. Some
//                   operations try once more there, and may queue the node again
//   stop, time-out, cancelled task
//                   cancel() under the lock of the primitive. If the node is queued, cancel() takes
//                   it out and decides the outcome. If it is granted, nothing happens. If it is not
//                   queued yet, enqueue() refuses it. A cancelled task does not leave a wait for its
//                   own children: it cancels these, and resumes when they have ended
//   await_resume    disarms first: when it returns, no thread has a pointer into the frame
//   destroyed       while suspended: disarms and cancels; a grant is given back. This thread forgets
//                   the coroutine. No other thread may be about to resume it (core/async_op.hpp)

#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/detail/coroutine_wait.hpp>
#include <bide/core/detail/inner_wait.hpp>
#include <bide/core/detail/move_out.hpp>
#include <bide/core/detail/noted.hpp>
#include <bide/core/detail/task_context.hpp>
#include <bide/core/detail/wait_limits.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/wait_status.hpp>
#include <bide/core/waiter_queue.hpp>
#include <bide/core/wake_scope.hpp>
#include <bide/core/waker.hpp>

#include <coroutine>
#include <new>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {

namespace detail {

// What has no [[nodiscard]] of its own: the locks of std, and an item in a std::optional.
template <class T>
concept lost_unnamed =
    requires(const T& lock) { lock.owns_lock(); } || requires(T& item) { item.reset(); };

} // namespace detail

template <class T, class Platform, int Stops> class basic_async_op<T, Platform, Stops>::awaiter {
public:
    /// Constructs the awaiter of `op`, which exists until the end of the await expression.
    explicit awaiter(basic_async_op& of) noexcept : op_(of) {}
    awaiter(const awaiter&) = delete;
    awaiter& operator=(const awaiter&) = delete;

    /// Cancels the wait if the coroutine is destroyed while it is suspended.
    ~awaiter() {
        if (suspended_) {
            abandon();
        }
        if (has_wait_) {
            BIDE_CHECKED(note_end();)
            wait_.~wait();
        }
    }

    /// Tries the operation.
    /// Returns: true if the coroutine need not suspend.
    BIDE_INLINE bool await_ready() noexcept {
        op_.target_.carry(op_.payload_);
        const ops& how = *op_.ops_; // read before the call, where compilers know its value
        if (how.yields_first || !worker_local<Platform>::get().spend()) {
            yields_ = true;
            return false;
        }
        ready_ = how.try_now(op_.target_);
        BIDE_CHECKED(return false;) // await_suspend() learns whose coroutine it is
        return ready_ != wait_status::waiting;
    }

    /// Queues the wait.
    /// Returns: true if the coroutine stays suspended.
    // Not inlined: nothing of it may lie in the frame, which another thread may destroy meanwhile.
    template <class Promise>
    BIDE_NOINLINE bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
        BIDE_CHECKED(note_owner(h); if (ready_ != wait_status::waiting) { return false; })
        if (op_.ops_->awaited_job != nullptr && !yields_ && may_wait_for_ever()) {
            detail::inner_wait<Platform, awaiter, Promise> job(*this, h);
            if (job.runs(*op_.ops_, op_.target_)) {
                return job.has_begun_wait || !goes_on(job);
            }
        }
        make_wait(h);
        if (yields_) {
            suspended_ = true;
            if (op_.ops_->yields_first) {
                yields_ = false;
                completes_now();
                return wait_.go_behind();
            }
            if (wait_.go_behind(waker(&on_turn, this))) {
                return true;
            }
            yields_ = false;
            return !completes_now() && enqueue();
        }
        if (!polls() && wait_.completes_alone(*op_.ops_, op_.target_)) {
            return false;
        }
        return enqueue();
    }

    /// Returns the value of the operation, or throws its error.
    BIDE_INLINE T await_resume() { return take(); }
    /// \overload
    [[nodiscard("name it")]] BIDE_INLINE T await_resume()
        requires detail::lost_unnamed<T>
    {
        return take();
    }

private:
    BIDE_INLINE T take() {
        suspended_ = false;
        armed_.disarm();
        BIDE_CHECKED(const detail::collecting::scope mine(owner_); note_end();)
        R outcome = op_.ops_->collect(op_.target_, what_became_of_it());
        if constexpr (detail::is_result<T>) {
            return outcome;
        } else if constexpr (std::is_void_v<typename R::value_type>) {
            outcome.value();
            return T();
        } else {
            return detail::move_out(outcome.value());
        }
    }

    using wait = detail::coroutine_wait<Platform>;
    using armed_limits = detail::armed_limits_t<Platform, awaiter, limits>;
    friend armed_limits;
    template <class, class, class> friend struct detail::inner_wait;

    static constexpr bool has_limits = !std::is_same_v<limits, detail::no_limits>;

    // The other tasks have run.
    static void on_turn(void* self) noexcept {
        auto& me = *static_cast<awaiter*>(self);
        me.take_turn(me.wait_.begin_turn());
    }
    // The wait is granted. It begins anew if the operation does not complete now.
    static void on_turn_back(void* self) noexcept {
        auto& me = *static_cast<awaiter*>(self);
        me.armed_.disarm();
        BIDE_CHECKED(me.note_end();)
        me.take_turn(me.wait_.turns_back());
    }
    void take_turn(basic_task_context<Platform>* mine) noexcept {
        auto& here = worker_local<Platform>::get();
        auto* const outer = std::exchange(here.running, mine);
        yields_ = false;
        const bool over = completes_now() || !enqueue();
        here.running = outer;
        if (over) {
            wait_.go_on();
        }
    }

    // Tries the operation. A cancelled task does not: it might be granted something.
    bool completes_now() noexcept {
        BIDE_CHECKED(const detail::collecting::scope mine(owner_);)
        const bool cancelled = wait_.is_cancelled();
        if (cancelled && op_.ops_->on_cancel != nullptr) {
            on_interrupt(this);
        }
        ready_ = cancelled && !interrupted_ ? wait_status::stopped : op_.ops_->try_now(op_.target_);
        if (ready_ == wait_status::waiting) {
            return false;
        }
        wait_.node.settle(ready_);
        return true;
    }

    // Queues the wait. Returns false if it is complete. If it returns true, another thread may have
    // resumed the coroutine.
    bool enqueue() noexcept {
        if (!wait_.begin(waker(&on_interrupt, this))) {
            if (op_.ops_->on_cancel == nullptr) {
                wait_.node.settle(wait_status::stopped);
                return false;
            }
            on_interrupt(this);
        }
        if (polls()) {
            wait_.node.forbid(wait_status::timed_out); // one attempt, which may find it closed
        } else {
            armed_.arm(*this, op_.limits_);
        }
        suspended_ = true;
        wait_.turn_back_by(*op_.ops_, op_.target_, waker(&on_turn_back, this));
        BIDE_CHECKED(note_begin();)
        if (!op_.ops_->enqueue(op_.target_, wait_.node)) {
            return true;
        }
        BIDE_PROBE(wait_end, &wait_.node, static_cast<int>(wait_.node.outcome()));
        wait_.end();
        return false;
    }

    // The inner job is over, or waits. Returns false if the coroutine stays suspended: it waits too, or
    // the jobs run first that the inner job has made runnable.
    template <class Promise>
    bool goes_on(detail::inner_wait<Platform, awaiter, Promise>& after) noexcept {
        if (!after.others_queued && !after.context->is_cancelled() &&
            (ready_ = op_.ops_->try_now(op_.target_)) != wait_status::waiting) {
            return true;
        }
        make_wait(after.coroutine);
        if (!completes_now()) {
            return !enqueue();
        }
        suspended_ = after.others_queued;
        return !suspended_ || !wait_.go_behind();
    }

    // The inner job is about to wait for other jobs, so this coroutine waits for it.
    template <class Promise> void wait_for_inner_job(std::coroutine_handle<Promise> h) noexcept {
        make_wait(h);
        if (!enqueue()) {
            suspended_ = true;
            wait_.go_behind();
        }
    }

    template <class Promise> void make_wait(std::coroutine_handle<Promise> h) noexcept {
        ::new (static_cast<void*>(&wait_)) wait(h, op_.executor_, op_.ops_->yields_first);
        has_wait_ = true;
    }

    bool may_wait_for_ever() const noexcept {
        if constexpr (has_limits) {
            return Stops == 0 && op_.limits_.until.is_never();
        }
        return true;
    }

    bool polls() const noexcept {
        if constexpr (has_limits) {
            return op_.limits_.until.is_poll();
        }
        return false;
    }

    wait_status what_became_of_it() noexcept {
        const wait_status what = has_wait_ ? wait_.node.outcome() : ready_;
        if (!interrupted_ || what == wait_status::timed_out) {
            return what;
        }
        if (what == wait_status::granted) {
            op_.ops_->give_back(op_.target_, what);
        }
        return wait_status::stopped;
    }

    static void on_interrupt(void* self) noexcept {
        auto& me = *static_cast<awaiter*>(self);
        if (me.op_.ops_->on_cancel == nullptr) {
            return me.end_early(wait_status::stopped);
        }
        me.interrupted_ = true; // its task was cancelled, and it outlasts that
        me.op_.ops_->on_cancel(me.op_.target_);
    }

    // Ends the wait for a stop, a time-out or a cancelled task. What it lets through resumes elsewhere.
    void end_early(wait_status why) noexcept {
        const wake_scope<Platform> away(detail::post_all{});
        wakers_later<Platform> later; // one that runs may destroy this coroutine
        const bool ended =
            !wait_.node.is_decided() && op_.ops_->cancel(op_.target_, wait_.node, why);
        if (ended) {
            wait_.node.settle(why);
        }
        later.stop_gathering();
        if (ended) {
            wait_.go_elsewhere();
        }
    }

    // The coroutine is destroyed at this suspension point.
    BIDE_NOINLINE void abandon() noexcept {
        armed_.disarm();
        wait_.forget(*op_.ops_, op_.target_);
        if (yields_) { // it was not tried
            if (op_.ops_->on_cancel != nullptr) {
                op_.ops_->on_cancel(op_.target_);
            }
            return op_.ops_->give_back(op_.target_, wait_status::stopped);
        }
        if (ready_ != wait_status::waiting) { // it is about to resume
            return op_.ops_->give_back(op_.target_, ready_);
        }
        const bool ended = !wait_.node.is_decided() &&
                           op_.ops_->cancel(op_.target_, wait_.node, wait_status::destroyed);
        if (ended && op_.ops_->on_cancel != nullptr) { // as if its task was cancelled
            op_.ops_->on_cancel(op_.target_);
        }
        BIDE_PROBE_IF(ended || wait_.node.is_announced_here(), wait_end, &wait_.node,
                      static_cast<int>(wait_status::destroyed));
        op_.ops_->give_back(op_.target_, ended ? wait_status::stopped : wait_.node.await_outcome());
    }

#if defined(BIDE_DEADLOCK_CHECK)
    detail::actor owner_;
    bool owner_has_limit_ = false;

    template <class Promise> void note_owner(std::coroutine_handle<Promise> h) noexcept {
        if constexpr (detail::is_noted<Platform> && !std::is_void_v<Promise>) {
            auto* const task = task_context_of<Platform>(h.promise());
            owner_ = detail::actor(task);
            owner_has_limit_ = !limit_of(task).is_never();
        }
    }
    void note_begin() noexcept {
        if constexpr (detail::is_noted<Platform>) {
            detail::wait_notes::all().waits(&wait_.node, owner_, op_.ops_->subject(op_.target_),
                                            !may_wait_for_ever() || owner_has_limit_);
        }
    }
    void note_end() noexcept {
        if constexpr (detail::is_noted<Platform>) {
            if (has_wait_) {
                detail::wait_notes::all().waits_no_more(
                    &wait_.node, suspended_ ? detail::thread_mark<Platform>() : nullptr);
            }
        }
    }
#endif

    basic_async_op& op_; // lives as long as the await expression
    bool suspended_ = false, yields_ = false, has_wait_ = false, interrupted_ = false;
    wait_status ready_ = wait_status::waiting; // what the attempt found
    union {
        wait wait_; // from await_suspend on
    };
    [[no_unique_address]] armed_limits armed_;
};

} // namespace bide::inline BIDE_ABI

#endif
