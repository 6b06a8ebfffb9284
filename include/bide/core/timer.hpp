#ifndef BIDE_CORE_TIMER_HPP
#define BIDE_CORE_TIMER_HPP

// The service thread: time-outs of coroutines outside of schedulers, and the place where a coroutine
// without any executor goes on after a stop or a time-out. One for the process, started on first
// use, never ended.
//
// It sleeps in its ready queue until the earliest of its timers; one that becomes the earliest posts
// a nudge there, so there is one sleep protocol and not two.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/ready_queue.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/timer_queue.hpp>
#include <bide/core/waker.hpp>

#include <cstdint>
#include <thread>

#if defined(__linux__)
#include <signal.h>
#endif

namespace bide::inline BIDE_ABI {

template <class Platform> class basic_timer_service {
public:
    constexpr basic_timer_service() noexcept : timers_(waker(&nudge, this)) {}
    basic_timer_service(const basic_timer_service&) = delete;
    basic_timer_service& operator=(const basic_timer_service&) = delete;

    // As a timer queue's (core/timer_queue.hpp), fired on the service thread.
    void add(timer& t) noexcept { timers_.add(t); }
    bool cancel(timer& t) noexcept { return timers_.cancel(t); }

    // An intrusive executor: runs on the service thread.
    void post(runnable& r) noexcept { queue_.post(r); }

    // The service thread's body.
    [[noreturn]] void run() noexcept;

private:
    using word = std::uint32_t;
    using lock_word = lock_bits<Platform, word>;

    static void nudge(void* self) noexcept;
    bool exchange_nudged(bool value) noexcept;

    basic_timer_queue<Platform> timers_;
    basic_ready_queue<Platform> queue_;
    runnable nudge_;
    typename Platform::template atomic<word> lock_{0};
    typename Platform::template var<bool> nudged_{false}; // under lock_: nudge_ is in the queue
};

// One that finds a nudge under way need not post its own: the service, which takes that one out
// under the same lock, looks at the timers afterwards.
template <class Platform> void basic_timer_service<Platform>::nudge(void* self) noexcept {
    auto& service = *static_cast<basic_timer_service*>(self);
    if (!service.exchange_nudged(true)) {
        service.queue_.post(service.nudge_);
    }
}

template <class Platform> bool basic_timer_service<Platform>::exchange_nudged(bool value) noexcept {
    lock_word::acquire(lock_);
    const bool old = nudged_;
    nudged_ = value;
    lock_word::release(lock_);
    return old;
}

template <class Platform> void basic_timer_service<Platform>::run() noexcept {
    for (;;) {
        const std::int64_t now = Platform::now();
        timers_.fire_due(now);
        const std::int64_t next = timers_.next_ns();
        runnable* const r = queue_.pop(next > now ? deadline::at_ns(next) : deadline::poll());
        if (r == &nudge_) {
            exchange_nudged(false);
        } else if (r != nullptr) {
            wake_scope<Platform> scope;
            r->run.wake();
        }
    }
}

namespace detail {

// While one lives, the threads that this one starts handle no signal of the program's.
class signals_blocked {
public:
    signals_blocked() noexcept {
#if defined(__linux__)
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before_);
#endif
    }
    signals_blocked(const signals_blocked&) = delete;
    signals_blocked& operator=(const signals_blocked&) = delete;
    ~signals_blocked() {
#if defined(__linux__)
        ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
#endif
    }

private:
#if defined(__linux__)
    sigset_t before_;
#endif
};

} // namespace detail

// The process's service, running when this returns. It is never destroyed: threads may outlive
// statics.
// Throws: std::system_error when its thread cannot be started.
template <class Platform> basic_timer_service<Platform>& timer_service() {
    if constexpr (Platform::model) {
        return Platform::timer_service();
    } else {
        static basic_timer_service<Platform>* const service = [] {
            static basic_timer_service<Platform> made;
            const detail::signals_blocked blocked;
            std::thread([] { made.run(); }).detach();
            return &made;
        }();
        return *service;
    }
}

} // namespace bide::inline BIDE_ABI

#endif
