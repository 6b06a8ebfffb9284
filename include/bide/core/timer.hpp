// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_TIMER_HPP
#define BIDE_CORE_TIMER_HPP

/// \file
/// Serves the process outside of schedulers. The service fires the time-outs of coroutines, and it
/// resumes coroutines without an executor after a stop or a time-out. The first use starts it. It
/// never ends. A child of fork() starts its own. It consists of two parts:
///
/// \code
///   timer thread   Decides time-outs and runs no coroutine.
///   resumers       Run the posted coroutines: one thread, and more while these block or compute, at
///                  most 256 (core/detail/resumers.hpp).
/// \endcode
///
/// So a coroutine that blocks delays no time-out and no stop. It delays other coroutines by a few
/// milliseconds, until another resumer starts. If many coroutines block at once outside of bide,
/// the number of resumers doubles about every 5 ms, up to 256.
///
/// If a time-out lets a foreign waker through, that waker runs on the timer thread. All time-outs
/// of the service wait for it, so it should mark its waiter runnable and return (core/waker.hpp).
///
/// If the threads cannot be started, an operation that asks for a time-out or a stop throws
/// std::system_error. Operations that cannot throw report it and terminate: a stop that resumes
/// coroutines; a wait with a time-out, if it was constructed on a worker and begins on another
/// thread; a post to a scheduler that has ended.
//
// The timer thread sleeps in its ready queue until the earliest time-out. If a new timer is the
// earliest, its thread posts a wake-up to that queue; so does a thread whose runnable needs another
// resumer. So the service has only one sleep protocol.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/detail/os_thread.hpp>
#include <bide/core/detail/process_wide.hpp>
#include <bide/core/detail/resumers.hpp>
#include <bide/core/detail/task_context.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/parker.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/ready_queue.hpp>
#include <bide/core/timer_queue.hpp>
#include <bide/core/wake_scope.hpp>
#include <bide/core/waker.hpp>

#include <cstdint>
#include <new>
#include <system_error>
#include <type_traits>

namespace bide::inline BIDE_ABI {

/// Fires timers and runs runnables on its own threads.
/// Thread safety: any thread calls any function, except run().
template <class Platform> class BIDE_SHARED basic_timer_service {
public:
    /// Makes a service without threads.
    constexpr basic_timer_service() noexcept
        : timers_(waker(&post_wake_up, this)), resumers_(timers_, waker(&post_wake_up, this)) {}
    basic_timer_service(const basic_timer_service&) = delete;
    basic_timer_service& operator=(const basic_timer_service&) = delete;

    /// Starts the threads, unless they run.
    /// Returns: an error if one of them cannot be started.
    std::error_code start() noexcept;

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

    static void body(void* self) noexcept;
    static void post_wake_up(void* self) noexcept;
    bool exchange_posted(bool value) noexcept;

    basic_timer_queue<Platform> timers_;
    detail::basic_resumers<Platform> resumers_;
    basic_ready_queue<Platform> queue_;
    runnable wake_up_;
    typename Platform::template atomic<word> lock_{0};
    typename Platform::template atomic<bool> runs_{false}; // written under lock_
    typename Platform::template var<bool> posted_{false};  // under lock_: wake_up_ is in the queue
};

template <class Platform> basic_timer_service<Platform>& timer_service();

template <class Platform> std::error_code basic_timer_service<Platform>::start() noexcept {
    // Order: relaxed; the flag publishes no data. Shared data is accessed under locks.
    if (runs_.load(std::memory_order_relaxed)) {
        return {};
    }
    std::error_code error;
    lock_word::acquire(lock_);
    // Order: relaxed; under the lock.
    if (!runs_.load(std::memory_order_relaxed)) {
        error = resumers_.start();
        if (!error) {
            error = detail::start_service_thread<Platform>(&body, this);
        }
        // Order: relaxed; under the lock.
        runs_.store(!error, std::memory_order_relaxed);
    }
    lock_word::release_plain(lock_);
    return error;
}

// If a wake-up is posted already, this call posts no second one. The timer thread takes the posted
// one out under the same lock, and checks the timers and the resumers afterwards.
template <class Platform> void basic_timer_service<Platform>::post_wake_up(void* self) noexcept {
    auto& service = *static_cast<basic_timer_service*>(self);
    if (!service.exchange_posted(true)) {
        service.queue_.post(service.wake_up_);
    }
}

template <class Platform> bool basic_timer_service<Platform>::exchange_posted(bool value) noexcept {
    lock_word::acquire(lock_);
    const bool old = posted_;
    posted_ = value;
    lock_word::release_plain(lock_);
    return old;
}

template <class Platform> void basic_timer_service<Platform>::body(void* self) noexcept {
    if constexpr (!Platform::model) {
        detail::os_thread::name_this("bide", "-t", 0);
    }
    static_cast<basic_timer_service*>(self)->run();
}

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

// The same for callers that cannot throw. Terminates with a message if it cannot be started.
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

// Returns the executor for coroutines without one that must not resume on this thread. Terminates
// if there is no other thread and none can be started.
template <class Platform> executor_ref service_executor() noexcept {
    const executor_ref worker = current_worker<Platform>();
    return worker ? worker : executor_ref(required_service<Platform>());
}

// Returns the executor for coroutines without one that may also resume on this thread. Refers to
// none if no thread can be started.
template <class Platform> executor_ref spare_executor() noexcept {
    const executor_ref worker = current_worker<Platform>();
    if (worker) {
        return worker;
    }
    std::error_code error;
    auto* const service = started_service<Platform>(error);
    return service != nullptr ? executor_ref(*service) : executor_ref();
}

// Returns the simulation of this thread, which takes the place of the service.
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

// Arms the time-out of a wait. If the running task is about to begin that wait, and will resume on
// this scheduler, the scheduler takes the timer. That is safe, because the task ends before its
// scheduler does. The service takes all other timers.
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

} // namespace bide::inline BIDE_ABI

#endif
