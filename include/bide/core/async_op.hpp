// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_ASYNC_OP_HPP
#define BIDE_CORE_ASYNC_OP_HPP

/// \file
/// Defines the operation that each async_*() returns: the wait of a coroutine in the queue of a
/// primitive.
///
/// The coroutine may belong to any library. Requires: if its promise has one of the following
/// members, the member behaves as stated.
///
/// - await_transform returns the operation as an rvalue, or an awaiter that wraps the operation's
///   own awaiter (the result of operator co_await()). A wrapper may pass a coroutine_handle<> to
///   that awaiter. Such a handle has no promise, so the next two members are then not found.
///   asio::awaitable accepts only operations of Asio: interop/asio.hpp makes such an operation from
///   one of bide.
/// - get_scheduler() returns an executor by reference or by pointer, or an executor_ref.
/// - task_context(), if its result converts to a basic_task_context*, returns the task that the
///   coroutine is part of, or nullptr.
/// - unhandled_exception lets no exception leave resume(). Otherwise the program would terminate,
///   because the release that resumes the coroutine is noexcept.
///
/// Without as_result(), await_resume() throws the errors closed, stopped and timeout inside the
/// coroutine.
/// Requires: while the coroutine waits, its owner neither resumes it nor reads its state.
///
/// Destroys: a coroutine that waits may be destroyed. This cancels the wait, and a grant goes back
/// to the primitive. This rule applies to each async operation of the library, and also to a
/// coroutine or task whose child waits. Requires: no other thread is about to resume the coroutine.
/// The threads that may be about to resume it are:
///
/// - The thread whose call (a release, a notification or a close) has granted the wait, until the
///   call has returned. Inside of the call, that thread itself may destroy the coroutine.
/// - If the coroutine has no executor: a thread that takes it over because the releaser blocks
///   (core/wake_scope.hpp), and a thread of bide's service (core/timer.hpp) after a stop or a
///   time-out. Each is such a thread until the coroutine has suspended again.
/// - If the coroutine has an executor: the threads of that executor. The coroutine may be destroyed
///   on a thread that prevents the executor from running meanwhile, for example on the only thread
///   of the executor. A resumption that was posted already must not run afterwards.
///
/// With BIDE_DEADLOCK_CHECK (core/deadlock_check.hpp), the program reports a coroutine that is
/// destroyed while a release on another thread resumes it. Waits by callbacks have no such
/// requirement (core/callback_wait.hpp).
//
// Why only coroutines have this requirement: a releaser reports to a callback_wait that its call of
// the waker has ended, and the callback_wait is destroyed only after that report. To the wait of a
// coroutine, a releaser can report nothing. The coroutine may end as soon as it was posted, and the
// node is in its frame, which may then be destroyed. If the coroutine waited for a report, each
// resumption would wait for the releaser, which may be preempted between the post and the report.

#include <bide/core/ready_queue.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/timer.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/waiter.hpp>

#include <optional>
#include <stop_token>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

// Resumes a coroutine that is not part of the task that runs on this thread.
template <class Platform> void resume_apart(std::coroutine_handle<> to) noexcept {
    auto& here = worker_local<Platform>::get();
    auto* const outer = std::exchange(here.running, nullptr);
    resume<Platform>(to);
    here.running = outer;
}

