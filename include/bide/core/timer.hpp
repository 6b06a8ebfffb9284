// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_TIMER_HPP
#define BIDE_CORE_TIMER_HPP

/// \file
/// The timer service. It fires the time-outs of coroutines that no scheduler fires. It also resumes
/// coroutines that have no executor, after a stop or a time-out. A process has one service. The
/// first use starts it, and it never ends. A child of fork() starts its own. The service consists
/// of two parts:
///
/// \code
///   timer thread   Decides time-outs and runs no coroutine.
///   resumers       Run the posted coroutines: one thread, and more while these block or compute, at
///                  most 256.
/// \endcode
///
/// So a coroutine that blocks delays no time-out and no stop. It delays other coroutines by a few
/// milliseconds, until another resumer starts. If many coroutines block at once outside of bide,
/// the number of resumers doubles about every 5 ms, up to 256.
///
/// A program may wait by a waker of its own. If a time-out ends such a wait, the waker runs on the
/// timer thread. All time-outs of the service wait until the waker returns, so it should only make
/// its waiter runnable (core/executor.hpp).
///
/// If the threads cannot be started, an operation that asks for a time-out or a stop throws
/// std::system_error. Three operations cannot throw; they report the error and terminate: a stop
/// that resumes coroutines; a wait with a time-out whose operation was constructed on a worker and
/// begins on another thread; a post to a scheduler that has ended.
//
// The timer thread sleeps in its ready queue until the earliest time-out. A thread posts a wake-up
// to that queue if its new timer is the earliest, or if its runnable needs another resumer. So the
// service has only one sleep protocol.

#include <bide/core/detail/os_thread.hpp>
#include <bide/core/detail/process_wide.hpp>
#include <bide/core/detail/task_context.hpp>
#include <bide/core/parker.hpp>
#include <bide/core/ready_queue.hpp>
#include <bide/core/timer_queue.hpp>

#include <system_error>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// ---- Resumers
//
// The threads that resume coroutines if these have no executor. A resumer runs user code, which may
// block. So a blocked resumer is replaced: while a runnable is queued, some resumer is about to
// take it.
//
//   post     Wakes an idle resumer. If none is idle, an active resumer takes the runnable later.
//   blocks   A resumer sleeps in bide. If it was the last active one, another resumer starts.
//   late     A runnable has waited for `late_ns`: all resumers compute, or block outside of bide
//            (read(), std::mutex, sleep_for). The number of active resumers is at most doubled.
//
// One lock guards all decisions. `active_` counts the resumers that run or are about to run,
// including those that are being woken or started. While a runnable is queued, no resumer is idle:
// a resumer becomes idle only if the queue is empty, and a post takes a resumer out of the idle
// list. So a queued runnable has an active resumer. Then one of three things happens: that resumer
// takes the runnable, the resumer blocks, or the runnable becomes late. If a step leaves the
// runnable without an active resumer, that step calls `attention`. The timer thread answers that
// call with start_needed(). Only start_needed() starts resumers after the first. If no resumer can
// be started, start_needed() asks to be called again after `late_ns`.

// Starts a thread that is never joined, by Platform::start_thread() if the platform has it.
template <class Platform>
std::error_code start_service_thread(os_thread::function body, void* argument) noexcept {
    if constexpr (requires { Platform::start_thread(body, argument); }) {
        return Platform::start_thread(body, argument);
    } else {
        return os_thread::start_detached(body, argument);
    }
}

