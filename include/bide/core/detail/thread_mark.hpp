// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_THREAD_MARK_HPP
#define BIDE_CORE_DETAIL_THREAD_MARK_HPP

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>

namespace bide { inline namespace BIDE_ABI { namespace detail {

struct BIDE_SHARED thread_mark_place {
    char unused;
};

// Returns an address that no other thread returns while the calling thread runs.
template <class Platform> const void* thread_mark() noexcept {
    return &Platform::template local<thread_mark_place>();
}

}}} // namespace bide::BIDE_ABI::detail

#endif
