#ifndef BIDE_CHANNEL_DETAIL_RECEIVE_OPERATIONS_HPP
#define BIDE_CHANNEL_DETAIL_RECEIVE_OPERATIONS_HPP

// The receiving half of a channel's face, the same for all that have one. Self has source(), a
// Source of item_wait.hpp with recv_n() and size(), and hold(), which keeps that alive: what it
// returns, and, as a keep_alive, what a coroutine carries.

#include <bide/channel/detail/item_wait.hpp>
#include <bide/channel/detail/try_range.hpp>
#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/result.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <limits>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <vector>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Self, class T, class Platform> class receive_operations {
public:
    using value_type = T;

    // Takes the oldest item.
    // Blocks: while there is none. Nothing: closed, and all that was sent has been received.
    // Order: everything before the send happens-before the return.
    std::optional<T> recv();

    // As recv(); errc::closed, and errc::stopped when a stop is requested first.
    result<T> recv(std::stop_token token);

    // Never waits, but for a thread between two steps of its own send. errc::empty, or errc::closed
    // when nothing will come any more.
    result<T> try_recv() noexcept;

    // As recv(), for at most that long; errc::timeout, errc::closed.
    template <class R, class P> result<T> try_recv_for(const std::chrono::duration<R, P>& rest) {
        return recv_until(deadline::after(rest));
    }
    template <class C, class D>
    result<T> try_recv_until(const std::chrono::time_point<C, D>& when) {
        return recv_until(deadline::at(when));
    }

    // As recv(), for a coroutine.
    // Destroy: an item that has come goes to the next receiver that waits, or back into the channel.
    // If that is full or closed, the item is destroyed.
    basic_async_op<std::optional<T>, Platform> async_recv();

    // Appends up to `max` items, without waiting, as long as there are any; says how many.
    // Throws: std::bad_alloc; what is in `out` by then stays there, nothing else was taken.
    std::size_t try_recv_n(std::vector<T>& out, std::size_t max);

    // The same, but waits for the first. 0: closed and drained, or `max` is 0.
    // Throws: as try_recv_n(); before it waits, or with the first item in `out`.
    std::size_t recv_n(std::vector<T>& out, std::size_t max);

    // As recv_n(), for a coroutine.
    // Requires: nobody touches `out` from this call on until the operation is over.
    // Destroy: as async_recv(); but if the channel is full or closed, the item stays in `out`.
    basic_async_op<std::size_t, Platform> async_recv_n(std::vector<T>& out, std::size_t max);

    // Receives until closed and drained: for (T v : channel). An iterator has received the item that
    // it stands on.
    class iterator;
    iterator begin() { return iterator(static_cast<Self&>(*this)); }
    std::default_sentinel_t end() noexcept { return {}; }

    // Receives without waiting until there is nothing: for (T& v : channel.try_iter()). An input
    // range; an item is valid until the next increment.
    try_range<Self> try_iter() noexcept { return try_range<Self>(static_cast<Self&>(*this)); }

protected:
    ~receive_operations() = default;

private:
    auto& source() noexcept { return static_cast<Self&>(*this).source(); }
    keep_alive hold() noexcept { return static_cast<Self&>(*this).hold(); }
    template <class Source> using waits = item_wait<T, Platform, std::remove_reference_t<Source>>;

    template <class Out, class Limit> wait_status wait_for(Out& out, const Limit& limit);
    result<T> recv_until(deadline until);
};

template <class Self, class T, class Platform>
class receive_operations<Self, T, Platform>::iterator {
public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;

    explicit iterator(Self& from) : from_(&from), item_(from.recv()) {}

    // The item, to be moved away.
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
wait_status receive_operations<Self, T, Platform>::wait_for(Out& out, const Limit& limit) {
    auto& from = source();
    if (const wait_status got = from.recv(into(out)); got != wait_status::waiting) {
        return got;
    }
    const keep_alive alive = hold();
    return waits<decltype(from)>::recv(from, out, limit);
}

template <class Self, class T, class Platform>
std::optional<T> receive_operations<Self, T, Platform>::recv() {
    std::optional<T> item;
    wait_for(item, deadline::never());
    return item;
}

template <class Self, class T, class Platform>
result<T> receive_operations<Self, T, Platform>::recv(std::stop_token token) {
    std::optional<T> item;
    return to_received(wait_for(item, token), item);
}

template <class Self, class T, class Platform>
result<T> receive_operations<Self, T, Platform>::recv_until(deadline until) {
    std::optional<T> item;
    return to_received(wait_for(item, until), item);
}

template <class Self, class T, class Platform>
result<T> receive_operations<Self, T, Platform>::try_recv() noexcept {
    std::optional<T> item;
    return to_received(source().recv(into(item)), item);
}

template <class Self, class T, class Platform>
basic_async_op<std::optional<T>, Platform> receive_operations<Self, T, Platform>::async_recv() {
    auto& from = source();
    return {waits<decltype(from)>::recv_ops, wait_target{&from, this}, recv_payload<T>(hold())};
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
    if (wait_for(out, deadline::never()) == wait_status::closed) {
        return 0;
    }
    return 1 + try_recv_n(out, max - 1);
}

template <class Self, class T, class Platform>
basic_async_op<std::size_t, Platform>
receive_operations<Self, T, Platform>::async_recv_n(std::vector<T>& out, std::size_t max) {
    auto& from = source();
    make_room(out, 1);
    const auto most = std::min<std::size_t>(max, (std::numeric_limits<std::ptrdiff_t>::max)());
    return {waits<decltype(from)>::recv_n_ops,
            wait_target{&from, &out, static_cast<std::ptrdiff_t>(most)}, recv_n_payload(hold())};
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
