#ifndef BIDE_CORE_TIMER_QUEUE_HPP
#define BIDE_CORE_TIMER_QUEUE_HPP

// Timers, and the queue in which they wait for their time: any thread adds and cancels, any thread
// fires what is due, several at once if they like. The queue has no thread of its own. Whoever
// sleeps for it sleeps until next_ns(), and is told of a nearer time, pair [T1]:
//
//   add():     next := t (seq_cst)          sleeper:  until := u (seq_cst)
//              `earlier`: read until                  read next_ns() (seq_cst)
//              t < until: wake the sleeper            next < u: do not sleep until u
//
// At least one of the two sees the other. Both may: the sleeper is then awake and is woken again.
// next_ns() may lie before the earliest time, and not after it by more than a tick of the wheel. So
// it is kept when the earliest timer is cancelled, and a timer that comes after it is no news: who
// sleeps until then looks again.
//
// The timers stand in a wheel under a lock of two bits. One that fires does so outside the lock,
// announced in `calls_`: cancel() of a timer that is firing waits until that is over, except on the
// thread whose firing it is in. After cancel() nothing touches the timer.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/thread_mark.hpp>
#include <bide/core/detail/timer_wheel.hpp>
#include <bide/core/futex.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/waker.hpp>

#include <cstdint>