// Holds the node of a coroutine's wait, and resumes the coroutine after the wait.
//
// A coroutine is part of a task or stands alone. The two kinds need different data to be resumed,
// and these data lie in one union. If the budget of operations is spent (core/wake_scope.hpp),
// yield() lets other tasks run before the wait begins: it queues a runnable of the coroutine behind
// the jobs that are queued already. For a coroutine of a task, this is the runnable of the task.
// For one that stands alone, it is a member of this object.
template <class Platform> class coroutine_wait {
    using context = basic_task_context<Platform>;

public:
    using waiter = basic_waiter<Platform>;

    // `where` is the executor that resumes the coroutine. If `where` is empty, sets it to the
    // coroutine's own executor, or to the current worker if the coroutine has none. If the caller
    // has named an executor other than the coroutine's own, that executor counts the wait as a user
    // (core/resume.hpp). If `is_posted` is true, the executor does not count the wait, because the
    // coroutine is posted there at once.
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
            ::new (static_cast<void*>(&task_)) in_task{{&where, {}, coroutine}, of};
        } else {
            is_alone_ = true;
            ::new (static_cast<void*>(&alone_)) alone{&where, {}};
            alone_.resumes.run = waker(&resume_frame, coroutine.address());
        }
    }
    coroutine_wait& operator=(coroutine_wait&&) = delete;
    ~coroutine_wait() {
        if (is_user_) {
            executor_use::end(where());
        }
    }

    // Tries the operation a few times before the wait begins, because another thread may be about
    // to complete it. A thread does the same before it blocks. Returns true if the operation is
    // complete. Makes no attempt and returns false in these cases: the operation has no
    // yield_before_wait(); the thread is not in sync_wait(); another job is queued for this thread;
    // the task is cancelled.
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
    // `interrupt`. Returns false if the task is cancelled already. The caller then queues the wait
    // only if a cancellation does not end this kind of wait.
    bool begin(waker interrupt) noexcept {
        if (!is_alone_) {
            task_.at.interrupt = interrupt;
            may_wait_ = task_.of->begin_wait(task_.at);
        }
        return may_wait_;
    }

    bool is_cancelled() noexcept { return !is_alone_ && task_.of->is_cancelled(); }

    // If the operation has a retry_on_grant(), makes `then` run in place of the coroutine when the
    // wait is granted. `then` calls begin_retry().
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

    // Queues the coroutine behind the runnables that are queued already, without beginning a wait.
    // Returns true if it is queued; this call was then the last access to *this. Returns false if
    // there is neither an executor nor an open wake_scope to queue it on. The coroutine then
    // continues at once.
    bool yield() noexcept { return post_last(resumption(), &basic_worker_host<Platform>::yield); }

    // Called when the budget is spent. Works like yield(), but `then` runs in place of the
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

    // Called when the coroutine is about to be destroyed. Takes the runnables of this wait out of
    // the lists of this thread. The runnable of a task stays: the owner of the task takes it out.
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
        return is_alone_ ? alone_.resumes : task_.of->resumption(task_.at);
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
    bool is_user_ = false;  // of the executor that resumes it (core/resume.hpp)
    union {
        in_task task_;
        alone alone_;
    };
};

// ---- When a wait ends early

template <class Platform, int Stops> struct wait_limits : wait_limits<Platform, 0> {
    typename Platform::stop_token stops[static_cast<std::size_t>(Stops)];
};
template <class Platform> struct wait_limits<Platform, 0> {
    deadline until = deadline::never();
};
struct no_limits {};

// Moves the limits of a wait, a deadline and `Stops` stop tokens, to a wait that has room for them.
template <int Stops, class From, class To> void move_limits(From& from, To& to) noexcept {
    if constexpr (!std::is_same_v<From, no_limits>) {
        to.until = from.until;
    }
    if constexpr (Stops != 0) {
        for (int i = 0; i < Stops; ++i) {
            to.stops[i] = std::move(from.stops[i]);
        }
    }
}

// If the result of an operation can report a time-out and a stop, the operation has a deadline and
// stop tokens. An operation that waits for a time has only a deadline.
template <class T, class Platform, int Stops>
using wait_limits_t = std::conditional_t<is_result<T> || may_wait_for_time<T>,
                                         wait_limits<Platform, Stops>, no_limits>;

