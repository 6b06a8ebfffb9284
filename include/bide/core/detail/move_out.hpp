// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_MOVE_OUT_HPP
#define BIDE_CORE_DETAIL_MOVE_OUT_HPP

#include <bide/core/config.hpp>

#include <optional>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// Moves a value out. An optional is moved in its two parts: they were written one by one just
// before, and a load of both at once would wait until they are in the cache.
template <class T> T move_out(T& from) { return std::move(from); }
template <class T> std::optional<T> move_out(std::optional<T>& from) {
    if (from.has_value()) {
        return std::optional<T>(std::in_place, std::move(*from));
    }
    return std::nullopt;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
