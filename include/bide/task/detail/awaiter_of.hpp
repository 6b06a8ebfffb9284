// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_DETAIL_AWAITER_OF_HPP
#define BIDE_TASK_DETAIL_AWAITER_OF_HPP

#include <bide/core/config.hpp>

#include <coroutine>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// Returns the awaiter of what is awaited, or the object if it is its own awaiter, as `co_await` finds
// it.
template <class A> decltype(auto) awaiter_of(A&& a) {
    if constexpr (requires { std::forward<A>(a).operator co_await(); }) {
        return std::forward<A>(a).operator co_await();
    } else if constexpr (requires { operator co_await(std::forward<A>(a)); }) {
        return operator co_await(std::forward<A>(a));
    } else {
        return std::forward<A>(a);
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
