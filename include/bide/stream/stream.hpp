// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_STREAM_STREAM_HPP
#define BIDE_STREAM_STREAM_HPP

/// \file
/// Streams, and the operators that start no task: map(), filter(), take_until(), throttle(),
/// debounce(), timeout() and chunks().
///
/// An operator takes its stream by value and owns it. To use a channel, pass a pointer to it. An
/// operator runs in the coroutine that awaits its next(), and asks its stream for an item only
/// during that await. If the stream or a passed function throws, next() throws that exception once.
/// Afterwards the resulting stream has ended.
///
/// \code
/// auto even = bide::filter(&numbers, [](int n) { return n % 2 == 0; });
/// auto text = bide::map(std::move(even), [](int n) { return std::to_string(n); });
/// while (auto t = co_await text.next()) { ... }
/// \endcode

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/detail/item_payload.hpp> // so that each async_op<T> has one definition
#include <bide/core/errc.hpp>
#include <bide/core/result.hpp>
#include <bide/task/async_generator.hpp>
#include <bide/task/detail/coroutine_frame.hpp>
#include <bide/task/this_task.hpp>

#include <concepts>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <vector>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

// Returns the stream itself. A stream may be passed as a pointer, as the cases of a select may.
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
        return detail::deref(s).next();
    } else {
        return detail::deref(s).async_recv();
    }
}

// An operation and its awaiter, for an awaiter that changes the outcome.
template <class Op> class wrapped_operation {
public:
    template <class Make>
    explicit wrapped_operation(Make make)
        : op_(make()), awaiter_(detail::awaiter_of(std::move(op_))) {}
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
    decltype(detail::awaiter_of(std::declval<Op>())) awaiter_;
};

template <class Op>
using awaited_t = decltype(detail::awaiter_of(std::declval<Op>()).await_resume());

// The result type of next_of(S): an optional or a pointer.
template <class S>
using next_t = std::remove_cvref_t<awaited_t<decltype(detail::next_of(std::declval<S&>()))>>;

// The type that `*next` refers to: a reference if the stream yields pointers, otherwise a value.
template <class Next, class Item = decltype(*std::declval<Next&>())>
using item_of_t = std::conditional_t<std::is_pointer_v<Next>, Item, std::remove_cvref_t<Item>>;

// ---- A wait that does not throw

// How a wait for an item has ended.
struct next_end {
    enum { by_item, of_stream, by_time, by_failure } how = by_item;
    std::exception_ptr error = nullptr; // of a failure; without one, the wait was stopped

    // Returns true if more items may come.
    // Throws: the exception of the stream, if it has failed.
    bool goes_on() const {
        if (how == by_failure) {
#if BIDE_EXCEPTIONS
            if (error) {
                std::rethrow_exception(error);
            }
#endif
            throw_error(errc::stopped);
        }
        return how != of_stream;
    }
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
#endif
            take(to, this->outcome());
#if BIDE_EXCEPTIONS
        } catch (...) {
            to.end = {next_end::by_failure, std::current_exception()};
        }
#endif
        return to;
    }

private:
    template <class Next> static void take(next_outcome<T>& to, Next&& got) {
        if constexpr (requires { got.error(); }) { // the operation has a deadline
            if (got) {
                take(to, *std::move(got));
            } else {
                to.end.how =
                    got.error() == errc::timeout ? next_end::by_time : next_end::by_failure;
            }
        } else if (got) {
            to.item.emplace(static_cast<item_of_t<std::remove_cvref_t<Next>>&&>(*got));
        } else {
            to.end.how = next_end::of_stream;
        }
    }
};

// Waits for the next item. T is the type that stores it.
template <class T, class S> auto caught_next(S& s) {
    const auto make = [&s] { return detail::next_of(s); };
    return caught_operation<T, decltype(make())>(make);
}
// Waits for the next item until a deadline.
template <class T, has_async_recv S> auto caught_next(S& s, deadline until) {
    const auto make = [&s, until] { return detail::deref(s).async_recv().with_deadline(until); };
    return caught_operation<T, decltype(make())>(make);
}

// Throws: std::invalid_argument if n is zero.
inline void require_some(std::size_t n, [[maybe_unused]] const char* what) {
    if (n == 0) {
        BIDE_THROW(std::invalid_argument(what));
    }
}

} // namespace detail

/// A stream: `co_await s.next()` results in an item or nothing, as a std::optional or a pointer.
/// Streams are async_generator, the results of operators, and classes with async_recv(): a channel,
/// a receiver, a merged stream. A pointer to a stream is a stream, too.
template <class S>
concept stream = requires(detail::next_t<S>& next) {
    static_cast<bool>(next);
    *next;
};

