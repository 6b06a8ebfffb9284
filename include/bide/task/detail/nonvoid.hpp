// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_DETAIL_NONVOID_HPP
#define BIDE_TASK_DETAIL_NONVOID_HPP

#include <bide/core/config.hpp>

#include <type_traits>
#include <variant>

namespace bide { inline namespace BIDE_ABI {

/// The type of the values of a function that returns T: std::monostate if T is void, otherwise T.
template <class T> using nonvoid_t = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

}} // namespace bide::BIDE_ABI

#endif
