// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_NOTIFY_HPP
#define BIDE_SYNC_NOTIFY_HPP

/// \file
/// Wakes one waiter or all, and remembers one notification if there is no waiter.
//
// It is Tokio's Notify, with threads, time-outs and foreign wakers. detail/notify_queue.hpp has the
// protocol.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/thread_wait.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waker.hpp>
#include <bide/fwd.hpp>
#include <bide/sync/detail/notify_queue.hpp>

#include <chrono>

namespace bide::inline BIDE_ABI {

/// Tells waiters that something has changed. It guards nothing itself: the state that changes is in
/// atomics, in a channel, or under a mutex of its own. Threads, coroutines and foreign wakers wait in
/// one queue, first in, first out.
///
/// notify_one() lets the first waiter through. If there is none, it stores a permit, which the next
/// wait takes. There is one permit at most, so a consumer takes all that it finds before it waits
/// again. notify_all() lets all present waiters through and stores nothing.
///
/// A waiter that has to look at the state before it waits makes a listener first. From then on no
/// notification is lost:
///
/// \code
/// for (;;) {
///     bide::notify::listener next(changed);
///     if (is_ready()) break;
///     next.wait(); // or co_await next.async_wait(), or on_event(next) in a select
/// }
/// \endcode
///
/// Memory order: what happens before a notification happens before the return of the waits that it
/// lets through, and of each wait and listener that begins later.
///
/// Cancellation: if a waiter that notify_one() has let through is gone before it resumes, the
/// notification goes to the next waiter, or is stored. One of notify_all() is dropped.
/// core/async_op.hpp says when a coroutine may be destroyed.
///
/// Destroys: a waiter that was let through may destroy it at once, even if the notification has not
/// returned. Every other notification, and a stop or time-out that ends a wait at that moment, must
/// have returned. A notification that finds no waiter accesses it until it returns.
template <class Platform> class basic_notify {
    using queue = detail::basic_notify_queue<Platform>;
    using node = basic_waiter<Platform>;
    using waits = thread_wait<queue, Platform>;

public:
    class listener;
    class waiter;

    /// Constructs it without a permit.
    constexpr basic_notify() noexcept = default;

    /// Destroys it.
    /// Requires: there are no waiters and no enabled listeners; terminates otherwise.
    ~basic_notify() { queue_.require_no_waiters(); }

    basic_notify(const basic_notify&) = delete;
    basic_notify& operator=(const basic_notify&) = delete;

    /// Lets the first waiter through, or stores a permit. Never blocks.
    void notify_one() noexcept { queue_.notify_one(); }
    /// Lets all present waiters through. A permit that is stored stays. Never blocks.
    void notify_all() noexcept { queue_.notify_all(); }

    /// Takes the permit if there is one. Never blocks.
    /// Returns: true if the caller took it.
    bool try_wait() noexcept { return queue_.try_take(); }

    /// Takes the permit, or waits for a notification.
    /// Blocks: until there is one.
    void wait() { wait_until(deadline::never()); }

    /// Waits as wait() does, but at most `rest`.
    /// Returns: true if it was notified; false after the time-out.
    template <class R, class P> bool wait_for(const std::chrono::duration<R, P>& rest) {
        return wait_until(deadline::after(rest));
    }
    /// Waits as wait() does, but at most until a point in time.
    template <class C, class D> bool wait_until(const std::chrono::time_point<C, D>& when) {
        return wait_until(deadline::at(when));
    }

    /// Waits as wait() does, unless a stop is requested first.
    /// Returns: errc::stopped if it was not notified.
    result<void> wait(typename Platform::stop_token token) {
        return queue_.try_take() ? result<void>() : collect(waits::stoppable(queue_, 1, token));
    }

    /// Waits as wait() does, for a coroutine.
    /// Returns: an operation for co_await.
    basic_async_op<void, Platform> async_wait() noexcept { return {waiting{queue_}}; }

    /// Enqueues `w`, or completes it immediately if there is a permit.
    /// Returns: true if `w` is complete; its waker does not run. False if `w` is queued.
    /// Requires: `w` is not queued.
    bool begin_wait(waiter& w) noexcept;

    /// Cancels the wait of `w`.
    /// Returns: true if `w` waits no longer, or did not wait. Then its waker does not run. False if
    /// `w` is complete; if the caller has no use for a notification of one, it calls notify_one().
    /// Blocks: as semaphore::cancel_acquire() does.
    /// Requires: no other thread calls begin_wait(w) or cancel_wait(w) meanwhile.
    bool cancel_wait(waiter& w) noexcept;

private:
    static result<void> collect(wait_status what) noexcept {
        return what == wait_status::all_let_go ? result<void>() : result_of(what);
    }
    bool wait_until(deadline end) noexcept {
        return queue_.try_take() || collect(waits::until(queue_, 1, end)).has_value();
    }

    // The operation of async_wait() (core/wait_ops.hpp).
    struct waiting {
        queue& at;

        const auto& primitive() const noexcept { return at; }
        wait_status try_now() const noexcept {
            return at.try_take() ? wait_status::granted : wait_status::waiting;
        }
        wait_status enqueue(node& w) const noexcept { return at.enqueue(w); }
        bool cancel(node& w, wait_status why) const noexcept { return at.cancel(w, why); }
        result<void> collect(wait_status what) const noexcept {
            return basic_notify::collect(what);
        }
        void give_back(wait_status what) const noexcept {
            if (what == wait_status::granted) {
                at.notify_one();
            }
        }
    };

    queue queue_;
};

/// A wait that is enabled before it begins: the notifications since then count, for the wait and for
/// the order of the queue. A wait that is notified uses the listener up; the next one waits as the waits
/// of the notify do, unless enable() comes before it. A wait that ends otherwise leaves the listener
/// enabled and in its place: a time-out, a stop, another case of its select, a try_select() that finds
/// nothing. While it is enabled, notify_one() lets it through as it does a waiter. A listener is for
/// one thread or coroutine.
template <class Platform> class basic_notify<Platform>::listener {
public:
    /// Constructs a listener and enables it.
    explicit listener(basic_notify& of) noexcept : of_(of.queue_) { enable(); }

    /// Disables the listener. Passes on what notify_one() gave it.
    ~listener() { of_.disable(seat_); }
    listener(const listener&) = delete;
    listener& operator=(const listener&) = delete;

    /// Enables the listener again if it is used up; otherwise does nothing.
    void enable() noexcept { of_.enable(seat_); }

    /// Waits for a notification since the listener was enabled.
    /// Blocks: until there is one.
    void wait() { wait_until(deadline::never()); }

    /// Waits as wait() does, but at most `rest`.
    /// Returns: true if it was notified; false after the time-out.
    template <class R, class P> bool wait_for(const std::chrono::duration<R, P>& rest) {
        return wait_until(deadline::after(rest));
    }
    /// Waits as wait() does, but at most until a point in time.
    template <class C, class D> bool wait_until(const std::chrono::time_point<C, D>& when) {
        return wait_until(deadline::at(when));
    }

    /// Waits as wait() does, unless a stop is requested first.
    /// Returns: errc::stopped if it was not notified.
    result<void> wait(typename Platform::stop_token token) {
        wait_status what = of_.take(seat_);
        if (what == wait_status::waiting) {
            listening mine{{of_}, seat_};
            what = thread_wait<listening, Platform>::stoppable(mine, 1, token);
        }
        return collect(what);
    }

    /// Waits as wait() does, for a coroutine.
    /// Returns: an operation for co_await.
    /// Requires: the listener outlives the wait.
    basic_async_op<void, Platform> async_wait() noexcept { return {listening{{of_}, seat_}}; }

private:
    using seat = typename queue::seat;

    struct listening : waiting {
        seat& mine;

        wait_status try_now() const noexcept { return this->at.take(mine); }
        wait_status enqueue(node& w) const noexcept { return this->at.enqueue(w, mine); }
        bool cancel(node& w, wait_status why) const noexcept {
            return this->at.cancel(w, why, mine);
        }
    };

    bool wait_until(deadline end) noexcept {
        wait_status what = of_.take(seat_);
        if (what == wait_status::waiting) {
            listening mine{{of_}, seat_};
            what = thread_wait<listening, Platform>::until(mine, 1, end);
        }
        return collect(what).has_value();
    }

    queue& of_;
    seat seat_;
};

/// A wait for code that neither blocks nor is a coroutine, for example an event loop. The owner keeps
/// the waiter alive until it is complete or cancel_wait() has returned. Then the owner may use it
/// again.
template <class Platform> class basic_notify<Platform>::waiter {
public:
    /// Constructs a waiter. If it is queued, `wake` runs once when it completes, on the notifying
    /// thread, which holds no lock. `wake` may notify, wait again, and cancel other waiters. A waiter
    /// that it lets through is complete, and is woken, after `wake` has returned (core/waker.hpp).
    /// Requires: the context of `wake` outlives the call of `wake`, which may end after is_complete()
    /// returns true.
    explicit waiter(waker wake) noexcept : node_(1, wake) {}

    /// Destroys the waiter.
    /// Requires: the waiter is not queued; terminates otherwise.
    ~waiter() {
        if (!node_.is_complete() && !node_.is_idle()) {
            detail::fatal("notify::waiter", this, "destroyed while queued");
        }
    }
    waiter(const waiter&) = delete;
    waiter& operator=(const waiter&) = delete;

    /// Returns true if the waiter was notified. From then on, no other thread accesses it.
    /// Memory order: a true result is an acquire, as the return of wait() is.
    bool is_complete() const noexcept { return node_.is_complete(); }

private:
    friend basic_notify;
    node node_;
};

/// A notify for users.
using notify = basic_notify<native_platform>;
static_assert(sizeof(notify) == 16 || sizeof(void*) != 8);

template <class Platform> bool basic_notify<Platform>::begin_wait(waiter& w) noexcept {
    w.node_.reset(1);
    return queue_.enqueue(w.node_) != wait_status::waiting;
}

template <class Platform> bool basic_notify<Platform>::cancel_wait(waiter& w) noexcept {
    if (!w.node_.is_decided() && (queue_.cancel(w.node_, wait_status::stopped) ||
                                  w.node_.forbidden() != wait_status::waiting)) {
        return true; // the waiter was in no queue, or this call took it out
    }
    w.node_.await_outcome();
    return false;
}

} // namespace bide::inline BIDE_ABI

#endif