/// A stream with async_recv(): a wait for an item can end early without losing an item. merge()
/// (stream/merge.hpp) makes a receivable stream of any streams.
template <class S>
concept receivable = stream<S> && detail::has_async_recv<S>;

/// The type of an item: a reference if next() results in a pointer, else a value.
template <stream S> using stream_item_t = detail::item_of_t<detail::next_t<S>>;

// ---- map

/// The result of map().
template <stream S, class F> class [[nodiscard]] mapped {
    using R = decltype(std::declval<F&>()(std::declval<stream_item_t<S>>()));
    static_assert(!std::is_void_v<R>, "map: the function returns an item");

public:
    /// The type of an item.
    using value_type = std::remove_cvref_t<R>;
    /// The result of next(): std::optional, or if the function returns an lvalue reference, a
    /// pointer.
    using next_type = std::conditional_t<std::is_lvalue_reference_v<R>, std::remove_reference_t<R>*,
                                         std::optional<value_type>>;

    /// Takes the stream and the function over.
    mapped(S source, F function) : source_(std::move(source)), function_(std::move(function)) {}

    /// The wait for an item; made by next().
    class [[nodiscard("co_await it")]] next_operation;
    /// Waits for the next item of the stream, and calls the function with it.
    /// Throws: what the stream throws; what the function throws. If the function throws, the item
    /// is lost, and the stream continues.
    next_operation next() { return next_operation(*this); }

private:
    S source_;
    [[no_unique_address]] F function_;
};

/// The wait for an item, whose outcome the function changes.
template <stream S, class F>
class mapped<S, F>::next_operation
    : public detail::wrapped_operation<decltype(detail::next_of(std::declval<S&>()))> {
    using wrapped = detail::wrapped_operation<decltype(detail::next_of(std::declval<S&>()))>;

public:
    /// Constructs the wait.
    explicit next_operation(mapped& of)
        : wrapped([&of] { return detail::next_of(of.source_); }), function_(of.function_) {}

    /// Returns what the function returns, or nothing.
    next_type await_resume() {
        auto item = this->outcome();
        if (!item) {
            return {};
        }
        if constexpr (std::is_lvalue_reference_v<R>) {
            return std::addressof(function_(static_cast<stream_item_t<S>&&>(*item)));
        } else {
            return next_type(function_(static_cast<stream_item_t<S>&&>(*item)));
        }
    }

private:
    F& function_;
};

/// Calls a function with each item, and yields the results. No coroutine frame is made for an item.
/// The stream owns the function. So if it is a lambda coroutine with captures, its tasks must not
/// outlive the stream; buffered() ensures that.
template <stream S, class F> mapped<S, F> map(S source, F function) {
    return mapped<S, F>(std::move(source), std::move(function));
}

// ---- filter

/// Yields the items for which `keep(item)` is true. `keep` gets each item as a constant.
template <stream S, class F> async_generator<stream_item_t<S>> filter(S source, F keep) {
    while (auto item = co_await detail::next_of(source)) {
        if (keep(std::as_const(*item))) {
            co_yield static_cast<stream_item_t<S>&&>(*item);
        }
    }
}

// ---- take_until

namespace detail {

inline bool is_over(const std::stop_token& token) noexcept { return token.stop_requested(); }
inline bool is_over(const deadline& until) noexcept { return until.has_passed(); }
template <class Op> auto limited_by(const std::stop_token& token, Op op) {
    return std::move(op).with_stop(token);
}
template <class Op> auto limited_by(const deadline& until, Op op) {
    return std::move(op).with_deadline(until);
}

template <stream S, class Limit>
async_generator<stream_item_t<S>> taken_until(S source, Limit limit) {
    while (!detail::is_over(limit)) {
        if constexpr (receivable<S>) {
            auto got = co_await detail::limited_by(limit, detail::next_of(source));
            if (!got && got.error() == errc::stopped && !detail::is_over(limit)) {
                throw_error(errc::stopped); // the consumer is cancelled
            }
            if (!got || !*got) {
                break;
            }
            co_yield std::move(**got);
        } else {
            auto item = co_await detail::next_of(source);
            if (!item) {
                break;
            }
            co_yield static_cast<stream_item_t<S>&&>(*item);
        }
    }
}

} // namespace detail

/// Yields items until a stop is requested. If the stream is receivable, the stop ends a wait for an
/// item; otherwise it takes effect before the next item. No item is lost.
template <stream S> async_generator<stream_item_t<S>> take_until(S source, std::stop_token token) {
    return detail::taken_until<S, std::stop_token>(std::move(source), std::move(token));
}
/// Yields items until a point in time, as the function above does until a stop.
template <stream S, class C, class D>
async_generator<stream_item_t<S>> take_until(S source, const std::chrono::time_point<C, D>& when) {
    return detail::taken_until<S, deadline>(std::move(source), deadline::at(when));
}

