// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_FATAL_HPP
#define BIDE_CORE_DETAIL_FATAL_HPP

#include <bide/core/config.hpp>

#include <cstdio>
#include <exception>
#include <new>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// Reports on stderr that the program has violated a precondition, and terminates.
[[noreturn]] BIDE_NOINLINE inline void fatal(const char* what) noexcept {
    std::fprintf(stderr, "bide: %s\n", what);
    std::fflush(stderr);
    std::terminate();
}

// Reports "bide: <name> <object> <what>" and terminates.
[[noreturn]] BIDE_NOINLINE inline void fatal(const char* name, const void* object,
                                             const char* what) noexcept {
    std::fprintf(stderr, "bide: %s %p %s\n", name, object, what);
    std::fflush(stderr);
    std::terminate();
}

// Returns make(). If make() throws std::bad_alloc, reports `what` and terminates. Callers use it if
// they cannot report a lack of memory.
template <class Make> auto made_or_fatal(const char* what, Make&& make) noexcept {
#if BIDE_EXCEPTIONS
    try {
        return make();
    } catch (const std::bad_alloc&) {
        fatal(what);
    }
#else
    static_cast<void>(what);
    return make();
#endif
}

// Reports "bide: semaphore 0x7ffc... destroyed with 3 waiting" and terminates.
[[noreturn]] BIDE_NOINLINE inline void fatal_destroyed(const char* name, const void* object,
                                                       unsigned long long waiting) noexcept {
    std::fprintf(stderr, "bide: %s %p destroyed with %llu waiting\n", name, object, waiting);
    std::fflush(stderr);
    std::terminate();
}

}}} // namespace bide::BIDE_ABI::detail

#endif
