#ifndef BIDE_CORE_DETAIL_NEVER_DESTROYED_HPP
#define BIDE_CORE_DETAIL_NEVER_DESTROYED_HPP

#include <bide/core/config.hpp>

namespace bide::inline BIDE_ABI {
namespace detail {

// A static whose destructor never runs: other statics, and threads, may use it until the end of
// the process.
template <class T> union never_destroyed {
    constexpr never_destroyed() noexcept : object() {}
    constexpr ~never_destroyed() {}
    T object;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
