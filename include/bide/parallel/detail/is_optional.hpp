// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_IS_OPTIONAL_HPP
#define BIDE_PARALLEL_DETAIL_IS_OPTIONAL_HPP

#include <bide/core/config.hpp>

#include <optional>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class T> inline constexpr bool is_optional = false;
template <class T> inline constexpr bool is_optional<std::optional<T>> = true;

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
