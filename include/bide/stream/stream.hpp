// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_STREAM_STREAM_HPP
#define BIDE_STREAM_STREAM_HPP

/// \file
/// Streams, and the operators map(), filter() and take_until().
///
/// An operator takes its stream by value and owns it. A channel stays where it is: pass a pointer
/// to it. An operator runs where its own next() is awaited, and asks its stream for an item only
/// then. An exception of the stream, or of a function that is passed, leaves next() once, and the
/// result has then ended.
///
/// \code
/// auto even = bide::filter(&numbers, [](int n) { return n % 2 == 0; });
/// auto text = bide::map(std::move(even), [](int n) { return std::to_string(n); });
/// while (auto t = co_await text.next()) { ... }
/// \endcode

#include <bide/channel/detail/item_wait.hpp>   // with signal_wait.hpp, specialises the payload of
#include <bide/channel/detail/signal_wait.hpp> // async_op<T>, so that it has one definition
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/errc.hpp>
#include <bide/stream/detail/next.hpp>
#include <bide/task/async_generator.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {

/// A stream: `co_await s.next()` results in an item or nothing, as std::optional and pointers show
/// it. An async_generator is one, and so is each result of an operator. So is what has
/// async_recv(): a channel, a receiver, a merged stream. A pointer to a stream is a stream.
template <class S>
concept stream = requires(detail::next_t<S>& next) {
    static_cast<bool>(next);
    *next;
};

/// A stream whose wait for an item can end early and lose nothing: it has async_recv().
/// merge() (stream/merge.hpp) makes one of any streams.
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
    /// The result of next(): std::optional, or a pointer if the function returns an lvalue reference.
    using next_type = std::conditional_t<std::is_lvalue_reference_v<R>, std::remove_reference_t<R>*,
                                         std::optional<value_type>>;

    /// Takes the stream and the function over.
    mapped(S source, F function) : source_(std::move(source)), function_(std::move(function)) {}

    /// The wait for an item; made by next().
    class [[nodiscard("co_await it")]] next_operation;
    /// Waits for the next item of the stream, and calls the function with it.
    /// Throws: what the stream throws; what the function throws. The item is then lost, and the
    /// stream goes on.
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

/// Calls a function with each item, and yields what it returns. An item costs no frame. The function
/// lives in the stream: if it is a lambda coroutine with captures, its tasks must not outlive the
/// stream. buffered() sees to that.
template <stream S, class F> mapped<S, F> map(S source, F function) {
    return mapped<S, F>(std::move(source), std::move(function));
}

// ---- filter

/// Yields the items for which `keep(item)` is true. It gets each item as a constant.
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
    while (!is_over(limit)) {
        if constexpr (receivable<S>) {
            auto got = co_await limited_by(limit, next_of(source));
            if (!got && got.error() == errc::stopped && !is_over(limit)) {
                throw_error(errc::stopped); // the consumer is cancelled
            }
            if (!got || !*got) {
                break;
            }
            co_yield std::move(**got);
        } else {
            auto item = co_await next_of(source);
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
/// Yields items until a point in time, as it does until a stop.
template <stream S, class C, class D>
async_generator<stream_item_t<S>> take_until(S source, const std::chrono::time_point<C, D>& when) {
    return detail::taken_until<S, deadline>(std::move(source), deadline::at(when));
}

} // namespace bide::inline BIDE_ABI

#endif
