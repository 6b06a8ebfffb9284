#ifndef BIDE_SYNC_SEMAPHORE_HPP
#define BIDE_SYNC_SEMAPHORE_HPP

// A counting semaphore with one first-in-first-out queue for blocked threads, suspended coroutines
// and foreign wakers, and direct handoff.
//
// Why no wakeup is lost, in short: the number of free permits, "somebody waits" and the queue's
// lock are one word. A waiter that finds too few permits takes what there is and announces itself
// in one CAS; a release is a change of the same word. So a release either comes first, and the CAS
// sees its permits, or it comes second, sees the announcement, and hands them to the waiter. There
// is no third case. sync/detail/permit_queue.hpp has the word, the code and the proof.

#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/thread_wait.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waker.hpp>
#include <bide/sync/detail/permit_queue.hpp>
#include <bide/sync/permit.hpp>

#include <chrono>
#include <cstddef>
#include <mutex>
#include <stdexcept>
#include <stop_token>

namespace bide::inline BIDE_ABI {

// Where a count of permits is outside [0, max()], the throwing functions throw
// std::invalid_argument, the noexcept ones answer false or 0, and nothing changes.
template <class Platform> class basic_semaphore {
    using queue = detail::basic_permit_queue<Platform>;

public:
    static constexpr std::ptrdiff_t(max)() noexcept { return (queue::max)(); }

    constexpr explicit basic_semaphore(std::ptrdiff_t permits) : permits_(valid(permits)) {}

    // Requires: nobody waits; terminates otherwise.
    ~basic_semaphore() { permits_.require_no_waiters("semaphore", this); }

    basic_semaphore(const basic_semaphore&) = delete;
    basic_semaphore& operator=(const basic_semaphore&) = delete;

    // Takes n permits. acquire(0) succeeds at once, as all acquires of none do, unless closed.
    // Blocks: until they are granted, after everybody who came before.
    // Order: everything before the releases that made up the n happens-before the return.
    // Throws: closed_error.
    void acquire(std::ptrdiff_t n = 1);

    // Takes n permits if they are free and nobody waits. Never waits.
    bool try_acquire(std::ptrdiff_t n = 1) noexcept {
        return is_valid(n) && permits_.try_take(count(n));
    }

    // As acquire(), for at most that long; false: timed out, or closed.
    template <class R, class P>
    bool try_acquire_for(const std::chrono::duration<R, P>& rest, std::ptrdiff_t n = 1) {
        return acquire_until(deadline::after(rest), n) == wait_status::granted;
    }
    template <class C, class D>
    bool try_acquire_until(const std::chrono::time_point<C, D>& when, std::ptrdiff_t n = 1) {
        return acquire_until(deadline::at(when), n) == wait_status::granted;
    }

    // As acquire(); answers errc::closed, and errc::stopped when a stop is requested first.
    // Cancel: a stop that comes after the grant changes nothing.
    result<void> acquire(std::stop_token token, std::ptrdiff_t n = 1);

    // Gives n permits back, or adds them. Whom they suffice for goes on.
    // Blocks: no longer than it takes to wake and, for coroutines without an executor, to run them.
    // Throws: std::overflow_error where more than max() would be free; nothing changes then.
    void release(std::ptrdiff_t n = 1);

    // As acquire(), for a coroutine. The permit gives them back.
    basic_async_op<basic_permit<Platform>, Platform> async_acquire(std::ptrdiff_t n = 1);

    // Fails every waiter, now and later, with errc::closed; what a waiter had in part goes back to
    // the count. Permits that are held stay valid, release() still counts. True the first time.
    bool close() noexcept { return permits_.close(); }
    bool is_closed() const noexcept { return permits_.is_closed(); }

    // Takes up to n free permits away for good; says how many.
    std::ptrdiff_t forget_permits(std::ptrdiff_t n) noexcept {
        return is_valid(n) ? static_cast<std::ptrdiff_t>(permits_.forget(count(n))) : 0;
    }

    // Snapshots.
    std::ptrdiff_t available() const noexcept { return permits_.available(); }
    std::size_t waiters() const noexcept { return permits_.waiters(); }

    // A wait for code that neither blocks nor is a coroutine: an event loop, say. The owner keeps it
    // alive until it is complete or cancel_acquire() has returned; it may then be used again.
    class waiter {
    public:
        // `wake` runs once when a wait that was queued completes, on the releasing thread, which
        // holds no lock; its context may be needed shortly after is_complete(). It may acquire,
        // release, and cancel other waiters; before it destroys one, it must cancel it.
        waiter(std::ptrdiff_t n, waker wake) noexcept : node_(n, wake) {}

        // Requires: it is not queued; terminates otherwise.
        ~waiter() {
            if (!node_.is_complete() && !node_.is_idle()) {
                detail::fatal("semaphore::waiter", this, "destroyed while queued");
            }
        }
        waiter(const waiter&) = delete;
        waiter& operator=(const waiter&) = delete;

        // Order: acquire, as acquire() has it, where true. From then on nothing touches the waiter.
        bool is_complete() const noexcept { return node_.is_complete(); }

        // Requires: is_complete().
        result<void> outcome() const noexcept { return to_result(node_.outcome()); }

    private:
        friend class basic_semaphore;
        basic_waiter<Platform> node_;
    };

    // Queues `w`, or completes it at once.
    // Returns: true if it is complete; the waker will not run. False if it is queued, or if n is
    // invalid: then nothing was done.
    // Requires: `w` is not queued.
    bool acquire_wait(waiter& w) noexcept;

    // Ends the wait of `w`.
    // Returns: true if it waits no longer: its waker will not run, and the permits that it had in
    // part went to the waiters behind it. True, too, if it did not wait. False if it is complete;
    // if it was granted, the permits are the caller's.
    // Blocks: while another thread's release, which has granted it, runs the wakers before its own.
    // In a waker of the release that has granted it, it does not block, and the waker of `w` will
    // not run. So the wakers of two releases on two threads must not cancel each other's waiters.
    // Requires: no acquire_wait(w) and no other cancel_acquire(w) at the same time.
    bool cancel_acquire(waiter& w) noexcept;

private:
    friend class basic_permit<Platform>;

    static constexpr bool is_valid(std::ptrdiff_t n) noexcept { return n >= 0 && n <= (max)(); }
    static constexpr std::ptrdiff_t valid(std::ptrdiff_t n) {
        if (!is_valid(n)) {
            BIDE_THROW(std::invalid_argument("bide::semaphore: permits outside [0, max()]"));
        }
        return n;
    }
    static typename queue::word count(std::ptrdiff_t n) noexcept {
        return static_cast<typename queue::word>(n);
    }
    static result<void> to_result(wait_status what) noexcept { return result_of(what); }

    // A permit's n. Those that do not fit below max() are dropped.
    void give_back(std::ptrdiff_t n) noexcept { permits_.give_fitting(count(n)); }

    wait_status acquire_until(deadline until, std::ptrdiff_t n);
    static result<basic_permit<Platform>> collect(const wait_target& t, wait_status what) noexcept;

    queue permits_;
};

using semaphore = basic_semaphore<native_platform>;
using permit = basic_permit<native_platform>;

template <class Platform> void basic_semaphore<Platform>::acquire(std::ptrdiff_t n) {
    if (acquire_until(deadline::never(), n) == wait_status::closed) {
        detail::throw_error(errc::closed);
    }
}

template <class Platform>
wait_status basic_semaphore<Platform>::acquire_until(deadline until, std::ptrdiff_t n) {
    if (permits_.try_take(count(valid(n)))) {
        return wait_status::granted;
    }
    return thread_wait<queue, Platform>::until(permits_, n, until);
}

template <class Platform>
result<void> basic_semaphore<Platform>::acquire(std::stop_token token, std::ptrdiff_t n) {
    if (permits_.try_take(count(valid(n)))) {
        return {};
    }
    return to_result(thread_wait<queue, Platform>::stoppable(permits_, n, token));
}

template <class Platform> void basic_semaphore<Platform>::release(std::ptrdiff_t n) {
    if (!permits_.give(count(valid(n)))) {
        BIDE_THROW(std::overflow_error("bide::semaphore: release past max()"));
    }
}

template <class Platform> bool basic_semaphore<Platform>::acquire_wait(waiter& w) noexcept {
    const std::ptrdiff_t n = w.node_.amount;
    if (!is_valid(n)) {
        return false;
    }
    w.node_.reset(n);
    return permits_.enqueue(w.node_) != wait_status::waiting;
}

template <class Platform> bool basic_semaphore<Platform>::cancel_acquire(waiter& w) noexcept {
    if (!is_valid(w.node_.amount)) {
        return true;
    }
    if (!w.node_.is_decided() && (permits_.cancel(w.node_, wait_status::stopped) ||
                                  w.node_.forbidden() != wait_status::waiting)) {
        return true; // or it was in no queue
    }
    w.node_.await_outcome();
    return false;
}

template <class Platform>
result<basic_permit<Platform>> basic_semaphore<Platform>::collect(const wait_target& t,
                                                                  wait_status what) noexcept {
    if (what != wait_status::granted) {
        return unexpected{errc_of(what)};
    }
    auto& from = *static_cast<basic_semaphore*>(t.owner);
    return basic_permit<Platform>(from, std::adopt_lock, t.amount);
}

template <class Platform>
basic_async_op<basic_permit<Platform>, Platform>
basic_semaphore<Platform>::async_acquire(std::ptrdiff_t n) {
    static constexpr wait_ops<result<basic_permit<Platform>>, Platform> ops{
        &queue::try_now, &queue::enqueue_op, &queue::cancel_op, &collect};
    return {ops, wait_target{&permits_, this, valid(n)}};
}

} // namespace bide::inline BIDE_ABI

#endif
