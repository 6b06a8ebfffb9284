// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SERVER_POOL_TIDIER_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SERVER_POOL_TIDIER_HPP

#include <bide/core/config.hpp>
#include <bide/durable/detail/lease_monitor.hpp>
#include <bide/sync/mutex.hpp>

#include <mutex>

namespace bide::inline BIDE_ABI {
namespace detail {

// Called by the lease monitor when it is time to tidy() the pool.
template <class Pool> struct pool_tidier final : monitor_client {
    explicit pool_tidier(Pool* pool) : of(pool) {}
    void happened() noexcept override {
        const std::lock_guard held(lock);
        if (of != nullptr) {
            of->tidy();
        }
    }
    void end() noexcept {
        const std::lock_guard held(lock);
        of = nullptr;
    }
    mutex lock;
    Pool* of; // under lock
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
