// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_DETAIL_LOCK_WAIT_HPP
#define BIDE_SYNC_DETAIL_LOCK_WAIT_HPP

// The operation of async_lock() (core/wait_ops.hpp). Steps waits for the mutex; lock() makes the
// lock of a mutex that is locked.

#include <bide/core/config.hpp>
#include <bide/core/result.hpp>
#include <bide/core/wait_ops.hpp>

#include <type_traits>

namespace bide::inline BIDE_ABI {
namespace detail {

// Finds the queue of a mutex, for a condition_variable (detail/condition_lock.hpp).
struct condition_access;

template <class Lock> using lock_made_by = std::invoke_result_t<const Lock&>;

template <class Steps, class Lock> struct lock_wait : Steps {
    Lock lock;

    result<lock_made_by<Lock>> collect(wait_status what) const noexcept {
        if (what != wait_status::granted) {
            return unexpected{errc_of(what)};
        }
        return lock();
    }
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