namespace bide::inline BIDE_ABI {

// A time-out in its owner's frame. `fire` is run once, not before `when`, by a thread that fires
// the queue's timers; it may add the timer again, or end its life.
struct timer : detail::wheel_node {
    waker fire;
    deadline when = deadline::never();
    void* home = nullptr; // the queue it was added to; another one only where nobody cancels it
};

// Destroy: with no timer in it and no call under way.
template <class Platform> class basic_timer_queue {
public:
    // `earlier` is woken, outside the lock, by each add() whose timer lies before next_ns().
    explicit constexpr basic_timer_queue(waker earlier = {}) noexcept : earlier_(earlier) {}
    basic_timer_queue(const basic_timer_queue&) = delete;
    basic_timer_queue& operator=(const basic_timer_queue&) = delete;

    // Arms `t`, which stays alive until it fires or was cancelled. Any thread.
    void add(timer& t) noexcept;

    // True: it will not fire. False: it has fired, or was never armed. Any thread.
    // Blocks: while it is firing on another thread, but not where that waits for this one: inside a
    // firing of its own.
    bool cancel(timer& t) noexcept;

    // Fires what is due by `now`, in the order of times, at most `most`; returns how many. There may
    // be more: next_ns() says so. What that makes runnable on this thread runs when the call ends.
    // Any thread, others may do so meanwhile.
    unsigned fire_due(std::int64_t now, unsigned most = 256) noexcept;

    // From when on fire_due() may have something to do, in steady nanoseconds; never_ns: no timer.
    std::int64_t next_ns() const noexcept {
        // Order: seq_cst [T1]; a sleeper's second look, after it said until when it sleeps.
        return next_.load(std::memory_order_seq_cst);
    }

    static constexpr std::int64_t never_ns = detail::timer_wheel::never_ns;

private:
    using word = std::uint32_t;
    using lock_word = lock_bits<Platform, word>;
    template <class T> using var = typename Platform::template var<T>;

    // A call of fire_due(). Its fields are changed and read by others under the lock.
    struct call {
        const void* thread;
        call* next = nullptr;
        const timer* firing = nullptr;
    };

    // So many moves of the wheel are made without letting go of the lock, so often.
    static constexpr unsigned moves_at_once = 64;
    static constexpr unsigned most_moves = 512;

    void lock() noexcept { lock_word::acquire(lock_); }
    void unlock() noexcept { lock_word::release(lock_); }

    static const void* this_thread() noexcept { return detail::thread_mark<Platform>(); }

    bool insert(timer& t, std::int64_t at) noexcept;
    bool fires_elsewhere(const timer& t) const noexcept;
    bool fire(call& mine, timer& t) noexcept;
    void end_firing(call& mine) noexcept;
    void unlink(call& mine) noexcept;
    void raise_next() noexcept;

    // What others look at all the time; changed, seldom, under the lock.
    alignas(cache_line_pair) typename Platform::template atomic<std::int64_t> next_{never_ns};
    const waker earlier_;

    alignas(cache_line_pair) typename Platform::template atomic<word> lock_{0};
    typename Platform::template atomic<word> over_{0}; // a sleeping canceller's: counts firings

    // Under the lock:
    var<call*> calls_{nullptr};
    var<unsigned> cancelling_{0}; // who waits for a firing to end
    detail::timer_wheel wheel_;
};

// Cancels it in the queue that it was added to, if any.
template <class Platform> bool cancel_timer(timer& t) noexcept {
    auto* const home = static_cast<basic_timer_queue<Platform>*>(t.home);
    return home != nullptr && home->cancel(t);
}

template <class Platform> void basic_timer_queue<Platform>::add(timer& t) noexcept {
    const waker earlier = earlier_;
    const std::int64_t at = t.when.look_ns();
    if (t.home != this) { // one that its own firing adds again may be being cancelled
        t.home = this;
    }
    lock();
    const bool nearer = insert(t, at);
    unlock();
    if (nearer) {
        earlier.wake();
    }
}

// With the lock. True: `earlier` is to be woken after it.
template <class Platform>
bool basic_timer_queue<Platform>::insert(timer& t, std::int64_t at) noexcept {
    t.at = at;
    wheel_.push(t);
    // Order: relaxed; written under the lock.
    const bool nearer = at < next_.load(std::memory_order_relaxed);
    if (nearer) {
        // Order: seq_cst [T1]; before `earlier` reads until when the sleeper sleeps.
        next_.store(at, std::memory_order_seq_cst);
    }
    return nearer;
}

template <class Platform> bool basic_timer_queue<Platform>::cancel(timer& t) noexcept {
    bool in_time = false;
    lock();
    for (;;) {
        if (t.is_queued()) { // again, it may be, after its firing
            wheel_.remove(t);
            in_time = true;
        }
        if (!fires_elsewhere(t)) {
            break;
        }
        cancelling_ = cancelling_ + 1;
        // Order: relaxed; written and read under the lock.
        const word seen = over_.load(std::memory_order_relaxed);
        unlock();
        // Not worth a replacement of a worker (core/futex.hpp): it will not be long.
        Platform::futex_wait(over_, seen, deadline::never().steady_ns());
        lock();
        cancelling_ = cancelling_ - 1;
    }
    unlock();
    return in_time;
}

template <class Platform>
bool basic_timer_queue<Platform>::fires_elsewhere(const timer& t) const noexcept {
    for (const call* c = calls_; c != nullptr; c = c->next) {
        if (c->firing == &t) {
            return c->thread != this_thread();
        }
    }
    return false;
}

// Called with the lock, returns with it. False: it is early by its own clock, which may have been
// set, and stands in the queue again.
template <class Platform> bool basic_timer_queue<Platform>::fire(call& mine, timer& t) noexcept {
    mine.firing = &t;
    unlock();
    const bool early = t.when.is_early();
    const std::int64_t at = early ? t.when.look_ns() : 0;
    if (!early) {
        t.fire.wake(); // the last touch of *t
    }
    lock();
    const bool nearer = early && insert(t, at);
    end_firing(mine);
    if (nearer) { // than what another call left
        unlock();
        earlier_.wake();
        lock();
    }
    return !early;
}

// With the lock.
template <class Platform> void basic_timer_queue<Platform>::end_firing(call& mine) noexcept {
    mine.firing = nullptr;
    if (cancelling_ != 0) {
        // Order: relaxed; under the lock. A canceller that read the old number is woken below, or
        // finds the new one before it sleeps.
        over_.fetch_add(1, std::memory_order_relaxed);
        unlock();
        futex_wake<Platform>(&over_, 0x7fffffff);
        lock();
    }
}

template <class Platform> void basic_timer_queue<Platform>::unlink(call& mine) noexcept {
    call* before = nullptr;
    call* c = calls_;
    for (; c != &mine; c = c->next) {
        before = c;
    }
    if (before == nullptr) {
        calls_ = mine.next;
    } else {
        before->next = mine.next;
    }
}

// With the lock. Never back: a sleeper who relies on what next_ns() was would not be told of a timer
// between the two.
template <class Platform> void basic_timer_queue<Platform>::raise_next() noexcept {
    const std::int64_t next = wheel_.next_ns();
    // Order: both relaxed; written under the lock, and a later time than before need not be seen.
    if (next > next_.load(std::memory_order_relaxed)) {
        next_.store(next, std::memory_order_relaxed);
    }
}

template <class Platform>
unsigned basic_timer_queue<Platform>::fire_due(std::int64_t now, unsigned most) noexcept {
    if (next_ns() > now) {
        return 0;
    }
    wake_scope<Platform> scope; // closes last: no canceller waits for somebody's coroutine
    call mine{this_thread()};
    unsigned fired = 0;
    unsigned moves = moves_at_once;
    unsigned rounds = most_moves / moves_at_once;
    lock();
    mine.next = calls_;
    calls_ = &mine;
    for (unsigned left = most; left != 0 && rounds != 0;) {
        auto* const t = static_cast<timer*>(wheel_.take(now, moves));
        if (t != nullptr) {
            --left;
            fired += fire(mine, *t) ? 1 : 0;
        } else if (wheel_.is_moving()) {
            --rounds;
            moves = moves_at_once;
            unlock();
            lock();
        } else {
            raise_next();
            break;
        }
    }
    unlink(mine);
    unlock();
    return fired;
}

} // namespace bide::inline BIDE_ABI

#endif
