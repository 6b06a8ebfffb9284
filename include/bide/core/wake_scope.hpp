// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_WAKE_SCOPE_HPP
#define BIDE_CORE_WAKE_SCOPE_HPP

/// \file
/// Resumes coroutines that a release makes runnable and that have no executor. They resume on the
/// releaser's thread, when that thread holds no lock, before the release returns. The stack is
/// bounded.
///
/// A resumed coroutine may block its thread. If it blocks in bide (core/futex.hpp), the coroutines
/// that were to resume after it are handed over. If the thread is a worker of a scheduler, another
/// worker takes them. If it is no worker, the resumers take them: threads of bide's service
/// (core/timer.hpp). If the resumed coroutine blocks outside of bide (read(), std::mutex) or
/// computes, those coroutines have to wait. After a hand-over, another thread may resume those
/// coroutines at any time. So a coroutine that has blocked must not destroy the coroutines that
/// were released with it.
//
// A release that has wakers to run opens a wake_scope. Coroutines that become runnable in the scope
// are kept in a list of the thread. When the outermost scope closes, it runs the list, first in,
// first out. If a resumed coroutine makes a release, that release opens an inner scope, and the
// outer scope runs the list of the inner one. So the stack does not grow with a chain of releases.
//
// A scope may also post its list to an executor. The stop callback of a wait opens such a scope. So
// request_stop() resumes no coroutine on the thread that calls it.
//
// The wakers of a release run in the same way, one after the other. If a waker makes a release, the
// outermost release of the thread runs the wakers of that inner release (core/waiter.hpp). A scope
// that posts its list is the exception. It runs the wakers of its own releases itself, so that the
// scope also posts the coroutines that these wakers make runnable. Before a thread blocks, it runs
// the wakers that its releases have collected.
//
// If a thread blocks in a scope that posts its list, the runnables and the wakers of the scopes
// around it stay with the thread. Suppose that a waker in such a scope posts a coroutine, that the executor
// resumes the coroutine inside post(), and that the coroutine blocks. Then the runnables of the
// outer scopes have to wait.

#include <bide/core/detail/fatal.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

// A list of runnables, oldest first.
class run_list {
public:
    // Appends the runnables from `first` to `last`, which are linked already.
    void append(runnable& first, runnable& last) noexcept {
        last.next = nullptr;
        (last_ == nullptr ? first_ : last_->next) = &first;
        last_ = &last;
    }

    void push(runnable& r) noexcept { append(r, r); }

    void push_front(runnable& r) noexcept {
        r.next = first_;
        first_ = &r;
        last_ = last_ == nullptr ? &r : last_;
    }

    // Return nullptr if the list is empty.
    runnable* first() const noexcept { return first_; }
    runnable* last() const noexcept { return last_; }

    // Takes the oldest runnable out. If the list is empty, returns nullptr.
    runnable* pop() noexcept {
        runnable* const r = first_;
        if (r != nullptr) {
            first_ = r->next;
            if (first_ == nullptr) {
                last_ = nullptr;
            }
        }
        return r;
    }

private:
    runnable* first_ = nullptr;
    runnable* last_ = nullptr;
};

// A list of runnables, oldest first. Any runnable can be taken out without a reference to the list.
class resumption_list {
public:
    resumption_list() noexcept { end_.next = end_.back = &end_; }
    resumption_list& operator=(resumption_list&&) = delete;

    void push(runnable& r) noexcept {
        r.next = &end_;
        r.back = end_.back;
        end_.back->next = &r;
        end_.back = &r;
    }

    bool empty() const noexcept { return end_.next == &end_; }

    runnable* pop() noexcept {
        runnable* const r = end_.next;
        return r != &end_ && remove(*r) ? r : nullptr;
    }

    // Takes `r` out of its list. If it is in no list, returns false.
    static bool remove(runnable& r) noexcept {
        if (r.back == nullptr) {
            return false;
        }
        r.back->next = r.next;
        r.next->back = r.back;
        r.back = nullptr;
        return true;
    }

private:
    runnable end_; // of a circular list
};

