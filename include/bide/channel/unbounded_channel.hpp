#ifndef BIDE_CHANNEL_UNBOUNDED_CHANNEL_HPP
#define BIDE_CHANNEL_UNBOUNDED_CHANNEL_HPP

#include <bide/channel/detail/receive_operations.hpp>
#include <bide/channel/detail/send_operations.hpp>
#include <bide/channel/detail/unbounded_core.hpp>
#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/fwd.hpp>

#include <cstddef>

namespace bide::inline BIDE_ABI {

// A channel without a capacity, first in, first out: a send never waits, and never answers full,
// timeout or stopped. Who sends faster than others receive fills the memory.
//
// Receivers are served in the order in which they came. A send that succeeded is received, or its
// item is still inside, across close() too. If the item came to a coroutine that is destroyed
// before it goes on, the next receiver that waits gets it. If none waits, the item goes back in,
// before all that are inside: of several coroutines, the one that is destroyed last comes first. If
// memory has run out, the item goes behind all that are inside if there is room. It is destroyed
// if there is none there either, or the channel is closed.
//
// T is moved into the channel and out of it, under its lock, and may be moved by other threads than
// those that send or receive it. Neither its moves nor the destructor of what was moved from may
// use the channel; the destructor of an item may.
//
// Whoever received what was sent may destroy the channel, whatever the sender still does.
//
// Throws: std::bad_alloc from every form of send where there is no memory for one more, and from a
// select that chooses it: nothing has changed, and the item is the caller's. (That of async_send()
// goes with the operation; async_send_from() leaves it where it is.) try_send_n() stops there.
template <class T, class Platform>
class basic_unbounded_channel
    : public detail::send_operations<basic_unbounded_channel<T, Platform>, T, Platform>,
      public detail::receive_operations<basic_unbounded_channel<T, Platform>, T, Platform> {
public:
    using value_type = T;

    // Allocates nothing; the first send does.
    basic_unbounded_channel() noexcept = default;

    // Destroys what is inside.
    // Requires: nobody waits; terminates otherwise.
    ~basic_unbounded_channel() = default;

    basic_unbounded_channel(const basic_unbounded_channel&) = delete;
    basic_unbounded_channel& operator=(const basic_unbounded_channel&) = delete;

    // No more sends: who waits to receive is told. True the first time.
    bool close() noexcept { return core_.close(); }
    bool is_closed() const noexcept { return core_.is_closed(); }

    // The capacity of a channel without one: the largest std::size_t.
    static constexpr std::size_t unbounded = detail::basic_unbounded_core<T, Platform>::capacity();
    static constexpr std::size_t capacity() noexcept { return unbounded; }

    // How many were inside at one instant.
    std::size_t size() const noexcept { return core_.size(); }
    bool empty() const noexcept { return size() == 0; }

    // Never: a send always has room.
    static constexpr bool is_full() noexcept { return false; }

private:
    friend detail::send_operations<basic_unbounded_channel, T, Platform>;
    friend detail::receive_operations<basic_unbounded_channel, T, Platform>;

    auto& source() noexcept { return core_; }
    detail::keep_alive hold() noexcept { return {}; } // the caller's affair

    detail::basic_unbounded_core<T, Platform> core_;
};

} // namespace bide::inline BIDE_ABI

#endif
