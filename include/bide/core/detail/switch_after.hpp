// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_SWITCH_AFTER_HPP
#define BIDE_CORE_DETAIL_SWITCH_AFTER_HPP

// Do not include this header: core/detail/noted.hpp includes it if BIDE_SWITCH_POINTS is 1.

#include <bide/core/platform.hpp>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// A scope of a task at whose end a simulation may run other tasks.
class switch_after {
public:
    switch_after() noexcept = default;
    switch_after& operator=(switch_after&&) = delete;
    ~switch_after() {
        if (auto* const simulated = simulated_machine::here()) {
            simulated->switch_point();
        }
    }
};

}}} // namespace bide::BIDE_ABI::detail

#define BIDE_SWITCH_AFTER() const ::bide::detail::switch_after bide_switch_after

#endif