// Owns the resumers, and is their host (core/wake_scope.hpp) while they run user code.
// Requires: this object is not destroyed while it has threads.
template <class Platform> class basic_resumers final : public basic_worker_host<Platform> {
public:
    static constexpr unsigned most_threads = Platform::model ? 2 : 256;

    // If a runnable is queued for longer than this time, it is late. The time is longer than a
    // coroutine usually runs between two waits, and longer than a computing thread keeps its
    // processor. It is shorter than usual time-outs.
    static constexpr std::int64_t late_ns = 5'000'000;

    // An idle resumer ends after this time, except the last one.
    static constexpr std::int64_t keep_alive_ns = 10'000'000'000;

    static constexpr std::int64_t never_ns = (std::numeric_limits<std::int64_t>::max)();

    // If start_needed() must be called, wakes `attention`, outside the lock.
    explicit constexpr basic_resumers(basic_timer_queue<Platform>& timers, waker attention) noexcept
        : timers_(timers), attention_(attention) {}
    basic_resumers& operator=(basic_resumers&&) = delete;

    // Starts the first resumer, if there is none. Returns an error if it cannot be started.
    std::error_code start() noexcept {
        lock();
        const bool first = threads_ == 0;
        if (first) {
            threads_ = 1;
            active_ = 1;
        }
        unlock();
        return first ? start_thread() : std::error_code();
    }

    // Runs `r` on a resumer. Any thread may call it.
    // Requires: `r` exists until it is run.
    void post(runnable& r) noexcept {
        lock();
        queue_.push(r);
        posted_ = posted_ + 1;
        resumer* const idle = idle_;
        bool call = false;
        if (idle != nullptr) {
            idle_ = idle->next;
            active_ = active_ + 1;
        } else {
            call = !scheduled_ || active_ == 0;
        }
        unlock();
        if (idle != nullptr) {
            idle->parker.unpark(); // the resumer lives until it has taken this token
        } else if (call) {
            attention_.wake();
        }
    }

    // Starts the resumers that are needed. Returns the steady time at which to call it again.
    // Called by one thread at a time.
    std::int64_t start_needed(std::int64_t now) noexcept {
        unsigned start = 0;
        std::int64_t next = never_ns;
        lock();
        if (queue_.first() == nullptr) {
            scheduled_ = false;
        } else {
            const bool due = scheduled_ && now >= due_;
            const bool late = due && static_cast<std::int32_t>(late_count_ - taken_) > 0;
            if (due || !scheduled_) {
                late_count_ = posted_;
                due_ = now + late_ns;
            }
            const bool full =
                threads_ == most_threads; // a resumer that unblocks takes the runnables
            const unsigned room = most_threads - threads_;
            const auto waiting = static_cast<std::uint32_t>(posted_ - taken_);
            start = active_ == 0 ? 1 : late ? static_cast<unsigned>(active_) : 0;
            start = start < waiting ? start : waiting;
            start = start < room ? start : room;
            threads_ = threads_ + start;
            active_ = active_ + start;
            scheduled_ = !full;
            next = full ? never_ns : static_cast<std::int64_t>(due_);
        }
        unlock();
        for (; start != 0; --start) {
            start_thread(); // if it fails, the next call tries again
        }
        return next;
    }

    // Returns whether no runnable is queued and no resumer runs one. A snapshot.
    bool is_idle() const noexcept {
        const typename lock_word::guard section(lock_);
        unsigned idle = 0;
        for (const resumer* r = idle_; r != nullptr; r = r->next) {
            ++idle;
        }
        return queue_.first() == nullptr && idle == threads_;
    }

    // The functions of the host of a resumer that runs user code.
    void yield(runnable& r) noexcept override { post(r); }
    void add_timer(timer& t) noexcept override { timers_.add(t); }
    bool blocks() noexcept override {
        lock();
        active_ = active_ - 1;
        const bool call = active_ == 0 && queue_.first() != nullptr;
        unlock();
        if (call) {
            attention_.wake();
        }
        return true; // start_needed() tries again if a start fails
    }
    void unblocks() noexcept override {
        const typename lock_word::guard section(lock_);
        active_ = active_ + 1;
    }
    executor_ref executor() noexcept override { return {}; }

private:
    using word = std::uint32_t;
    using lock_word = lock_bits<Platform, word>;
    template <class T> using var = typename Platform::template var<T>;

    // One resumer, in the frame of its thread.
    struct resumer {
        resumer* next = nullptr; // the next older idle resumer
        basic_parker<Platform> parker;
    };

    void lock() const noexcept { lock_word::acquire(lock_); }
    void unlock() const noexcept { lock_word::release_plain(lock_); }

    // Starts a resumer that is counted already. If the start fails, takes it out of the counts.
    std::error_code start_thread() noexcept {
        const std::error_code error = start_service_thread<Platform>(&body, this);
        if (error) {
            lock();
            threads_ = threads_ - 1;
            active_ = active_ - 1;
            unlock();
        }
        return error;
    }
    static void body(void* self) noexcept { static_cast<basic_resumers*>(self)->run(); }
    void run() noexcept {
        if constexpr (!Platform::model) {
            lock();
            const unsigned number = named_;
            named_ = number + 1;
            unlock();
            os_thread::name_this("bide", "-r", number);
        }
        resumer me;
        while (runnable* const r = next(me)) {
            worker_local<Platform>::get().host = this;
            {
                wake_scope<Platform> scope;
                r->run.wake();
            }
            worker_local<Platform>::get().host = nullptr;
        }
    }
    // Returns the next runnable. Returns nullptr if this thread was idle for too long; this thread
    // is then no longer counted as a resumer.
    runnable* next(resumer& me) noexcept {
        lock();
        for (;;) {
            if (runnable* const r = queue_.pop()) {
                taken_ = taken_ + 1;
                unlock();
                return r;
            }
            active_ = active_ - 1;
            resumer* const below = idle_;
            me.next = below;
            idle_ = &me;
            unlock();
            const bool woken = me.parker.park_until(
                below == nullptr ? deadline::never()
                                 : deadline::at_ns(Platform::now() + keep_alive_ns));
            lock();
            if (!woken && take_out(me)) {
                threads_ = threads_ - 1;
                unlock();
                return nullptr;
            }
            if (!woken) { // a post took it out of the idle list and is about to leave a token
                unlock();
                me.parker.park();
                lock();
            }
        }
    }
    // Called with the lock. Returns false if the resumer is not in the idle list.
    bool take_out(const resumer& me) noexcept {
        resumer* above = nullptr;
        for (resumer* r = idle_; r != nullptr; above = r, r = r->next) {
            if (r == &me) {
                if (above == nullptr) {
                    idle_ = me.next;
                } else {
                    above->next = me.next;
                }
                return true;
            }
        }
        return false;
    }

    basic_timer_queue<Platform>& timers_;
    const waker attention_;

    mutable typename Platform::template atomic<word> lock_{0};

    // Under the lock:
    run_list queue_;
    var<resumer*> idle_{nullptr};  // the newest idle resumer; its `next` leads to the older ones
    var<unsigned> threads_{0};     // threads that run or are being started
    var<unsigned> active_{0};      // of these: threads that are neither idle nor blocked
    var<unsigned> named_{0};       // threads that were given a name
    var<std::uint32_t> posted_{0}; // runnables that were posted
    var<std::uint32_t> taken_{0};  // runnables that were taken
    var<bool> scheduled_{false};   // start_needed() will be called again at its own request
    var<std::uint32_t> late_count_{0}; // `posted_` when `due_` was set
    var<std::int64_t> due_{0};         // when the first `late_count_` runnables are late
};

} // namespace detail

