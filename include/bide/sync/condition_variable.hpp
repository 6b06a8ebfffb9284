// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_CONDITION_VARIABLE_HPP
#define BIDE_SYNC_CONDITION_VARIABLE_HPP

/// \file
/// A condition variable for threads and coroutines, with each of bide's locks.
//
// detail/condition_queue.hpp has the protocol.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/coroutine_wait.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/detail/noted.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/spin.hpp>
#include <bide/core/thread_wait.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/waiter.hpp>
#include <bide/fwd.hpp>
#include <bide/sync/detail/condition_lock.hpp>
#include <bide/sync/detail/condition_queue.hpp>

#include <chrono>
#include <concepts>
#include <mutex>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {

/// Says that a coroutine's wait ended by a notification; with a predicate, that it is true.
template <class Platform> struct basic_notified {};

namespace detail {

// The state of a coroutine's wait, beside its node.
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
    detail::turn_back<Platform> turn;
};

// The predicate of a wait that has none.
struct unconditional {};

} // namespace detail

/// The state of a coroutine's wait in a condition_variable.
template <class Platform> struct wait_payload<result<basic_notified<Platform>>> {
    /// The type of the state.
    using type = detail::condition_payload<Platform>;
};

/// A queue of threads and coroutines that wait for a change of what a mutex guards. It is
/// std::condition_variable with coroutines, time-outs and stop tokens. `Lock` is a std::unique_lock
/// of a mutex, an adaptive_mutex or a shared_mutex, or a std::shared_lock of a shared_mutex.
///
/// A wait unlocks the mutex and queues in one step: no notification is lost that comes after a
/// change made under the mutex. A notified waiter moves to the queue of the mutex, and wakes as its
/// owner. So notify_all() does not wake its waiters together: they own the mutex one after the
/// other, in the order in which they began to wait. Two waiters that two threads notify at the same
/// time get the mutex in either order. An adaptive_mutex is always handed to such a waiter.
///
/// Every wait returns with the mutex locked, whatever its outcome is. No wait ends without a reason,
/// but the condition may have changed again before the waiter gets the mutex, so use a predicate. The
/// predicates run in the waiters, with the mutex locked.
///
/// Cancellation: a stop or a time-out ends the wait for a notification. The wait for the mutex that
/// follows, after any outcome, is not cancelled. The notification of a coroutine that is destroyed
/// before it resumes is lost: no other waiter gets it. If the deadline has passed or the stop was requested
/// when a wait begins, it ends at once, and does not unlock the mutex.
///
/// Requires: all waiters of a time use the same mutex, and hold it when they begin to wait; terminates
/// otherwise.
///
/// A wait cannot be a case of a select: if another case happened, the mutex would have to be locked
/// again. A foreign waker cannot wait either, for it cannot lock a mutex. Use a notify there.
///
/// Destroys: when all waiters were notified, it may be destroyed, even if they wait for the mutex
/// still, and even if the notification that let the last of them go has not returned. Every other
/// notification, and a stop or a time-out that ends a wait at that moment, must have returned.
template <class Platform> class basic_condition_variable {
    using queue = detail::basic_condition_queue<Platform>;
    using node = basic_waiter<Platform>;
    using place = typename queue::place;

public:
    /// Constructs a condition variable without waiters.
    constexpr basic_condition_variable() noexcept = default;

    /// Destroys the condition variable.
    /// Requires: there are no waiters that were not notified; terminates otherwise.
    ~basic_condition_variable() { queue_.require_no_waiters(); }

    basic_condition_variable(const basic_condition_variable&) = delete;
    basic_condition_variable& operator=(const basic_condition_variable&) = delete;

    /// Notifies the waiter that has waited longest, if there is one. The caller may hold the mutex;
    /// the waiter then gets it by the caller's unlock.
    void notify_one() noexcept { queue_.notify_one(); }
    /// Notifies all waiters. They get the mutex one after the other, in the order in which they came.
    void notify_all() noexcept { queue_.notify_all(); }

    // ---- Threads

    /// Unlocks the mutex, waits for a notification, and locks the mutex again.
    /// Blocks: until a notification, and until the mutex is free.
    template <class Lock> void wait(Lock& lock) { wait_once(lock, deadline::never()); }
    /// Waits until `predicate()` is true. It is called with the mutex locked, first at once.
    template <class Lock, std::predicate Predicate> void wait(Lock& lock, Predicate predicate) {
        while (!predicate()) {
            wait_once(lock, deadline::never());
        }
    }

    /// Waits as wait() does, but at most `rest`.
    /// Returns: true if it was notified; false after the time-out.
    template <class Lock, class R, class P>
    bool wait_for(Lock& lock, const std::chrono::duration<R, P>& rest) {
        return wait_once(lock, deadline::after(rest)) == wait_status::granted;
    }
    /// Waits as wait() does, but at most `rest`.
    /// Returns: what `predicate()` returned last.
    template <class Lock, class R, class P, std::predicate Predicate>
    bool wait_for(Lock& lock, const std::chrono::duration<R, P>& rest, Predicate predicate) {
        return wait_until_true(lock, deadline::after(rest), predicate);
    }
    /// Waits as wait_for() does, but at most until a point in time.
    template <class Lock, class C, class D>
    bool wait_until(Lock& lock, const std::chrono::time_point<C, D>& when) {
        return wait_once(lock, deadline::at(when)) == wait_status::granted;
    }
    /// \overload
    template <class Lock, class C, class D, std::predicate Predicate>
    bool wait_until(Lock& lock, const std::chrono::time_point<C, D>& when, Predicate predicate) {
        return wait_until_true(lock, deadline::at(when), predicate);
    }

    /// Waits as wait() does, unless a stop is requested first.
    /// Returns: errc::stopped if it was not notified.
    template <class Lock> result<void> wait(Lock& lock, typename Platform::stop_token token) {
        return result_of(wait_once(lock, token));
    }
    /// Waits as wait() does, unless a stop is requested first.
    /// Returns: errc::stopped if `predicate()` was false last.
    template <class Lock, std::predicate Predicate>
    result<void> wait(Lock& lock, typename Platform::stop_token token, Predicate predicate) {
        return wait_until_true(lock, token, deadline::never(), predicate);
    }
    /// Waits as wait() does, but at most `rest`, unless a stop is requested first.
    /// Returns: errc::timeout or errc::stopped if `predicate()` was false last.
    template <class Lock, class R, class P, std::predicate Predicate>
    result<void> wait_for(Lock& lock, typename Platform::stop_token token,
                          const std::chrono::duration<R, P>& rest, Predicate predicate) {
        return wait_until_true(lock, token, deadline::after(rest), predicate);
    }
    /// Waits as wait_for() does, but at most until a point in time.
    template <class Lock, class C, class D, std::predicate Predicate>
    result<void> wait_until(Lock& lock, typename Platform::stop_token token,
                            const std::chrono::time_point<C, D>& when, Predicate predicate) {
        return wait_until_true(lock, token, deadline::at(when), predicate);
    }

    // ---- Coroutines

    /// Waits as wait() does, for a coroutine. While the coroutine waits, `lock` owns nothing; when
    /// the coroutine resumes, `lock` owns the mutex. If the coroutine is destroyed while it waits, the
    /// mutex is not locked for it (core/async_op.hpp says when it may be destroyed).
    /// Returns: an operation for co_await; its value is a notified.
    /// Requires: `lock` outlives the wait.
    template <class Lock>
    basic_async_op<basic_notified<Platform>, Platform> async_wait(Lock& lock) {
        return async_wait(lock, detail::unconditional());
    }
    /// Waits as async_wait() does, until `predicate()` is true. It is called where the coroutine runs,
    /// with the mutex locked; the coroutine does not resume for a notification that leaves it false.
    /// Requires: `predicate` does not throw, and is copied bytewise: a lambda that captures three
    /// references or numbers at most, or a std::ref; terminates if it throws.
    template <class Lock, class Predicate>
        requires std::predicate<Predicate&> || std::same_as<Predicate, detail::unconditional>
    basic_async_op<basic_notified<Platform>, Platform> async_wait(Lock& lock, Predicate predicate) {
        require_locked(lock);
        return {std::in_place, waiting<Lock, Predicate>{predicate}, queue_, lock};
    }

private:
    template <class Lock> void require_locked(const Lock& lock) const noexcept {
        if (!lock.owns_lock()) {
            detail::fatal("condition_variable", this, "waited for with a lock that is not locked");
        }
    }

    // The wait of a thread, for thread_wait. It is granted when the thread has the mutex again.
    template <class Lock> struct thread {
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

    template <class Lock> static void note_relocked([[maybe_unused]] thread<Lock>& of) noexcept {
        BIDE_CHECKED(if (of.has_unlocked) {
            detail::condition_access::note_relocked(of.lock, of.lock.mutex(),
                                                    detail::actor::here());
        })
    }
    template <class Lock> wait_status wait_once(Lock& lock, deadline until) {
        require_locked(lock);
        thread<Lock> mine{queue_, lock};
        const wait_status what = thread_wait<thread<Lock>, Platform>::until(mine, 1, until);
        note_relocked(mine);
        return mine.outcome(what);
    }
    template <class Lock>
    wait_status wait_once(Lock& lock, const typename Platform::stop_token& token,
                          deadline until = deadline::never()) {
        require_locked(lock);
        thread<Lock> mine{queue_, lock};
        const wait_status what =
            thread_wait<thread<Lock>, Platform>::stoppable(mine, 1, token, until);
        note_relocked(mine);
        return mine.outcome(what);
    }
    template <class Lock, class Predicate>
    bool wait_until_true(Lock& lock, deadline until, Predicate& predicate) {
        while (!predicate()) {
            if (wait_once(lock, until) != wait_status::granted) {
                return predicate();
            }
        }
        return true;
    }
    template <class Lock, class Predicate>
    result<void> wait_until_true(Lock& lock, const typename Platform::stop_token& token,
                                 deadline until, Predicate& predicate) {
        while (!predicate()) {
            const wait_status what = wait_once(lock, token, until);
            if (what != wait_status::granted) {
                return predicate() ? result<void>() : unexpected{errc_of(what)};
            }
        }
        return {};
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
        wait_status try_now(payload& p) const noexcept
            requires is_conditional
        {
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
        wait_status try_now(payload&) const noexcept
            requires(!is_conditional)
        {
            return wait_status::waiting;
        }
        wait_status enqueue(node& w, payload& p) const noexcept {
            Lock& held = *static_cast<Lock*>(p.lock);
            mutex& m = *held.release(); // if the frame is destroyed, `held` unlocks nothing
            p.mutex = &m;
            const wait_status refused = p.at->enqueue(w, p.place);
            if (refused == wait_status::waiting) { // the coroutine may be gone
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
        detail::turn_back<Platform>& turn_back(payload& p) const noexcept
            requires is_conditional
        {
            return p.turn;
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
            if (p.mutex != nullptr) {
                detail::condition_access::note_relocked(Lock(), p.mutex,
                                                        detail::collecting::here());
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

} // namespace bide::inline BIDE_ABI

#endif
