// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_ACQUIRE_OBJECT_HPP
#define BIDE_TASK_ACQUIRE_OBJECT_HPP

/// \file
/// Borrows an object of an object_pool (sync/object_pool.hpp). A coroutine makes the objects.

#include <bide/sync/object_pool.hpp>
#include <bide/task/task.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

struct object_pool_access {
    template <class T> using pool = object_pool<T, native_platform>;

    // A wait for a permit. Afterwards the caller has the permit.
    template <class T> struct reserving : pool<T>::queue::taking {
        result<void> collect(wait_status what) const noexcept { return result_of(what); }
        void give_back(wait_status what) const noexcept {
            if (what == wait_status::granted) {
                this->from.give(1);
            }
        }
    };
    template <class T> static async_op<void> reserve(pool<T>& of) noexcept {
        return {reserving<T>{{of.permits_, 1}}};
    }
};

} // namespace detail

/// Borrows an object as object_pool::async_acquire() does. If no object is idle, awaits the task<T>
/// that make() returns, and adds the value of that task to the pool. T must be movable.
///
/// To limit the time of the wait and of make() together, use with_timeout().
/// Returns: a task; its value is the lease.
/// Throws: when the task is awaited: closed_error if the pool is closed; what make(), its task and
/// is_good() of the pool's source throw. After an exception or a cancellation, the next waiter may
/// borrow.
template <class T, class Make>
task<object_lease<T>> async_acquire_object(object_pool<T>& pool, Make make) {
    co_await detail::object_pool_access::reserve<T>(pool);
    detail::object_place<T, native_platform> mine(pool);
    const detail::pool_step next = mine.find();
    if (next == detail::pool_step::closed) {
        detail::throw_error(errc::closed);
    }
    if (next == detail::pool_step::make) {
        T made = co_await make();
        const auto take = [&made]() -> T&& { return std::move(made); };
        mine.fill(std::make_unique<detail::pooled_object<T, native_platform>>(std::in_place, take)
                      .release());
    }
    co_return mine.lend();
}

}} // namespace bide::BIDE_ABI

#endif