/// Fires timers and runs runnables on its own threads.
/// Thread safety: any thread calls any function, except run().
template <class Platform> class BIDE_SHARED basic_timer_service {
public:
    /// Makes a service without threads.
    constexpr basic_timer_service() noexcept
        : timers_(waker(&post_wake_up, this)), resumers_(timers_, waker(&post_wake_up, this)) {}
    basic_timer_service& operator=(basic_timer_service&&) = delete;

    /// Starts the threads if they do not run.
    /// Returns: an error if one of them cannot be started.
    std::error_code start() noexcept {
        // Order: relaxed; the flag publishes no data. Shared data is accessed under locks.
        if (runs_.load(std::memory_order_relaxed)) {
            return {};
        }
        std::error_code error;
        const typename lock_word::guard section(lock_);
        // Order: relaxed; under the lock.
        if (!runs_.load(std::memory_order_relaxed)) {
            error = resumers_.start();
            if (!error) {
                error = detail::start_service_thread<Platform>(&body, this);
            }
            // Order: relaxed; under the lock.
            runs_.store(!error, std::memory_order_relaxed);
        }
        return error;
    }

    /// Arms `t`, as basic_timer_queue::add() does. The timer thread fires it.
    void add(timer& t) noexcept { timers_.add(t); }
    /// Cancels `t`, as basic_timer_queue::cancel() does.
    bool cancel(timer& t) noexcept { return timers_.cancel(t); }

    /// Runs `r` on a resumer. Runnables begin in the order of the posts, and several run at once.
    void post(runnable& r) noexcept { resumers_.post(r); }

    /// Returns whether every posted runnable has ended. A snapshot.
    bool is_idle() const noexcept { return resumers_.is_idle(); }

    /// Is the body of the timer thread.
    [[noreturn]] void run() noexcept;

private:
    using word = std::uint32_t;
    using lock_word = lock_bits<Platform, word>;

    static void body(void* self) noexcept {
        if constexpr (!Platform::model) {
            detail::os_thread::name_this("bide", "-t", 0);
        }
        static_cast<basic_timer_service*>(self)->run();
    }
    // If a wake-up is posted already, this call posts no second one. The timer thread takes the
    // posted wake-up out under the same lock, and checks the timers and the resumers afterwards.
    static void post_wake_up(void* self) noexcept {
        auto& service = *static_cast<basic_timer_service*>(self);
        if (!service.exchange_posted(true)) {
            service.queue_.post(service.wake_up_);
        }
    }
    bool exchange_posted(bool value) noexcept {
        const typename lock_word::guard section(lock_);
        const bool old = posted_;
        posted_ = value;
        return old;
    }

    basic_timer_queue<Platform> timers_;
    detail::basic_resumers<Platform> resumers_;
    basic_ready_queue<Platform> queue_;
    runnable wake_up_;
    typename Platform::template atomic<word> lock_{0};
    typename Platform::template atomic<bool> runs_{false}; // written under lock_
    typename Platform::template var<bool> posted_{false};  // under lock_: wake_up_ is in the queue
};