class waker_redirect;

// Selects the constructor of a wake_scope for a caller that knows no executor.
struct post_all {};

// The state of one thread that resumes coroutines.
struct BIDE_SHARED resume_state {
    resumption_list* list = nullptr; // the list of the open scope, if one is open
    executor_ref worker;             // this thread is a worker of that executor

    // Returns the executor that takes the list if this thread blocks. nullptr: the list stays here.
    executor_ref (*elsewhere)() noexcept = nullptr;

    // Takes the wakers of this thread's releases. nullptr: the wakers run at once.
    const waker_redirect* wakers = nullptr;
    bool is_away = false; // the open scope posts its list
};

// While this object lives, the wakers of this thread's releases go to a basic_wake_list
// (core/waiter.hpp).
class waker_redirect {
public:
    waker_redirect(resume_state& mine, void* to, waker::function run_all) noexcept
        : mine_(mine), outer_(mine.wakers), list_(to), run_(run_all), is_away_(mine.is_away) {
        mine.wakers = this;
    }
    waker_redirect& operator=(waker_redirect&&) = delete;
    ~waker_redirect() { end(); }

    void end() noexcept { mine_.wakers = outer_; }

    // Returns the list that takes wakers. Returns nullptr if the open scope posts its runnables,
    // and no such scope was open at the construction of this object.
    void* list() const noexcept { return is_away_ || !mine_.is_away ? list_ : nullptr; }
    // Runs the wakers of the list. If the list only collects wakers, does nothing.
    void run() const noexcept {
        if (run_ != nullptr) {
            run_(list_);
        }
    }

private:
    resume_state& mine_;
    const waker_redirect* const outer_;
    void* const list_;
    const waker::function run_;
    const bool is_away_; // the runnables of its wakers go to another executor
};

} // namespace detail

