// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_STREAM_CHUNKS_HPP
#define BIDE_STREAM_CHUNKS_HPP

/// \file
/// chunks(), which collects the items of a stream in vectors.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/stream/stream.hpp>
#include <bide/task/async_generator.hpp>

#include <chrono>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

namespace bide { inline namespace BIDE_ABI {

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

/// Yields vectors of n items. A vector has fewer items if less than n came within `limit` after its
/// first item. While no item comes, yields nothing. stream/timing.hpp defines the time of an item.
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