// The deadline and the stop tokens of a queued wait. They call end_early() of the Owner: the
// awaiter or the callback_wait.
template <class Platform, class Owner, int Stops> class armed_limits {
public:
    template <class Limits> void arm(Owner& of, const Limits& limits) noexcept {
        if (!limits.until.is_never()) {
            timer& t = timeout_.emplace();
            t.when = limits.until;
            t.fire = waker(&on_timeout, &of);
            add_timer<Platform>(t);
        }
        if constexpr (Stops != 0) {
            for (int i = 0; i < Stops; ++i) {
                if (limits.stops[i].stop_possible()) {
                    stops_[i].emplace(limits.stops[i], on_stop{&of});
                }
            }
        }
    }

    // After this call, neither the stop callback nor the time-out runs on any thread.
    void disarm() noexcept {
        if constexpr (Stops != 0) {
            for (auto& stop : stops_) {
                stop.reset();
            }
        }
        if (timeout_) {
            cancel_timer<Platform>(*timeout_);
            timeout_.reset();
        }
    }

private:
    struct on_stop {
        Owner* of;
        void operator()() const noexcept { of->end_early(wait_status::stopped); }
    };
    static void on_timeout(void* of) noexcept {
        static_cast<Owner*>(of)->end_early(wait_status::timed_out);
    }
    using stop_callback = std::optional<typename Platform::template stop_callback<on_stop>>;
    struct no_stops {};

    [[no_unique_address]] std::conditional_t<
        Stops != 0, stop_callback[Stops != 0 ? static_cast<std::size_t>(Stops) : 1], no_stops>
        stops_;
    std::optional<timer> timeout_;
};

struct never_armed {
    template <class Owner> void arm(Owner&, const no_limits&) noexcept {}
    void disarm() noexcept {}
};

// Moves a value out. Two stores have just written the value and the flag of an optional. A single
// load of both would wait until these stores have reached the cache. So the overload for an
// optional loads the flag and the value separately.
template <class T> T move_out(T& from) { return std::move(from); }
template <class T> std::optional<T> move_out(std::optional<T>& from) {
    if (from.has_value()) {
        return std::optional<T>(std::in_place, std::move(*from));
    }
    return std::nullopt;
}

// True for result types without [[nodiscard]]: the locks of std, and an item in a std::optional.
template <class T>
concept lost_unnamed =
    requires(const T& lock) { lock.owns_lock(); } || requires(T& item) { item.reset(); };

} // namespace detail

/// Collects the wakers of this thread's releases, and runs them when this object is destroyed.
/// Until then a release only marks its waits as decided, and no user code runs. Use this object if
/// the removal of a waiter may release other waiters: it delays their wakers until the outcome of
/// the removed waiter is published. After stop_gathering(), later releases run their wakers at
/// once.
template <class Platform> class wakers_later {
    using wake_list = basic_wake_list<Platform>;

public:
    /// Begins to collect the wakers of this thread's releases.
    wakers_later() noexcept : collects_(wake_list::state(), &gathered_, nullptr) {}
    wakers_later& operator=(wakers_later&&) = delete;
    /// Runs the collected wakers.
    ~wakers_later() {
        stop_gathering();
        gathered_.run_wakers(wake_list::state());
    }

    /// Ends the collection: the wakers of later releases run as before.
    void stop_gathering() noexcept { collects_.end(); }

private:
    wake_list gathered_;
    detail::waker_redirect collects_;
};

