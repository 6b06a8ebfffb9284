// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_OBSERVER_HPP
#define BIDE_DURABLE_OBSERVER_HPP

/// \file
/// Tells a program what happens to its durable locks, for metrics, logs and alarms.

#include <bide/durable/ticket.hpp>

#include <chrono>

namespace bide { inline namespace BIDE_ABI {

/// Why a grant was lost.
enum class durable_loss {
    none,    ///< it is not lost
    expired, ///< the lease ended before a renewal was confirmed
    removed, ///< the record has no such grant: an administrator took it away, or the record was lost
    forked   ///< this process is a child of the process that holds the grant
};

/// Receives what happens to the contenders of one lock object (durable_options::observer). The
/// default of every function does nothing.
/// Requires: the overrides are safe for concurrent calls. Threads that use the lock and threads of
/// bide call them. A function that blocks delays the leases of other locks.
class durable_observer {
public:
    durable_observer& operator=(durable_observer&&) = delete;
    virtual ~durable_observer() = default;

    /// A contender waits, and `ahead` waiters are before it. Called again when the number changes.
    virtual void waits(const durable_ticket&, std::int64_t /* ahead */) noexcept {}
    /// A contender acquired its permits after `waited`.
    virtual void acquired(const durable_ticket&, std::chrono::milliseconds /* waited */) noexcept {}
    /// A contender gave up after `waited`: a timeout, a stop, or an error. Not called if the
    /// acquisition ends with an exception.
    virtual void gave_up(const std::error_code& /* why */,
                         std::chrono::milliseconds /* waited */) noexcept {}

    /// A renewal was confirmed when more than half of the lease had passed. `left` was the rest of
    /// the lease less the margin.
    virtual void renewed_late(const durable_ticket&,
                              std::chrono::milliseconds /* left */) noexcept {}
    /// No renewal was confirmed in time: the lock is lost after `left` unless a renewal is
    /// confirmed before. See durable_options::warn_before.
    virtual void at_risk(const durable_ticket&, std::chrono::milliseconds /* left */) noexcept {}
    /// The lock was lost.
    virtual void lost(const durable_ticket&, durable_loss /* why */) noexcept {}
    /// The permits were released after they were held for `held`.
    virtual void released(const durable_ticket&, std::chrono::milliseconds /* held */) noexcept {}

    /// An operation on the store failed. The lock may try it again.
    virtual void store_failed(const std::error_code&) noexcept {}
};

}} // namespace bide::BIDE_ABI

#endif
