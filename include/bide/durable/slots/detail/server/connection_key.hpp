// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SERVER_CONNECTION_KEY_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SERVER_CONNECTION_KEY_HPP

#include <bide/core/config.hpp>
#include <bide/durable/slots/detail/server/connection_pool.hpp>

#include <cstddef>
#include <tuple>

namespace bide::inline BIDE_ABI {
namespace detail {

// The key of a connection_pool. Calls and renewals have connections of their own.
template <class Target> struct connection_key {
    Target target;
    bool is_for_renewals = false;

    std::size_t most_connections() const noexcept {
        return is_for_renewals ? 1 : most_call_connections;
    }
    friend bool operator<(const connection_key& a, const connection_key& b) noexcept {
        return std::tie(a.is_for_renewals, a.target) < std::tie(b.is_for_renewals, b.target);
    }
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
