// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_DETAIL_CONDITION_QUEUE_HPP
#define BIDE_SYNC_DETAIL_CONDITION_QUEUE_HPP

// The queue of a condition_variable. A notified waiter is not woken: its node moves to the queue of
// its mutex, and the unlock that reaches it there wakes it as the owner. A stop and a time-out move
// it too, for every wait returns with the lock held. (Linux's requeue does this for futexes: Drepper,
// "Futexes Are Tricky", section 8.)
//
//   stage of a wait                        the node stands in
//   waits                                  this queue, or none yet
//   notified, stopped or timed_out         the queue of the mutex, or a list of what moves there
//
// The stage changes under the lock here, once in a wait. A coroutine may be destroyed while it waits,
// but not while another thread moves its node (core/async_op.hpp). So its node stands in a queue then.
//
// Why no notification is lost: a waiter queues its node while it holds its mutex, and unlocks
// afterwards. A notifier that makes the condition true under the mutex either had it before; then the
// waiter has seen the condition. Or it locks it after the waiter has unlocked; then it finds the node.
// If it notifies before the waiter sleeps, the node moves to the mutex's queue meanwhile, and the
// sleep on the node ends when the outcome is published, also if that was before the sleep.
//
// Last access. Here, that is the release of the lock. From then on a notifier has nodes only, and the
// mutex, which outlives its waiters. The condition_variable may be destroyed once all its waiters are
// notified, also if they have not locked the mutex yet: a stop and a time-out read the stage first,
// and leave the queue alone if the wait has left it.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/wait_status.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waiter_queue.hpp>
#include <bide/sync/detail/condition_lock.hpp>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_condition_queue {
public:
    using node = basic_waiter<Platform>;

    static constexpr const char* waited_for = "condition_variable";

    // What a node carries: the lock of its wait, and how the wait ended. Lies beside the node.
    class place {
    public:
        explicit place(const condition_lock<Platform>& of) noexcept : lock_(of) {}
        // Requires: the wait has not begun.
        place(place&& other) noexcept : lock_(other.lock_) {}

        // Returns how a wait ended that has the lock again.
        wait_status outcome() const noexcept {
            // Order: relaxed; the grant of the lock came after it.
            switch (stage_.load(std::memory_order_relaxed)) {
            case stage::stopped: return wait_status::stopped;
            case stage::timed_out: return wait_status::timed_out;
            default: return wait_status::granted;
            }
        }

        // Prepares another wait with the same lock, after outcome().
        void reset() noexcept {
            // Order: relaxed; the owner is the only thread that accesses it.
            stage_.store(stage::waits, std::memory_order_relaxed);
        }

        // Returns the lock of the wait.
        const condition_lock<Platform>& lock() const noexcept { return lock_; }

        // Returns true if no other waiter was queued before. Called by the owner.
        bool was_first() const noexcept { return was_first_; }

    private:
        friend basic_condition_queue;

        enum class stage : futex_word { waits, leaves, notified, stopped, timed_out };

        condition_lock<Platform> lock_;
        bool was_first_ = false;
        typename Platform::template atomic<stage> stage_{stage::waits};
    };

    constexpr basic_condition_queue() noexcept = default;
    basic_condition_queue(const basic_condition_queue&) = delete;
    basic_condition_queue& operator=(const basic_condition_queue&) = delete;

    // For destructors: terminates with the name of the primitive if there are waiters.
    void require_no_waiters() noexcept;

    // Queues `w`, whose owner holds the lock and then unlocks. Or returns the outcome of a wait that
    // was cancelled before, and settles it; the owner keeps the lock.
    wait_status enqueue(node& w, place& of) noexcept;

    void notify_one() noexcept;
    void notify_all() noexcept;

    // Ends the wait of `w` unless it has ended: moves it to the queue of its mutex. If it is not
    // queued yet, a later enqueue() refuses it with `why`. If `why` is destroyed, takes it out of
    // the queue that it stands in, also that of the mutex. Returns true if it did so.
    bool cancel(node& w, place& of, wait_status why) noexcept;