/// A wait of a coroutine, for co_await. `Stops` is the number of its stop tokens.
template <class T, class Platform, int Stops> class [[nodiscard("co_await it")]] basic_async_op {
    using R = as_result_t<T>;
    using ops = wait_ops<R, Platform>;
    using payload = wait_payload_t<R>;
    using limits = detail::wait_limits_t<T, Platform, Stops>;
    template <class U, int More = 0> using same = basic_async_op<U, Platform, Stops + More>;

public:
    /// The type of its value.
    using value_type = T;

    /// Constructs a wait from the operation of a primitive (core/wait_ops.hpp).
    template <wait_operation<R> Op>
    basic_async_op(const Op& what, payload carried = {}) noexcept
        : ops_(&detail::ops_of<Op, R, Platform>), target_(what, std::move(carried)) {}

    /// Constructs a wait whose payload is constructed from `args`.
    template <wait_operation<R> Op, class... Args>
    basic_async_op(std::in_place_t, const Op& what, Args&&... args) noexcept
        : ops_(&detail::ops_of<Op, R, Platform>), target_(what, std::forward<Args>(args)...) {}

    /// Constructs a wait for a time: collect() gets timed_out at the deadline.
    template <wait_operation<R> Op>
        requires may_wait_for_time<T>
    basic_async_op(const Op& what, deadline until) noexcept : basic_async_op(what) {
        limits_.until = until;
    }

    /// Takes over an operation that was not awaited.
    basic_async_op(basic_async_op&&) noexcept = default;
    basic_async_op& operator=(basic_async_op&&) = delete;

    /// Returns this operation with a result as its value: it reports closed, stopped and timeout.
    same<R> as_result() && noexcept { return std::move(*this).widen(); }

    /// Ends the wait with errc::stopped when a stop is requested. An operation takes up to two
    /// tokens.
    /// Throws: std::system_error if the service threads of bide cannot be started. A wait needs
    /// them if it begins on a thread that belongs to no scheduler.
    same<R, 1> with_stop(typename Platform::stop_token token) && {
        static_assert(Stops < 2, "a wait takes two stop tokens at most");
        detail::prepare_timers<Platform>();
        same<R, 1> op = std::move(*this).template widen<1>();
        op.limits_.stops[Stops] = std::move(token);
        return op;
    }

    /// Ends the wait with errc::timeout at the deadline. If the deadline has passed, makes one
    /// attempt. Of several deadlines the earliest counts.
    /// Throws: std::system_error, under the same condition as with_stop().
    same<R> with_deadline(deadline until) && {
        detail::prepare_timers<Platform>();
        same<R> op = std::move(*this).widen();
        deadline& set = op.limits_.until;
        if (set.is_never() || until.steady_ns() < set.steady_ns()) {
            set = until;
        }
        return op;
    }
    /// Ends the wait with errc::timeout after `rest`.
    /// Throws: std::system_error, under the same condition as with_stop().
    same<R> with_timeout(deadline::from_now rest) && {
        return std::move(*this).with_deadline(deadline(rest));
    }

    /// Resumes the coroutine on `s` and not on its own executor.
    /// Requires: `s` exists until the coroutine resumes. If a strand, a run_loop, a poll_executor
    /// or an executor of Asio is destroyed earlier, the program terminates with a message. A
    /// scheduler does not check this.
    template <executor S> basic_async_op resume_on(S& s) && noexcept {
        basic_async_op op(std::move(*this));
        op.executor_ = s;
        return op;
    }

    /// The awaiter of the operation.
    class awaiter;
    awaiter operator co_await() && noexcept { return awaiter(*this); } ///< Returns the awaiter.
    /// Does not compile: an operation is awaited once, as an rvalue.
    template <class Refused = void> void operator co_await() & {
        static_assert(!std::is_void_v<Refused>,
                      "bide: an operation is awaited once: write co_await std::move(operation)");
    }
    /// Makes the operation a case of a select. The select has its own limits and executor.
    basic_wait<R, Platform> as_case() && noexcept { return {ops_, std::move(target_)}; }

private:
    template <class, class, int> friend class basic_async_op;
    template <class, class> friend class basic_callback_wait;

    // Constructs the same wait with other limits.
    basic_async_op(const ops& what, wait_target_with<payload>&& target) noexcept
        : ops_(&what), target_(std::move(target)) {}

    template <int More = 0> same<R, More> widen() && noexcept {
        if constexpr (std::is_same_v<same<R, More>, basic_async_op>) {
            return std::move(*this);
        } else {
            same<R, More> op(*ops_, std::move(target_));
            op.executor_ = executor_;
            detail::move_limits<Stops>(limits_, op.limits_);
            return op;
        }
    }

    const ops* ops_;
    wait_target_with<payload> target_;
    executor_ref executor_;
    [[no_unique_address]] limits limits_;
};

