// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_NEVER_DESTROYED_HPP
#define BIDE_CORE_DETAIL_NEVER_DESTROYED_HPP

#include <bide/core/config.hpp>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// A static object that is never destroyed. Other statics and threads may use the object until the
// process ends.
template <class T> union never_destroyed {
    constexpr never_destroyed() noexcept : object() {}
    constexpr ~never_destroyed() {}
    T object;
};

}}} // namespace bide::BIDE_ABI::detail

#endif
