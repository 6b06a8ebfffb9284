// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_MONITOR_CLIENT_HPP
#define BIDE_DURABLE_DETAIL_MONITOR_CLIENT_HPP

#include <bide/core/config.hpp>

namespace bide::inline BIDE_ABI {
namespace detail {

// A client of the lease monitor, which notifies it when its time has come or its descriptor is
// readable.
class monitor_client {
public:
    monitor_client() = default;
    monitor_client(const monitor_client&) = delete;
    monitor_client& operator=(const monitor_client&) = delete;
    virtual ~monitor_client() = default;

    // Called on the thread of the lease monitor, without its lock.
    virtual void happened() noexcept = 0;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
