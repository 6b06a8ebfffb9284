// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_UNBOUNDED_CHANNEL_HPP
#define BIDE_CHANNEL_UNBOUNDED_CHANNEL_HPP

/// \file
/// A channel without a capacity.
#include <bide/channel/channel.hpp>
#include <bide/channel/detail/unbounded_core.hpp>
#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/fwd.hpp>

#include <cstddef>

namespace bide { inline namespace BIDE_ABI {

/// A first-in-first-out channel without a capacity, for threads and coroutines. A send never waits.
/// It never returns errc::full, errc::timeout or errc::stopped. If senders are faster than
/// receivers, the channel fills the memory.
///
/// Receivers are served in the order in which they came. If a send succeeded, its item is received
/// or stays in the channel, also after close(). If the item was granted to a coroutine that is
/// destroyed before it resumes, the next waiting receiver gets the item. If no receiver waits, the
/// item goes back into the channel, before all items in it. So if several such coroutines are
/// destroyed, the item of the last one comes first. If memory has run out, the item goes behind all
/// items if there is room. If there is no room, or if the channel is closed, the item is destroyed.
/// core/async_op.hpp says when a coroutine may be destroyed.
///
/// T is moved into the channel and out of it under the lock of the channel, also by other threads
/// than those that send or receive it. Neither its moves nor the destructor of a moved-from T may
/// use the channel; the destructor of an item may.
///
/// Throws: std::bad_alloc from each form of send if there is no memory for the item, and from a
/// select that chooses it. Nothing changes then, and the caller keeps the item. (async_send() loses
/// the item with the operation; async_send_from() leaves it in place.) try_send_n() stops there.
/// Destroys: a receiver that has an item may destroy the channel, even if the send has not
/// returned.
template <class T, class Platform>
class basic_unbounded_channel
    : public send_operations<basic_unbounded_channel<T, Platform>, T, Platform>,
      public receive_operations<basic_unbounded_channel<T, Platform>, T, Platform> {
public:
    /// Constructs an empty channel. The first send allocates.
    basic_unbounded_channel() noexcept = default;

    /// Destroys the items in the channel.
    /// Requires: there are no waiters; terminates otherwise.
    ~basic_unbounded_channel() = default;

    basic_unbounded_channel(const basic_unbounded_channel&) = delete;
    basic_unbounded_channel& operator=(const basic_unbounded_channel&) = delete;

    /// Closes the channel: later sends fail. Receivers receive the items in the channel, and then
    /// learn that it is closed.
    /// Returns: true if this call closed it; false if it was closed already.
    bool close() noexcept { return core_.close(); }
    /// Returns true if close() was called.
    bool is_closed() const noexcept { return core_.is_closed(); }

    /// The capacity of an unbounded channel: the largest std::size_t.
    static constexpr std::size_t unbounded = detail::basic_unbounded_core<T, Platform>::capacity();
    /// Returns `unbounded`.
    static constexpr std::size_t capacity() noexcept { return unbounded; }

    /// Returns how many items were in the channel at one instant.
    std::size_t size() const noexcept { return core_.size(); }
    /// Returns true if no item was in the channel at one instant.
    bool empty() const noexcept { return size() == 0; }

    /// Returns false: a send always has room.
    static constexpr bool is_full() noexcept { return false; }

private:
    friend detail::channel_access;
    auto& core() noexcept { return core_; }

    detail::basic_unbounded_core<T, Platform> core_;
};

}} // namespace bide::BIDE_ABI

#endif
