// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_NOTIFY_HPP
#define BIDE_SYNC_NOTIFY_HPP

/// \file
/// Wakes one waiter or all, and remembers one notification if there is no waiter.
//
// It is Tokio's Notify, with threads, time-outs and callbacks (core/callback_wait.hpp).

#include <bide/sync/detail/gate.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// The queue of a notify, and its permit. The state of both is one word:
//
//   bit 0, 1   the lock of the queue (core/lock_bits.hpp)
//   queued     there are waiters
//   stored     there is a permit: the next wait takes it and does not wait
//
//   queued stored
//     0      0      no waiter, no permit
//     0      1      a permit
//     1      0      waiters; while the lock is free, all are linked
//     1      1      never: a permit is stored only if there is no waiter
//
// One CAS decides whether a caller waits (pass_or_queue). If there are no waiters, a notification
// changes the same word, or writes it back unchanged [notify.notify]. Suppose that a waiter enters
// the queue and then checks a condition. Another thread makes the condition true and then notifies:
//
//   notify, then queue    the waiter's check sees what was done before the notification
//   queue, then notify    the notification finds the waiter
//
// A listener that is enabled has a place in the queue before its wait begins. This place is a node
// of another kind, which is called a seat. A notification that takes a seat out of the queue marks
// the seat as notified, and wakes no thread. When the owner of the seat waits, the node of the wait
// takes the place of the seat in the queue. If the seat was notified before, the wait ends at once
// and the seat is free. If the wait ends without a notification, the seat returns to its place in
// the queue. So only a notification uses a seat up. The states of a seat:
//
//   free   not enabled, or used up
//   held   the seat is in the queue, or is marked as notified
//   lent   the node of a wait has the place of the seat, or was notified there. The member
//          `missing` of that node holds the address of the seat
//
// A wait in the place of a seat may be a case of a select. If the select has chosen another case
// before, a notification that reaches this wait marks the seat instead.
//
// Last access. A notification ends with its CAS, or with the release of the lock. A waiter that was
// let through may destroy the notify at once.

