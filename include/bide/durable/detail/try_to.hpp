#ifndef BIDE_DURABLE_DETAIL_TRY_TO_HPP
#define BIDE_DURABLE_DETAIL_TRY_TO_HPP

#include <bide/core/config.hpp>

#include <exception>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// Calls f. Returns what it threw; nullptr: nothing.
template <class F> std::exception_ptr thrown_by(F&& f) noexcept {
#if BIDE_EXCEPTIONS
    try {
        std::forward<F>(f)();
    } catch (...) {
        return std::current_exception();
    }
#else
    std::forward<F>(f)();
#endif
    return nullptr;
}

// Calls f. False: it threw, no memory, say.
template <class F> bool try_to(F&& f) noexcept {
#if BIDE_EXCEPTIONS
    try {
        std::forward<F>(f)();
    } catch (...) {
        return false;
    }
#else
    std::forward<F>(f)();
#endif
    return true;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
