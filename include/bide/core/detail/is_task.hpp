// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_IS_TASK_HPP
#define BIDE_CORE_DETAIL_IS_TASK_HPP

// Distinguishes a task from other types, for headers that do not include task/task.hpp.

#include <bide/core/config.hpp>
#include <bide/fwd.hpp>

namespace bide { inline namespace BIDE_ABI { namespace detail {

template <class T> inline constexpr bool is_task = false;
template <class T> inline constexpr bool is_task<task<T>> = true;

}}} // namespace bide::BIDE_ABI::detail

#endif