// ---- The awaiter
//
// The awaiter lies in the frame of the coroutine and contains the node that is queued. The steps of
// a wait:
//
//   await_ready     tries; an operation that can complete immediately does so, even after a stop
//   budget          if the task has completed many operations in one run (core/wake_scope.hpp),
//                   other tasks run before the operation is tried. If the task is cancelled
//                   meanwhile, the outcome is stopped
//   inner job       if the operation waits for a job, and this job is the next one of this thread,
//                   the job runs inside of the running one: see below
//   await_suspend   arms the time-out and the stop callback, then queues the node. That is the last
//                   step: afterwards another thread may resume the coroutine, and destroy the frame
//   granted         the holder of the primitive's lock decides the outcome, releases the lock,
//                   publishes the outcome, and runs the node's waker. The waker sends the coroutine
//                   to its executor. Some operations try once more there, and may queue the node
//                   again
//   stop, time-out, cancelled task
//                   cancel() under the lock of the primitive. If the node is queued, cancel() takes
//                   it out and decides the outcome. If it is granted, nothing happens. If it is not
//                   queued yet, enqueue() refuses it. A cancelled task that waits for its own
//                   children cancels the children, and resumes when they have ended
//   await_resume    first disarms the time-out and the stop callback: when it returns, no thread
//                   has a pointer into the frame
//   destroyed       while suspended: disarms the time-out and the stop callback, cancels the wait,
//                   gives back a grant, and takes the coroutine out of the lists of this thread.
//                   No other thread may be about to resume it (see the head of this file)
//
// The inner job. Assume that a task awaits another task, and that the awaited task is the next job
// of this thread. The host of both tasks (core/wake_scope.hpp) may run that job at once, before the
// wait begins. If the inner job ends, the awaiting task continues, and its wait needed no queue, no
// wake and no atomic operation. If the inner job waits, the awaiting task waits for the inner job
// as for any other job.
//
// The order of the jobs stays the same. The awaited job was the next one in any case. On a loop, if
// other jobs are queued when it ends, the awaiting task continues after them. If the awaiting task
// is cancelled before the inner job runs, or by the inner job, the wait is stopped. If another
// thread cancels it while the inner job computes, the wait is stopped when the inner job waits,
// blocks or ends. So a wait with limits has no inner job, and neither has a wait of a task with
// limits: a deadline, or a sibling that stops the task when it ends (when_any).
//
// The inner job may block its thread. The host may then run other jobs inside of the inner one, or
// another thread runs them. These other jobs may cancel the awaiting task, which then continues. So
// before the host runs these jobs, or leaves them to another thread, it calls the waker
// `begin_wait` of each inner_job, the innermost one first. The call begins the wait of the task
// that awaits this job. From then on, the awaiting task may continue or be destroyed before the
// inner job returns. So after the inner job, await_suspend() first reads `has_begun_wait` in the
// inner_wait, which lies on the stack. If that flag is true, await_suspend() accesses nothing else.

