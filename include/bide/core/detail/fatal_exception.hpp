// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DETAIL_FATAL_EXCEPTION_HPP
#define BIDE_CORE_DETAIL_FATAL_EXCEPTION_HPP

// Ends the program because of an exception that has no handler. The exception must not leave a
// noexcept function: GCC before 14 may then call std::terminate without a current exception.

#include <bide/core/config.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>

#if __has_include(<cxxabi.h>)
#include <cxxabi.h>
#include <typeinfo>
#endif

namespace bide { inline namespace BIDE_ABI { namespace detail {

#if BIDE_EXCEPTIONS

// Writes "bide: <source> threw std::runtime_error: <text>" to stderr.
inline void report_exception(const char* source, const char* text) noexcept {
    const char* type = "an exception";
#if __has_include(<cxxabi.h>)
    char* readable = nullptr;
    if (const std::type_info* const thrown = ::abi::__cxa_current_exception_type()) {
        int status = 0;
        readable = ::abi::__cxa_demangle(thrown->name(), nullptr, nullptr, &status);
        type = readable != nullptr ? readable : thrown->name();
    }
#endif
    std::fprintf(stderr, "bide: %s threw %s%s%s\n", source, type, text != nullptr ? ": " : "",
                 text != nullptr ? text : "");
    std::fflush(stderr);
#if __has_include(<cxxabi.h>)
    std::free(readable);
#endif
}

// Reports the exception that is being handled, and terminates. A terminate handler finds the
// exception as std::current_exception(). Requires: the caller is an exception handler.
[[noreturn]] BIDE_COLD inline void fatal_exception(const char* source) noexcept {
    try {
        throw;
    } catch (const std::exception& e) {
        report_exception(source, e.what());
        std::terminate();
    } catch (...) {
        report_exception(source, nullptr);
        std::terminate();
    }
}

#endif

// Calls a function that must not throw. If it throws, names `source` and the exception, and
// terminates.
template <class F> void call_noexcept(const char* source, F&& function) noexcept {
#if BIDE_EXCEPTIONS
    try {
        function();
    } catch (...) {
        fatal_exception(source);
    }
#else
    static_cast<void>(source);
    function();
#endif
}

}}} // namespace bide::BIDE_ABI::detail

#endif
