// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_WORKER_THREADS_HPP
#define BIDE_SCHED_DETAIL_WORKER_THREADS_HPP

// The threads of a scheduler: one for each worker of its pool, and those for blocking tasks.
//
// If the thread of a worker blocks in a task, another thread runs the worker. A thread that lost
// its own worker and has nothing to do is preferred (an idle thread). Otherwise a thread for
// blocking tasks does it (a substitute). A thread that returns from blocking and has lost its
// worker ends its task and becomes an idle thread. A substitute that finds nothing to run hands its
// worker to an idle thread, so that it is free for blocking tasks again. If a substitute sleeps already
// when a thread becomes idle, that thread wakes it: the substitute announces its sleep and then looks for
// an idle thread; the thread adds itself to the list and then looks for substitutes that sleep
// [idle.announce]. An idle thread runs the jobs that are pinned to it.
// It is not in the list meanwhile: after each of these jobs it looks for a blocked worker itself.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal_exception.hpp>
#include <bide/core/detail/os_thread.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/parker.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/waker.hpp>
#include <bide/fwd.hpp>
#include <bide/sched/detail/cpu_count.hpp>
#include <bide/sched/detail/current_scheduler.hpp>
#include <bide/sched/detail/pool.hpp>
#include <bide/sched/detail/tended_pool.hpp>
#include <bide/sched/scheduler_options.hpp>
#include <bide/sync/detail/gate.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <system_error>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// `Pool` is basic_pool, and `Thread` os_thread, or those of a model.
template <class Platform, class Pool = basic_pool<Platform>, class Thread = os_thread>
class basic_worker_threads {
    using worker = typename Pool::worker;
    using current = basic_current_scheduler<Platform>;
    using blocking_pool_type = basic_tended_pool<Platform, Pool, Thread>;
    template <class T> using var = typename Platform::template var<T>;

public:
    // Moves the callbacks out of `wanted`. `of` is the scheduler that its threads find as theirs.
    basic_worker_threads(scheduler* of, Pool& its_pool, scheduler_options& wanted);
    basic_worker_threads(const basic_worker_threads&) = delete;
    basic_worker_threads& operator=(const basic_worker_threads&) = delete;

    // Starts the threads, which run until finish(). Returns an error if one cannot be started: then none of
    // them runs a worker or calls on_worker_start, which might rely on the others.
    std::error_code start() noexcept;

    // See basic_blocking_pool::post().
    bool post_blocking(runnable& r, std::error_code& why) noexcept {
        return blocking_.post(r, why);
    }

    // See basic_blocking_pool::raise_limit().
    void raise_limit() noexcept { blocking_.raise_limit(); }
    void lower_limit() noexcept { blocking_.lower_limit(); }
    bool tend() noexcept { return blocking_.tend(); }

    // Called when the calling thread blocks in a task and leaves `w`. Makes another thread run `w`.
    // Returns false if there is no such thread.
    bool replace(worker& w) noexcept;

    // Makes an idle thread run `w`. Returns false if there is none.
    bool hand_to_idle_thread(worker& w) noexcept;

    // Returns true if hand_to_idle_thread() would succeed.
    bool has_idle_thread() noexcept {
        lock::acquire(lock_);
        const bool has = idle_threads_ != nullptr;
        lock::release_plain(lock_);
        return has;
    }

    // Called if replace() has found no thread. The next thread for blocking tasks that becomes free
    // runs a blocked worker, until the worker's own thread returns. Returns false if there is no
    // thread for blocking tasks, or if the system has refused one: the caller then tries again.
    bool request_replacement() noexcept;

    // Unparks the own thread of that worker, if it is an idle thread. Any thread.
    void wake_thread(unsigned number) noexcept { threads_[number].parker.unpark(); }

    // A thread for blocking tasks may use every processor, whichever thread has started it.
    void unpin() noexcept {
        if (pin_) {
            mask_.apply();
        }
    }

    // Returns when all threads have ended.
    // Requires: the pool was stopped.
    void finish() noexcept;

    const blocking_pool_type& blocking() const noexcept { return blocking_; }

private:
    using lock = lock_bits<Platform, std::uint32_t>;

    // A worker and its own thread. As a runnable, it makes the thread that runs it a substitute.
    struct own_thread : runnable {
        own_thread(basic_worker_threads& of, worker& which) noexcept : all(of), mine(which) {
            run = waker(
                [](void* self) noexcept { static_cast<own_thread*>(self)->run_as_substitute(); },
                this);
        }
        void run_own_worker() noexcept;
        void run_as_substitute() noexcept;
        worker* wait_for_worker() noexcept;
        void count_substitute(int by) noexcept {
            lock::acquire(all.lock_);
            substitutes = substitutes + static_cast<unsigned>(by);
            lock::release_plain(all.lock_);
        }