template <class Platform> class basic_notify_queue {
public:
    using node = basic_waiter<Platform>;

    static constexpr const char* waited_for = "notify";

    // The place of a listener in the queue before its wait begins. Only the owner of a seat calls
    // the functions that take this seat as an argument.
    class seat : private node {
    public:
        seat() noexcept : node(for_seats) {}

    private:
        friend basic_notify_queue;

        enum class state : unsigned char { free, held, lent };

        typename Platform::template var<wait_status> notification_{
            wait_status::waiting};  // under the lock
        state state_ = state::free; // under the lock while it is lent
    };

    constexpr basic_notify_queue() noexcept = default;
    basic_notify_queue& operator=(basic_notify_queue&&) = delete;

    void require_no_waiters() noexcept { entry::require_no_waiters(word_, queue_, "notify", this); }

    // Takes the permit. Returns false if there is none.
    bool try_take() noexcept {
        // Order: relaxed; the CAS decides.
        word seen = word_.load(std::memory_order_relaxed);
        while ((seen & stored) != 0) {
            // Order: acquire [notify.notify]; the caller sees what was done before the permit was
            // stored. Another thread may hold the lock. That thread changes the word by a CAS,
            // which fails if this step came first. Failure: look again.
            if (word_.compare_exchange_weak(seen, seen & ~stored, std::memory_order_acquire,
                                            std::memory_order_relaxed)) {
                return true;
            }
        }
        return false;
    }

    void notify_one() noexcept {
        if (notify_none(stored)) {
            return;
        }
        wake_list woken;
        bool done = false;
        while (!done && !queue_.empty()) {
            done = let_go(wait_status::granted, woken);
        }
        unlock(done ? 0 : stored);
        woken.publish(wait_status::granted);
    }
    void notify_all() noexcept {
        if (notify_none(0)) {
            return;
        }
        wake_list woken;
        while (!queue_.empty()) {
            let_go(wait_status::all_let_go, woken);
        }
        unlock();
        woken.publish(wait_status::all_let_go);
    }

    // Enqueues `w` and returns waiting. If there is a permit, or if `w` was cancelled before,
    // stores the outcome in `w` instead and returns it.
    wait_status enqueue(node& w) noexcept {
        const auto has_permit = [](word seen) noexcept { return (seen & stored) != 0; };
        // Order: acquire [notify.notify]; the waiter sees what was done before the earlier
        // notifications.
        return entry::enqueue(w, word_, queue_, has_permit, stored);
    }
    // Cancels the wait of `w`. Returns true if this call decided the wait.
    bool cancel(node& w, wait_status why) noexcept { return entry::cancel(w, why, word_, queue_); }

    // Enqueues the seat, if it is free. If there is a permit, marks the seat instead.
    void enable(seat& s) noexcept {
        if (s.state_ == seat::state::held) {
            return;
        }
        s.state_ = seat::state::held;
        s.notification_ = wait_status::waiting;
        s.reset(for_seats);
        if (enqueue(static_cast<node&>(s)) == wait_status::granted) {
            s.notification_ = wait_status::granted;
        }
    }
    // Frees the seat. If notify_one() has notified the seat, calls notify_one() for the next
    // waiter.
    void disable(seat& s) noexcept {
        if (s.state_ != seat::state::held) {
            return;
        }
        s.state_ = seat::state::free;
        lock::acquire(word_);
        const wait_status notification = s.notification_;
        if (notification == wait_status::waiting) {
            queue_.remove(s);
            return unlock();
        }
        lock::release(word_);
        if (notification == wait_status::granted) {
            notify_one();
        }
    }
    // If the seat was notified, frees the seat and returns the notification. If the seat was not
    // notified, returns waiting. If the seat is not enabled, tries to take the permit.
    wait_status take(seat& s) noexcept {
        if (s.state_ != seat::state::held) {
            return try_take() ? wait_status::granted : wait_status::waiting;
        }
        lock::acquire(word_);
        const wait_status notification = s.notification_;
        lock::release(word_);
        if (notification != wait_status::waiting) {
            s.state_ = seat::state::free;
        }
        return notification;
    }
    // Enqueues `w`, the wait of the listener that owns the seat. If the seat is queued, `w` takes
    // the place of the seat. If the seat was notified, its notification is the outcome of `w`, and
    // `w` is not queued. If the seat is free, does the same as enqueue(w).
    wait_status enqueue(node& w, seat& s) noexcept {
        if (s.state_ != seat::state::held) {
            s.state_ = seat::state::free;
            return enqueue(w);
        }
        lock::acquire(word_);
        const wait_status notification = s.notification_;
        const wait_status what =
            notification != wait_status::waiting ? notification : w.forbidden();
        if (what == wait_status::waiting) {
            s.state_ = seat::state::lent;
            w.missing = reinterpret_cast<std::ptrdiff_t>(&s);
            queue_.replace(s, w);
            unlock();
            return what;
        }
        lock::release(word_);
        if (notification != wait_status::waiting) {
            if (!w.claim()) { // the select has chosen another case: the seat stays notified
                return wait_status::waiting;
            }
            s.state_ = seat::state::free;
            w.commit();
        }
        w.settle(what);
        return what;
    }
    // Does the same as cancel(w), and puts the seat back into its place in the queue.
    bool cancel(node& w, wait_status why, seat& s) noexcept {
        lock::acquire(word_);
        if (!w.is_queued() || s.state_ != seat::state::lent) {
            lock::release(word_);
            return cancel(w, why);
        }
        s.state_ = seat::state::held;
        queue_.replace(w, s);
        unlock();
        return true;
    }

private:
    using word = futex_word;
    using lock = lock_bits<Platform, word>;
    using entry = pass_or_queue<Platform, word>;
    using wake_list = basic_wake_list<Platform>;

    static constexpr word queued = entry::queued;
    static constexpr word stored = 8;
    static constexpr std::ptrdiff_t for_seats = 0; // the amount of the nodes of seats

    // Requires: the lock is held, and there were waiters.
    void unlock(word if_empty = 0) noexcept {
        lock::release_as(word_, queue_.empty() ? if_empty : queued);
    }
    // If there are no waiters, sets the bits of `next` in the word and returns true. If there are
    // waiters, acquires the lock and returns false. By [notify.notify], the waiter that takes the
    // permit and each waiter that is queued later see what came before this call.
    bool notify_none(word next) noexcept {
        const auto with_next = [next](word before) noexcept { return before | next; };
        return (entry::change_or_lock(word_, with_next) & queued) == 0;
    }
    // Takes the first node out of the queue, notifies its waiter and returns true. If the node is a
    // seat, marks the seat. If the node is a case of a select that has selected another case, marks
    // the seat whose place the node has taken. If there is no such seat, returns false.
    bool let_go(wait_status what, wake_list& woken) noexcept {
        node& w = queue_.pop();
        if (w.amount() == for_seats) {
            static_cast<seat&>(w).notification_ = what;
            return true;
        }
        if (!w.claim()) {
            const std::ptrdiff_t missing = w.missing;
            if (missing == 1) {
                return false;
            }
            seat& s = *reinterpret_cast<seat*>(missing);
            s.notification_ = what;
            s.state_ = seat::state::held;
            return true;
        }
        w.commit();
        woken.push(w);
        return true;
    }

    typename Platform::template atomic<word> word_{0};
    basic_waiter_queue<Platform> queue_;
};

} // namespace detail

