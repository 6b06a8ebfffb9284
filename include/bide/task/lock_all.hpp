// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_LOCK_ALL_HPP
#define BIDE_TASK_LOCK_ALL_HPP

/// \file
/// Locks several mutexes of bide without deadlock, for a coroutine.

#include <bide/sync/scoped_lock.hpp>
#include <bide/task/task.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// Owns the lock of a mutex of any type until the lock_set (sync/scoped_lock.hpp) takes the lock
// over. If the coroutine is destroyed before that, unlocks the mutex.
using locked_one = std::unique_ptr<void, void (*)(void*) noexcept>;

// The wait for the next mutex of the set. The wait has the same type for every mutex.
template <class Set> auto next_lock(Set& of) {
    return of.with_next([]<class M>(M& m) {
        const auto take = [&m]() noexcept {
            return locked_one(&m,
                              [](void* one) BIDE_THREAD_SAFETY(no_thread_safety_analysis) noexcept {
                                  static_cast<M*>(one)->unlock();
                              });
        };
        return m.async_lock_as(take).as_result();
    });
}

template <lockable... M>
task<result<scoped_lock<M...>>> lock_all(deadline until, std::stop_token stop, M&... mutexes) {
    lock_set<M...> held(mutexes...);
    while (!held.all_locked()) {
        auto locked = co_await detail::next_lock(held).with_deadline(until).with_stop(stop);
        if (!locked) {
            co_return unexpected{locked.error()};
        }
        static_cast<void>(locked->release());
        held.add_next();
    }
    co_return scoped_lock<M...>(std::move(held));
}

} // namespace detail

/// Locks the mutexes in the order of their addresses, as scoped_lock does, for a coroutine. Waits
/// in the queue of each mutex.
/// Returns: a task; its value is the lock. If the task is cancelled while it waits, it unlocks all
/// mutexes and throws stopped_error.
/// Throws: when the task is awaited: std::invalid_argument if a mutex is in the list twice.
template <detail::lockable... M> task<scoped_lock<M...>> async_lock_all(M&... mutexes) {
    auto locked = co_await detail::lock_all(deadline::never(), std::stop_token(), mutexes...);
    co_return std::move(locked).value(); // throws if the task is cancelled
}

/// Locks the mutexes as async_lock_all(mutexes...) does, or none of them if a stop is requested
/// first.
/// Returns: a task; its value is the lock, or errc::stopped.
template <detail::lockable... M>
task<result<scoped_lock<M...>>> async_lock_all(std::stop_token stop, M&... mutexes) {
    return detail::lock_all(deadline::never(), std::move(stop), mutexes...);
}

/// Locks the mutexes as async_lock_all(mutexes...) does, or none of them if `duration` has passed
/// first.
/// Returns: a task; its value is the lock, or errc::timeout.
template <class R, class P, detail::lockable... M>
task<result<scoped_lock<M...>>> async_lock_all(const std::chrono::duration<R, P>& duration,
                                               M&... mutexes) {
    return detail::lock_all(deadline::after(duration), std::stop_token(), mutexes...);
}

}} // namespace bide::BIDE_ABI

#endif
