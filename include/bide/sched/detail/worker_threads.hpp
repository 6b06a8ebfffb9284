// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_WORKER_THREADS_HPP
#define BIDE_SCHED_DETAIL_WORKER_THREADS_HPP

// The threads of a scheduler: one for each worker of its pool, and those for blocking tasks.
//
// If the thread of a worker blocks in a task, another thread runs the worker. An idle thread is
// preferred: a thread that has lost its own worker and has nothing to do. If there is no idle
// thread, a thread for blocking tasks runs the worker; it is called a substitute. If a thread
// returns from blocking and has lost its worker, it finishes its task and becomes an idle thread.
//
// A substitute that finds nothing to run hands its worker to an idle thread, and so is free for
// blocking tasks again. If a substitute already sleeps when a thread becomes idle, the idle thread
// wakes the substitute. For this, the substitute announces its sleep and then looks for an idle
// thread. The idle thread adds itself to the list of idle threads and then looks for sleeping
// substitutes [idle.announce].
//
// An idle thread also runs the jobs that are pinned to it. Meanwhile it is not in the list. So
// after each of these jobs, the thread itself looks for a blocked worker.
//
// A timer of the workers tends the threads for blocking tasks (basic_tended_pool). The timer is
// armed only in these cases:
//
//   - The system has refused to start a thread, and the start must be tried again. If all threads
//     of the pool are blocked, none of them can try it.
//   - A thread has left, and must be joined when it has ended.
//
// A thread that finds `armed_` set relies on the next firing of the timer. The firing resets
// `armed_` and then looks at the pool. It sees what that thread has changed in the pool, for this
// reason: both access the pool under its lock. The thread does so before it reads `armed_`; the
// firing does so after it has reset `armed_`. If the firing had the lock first, the thread would
// find `armed_` reset.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal_exception.hpp>
#include <bide/core/detail/os_thread.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/parker.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/timer.hpp>
#include <bide/core/wake_scope.hpp>
#include <bide/fwd.hpp>
#include <bide/sched/blocking_pool.hpp>
#include <bide/sched/detail/cpu_count.hpp>
#include <bide/sched/detail/pool.hpp>
#include <bide/sched/detail/worker.hpp>
#include <bide/sched/scheduler_options.hpp>
#include <bide/sync/detail/gate.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// The scheduler of the calling thread. In a fork-join, it is the scheduler of the fork-join.
// Otherwise it is the scheduler that started the thread. It is also set in callbacks, and on
// threads of a scheduler that own no worker.
template <class Platform> struct BIDE_SHARED basic_current_scheduler {
    scheduler* instance = nullptr;                  // nullptr: the thread belongs to no scheduler
    bool leaving = false;                           // the thread is in on_worker_stop
    const basic_current_scheduler* outer = nullptr; // the value before it entered a fork-join

    // Returns true if the thread belongs to `s` or is in a fork-join of it, even if it has entered
    // fork-joins of other schedulers meanwhile.
    static bool is_of(const scheduler& s) noexcept {
        for (const basic_current_scheduler* at = &here(); at != nullptr; at = at->outer) {
            if (at->instance == &s) {
                return true;
            }
        }
        return false;
    }
    static basic_current_scheduler& here() noexcept {
        return Platform::template local<basic_current_scheduler>();
    }
};
using current_scheduler = basic_current_scheduler<native_platform>;

// ---- Threads for blocking tasks

template <class Platform, class Pool, class Thread>
class basic_tended_pool : public basic_blocking_pool<Platform, Thread> {
    using base = basic_blocking_pool<Platform, Thread>;

public:
    BIDE_COLD basic_tended_pool(Pool& workers, typename base::options wanted) noexcept
        : base(with_attention(std::move(wanted), this)), workers_(workers) {
        timer_.fire = waker(&on_timer, this);
    }

    basic_tended_pool(const basic_tended_pool&) = delete;
    basic_tended_pool& operator=(const basic_tended_pool&) = delete;

    // Requires: no thread that fires timers of the workers is left, and no call is under way.
    BIDE_COLD ~basic_tended_pool() {
        this->finish();
        cancel_timer<Platform>(timer_);
    }

private:
    static typename base::options with_attention(typename base::options wanted,
                                                 basic_tended_pool* self) noexcept {
        wanted.attention = waker(&arm, self);
        return wanted;
    }

    BIDE_COLD static void arm(void* self) noexcept {
        auto& mine = *static_cast<basic_tended_pool*>(self);
        // Order: acquire [tended_pool.armed]; the last firing no longer uses the timer.
        if (!mine.armed_.exchange(true, std::memory_order_acquire)) {
            mine.timer_.when =
                deadline::at_ns(Platform::now() + basic_worker_host<Platform>::retry_ns);
            mine.workers_.workers()[0].timers.add(mine.timer_);
        }
    }