        basic_worker_threads& all;
        worker& mine;
        Thread thread;
        basic_parker<Platform> parker; // where it waits as an idle thread
        // Under the lock:
        var<own_thread*> next_idle{nullptr};
        var<worker*> next_worker{nullptr};
        var<unsigned> substitutes{0}; // one that runs the worker, and those that are leaving it
    };

    bool begin_idle(own_thread& me) noexcept;
    void wake_substitutes() noexcept;
    worker* end_idle(own_thread& me) noexcept;
    void serve_request() noexcept;
    void begin_worker(unsigned index) noexcept;
    void end_worker(unsigned index) noexcept;

    scheduler* const scheduler_;
    Pool& pool_;
    const std::string name_;
    const std::size_t stack_size_;
    const bool pin_;
    const cpu_mask mask_;
    const std::function<void(unsigned)> on_start_;
    const std::function<void(unsigned)> on_stop_;
    blocking_pool_type blocking_;
    std::deque<own_thread> threads_;
    basic_gate<Platform> start_is_over_{1};
    var<bool> some_failed_{false}; // written before the gate opens
    typename Platform::template atomic<std::uint32_t> lock_{0};
    // Under the lock:
    var<own_thread*> idle_threads_{
        nullptr}; // those that have lost their workers and wait for others
    var<bool> over_{false};
    var<bool> requested_{false}; // `request_` is queued among blocking tasks
    runnable request_;
};

using worker_threads = basic_worker_threads<native_platform>;

template <class Platform, class Pool, class Thread>
basic_worker_threads<Platform, Pool, Thread>::basic_worker_threads(scheduler* of, Pool& its_pool,
                                                                   scheduler_options& wanted)
    : scheduler_(of), pool_(its_pool), name_(wanted.name), stack_size_(wanted.stack_size),
      pin_(wanted.pin_workers), on_start_(std::move(wanted.on_worker_start)),
      on_stop_(std::move(wanted.on_worker_stop)),
      blocking_(its_pool,
                {wanted.max_blocking_threads, wanted.blocking_keep_alive, name_, stack_size_}) {
    for (worker& w : pool_.workers()) {
        threads_.emplace_back(*this, w);
    }
    request_.run = waker(
        [](void* self) noexcept { static_cast<basic_worker_threads*>(self)->serve_request(); },
        this);
}

template <class Platform, class Pool, class Thread>
std::error_code basic_worker_threads<Platform, Pool, Thread>::start() noexcept {
    for (own_thread& p : threads_) {
        const std::error_code error = p.thread.start(
            [](void* self) noexcept { static_cast<own_thread*>(self)->run_own_worker(); }, &p,
            stack_size_);
        if (error) {
            while (&threads_.back() != &p) {
                threads_.pop_back();
            }
            threads_.pop_back();
            some_failed_ = true;
            start_is_over_.arrive(1);
            return error;
        }
    }
    start_is_over_.arrive(1);
    return {};
}

template <class Platform, class Pool, class Thread>
void basic_worker_threads<Platform, Pool, Thread>::begin_worker(unsigned index) noexcept {
    current::here().instance = scheduler_;
    if (on_start_) {
        call_noexcept("on_worker_start", [&] { on_start_(index); });
    }
}

template <class Platform, class Pool, class Thread>
void basic_worker_threads<Platform, Pool, Thread>::end_worker(unsigned index) noexcept {
    current::here().leaving = true;
    if (on_stop_) {
        call_noexcept("on_worker_stop", [&] { on_stop_(index); });
    }
    current::here() = {};
}

template <class Platform, class Pool, class Thread>
void basic_worker_threads<Platform, Pool, Thread>::own_thread::run_own_worker() noexcept {
    all.start_is_over_.wait();
    if (all.some_failed_) {
        return;
    }
    Thread::name_this(all.name_, "-", mine.index);
    if (all.pin_) {
        all.mask_.apply_only(mine.index);
    }
    Pool::thread_role::here() = {&all.pool_, nullptr, &mine.pinned}; // for on_worker_start
    all.begin_worker(mine.index);
    for (worker* w = &mine; w != nullptr; w = wait_for_worker()) {
        all.pool_.run(*w, &mine.pinned);
    }
    all.end_worker(mine.index);
}

