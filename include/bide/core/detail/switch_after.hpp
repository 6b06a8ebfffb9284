// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_SWITCH_AFTER_HPP
#define BIDE_CORE_DETAIL_SWITCH_AFTER_HPP

// A place at which a simulation may run other tasks: behind each operation of bide if
// BIDE_SWITCH_POINTS is 1 (core/detail/noted.hpp), and behind each access to a test::atomic.

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

#endif
