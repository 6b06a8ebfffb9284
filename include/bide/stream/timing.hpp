// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_STREAM_TIMING_HPP
#define BIDE_STREAM_TIMING_HPP

/// \file
/// Operators on streams that look at the time between items: throttle(), debounce(), timeout().
///
/// The time of an item is the time at which the operator receives it. While no next() is awaited,
/// the operator receives no item, and items wait in their stream.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/result.hpp>
#include <bide/stream/stream.hpp>
#include <bide/task/async_generator.hpp>
#include <bide/task/this_task.hpp>

#include <chrono>
#include <optional>
#include <type_traits>
#include <utility>

namespace bide { inline namespace BIDE_ABI {

/// Slows a stream down. It yields an item, and asks the stream for the next item when `period` has
/// passed since the last one. No item is dropped.
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
/// within that time, drops the first one. At the end of the stream, yields the last item at once.
///
/// If the stream fails, or the consumer is cancelled, next() first returns the last item that it
/// has received, and then throws.
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

/// Yields each item. If the stream has no item within `limit` after the call of next(), yields
/// errc::timeout, and the stream continues. Items are wrapped in a result. If an item is a result
/// itself, it is wrapped, too, so that its error is not mistaken for a time-out.
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

}} // namespace bide::BIDE_ABI

#endif
