// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_STREAM_OPERATORS_HPP
#define BIDE_STREAM_OPERATORS_HPP

/// \file
/// Where streams begin and end, and more operators that start no task: from_range(), ticks(),
/// take(), skip(), zip(), scan(), flat_map(), sample() and collect().
///
/// They own their stream as the operators of stream.hpp do, and end as those do if it throws.
///
/// \code
/// auto lines = bide::flat_map(bide::from_range(names), [](std::string& name) {
///     return read_lines(name); // an async_generator<std::string>
/// });
/// std::vector<std::string> ten = co_await bide::collect(bide::take(std::move(lines), 10));
/// \endcode

#include <bide/stream/stream.hpp>
#include <bide/task/task.hpp>

#include <iterator>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

template <class Range>
using element_t =
    std::iter_reference_t<decltype(std::begin(std::declval<stream_object<Range>&>()))>;
template <class Range>
using yielded_element_t = std::conditional_t<
    std::is_lvalue_reference_v<element_t<Range>>, element_t<Range>,
    std::iter_value_t<decltype(std::begin(std::declval<stream_object<Range>&>()))>>;

} // namespace detail

// ---- The beginning of a stream

/// Yields the elements of a range, by reference if the range has them in memory. The stream owns
/// the range. To borrow it, pass a pointer or a view. The range must then outlive the stream.
template <class Range>
    requires requires { typename detail::element_t<Range>; }
async_generator<detail::yielded_element_t<Range>> from_range(Range range) {
    for (auto&& element : detail::deref(range)) {
        co_yield static_cast<detail::element_t<Range>&&>(element);
    }
}

/// Yields the ticks of an interval (task/interval.hpp), without an end. An item is the result of
/// interval::async_tick(). While no next() is awaited, no tick is taken: the policy of the interval
/// says what becomes of missed ticks.
template <class Interval>
    requires requires(Interval& from) { from.async_tick(); }
async_generator<std::uint64_t> ticks(Interval from) {
    for (;;) {
        const std::uint64_t due = co_await from.async_tick();
        co_yield due;
    }
}

// ---- Parts of a stream

/// Yields the first n items, or fewer if the stream ends before. Does not ask for another item.
template <stream S> async_generator<stream_item_t<S>> take(S source, std::size_t n) {
    for (; n != 0; --n) {
        auto item = co_await detail::next_of(source);
        if (!item) {
            break;
        }
        co_yield static_cast<stream_item_t<S>&&>(*item);
    }
}

/// Drops the first n items, and yields the rest.
template <stream S> async_generator<stream_item_t<S>> skip(S source, std::size_t n) {
    while (auto item = co_await detail::next_of(source)) {
        if (n != 0) {
            --n;
        } else {
            co_yield static_cast<stream_item_t<S>&&>(*item);
        }
    }
}

// ---- Several streams

/// Yields pairs of the items of two streams, until one of them ends. Asks `first` for its item, and
/// then `second`. If only `second` has ended, the item of `first` is dropped. An item that is a
/// reference is copied.
template <stream A, stream B>
async_generator<
    std::pair<std::remove_cvref_t<stream_item_t<A>>, std::remove_cvref_t<stream_item_t<B>>>>
zip(A first, B second) {
    using both =
        std::pair<std::remove_cvref_t<stream_item_t<A>>, std::remove_cvref_t<stream_item_t<B>>>;
    while (auto one = co_await detail::next_of(first)) {
        auto two = co_await detail::next_of(second);
        if (!two) {
            break;
        }
        co_yield both(static_cast<stream_item_t<A>&&>(*one), static_cast<stream_item_t<B>&&>(*two));
    }
}

namespace detail {

template <stream S, class F, class... State>
using call_with_item_t =
    decltype(std::declval<F&>()(std::declval<State>()..., std::declval<stream_item_t<S>>()));
template <stream S, class F> using inner_stream_t = std::remove_cvref_t<call_with_item_t<S, F>>;

} // namespace detail

/// Calls a function with each item, and yields all items of the stream that the function returns,
/// before it asks for the next item. The function may return a pointer to a stream. The resulting
/// stream owns the function. To take items of several streams as they come, use merge().
template <stream S, class F>
    requires stream<detail::inner_stream_t<S, F>>
async_generator<stream_item_t<detail::inner_stream_t<S, F>>> flat_map(S source, F function) {
    using inner_type = detail::inner_stream_t<S, F>;
    while (auto item = co_await detail::next_of(source)) {
        inner_type inner = function(static_cast<stream_item_t<S>&&>(*item));
        while (auto one = co_await detail::next_of(inner)) {
            co_yield static_cast<stream_item_t<inner_type>&&>(*one);
        }
    }
}

// ---- State and time

/// Keeps a state, and yields it after each item: state = f(std::move(state), item). The state is
/// yielded as a constant reference, which is valid until the following next().
template <stream S, std::movable T, class F>
    requires std::assignable_from<T&, detail::call_with_item_t<S, F, T>>
async_generator<const T&> scan(S source, T state, F f) {
    while (auto item = co_await detail::next_of(source)) {
        state = f(std::move(state), static_cast<stream_item_t<S>&&>(*item));
        co_yield state;
    }
}

/// Yields the last item of each period, at the end of the period. The periods follow one another
/// from the call of sample() on. Drops the earlier items of a period, and yields nothing for a
/// period without items. At the end of the stream, yields the last item at once. If `period` is not
/// positive, yields each item.
///
/// If the stream fails, or the consumer is cancelled, next() first returns the last item that was
/// received, and then throws.
template <receivable S, class R, class P>
async_generator<stream_item_t<S>> sample(S source, std::chrono::duration<R, P> period) {
    using item = stream_item_t<S>;
    const auto end_of_period = [begin = native_platform::now(),
                                each = deadline::saturated_ns(period)]() noexcept {
        const std::int64_t now = native_platform::now();
        const std::int64_t spent = now - begin;
        return each <= 0 ? deadline::poll()
                         : deadline::after(std::chrono::nanoseconds(each - spent % each));
    };
    const auto add = [end_of_period, until = deadline::never()](
                         std::optional<item>& to, item&& one) mutable -> std::optional<deadline> {
        if (!to) {
            until = end_of_period();
        }
        to.emplace(std::move(one));
        return until.has_passed() ? std::nullopt : std::optional(until); // if items come too fast
    };
    return detail::gathered<item>(std::move(source), add);
}

// ---- The end of a stream

/// Returns all items as a vector. To bound it, use take().
/// Throws: what the stream throws; std::bad_alloc. The items before are lost.
template <stream S> task<std::vector<std::remove_cvref_t<stream_item_t<S>>>> collect(S source) {
    std::vector<std::remove_cvref_t<stream_item_t<S>>> all;
    while (auto item = co_await detail::next_of(source)) {
        all.push_back(static_cast<stream_item_t<S>&&>(*item));
    }
    co_return all;
}

}} // namespace bide::BIDE_ABI

#endif
