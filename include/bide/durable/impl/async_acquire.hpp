// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_IMPL_ASYNC_ACQUIRE_HPP
#define BIDE_DURABLE_IMPL_ASYNC_ACQUIRE_HPP

// The functions of the three locks that return a task. Their headers do not include task/task.hpp,
// which a program without coroutines does not need.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/durable_mutex.hpp>
#include <bide/durable/durable_semaphore.hpp>
#include <bide/durable/durable_shared_mutex.hpp>
#include <bide/durable/guard.hpp>
#include <bide/durable/options.hpp>
#include <bide/task/task.hpp>

#include <system_error>
#include <utility>

namespace bide { inline namespace BIDE_ABI {

BIDE_DURABLE_INLINE task<result<durable_guard, std::error_code>>
durable_mutex::async_acquire(acquire_request request) {
    return async_wait(std::move(request));
}

BIDE_DURABLE_INLINE task<result<durable_guard, std::error_code>>
durable_semaphore::async_acquire(acquire_request request) {
    return async_wait(std::move(request));
}

BIDE_DURABLE_INLINE task<result<durable_guard, std::error_code>>
durable_shared_mutex::async_acquire(acquire_request request) {
    return async_wait(weighing(std::move(request), permit_count()));
}
BIDE_DURABLE_INLINE task<result<durable_guard, std::error_code>>
durable_shared_mutex::async_acquire_shared(acquire_request request) {
    return async_wait(weighing(std::move(request), 1));
}

}} // namespace bide::BIDE_ABI

#endif
