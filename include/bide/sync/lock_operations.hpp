// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_LOCK_OPERATIONS_HPP
#define BIDE_SYNC_LOCK_OPERATIONS_HPP

/// \file
/// The functions that lock a mutex of bide exclusively: those of TimedLockable, one that takes a
/// stop token, and one for coroutines.
//
// A mutex derives from lock_operations, or from shared_lock_operations (shared_mutex.hpp). Its
// private function exclusive() returns an object with the functions below; shared() returns one for
// readers:
//
//   bool take_free() noexcept;                      locks by a CAS that expects the usual free
//                                                   state
//   bool try_take() noexcept;                       locks if that needs no wait
//   wait_status wait(const Limit&) noexcept;        waits at most until a deadline or a stop; the
//                                                   caller has already tried to lock
//   auto steps() noexcept;                          returns the functions of a coroutine's wait,
//                                                   except collect() (core/wait_ops.hpp)
//   bool give() noexcept;                           unlocks; returns false if it detects that the
//                                                   mutex is not locked
//
// A mutex that has its own unlock() needs no give(). The other mutexes have a private constant
// `name`, for messages.

#include <bide/core/waiter.hpp>

#include <mutex>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

template <class Platform> class basic_permit_queue; // permit_queue.hpp

struct condition_access; // condition_variable.hpp

template <class Lock> using lock_made_by = std::invoke_result_t<const Lock&>;

// Makes the result of a lock function that takes a stop token.
template <class Platform> result_on<void, Platform> stopped_or(bool is_locked) noexcept {
    using answer = result_on<void, Platform>;
    return is_locked ? answer() : answer(unexpect_t(), errc_of(wait_status::stopped));
}

// The operation of a coroutine that locks a mutex. Steps has the functions of the wait
// (core/wait_ops.hpp), except collect(). After a grant, the member `lock` makes the lock object.
template <class Steps, class Lock> struct lock_wait : Steps {
    Lock lock;

    result<lock_made_by<Lock>> collect(wait_status what) const noexcept {
        using answer = result<lock_made_by<Lock>>;
        if (what != wait_status::granted) {
            return answer(unexpect_t(), errc_of(what));
        }
        BIDE_CHECKED(note_collected<lock_made_by<Lock>>(&this->primitive());)
        return lock();
    }
};

template <class Platform, class Steps, class Lock>
basic_async_op<lock_made_by<Lock>, Platform> lock_operation(Steps steps, Lock lock) noexcept {
    return {lock_wait<Steps, Lock>{steps, lock}};
}

// Describes how callers of one kind, for example readers, take permits from a queue. Each caller
// takes `amount` permits. If no caller has a permit, `all` permits are free.
template <class Platform> struct permit_mode {
    using queue = basic_permit_queue<Platform>;
    using waits = thread_wait<queue, Platform>;

    queue& of;
    std::ptrdiff_t amount;
    std::ptrdiff_t all;

    bool take_free() const noexcept {
        return of.take_known(static_cast<std::uint64_t>(all), static_cast<std::uint64_t>(amount));
    }
    bool try_take() const noexcept { return of.try_take(static_cast<std::uint64_t>(amount)); }
    template <class Limit> wait_status wait(const Limit& limit) const noexcept {
        return waits::until(of, amount, limit);
    }
    typename queue::taking steps() const noexcept { return {of, amount}; }
    bool give() const noexcept {
        return of.give_known(static_cast<std::uint64_t>(all - amount),
                             static_cast<std::uint64_t>(amount)) ||
               of.give(static_cast<std::uint64_t>(amount), static_cast<std::uint64_t>(all));
    }

    // Gives back all permits but one.
    bool downgrade() const noexcept {
        const auto most = static_cast<std::uint64_t>(all - 1);
        return of.give(most, most);
    }

    // For a condition_variable: the queue of the mutex, and the amount of each waiter moved there.
    queue& waiters() const noexcept { return of; }
    std::ptrdiff_t handed_amount() const noexcept { return amount; }
};

} // namespace detail

/// Locks a Mutex exclusively. The class of the mutex says in which order callers get it.
template <class Mutex, class Platform>
class BIDE_THREAD_SAFETY(capability("mutex")) lock_operations {
public:
    /// Locks the mutex.
    /// Blocks: until the caller has the mutex.
    /// Memory order: what happens before the unlocks that freed the mutex happens before the
    /// return.
    void lock() BIDE_THREAD_SAFETY(acquire_capability(), no_thread_safety_analysis) {
        BIDE_SWITCH_AFTER();
        auto&& how = self().exclusive();
        if (!how.take_free()) {
            how.wait(deadline::never());
        }
        noted(true);
    }