/// Collects the coroutines that become runnable on this thread, and resumes them at its end.
template <class Platform> class wake_scope {
public:
    /// Opens a scope. The outermost scope of this thread runs the collected runnables.
    wake_scope() noexcept : wake_scope(state()) {}
    /// Opens a scope, for a caller that has the state of this thread: `mine`.
    explicit wake_scope(detail::resume_state& mine) noexcept : mine_(mine), outer_(mine.list) {
        if (outer_ == nullptr) {
            mine_.list = &collected_;
        }
    }

    /// Returns the executor that takes runnables.
    using destination = executor_ref (*)() noexcept;
    /// Opens a scope that posts its runnables to `elsewhere()`. Calls `elsewhere()` once for each
    /// runnable.
    explicit wake_scope(destination elsewhere) noexcept
        : mine_(state()), outer_(mine_.list), elsewhere_(elsewhere), post_(&post_collected),
          was_away_(std::exchange(mine_.is_away, true)) {
        mine_.list = &collected_;
    }
    /// Opens a scope that posts its runnables, for a caller that knows no executor. The executor
    /// that `if_blocked()` returns takes them. `if_blocked` is the latest argument of that name
    /// that this thread has passed to run() (below). If it returns no executor, the program
    /// terminates. If there was no such call, the scope runs its runnables on this thread.
    explicit wake_scope(detail::post_all) noexcept : wake_scope(destination()) {}

    wake_scope& operator=(wake_scope&&) = delete;

    /// Runs or posts the collected runnables.
    ~wake_scope() {
        if (post_ != nullptr) {
            post_(*this);
        } else if (outer_ == nullptr) {
            while (runnable* const r = collected_.pop()) {
                r->run.wake();
            }
            mine_.list = nullptr;
        }
    }

    /// Runs `r` at the end of the scope that is open on this thread. If no scope is open, runs `r`
    /// now. If the thread blocks before `r` has run, posts `r` to the executor that `if_blocked()`
    /// returns. If `if_blocked()` returns none, `r` stays in the scope.
    static void run(runnable& r, destination if_blocked = nullptr) noexcept {
        wake_scope scope;
        scope.mine_.list->push(r);
        if (if_blocked != nullptr) {
            scope.mine_.elsewhere = if_blocked;
        }
    }

    /// Runs `r` after the runnables that are in the open scope already. `if_blocked` has the same
    /// meaning as for run().
    /// Returns: false if no scope is open; then `r` does not run.
    static bool run_behind(runnable& r, destination if_blocked) noexcept {
        const bool open = state().list != nullptr;
        if (open) {
            run(r, if_blocked);
        }
        return open;
    }

    /// Called when this thread is about to block. Runs the wakers that would run after the current
    /// one, and hands over the runnables of the open scope.
    static void hand_over_pending() noexcept {
        detail::resume_state& mine = state();
        if (mine.wakers != nullptr) {
            mine.wakers->run();
        }
        if (mine.list == nullptr || mine.list->empty() || mine.elsewhere == nullptr) {
            return;
        }
        if (const executor_ref to = mine.elsewhere()) {
            while (runnable* const r = mine.list->pop()) {
                to.post(*r);
            }
        }
    }

    /// Removes `r` from the scope of this thread that holds it, so that `r` does not run.
    /// Returns: false if no scope holds it.
    static bool forget(runnable& r) noexcept { return detail::resumption_list::remove(r); }

private:
    static void post_collected(wake_scope& mine) noexcept {
        mine.mine_.list = mine.outer_;
        mine.mine_.is_away = mine.was_away_;
        while (runnable* const r = mine.collected_.pop()) {
            const destination where =
                mine.elsewhere_ != nullptr ? mine.elsewhere_ : mine.mine_.elsewhere;
            if (where == nullptr) {
                run(*r);
            } else if (const executor_ref to = where()) {
                to.post(*r);
            } else {
                detail::fatal("the service threads cannot be started");
            }
        }
    }

    static detail::resume_state& state() noexcept {
        return Platform::template near_local<detail::resume_state>();
    }

    detail::resume_state& mine_;
    detail::resumption_list* const outer_;
    const destination elsewhere_ = nullptr;
    // Points to the function that posts the runnables of the scope. If it is nullptr, the scope
    // runs them. It is a pointer, so that a program without posting scopes does not contain the
    // function.
    void (*const post_)(wake_scope&) noexcept = nullptr;
    const bool was_away_ = false;
    detail::resumption_list collected_;
};

/// Returns the executor of which the calling thread is a worker. Refers to none on other threads.
template <class Platform> executor_ref current_worker() noexcept {
    return Platform::template near_local<detail::resume_state>().worker;
}

// ---- The host of a task
//
// The host of a task is the worker that runs it. Operations call their scheduler by the interface
// basic_worker_host, and find the host of their thread in worker_local. A resumer (core/timer.hpp)
// has a host, too, but the executor() of that host refers to no executor. Other threads have no
// host.
//
// If a task never has to wait, it yields after `whole_budget` operations, on any thread. When it
// yields, it also checks whether it was cancelled.

struct timer;

namespace detail {

// A chain of coroutines that has paused. `forked` contains the runnables that the chain has offered
// to other workers, by fork(), and that no worker has taken. `pauses` counts how often in a row the
// chain has paused before this pause. If pause() (below) queues a forked runnable, it sets the
// count to 0.
struct paused_chain : runnable {
    run_list forked;
    unsigned pauses = 0;
};

struct inner_job; // task_context.hpp

} // namespace detail

