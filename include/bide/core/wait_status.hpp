// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_WAIT_STATUS_HPP
#define BIDE_CORE_WAIT_STATUS_HPP

/// \file
/// Defines the outcome of a wait.

#include <bide/core/platform.hpp>
#include <bide/fwd.hpp>

namespace bide { inline namespace BIDE_ABI {

/// States the outcome of a wait. The first two values are no outcomes.
enum class wait_status : futex_word {
    waiting,    ///< There is no outcome yet.
    parked,     ///< There is no outcome yet, and the owner sleeps or is about to.
    granted,    ///< The wait got what it asked for.
    closed,     ///< The primitive was closed.
    stopped,    ///< A stop was requested.
    timed_out,  ///< The deadline has passed.
    no_memory,  ///< There was no memory for the item.
    all_let_go, ///< All waits were granted at once: an unused grant goes to no other waiter.
    destroyed   ///< The coroutine that waited was destroyed. Passed to cancel() only.
};

/// Returns the errc of a status that is not `granted`. core/result.hpp defines this function.
inline errc errc_of(wait_status what) noexcept;

}} // namespace bide::BIDE_ABI

#endif
