// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_CANCEL_REASON_HPP
#define BIDE_TASK_CANCEL_REASON_HPP

/// \file
/// Says why a task is cancelled.

#include <bide/fwd.hpp>

namespace bide { inline namespace BIDE_ABI {

/// Why a task is cancelled. If several cancel it, the first one gives the reason.
enum class cancel_reason : std::uint8_t {
    none,      ///< It is not cancelled.
    requested, ///< cancel() was called for it, or for its group or set, without another reason.
    timeout,   ///< Its time is over (task/with_deadline.hpp).
    parent,    ///< The task that waits for it, or owns its group or set, is cancelled or goes on.
    sibling,   ///< Another child of its group has failed, or of its when_any() has ended.
    shutdown,  ///< Its scheduler shuts down.
    user = 128 ///< The first one of a program's own reasons; see user_reason().
};

/// Returns a reason that the program defines.
/// Requires: n is below 128; a higher number is taken modulo 128.
constexpr cancel_reason user_reason(unsigned n) noexcept {
    return static_cast<cancel_reason>(static_cast<unsigned>(cancel_reason::user) | (n & 127U));
}

}} // namespace bide::BIDE_ABI

#endif
