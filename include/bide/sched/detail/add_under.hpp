// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_ADD_UNDER_HPP
#define BIDE_SCHED_DETAIL_ADD_UNDER_HPP

#include <bide/core/config.hpp>

#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// Adds a key to a map that a lock guards, with a value made of `args`. The node is made before the
// lock is acquired. If the map has the key already, the node is destroyed after the lock is
// released. Calls then(position, is_new) under the lock, and returns its result.
// Throws: std::bad_alloc, and what the key and its comparison throw; nothing changes then.
template <class Guard, class Map, class Lock, class Then, class... Args>
auto add_under(Lock& lock, Map& to, const typename Map::key_type& key, const Then& then,
               const Args&... args) {
    Map one;
    one.try_emplace(key, args...);
    auto node = one.extract(one.begin());
    const Guard section(lock);
    auto added = to.insert(std::move(node));
    node = std::move(added.node); // destroyed after the lock is released
    return then(added.position, added.inserted);
}

}}} // namespace bide::BIDE_ABI::detail

#endif
