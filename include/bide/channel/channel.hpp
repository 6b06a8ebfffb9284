#ifndef BIDE_CHANNEL_CHANNEL_HPP
#define BIDE_CHANNEL_CHANNEL_HPP

// A bounded queue of many senders and many receivers, threads and coroutines alike, that can be
// closed.
//
// Items go through a lock-free ring; who finds it full, or empty, waits in a queue, and gets its
// item put in, or handed out, by whoever makes that possible. channel/ring.hpp has the ring,
// channel/detail/channel_core.hpp the protocol between ring and queues, and its proof.

#include <bide/channel/detail/channel_core.hpp>
#include <bide/channel/detail/receive_operations.hpp>
#include <bide/channel/detail/send_operations.hpp>
#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/fwd.hpp>

#include <cstddef>
#include <cstdint>

namespace bide::inline BIDE_ABI {

// First in, first out. At most `capacity` items are inside, exactly; with a capacity of 0 an item
// goes from hand to hand, and a send lasts until somebody receives. Those who wait on one side are
// served in the order in which they came; whoever comes while something can be had at once takes
// it, waiting or not waiting others.
//
// A send that succeeded is received, or its item is still inside, across close() too. If the item
// came to a coroutine that is destroyed before it goes on, the next receiver that waits gets it. If
// none waits, the item goes back in, behind all that are inside. It is destroyed if that cannot be:
// the channel is full or closed.
//
// T is moved into the channel, inside it, and out, and may be moved by other threads than those
// that send or receive it. Neither its moves nor the destructor of what was moved from may use the
// channel; the destructor of an item may. No default constructor, copy or assignment of T is used.
// A T with an explicit move constructor is sent as a temporary: send(T(...)).
//
// An over-aligned T is aligned inside the channel. A coroutine's frame comes from an operator new
// that aligns to __STDCPP_DEFAULT_NEW_ALIGNMENT__ (g++ and clang). To wait for a T that needs more,
// give the promise type an operator new that aligns, or send a std::unique_ptr<T>. bide::task has
// no such operator.
//
// Whoever received what was sent, or was told that it is closed, may destroy the channel, whatever
// the sender or closer still does; and who knows that its item was received may, whatever that
// receiver does. Unless the other sends or receives several at once, has more cases of this channel
// in its select, has a time-out or a stop that ends its wait at that very moment, or is a coroutine
// that is destroyed before it goes on.
template <class T, class Platform, class Stamp>
class basic_channel
    : public detail::send_operations<basic_channel<T, Platform, Stamp>, T, Platform>,
      public detail::receive_operations<basic_channel<T, Platform, Stamp>, T, Platform> {
public:
    using value_type = T;

    // Throws: std::length_error where no memory could hold that many, std::bad_alloc. Allocates
    // here and nowhere else.
    explicit basic_channel(std::size_t capacity) : core_(capacity) {}

    // Destroys what is inside.
    // Requires: nobody waits; terminates otherwise.
    ~basic_channel() = default;

    basic_channel(const basic_channel&) = delete;
    basic_channel& operator=(const basic_channel&) = delete;

    // No more sends: who waits to send gets its item back, who waits to receive is told, unless
    // something is inside. True the first time.
    bool close() noexcept { return core_.close(); }
    bool is_closed() const noexcept { return core_.is_closed(); }

    std::size_t capacity() const noexcept { return core_.capacity(); }

    // How many were inside at one instant; never more than capacity().
    std::size_t size() const noexcept { return core_.size(); }
    bool empty() const noexcept { return size() == 0; }

    // A send would have to wait, or to fail, at one instant. With a capacity of 0: always.
    bool is_full() const noexcept { return size() == capacity(); }

private:
    friend detail::send_operations<basic_channel, T, Platform>;
    friend detail::receive_operations<basic_channel, T, Platform>;

    auto& source() noexcept { return core_; }
    detail::keep_alive hold() noexcept { return {}; } // the caller's affair

    detail::basic_channel_core<T, Platform, Stamp> core_;
};

} // namespace bide::inline BIDE_ABI

#endif
