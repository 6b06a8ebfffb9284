// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_TRY_TO_HPP
#define BIDE_DURABLE_DETAIL_TRY_TO_HPP

#include <bide/core/config.hpp>

#include <exception>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// Calls f. Returns the exception that f threw; nullptr if there was none.
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

// Calls f. Returns false if it threw, for example std::bad_alloc.
template <class F> bool try_to(F&& f) noexcept { return thrown_by(std::forward<F>(f)) == nullptr; }

}}} // namespace bide::BIDE_ABI::detail

#endif