template <class Platform> basic_timer_service<Platform>& timer_service();

template <class Platform> void basic_timer_service<Platform>::run() noexcept {
    for (;;) {
        const std::int64_t now = Platform::now();
        {
            wake_scope<Platform> away(
                +[]() noexcept -> executor_ref { return timer_service<Platform>(); });
            timers_.fire_due(now);
        }
        const std::int64_t check = resumers_.start_needed(now);
        const std::int64_t timer = timers_.next_ns();
        const std::int64_t next = timer < check ? timer : check;
        runnable* const r = queue_.pop(next > now ? deadline::at_ns(next) : deadline::poll());
        if (r == &wake_up_) {
            exchange_posted(false);
        }
    }
}

namespace detail {

// Starts the service of the process and returns it. Returns nullptr and sets `error` if it cannot
// be started.
template <class Platform>
basic_timer_service<Platform>* started_service(std::error_code& error) noexcept {
    if constexpr (Platform::model) {
        return Platform::timer_service();
    } else {
        using service = basic_timer_service<Platform>;
        service* const one = process_wide<service, Platform>::get(
            +[]() noexcept { return new (std::nothrow) service; });
        error = one != nullptr ? one->start() : std::make_error_code(std::errc::not_enough_memory);
        return error ? nullptr : one;
    }
}

// Starts the service of the process and returns it, for callers that cannot throw. Terminates with
// a message if the service cannot be started.
template <class Platform> basic_timer_service<Platform>& required_service() noexcept {
    std::error_code error;
    auto* const service = started_service<Platform>(error);
    if (service == nullptr) {
        fatal("the service threads cannot be started");
    }
    return *service;
}

} // namespace detail

