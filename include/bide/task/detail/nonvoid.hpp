#ifndef BIDE_TASK_DETAIL_NONVOID_HPP
#define BIDE_TASK_DETAIL_NONVOID_HPP

#include <bide/core/config.hpp>

#include <type_traits>
#include <variant>

namespace bide::inline BIDE_ABI {

// What stands for the value of something that has none.
template <class T> using nonvoid_t = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

} // namespace bide::inline BIDE_ABI

#endif
