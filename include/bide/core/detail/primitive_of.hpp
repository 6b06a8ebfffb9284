// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_PRIMITIVE_OF_HPP
#define BIDE_CORE_DETAIL_PRIMITIVE_OF_HPP

// What a wait waits for, as an address, for probes (probe.hpp) and for the notes of BIDE_DEADLOCK_CHECK
// (noted.hpp).

#include <bide/core/config.hpp>

#include <cstring>

namespace bide::inline BIDE_ABI {
namespace detail {

// Returns the address of a primitive, or of a part of it, for which a queue of thread_wait stands.
template <class Q> const void* primitive_of_queue(const Q& queue) noexcept {
    if constexpr (requires { &queue.of; }) {
        return &queue.of;
    } else {
        return &queue;
    }
}

// Returns the first word of an operation (core/wait_ops.hpp): mostly the address of its primitive.
inline const void* primitive_of_operation(const void* operation) noexcept {
    const void* word = nullptr;
    std::memcpy(&word, operation, sizeof word);
    return word;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