/// Starts the service of the process and returns it.
/// Throws: std::system_error if its threads cannot be started.
template <class Platform> basic_timer_service<Platform>& timer_service() {
    std::error_code error;
    auto* const service = detail::started_service<Platform>(error);
    if (service == nullptr) {
        BIDE_THROW(std::system_error(error, "bide's service threads cannot be started"));
    }
    return *service;
}

// ---- What a wait needs of the service

namespace detail {

// Returns the executor for a coroutine that has no executor of its own and must not resume on this
// thread. If there is no other thread and none can be started, terminates.
template <class Platform> executor_ref service_executor() noexcept {
    const executor_ref worker = current_worker<Platform>();
    return worker ? worker : executor_ref(required_service<Platform>());
}

// Returns the executor for a coroutine that has no executor of its own and may also resume on this
// thread. If no thread can be started, the result refers to no executor.
template <class Platform> executor_ref spare_executor() noexcept {
    const executor_ref worker = current_worker<Platform>();
    if (worker) {
        return worker;
    }
    std::error_code error;
    auto* const service = started_service<Platform>(error);
    return service != nullptr ? executor_ref(*service) : executor_ref();
}

// Returns the simulation of this thread, which replaces the service.
template <class Platform> simulated_machine* simulation_here() noexcept {
    if constexpr (std::is_same_v<Platform, native_platform>) {
        return simulated_machine::here();
    } else {
        return nullptr;
    }
}

// Arms a time-out that no scheduler takes.
template <class Platform> void add_service_timer(timer& t) noexcept {
    if (auto* const simulated = simulation_here<Platform>()) [[unlikely]] {
        simulated->add_timer(t);
    } else {
        required_service<Platform>().add(t);
    }
}

// Arms the time-out of a wait. The timer goes to the scheduler of this worker if the running task
// is about to begin that wait, and will resume on this scheduler. That is safe, because the task
// ends before its scheduler does. Every other timer goes to the service.
template <class Platform> void add_timer(timer& t) noexcept {
    const auto& here = worker_local<Platform>::get();
    if (here.host != nullptr && here.running != nullptr &&
        here.host->serves(here.running->goes_on_at())) {
        here.host->add_timer(t);
    } else {
        add_service_timer<Platform>(t);
    }
}

// Starts the service if it will take this thread's time-outs.
// Throws: std::system_error if the service cannot be started.
template <class Platform> void prepare_timers() {
    if (worker_local<Platform>::get().host == nullptr && simulation_here<Platform>() == nullptr) {
        timer_service<Platform>();
    }
}

} // namespace detail

BIDE_COMPILED_TEMPLATE(class basic_timer_service<native_platform>)
BIDE_COMPILED_TEMPLATE(class detail::basic_resumers<native_platform>)
BIDE_COMPILED_TEMPLATE(basic_timer_service<native_platform>& timer_service<native_platform>())
BIDE_COMPILED_TEMPLATE(executor_ref detail::service_executor<native_platform>() noexcept)
BIDE_COMPILED_TEMPLATE(executor_ref detail::spare_executor<native_platform>() noexcept)
BIDE_COMPILED_TEMPLATE(void detail::add_service_timer<native_platform>(timer&) noexcept)
BIDE_COMPILED_TEMPLATE(void detail::add_timer<native_platform>(timer&) noexcept)
BIDE_COMPILED_TEMPLATE(void detail::prepare_timers<native_platform>())

}} // namespace bide::BIDE_ABI

#endif
