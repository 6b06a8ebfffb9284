// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_STREAM_STREAM_HPP
#define BIDE_STREAM_STREAM_HPP

/// \file
/// Defines streams, and the operators that start no task: map(), filter(), take_until(),
/// throttle(), debounce(), timeout() and chunks().
///
/// An operator takes its stream by value and owns it. To use a channel, pass a pointer to it. An
/// operator runs in the coroutine that awaits its next(), and asks its stream for an item only
/// during that await. If the stream or a passed function throws, next() throws that exception once.
/// Afterwards the resulting stream has ended, but a stream made by map() continues.
///
/// \code
/// auto even = bide::filter(&numbers, [](int n) { return n % 2 == 0; });
/// auto text = bide::map(std::move(even), [](int n) { return std::to_string(n); });
/// while (auto t = co_await text.next()) { ... }
/// \endcode

#include <bide/core/detail/item_payload.hpp> // so that each async_op<T> has one definition
#include <bide/task/async_generator.hpp>
#include <bide/task/this_task.hpp>

#include <vector>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

// Returns the stream itself. A stream may be passed as an object or as a pointer.
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

template <class Op>
using awaited_t = decltype(detail::awaiter_of(std::declval<Op>()).await_resume());

// The result type of next_of(S): an optional or a pointer.
template <class S>
using next_t = std::remove_cvref_t<awaited_t<decltype(detail::next_of(std::declval<S&>()))>>;

// The type that `*next` refers to: a reference if the stream yields pointers, otherwise a value.
template <class Next, class Item = decltype(*std::declval<Next&>())>
using item_of_t = std::conditional_t<std::is_pointer_v<Next>, Item, std::remove_cvref_t<Item>>;

} // namespace detail

/// A stream: `co_await s.next()` results in an item or nothing, as a std::optional or a pointer.
/// Streams are async_generator, the results of operators, and classes with async_recv(): a channel,
/// a receiver, a merged stream. A pointer to a stream is a stream, too.
template <class S>
concept stream = requires(detail::next_t<S>& next) {
    static_cast<bool>(next);
    *next;
};

/// A stream with async_recv(): a wait for an item can end early, and no item is lost. merge()
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
    /// The result of next(): a pointer if the F of map() returns an lvalue reference; otherwise a
    /// std::optional.
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

