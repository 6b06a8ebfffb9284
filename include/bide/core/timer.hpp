#ifndef BIDE_CORE_TIMER_HPP
#define BIDE_CORE_TIMER_HPP

// The service thread: time-outs of coroutines, and the place where a coroutine without any executor
// goes on after a stop or a time-out. One for the process, started on first use, never ended.
//
// Timers stand in a heap under a lock of two bits. The thread sleeps in its ready queue until the
// earliest of them; one that becomes the earliest posts a nudge there, so there is one sleep
// protocol and not two. A timer fires outside the lock, announced in `firing_`: cancel() of a timer
// that is firing waits until that is over, except on the service thread itself, whose current
// firing is the very call it is in. After cancel() nothing touches the timer.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/pairing_heap.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/ready_queue.hpp>
#include <bide/core/resume.hpp>

#include <cstdint>
#include <limits>
#include <thread>

#if defined(__linux__)
#include <signal.h>
#endif

namespace bide::inline BIDE_ABI {

// A time-out in its owner's frame. `fire` runs on the service thread, once, not before `when`.
struct timer {
    waker fire;
    deadline when = deadline::never();

    bool before(const timer& other) const noexcept { return at < other.at; }

    detail::heap_links<timer> links; // the service's, as the two below
    std::int64_t at = 0;             // steady nanoseconds
    bool armed = false;
};

template <class Platform> class basic_timer_service {
public:
    constexpr basic_timer_service() noexcept = default;
    basic_timer_service(const basic_timer_service&) = delete;
    basic_timer_service& operator=(const basic_timer_service&) = delete;

    // Arms `t`, which stays alive until it has fired or was cancelled.
    void add(timer& t) noexcept {
        t.at = t.when.steady_ns();
        lock();
        t.armed = true;
        heap_.push(t);
        const bool nudge = heap_.top() == &t && !nudged_;
        nudged_ = nudged_ || nudge;
        unlock();
        if (nudge) {
            queue_.post(nudge_);
        }
    }

    // True: it will not fire. False: it has fired.
    // Blocks: while it is firing on another thread.
    bool cancel(timer& t) noexcept;

    // An intrusive executor: runs on the service thread.
    void post(runnable& r) noexcept { queue_.post(r); }

    // The service thread's body.
    [[noreturn]] void run() noexcept;

private:
    using word = std::uint32_t;
    using lock_word = lock_bits<Platform, word>;

    struct on_service_thread {
        bool value = false;
    };

    void lock() noexcept { lock_word::acquire(lock_); }
    void unlock() noexcept { lock_word::release(lock_); }

    static constexpr std::int64_t never_ns = std::numeric_limits<std::int64_t>::max();

    // Fires what is due; returns when to look again.
    deadline fire_due() noexcept;
    void fire(timer& t) noexcept;

    typename Platform::template atomic<word> lock_{0};
    typename Platform::template atomic<word> fired_{0}; // a sleeping canceller's: counts firings
    basic_ready_queue<Platform> queue_;
    runnable nudge_;

    // Under the lock:
    detail::pairing_heap<timer> heap_;
    template <class T> using var = typename Platform::template var<T>;
    var<const timer*> firing_{nullptr};
    var<unsigned> cancelling_{0}; // who waits for firing_ to end
    var<bool> nudged_{false};     // nudge_ is in the queue
};

template <class Platform> bool basic_timer_service<Platform>::cancel(timer& t) noexcept {
    lock();
    const bool in_time = t.armed;
    if (in_time) {
        heap_.remove(t);
        t.armed = false;
    }
    while (firing_ == &t && !Platform::template local<on_service_thread>().value) {
        cancelling_ = cancelling_ + 1;
        // Order: relaxed; written and read under the lock.
        const word seen = fired_.load(std::memory_order_relaxed);
        unlock();
        futex_wait<Platform>(fired_, seen);
        lock();
        cancelling_ = cancelling_ - 1;
    }
    unlock();
    return in_time;
}

// Called with the lock, returns without it. What the firing made runnable on this thread runs when
// the scope closes: after the firing is over, so that no canceller waits for somebody's coroutine.
template <class Platform> void basic_timer_service<Platform>::fire(timer& t) noexcept {
    t.armed = false;
    firing_ = &t;
    unlock();
    wake_scope<Platform> scope;
    t.fire.wake(); // the last touch of *t
    lock();
    firing_ = nullptr;
    const bool awaited = cancelling_ != 0;
    if (awaited) {
        // Order: relaxed; under the lock. A canceller that read the old number is woken below, or
        // finds the new one before it sleeps.
        fired_.fetch_add(1, std::memory_order_relaxed);
    }
    unlock();
    if (awaited) {
        futex_wake<Platform>(&fired_, 0x7fffffff);
    }
}

template <class Platform> deadline basic_timer_service<Platform>::fire_due() noexcept {
    for (;;) {
        lock();
        timer* const t = heap_.top();
        if (t == nullptr || t->at > Platform::now()) {
            const std::int64_t next = t == nullptr ? never_ns : t->at;
            unlock();
            return deadline::at_ns(next);
        }
        heap_.remove(*t);
        if (t->when.is_early()) { // another clock, set back
            t->at = t->when.steady_ns();
            heap_.push(*t);
            unlock();
        } else {
            fire(*t);
        }
    }
}

template <class Platform> void basic_timer_service<Platform>::run() noexcept {
    Platform::template local<on_service_thread>().value = true;
    for (;;) {
        runnable* const r = queue_.pop(fire_due());
        if (r == &nudge_) {
            lock();
            nudged_ = false;
            unlock();
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
