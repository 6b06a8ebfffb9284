// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_STREAM_DETAIL_NEXT_HPP
#define BIDE_STREAM_DETAIL_NEXT_HPP

// The wait for the next item of a stream, whatever the stream is.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/errc.hpp>
#include <bide/task/detail/awaiter_of.hpp>

#include <concepts>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// A stream may be given as a pointer, as the cases of a select are.
template <class S> auto& deref(S& s) noexcept {
    if constexpr (std::is_pointer_v<S>) {
        return *s;
    } else {
        return s;
    }
}
template <class S> using stream_object = std::remove_pointer_t<S>;

template <class S>
concept has_next = requires(stream_object<S>& s) { s.next(); };
template <class S>
concept has_async_recv = requires(stream_object<S>& s) {
    requires std::same_as<typename decltype(s.async_recv())::value_type,
                          std::optional<typename stream_object<S>::value_type>>;
};

// Returns the operation that waits for the next item.
template <class S>
    requires(has_next<S> || has_async_recv<S>)
auto next_of(S& s) {
    if constexpr (has_next<S>) {
        return deref(s).next();
    } else {
        return deref(s).async_recv();
    }
}

// An operation and its awaiter, for an awaiter that changes the outcome.
template <class Op> class wrapped_operation {
public:
    template <class Make>
    explicit wrapped_operation(Make make) : op_(make()), awaiter_(awaiter_of(std::move(op_))) {}
    wrapped_operation(const wrapped_operation&) = delete;
    wrapped_operation& operator=(const wrapped_operation&) = delete;

    bool await_ready() { return awaiter_.await_ready(); }
    template <class Promise> auto await_suspend(std::coroutine_handle<Promise> h) {
        return awaiter_.await_suspend(h);
    }

protected:
    ~wrapped_operation() = default;
    decltype(auto) outcome() { return awaiter_.await_resume(); }

private:
    Op op_;
    decltype(awaiter_of(std::declval<Op>())) awaiter_;
};

template <class Op> using awaited_t = decltype(awaiter_of(std::declval<Op>()).await_resume());

// What next_of(S) results in: an optional, or a pointer.
template <class S>
using next_t = std::remove_cvref_t<awaited_t<decltype(next_of(std::declval<S&>()))>>;

// The type of what `*next` refers to: a reference if the stream has pointers, else a value.
template <class Next, class Item = decltype(*std::declval<Next&>())>
using item_of_t = std::conditional_t<std::is_pointer_v<Next>, Item, std::remove_cvref_t<Item>>;

// ---- A wait that does not throw

// How a wait for an item has ended.
class next_end {
public:
    static next_end of_stream() noexcept { return next_end(kind::end); }
    static next_end by_time() noexcept { return next_end(kind::time); }
    // Without an exception, the wait was stopped.
    static next_end by_failure(std::exception_ptr error = nullptr) noexcept {
        next_end e(kind::failure);
        e.error_ = std::move(error);
        return e;
    }
    next_end() noexcept = default; // by an item

    // Returns true if more items may come.
    // Throws: the failure.
    bool goes_on() const {
        if (what_ == kind::failure) {
#if BIDE_EXCEPTIONS
            if (error_) {
                std::rethrow_exception(error_);
            }
#endif
            throw_error(errc::stopped);
        }
        return what_ != kind::end;
    }

private:
    enum class kind : unsigned char { item, end, time, failure };

    explicit next_end(kind what) noexcept : what_(what) {}

    kind what_ = kind::item;
    std::exception_ptr error_;
};

template <class T> struct next_outcome {
    std::optional<T> item; // empty: see `end`
    next_end end;
};

template <class T, class Op> class caught_operation : public wrapped_operation<Op> {
public:
    using wrapped_operation<Op>::wrapped_operation;

    next_outcome<T> await_resume() noexcept {
        next_outcome<T> to;
#if BIDE_EXCEPTIONS
        try {
            take(to, this->outcome());
        } catch (...) {
            to.end = next_end::by_failure(std::current_exception());
        }
#else
        take(to, this->outcome());
#endif
        return to;
    }

private:
    template <class Next> static void take(next_outcome<T>& to, Next&& got) {
        if constexpr (requires { got.error(); }) { // the operation has a deadline
            if (got) {
                take(to, *std::move(got));
            } else {
                to.end =
                    got.error() == errc::timeout ? next_end::by_time() : next_end::by_failure();
            }
        } else if (got) {
            to.item.emplace(static_cast<item_of_t<std::remove_cvref_t<Next>>&&>(*got));
        } else {
            to.end = next_end::of_stream();
        }
    }
};

// Waits for the next item. T is the type that keeps it.
template <class T, class S> auto caught_next(S& s) {
    const auto make = [&s] { return next_of(s); };
    return caught_operation<T, decltype(make())>(make);
}
// Waits until a deadline, too.
template <class T, has_async_recv S> auto caught_next(S& s, deadline until) {
    const auto make = [&s, until] { return deref(s).async_recv().with_deadline(until); };
    return caught_operation<T, decltype(make())>(make);
}

// Throws: std::invalid_argument if n is zero.
inline void require_some(std::size_t n, [[maybe_unused]] const char* what) {
    if (n == 0) {
        BIDE_THROW(std::invalid_argument(what));
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
