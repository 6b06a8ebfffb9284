// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_ADAPTIVE_MUTEX_HPP
#define BIDE_SYNC_ADAPTIVE_MUTEX_HPP

/// \file
/// A mutex for short sections that threads and coroutines enter often. It is unfair, but overtaking
/// is bounded.
//
// The bound resembles the eventual fairness of the mutex of parking_lot.

#include <bide/sync/lock_operations.hpp>

namespace bide { inline namespace BIDE_ABI {

template <class R> struct wait_payload; // core/wait_ops.hpp

namespace detail {

template <class Platform> class retry_on_grant; // core/wait_ops.hpp

// The protocol of adaptive_mutex: bounded barging.
//
// If an unlock handed the mutex to a sleeper, the mutex would stay unused until the sleeper runs.
// So an unlock wakes the head of the queue and leaves the mutex free (the mutex *floats*). A
// running thread may then overtake the head. Each such unlock decrements `left`, the number of
// overtakes that remain. If `left` is zero, the next unlock hands the mutex to the head. When the
// head wakes, it reads the clock and tries to take the mutex. If it fails, and max_overtake_time
// has passed since its first wakeup, the next unlock also hands the mutex over.
//
// A coroutine of async_lock() may be overtaken, too, but only until it runs. An unlock takes it out
// of the queue and resumes it, and leaves the mutex free. When the coroutine runs, it tries to take
// the mutex. If it fails, it queues itself in front of the other waiters, and the next unlock hands
// it the mutex. While such a coroutine is on its way, no other waiter is woken. If `left` is zero
// then, an unlock keeps the mutex locked for the coroutine.
//
// Other coroutines, wakers of other libraries, cases of a select and waiters of a
// condition_variable are always handed the mutex. They are never woken just to try to take it.
//
//   bit 0, 1   the lock of the queue (core/lock_bits.hpp)
//   queued     there are waiters
//   taken      the mutex is locked
//   notified   the head of the queue is awake and will try to take the mutex
//   handoff    the head is handed the mutex next; with `resumed`, the coroutine may take it
//   resumed    a coroutine that was the head is no longer queued, and will try to take the mutex
//   left       how often the head, or the coroutine that was it, may still be overtaken
//
//   taken queued notified resumed
//     0     0      0        0      free
//     1     0      0        0      taken, no waiter
//     1     1      0        0      taken; unlock goes to the queue
//     1     1      1        0      taken by an overtaker; the head tries
//     0     1      1        0      floating; the head tries
//     0    0, 1    0        1      floating; the coroutine tries
//     1    0, 1    0        1      taken by an overtaker, or, with `handoff`, kept for the
//                                  coroutine; the coroutine tries
//     0     1      0        0      never while the queue's lock is free: no thread would try
//     -     -      1        1      never
//     (if queued and resumed are zero, so are notified, handoff and left)
//
// Why the head is not forgotten: if the head is a thread, the mutex floats only while `notified` is
// set. Before the head sleeps again, it makes one CAS under the queue's lock. If the mutex is free,
// the CAS takes it. If not, the CAS clears `notified`, and the next unlock comes after the CAS.
// That unlock finds `notified` clear and wakes the head again. If the head is cancelled while the
// mutex floats, the mutex is granted to the next waiter.
//
// Why the coroutine is not forgotten: `resumed` is cleared only by its own CAS, which takes the
// mutex, queues the coroutine or, after its cancellation, gives up the attempt. In the last two
// cases another thread has the mutex, and its unlock comes after the CAS. That unlock finds
// `resumed` clear and goes to the queue. If the mutex is free at the CAS, a cancelled coroutine
// takes it, too, and unlocks it.
//
// If a waiter is a case of a select, the unlock first claims the object that the cases share
// (basic_choice). Then it grants the mutex to the waiter. If the select has chosen another case,
// the unlock takes the waiter out of the queue and continues with the next waiter. If there is no
// next waiter, the mutex becomes free.

template <class Platform> class basic_adaptive_lock {
public:
    static constexpr const char* waited_for = "adaptive_mutex";
    using node = basic_waiter<Platform>;
    using word = std::uint64_t;

    static constexpr unsigned max_overtakes = Platform::model ? 3 : 512;
    static constexpr std::chrono::microseconds max_overtake_time{500};

    constexpr basic_adaptive_lock() noexcept = default;
    basic_adaptive_lock& operator=(basic_adaptive_lock&&) = delete;

    void require_no_waiters(const char* name, const void* object) noexcept {
        // Order: relaxed; this only checks a precondition.
        if ((word_.load(std::memory_order_relaxed) & queued) != 0) {
            lock_word::acquire(word_);
            queue_.fatal_destroyed(name, object);
        }
    }

    // Takes the mutex if it is free and there are no waiters, by a CAS that expects this state.
    bool take_free() noexcept {
        word expected = 0;
        // Order: acquire [adaptive_mutex.unlock]; the caller sees what earlier owners did.
        return word_.compare_exchange_strong(expected, taken, std::memory_order_acquire,
                                             std::memory_order_relaxed);
    }
    // Takes the mutex if it is free, even if there are waiters.
    bool try_take() noexcept {
        // Order: relaxed; the CAS decides.
        word seen = word_.load(std::memory_order_relaxed);
        while ((seen & taken) == 0) {
            // Order: acquire [adaptive_mutex.unlock]; the caller sees what earlier owners did.
            // Failure: look again.
            if (word_.compare_exchange_weak(seen, seen | taken, std::memory_order_acquire,
                                            std::memory_order_relaxed)) {
                return true;
            }
        }
        return false;
    }

    BIDE_NOINLINE wait_status wait(deadline until) noexcept {
        // Order: relaxed; a hint, try_take() decides.
        const auto worth_a_try = [this]() noexcept {
            return (word_.load(std::memory_order_relaxed) & (taken | queued)) != taken;
        };
        if (!until.is_poll()) {
            basic_spin<Platform>::briefly(worth_a_try); // stops if there are waiters
        }
        return try_take() ? wait_status::granted : waits::until(*this, 1, until);
    }
    wait_status wait(const typename Platform::stop_token& token) noexcept {
        return waits::until(*this, 1, token);
    }

    void unlock(const void* owner) noexcept {
        word expected = taken;
        // Order: release [adaptive_mutex.unlock]; the next owner sees what was done under the
        // mutex.
        if (!word_.compare_exchange_strong(expected, 0, std::memory_order_release,
                                           std::memory_order_relaxed)) {
            unlock_slow(owner);
        }
    }

    // Called by thread_wait.
    wait_status enqueue(node& w) noexcept { return settle_if_over(w, link(w)); }
    bool cancel(node& w, wait_status why) noexcept {
        lock_word::acquire(word_);
        if (!w.is_queued()) {
            w.forbid(why);
            lock_word::release(word_);
            return false;
        }
        withdraw(w);
        return true;
    }
    // Waits until the wait of `w` is complete or `until` has passed. An unlock may wake the waiter
    // by rouse() and not grant it the mutex. The waiter then tries to take the mutex before it
    // sleeps again.
    bool await(node& w, deadline until) noexcept {
        std::int64_t since = 0; // the time at which `w` was first roused
        w.spin();
        while (!w.is_complete()) {
            if (!w.sleep(until)) {
                return w.is_complete();
            }
            if (!w.is_complete()) {
                const std::int64_t now = Platform::now();
                since = since == 0 ? now : since;
                const bool overdue =
                    now - since >= std::chrono::nanoseconds(max_overtake_time).count();
                if (!try_as_head(w)) {
                    give_up_trying(w, overdue);
                }
            }
        }
        return true;
    }

    // Decides by one CAS whether `w` has to wait. If it has to, enqueues `w` and returns waiting.
    // If not, returns the outcome, which the caller publishes.
    // `again` is true for a coroutine that was resumed and has failed to take the mutex.
    // Requires: w.amount() is one of the two constants below, unless the owner of `w` calls
    // await().
    wait_status link(node& w, bool again = false) noexcept {
        word seen = lock_word::acquire(word_);
        for (;;) {
            const bool is_free = again ? is_for_resumed(seen) : (seen & taken) == 0;
            const word first = (seen & (queued | resumed)) == 0 ? max_overtakes * one_left : 0;
            word next = is_free ? (seen | taken) & ~lock_word::both : seen | queued | first;
            if (again) {
                next = is_free ? taken_anew(seen) : (next & ~resumed) | handoff;
            }
            if (is_free && !w.claim()) { // the select has chosen another case: not queued
                lock_word::release(word_);
                return wait_status::waiting;
            }
            // Order: acquire [adaptive_mutex.unlock]; if the CAS takes the mutex, this thread sees
            // what was done under the mutex before. That CAS also releases the queue's lock. No
            // release order is needed, because this call has not accessed the queue. Failure
            // relaxed: the loop tries again.
            if (!word_.compare_exchange_weak(seen, next, std::memory_order_acquire,
                                             std::memory_order_relaxed)) {
                if (is_free) {
                    w.abandon();
                }
                continue;
            }
            if (is_free) {
                w.commit();
                lock_word::wake_after(&word_, seen);
                return wait_status::granted;
            }
            again ? queue_.push_front(w) : queue_.push(w);
            if (const wait_status forbidden = w.forbidden(); forbidden != wait_status::waiting) {
                withdraw(w);
                return forbidden;
            }
            lock_word::release(word_);
            return wait_status::waiting;
        }
    }
    // The amount of a waiter that an unlock always hands the mutex to.
    static constexpr std::ptrdiff_t handed = 0;
    // The amount of a coroutine that an unlock may resume to try. It then calls take_resumed().
    static constexpr std::ptrdiff_t can_retry = 2;

    // Called by a coroutine with the amount can_retry, after it was resumed or was handed the
    // mutex. Returns true if it has the mutex now. If another caller has the mutex, returns false:
    // then, if `stays` is true, the coroutine has to call link(w, true).
    bool take_resumed(bool stays) noexcept {
        // Order: relaxed; the coroutine runs after the unlock, and `resumed` has not changed since.
        word seen = word_.load(std::memory_order_relaxed);
        while ((seen & resumed) != 0) {
            const bool is_free = is_for_resumed(seen);
            if (!is_free && stays) {
                return false;
            }
            // Order: acquire [adaptive_mutex.unlock]; the caller sees what earlier owners did.
            // Failure: look again.
            if (word_.compare_exchange_weak(seen, (seen & lock_word::both) | taken_anew(seen),
                                            std::memory_order_acquire, std::memory_order_relaxed)) {
                return is_free;
            }
        }
        return true;
    }

    // The functions by which an operation waits for the mutex (core/wait_ops.hpp), except
    // collect(). lock_operation() (lock_operations.hpp) adds collect().
    struct locking {
        basic_adaptive_lock& of;

        const auto& primitive() const noexcept { return of; }
        wait_status try_now() const noexcept {
            return of.try_take() ? wait_status::granted : wait_status::waiting;
        }
        wait_status enqueue(node& w) const noexcept { return of.enqueue(w); }
        bool cancel(node& w, wait_status why) const noexcept { return of.cancel(w, why); }
    };
    locking steps() noexcept { return {*this}; }

    // The data of a coroutine's wait beside its node.
    struct coroutine_payload {
        retry_on_grant<Platform> again;
        bool is_coroutine = false; // not a case of a select, nor a callback_wait
        bool is_undecided = false; // it was queued as a coroutine, and then not cancelled
    };

    // The operation of a coroutine that an unlock may resume to try.
    template <class Lock> struct coroutine_locking : lock_wait<locking, Lock> {
        using base = lock_wait<locking, Lock>;
        using payload = coroutine_payload;

        wait_status try_now(payload& p) const noexcept {
            if (!p.is_undecided) {
                return base::try_now();
            }
            p.is_undecided = !this->of.take_resumed(true);
            return p.is_undecided ? wait_status::waiting : wait_status::granted;
        }
        wait_status enqueue(node& w, payload& p) const noexcept {
            const bool again = std::exchange(p.is_undecided, p.is_coroutine);
            w.ask(p.is_coroutine ? can_retry : handed);
            const wait_status what = settle_if_over(w, this->of.link(w, again));
            if (what != wait_status::waiting) { // if it waits, `w` and `p` may be destroyed
                p.is_undecided = false;
            }
            return what;
        }
        bool cancel(node& w, wait_status why, payload& p) const noexcept {
            const bool ended = base::cancel(w, why);
            if (ended) {
                p.is_undecided = false;
            }
            return ended;
        }
        // The wait of a cancelled task may end here without another try_now().
        auto collect(wait_status what, payload& p) const noexcept {
            if (std::exchange(p.is_undecided, false)) {
                what = this->of.take_resumed(false) ? wait_status::granted : wait_status::stopped;
            }
            return base::collect(what);
        }
        auto& retry_on_grant(payload& p) const noexcept {
            p.is_coroutine = true;
            return p.again;
        }
    };

    // For a condition_variable: the queue of the mutex, and the amount of each waiter moved there.
    basic_adaptive_lock& waiters() noexcept { return *this; }
    static constexpr std::ptrdiff_t handed_amount() noexcept { return handed; }

private:
    using waits = thread_wait<basic_adaptive_lock, Platform>;
    using lock_word = lock_bits<Platform, word>;

    static constexpr word queued = 4;
    static constexpr word taken = 8;
    static constexpr word notified = 16;
    static constexpr word handoff = 32;
    static constexpr word resumed = 64;
    static constexpr word one_left = 256;

    // Returns the word of a mutex that a new owner has just taken. If there are waiters, `left` in
    // this word is max_overtakes.
    word taken_anew() const noexcept { return taken_anew(queued_now()); }
    static word taken_anew(word seen) noexcept {
        return (seen & queued) == 0 ? taken : taken | queued | max_overtakes * one_left;
    }
    word queued_now() const noexcept { return queue_.empty() ? 0 : queued; }

    // Returns whether a coroutine that was resumed may take the mutex.
    static bool is_for_resumed(word seen) noexcept {
        return (seen & taken) == 0 || (seen & handoff) != 0;
    }

    BIDE_NOINLINE void unlock_slow(const void* owner) noexcept {
        // Order: relaxed; the CAS decides.
        word seen = word_.load(std::memory_order_relaxed);
        for (;;) {
            if ((seen & taken) == 0) {
                fatal("adaptive_mutex", owner, "unlocked while not locked");
            }
            word next = seen & ~taken;
            if ((seen & resumed) != 0) {
                next = seen < one_left ? seen | handoff : next - one_left;
            } else if ((seen & queued) != 0) {
                if ((seen & (notified | handoff)) != notified || seen < one_left) {
                    break;
                }
                next -= one_left; // the head is awake and retries without a grant
            }
            // Order: release [adaptive_mutex.unlock]; the next owner sees what this one did.
            // Another thread may hold the queue's lock. That thread changes the word by a CAS,
            // which fails if this step came first. Failure: look again.
            if (word_.compare_exchange_weak(seen, next, std::memory_order_release,
                                            std::memory_order_relaxed)) {
                return;
            }
        }
        // This thread holds the mutex and now acquires the queue's lock. From then on, other
        // threads change only the lock's `parked` bit, so the steps below may store the whole word.
        seen = lock_word::acquire(word_) & ~lock_word::both;
        if ((seen & queued) == 0) {
            lock_word::release_as(word_, 0);
            return;
        }
        node& head = queue_.front();
        const bool may_float = (seen & handoff) == 0 && seen >= one_left && head.amount() != handed;
        if (may_float && head.amount() == can_retry) {
            return resume_to_try((seen & ~(taken | queued)) - one_left);
        }
        const bool trying = (seen & notified) != 0;
        const auto sleeper = head.where();
        if (may_float && (trying || head.rouse())) {
            lock_word::release_as(word_, ((seen & ~taken) | notified) - one_left);
            if (!trying) {
                node::rouse_by(sleeper);
            }
            return;
        }
        hand_over();
    }
    // Takes the head, a coroutine, out of the queue and resumes it. Stores the word `next`, and
    // releases the lock of the queue.
    void resume_to_try(word next) noexcept {
        basic_wake_list<Platform> head;
        head.push(queue_.pop());
        // Order: release [lock_bits.release], by release_as(); it is also the release
        // [adaptive_mutex.unlock].
        lock_word::release_as(word_, next | resumed | queued_now());
        head.publish(wait_status::granted);
    }
    // Hands the mutex to the first waiter that can still take it, and releases the lock of the
    // queue. A case of a select cannot take the mutex after the select has chosen another case. If
    // no waiter can take the mutex, frees it.
    // Requires: the caller holds the mutex and the lock of the queue.
    void hand_over() noexcept {
        basic_wake_list<Platform> granted;
        while (granted.empty() && !queue_.empty()) {
            if (node& head = queue_.pop(); head.claim()) { // else: another case was chosen
                head.commit();
                granted.push(head);
                BIDE_PROBE(hand_over, this, &head, 1);
            }
        }
        // Order: release [lock_bits.release], by release_as(); it is also the release
        // [adaptive_mutex.unlock].
        lock_word::release_as(word_, granted.empty() ? 0 : taken_anew());
        granted.publish(wait_status::granted);
    }
    // Called when the head is awake. Spins for a bounded time and tries to take the mutex. Returns
    // true if the head has taken the mutex or its wait is complete.
    bool try_as_head(node& w) noexcept {
        bool mine = false;
        const bool over = basic_spin<Platform>::until([&]() noexcept {
            mine = try_take();
            return mine || w.is_complete();
        });
        if (mine) {
            lock_word::acquire(word_);
            leave_queue(w);
        }
        return over;
    }
    // Called before the head sleeps again. If the wait is decided, waits until its outcome is
    // published. If the mutex is free, takes it for the head. In these two cases the head does not
    // sleep. In all other cases, clears `notified`, so that the next unlock wakes the head. If
    // `overdue` is true, that unlock hands the mutex over.
    void give_up_trying(node& w, bool overdue) noexcept {
        word seen = lock_word::acquire(word_);
        if (!w.is_queued()) {
            lock_word::release(word_);
            w.await_outcome();
            return;
        }
        for (;;) {
            const bool is_free = (seen & taken) == 0;
            word next = seen | taken;
            if (!is_free) {
                next = (seen & ~(notified | lock_word::both)) | (overdue ? handoff : word{0});
            }
            // Order: acq_rel. Acquire [adaptive_mutex.unlock], if the step takes the mutex; release
            // [lock_bits.release], if it releases the queue's lock. Failure: look again.
            if (word_.compare_exchange_weak(seen, next, std::memory_order_acq_rel,
                                            std::memory_order_relaxed)) {
                if (is_free) {
                    leave_queue(w);
                } else {
                    lock_word::wake_after(&word_, seen);
                }
                return;
            }
        }
    }
    // Takes `w` out of the queue, and releases the lock of the queue, which the caller holds. If
    // `w` was the head and the mutex floats, grants the mutex to the next waiter, because no other
    // thread would try to take it.
    void withdraw(node& w) noexcept {
        const bool was_head = &queue_.front() == &w;
        queue_.remove(w);
        // Order: relaxed; the CAS decides.
        word seen = word_.load(std::memory_order_relaxed);
        for (;;) {
            const bool claim = was_head && !queue_.empty() && (seen & (taken | resumed)) == 0;
            word next = seen & ~lock_word::both;
            if ((seen & resumed) != 0) {
                next = (next & ~queued) | queued_now();
            } else if (claim) {
                next = seen | taken;
            } else if (was_head) {
                next = (next & taken) | (taken_anew() & ~taken);
            }
            // Order: acq_rel. Acquire [adaptive_mutex.unlock], if the step takes the mutex; release
            // [lock_bits.release], if it releases the queue's lock. Failure: look again.
            if (!word_.compare_exchange_weak(seen, next, std::memory_order_acq_rel,
                                             std::memory_order_relaxed)) {
                continue;
            }
            if (claim) {
                hand_over();
            } else {
                lock_word::wake_after(&word_, seen);
            }
            return;
        }
    }
    // Takes `w` out of the queue after its owner has taken the mutex without a grant. Releases the
    // queue's lock, which the caller holds. A stop after the owner has taken the mutex has no
    // effect. If a stop has taken `w` out before, the owner was not the head any more, and has
    // overtaken the waiters. The word then stays as it is: it may describe the next head, or a
    // coroutine that was resumed.
    void leave_queue(node& w) noexcept {
        if (w.is_queued()) {
            queue_.remove(w);
            lock_word::release_as(word_, taken_anew());
        } else {
            lock_word::release(word_);
            w.await_outcome();
        }
        w.settle(wait_status::granted);
    }

    typename Platform::template atomic<word> word_{0};
    basic_waiter_queue<Platform> queue_;
};

} // namespace detail

/// A mutex for short sections that threads and coroutines enter often. TimedLockable, not
/// recursive. It is unfair: a caller that finds the mutex free takes it before the waiters do.
/// Overtaking is bounded. The first waiter is overtaken at most max_overtakes times. If a thread
/// still fails to lock when max_overtake_time has passed after its first wakeup, the next unlock()
/// hands it the mutex. If a coroutine fails to lock when it runs, the next unlock() hands it the
/// mutex. Only a coroutine that waits by async_lock() is overtaken. If the first waiter is a case
/// of a select, a callback_wait, or another operation of a coroutine, unlock() always hands it the
/// mutex.
///
/// \code
/// bide::adaptive_mutex mutex;
/// int hits = 0;
/// {
///     std::lock_guard lock(mutex); // in a thread: blocks
///     ++hits;
/// }
/// auto lock = co_await mutex.async_lock(); // in a coroutine: suspends it
/// ++hits;
/// \endcode
///
/// lock_operations has the functions that lock it: lock(), with a stop token or without,
/// try_lock(), try_lock_for(), try_lock_until(), async_lock(). try_lock() locks it even if there
/// are waiters.
template <class Platform>
class basic_adaptive_mutex : public lock_operations<basic_adaptive_mutex<Platform>, Platform> {
    using queue = detail::basic_adaptive_lock<Platform>;

public:
    /// The largest number of times that the first waiter is overtaken.
    static constexpr unsigned max_overtakes = queue::max_overtakes;
    /// How long the first waiter may be overtaken, counted from its first wakeup. After this time
    /// the waiter requests that the next unlock() hands it the mutex.
    static constexpr std::chrono::microseconds max_overtake_time = queue::max_overtake_time;

