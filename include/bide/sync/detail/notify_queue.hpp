// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_DETAIL_NOTIFY_QUEUE_HPP
#define BIDE_SYNC_DETAIL_NOTIFY_QUEUE_HPP

// The queue of a notify, and its permit. Its state is one word:
//
//   bit 0, 1   the lock of the queue (core/lock_bits.hpp)
//   queued     there are waiters
//   stored     there is a permit: the next wait takes it and does not wait
//
//   queued stored
//     0      0      no waiter, no permit
//     0      1      a permit
//     1      0      waiters; they are linked whenever the lock is free
//     1      1      never: a permit is stored only if there is no waiter
//
// The decision to wait is one CAS (pass_or_queue.hpp). A notification without waiters changes the
// same word, or writes it back unchanged [notify.notify]. Consider a waiter that queues, then looks
// whether it has to wait, beside a thread that changes what it looks for, and then notifies:
//
//   notify, then queue    the look finds what was done before the notification
//   queue, then notify    the notification finds the waiter
//
// A waiter that is enabled before it waits has a node of another kind in the queue, a seat. A
// notification that meets a seat marks it, and wakes no thread. When its owner waits, the node of the
// wait takes the seat's place in the queue, or its mark. If the wait ends without a notification, the
// seat takes its place back. So only a notification uses a seat up:
//
//   free   not enabled, or used up
//   held   it stands in the queue, or is marked
//   lent   a wait stands in its place, or was let through there. `missing` of the wait is the seat
//
// A notification may meet a wait in a seat's place when another case of its select has happened already.
// Then it marks the seat.
//
// Last access. A notification ends with its CAS, or with the release of the lock. A waiter that was
// let through may destroy the notify at once.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/wait_status.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waiter_queue.hpp>
#include <bide/sync/detail/pass_or_queue.hpp>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_notify_queue {
public:
    using node = basic_waiter<Platform>;

    static constexpr const char* waited_for = "notify";

    // A wait that is enabled and has not begun. Its owner calls the functions that take it.
    class seat : private node {
    public:
        seat() noexcept : node(for_seats) {}

    private:
        friend basic_notify_queue;

        enum class state : unsigned char { free, held, lent };

        typename Platform::template var<wait_status> mark_{wait_status::waiting}; // under the lock
        state state_ = state::free; // under the lock while it is lent
    };

    constexpr basic_notify_queue() noexcept = default;
    basic_notify_queue(const basic_notify_queue&) = delete;
    basic_notify_queue& operator=(const basic_notify_queue&) = delete;

    // For destructors: terminates with the name of the primitive if there are waiters.
    void require_no_waiters() noexcept;

    // Takes the permit. Returns false if there is none.
    bool try_take() noexcept;

    void notify_one() noexcept;
    void notify_all() noexcept;

    // Enqueues `w` and returns waiting, or settles `w` and returns its status: it took the permit, or
    // was cancelled before.
    wait_status enqueue(node& w) noexcept;
    // Cancels the wait of `w`. Returns true if this call decided it. If `w` is not queued yet, a
    // later enqueue() refuses it with `why`.
    bool cancel(node& w, wait_status why) noexcept;

    // Enqueues the seat unless it is taken, or marks it if there is a permit.
    void enable(seat& s) noexcept;
    // Gives the seat up. Passes on the notification of one that it had.
    void disable(seat& s) noexcept;
    // Takes the mark of the seat; waiting if it has none. If it has one, gives the seat up.
    wait_status take(seat& s) noexcept;
    // As enqueue(w), for the wait that the seat was enabled for. Lends the seat, or gives its mark.
    wait_status enqueue(node& w, seat& s) noexcept;
    // As cancel(w). Gives the seat its place back.
    bool cancel(node& w, wait_status why, seat& s) noexcept;

private:
    using word = futex_word;
    using lock = lock_bits<Platform, word>;
    using entry = pass_or_queue<Platform, word>;
    using wake_list = basic_wake_list<Platform>;

    static constexpr word queued = entry::queued;
    static constexpr word stored = 8;
    static constexpr std::ptrdiff_t for_seats = 0; // what the nodes of seats ask for

    // Requires: the lock is held, and there were waiters.
    void unlock(word if_empty = 0) noexcept {
        lock::release_as(word_, queue_.empty() ? if_empty : queued);
    }
    bool notify_none(word next) noexcept;
    bool let_go(wait_status what, wake_list& woken) noexcept;

    typename Platform::template atomic<word> word_{0};
    basic_waiter_queue<Platform> queue_;
};

template <class Platform> bool basic_notify_queue<Platform>::try_take() noexcept {
    // Order: relaxed; the CAS decides.
    word seen = word_.load(std::memory_order_relaxed);
    while ((seen & stored) != 0) {
        // Order: acquire [notify.notify]; what was done before the permit was stored. It ignores the
        // lock, whose holder decides by a CAS that sees this. Failure: look again.
        if (word_.compare_exchange_weak(seen, seen & ~stored, std::memory_order_acquire,
                                        std::memory_order_relaxed)) {
            return true;
        }
    }
    return false;
}

