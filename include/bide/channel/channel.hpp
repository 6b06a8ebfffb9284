// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_CHANNEL_HPP
#define BIDE_CHANNEL_CHANNEL_HPP

/// \file
/// A bounded queue that can be closed. Many threads and coroutines send to it and receive from it.
///
/// Items go through a lock-free ring. If the ring is full, a sender waits in a queue; if it is
/// empty, a receiver does. The thread that makes room, or brings an item, moves the waiter's item.
/// channel/ring.hpp has the ring. channel/detail/channel_core.hpp has the protocol between the ring
/// and the queues, and its proof.

#include <bide/channel/detail/channel_core.hpp>
#include <bide/channel/detail/receive_operations.hpp>
#include <bide/channel/detail/send_operations.hpp>
#include <bide/core/config.hpp>
#include <bide/core/detail/noted.hpp>
#include <bide/core/platform.hpp>
#include <bide/fwd.hpp>

#include <cstddef>
#include <cstdint>

namespace bide::inline BIDE_ABI {

/// A bounded first-in-first-out channel for threads and coroutines. The channel never contains more
/// than `capacity` items. With a capacity of 0, a send lasts until a receiver takes the item. The
/// waiters of one side are served in the order in which they came. A sender or receiver that can
/// succeed at once does, even if other callers of its side wait.
///
/// If a send succeeded, its item is received or stays in the channel, also after close(). If the
/// item was granted to a coroutine that is destroyed before it resumes, the next waiting receiver
/// gets the item. If no receiver waits, the item goes back into the channel, behind all items in
/// it. If that is impossible, because the channel is full or closed, the item is destroyed.
/// core/async_op.hpp says when a coroutine may be destroyed.
///
/// T is moved into the channel, inside it, and out of it, also by other threads than those that
/// send or receive it. Neither its moves nor the destructor of a moved-from T may use the channel;
/// the destructor of an item may. No default constructor, copy or assignment of T is used. A T with
/// an explicit move constructor is sent as a temporary: send(T(...)).
///
/// An over-aligned T is aligned inside the channel. The frame of a coroutine comes from an operator
/// new that aligns to __STDCPP_DEFAULT_NEW_ALIGNMENT__ (g++ and clang). To wait for a T that needs
/// more, give the promise type an operator new that aligns, or send a std::unique_ptr<T>.
/// bide::task has no such operator.
///
/// Destroys: a receiver that has an item, or was told that the channel is closed, may destroy the
/// channel, even if the send or close() has not returned. A sender that knows that its item was
/// received may destroy it, even if that receive has not returned. Neither holds if the other side
/// does one of the following: it sends or receives several items in one call; it has several cases
/// of this channel in one select; its wait is ended at that moment by a time-out or a stop; it is a
/// coroutine that is destroyed before it resumes.
template <class T, class Platform, class Stamp>
class basic_channel
    : public detail::send_operations<basic_channel<T, Platform, Stamp>, T, Platform>,
      public detail::receive_operations<basic_channel<T, Platform, Stamp>, T, Platform> {
public:
    /// The type of an item.
    using value_type = T;

    /// Constructs an empty channel. Allocates here and nowhere else.
    /// Throws: std::length_error if no memory can hold `capacity` items, std::bad_alloc.
    explicit basic_channel(std::size_t capacity) : basic_channel(capacity, nullptr) {}

    /// Constructs an empty channel, as above, with a name for reports (core/deadlock_check.hpp). The
    /// name is copied if BIDE_DEADLOCK_CHECK is defined, and ignored otherwise.
    basic_channel(std::size_t capacity, [[maybe_unused]] const char* its_name) : core_(capacity) {
        BIDE_CHECKED(detail::note_made<Platform>(this, "channel", its_name);)
    }

    /// Destroys the items in the channel.
    /// Requires: there are no waiters; terminates otherwise.
#if defined(BIDE_DEADLOCK_CHECK)
    ~basic_channel() { detail::note_gone<Platform>(this); }
#else
    ~basic_channel() = default;
#endif

    basic_channel(const basic_channel&) = delete;
    basic_channel& operator=(const basic_channel&) = delete;

    /// Closes the channel: later sends fail, and waiting senders get their items back. Receivers
    /// receive the items in the channel, and then learn that it is closed.
    /// Returns: true if this call closed it; false if it was closed already.
    bool close() noexcept { return core_.close(); }
    /// Returns true if close() was called.
    bool is_closed() const noexcept { return core_.is_closed(); }

    /// Returns the capacity.
    std::size_t capacity() const noexcept { return core_.capacity(); }

    /// Returns how many items were in the channel at one instant; never more than capacity().
    std::size_t size() const noexcept { return core_.size(); }
    /// Returns true if no item was in the channel at one instant.
    bool empty() const noexcept { return size() == 0; }

    /// Returns true if a send would have had to wait, or to fail, at one instant. Always true with
    /// a capacity of 0.
    bool is_full() const noexcept { return core_.is_full(); }

private:
    friend detail::send_operations<basic_channel, T, Platform>;
    friend detail::receive_operations<basic_channel, T, Platform>;

    auto& source() noexcept { return core_; }
    detail::keep_alive hold() noexcept { return {}; } // the caller keeps the channel

    detail::basic_channel_core<T, Platform, Stamp> core_;
};

} // namespace bide::inline BIDE_ABI

#endif
