// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_WAIT_LIMITS_HPP
#define BIDE_CORE_DETAIL_WAIT_LIMITS_HPP

// When a wait of a coroutine ends early: its deadline and its stop tokens.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/result.hpp>
#include <bide/core/wait_ops.hpp>

#include <stop_token>
#include <type_traits>

namespace bide::inline BIDE_ABI {
namespace detail {

struct wait_deadline {
    deadline until = deadline::never();
};
template <int Stops> struct wait_limits : wait_deadline {
    std::stop_token stops[Stops];
};
template <> struct wait_limits<0> : wait_deadline {};
struct no_limits {};

// If the result of an operation can report a time-out and a stop, the operation has a deadline and
// stop tokens. An operation that waits for a time has only a deadline.
template <class T, int Stops>
using wait_limits_t =
    std::conditional_t<is_result<T>, wait_limits<Stops>,
                       std::conditional_t<may_wait_for_time<T>, wait_deadline, no_limits>>;

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
