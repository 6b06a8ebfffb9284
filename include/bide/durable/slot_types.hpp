// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOT_TYPES_HPP
#define BIDE_DURABLE_SLOT_TYPES_HPP

/// \file
/// The plain types of a slot: versions, snapshots, results and guarantees. durable/slot.hpp has the
/// operations.

#include <bide/core/config.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <system_error>

namespace bide { inline namespace BIDE_ABI {

/// The version of a value in a slot. 0: no value was ever stored.
using slot_version = std::uint64_t;

/// A value of a slot, with its version.
struct slot_snapshot {
    slot_version version = 0; ///< the version of the value
    std::string value{};      ///< the value

    /// A newer value may have been stored and lost: the store returned what it could still read.
    /// Fencing tokens of the lost value may have been used.
    bool fell_back = false;

    /// The lost value was acknowledged. A contender may be a holder according to the lost value,
    /// and this value does not show that.
    bool lost_acknowledged = false;

    /// The store's clock at the time of the read, in milliseconds since 1970, if it has one.
    std::optional<std::int64_t> server_ms{};

    /// A counter of the store, if it keeps one: larger than the number of changes ever made to this
    /// value, and never decreasing, even if the value is absent.
    std::optional<std::int64_t> counter{};
};

/// The result of a compare-and-swap.
enum class cas_status {
    stored,       ///< the value was stored
    conflict,     ///< the version is another one; nothing was stored
    failed,       ///< nothing was stored: see the error
    indeterminate ///< stored or not, now or a little later: see the error, and load() again
};

/// The result of a compare-and-swap, with its details.
struct cas_result {
    cas_status status = cas_status::failed; ///< what happened
    slot_version version = 0;               ///< stored: the version of the new value
    std::optional<slot_snapshot>
        current{}; ///< conflict: the current value, if the store returned it with the answer
    std::error_code error{}; ///< failed, indeterminate: why
};

/// The clock of the times of a record. See durable/expiry.hpp.
enum class lock_clock {
    caller,   ///< the caller's `now`
    boottime, ///< this machine's clock since its boot, which continues while it sleeps
    server,   ///< the store's clock
    observed  ///< none: a lease expires when it was seen unchanged for longer than its length
};

/// What a slot guarantees.
struct slot_guarantees {
    /// An acknowledged value is never lost while a contender may rely on it: not by a crash of
    /// processes or of the system, by a loss of power, or by a replica that takes over.
    bool keeps_acknowledged = false;

    /// The contenders that share the slot may be on several machines.
    bool multi_host = false;

    /// The clock that its locks use by default.
    lock_clock clock = lock_clock::boottime;
};

}} // namespace bide::BIDE_ABI

#endif