/// Tells waiters that something has changed. It does not contain the state that changes: that state
/// is in atomics, in a channel, or under a mutex. Threads, coroutines and callbacks wait in one
/// queue, first in, first out.
///
/// notify_one() lets the first waiter through. If there is none, it stores a permit, which the next
/// wait takes. There is one permit at most, so a consumer must process all items that it finds
/// before it waits again. notify_all() lets all present waiters through and stores nothing.
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
/// lets through and of each later wait. It also happens before the return of each later enable() or
/// constructor of a listener.
///
/// Cancellation: if a coroutine that notify_one() has let through is destroyed before it resumes,
/// the notification goes to the next waiter, or is stored. A notification by notify_all() is
/// dropped in this case. core/async_op.hpp says when a coroutine may be destroyed.
///
/// Destroys: a waiter that was let through may destroy the notify at once, even if the notification
/// has not returned. Every other notification must have returned before, because a notification
/// that finds no waiter accesses the notify until it returns. A stop or time-out that is just
/// ending a wait must have returned, too.
template <class Platform> class basic_notify {
    using queue = detail::basic_notify_queue<Platform>;
    using node = basic_waiter<Platform>;
    using waits = thread_wait<queue, Platform>;

public:
    class listener;

    /// Constructs a notify without a permit.
    constexpr basic_notify() noexcept = default;

    /// Destroys the notify.
    /// Requires: there are no waiters and no enabled listeners; terminates otherwise.
    ~basic_notify() { queue_.require_no_waiters(); }

    basic_notify& operator=(basic_notify&&) = delete;

    /// Lets the first waiter through, or stores a permit. Never blocks.
    void notify_one() noexcept {
        BIDE_SWITCH_AFTER();
        queue_.notify_one();
    }
    /// Lets all present waiters through. A stored permit remains. Never blocks.
    void notify_all() noexcept {
        BIDE_SWITCH_AFTER();
        queue_.notify_all();
    }

    /// Takes the permit if there is one. Never blocks.
    /// Returns: true if the caller took it.
    bool try_wait() noexcept {
        BIDE_SWITCH_AFTER();
        return queue_.try_take();
    }

    /// Takes the permit, or waits for a notification.
    /// Blocks: until there is a permit or a notification.
    void wait() { static_cast<void>(wait_by(deadline::never())); }

    /// Waits as wait() does, but at most `rest`.
    /// Returns: true if it was notified; false after the time-out.
    bool wait_for(deadline::from_now rest) { return wait_by(deadline(rest)).has_value(); }
    /// Waits as wait() does, but at most until a point in time.
    bool wait_until(deadline when) { return wait_by(when).has_value(); }

    /// Waits as wait() does, unless a stop is requested first.
    /// Returns: errc::stopped if it was not notified.
    result<void> wait(typename Platform::stop_token token) { return wait_by(token); }

    /// Waits as wait() does, for a coroutine.
    /// Returns: an operation for co_await.
    basic_async_op<void, Platform> async_wait() noexcept { return {waiting{queue_}}; }

private:
    static result<void> collect(wait_status what) noexcept {
        return what == wait_status::all_let_go ? result<void>() : result_of(what);
    }
    // `limit` is a deadline or a stop token.
    template <class Limit> result<void> wait_by(const Limit& limit) noexcept {
        return queue_.try_take() ? result<void>() : collect(waits::until(queue_, 1, limit));
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

/// Reserves a place in the queue before the wait begins. While the listener is enabled, a
/// notification treats it as a waiter. notify_all() notifies it. If it is the first in the queue,
/// notify_one() notifies it. If a wait of the listener is notified, the listener is used up: it has
/// no place in the queue any more. The next wait then begins like a wait of the notify, unless
/// enable() is called before. If a wait ends without a notification, the listener stays enabled and
/// keeps its place. Such a wait ends by a time-out, by a stop, by another case of its select, or by
/// a try_select() that finds nothing. A listener is for one thread or coroutine.
template <class Platform> class basic_notify<Platform>::listener {
public:
    /// Constructs a listener and enables it.
    explicit listener(basic_notify& of) noexcept : of_(of.queue_) { enable(); }

    /// Disables the listener. If notify_one() has notified it, calls notify_one() for the next
    /// waiter.
    ~listener() { of_.disable(seat_); }
    listener& operator=(listener&&) = delete;

    /// If the listener is used up, enables it again.
    void enable() noexcept { of_.enable(seat_); }

    /// Waits for a notification that came after the listener was enabled.
    /// Blocks: until there is such a notification.
    void wait() { static_cast<void>(wait_by(deadline::never())); }

    /// Waits as wait() does, but at most `rest`.
    /// Returns: true if it was notified; false after the time-out.
    bool wait_for(deadline::from_now rest) { return wait_by(deadline(rest)).has_value(); }
    /// Waits as wait() does, but at most until a point in time.
    bool wait_until(deadline when) { return wait_by(when).has_value(); }

    /// Waits as wait() does, unless a stop is requested first.
    /// Returns: errc::stopped if it was not notified.
    result<void> wait(typename Platform::stop_token token) { return wait_by(token); }

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

    // `limit` is a deadline or a stop token.
    template <class Limit> result<void> wait_by(const Limit& limit) noexcept {
        wait_status what = of_.take(seat_);
        if (what == wait_status::waiting) {
            listening mine{{of_}, seat_};
            what = thread_wait<listening, Platform>::until(mine, 1, limit);
        }
        return collect(what);
    }

    queue& of_;
    seat seat_;
};

/// A notify for users.
using notify = basic_notify<native_platform>;
static_assert(sizeof(notify) == 16 || sizeof(void*) != 8);

}} // namespace bide::BIDE_ABI

#endif
