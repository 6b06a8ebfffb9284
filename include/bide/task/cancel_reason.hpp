// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_CANCEL_REASON_HPP
#define BIDE_TASK_CANCEL_REASON_HPP

/// \file
/// Says why a task is cancelled.

#include <bide/fwd.hpp>

namespace bide { inline namespace BIDE_ABI {

/// Why a task is cancelled. If a task is cancelled several times, the first call gives the reason.
enum class cancel_reason : std::uint8_t {
    none,      ///< The task is not cancelled.
    requested, ///< cancel() was called for the task, its group or its set, without a reason.
    timeout,   ///< The deadline of the task has passed (task/with_deadline.hpp).
    parent,    ///< The awaiting task is cancelled, or the group or set is destroyed.
    sibling,   ///< Another member of its group has failed, or another child of its when_any() won.
    shutdown,  ///< The scheduler of the task shuts down.
    user = 128 ///< The first reason that a program may define; see user_reason().
};

/// Returns reason number n of the reasons that a program defines.
/// If n is 128 or more, uses n modulo 128.
constexpr cancel_reason user_reason(unsigned n) noexcept {
    return static_cast<cancel_reason>(static_cast<unsigned>(cancel_reason::user) | (n & 127U));
}

}} // namespace bide::BIDE_ABI

#endif
