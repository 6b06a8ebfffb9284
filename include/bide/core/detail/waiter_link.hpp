// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_WAITER_LINK_HPP
#define BIDE_CORE_DETAIL_WAITER_LINK_HPP

#include <bide/core/config.hpp>

namespace bide::inline BIDE_ABI {
namespace detail {

// Links a waiter into a list. The end of such a list is a link without a waiter.
template <class Platform> struct waiter_link {
    typename Platform::template var<waiter_link*> next_{nullptr};
    typename Platform::template var<waiter_link*> prev_{nullptr};

    void unlink() noexcept {
        waiter_link* const next = next_;
        waiter_link* const prev = prev_;
        prev->next_ = next;
        next->prev_ = prev;
    }
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
