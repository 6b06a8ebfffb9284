// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_RECEIVE_OPERATIONS_HPP
#define BIDE_CHANNEL_DETAIL_RECEIVE_OPERATIONS_HPP

// The receiving operations of a channel or handle. Self has source(), a Source of item_wait.hpp
// with recv_n() and size(), and hold(), whose keep_alive keeps the source alive for an operation
// that waits.

#include <bide/channel/detail/item_wait.hpp>
#include <bide/channel/detail/try_range.hpp>
#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/result.hpp>

#include <chrono>
#include <cstddef>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Self, class T, class Platform> class receive_operations {
public:
    /// The type of an item.
    using value_type = T;

    /// Receives the oldest item; from a priority_channel, the greatest.
    /// Blocks: while there is no item.
    /// Returns: the item; nothing if the channel is closed and every item was received.
    /// Memory order: what happens before the send happens before the return.
    [[nodiscard("it is the item")]] std::optional<T> recv();

    /// Receives as recv() does, unless a stop is requested first.
    /// Returns: the item, errc::closed or errc::stopped.
    result<T> recv(typename Platform::stop_token token);

    /// Receives as recv() does, if there is an item. Never blocks, except while another thread is
    /// between two steps of its own send.
    /// Returns: the item; errc::empty; errc::closed if no more items will come.
    result<T> try_recv() noexcept;

    /// Receives as recv() does, but waits at most `rest`.
    /// Returns: the item, errc::timeout or errc::closed.
    template <class R, class P> result<T> try_recv_for(const std::chrono::duration<R, P>& rest) {
        return recv_until(deadline::after(rest));
    }
    /// Receives as recv() does, but waits at most until a point in time.
    template <class C, class D>
    result<T> try_recv_until(const std::chrono::time_point<C, D>& when) {
        return recv_until(deadline::at(when));
    }

    /// Receives as recv() does, for a coroutine.
    /// Returns: an operation for co_await; its value is as that of recv().
    /// Cancellation: if the operation is destroyed after an item was granted to it, the item goes
    /// to the next waiting receiver, or back into the channel. If that is full or closed, the item
    /// is destroyed.
    basic_async_op<std::optional<T>, Platform> async_recv();

    /// Appends up to `max` items to `out`, as long as there are any. Never blocks.
    /// Returns: the number of items.
    /// Throws: std::bad_alloc; `out` keeps what it has then, and no other item was taken.
    std::size_t try_recv_n(std::vector<T>& out, std::size_t max);

    /// Receives as try_recv_n() does, but waits for the first item.
    /// Blocks: while there is no item.
    /// Returns: the number of items; 0 if the channel is closed and empty, or if `max` is 0.
    /// Throws: as try_recv_n(), before it waits or with the first item in `out`.
    std::size_t recv_n(std::vector<T>& out, std::size_t max);

    /// Receives as recv_n() does, for a coroutine.
    /// Requires: no other access to `out` from this call until the operation is over.
    /// Cancellation: as async_recv(), but if the channel is full or closed, the item stays in
    /// `out`.
    basic_async_op<std::size_t, Platform> async_recv_n(std::vector<T>& out, std::size_t max);

    /// Receives until the channel is closed and empty: for (T v : channel). An iterator has
    /// received the item that it refers to.
    class iterator;
    /// Receives the first item. Blocks: as recv() does.
    iterator begin() { return iterator(static_cast<Self&>(*this)); }
    /// Returns the end of the range.
    std::default_sentinel_t end() noexcept { return {}; }

    /// Returns an input range that receives without waiting until there is no item:
    /// for (T& v : channel.try_iter()). An item is valid until the next increment.
    try_range<Self> try_iter() noexcept { return try_range<Self>(static_cast<Self&>(*this)); }

protected:
    receive_operations() = default;
    receive_operations(const receive_operations&) = default;
    receive_operations& operator=(const receive_operations&) = default;
    ~receive_operations() = default;

private:
    auto& source() noexcept { return static_cast<Self&>(*this).source(); }
    keep_alive hold() noexcept { return static_cast<Self&>(*this).hold(); }
    template <class Source> using waits = item_wait<T, Platform, std::remove_reference_t<Source>>;

    // What is short is inlined: a function of its own returns a std::optional by way of memory, where
    // the processor waits for the last store.
    template <class Out, class Limit> wait_status recv_to(Out& out, const Limit& limit) {
        const wait_status now = source().recv(into(out));
        return now != wait_status::waiting ? now : wait_to_recv(out, limit);
    }
    template <class Out, class Limit>
    BIDE_NOINLINE wait_status wait_to_recv(Out& out, const Limit& limit);
    result<T> recv_until(deadline until);
};

template <class Self, class T, class Platform>
class receive_operations<Self, T, Platform>::iterator {
public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;

    explicit iterator(Self& from) : from_(&from), item_(from.recv()) {}

    // The item, which the caller may move from.
    T&& operator*() const noexcept { return std::move(*item_); }
    iterator& operator++() {
        item_.reset();
        if (std::optional<T> next = from_->recv()) {
            item_.emplace(std::move(*next));
        }
        return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const iterator& i, std::default_sentinel_t) noexcept {
        return !i.item_.has_value();
    }

private:
    Self* from_;
    mutable std::optional<T> item_;
};

template <class Self, class T, class Platform>
template <class Out, class Limit>
BIDE_NOINLINE wait_status receive_operations<Self, T, Platform>::wait_to_recv(Out& out,
                                                                              const Limit& limit) {
    auto& from = source();
    const keep_alive alive = hold();
    return waits<decltype(from)>::recv(from, out, limit);
}

template <class Self, class T, class Platform>
inline std::optional<T> receive_operations<Self, T, Platform>::recv() {
    std::optional<T> item;
    recv_to(item, deadline::never());
    return item;
}

template <class Self, class T, class Platform>
result<T> receive_operations<Self, T, Platform>::recv(typename Platform::stop_token token) {
    std::optional<T> item;
    return to_received(recv_to(item, token), item);
}

template <class Self, class T, class Platform>
result<T> receive_operations<Self, T, Platform>::recv_until(deadline until) {
    std::optional<T> item;
    return to_received(recv_to(item, until), item);
}

template <class Self, class T, class Platform>
result<T> receive_operations<Self, T, Platform>::try_recv() noexcept {
    std::optional<T> item;
    return to_received(source().recv(into(item)), item);
}

template <class Self, class T, class Platform>
basic_async_op<std::optional<T>, Platform> receive_operations<Self, T, Platform>::async_recv() {
    auto& from = source();
    return {typename waits<decltype(from)>::receiving{from}, recv_payload<T>(hold())};
}

template <class Self, class T, class Platform>
std::size_t receive_operations<Self, T, Platform>::try_recv_n(std::vector<T>& out,
                                                              std::size_t max) {
    return recv_more(source(), out, max);
}

template <class Self, class T, class Platform>
std::size_t receive_operations<Self, T, Platform>::recv_n(std::vector<T>& out, std::size_t max) {
    if (max == 0) {
        return 0;
    }
    make_room(out, 1);
    if (recv_to(out, deadline::never()) == wait_status::closed) {
        return 0;
    }
    return 1 + try_recv_n(out, max - 1);
}

template <class Self, class T, class Platform>
basic_async_op<std::size_t, Platform>
receive_operations<Self, T, Platform>::async_recv_n(std::vector<T>& out, std::size_t max) {
    auto& from = source();
    make_room(out, 1);
    return {typename waits<decltype(from)>::receiving_n{from, out, max}, recv_n_payload(hold())};
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
