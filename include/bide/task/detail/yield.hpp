#ifndef BIDE_TASK_DETAIL_YIELD_HPP
#define BIDE_TASK_DETAIL_YIELD_HPP

#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/waiter.hpp>

namespace bide::inline BIDE_ABI {
namespace detail {

// Waits for nothing, but goes behind what is queued where it goes on.
inline async_op<void> yield() noexcept {
    using node = basic_waiter<native_platform>;
    static constexpr auto ops =
        wait_ops<result<void>, native_platform>(
            [](const wait_target&) noexcept { return wait_status::granted; },
            [](const wait_target&, node&) noexcept { return true; },
            [](const wait_target&, node&, wait_status) noexcept { return false; },
            [](const wait_target&, wait_status what) { return result_of(what); }, nullptr, true)
            .standing_alone();
    return {ops, wait_target{}};
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
