#ifndef BIDE_CORE_DETAIL_FATAL_EXCEPTION_HPP
#define BIDE_CORE_DETAIL_FATAL_EXCEPTION_HPP

// How an exception ends the program that nothing handles. It is not left to run into a noexcept
// function: GCC before 14 may call std::terminate there without the exception.

#include <bide/core/config.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>

#if __has_include(<cxxabi.h>)
#include <cxxabi.h>
#include <typeinfo>
#endif

namespace bide::inline BIDE_ABI {
namespace detail {

#if BIDE_EXCEPTIONS

// Writes "bide: <whose> threw std::runtime_error: what it says" to stderr.
inline void say_exception(const char* whose, const char* text) noexcept {
    const char* type = "an exception";
#if __has_include(<cxxabi.h>)
    char* readable = nullptr;
    if (const std::type_info* const thrown = ::abi::__cxa_current_exception_type()) {
        int status = 0;
        readable = ::abi::__cxa_demangle(thrown->name(), nullptr, nullptr, &status);
        type = readable != nullptr ? readable : thrown->name();
    }
#endif
    std::fprintf(stderr, "bide: %s threw %s%s%s\n", whose, type, text != nullptr ? ": " : "",
                 text != nullptr ? text : "");
    std::fflush(stderr);
#if __has_include(<cxxabi.h>)
    std::free(readable);
#endif
}

// In a handler: says what it handles and terminates, inside of it: a terminate handler finds the
// exception as std::current_exception().
[[noreturn]] BIDE_COLD inline void fatal_exception(const char* whose) noexcept {
    try {
        throw;
    } catch (const std::exception& e) {
        say_exception(whose, e.what());
        std::terminate();
    } catch (...) {
        say_exception(whose, nullptr);
        std::terminate();
    }
}

#endif

// Calls what must not throw. If it does, says whose exception it is and terminates.
template <class F> void call_noexcept(const char* whose, F&& function) noexcept {
#if BIDE_EXCEPTIONS
    try {
        function();
    } catch (...) {
        fatal_exception(whose);
    }
#else
    static_cast<void>(whose);
    function();
#endif
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
