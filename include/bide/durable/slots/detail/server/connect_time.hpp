// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_SLOTS_DETAIL_SERVER_CONNECT_TIME_HPP
#define BIDE_DURABLE_SLOTS_DETAIL_SERVER_CONNECT_TIME_HPP

// How long a connect may take. The end of a call is a time of the steady clock or a bide::deadline.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>

#include <algorithm>
#include <chrono>

namespace bide::inline BIDE_ABI {
namespace detail {

using connect_deadline = std::chrono::steady_clock::time_point;

inline connect_deadline connect_deadline_of(connect_deadline end) noexcept { return end; }
inline connect_deadline connect_deadline_of(deadline end) noexcept {
    return connect_deadline(std::chrono::nanoseconds(end.steady_ns()));
}

inline bool has_passed(connect_deadline end) noexcept {
    return end <= std::chrono::steady_clock::now();
}
inline bool has_passed(deadline end) noexcept { return end.has_passed(); }

// Returns the deadline of a connect while other connections are open. The connect gets a quarter of
// the time that is left, at most `longest`.
inline connect_deadline share_of(connect_deadline end, std::chrono::nanoseconds longest) noexcept {
    const connect_deadline now = std::chrono::steady_clock::now();
    return now + std::min<std::chrono::nanoseconds>((end - now) / 4, longest);
}
inline deadline share_of(deadline end, std::chrono::nanoseconds longest) noexcept {
    const connect_deadline share = share_of(connect_deadline_of(end), longest);
    return deadline::at_ns(std::chrono::nanoseconds(share.time_since_epoch()).count());
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