// Returns the worker that the thread is to run, or nullptr if it is to end. The token of the parker says
// that there is a worker or a pinned job for the thread, or that it is to end, or that this was so before.
template <class Platform, class Pool, class Thread>
auto basic_worker_threads<Platform, Pool, Thread>::own_thread::wait_for_worker() noexcept
    -> worker* {
    for (;;) {
        if (worker* const blocked = all.pool_.run_pinned(mine.pinned)) {
            return blocked;
        }
        if (!all.begin_idle(*this)) {
            return nullptr;
        }
        all.pool_.replace_blocked(); // a thread may have found no idle thread before
        all.wake_substitutes();
        parker.park();
        if (worker* const other = all.end_idle(*this)) {
            return other;
        }
    }
}

// Adds an idle thread to the list. Returns false at the end of the scheduler.
template <class Platform, class Pool, class Thread>
bool basic_worker_threads<Platform, Pool, Thread>::begin_idle(own_thread& me) noexcept {
    lock::acquire(lock_);
    const bool over = over_;
    if (!over) {
        me.next_idle = static_cast<own_thread*>(idle_threads_);
        idle_threads_ = &me;
    }
    lock::release_plain(lock_);
    return !over;
}

// Called when the list has a thread more.
template <class Platform, class Pool, class Thread>
void basic_worker_threads<Platform, Pool, Thread>::wake_substitutes() noexcept {
    for (own_thread& p : threads_) {
        lock::acquire(lock_);
        const bool has = p.substitutes != 0;
        lock::release_plain(lock_);
        if (has) {
            pool_.wake(p.mine);
        }
    }
}

// Removes an idle thread from the list, if no other thread has. Returns the worker for it, or nullptr.
template <class Platform, class Pool, class Thread>
auto basic_worker_threads<Platform, Pool, Thread>::end_idle(own_thread& me) noexcept -> worker* {
    lock::acquire(lock_);
    var<own_thread*>* at = &idle_threads_;
    own_thread* found = *at;
    while (found != nullptr && found != &me) {
        at = &found->next_idle;
        found = *at;
    }
    if (found != nullptr) {
        *at = static_cast<own_thread*>(me.next_idle);
    }
    worker* const next = me.next_worker;
    me.next_worker = nullptr;
    lock::release_plain(lock_);
    return next;
}

template <class Platform, class Pool, class Thread>
void basic_worker_threads<Platform, Pool, Thread>::own_thread::run_as_substitute() noexcept {
    all.unpin();
    all.begin_worker(mine.index);
    current::here().is_substitute = true;
    count_substitute(1);
    all.pool_.run(mine);
    count_substitute(-1);
    all.end_worker(mine.index);
}

template <class Platform, class Pool, class Thread>
bool basic_worker_threads<Platform, Pool, Thread>::replace(worker& w) noexcept {
    return hand_to_idle_thread(w) || blocking_.try_run(threads_[w.index]);
}

template <class Platform, class Pool, class Thread>
bool basic_worker_threads<Platform, Pool, Thread>::hand_to_idle_thread(worker& w) noexcept {
    lock::acquire(lock_);
    own_thread* const other = idle_threads_;
    if (other != nullptr) {
        idle_threads_ = static_cast<own_thread*>(other->next_idle);
        other->next_worker = &w;
    }
    lock::release_plain(lock_);
    if (other == nullptr) {
        return false;
    }
    other->parker.unpark();
    return true;
}

template <class Platform, class Pool, class Thread>
bool basic_worker_threads<Platform, Pool, Thread>::request_replacement() noexcept {
    lock::acquire(lock_);
    // A thread became idle since replace(), and found no blocked worker.
    const bool has_idle_thread = idle_threads_ != nullptr;
    if (!has_idle_thread && !requested_) {
        std::error_code why;
        // Under the lock: if it fails, no other thread relies on it.
        requested_ = blocking_.post(request_, why);
    }
    // The threads that there are may all be blocked.
    const bool requested = requested_ && !blocking_.tend();
    lock::release_plain(lock_);
    if (has_idle_thread) {
        pool_.replace_blocked();
    }
    return has_idle_thread || requested;
}

// On a thread for blocking tasks.
template <class Platform, class Pool, class Thread>
void basic_worker_threads<Platform, Pool, Thread>::serve_request() noexcept {
    lock::acquire(lock_);
    requested_ = false; // a later request is queued again
    lock::release_plain(lock_);
    if (worker* const w = pool_.take_blocked()) {
        pool_.replace_blocked(); // the owners of several workers may have relied on one request
        threads_[w->index].run_as_substitute();
    }
}

template <class Platform, class Pool, class Thread>
void basic_worker_threads<Platform, Pool, Thread>::finish() noexcept {
    lock::acquire(lock_);
    over_ = true;
    idle_threads_ = nullptr;
    lock::release_plain(lock_);
    for (own_thread& p : threads_) {
        p.parker.unpark();
    }
    blocking_.finish();
    for (own_thread& p : threads_) {
        p.thread.join();
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
