// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_CONDITION_VARIABLE_HPP
#define BIDE_SYNC_CONDITION_VARIABLE_HPP

/// \file
/// A condition variable for threads and coroutines. It waits with a mutex, an adaptive_mutex or a
/// shared_mutex.

#include <bide/core/wait_ops.hpp>
#include <bide/core/waiter.hpp>

#include <mutex>
#include <shared_mutex>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// The locks that a condition_variable waits with: std::unique_lock of a mutex, an adaptive_mutex or
// a shared_mutex, and std::shared_lock of a shared_mutex.

// How a lock is locked and unlocked.
struct condition_access {
    // Returns the object that locks `m` (lock_operations.hpp).
    template <class M> static decltype(auto) how(const std::unique_lock<M>&, M& m) noexcept {
        return m.exclusive();
    }
    template <class M> static decltype(auto) how(const std::shared_lock<M>&, M& m) noexcept {
        return m.shared();
    }
    template <class M>
    static void unlock(const std::unique_lock<M>&, M& m) noexcept
        BIDE_THREAD_SAFETY(no_thread_safety_analysis) {
        m.unlock();
    }
    template <class M>
    static void unlock(const std::shared_lock<M>&, M& m) noexcept
        BIDE_THREAD_SAFETY(no_thread_safety_analysis) {
        m.unlock_shared();
    }
};

// A type-erased lock, with the queue in which a waiter waits for the lock.
template <class Platform> class condition_lock {
public:
    using node = basic_waiter<Platform>;
    using wake_list = basic_wake_list<Platform>;

    template <class Lock> explicit condition_lock(const Lock& of) noexcept {
        auto&& how = condition_access::how(of, *of.mutex());
        auto& queue = how.waiters();
        using queue_type = std::remove_reference_t<decltype(queue)>;
        queue_ = &queue;
        amount_ = how.handed_amount();
        link_ = [](void* to, node& one) noexcept {
            return static_cast<queue_type*>(to)->link(one);
        };
        cancel_ = [](void* from, node& one) noexcept {
            return static_cast<queue_type*>(from)->cancel(one, wait_status::destroyed);
        };
    }

    // Called after the wait of `w` for a notification has ended. Moves `w` to the queue of the
    // lock. If the lock is free, grants the lock to `w` and appends `w` to `granted`. If not, a
    // later unlock grants the lock to `w`.
    void queue(node& w, wake_list& granted) const noexcept {
        auto* const link = link_;
        void* const to = queue_;
        w.ask(amount_);
        if (link(to, w) != wait_status::waiting) { // if it waits, `w` and *this may be destroyed
            granted.push(w);
        }
    }

    // The address of the queue of the mutex, and the amount of each waiter moved there.
    const void* address() const noexcept { return queue_; }
    std::ptrdiff_t amount() const noexcept { return amount_; }

    // Takes `w` out of the queue. Returns false if `w` is not in it.
    bool cancel(node& w) const noexcept { return cancel_(queue_, w); }

    // Returns true if both are locks of the same mutex.
    bool is_of_same_mutex(const condition_lock& other) const noexcept {
        return queue_ == other.queue_;
    }

private:
    void* queue_;
    std::ptrdiff_t amount_;
    wait_status (*link_)(void* queue, node& w) noexcept;
    bool (*cancel_)(void* queue, node& w) noexcept;
};

// The queue of a condition_variable. A notification moves the node of the waiter to the queue of
// the mutex. The waiter wakes when it gets the mutex: at once if the mutex is free, otherwise by
// the unlock that reaches the node. A stop and a time-out also move the node, because every wait
// returns with the mutex locked. (Linux's requeue does this for futexes: Drepper, "Futexes Are
// Tricky", section 8.)
//
//   stage of a wait                        the node is in
//   waits                                  this queue, or no queue yet
//   notified, stopped or timed_out         the queue of the mutex, or a list on the way to it
//
// The stage changes once in a wait, under the lock of this queue. A coroutine may be destroyed
// while it waits, but not while another thread moves its node (core/async_op.hpp). So when a
// coroutine is destroyed, its node is not on the way between the two queues.
//
// Why no notification is lost: a waiter queues its node while it holds its mutex, and unlocks the
// mutex afterwards. A notifier makes the condition true while it holds the mutex. If the notifier
// held the mutex before the waiter, the waiter has seen that the condition is true. If the notifier
// locks the mutex after the waiter has unlocked it, the notifier finds the node. If the
// notification comes before the waiter sleeps, the node moves to the queue of the mutex. The sleep
// ends when the outcome is published, even if it is published before the sleep.
//
// Last access. The last access of a notifier to this queue is the release of the lock. Afterwards
// the notifier accesses only nodes, and the mutex, which outlives its waiters. The
// condition_variable may be destroyed when all its waiters are notified, even if they have not
// locked the mutex yet. So a stop or a time-out first reads the stage. If the wait has left this
// queue, the stop or time-out does not access the queue.