    /// Locks the mutex if that needs no wait. Never blocks.
    /// Returns: true if the caller locked it.
    [[nodiscard]] bool try_lock() noexcept
        BIDE_THREAD_SAFETY(try_acquire_capability(true), no_thread_safety_analysis) {
        BIDE_SWITCH_AFTER();
        auto&& how = self().exclusive();
        return noted(how.take_free() || how.try_take());
    }

    /// Locks the mutex as lock() does, but waits at most `rest`.
    /// Returns: true if the caller locked it.
    template <class R, class P>
    [[nodiscard]] bool try_lock_for(const std::chrono::duration<R, P>& rest)
        BIDE_THREAD_SAFETY(try_acquire_capability(true), no_thread_safety_analysis) {
        return try_lock() || lock_by(deadline::after(rest));
    }
    /// Locks the mutex as lock() does, but waits at most until a point in time.
    template <class C, class D>
    [[nodiscard]] bool try_lock_until(const std::chrono::time_point<C, D>& when)
        BIDE_THREAD_SAFETY(try_acquire_capability(true), no_thread_safety_analysis) {
        return try_lock() || lock_by(deadline::at(when));
    }

    /// Locks the mutex as lock() does, unless a stop is requested first.
    /// Returns: errc::stopped if the caller did not lock it.
    result_on<void, Platform> lock(typename Platform::stop_token token)
        BIDE_THREAD_SAFETY(no_thread_safety_analysis) {
        return detail::stopped_or<Platform>(try_lock() || lock_by(token));
    }

    /// Locks the mutex as lock() does, for a coroutine.
    /// Returns: an operation for co_await; its value is a lock that unlocks the mutex.
    basic_async_op<std::unique_lock<Mutex>, Platform> async_lock() {
        return async_lock_as(
            [this]() noexcept { return std::unique_lock<Mutex>(self(), std::adopt_lock); });
    }
    /// Does the same as async_lock(), but with another result, for wrappers of the mutex. `make` is
    /// called when the mutex is locked, and returns the result. `make` is copied bytewise, and is
    /// at most as large as a pointer.
    template <class Make>
    basic_async_op<detail::lock_made_by<Make>, Platform> async_lock_as(Make make) noexcept {
        return detail::lock_operation<Platform>(self().exclusive().steps(), make);
    }

    /// Unlocks the mutex, or hands it to the first waiters.
    /// Requires: the mutex is locked exclusively; terminates if it detects that this does not hold.
    void unlock() noexcept BIDE_THREAD_SAFETY(release_capability(), no_thread_safety_analysis) {
        BIDE_SWITCH_AFTER();
        BIDE_CHECKED(detail::note_unlocked<Platform>(&self());)
        if (!self().exclusive().give()) {
            detail::fatal(Mutex::name, &self(), "unlocked while not locked");
        }
    }

    /// Makes clang's thread-safety analysis assume, to the end of the scope, that the caller has
    /// locked the mutex exclusively: by async_lock(), by lock() with a stop token, or by a lock of
    /// std. Does nothing at run time.
    void assume_locked() const noexcept BIDE_THREAD_SAFETY(assert_capability(this)) {}

protected:
    constexpr lock_operations() noexcept = default;
    ~lock_operations() = default;

    /// Returns the mutex.
    Mutex& self() noexcept { return static_cast<Mutex&>(*this); }

private:
    template <class Limit> bool lock_by(const Limit& limit) noexcept {
        BIDE_SWITCH_AFTER();
        return noted(self().exclusive().wait(limit) == wait_status::granted);
    }

    // Notes the lock if `is_locked` is true, and returns `is_locked`.
    bool noted(bool is_locked) noexcept {
        BIDE_CHECKED(detail::note_locked<Platform>(&self(), is_locked);)
        return is_locked;
    }
};

/// Locks a mutex, and unlocks it when it is destroyed. It is std::lock_guard, which clang's
/// thread-safety analysis does not know in libstdc++.
///
/// \code
/// bide::mutex mutex;
/// int hits BIDE_THREAD_SAFETY(guarded_by(mutex)) = 0;
///
/// void hit() {
///     bide::lock_guard lock(mutex);
///     ++hits; // without the lock, an error of clang's -Werror=thread-safety
/// }
/// \endcode
template <class Mutex>
class [[nodiscard("name it")]] BIDE_THREAD_SAFETY(scoped_lockable) lock_guard {
public:
    /// Locks the mutex.
    /// Blocks: until the caller has the mutex.
    explicit lock_guard(Mutex& what) BIDE_THREAD_SAFETY(acquire_capability(what)) : of_(what) {
        of_.lock();
    }
    /// Unlocks the mutex.
    ~lock_guard() BIDE_THREAD_SAFETY(release_capability()) { of_.unlock(); }

    lock_guard& operator=(lock_guard&&) = delete;

private:
    Mutex& of_;
};

}} // namespace bide::BIDE_ABI

#endif