template <class T, class Platform, int Stops> class basic_async_op<T, Platform, Stops>::awaiter {
public:
    /// Constructs the awaiter of the operation `of`.
    /// Requires: `of` exists until the end of the await expression.
    explicit awaiter(basic_async_op& of) noexcept : op_(of) {}
    awaiter& operator=(awaiter&&) = delete;

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
        const ops& how = *op_.ops_; // read early, while compilers know its value
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
    // Not inlined: its local variables must not lie in the frame, which another thread may destroy
    // while this function runs.
    template <class Promise>
    BIDE_NOINLINE bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
        BIDE_CHECKED(note_owner(h); if (ready_ != wait_status::waiting) { return false; })
        if (op_.ops_->awaited_job != nullptr && !yields_ && may_wait_for_ever()) {
            inner_wait<Promise> job(*this, h);
            if (job.runs()) {
                return job.has_begun_wait || !goes_on(job);
            }
        }
        make_wait(h);
        if (yields_) {
            suspended_ = true;
            if (op_.ops_->yields_first) {
                yields_ = false;
                completes_now();
                return wait_.yield();
            }
            if (wait_.yield(waker(&on_yielded, this))) {
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
    static constexpr bool has_limits = !std::is_same_v<limits, detail::no_limits>;
    using armed_limits =
        std::conditional_t<has_limits, detail::armed_limits<Platform, awaiter, Stops>,
                           detail::never_armed>;
    friend armed_limits;

    // The wait for an inner job: a job that runs inside of the job that waits for it.
    template <class Promise> struct inner_wait : detail::inner_job {
        inner_wait(awaiter& whose, std::coroutine_handle<Promise> waiting) noexcept
            : inner_job{waker(&on_wait, this)}, of(whose), coroutine(waiting) {}

        // Runs the job that completes the wait. Returns false if that job did not run here. The
        // reasons are:
        //
        // - The host did not run it.
        // - The coroutine is not part of the task that runs on this thread, or that task is
        //   cancelled.
        // - The task runs inside of another executor, such as a strand. That executor may run no
        //   other job before this one returns, and the inner job may block until another job of
        //   that executor has run.
        // - The operation names another executor, on which the coroutine then continues.
        // - The task has a deadline, or is a child of when_any(). A wait ends early at the deadline
        //   or at the end of the sibling, but an inner job does not.
        bool runs() noexcept {
            if constexpr (!std::is_void_v<Promise>) {
                auto& here = worker_local<Platform>::get();
                context = bide::task_context_of<Platform>(coroutine.promise());
                if (context == nullptr || context != here.running || here.host == nullptr ||
                    here.job == nullptr || !context->runs_as(*here.job)) {
                    return false;
                }
                const executor_ref home = here.host->executor();
                if (!(bide::executor_of(coroutine.promise()) == home) ||
                    (of.op_.executor_ && !(of.op_.executor_ == home)) || context->is_limited() ||
                    context->is_cancelled()) {
                    return false;
                }
                // If the coroutine is a producer (task/async_generator.hpp), it is in the innermost
                // call. But it may resume inside of the inner job, and is then not in that call.
                auto& code = Platform::template local<detail::running_code>();
                auto* const call = std::exchange(code.innermost, nullptr);
                runnable& awaited = of.op_.ops_->awaited_job(of.op_.target_);
                const runnable* const outer_job = std::exchange(here.job, &awaited);
                const bool has_run = here.host->run_inside(awaited, *this);
                here.job = outer_job;
                code.innermost = call;
                return has_run;
            }
            return false;
        }

        awaiter& of;
        const std::coroutine_handle<Promise> coroutine;
        basic_task_context<Platform>* context = nullptr; // of the coroutine

    private:
        static void on_wait(void* self) noexcept {
            auto& mine = *static_cast<inner_wait*>(self);
            mine.of.wait_for_inner_job(mine.coroutine);
        }
    };

    // Called when the other tasks have run, after the budget was spent.
    static void on_yielded(void* self) noexcept {
        auto& me = *static_cast<awaiter*>(self);
        me.try_again(me.wait_.end_yield());
    }
    // Called when the wait is granted. If the operation does not complete now, begins a new wait.
    static void on_retry(void* self) noexcept {
        auto& me = *static_cast<awaiter*>(self);
        me.armed_.disarm();
        BIDE_CHECKED(me.note_end();)
        me.try_again(me.wait_.begin_retry());
    }
    void try_again(basic_task_context<Platform>* mine) noexcept {
        auto& here = worker_local<Platform>::get();
        auto* const outer = std::exchange(here.running, mine);
        yields_ = false;
        const bool over = completes_now() || !enqueue();
        here.running = outer;
        if (over) {
            wait_.resume_here();
        }
    }

    // Tries the operation. Returns false if it would have to wait. If the task is cancelled and the
    // operation has an on_cancel(), calls that function first. If it is cancelled and there is no
    // on_cancel(), makes no attempt, because an attempt might succeed. The outcome is then
    // `stopped`.
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

    // Queues the wait. Returns false if the wait is complete. If this function returns true,
    // another thread may have resumed the coroutine.
    bool enqueue() noexcept {
        if (!wait_.begin(waker(&on_interrupt, this))) {
            if (op_.ops_->on_cancel == nullptr) {
                wait_.node.settle(wait_status::stopped);
                return false;
            }
            on_interrupt(this);
        }
        if (polls()) {
            wait_.node.forbid(wait_status::timed_out); // one attempt, which also detects a close
        } else {
            armed_.arm(*this, op_.limits_);
        }
        suspended_ = true;
        wait_.retry_by(*op_.ops_, op_.target_, waker(&on_retry, this));
        BIDE_CHECKED(note_begin();)
        if (!op_.ops_->enqueue(op_.target_, wait_.node)) {
            return true;
        }
        BIDE_PROBE(wait_end, &wait_.node, static_cast<int>(wait_.node.outcome()));
        wait_.end();
        return false;
    }

    // Called after the inner job has ended or has begun to wait. If the operation is complete and
    // this coroutine may continue, returns true. Otherwise this coroutine stays suspended: either
    // it now waits too, or jobs that the inner job has made runnable run first.
    template <class Promise> bool goes_on(inner_wait<Promise>& after) noexcept {
        if (!after.others_queued && !after.context->is_cancelled() &&
            (ready_ = op_.ops_->try_now(op_.target_)) != wait_status::waiting) {
            return true;
        }
        make_wait(after.coroutine);
        if (!completes_now()) {
            return !enqueue();
        }
        suspended_ = after.others_queued;
        return !suspended_ || !wait_.yield();
    }

    // Called when the inner job blocks and the host is about to run other jobs meanwhile. This
    // coroutine then begins its wait for the inner job.
    template <class Promise> void wait_for_inner_job(std::coroutine_handle<Promise> h) noexcept {
        make_wait(h);
        if (!enqueue()) {
            suspended_ = true;
            wait_.yield();
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
        me.interrupted_ = true; // the task was cancelled, but its wait lasts
        me.op_.ops_->on_cancel(me.op_.target_);
    }

    // Ends the wait because of a stop, a time-out or a cancelled task. If the end of the wait
    // releases other coroutines, they resume on another thread.
    void end_early(wait_status why) noexcept {
        const wake_scope<Platform> away(&detail::service_executor<Platform>);
        wakers_later<Platform> later; // a waker may destroy this coroutine
        const bool ended =
            !wait_.node.is_decided() && op_.ops_->cancel(op_.target_, wait_.node, why);
        if (ended) {
            wait_.node.settle(why);
        }
        later.stop_gathering();
        if (ended) {
            wait_.resume_elsewhere();
        }
    }

    // Called when the coroutine is destroyed at this suspension point.
    BIDE_NOINLINE void abandon() noexcept {
        armed_.disarm();
        wait_.forget(*op_.ops_, op_.target_);
        if (yields_) { // the operation was not tried
            if (op_.ops_->on_cancel != nullptr) {
                op_.ops_->on_cancel(op_.target_);
            }
            return op_.ops_->give_back(op_.target_, wait_status::stopped);
        }
        if (ready_ != wait_status::waiting) { // the coroutine is about to resume
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
            auto* const task = bide::task_context_of<Platform>(h.promise());
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
    wait_status ready_ = wait_status::waiting; // the outcome of the attempt
    union {
        wait wait_; // used from await_suspend() on
    };
    [[no_unique_address]] armed_limits armed_;
};

}} // namespace bide::BIDE_ABI

#endif
