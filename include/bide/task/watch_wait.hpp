// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_WATCH_WAIT_HPP
#define BIDE_TASK_WATCH_WAIT_HPP

/// \file
/// Waits in a coroutine until the value of a watch satisfies a predicate.

#include <bide/channel/watch.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

namespace bide { inline namespace BIDE_ABI {

/// Waits as watch_receiver::wait() does, for a coroutine.
///
/// \code
/// auto ready = co_await bide::async_wait(state, [](const status& s) { return s.is_ready(); });
/// \endcode
///
/// Returns: a task; its value is a copy of the value for which the predicate was true, or
/// errc::closed. with_timeout() (task/with_deadline.hpp) limits its time.
/// Throws: when awaited, what the predicate and the copy of T throw; stopped_error, if the awaiting
/// task is cancelled. If the predicate throws, the value may count as seen.
/// Requires: no other thread or coroutine uses `of` before the task has ended.
template <class T, std::predicate<const T&> Predicate>
task<result<T>> async_wait(watch_receiver<T>& of, Predicate predicate) {
    for (;;) {
        if (auto seen = of.see_if(predicate)) {
            co_return std::move(*seen);
        }
        if (this_task::is_cancelled()) { // a wait that need not suspend does not look at this
            detail::throw_error(errc::stopped);
        }
        const auto changed = co_await of.async_changed();
        if (!changed) {
            if (changed.error() == errc::stopped) {
                detail::throw_error(errc::stopped); // so that with_timeout() returns errc::timeout
            }
            co_return unexpected{changed.error()};
        }
    }
}

}} // namespace bide::BIDE_ABI

#endif
