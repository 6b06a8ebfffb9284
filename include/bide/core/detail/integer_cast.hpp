// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_INTEGER_CAST_HPP
#define BIDE_CORE_DETAIL_INTEGER_CAST_HPP

#include <bide/core/config.hpp>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// Converts an integer to a type that is narrower on some machines and the same on others, where g++
// warns of a useless static_cast.
template <class To, class From> constexpr To integer_cast(From value) noexcept {
    return static_cast<To>(value);
}

}}} // namespace bide::BIDE_ABI::detail

#endif