// A notification if there are no waiters: sets the bits of `next`. Returns false if there are
// waiters; the caller then holds the lock.
template <class Platform> bool basic_notify_queue<Platform>::notify_none(word next) noexcept {
    // Order: relaxed; the CAS decides.
    word seen = word_.load(std::memory_order_relaxed);
    word locks = 0; // what the CAS releases
    for (;;) {
        while ((seen & queued) == 0) {
            // Order: release [notify.notify]; what was done before is seen by the waiter that takes
            // the permit, and by each waiter that queues later. It releases the lock if this thread
            // holds it [lock_bits.release], and else ignores it. Failure: look again.
            if (word_.compare_exchange_weak(seen, (seen | next) & ~locks, std::memory_order_release,
                                            std::memory_order_relaxed)) {
                lock::wake_after(&word_, seen & locks);
                return true;
            }
        }
        if (locks != 0) {
            return false;
        }
        seen = lock::acquire(word_);
        locks = lock::both;
    }
}

// Takes the first waiter out and lets it go, or marks its seat. Returns false if its choice selected
// another wait, and it has no seat.
template <class Platform>
bool basic_notify_queue<Platform>::let_go(wait_status what, wake_list& woken) noexcept {
    node& w = queue_.pop();
    if (w.amount() == for_seats) {
        static_cast<seat&>(w).mark_ = what;
        return true;
    }
    if (!w.claim()) {
        const std::ptrdiff_t missing = w.missing;
        if (missing == 1) {
            return false;
        }
        seat& s = *reinterpret_cast<seat*>(missing);
        s.mark_ = what;
        s.state_ = seat::state::held;
        return true;
    }
    w.commit();
    woken.push(w);
    return true;
}

template <class Platform> void basic_notify_queue<Platform>::notify_one() noexcept {
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

template <class Platform> void basic_notify_queue<Platform>::notify_all() noexcept {
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

template <class Platform> wait_status basic_notify_queue<Platform>::enqueue(node& w) noexcept {
    const auto has_permit = [](word seen) noexcept { return (seen & stored) != 0; };
    // Order: acquire [notify.notify]; the waiter sees what was done before the notifications so far.
    return entry::enqueue(w, word_, queue_, has_permit, stored,
                          [this](word) noexcept { unlock(); });
}

template <class Platform>
bool basic_notify_queue<Platform>::cancel(node& w, wait_status why) noexcept {
    lock::acquire(word_);
    const bool decided = queue_.withdraw(w, why);
    if (decided) {
        unlock();
    } else {
        lock::release(word_);
    }
    return decided;
}

template <class Platform> void basic_notify_queue<Platform>::enable(seat& s) noexcept {
    if (s.state_ == seat::state::held) {
        return;
    }
    s.state_ = seat::state::held;
    s.mark_ = wait_status::waiting;
    s.reset(for_seats);
    if (enqueue(static_cast<node&>(s)) == wait_status::granted) {
        s.mark_ = wait_status::granted;
    }
}

template <class Platform> void basic_notify_queue<Platform>::disable(seat& s) noexcept {
    if (s.state_ != seat::state::held) {
        return;
    }
    s.state_ = seat::state::free;
    lock::acquire(word_);
    const wait_status mark = s.mark_;
    if (mark == wait_status::waiting) {
        queue_.remove(s);
        return unlock();
    }
    lock::release(word_);
    if (mark == wait_status::granted) {
        notify_one();
    }
}

template <class Platform> wait_status basic_notify_queue<Platform>::take(seat& s) noexcept {
    if (s.state_ != seat::state::held) {
        return try_take() ? wait_status::granted : wait_status::waiting;
    }
    lock::acquire(word_);
    const wait_status mark = s.mark_;
    lock::release(word_);
    if (mark != wait_status::waiting) {
        s.state_ = seat::state::free;
    }
    return mark;
}

template <class Platform>
wait_status basic_notify_queue<Platform>::enqueue(node& w, seat& s) noexcept {
    if (s.state_ != seat::state::held) {
        s.state_ = seat::state::free;
        return enqueue(w);
    }
    lock::acquire(word_);
    const wait_status mark = s.mark_;
    const wait_status what = mark != wait_status::waiting ? mark : w.forbidden();
    if (what == wait_status::waiting) {
        s.state_ = seat::state::lent;
        w.missing = reinterpret_cast<std::ptrdiff_t>(&s);
        queue_.replace(s, w);
        unlock();
        return what;
    }
    lock::release(word_);
    if (mark != wait_status::waiting) {
        if (!w.claim()) { // its choice selected another wait; the seat keeps its mark
            return wait_status::waiting;
        }
        s.state_ = seat::state::free;
        w.commit();
    }
    w.settle(what);
    return what;
}

template <class Platform>
bool basic_notify_queue<Platform>::cancel(node& w, wait_status why, seat& s) noexcept {
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

template <class Platform> void basic_notify_queue<Platform>::require_no_waiters() noexcept {
    // Order: relaxed; a check of a precondition, nothing is read behind it.
    if ((word_.load(std::memory_order_relaxed) & queued) != 0) {
        lock::acquire(word_);
        queue_.fatal_destroyed("notify", this);
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
