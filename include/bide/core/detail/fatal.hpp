#ifndef BIDE_CORE_DETAIL_FATAL_HPP
#define BIDE_CORE_DETAIL_FATAL_HPP

#include <bide/core/config.hpp>

#include <cstdio>
#include <exception>

namespace bide::inline BIDE_ABI {
namespace detail {

// A precondition that the program broke: says so on stderr and terminates.
[[noreturn]] BIDE_NOINLINE inline void fatal(const char* what) noexcept {
    std::fprintf(stderr, "bide: %s\n", what);
    std::fflush(stderr);
    std::terminate();
}

// "bide: semaphore 0x7ffc... destroyed with 3 waiting"
[[noreturn]] BIDE_NOINLINE inline void fatal(const char* name, const void* object,
                                             const char* what) noexcept {
    std::fprintf(stderr, "bide: %s %p %s\n", name, object, what);
    std::fflush(stderr);
    std::terminate();
}

[[noreturn]] BIDE_NOINLINE inline void fatal_destroyed(const char* name, const void* object,
                                                       unsigned long long waiting) noexcept {
    std::fprintf(stderr, "bide: %s %p destroyed with %llu waiting\n", name, object, waiting);
    std::fflush(stderr);
    std::terminate();
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
