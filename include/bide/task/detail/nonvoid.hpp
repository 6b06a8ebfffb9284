// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_DETAIL_NONVOID_HPP
#define BIDE_TASK_DETAIL_NONVOID_HPP

#include <bide/core/config.hpp>

#include <type_traits>
#include <variant>

namespace bide { inline namespace BIDE_ABI {

/// The type that stands for T among values: std::monostate for void, else T.
template <class T> using nonvoid_t = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

}} // namespace bide::BIDE_ABI

#endif