    /// Constructs a mutex that is not locked.
    constexpr basic_adaptive_mutex() noexcept : basic_adaptive_mutex(nullptr) {}

    /// Constructs a mutex that is not locked, with a name for reports (core/deadlock_check.hpp).
    /// The name is copied if BIDE_DEADLOCK_CHECK is defined, and ignored otherwise.
    constexpr explicit basic_adaptive_mutex([[maybe_unused]] const char* its_name) noexcept {
        BIDE_CHECKED(detail::note_made<Platform>(this, "adaptive_mutex", its_name);)
    }

    /// Destroys the mutex.
    /// Requires: there are no waiters; terminates otherwise.
    ~basic_adaptive_mutex() {
        lock_.require_no_waiters("adaptive_mutex", this);
        BIDE_CHECKED(detail::note_gone<Platform>(this);)
    }

    basic_adaptive_mutex& operator=(basic_adaptive_mutex&&) = delete;

    /// Locks the mutex as lock() does, for a coroutine.
    /// Returns: an operation for co_await; its value is a lock that unlocks the mutex.
    basic_async_op<std::unique_lock<basic_adaptive_mutex>, Platform> async_lock() {
        const auto adopt = [this]() noexcept {
            return std::unique_lock<basic_adaptive_mutex>(*this, std::adopt_lock);
        };
        return {typename queue::template coroutine_locking<decltype(adopt)>{{{lock_}, adopt}}};
    }

    /// Unlocks the mutex, or hands it to the first waiter.
    /// Requires: the mutex is locked; terminates otherwise.
    void unlock() noexcept BIDE_THREAD_SAFETY(release_capability(), no_thread_safety_analysis) {
        BIDE_SWITCH_AFTER();
        BIDE_CHECKED(detail::note_unlocked<Platform>(&lock_);)
        lock_.unlock(this);
    }

private:
    friend lock_operations<basic_adaptive_mutex, Platform>;
    friend detail::condition_access;

    queue& exclusive() noexcept { return lock_; }

    queue lock_;
};

/// The data of a coroutine's wait for an adaptive_mutex.
template <class Platform>
struct wait_payload<result<std::unique_lock<basic_adaptive_mutex<Platform>>>> {
    /// The type of the data.
    using type = typename detail::basic_adaptive_lock<Platform>::coroutine_payload;
};

/// An adaptive mutex for users.
using adaptive_mutex = basic_adaptive_mutex<native_platform>;
static_assert(sizeof(adaptive_mutex) == 16 || sizeof(void*) != 8);

}} // namespace bide::BIDE_ABI

#endif