/// \cond
template <class Platform> class basic_worker_host {
public:
    // Runs `r` on this worker or another one, after the runnables that are queued already.
    virtual void yield(runnable& r) noexcept = 0;

    // Does the same as yield(), for a task that yields because its budget is spent.
    virtual void yield_spent(runnable& r) noexcept { yield(r); }

    // Posts `r` to executor(). Runnables that this function has posted earlier run first, unless
    // another worker takes them.
    virtual void post_in_order(runnable& r) noexcept { executor().post(r); }

    // Runs `chain` on this worker or another one, after the runnables that are queued already. If
    // another job will run before the chain continues, this function moves the forked runnables of
    // the chain to chain.forked. The chain forks them again when it continues. After many pauses in
    // a row, this function also queues the oldest forked runnable in front of the chain, and sets
    // chain.pauses to 0.
    virtual void pause(detail::paused_chain& chain) noexcept { yield(chain); }

    // Takes runnables out of the list, from the front, and stores them where take_back() and other
    // workers find them. When the chain that runs here waits or yields, these runnables are queued
    // like posted ones. If the host has no place for a runnable, the runnable stays in the list.
    virtual void fork(detail::run_list&) noexcept {}

    // Takes `r` back. Returns false if `r` is not the runnable that was forked last here, or if
    // another worker has taken it.
    virtual bool take_back(runnable&) noexcept { return false; }

    // Called by the running job, which awaits `r`. If `r` is the next job of this worker, runs `r`
    // inside of the running job. If `r` ends in this call, the running job need not wait
    // (core/async_op.hpp). If `r` blocks, the host may run other jobs until `r` continues. Before
    // the host runs them, it calls `begin_wait` of the inner_job. Returns false if `r` did not run.
    virtual bool run_inside(runnable&, detail::inner_job&) noexcept { return false; }

    // Arms the time-out of a wait that begins on this worker. cancel_timer() cancels it
    // (core/timer.hpp).
    virtual void add_timer(timer& t) noexcept = 0;

    // A thread calls blocks() before it sleeps inside a task, and another thread takes over its
    // work. If no other thread can be started, blocks() returns false. The thread then sleeps for
    // at most `retry_ns`, and calls unblocks() and blocks() again. A thread calls unblocks() after
    // it has woken up.
    static constexpr std::int64_t retry_ns = 10'000'000;
    virtual bool blocks() noexcept = 0;
    virtual void unblocks() noexcept = 0;

    // Returns the scheduler's executor. On a resumer, the result refers to no executor.
    virtual executor_ref executor() noexcept = 0;

    bool serves(executor_ref where) noexcept {
        return where && (where == executor() || has_queue(where));
    }

protected:
    // Returns true if `where` is another executor of the scheduler than executor().
    virtual bool has_queue(executor_ref) noexcept { return false; }

    ~basic_worker_host() = default;
};

template <class Platform> class basic_task_context;
template <class Platform> class basic_ready_queue;

// The state of one thread that runs tasks.
template <class Platform> struct BIDE_SHARED worker_local {
    static constexpr unsigned whole_budget = Platform::model ? 2 : 128;

    basic_worker_host<Platform>* host = nullptr;     // set while the thread runs a task
    const runnable* job = nullptr;                   // the latest that `host` has called here
    basic_task_context<Platform>* running = nullptr; // that task; nullptr: none, or it ended
    basic_task_context<Platform>* over = nullptr;    // the task that has ended
    const char* name = nullptr;                      // of the last task, if `traced`
    bool traced = false;                             // the scheduler is traced
    std::uint8_t tag = 0;                            // of the last task, if `traced`
    // The queue of the other runnables of this thread, if the thread is in sync_wait()
    // (task/task.hpp). If this queue is empty, a coroutine tries its operation a few times before
    // it waits, as a thread does. nullptr: the coroutine makes no attempts. The pointer is null on
    // other threads. After attempts without success, it is null until the next runnable runs.
    const basic_ready_queue<Platform>* alone = nullptr;
    unsigned budget = 0;                 // 0: no limit; 1: spent; n: n - 1 operations are left
    unsigned next_budget = whole_budget; // the budget of each task_budget that begins here
    unsigned pauses = 0;                 // how often the running chain has paused in a row

    static worker_local& get() noexcept { return Platform::template near_local<worker_local>(); }

    // Counts one operation. Returns false if the budget is spent: the coroutine then yields.
    bool spend() noexcept {
        if (budget > 1) {
            --budget;
            return true;
        }
        return budget == 0;
    }
};

/// \endcond

}} // namespace bide::BIDE_ABI

#endif
