// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_HANDLES_HPP
#define BIDE_CHANNEL_HANDLES_HPP

/// \file
/// A channel owned by its senders and receivers.
//
// Senders and receivers are counted. The channel is closed when one side has no handles any more.
// It is freed when neither side has handles and no operation waits.
//
// Three counts are beside the channel, in one allocation: senders, receivers, and users of the
// memory. A side counts as one user while it has handles. Each operation that waits counts as one
// user, too. So the copy or the destruction of a handle changes only the count of one side, in one
// step. Exception: the last handle of a side also closes the channel, and then its side is no
// longer a user of the memory.

#include <bide/channel/channel.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// Core: a channel without its public operations.
template <class T, class Platform, class Core> class shared_core {
public:
    template <class... Args> explicit shared_core(Args... args) : core(std::move(args)...) {}
    shared_core& operator=(shared_core&&) = delete;

    // Adds a handle to a side that has at least one.
    void join(side which) noexcept { increment(handles(which)); }

    // Drops a handle. Frees *this if no user is left.
    void leave(side which) noexcept {
        // Order: release [handles.close]; what was sent through this handle happens before the last
        // handle closes the channel. Acquire [handles.close]: this may be the last handle.
        if (handles(which).fetch_sub(1, std::memory_order_acq_rel) != 1) {
            return;
        }
        core.close();
        if (which == side::receiving) {
            detail::destroy_items<T>(core); // no receiver will ask for them
        }
        let_go();
    }

    // Keeps the memory for an operation of a handle, but does not keep the channel open.
    keep_alive hold() noexcept {
        increment(users_);
        return keep_alive(this,
                          [](void* self) noexcept { static_cast<shared_core*>(self)->let_go(); });
    }

    // Returns the closed channel that moved-from handles refer to. The first call allocates the
    // channel; terminates if there is no memory.
    BIDE_NOINLINE static Core& closed() {
        static Core* const never_destroyed =
            made_or_fatal("no memory for the closed channel of moved-from channel handles", [] {
                Core* made = nullptr;
                if constexpr (std::is_default_constructible_v<Core>) {
                    made = new Core;
                } else {
                    made = new Core(std::size_t{0});
                }
                made->close();
                return made;
            });
        return *never_destroyed;
    }

    Core core;

private:
    using counter = typename Platform::template atomic<std::size_t>;

    ~shared_core() = default;

    counter& handles(side which) noexcept { return which == side::sending ? senders_ : receivers_; }

    static void increment(counter& c) noexcept {
        // Order: relaxed; the caller has a handle, which keeps the count above zero.
        c.fetch_add(1, std::memory_order_relaxed);
    }
    void let_go() noexcept {
        // Order: release [handles.memory]; the last user destroys after the accesses of all other
        // users. Acquire [handles.memory]: this may be the last user.
        if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            delete this;
        }
    }

    counter senders_{1};
    counter receivers_{1};
    counter users_{2};
};

template <class Sender, class Receiver> struct handle_maker {
    template <class... Args> static std::pair<Sender, Receiver> make(Args... args) {
        auto* const both = new typename Sender::shared(std::move(args)...);
        return {Sender(both), Receiver(both)};
    }
};

} // namespace detail

/// What senders and receivers have in common.
template <class T, class Platform, class Core, detail::side Which>
class channel_handle : public state_operations<channel_handle<T, Platform, Core, Which>> {
public:
    /// Adds a handle to the same channel.
    channel_handle(const channel_handle& other) noexcept : to_(other.to_) {
        if (to_ != nullptr) {
            to_->join(Which);
        }
    }
    /// Takes over the channel of `other`. After that, `other` acts as a handle of a closed channel.
    channel_handle(channel_handle&& other) noexcept : to_(std::exchange(other.to_, nullptr)) {}
    /// Drops the channel of this handle, and takes over the channel of `other`.
    channel_handle& operator=(channel_handle other) noexcept {
        std::swap(to_, other.to_);
        return *this;
    }
    /// Drops the handle. The last handle of a side closes the channel.
    ~channel_handle() {
        if (to_ != nullptr) {
            to_->leave(Which);
        }
    }

    /// Returns true if both handles belong to the same channel, on either side. Returns false if
    /// one of them was moved from.
    template <detail::side Other>
    bool same_channel(const channel_handle<T, Platform, Core, Other>& other) const noexcept {
        return to_ != nullptr && to_ == other.to_;
    }

protected:
    /// The memory of the channel.
    using shared = detail::shared_core<T, Platform, Core>;

    /// Constructs a handle of a channel; of a closed one if `to` is nullptr.
    explicit channel_handle(shared* to) noexcept : to_(to) {}

    /// Returns the channel.
    Core& core() const noexcept { return to_ != nullptr ? to_->core : shared::closed(); }
    /// Keeps the memory of the channel.
    detail::keep_alive keep() const noexcept {
        return to_ != nullptr ? to_->hold() : detail::keep_alive();
    }

private:
    friend detail::channel_access;
    template <class, class, class, detail::side> friend class channel_handle;

    shared* to_; // nullptr: moved from
};

/// A handle that sends into a channel.
/// A copy is one more sender. If the last sender is dropped, the channel is closed: the receivers
/// receive the items in it, and then learn that it is closed.
///
/// \code
/// auto [sender, receiver] = bide::make_channel<int>(8);
/// std::jthread producer([to = std::move(sender)]() mutable {
///     for (int i = 0; i < 3 && to.send(i); ++i) {} // until the last receiver is dropped
/// }); // its end drops the last sender, which closes the channel
/// int sum = 0;
/// for (int n : receiver) sum += n;
/// \endcode
///
/// A moved-from sender acts as a sender of a closed channel: a send gets its item back. One such
/// channel is made for each type of channel, when it is first needed, and is never destroyed. The
/// program terminates if there is no memory for it.
///
/// A waiting operation keeps the memory of the channel, even if all handles are dropped. It does
/// not count as a handle: if the last sender is dropped, the operation ends as if by close().
///
/// As in a channel, only queries are const. To send through a const sender, copy the sender.
template <class T, class Platform, class Core>
class basic_sender : public channel_handle<T, Platform, Core, detail::side::sending>,
                     public send_operations<basic_sender<T, Platform, Core>, T, Platform> {
    using handle = channel_handle<T, Platform, Core, detail::side::sending>;

public:
    /// The type of an item.
    using value_type = T;

private:
    template <class, class> friend struct detail::handle_maker;
    using handle::handle;
};

/// A handle that receives from a channel. The rules of a sender apply to it, with one difference.
/// If the last receiver is dropped, the channel is closed, its items are destroyed, and waiting
/// senders get their items back.
template <class T, class Platform, class Core>
class basic_receiver : public channel_handle<T, Platform, Core, detail::side::receiving>,
                       public receive_operations<basic_receiver<T, Platform, Core>, T, Platform> {
    using handle = channel_handle<T, Platform, Core, detail::side::receiving>;

private:
    template <class, class> friend struct detail::handle_maker;
    using handle::handle;
};

/// Makes a channel for at most `capacity` items (channel/channel.hpp).
/// Returns: its first sender and its first receiver.
/// Throws: std::length_error if no memory can hold `capacity` items, std::bad_alloc.
template <class T, class Platform = native_platform>
[[nodiscard]] std::pair<basic_sender<T, Platform>, basic_receiver<T, Platform>>
make_channel(std::size_t capacity) {
    return detail::handle_maker<basic_sender<T, Platform>, basic_receiver<T, Platform>>::make(
        capacity);
}

}} // namespace bide::BIDE_ABI

#endif