    BIDE_COLD static void on_timer(void* self) noexcept {
        auto& mine = *static_cast<basic_tended_pool*>(self);
        // Order: release [tended_pool.armed]; the next thread that arms the timer may write it.
        mine.armed_.store(false, std::memory_order_release);
        const bool leaves = mine.reap();
        if (mine.tend() || leaves) {
            arm(self);
        }
    }

    Pool& workers_;
    timer timer_;
    typename Platform::template atomic<bool> armed_{false};
};

// ---- All threads

// `Pool` is basic_pool and `Thread` is os_thread, or both are types of a model.
template <class Platform, class Pool = basic_pool<Platform>, class Thread = os_thread>
class basic_worker_threads : public Pool::owner {
    using current = basic_current_scheduler<Platform>;
    using blocking_pool_type = basic_tended_pool<Platform, Pool, Thread>;
    template <class T> using var = typename Platform::template var<T>;

public:
    using worker = typename Pool::worker;

    // Moves the callbacks out of `wanted`. `of` is the scheduler of the threads.
    BIDE_COLD basic_worker_threads(scheduler* of, scheduler_options& wanted,
                                   const typename Pool::options& how)
        : scheduler_(of), own_pool_(*this, how), name_(wanted.name), stack_size_(wanted.stack_size),
          pin_(wanted.pin_workers), on_start_(std::move(wanted.on_worker_start)),
          on_stop_(std::move(wanted.on_worker_stop)),
          blocking_(own_pool_,
                    {wanted.max_blocking_threads, wanted.blocking_keep_alive, name_, stack_size_}),
          threads_(own_pool_.workers().size()) {
        for (worker& w : own_pool_.workers()) {
            threads_.add(*this, w);
        }
        request_.run = waker(
            [](void* self) noexcept { static_cast<basic_worker_threads*>(self)->serve_request(); },
            this);
    }

    basic_worker_threads(const basic_worker_threads&) = delete;
    basic_worker_threads& operator=(const basic_worker_threads&) = delete;

    // Starts the threads, which run until end_threads(). Returns an error if one of them cannot be
    // started. Then no thread runs a worker or calls on_worker_start, because on_worker_start might
    // rely on the other threads.
    BIDE_COLD std::error_code start_threads() noexcept {
        std::error_code error;
        for (own_thread& p : threads_) {
            error = p.thread.start(
                [](void* self) noexcept { static_cast<own_thread*>(self)->run_own_worker(); }, &p,
                stack_size_);
            if (error) {
                threads_.shrink(p.mine.index);
                some_failed_ = true;
                break;
            }
        }
        start_is_over_.arrive(1);
        return error;
    }

