// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_ERRC_HPP
#define BIDE_CORE_ERRC_HPP

/// \file
/// Defines the error codes of operations, and the exceptions that carry them.

#include <bide/core/detail/fatal.hpp>
#include <bide/fwd.hpp>

#include <cstddef>
#include <string>
#include <system_error>

namespace bide { inline namespace BIDE_ABI {

/// States why an operation failed.
enum class errc {
    closed = 1, ///< The primitive is closed.
    stopped,    ///< A stop was requested.
    timeout,    ///< The deadline has passed.
    empty,      ///< There is no value to receive now.
    full,       ///< There is no room to send now.
    lagged,     ///< The receiver was too slow and missed values.
    no_driver   ///< No scheduler or run_loop runs the driver that the wait for a file needs.
};

namespace detail {

// A static object that is never destroyed. Other statics and threads may use the object until the
// process ends.
template <class T> union never_destroyed {
    constexpr never_destroyed() noexcept : object() {}
    constexpr ~never_destroyed() {}
    T object;
};

class BIDE_SHARED error_category_type final : public std::error_category {
public:
    const char* name() const noexcept override { return "bide"; }
    std::string message(int code) const override {
        switch (static_cast<errc>(code)) {
        case errc::closed: return "closed";
        case errc::stopped: return "stopped";
        case errc::timeout: return "timed out";
        case errc::empty: return "empty";
        case errc::full: return "full";
        case errc::lagged: return "lagged behind";
        case errc::no_driver:
            return "no scheduler or run_loop runs the driver: see its option `io`";
        }
        return "unknown";
    }
    // Makes no_driver equal to resource_deadlock_would_occur. No other errc equals a std::errc.
    std::error_condition default_error_condition(int code) const noexcept override {
        return static_cast<errc>(code) == errc::no_driver
                   ? std::make_error_condition(std::errc::resource_deadlock_would_occur)
                   : std::error_condition(code, *this);
    }
};

} // namespace detail

/// Returns the category of errc.
BIDE_SHARED inline const std::error_category& error_category() noexcept {
    static constinit detail::never_destroyed<detail::error_category_type> category;
    return category.object;
}

/// Makes a std::error_code of `e`.
inline std::error_code make_error_code(errc e) noexcept {
    return {static_cast<int>(e), error_category()};
}

}} // namespace bide::BIDE_ABI

/// \cond
// Lets a std::error_code be made of an errc and compared to it.
template <> struct std::is_error_code_enum<bide::errc> : std::true_type {};
/// \endcond

namespace bide { inline namespace BIDE_ABI {

/// Is thrown if a primitive is closed. Its code is errc::closed.
class BIDE_SHARED closed_error : public std::system_error {
public:
    using std::system_error::system_error;
};

/// Is thrown if a stop was requested. Its code is errc::stopped.
class BIDE_SHARED stopped_error : public std::system_error {
public:
    using std::system_error::system_error;
};

namespace detail {

// Returns the code of an error: an errc, a std::error_code, or an object with an errc as `code`.
inline errc code_of(errc e) noexcept { return e; }
template <class E>
    requires requires(const E& e) { static_cast<errc>(e.code); }
errc code_of(const E& e) noexcept {
    return e.code;
}

inline std::error_code code_of(const std::error_code& e) noexcept { return e; }

// Returns the exception that carries `e`. The first call makes the exception, which is never
// destroyed. A copy shares the text of the exception, so a throw needs no memory for the text.
// Throws: std::bad_alloc on the first call.
template <class Error> const Error& error_of(errc e) {
    alignas(Error) static std::byte place[sizeof(Error)];
    static const Error& made = *::new (static_cast<void*>(place)) Error(make_error_code(e));
    return made;
}

[[noreturn]] BIDE_NOINLINE inline void throw_error(errc e) {
    if (e == errc::closed) {
        BIDE_THROW(closed_error(error_of<closed_error>(e)));
    }
    if (e == errc::stopped) {
        BIDE_THROW(stopped_error(error_of<stopped_error>(e)));
    }
    BIDE_THROW(std::system_error(make_error_code(e)));
}
[[noreturn]] BIDE_NOINLINE inline void throw_error(const std::error_code& e) {
    if (e.category() == error_category()) {
        detail::throw_error(static_cast<errc>(e.value()));
    }
    BIDE_THROW(std::system_error(e));
}

} // namespace detail

}} // namespace bide::BIDE_ABI

#endif
