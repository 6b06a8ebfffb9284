#ifndef BIDE_TESTS_EXAMPLES_LOCK_NESTING_HPP
#define BIDE_TESTS_EXAMPLES_LOCK_NESTING_HPP

// A bide-lock in the command of another one that holds the same lock: it may wait for itself.
//
// $BIDE_LOCK_HELD of a command lists the locks around it, the outermost first: "FENCE NAME", with
// slashes between them. A name may be of another lock in another slot, so the record decides: it has
// a holder with that fence, or it is not that lock.

#include "lock_options.hpp"

#include <bide/durable/durable_semaphore.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace lock_parts {

inline constexpr const char* held_variable = "BIDE_LOCK_HELD";

inline std::string_view held_around() {
    const char* const value = std::getenv(held_variable);
    return value != nullptr ? value : "";
}

// What the command of this lock has in the variable.
inline std::string held_with(const options& o, std::int64_t fence) {
    std::string all(held_around());
    if (!all.empty())
        all += '/';
    return all + std::to_string(fence) + ' ' + o.name;
}

// The fences of the locks around this process that have this name.
inline std::vector<std::int64_t> fences_around(std::string_view name) {
    std::vector<std::int64_t> all;
    for (std::string_view rest = held_around(); !rest.empty();) {
        const std::string_view one = rest.substr(0, rest.find('/'));
        rest.remove_prefix(std::min(one.size() + 1, rest.size()));
        const auto space = std::min(one.find(' '), one.size());
        const auto fence =
            parse_number(one.substr(0, space), 1, std::numeric_limits<std::int64_t>::max());
        if (fence && space < one.size() && one.substr(space + 1) == name)
            all.push_back(*fence);
    }
    return all;
}

// Says so, in one line, if a bide-lock around this one holds the lock, and this one has to wait.
// Blocks: for the store, if a lock of this name is around.
inline void tell_of_nesting(const options& o, bide::durable_semaphore& lock) {
    const std::vector<std::int64_t> around = fences_around(o.name);
    const auto seen = around.empty() ? decltype(lock.inspect())(std::nullopt) : lock.inspect();
    if (!seen || !*seen || ((*seen)->free >= o.weight && (*seen)->live.waiters.empty()))
        return;
    for (const auto& holder : (*seen)->live.holders)
        if (std::find(around.begin(), around.end(), holder.fence) != around.end())
            return complain(o.name + ": held by the bide-lock that runs this command (fence " +
                            std::to_string(holder.fence) + "); waiting until that releases it");
}

} // namespace lock_parts

#endif