    // Waits until all threads have ended.
    // Requires: the pool was stopped.
    BIDE_COLD void end_threads() noexcept {
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

    // Lets a thread for blocking tasks use every processor, even if a bound thread has started it.
    void unpin() noexcept {
        if (pin_) {
            mask_.apply();
        }
    }

    // ---- Of basic_pool_owner

    bool replace(worker& w) noexcept final {
        return hand_to_idle_thread(w) || blocking_.try_run(threads_[w.index]);
    }

    bool hand_to_idle_thread(worker& w) noexcept final {
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

    bool has_idle_thread() noexcept final {
        lock::acquire(lock_);
        const bool has = idle_threads_ != nullptr;
        lock::release_plain(lock_);
        return has;
    }

    // Posts a request. The next thread for blocking tasks that becomes free then runs a blocked
    // worker, until the worker's own thread returns. Returns false if the system has refused to
    // start such a thread. The caller then tries again.
    BIDE_COLD bool request_replacement() noexcept final {
        lock::acquire(lock_);
        // A thread became idle since replace(), and found no blocked worker.
        const bool has_idle_thread = idle_threads_ != nullptr;
        if (!has_idle_thread && !requested_) {
            std::error_code why;
            // Made under the lock: if it fails, no other thread relies on the request.
            requested_ = blocking_.post(request_, why);
        }
        // All present threads may be blocked.
        const bool requested = requested_ && !blocking_.tend();
        lock::release_plain(lock_);
        if (has_idle_thread) {
            own_pool_.replace_blocked();
        }
        return has_idle_thread || requested;
    }

    void wake_thread(unsigned number) noexcept final { threads_[number].parker.unpark(); }

    Pool& pool() noexcept { return own_pool_; }
    const Pool& pool() const noexcept { return own_pool_; }
    blocking_pool_type& blocking() noexcept { return blocking_; }

protected:
    ~basic_worker_threads() = default;

    scheduler* const scheduler_;

private:
    using lock = lock_bits<Platform, std::uint32_t>;

    // A worker and its own thread. As a runnable, it makes the thread that runs it a substitute for
    // that worker.
    struct own_thread : runnable {
        BIDE_COLD own_thread(basic_worker_threads& of, worker& which) noexcept
            : all(of), mine(which) {
            run = waker(
                [](void* self) noexcept { static_cast<own_thread*>(self)->run_as_substitute(); },
                this);
        }

        BIDE_COLD void run_own_worker() noexcept {
            all.start_is_over_.wait();
            if (all.some_failed_) {
                return;
            }
            Thread::name_this(all.name_, "-", mine.index);
            if (all.pin_) {
                all.mask_.apply_only(mine.index);
            }
            Pool::thread_role::here() = {&all.own_pool_, nullptr,
                                         &mine.pinned}; // for on_worker_start
            all.begin_worker(mine.index);
            for (worker* w = &mine; w != nullptr; w = wait_for_worker()) {
                all.own_pool_.run(*w, &mine.pinned);
            }
            all.end_worker(mine.index);
        }

        // Waits. Returns the worker that the thread must run, or nullptr if the thread must end.
        // The waker gives a token to the thread's parker in three cases: there is a worker for the
        // thread, there is a pinned job for it, or it must end. A token may be outdated.
        BIDE_COLD worker* wait_for_worker() noexcept {
            for (;;) {
                if (worker* const blocked = all.own_pool_.run_pinned(mine.pinned)) {
                    return blocked;
                }
                lock::acquire(all.lock_);
                const bool over = all.over_;
                if (!over) { // it becomes an idle thread
                    next_idle = static_cast<own_thread*>(all.idle_threads_);
                    all.idle_threads_ = this;
                }
                lock::release_plain(all.lock_);
                if (over) {
                    return nullptr;
                }
                all.own_pool_.replace_blocked(); // a thread may have found no idle thread before
                for (own_thread& other : all.threads_) {
                    lock::acquire(all.lock_);
                    const bool has_substitute = other.substitutes != 0;
                    lock::release_plain(all.lock_);
                    if (has_substitute) {
                        all.own_pool_.wake(other.mine);
                    }
                }
                parker.park();
                lock::acquire(all.lock_);
                var<own_thread*>* at = &all.idle_threads_;
                own_thread* found = *at;
                while (found != nullptr && found != this) {
                    at = &found->next_idle;
                    found = *at;
                }
                if (found != nullptr) { // no other thread has removed it
                    *at = static_cast<own_thread*>(next_idle);
                }
                worker* const given = next_worker;
                next_worker = nullptr;
                lock::release_plain(all.lock_);
                if (given != nullptr) {
                    return given;
                }
            }
        }

        BIDE_COLD void run_as_substitute() noexcept {
            const auto count = [this](int by) noexcept {
                lock::acquire(all.lock_);
                substitutes = substitutes + static_cast<unsigned>(by);
                lock::release_plain(all.lock_);
            };
            all.unpin();
            all.begin_worker(mine.index);
            count(1);
            all.own_pool_.run(mine, nullptr, true);
            count(-1);
            all.end_worker(mine.index);
        }

        basic_worker_threads& all;
        worker& mine;
        Thread thread;
        basic_parker<Platform> parker; // where it waits as an idle thread
        // Under the lock:
        var<own_thread*> next_idle{nullptr};
        var<worker*> next_worker{nullptr};
        var<unsigned> substitutes{0}; // threads that run or leave `mine` in its place
    };

    // Runs on a thread for blocking tasks.
    BIDE_COLD void serve_request() noexcept {
        lock::acquire(lock_);
        requested_ = false; // a later request is queued again
        lock::release_plain(lock_);
        if (worker* const w = own_pool_.take_blocked()) {
            own_pool_
                .replace_blocked(); // the owners of several workers may have relied on one request
            threads_[w->index].run_as_substitute();
        }
    }

    BIDE_COLD void begin_worker(unsigned index) noexcept {
        current::here().instance = scheduler_;
        if (on_start_) {
            call_noexcept("on_worker_start", [&] { on_start_(index); });
        }
    }

    BIDE_COLD void end_worker(unsigned index) noexcept {
        current::here().leaving = true;
        if (on_stop_) {
            call_noexcept("on_worker_stop", [&] { on_stop_(index); });
        }
        current::here() = {};
    }

    Pool own_pool_;
    const std::string name_;
    const std::size_t stack_size_;
    const bool pin_;
    const cpu_mask mask_;
    const std::function<void(unsigned)> on_start_;
    const std::function<void(unsigned)> on_stop_;
    blocking_pool_type blocking_;
    fixed_array<own_thread> threads_;
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

}}} // namespace bide::BIDE_ABI::detail

#endif