// ---- throttle, debounce, timeout
//
// The time of an item is the time at which the operator receives it. While no next() is awaited,
// the operator receives no item, and items wait in their stream.

/// Slows a stream down. Yields an item, and asks the stream for the next item only when `period`
/// has passed since then. No item is dropped.
template <stream S, class R, class P>
async_generator<stream_item_t<S>> throttle(S source, std::chrono::duration<R, P> period) {
    for (deadline next = deadline::poll();;) {
        co_await detail::sleep_until(next);
        auto item = co_await detail::next_of(source);
        if (!item) {
            break;
        }
        next = deadline::after(period); // the consumer's own time counts
        co_yield static_cast<stream_item_t<S>&&>(*item);
    }
}

/// Yields an item if no other item comes within the time `quiet` after it. If another item comes
/// within that time, drops the earlier one. At the end of the stream, yields the last item at once.
///
/// If the stream fails, or the consumer is cancelled, next() first returns the last item that was
/// received, and then throws.
template <receivable S, class R, class P>
async_generator<stream_item_t<S>> debounce(S source, std::chrono::duration<R, P> quiet) {
    using item = stream_item_t<S>;
    for (bool more = true; more;) {
        std::optional<item> latest;
        detail::next_end end;
        for (deadline until = deadline::never();; until = deadline::after(quiet)) {
            auto got = co_await detail::caught_next<item>(source, until);
            if (!got.item) {
                end = std::move(got.end);
                break;
            }
            latest.emplace(std::move(*got.item));
        }
        if (latest) {
            co_yield std::move(*latest);
        }
        more = end.goes_on();
    }
}

/// Yields each item, wrapped in a result. If the stream has no item within `limit` after the call
/// of next(), yields errc::timeout, and the stream continues. An item that is a result itself is
/// wrapped, too, so that its error is not mistaken for a time-out.
template <receivable S, class R, class P>
async_generator<result<stream_item_t<S>>> timeout(S source, std::chrono::duration<R, P> limit) {
    using item = stream_item_t<S>;
    for (;;) {
        auto got = co_await detail::caught_next<item>(source, deadline::after(limit));
        if (!got.end.goes_on()) {
            break;
        }
        result<item> next = unexpected{errc::timeout};
        if (got.item) {
            next.emplace(std::move(*got.item));
        }
        co_yield std::move(next);
    }
}

// ---- chunks

/// The type of a chunk.
template <stream S> using chunk_of_t = std::vector<std::remove_cvref_t<stream_item_t<S>>>;

namespace detail {

// `next(source, chunk_has_begun)` waits for an item.
template <class S, class Next>
async_generator<chunk_of_t<S>> chunked(S source, std::size_t n, Next next) {
    for (bool more = true; more;) {
        chunk_of_t<S> chunk;
        next_end end;
        while (chunk.size() < n) {
            auto got = co_await next(source, chunk.size());
            if (!got.item) {
                end = std::move(got.end);
                break;
            }
            chunk.push_back(std::move(*got.item));
        }
        if (!chunk.empty()) {
            co_yield std::move(chunk);
        }
        more = end.goes_on();
    }
}

} // namespace detail

/// Yields vectors of n items. The last one may have fewer, but has at least one.
///
/// If the stream fails, or the consumer is cancelled, next() first returns the items that were
/// collected, and then throws.
/// Throws: std::invalid_argument if n is 0. next() throws what the stream throws; std::bad_alloc.
template <stream S> async_generator<chunk_of_t<S>> chunks(S source, std::size_t n) {
    using item = typename chunk_of_t<S>::value_type;
    detail::require_some(n, "bide::chunks of no items");
    return detail::chunked(std::move(source), n,
                           [](S& from, std::size_t) { return detail::caught_next<item>(from); });
}

/// Yields vectors of n items. If fewer than n items come within `limit` after the first item of a
/// vector, yields the vector with these items. While no item comes, yields nothing. The time of an
/// item is defined above.
/// Throws: as chunks(source, n).
template <receivable S, class R, class P>
async_generator<chunk_of_t<S>> chunks(S source, std::size_t n,
                                      const std::chrono::duration<R, P>& limit) {
    using item = typename chunk_of_t<S>::value_type;
    detail::require_some(n, "bide::chunks of no items");
    return detail::chunked(std::move(source), n,
                           [limit, until = deadline::never()](S& from, std::size_t has) mutable {
                               if (has <= 1) { // the first item has just come, or is still awaited
                                   until = has == 0 ? deadline::never() : deadline::after(limit);
                               }
                               return detail::caught_next<item>(from, until);
                           });
}

}} // namespace bide::BIDE_ABI

#endif
