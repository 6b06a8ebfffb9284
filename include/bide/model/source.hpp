// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_SOURCE_HPP
#define BIDE_MODEL_SOURCE_HPP

/// \file
/// The definitions of the model checker. The CMake target bide::model compiles this header once. A
/// program that is built without CMake includes it in exactly one file.
///
/// The header replaces the global operators new and delete of the program. So the checker counts
/// the memory of a body, and an abandoned execution leaks nothing.

#include <bide/model/impl/machine.hpp>
#include <bide/model/impl/unmodified.hpp>
#include <bide/model/impl/verdict.hpp>

/// \cond
// The array and nothrow forms call these functions.
void* operator new(std::size_t size) { return bide::model::detail::heap::take(size, 16); }
void* operator new(std::size_t size, std::align_val_t alignment) {
    return bide::model::detail::heap::take(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* p) noexcept {
    bide::model::detail::heap::give(p, __builtin_return_address(0));
}
void operator delete(void* p, std::size_t) noexcept {
    bide::model::detail::heap::give(p, __builtin_return_address(0));
}
void operator delete(void* p, std::align_val_t) noexcept {
    bide::model::detail::heap::give(p, __builtin_return_address(0));
}
void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
    bide::model::detail::heap::give(p, __builtin_return_address(0));
}
/// \endcond

#endif
