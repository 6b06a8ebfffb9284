// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_SLIDING_CHANNEL_HPP
#define BIDE_CHANNEL_SLIDING_CHANNEL_HPP

/// \file
/// A channel that keeps the latest items: if it is full, a send removes the oldest item.

#include <bide/channel/detail/locked_core.hpp>
#include <bide/channel/handles.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// The items of a sliding channel, in a circular array: the Items of locked_core.hpp.
template <class T, class Platform> class basic_item_window {
    static_assert(is_element<T>);

public:
    using value_type = T;
    using displaced = std::optional<T>;
    static constexpr const char* name = "sliding_channel";
    static constexpr bool send_waits = false;

    explicit basic_item_window(std::size_t capacity)
        : items_(capacity, "bide::sliding_channel: capacity too large") {}

    std::size_t capacity() const noexcept { return items_.capacity(); }
    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size() == 0; }

    // If there is no room, moves the oldest item to `out`.
    void put(T& item, displaced& out) noexcept {
        if (size() == capacity()) {
            auto away = [&out](T& oldest) noexcept { out.emplace(std::move(oldest)); };
            take(away);
        }
        items_.construct(wrapped(first_ + size_), std::move(item));
        size_ = size_ + 1;
    }
    // Puts a received item back as the oldest one. If there is no room, returns false.
    bool put_back(T& item) noexcept {
        const bool room = size() != capacity();
        if (room) {
            first_ = wrapped(first_ + capacity() - 1);
            items_.construct(first_, std::move(item));
            size_ = size_ + 1;
        }
        return room;
    }
    template <class Put> void take(Put& put) noexcept {
        put(items_[first_]);
        items_.destroy(first_);
        first_ = wrapped(first_ + 1);
        size_ = size_ - 1;
    }

private:
    std::size_t wrapped(std::size_t i) const noexcept {
        return i < capacity() ? i : i - capacity();
    }

    item_array<T> items_;
    typename Platform::template var<std::size_t> first_{0};
    typename Platform::template var<std::size_t> size_{0};
};

inline std::size_t capacity_to_slide(std::size_t capacity) {
    return not_zero(capacity, "bide::sliding_channel: a capacity of 0 keeps no item");
}

} // namespace detail

/// A first-in-first-out channel for threads and coroutines that keeps the latest `capacity` items.
/// A send never waits: if the channel is full, the send removes the oldest item. With a capacity of
/// 1, a receiver gets the latest item. A send never returns errc::full, errc::timeout or
/// errc::stopped. replace() returns the removed item; the other forms of send destroy it, without a
/// lock.
///
/// \code
/// bide::sliding_channel<int> latest(2);
/// for (int i = 1; i <= 3 && latest.send(i); ++i) {} // the last send removes 1
/// auto first = latest.recv();                       // 2
/// \endcode
///
/// Each item is received at most once, by one of the receivers, so T need not be copyable. In a
/// watch (channel/watch.hpp), each receiver copies the latest value. In a broadcast
/// (channel/broadcast.hpp), each subscriber gets every value, or learns how many it has missed.
///
/// Receivers are served in the order in which they came. While a receiver waits, no item is
/// removed. If an item was granted to a coroutine that is destroyed before it resumes, the next
/// waiting receiver gets the item. If no receiver waits, the item goes back into the channel as the
/// oldest. If the channel is full or closed, the item is destroyed. core/async_op.hpp says when a
/// coroutine may be destroyed.
///
/// T is moved into the channel and out of it under the lock of the channel. A thread that neither
/// sends nor receives an item may move the item. The move constructor of T and the destructor of a
/// moved-from T must not use the channel; the destructor of an item may.
///
/// Destroys: a receiver that has an item, or has learned that the channel is closed, may destroy
/// the channel. The send or close() need not have returned. But a send of several items in one call
/// must have returned.
template <class T, class Platform>
class basic_sliding_channel
    : public channel_operations<basic_sliding_channel<T, Platform>, T, Platform,
                                detail::basic_sliding_core<T, Platform>> {
    using base = typename basic_sliding_channel::channel_operations;

public:
    /// Constructs an empty channel, and allocates all its memory.
    /// Throws: std::invalid_argument if `capacity` is 0, std::length_error if no memory can hold
    /// `capacity` items, std::bad_alloc.
    explicit basic_sliding_channel(std::size_t capacity = 1)
        : base(std::in_place, detail::capacity_to_slide(capacity)) {}

    /// Sends an item as send() does.
    /// Returns: the item that was removed to make room; nothing if there was room. If the channel
    /// is closed: errc::closed, with the item that was not sent.
    result<std::optional<T>, send_error<T>> replace(T&& value) noexcept {
        std::optional<T> oldest;
        const wait_status what = this->core_.send(value, oldest);
        if (what != wait_status::granted) {
            return unexpected<send_error<T>>{send_error<T>{errc_of(what), T(std::move(value))}};
        }
        return oldest;
    }
};

/// Makes a sliding channel.
/// Returns: its first sender and its first receiver.
/// Throws: as the constructor of the channel.
template <class T, class Platform = native_platform>
[[nodiscard]] std::pair<basic_sliding_sender<T, Platform>, basic_sliding_receiver<T, Platform>>
make_sliding_channel(std::size_t capacity = 1) {
    return detail::
        handle_maker<basic_sliding_sender<T, Platform>, basic_sliding_receiver<T, Platform>>::make(
            detail::capacity_to_slide(capacity));
}

}} // namespace bide::BIDE_ABI

#endif
