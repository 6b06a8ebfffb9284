#ifndef BIDE_CORE_TIMER_HPP
#define BIDE_CORE_TIMER_HPP

// The service: time-outs of coroutines outside of schedulers, and the place where a coroutine
// without any executor goes on after a stop or a time-out. One for the process, started on first
// use, never ended; a child of fork() starts one of its own. It consists of
//
//   the timer thread   decides time-outs, and runs no coroutine
//   the resumers       run what is posted, which is coroutines: one thread, and more while these
//                      block or compute, at most 256 (core/detail/resumers.hpp)
//
// So a coroutine that blocks delays no time-out and no stop. It delays other coroutines by a few
// milliseconds, until another resumer starts. Where many block at once in a way that bide does not
// see, the number of resumers doubles every few milliseconds, up to 256.
//
// A foreign waker that a time-out lets through runs on the timer thread: all time-outs of the
// service wait for it, so it has to mark and return (core/waker.hpp).
//
// If the threads cannot be started, what asks for a time-out or a stop throws std::system_error. What
// cannot throw says so and terminates: a stop that has coroutines to resume, a wait with a time-out
// that was made on a worker and begins elsewhere, a post to a scheduler that has ended.
//
// The timer thread sleeps in its ready queue until the earliest of its timers; one that becomes the
// earliest posts a nudge there, and so does a runnable that needs another resumer. So there is one
// sleep protocol and not two.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/detail/os_thread.hpp>
#include <bide/core/detail/process_wide.hpp>
#include <bide/core/detail/resumers.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/ready_queue.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/timer_queue.hpp>
#include <bide/core/waker.hpp>

#include <cstdint>
#include <new>
#include <system_error>
#include <type_traits>

namespace bide::inline BIDE_ABI {

template <class Platform> class basic_timer_service {
public:
    constexpr basic_timer_service() noexcept
        : timers_(waker(&nudge, this)), resumers_(timers_, waker(&nudge, this)) {}
    basic_timer_service(const basic_timer_service&) = delete;
    basic_timer_service& operator=(const basic_timer_service&) = delete;

    // Starts the threads, unless they run. An error: one of them cannot be started.
    std::error_code start() noexcept;

    // As a timer queue's (core/timer_queue.hpp), fired on the timer thread.
    void add(timer& t) noexcept { timers_.add(t); }
    bool cancel(timer& t) noexcept { return timers_.cancel(t); }

    // An intrusive executor: runs on a resumer, in the order of the posts, but several at once.
    void post(runnable& r) noexcept { resumers_.post(r); }

    // A snapshot: what was posted was run to its end.
    bool is_idle() const noexcept { return resumers_.is_idle(); }

    // The timer thread's body.
    [[noreturn]] void run() noexcept;

private:
    using word = std::uint32_t;
    using lock_word = lock_bits<Platform, word>;

    static void body(void* self) noexcept;
    static void nudge(void* self) noexcept;
    bool exchange_nudged(bool value) noexcept;

    basic_timer_queue<Platform> timers_;
    detail::basic_resumers<Platform> resumers_;
    basic_ready_queue<Platform> queue_;
    runnable nudge_;
    typename Platform::template atomic<word> lock_{0};
    typename Platform::template atomic<bool> runs_{false}; // changed under lock_
    typename Platform::template var<bool> nudged_{false};  // under lock_: nudge_ is in the queue
};

template <class Platform> basic_timer_service<Platform>& timer_service();

template <class Platform> std::error_code basic_timer_service<Platform>::start() noexcept {
    // Order: relaxed; it publishes nothing, the threads share what is under locks.
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
        // Order: relaxed; as above.
        runs_.store(!error, std::memory_order_relaxed);
    }
    lock_word::release(lock_);
    return error;
}

// One that finds a nudge under way need not post its own: the timer thread, which takes that one out
// under the same lock, looks at the timers and the resumers afterwards.
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
        const std::int64_t look = resumers_.look(now);
        const std::int64_t timer = timers_.next_ns();
        const std::int64_t next = timer < look ? timer : look;
        runnable* const r = queue_.pop(next > now ? deadline::at_ns(next) : deadline::poll());
        if (r == &nudge_) {
            exchange_nudged(false);
        }
    }
}

namespace detail {

// The process's service, started; nullptr: `error` says why it cannot be.
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

// The same for what cannot throw. Terminates with a message where it cannot be started.
template <class Platform> basic_timer_service<Platform>& required_service() noexcept {
    std::error_code error;
    auto* const service = started_service<Platform>(error);
    if (service == nullptr) {
        fatal("the service threads cannot be started");
    }
    return *service;
}

} // namespace detail

// The process's service, which runs when this returns.
// Throws: std::system_error when its threads cannot be started.
template <class Platform> basic_timer_service<Platform>& timer_service() {
    std::error_code error;
    auto* const service = detail::started_service<Platform>(error);
    if (service == nullptr) {
        BIDE_THROW(std::system_error(error, "bide's service threads cannot be started"));
    }
    return *service;
}

} // namespace bide::inline BIDE_ABI

#endif