/// The wait for an item, to which the function is applied.
template <stream S, class F> class mapped<S, F>::next_operation {
    using operation = decltype(detail::next_of(std::declval<S&>()));

public:
    /// Constructs the wait.
    explicit next_operation(mapped& of)
        : op_(detail::next_of(of.source_)), awaiter_(detail::awaiter_of(std::move(op_))),
          function_(of.function_) {}
    next_operation(const next_operation&) = delete;
    next_operation& operator=(const next_operation&) = delete;

    /// Does the same as the wait of the stream.
    bool await_ready() { return awaiter_.await_ready(); }
    /// Does the same as the wait of the stream.
    template <class Promise> auto await_suspend(std::coroutine_handle<Promise> h) {
        return awaiter_.await_suspend(h);
    }
    /// Returns what the function returns, or nothing.
    next_type await_resume() {
        auto item = awaiter_.await_resume();
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
    operation op_;
    decltype(detail::awaiter_of(std::declval<operation>())) awaiter_;
    F& function_;
};

/// Calls a function with each item, and yields the results. No coroutine frame is made for an item.
/// The resulting stream owns the function.
/// Requires: if the function is a lambda coroutine with captures, its tasks do not outlive the
/// resulting stream. buffered() ensures that.
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

template <stream S>
async_generator<stream_item_t<S>> taken_until(S source, std::stop_token token, deadline until) {
    const auto is_over = [&]() noexcept { return token.stop_requested() || until.has_passed(); };
    while (!is_over()) {
        if constexpr (receivable<S>) {
            auto got = co_await detail::next_of(source).with_stop(token).with_deadline(until);
            if (!got && got.error() == errc::stopped && !is_over()) {
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
/// item; otherwise the stop takes effect before the next item. No item is lost.
template <stream S> async_generator<stream_item_t<S>> take_until(S source, std::stop_token token) {
    return detail::taken_until(std::move(source), std::move(token), deadline::never());
}
/// Yields items until the time `when`, which takes effect in the same way as a stop.
template <stream S, class C, class D>
async_generator<stream_item_t<S>> take_until(S source, const std::chrono::time_point<C, D>& when) {
    return detail::taken_until(std::move(source), std::stop_token(), deadline::at(when));
}

// ---- throttle, debounce, timeout
//
// The time of an item is the time at which the operator receives it. While no next() is awaited,
// the operator receives no item, and items wait in their stream.

/// Slows a stream down. Yields each item at once, and asks the stream for the next item only when
/// `period` has passed after the time of that item. No item is dropped.
template <stream S, class R, class P>
async_generator<stream_item_t<S>> throttle(S source, std::chrono::duration<R, P> period) {
    for (deadline next = deadline::poll();;) {
        co_await detail::sleep_until(next);
        auto item = co_await detail::next_of(source);
        if (!item) {
            break;
        }
        next = deadline::after(period); // the period includes the time of the consumer
        co_yield static_cast<stream_item_t<S>&&>(*item);
    }
}

namespace detail {

// Yields batches of items. add(batch, item) adds an item to a batch, which may be empty. add()
// returns the time until which the batch waits for another item, or nothing if the batch is full.
// If the stream fails while a batch has items, yields these items first, and then throws.
template <class Batch, stream S, class Add> async_generator<Batch> gathered(S source, Add add) {
    std::exception_ptr error;
    for (bool more = true; more;) {
        std::optional<Batch> batch;
        BIDE_TRY {
            for (std::optional<deadline> until = deadline::never(); more && until;) {
                if constexpr (receivable<S>) {
                    auto got = co_await detail::deref(source).async_recv().with_deadline(*until);
                    if (!got && got.error() == errc::timeout) {
                        break;
                    }
                    more = got.value().has_value();
                    if (more) {
                        until = add(batch, *std::move(*got));
                    }
                } else {
                    auto item = co_await detail::next_of(source);
                    more = static_cast<bool>(item);
                    if (more) {
                        until = add(batch, static_cast<stream_item_t<S>&&>(*item));
                    }
                }
            }
        }
        BIDE_CATCH {
            error = std::current_exception();
            more = false;
        }
        if (batch) {
            co_yield std::move(*batch);
        }
    }
    if (error) {
        std::rethrow_exception(error);
    }
}

} // namespace detail

/// Yields an item if no other item comes within the time `quiet` after it. If one does, drops the
/// earlier item. At the end of the stream, yields the last item at once.
///
/// If the stream fails, or the consumer is cancelled, next() first returns the last item that was
/// received, and then throws.
template <receivable S, class R, class P>
async_generator<stream_item_t<S>> debounce(S source, std::chrono::duration<R, P> quiet) {
    using item = stream_item_t<S>;
    return detail::gathered<item>(std::move(source), [quiet](std::optional<item>& to, item&& one) {
        to.emplace(std::move(one));
        return std::optional(deadline::after(quiet));
    });
}

/// Yields each item, wrapped in a result. If the stream has no item within `limit` after the call
/// of next(), yields errc::timeout, and the stream continues. An item that is a result itself is
/// wrapped, too, so that its error is not mistaken for a time-out.
template <receivable S, class R, class P>
async_generator<result<stream_item_t<S>>> timeout(S source, std::chrono::duration<R, P> limit) {
    for (;;) {
        auto got =
            co_await detail::deref(source).async_recv().with_deadline(deadline::after(limit));
        result<stream_item_t<S>> next = unexpected{errc::timeout};
        if (got || got.error() != errc::timeout) {
            if (!got.value()) {
                break;
            }
            next.emplace(*std::move(*got));
        }
        co_yield std::move(next);
    }
}

// ---- chunks

/// The type of a chunk.
template <stream S> using chunk_of_t = std::vector<std::remove_cvref_t<stream_item_t<S>>>;

namespace detail {

// Yields chunks of n items. time_left() returns the time to wait for the items after the first one.
template <stream S, class TimeLeft>
async_generator<chunk_of_t<S>> chunked(S source, std::size_t n, TimeLeft time_left) {
    if (n == 0) {
        BIDE_THROW(std::invalid_argument("bide::chunks of no items"));
    }
    const auto add = [n, time_left, until = deadline::never()](
                         std::optional<chunk_of_t<S>>& to,
                         stream_item_t<S>&& one) mutable -> std::optional<deadline> {
        if (!to) {
            to.emplace();
            until = time_left();
        }
        to->push_back(static_cast<stream_item_t<S>&&>(one));
        return to->size() < n ? std::optional(until) : std::nullopt;
    };
    return detail::gathered<chunk_of_t<S>>(std::move(source), add);
}

} // namespace detail

/// Yields vectors of n items. The last one may have fewer, but has at least one.
///
/// If the stream fails, or the consumer is cancelled, next() first returns the items that were
/// collected, and then throws.
/// Throws: std::invalid_argument if n is 0. next() throws what the stream throws; std::bad_alloc.
template <stream S> async_generator<chunk_of_t<S>> chunks(S source, std::size_t n) {
    return detail::chunked(std::move(source), n, []() noexcept { return deadline::never(); });
}

/// Yields vectors of n items. If fewer than n items come within `limit` after the first item of a
/// vector, yields the vector with these items. While no item comes, yields nothing. The time of an
/// item is the time at which this operator receives it, as for throttle().
/// Throws: the same as chunks(source, n).
template <receivable S, class R, class P>
async_generator<chunk_of_t<S>> chunks(S source, std::size_t n,
                                      const std::chrono::duration<R, P>& limit) {
    return detail::chunked(std::move(source), n,
                           [limit]() noexcept { return deadline::after(limit); });
}

}} // namespace bide::BIDE_ABI

#endif
