#ifndef BIDE_CORE_RESULT_HPP
#define BIDE_CORE_RESULT_HPP

// A value, or why there is none: members as in std::expected, but always a type of our own, so that
// C++20 and C++23 translation units link together.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>

#include <new>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {

// Why an operation did not do what it says.
enum class errc {
    closed = 1, // the primitive was closed
    stopped,    // a stop was requested
    timeout,    // the deadline passed
    empty,      // nothing to receive now
    full,       // no room to send now
    lagged      // values were missed
};

namespace detail {

class error_category_type final : public std::error_category {
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
        }
        return "unknown";
    }
};

} // namespace detail

inline const std::error_category& error_category() noexcept {
    static const detail::error_category_type category;
    return category;
}

inline std::error_code make_error_code(errc e) noexcept {
    return {static_cast<int>(e), error_category()};
}

} // namespace bide::inline BIDE_ABI

template <> struct std::is_error_code_enum<bide::errc> : std::true_type {};

namespace bide::inline BIDE_ABI {

class closed_error : public std::system_error {
public:
    using std::system_error::system_error;
};

class stopped_error : public std::system_error {
public:
    using std::system_error::system_error;
};

namespace detail {

// errc, or something that carries one as `code`.
inline errc code_of(errc e) noexcept { return e; }
template <class E>
    requires requires(const E& e) { static_cast<errc>(e.code); }
errc code_of(const E& e) noexcept {
    return e.code;
}

inline std::error_code code_of(const std::error_code& e) noexcept { return e; }

// Where to construct a member of a union.
template <class T> void* place(T& member) noexcept {
    return const_cast<void*>(static_cast<const volatile void*>(__builtin_addressof(member)));
}

[[noreturn]] BIDE_NOINLINE inline void throw_error(errc e) {
    if (e == errc::closed) {
        BIDE_THROW(closed_error(make_error_code(e)));
    }
    if (e == errc::stopped) {
        BIDE_THROW(stopped_error(make_error_code(e)));
    }
    BIDE_THROW(std::system_error(make_error_code(e)));
}
[[noreturn]] BIDE_NOINLINE inline void throw_error(const std::error_code& e) {
    if (e.category() == error_category()) {
        throw_error(static_cast<errc>(e.value()));
    }
    BIDE_THROW(std::system_error(e));
}

} // namespace detail

template <class E> struct unexpected {
    E error;
};
template <class E> unexpected(E) -> unexpected<E>;

template <class T, class E = errc> class [[nodiscard]] result {
    static_assert(std::is_object_v<T> && std::is_object_v<E>, "result<T, E> of object types");

public:
    using value_type = T;
    using error_type = E;

    result(T value) noexcept(std::is_nothrow_move_constructible_v<T>)
        : value_(std::move(value)), has_value_(true) {}
    result(unexpected<E> e) noexcept(std::is_nothrow_move_constructible_v<E>)
        : error_(std::move(e.error)), has_value_(false) {}

    // A value made of `args` in place.
    template <class... Args>
        requires std::is_constructible_v<T, Args...>
    explicit result(std::in_place_t, Args&&... args) noexcept(
        std::is_nothrow_constructible_v<T, Args...>)
        : value_(std::forward<Args>(args)...), has_value_(true) {}

    result(const result& other)
        requires(std::is_copy_constructible_v<T> && std::is_copy_constructible_v<E>)
        : has_value_(other.has_value_) {
        construct(other);
    }
    result(result&& other) noexcept(nothrow_move) : has_value_(other.has_value_) {
        construct(std::move(other));
    }

    result& operator=(const result& other)
        requires(std::is_copy_constructible_v<T> && std::is_copy_constructible_v<E>)
    {
        if (this != &other) {
            *this = result(other);
        }
        return *this;
    }
    result& operator=(result&& other) noexcept {
        static_assert(nothrow_move, "assigning a result needs moves that do not throw");
        if (this != &other) {
            destroy();
            has_value_ = other.has_value_;
            construct(std::move(other));
        }
        return *this;
    }

    ~result() { destroy(); }

    bool has_value() const noexcept { return has_value_; }
    explicit operator bool() const noexcept { return has_value_; }

    // Throws: std::system_error with the error's code (closed_error, stopped_error where it is
    // that).
    T& value() & {
        check();
        return value_;
    }
    const T& value() const& {
        check();
        return value_;
    }
    T&& value() && {
        check();
        return std::move(value_);
    }

    // Requires: has_value().
    T& operator*() & noexcept { return value_; }
    const T& operator*() const& noexcept { return value_; }
    T&& operator*() && noexcept { return std::move(value_); }
    T* operator->() noexcept { return __builtin_addressof(value_); }
    const T* operator->() const noexcept { return __builtin_addressof(value_); }

    // Requires: !has_value().
    const E& error() const& noexcept { return error_; }
    E&& error() && noexcept { return std::move(error_); }

    template <class U> T value_or(U&& other) && {
        return has_value_ ? std::move(value_) : static_cast<T>(std::forward<U>(other));
    }
    template <class U>
        requires std::is_copy_constructible_v<T>
    T value_or(U&& other) const& {
        return has_value_ ? value_ : static_cast<T>(std::forward<U>(other));
    }

private:
    static constexpr bool nothrow_move =
        std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_constructible_v<E>;

    template <class Other> void construct(Other&& other) {
        if (has_value_) {
            ::new (detail::place(value_)) T(std::forward<Other>(other).value_);
        } else {
            ::new (detail::place(error_)) E(std::forward<Other>(other).error_);
        }
    }

    void destroy() noexcept {
        if (has_value_) {
            value_.~T();
        } else {
            error_.~E();
        }
    }

    void check() const {
        if (!has_value_) {
            detail::throw_error(detail::code_of(error_));
        }
    }

    union {
        T value_;
        E error_;
    };
    bool has_value_;
};

template <class E> class [[nodiscard]] result<void, E> {
public:
    using value_type = void;
    using error_type = E;

    result() noexcept : has_value_(true) {}
    result(unexpected<E> e) noexcept(std::is_nothrow_move_constructible_v<E>)
        : error_(std::move(e.error)), has_value_(false) {}

    result(const result& other)
        requires std::is_copy_constructible_v<E>
        : has_value_(other.has_value_) {
        if (!has_value_) {
            ::new (detail::place(error_)) E(other.error_);
        }
    }
    result(result&& other) noexcept(std::is_nothrow_move_constructible_v<E>)
        : has_value_(other.has_value_) {
        if (!has_value_) {
            ::new (detail::place(error_)) E(std::move(other.error_));
        }
    }
    result& operator=(result other) noexcept {
        static_assert(std::is_nothrow_move_constructible_v<E>,
                      "assigning a result needs moves that do not throw");
        destroy();
        has_value_ = other.has_value_;
        if (!has_value_) {
            ::new (detail::place(error_)) E(std::move(other.error_));
        }
        return *this;
    }

    ~result() { destroy(); }

    bool has_value() const noexcept { return has_value_; }
    explicit operator bool() const noexcept { return has_value_; }

    // Throws: as result<T, E>::value().
    void value() const {
        if (!has_value_) {
            detail::throw_error(detail::code_of(error_));
        }
    }

    // Requires: !has_value().
    const E& error() const& noexcept { return error_; }
    E&& error() && noexcept { return std::move(error_); }

private:
    void destroy() noexcept {
        if (!has_value_) {
            error_.~E();
        }
    }

    union {
        char none_ = 0;
        E error_;
    };
    bool has_value_;
};

} // namespace bide::inline BIDE_ABI

#endif