template <class Platform> class basic_condition_queue {
public:
    using node = basic_waiter<Platform>;

    static constexpr const char* waited_for = "condition_variable";

    // The data of a wait beside its node: the lock, and how the wait ended.
    class place {
    public:
        explicit place(const condition_lock<Platform>& of) noexcept : lock_(of) {}
        // Requires: the wait has not begun.
        place(place&& other) noexcept : lock_(other.lock_) {}

        // Returns how the wait ended. Called when the wait has the lock again.
        wait_status outcome() const noexcept {
            // Order: relaxed; the stage was stored before the lock was granted.
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

        const condition_lock<Platform>& lock() const noexcept { return lock_; }

        // Returns true if the queue was empty when this wait entered it. Called by the owner.
        bool was_first() const noexcept { return was_first_; }

    private:
        friend basic_condition_queue;

        enum class stage : futex_word { waits, notified, stopped, timed_out };

        condition_lock<Platform> lock_;
        bool was_first_ = false;
        typename Platform::template atomic<stage> stage_{stage::waits};
    };

    constexpr basic_condition_queue() noexcept = default;
    basic_condition_queue& operator=(basic_condition_queue&&) = delete;

    void require_no_waiters() noexcept {
        // Order: relaxed; this only checks a precondition.
        if ((word_.load(std::memory_order_relaxed) & queued) != 0) {
            lock::acquire(word_);
            queue_.fatal_destroyed("condition_variable", this);
        }
    }

    // Enqueues `w` and returns waiting. If the wait was cancelled before, stores that outcome in
    // `w` and returns it.
    // Requires: the owner of `w` holds the mutex. If the result is waiting, the owner then unlocks
    // the mutex.
    wait_status enqueue(node& w, place& of) noexcept {
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

    void notify_one() noexcept {
        // Order: relaxed; a waiter that this notification must reach has queued its node and then
        // unlocked the mutex. This thread has locked the mutex after that, so it sees `queued`.
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
    void notify_all() noexcept {
        // Order: relaxed; as in notify_one(): this thread has locked the mutex after the waiters
        // unlocked it, so it sees `queued`.
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

    // If `why` is a stop or a time-out, ends the wait for a notification, and moves `w` to the
    // queue of its mutex. If `w` is not queued yet, a later enqueue() completes it with `why`. If
    // the wait for a notification has ended before, does nothing. In these three cases the result
    // is false: the owner returns only when it holds its mutex.
    // If the coroutine is being destroyed, `why` is wait_status::destroyed. Then the call takes `w`
    // out of this queue or out of the queue of the mutex, and returns true. If `w` is in no queue,
    // it returns false.
    bool cancel(node& w, place& of, wait_status why) noexcept {
        const bool destroys = why == wait_status::destroyed;
        // Order: relaxed; the stage changes only once. After that, *this may be destroyed.
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

private:
    using word = futex_word;
    using lock = lock_bits<Platform, word>;
    using wake_list = basic_wake_list<Platform>;
    using stage = typename place::stage;

    static constexpr word queued = 4; // there are waiters; changed under the lock only

    // Requires: the lock is held.
    void unlock() noexcept { lock::release_as(word_, queue_.empty() ? word{0} : queued); }

    // Ends the wait of `w` for a notification: stores the stage `how`. The waiter and cancellers
    // read the stage.
    // Requires: the lock is held.
    // Order: relaxed; the waiter reads the stage after it was granted the mutex. A canceller that
    // reads the stage without the lock learns only that the wait has ended.
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

} // namespace detail

/// The value of async_wait(), if the wait succeeds. With a predicate, `predicate()` is then true.
template <class Platform> struct basic_notified {};

namespace detail {

// The data of a coroutine's wait beside its node.
template <class Platform> struct condition_payload {
    using queue = basic_condition_queue<Platform>;

    template <class Lock>
    condition_payload(queue& of, Lock& held) noexcept
        : at(&of), lock(&held), place(condition_lock<Platform>(held)) {}
    // Requires: the wait has not begun.
    condition_payload(condition_payload&& other) noexcept
        : at(other.at), lock(other.lock), place(std::move(other.place)) {}

    queue* at;
    void* lock;            // the lock object of the coroutine
    void* mutex = nullptr; // the mutex of `lock` while the coroutine waits
    typename queue::place place;
    detail::retry_on_grant<Platform> retry;
};

// Stands for the predicate of a wait without a predicate.
struct unconditional {};

template <class Predicate>
concept condition = std::predicate<Predicate&> || std::same_as<Predicate, unconditional>;

} // namespace detail

/// The state of a coroutine's wait in a condition_variable.
template <class Platform> struct wait_payload<result<basic_notified<Platform>>> {
    /// The type of the state.
    using type = detail::condition_payload<Platform>;
};

/// A queue of threads and coroutines that wait for a change of the state that a mutex guards. It is
/// std::condition_variable with coroutines, time-outs and stop tokens. `Lock` is a std::unique_lock
/// of a mutex, an adaptive_mutex or a shared_mutex, or a std::shared_lock of a shared_mutex.
///
/// \code
/// bide::mutex mutex; // or an adaptive_mutex, or a shared_mutex
/// bide::condition_variable changed;
/// std::deque<int> jobs;
///
/// std::unique_lock lock(mutex);
/// changed.wait(lock, [&] { return !jobs.empty(); }); // in a thread
/// co_await changed.async_wait(lock, [&] { return !jobs.empty(); }); // in a coroutine
///
/// jobs.push_back(1); // elsewhere, under the same mutex
/// changed.notify_one();
/// \endcode
///
/// A wait queues its waiter before it unlocks the mutex. So if the condition is changed under the
/// mutex, a notification after the change is not lost. A notified waiter moves to the queue of the
/// mutex, and wakes as the owner of the mutex. So notify_all() does not wake its waiters together.
/// They get the mutex one after the other, in the order in which they began to wait. Two waiters
/// that two threads notify at the same time get the mutex in either order. An adaptive_mutex is
/// always handed to a notified waiter.
///
/// Every wait returns with the mutex locked, whatever its outcome is. There are no spurious
/// wakeups. But the condition may change again before a notified waiter gets the mutex, so use a
/// predicate. The waiters call their predicates, with the mutex locked.
///
/// Cancellation: a stop or a time-out ends the wait for a notification. The wait for the mutex
/// follows, and cannot be cancelled. If a coroutine is destroyed after it was notified and before
/// it resumes, the notification is lost: no other waiter gets it. If the deadline has passed or the
/// stop was requested when a wait begins, the wait ends at once, and does not unlock the mutex.
///
/// Requires: all waiters that wait at the same time use the same mutex, and hold it when they begin
/// to wait; terminates otherwise.
///
/// A wait cannot be a case of a select: if another case happened, the mutex would have to be locked
/// again. A waker of another library cannot wait either, because it cannot lock a mutex. In a
/// select and for such a waker, use a notify.
///
/// Destroys: when all waiters were notified, the condition_variable may be destroyed. Waiters may
/// still wait for the mutex, and the notification of the last waiter need not have returned. Every
/// other notification, and a stop or a time-out that is just ending a wait, must have returned
/// before.
template <class Platform> class basic_condition_variable {
    using queue = detail::basic_condition_queue<Platform>;
    using node = basic_waiter<Platform>;
    using place = typename queue::place;

public:
    /// Constructs a condition variable without waiters.
    constexpr basic_condition_variable() noexcept = default;

    /// Destroys the condition variable.
    /// Requires: every waiter was notified; terminates otherwise.
    ~basic_condition_variable() { queue_.require_no_waiters(); }

    basic_condition_variable& operator=(basic_condition_variable&&) = delete;

    /// Notifies the waiter that has waited longest, if there is one. If the caller holds the mutex,
    /// the waiter gets the mutex after the caller has unlocked it.
    void notify_one() noexcept {
        BIDE_SWITCH_AFTER();
        queue_.notify_one();
    }
    /// Notifies all waiters. They get the mutex one after the other, in the order in which they
    /// came.
    void notify_all() noexcept {
        BIDE_SWITCH_AFTER();
        queue_.notify_all();
    }

    // ---- Threads

    /// Unlocks the mutex, waits for a notification, and locks the mutex again. With a predicate,
    /// repeats this until `predicate()` returns true. The predicate is called with the mutex
    /// locked, for the first time before the first wait.
    /// Blocks: until a notification, and then until the caller has the mutex.
    template <class Lock, detail::condition Predicate = detail::unconditional>
    void wait(Lock& lock, Predicate predicate = {}) {
        wait_by(lock, predicate, deadline::never());
    }

    /// Waits as wait() does, but at most `rest`. If `rest` is not positive, evaluates the predicate
    /// and returns, without unlocking the mutex.
    /// Returns: without a predicate, true if it was notified, and false after the time-out; with
    /// one, the result of the last call of `predicate()`.
    template <class Lock, detail::condition Predicate = detail::unconditional>
    bool wait_for(Lock& lock, deadline::from_now rest, Predicate predicate = {}) {
        return wait_by(lock, predicate, deadline(rest)) == wait_status::granted;
    }
    /// Waits as wait_for() does, but at most until a point in time.
    template <class Lock, detail::condition Predicate = detail::unconditional>
    bool wait_until(Lock& lock, deadline when, Predicate predicate = {}) {
        return wait_by(lock, predicate, when) == wait_status::granted;
    }

    /// Waits as wait() does, unless a stop is requested first.
    /// Returns: errc::stopped if a stop ended the wait. With a predicate, returns this error only
    /// if `predicate()` then returned false.
    template <class Lock, detail::condition Predicate = detail::unconditional>
    result<void> wait(Lock& lock, typename Platform::stop_token token, Predicate predicate = {}) {
        return result_of(wait_by(lock, predicate, token));
    }
    /// Waits as wait() does, but at most `rest`, unless a stop is requested first.
    /// Returns: errc::timeout or errc::stopped if the time-out or the stop ended the wait. With a
    /// predicate, returns such an error only if `predicate()` then returned false.
    template <class Lock, detail::condition Predicate = detail::unconditional>
    result<void> wait_for(Lock& lock, typename Platform::stop_token token, deadline::from_now rest,
                          Predicate predicate = {}) {
        return result_of(wait_by(lock, predicate, token, deadline(rest)));
    }
    /// Waits as wait_for() does, but at most until a point in time.
    template <class Lock, detail::condition Predicate = detail::unconditional>
    result<void> wait_until(Lock& lock, typename Platform::stop_token token, deadline when,
                            Predicate predicate = {}) {
        return result_of(wait_by(lock, predicate, token, when));
    }

    // ---- Coroutines

    /// Waits as wait() does, for a coroutine. While the coroutine waits, `lock` owns nothing; when
    /// the coroutine resumes, `lock` owns the mutex. If the coroutine is destroyed while it waits,
    /// the mutex is not locked for it (core/async_op.hpp says when it may be destroyed).
    ///
    /// The thread that would resume the coroutine calls the predicate, with the mutex locked. If
    /// the predicate returns false after a notification, the coroutine does not resume.
    /// Returns: an operation for co_await; its value is a `notified`.
    /// Requires: `lock` outlives the wait. `predicate` does not throw; terminates otherwise.
    /// `predicate` is copied bytewise: it is a std::ref, or a lambda that captures three references
    /// or numbers at most.
    template <class Lock, detail::condition Predicate = detail::unconditional>
    basic_async_op<basic_notified<Platform>, Platform> async_wait(Lock& lock,
                                                                  Predicate predicate = {}) {
        require_locked(lock);
        return {std::in_place, waiting<Lock, Predicate>{predicate}, queue_, lock};
    }

private:
    template <class Lock> void require_locked(const Lock& lock) const noexcept {
        if (!lock.owns_lock()) {
            detail::fatal("condition_variable", this, "waited for with a lock that is not locked");
        }
    }

    // The wait of a thread, for thread_wait. The wait is granted when the thread has the mutex
    // again. This object fills one cache line, which the notifier reads and writes.
    template <class Lock> struct alignas(64) thread {
        queue& at;
        Lock& lock;
        place of{detail::condition_lock<Platform>(lock)};
        BIDE_CHECKED(bool has_unlocked = false;)

        const auto& primitive() const noexcept { return at; }
        const auto& relock() const noexcept { return of.lock(); }
        wait_status enqueue(node& w) noexcept {
            const wait_status refused = at.enqueue(w, of);
            if (refused == wait_status::waiting) {
                BIDE_CHECKED(has_unlocked = true;)
                detail::condition_access::unlock(lock, *lock.mutex());
            }
            return refused;
        }
        bool cancel(node& w, wait_status why) noexcept { return at.cancel(w, of, why); }
        bool await(node& w, deadline until) noexcept {
            if (of.was_first()) {
                basic_spin<Platform>::until([&w]() noexcept { return w.is_complete(); });
            }
            return w.sleep_through(until);
        }
        wait_status outcome(wait_status what) const noexcept {
            return what == wait_status::granted ? of.outcome() : what;
        }
    };

    // `limits` is a deadline, a stop token, or both.
    template <class Lock, class... Limits>
    wait_status wait_once(Lock& lock, const Limits&... limits) {
        require_locked(lock);
        thread<Lock> mine{queue_, lock};
        const wait_status what = thread_wait<thread<Lock>, Platform>::until(mine, 1, limits...);
        BIDE_CHECKED(detail::note_locked<Platform>(lock.mutex(), mine.has_unlocked,
                                                   detail::noted_mode<Lock>);)
        return mine.outcome(what);
    }
    // Returns granted if the caller was notified; with a predicate, if `predicate()` is true at the
    // end.
    template <class Lock, class Predicate, class... Limits>
    wait_status wait_by(Lock& lock, Predicate& predicate, const Limits&... limits) {
        if constexpr (std::same_as<Predicate, detail::unconditional>) {
            return wait_once(lock, limits...);
        } else {
            wait_status what = wait_status::granted;
            while (!predicate()) {
                if (what != wait_status::granted) {
                    return what;
                }
                what = wait_once(lock, limits...);
            }
            return wait_status::granted;
        }
    }

    // The wait of a coroutine (core/wait_ops.hpp).
    template <class Lock, class Predicate> struct waiting {
        using payload = detail::condition_payload<Platform>;
        using mutex = typename Lock::mutex_type;

        static constexpr bool stands_alone = true;
        static constexpr bool is_conditional = !std::same_as<Predicate, detail::unconditional>;

        Predicate predicate;

        const auto& primitive(const payload& p) const noexcept { return *p.at; }
        const auto& relock(const payload& p) const noexcept { return p.place.lock(); }
        wait_status try_now([[maybe_unused]] payload& p) const noexcept {
            if constexpr (is_conditional) {
                BIDE_CHECKED(note_relocked(p);)
                own(p);
                const wait_status ended = p.place.outcome();
                p.place.reset();
                Predicate call = predicate;
                if (call()) {
                    return wait_status::granted;
                }
                return ended == wait_status::granted ? wait_status::waiting : ended;
            }
            return wait_status::waiting;
        }
        wait_status enqueue(node& w, payload& p) const noexcept {
            Lock& held = *static_cast<Lock*>(p.lock);
            mutex& m = *held.release(); // if the frame is destroyed, `held` unlocks nothing
            p.mutex = &m;
            const wait_status refused = p.at->enqueue(w, p.place);
            if (refused == wait_status::waiting) { // the coroutine may be destroyed
                detail::condition_access::unlock(Lock(), m);
            } else {
                own(p);
            }
            return refused;
        }
        bool cancel(node& w, wait_status why, payload& p) const noexcept {
            return p.at->cancel(w, p.place, why);
        }
        result<basic_notified<Platform>> collect(wait_status what, payload& p) const noexcept {
            BIDE_CHECKED(note_relocked(p);)
            own(p);
            if (!is_conditional && what == wait_status::granted) {
                what = p.place.outcome();
            }
            if (what != wait_status::granted) {
                return unexpected{errc_of(what)};
            }
            return basic_notified<Platform>();
        }
        void give_back(wait_status what, payload& p) const noexcept {
            if (p.mutex != nullptr && what == wait_status::granted) {
                detail::condition_access::unlock(Lock(), *static_cast<mutex*>(p.mutex));
            }
        }
        detail::retry_on_grant<Platform>& retry_on_grant(payload& p) const noexcept
            requires is_conditional
        {
            return p.retry;
        }

        // Gives the mutex, which is locked, to the lock object of the coroutine.
        static void own(payload& p) noexcept {
            if (p.mutex != nullptr) {
                *static_cast<Lock*>(p.lock) = Lock(*static_cast<mutex*>(p.mutex), std::adopt_lock);
                p.mutex = nullptr;
            }
        }

#if defined(BIDE_DEADLOCK_CHECK)
        static void note_relocked(const payload& p) noexcept {
            if (detail::is_noted<Platform> && p.mutex != nullptr) {
                detail::note_collected<Lock>(p.mutex);
            }
        }
#endif
    };

    queue queue_;
};

/// A condition variable for users.
using condition_variable = basic_condition_variable<native_platform>;
/// The value of a coroutine's wait in a condition variable.
using notified = basic_notified<native_platform>;
static_assert(sizeof(condition_variable) == 16 || sizeof(void*) != 8);

}} // namespace bide::BIDE_ABI

#endif