private:
    using word = futex_word;
    using lock = lock_bits<Platform, word>;
    using wake_list = basic_wake_list<Platform>;
    using stage = typename place::stage;

    static constexpr word queued = 4; // there are waiters; changed under the lock only

    // Requires: the lock is held.
    void unlock() noexcept { lock::release_as(word_, queue_.empty() ? word{0} : queued); }

    // Marks the end of a wait, for the owner and for cancellers.
    // Requires: the lock is held.
    // Order: relaxed; the owner reads it after the grant of the mutex. A canceller that reads it
    // without the lock only reads that the wait has ended.
    static void end(node& w, stage how) noexcept {
        w.template carried<place>().stage_.store(how, std::memory_order_relaxed);
    }
    // Moves a node, which is in no list, to the queue of its mutex.
    static void move(node& w, wake_list& granted) noexcept {
        w.template carried<place>().lock_.queue(w, granted);
    }

    typename Platform::template atomic<word> word_{0};
    basic_waiter_queue<Platform> queue_;
};

template <class Platform>
wait_status basic_condition_queue<Platform>::enqueue(node& w, place& of) noexcept {
    lock::acquire(word_);
    if (const wait_status forbidden = w.forbidden(); forbidden != wait_status::waiting) {
        lock::release(word_);
        w.settle(forbidden);
        return forbidden;
    }
    of.was_first_ = queue_.empty();
    if (!of.was_first_ &&
        !queue_.front().template carried<place>().lock_.is_of_same_mutex(of.lock_)) {
        fatal("condition_variable", this, "waited for with locks of two mutexes");
    }
    w.carry(of);
    queue_.push(w);
    unlock();
    return wait_status::waiting;
}

template <class Platform> void basic_condition_queue<Platform>::notify_one() noexcept {
    // Order: relaxed; a waiter that this notification is for queued its node before it unlocked the
    // mutex, and this thread has locked that since.
    if ((word_.load(std::memory_order_relaxed) & queued) == 0) {
        return;
    }
    lock::acquire(word_);
    if (queue_.empty()) {
        lock::release(word_);
        return;
    }
    node& w = queue_.pop();
    end(w, stage::notified);
    unlock();
    wake_list granted;
    move(w, granted);
    granted.publish(wait_status::granted);
}

template <class Platform> void basic_condition_queue<Platform>::notify_all() noexcept {
    // Order: relaxed; as in notify_one().
    if ((word_.load(std::memory_order_relaxed) & queued) == 0) {
        return;
    }
    basic_waiter_queue<Platform> leaving;
    lock::acquire(word_);
    leaving.take(queue_);
    for (node* w = leaving.empty() ? nullptr : &leaving.front(); w != nullptr;
         w = leaving.after(*w)) {
        end(*w, stage::notified);
    }
    unlock();
    wake_list granted;
    while (!leaving.empty()) {
        move(leaving.pop(), granted);
    }
    granted.publish(wait_status::granted);
}

template <class Platform>
bool basic_condition_queue<Platform>::cancel(node& w, place& of, wait_status why) noexcept {
    const bool destroys = why == wait_status::destroyed;
    // Order: relaxed; a stage other than `waits` is the last one. *this may be destroyed then.
    if (of.stage_.load(std::memory_order_relaxed) != stage::waits) {
        return destroys && of.lock_.cancel(w);
    }
    lock::acquire(word_);
    // Order: relaxed; under the lock.
    if (of.stage_.load(std::memory_order_relaxed) != stage::waits) {
        lock::release(word_);
        return false;
    }
    if (!w.is_queued()) {
        w.forbid(why);
        lock::release(word_);
        return false;
    }
    queue_.remove(w);
    end(w, why == wait_status::stopped ? stage::stopped : stage::timed_out);
    unlock();
    if (!destroys) {
        wake_list granted;
        move(w, granted);
        granted.publish(wait_status::granted);
    }
    return destroys;
}

template <class Platform> void basic_condition_queue<Platform>::require_no_waiters() noexcept {
    // Order: relaxed; a check of a precondition, nothing is read behind it.
    if ((word_.load(std::memory_order_relaxed) & queued) != 0) {
        lock::acquire(word_);
        queue_.fatal_destroyed("condition_variable", this);
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
