#ifndef BIDE_CHANNEL_HANDLES_HPP
#define BIDE_CHANNEL_HANDLES_HPP

// A channel in the hands of those who use it: sender and receiver are counted, and the channel is
// closed when nobody is left on one side, and goes when nobody is left at all.
//
// Three counts beside the channel, in one allocation: of senders, of receivers, and of those who
// need the memory: each side while it has handles, and each operation that waits. So a handle is
// copied and dropped by a step on the count of its side, and the last one of a side closes the
// channel before it lets go of the memory.

#include <bide/channel/detail/channel_core.hpp>
#include <bide/channel/detail/item_wait.hpp>
#include <bide/channel/detail/receive_operations.hpp>
#include <bide/channel/detail/send_operations.hpp>
#include <bide/channel/detail/unbounded_core.hpp>
#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>
#include <bide/fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// Core: a channel without its face.
template <class T, class Platform, class Core> class shared_core {
public:
    template <class... Capacity> explicit shared_core(Capacity... c) : core(c...) {}
    shared_core(const shared_core&) = delete;
    shared_core& operator=(const shared_core&) = delete;

    // One more handle of a side that has one.
    void join(side which) noexcept { increment(handles(which)); }

    // One handle less. Nothing of *this is touched afterwards, unless others are left.
    void leave(side which) noexcept;

    // Keeps the memory, and nothing else, for an operation of somebody who has a handle.
    keep_alive hold() noexcept {
        increment(users_);
        return keep_alive(this,
                          [](void* self) noexcept { static_cast<shared_core*>(self)->let_go(); });
    }

    // What a handle that was moved from stands for. Terminates where there is no memory for it, the
    // first time.
    BIDE_NOINLINE static Core& closed();

    Core core;

private:
    using counter = typename Platform::template atomic<std::size_t>;

    ~shared_core() = default;

    counter& handles(side which) noexcept { return which == side::sending ? senders_ : receivers_; }

    static void increment(counter& c) noexcept {
        // Order: relaxed; whoever counts one more has one, which is not given up meanwhile.
        c.fetch_add(1, std::memory_order_relaxed);
    }
    void let_go() noexcept {
        // Order: release [H2]; the last one destroys, after all that the others did. Acquire [H2]:
        // this may be the last one.
        if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            delete this;
        }
    }

    counter senders_{1};
    counter receivers_{1};
    counter users_{2};
};

template <class T, class Platform, class Core>
void shared_core<T, Platform, Core>::leave(side which) noexcept {
    // Order: release [H1]; all that was sent through this handle comes before the last one closes.
    // Acquire [H1]: this may be the last one.
    if (handles(which).fetch_sub(1, std::memory_order_acq_rel) != 1) {
        return;
    }
    core.close();
    if (which == side::receiving) {
        // Nobody will ask for what is inside. Each item is destroyed here, outside of every lock.
        std::optional<T> item;
        while (core.recv(into(item)) == wait_status::granted) {
            item.reset();
        }
    }
    let_go();
}

template <class T, class Platform, class Core> Core& shared_core<T, Platform, Core>::closed() {
    static Core* const never_destroyed =
        made_or_fatal("no memory for what a channel handle that was moved from stands for", [] {
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

// What senders and receivers have in common.
template <class T, class Platform, class Core, side Which> class channel_handle {
public:
    channel_handle(const channel_handle& other) noexcept : to_(other.to_) {
        if (to_ != nullptr) {
            to_->join(Which);
        }
    }
    channel_handle(channel_handle&& other) noexcept : to_(std::exchange(other.to_, nullptr)) {}
    channel_handle& operator=(channel_handle other) noexcept {
        std::swap(to_, other.to_);
        return *this;
    }
    ~channel_handle() {
        if (to_ != nullptr) {
            to_->leave(Which);
        }
    }

    // For both sides and all handles. True the first time.
    bool close() noexcept { return core().close(); }
    bool is_closed() const noexcept { return core().is_closed(); }

    // How many were inside at one instant.
    std::size_t size() const noexcept { return core().size(); }
    bool empty() const noexcept { return size() == 0; }

    // Of an unbounded channel: `unbounded`, the largest std::size_t.
    static constexpr std::size_t unbounded = static_cast<std::size_t>(-1);
    std::size_t capacity() const noexcept { return core().capacity(); }

    // A send would have to wait, or to fail, at one instant. With a capacity of 0: always; of an
    // unbounded channel: never.
    bool is_full() const noexcept { return size() == capacity(); }

    // Both are handles of one channel, on whichever side. False where one was moved from.
    template <side Other>
    bool same_channel(const channel_handle<T, Platform, Core, Other>& other) const noexcept {
        return to_ != nullptr && to_ == other.to_;
    }

protected:
    using shared = shared_core<T, Platform, Core>;

    explicit channel_handle(shared* to) noexcept : to_(to) {}

    Core& core() const noexcept { return to_ != nullptr ? to_->core : shared::closed(); }
    keep_alive keep() const noexcept { return to_ != nullptr ? to_->hold() : keep_alive(); }

private:
    template <class, class, class, side> friend class channel_handle;

    shared* to_; // nullptr: moved from
};

template <class Sender, class Receiver> struct handle_maker {
    template <class... Capacity> static std::pair<Sender, Receiver> make(Capacity... c) {
        auto* const both = new typename Sender::shared(c...);
        return {Sender(both), Receiver(both)};
    }
};

} // namespace detail

// One of those who send. Where the last one is gone, the channel is closed: receivers get what is
// inside, and then are told.
//
// A copy is one more. One that was moved from answers as a closed channel does: a send gets its
// item back. That channel is made when the first handle of its type is used so, and never destroyed.
// Terminates where there is no memory for it.
//
// An operation that waits keeps the channel's memory, whatever becomes of the handles, but it
// counts for no handle: where the last sender is gone, it is answered as by close().
template <class T, class Platform, class Core>
class basic_sender : public detail::channel_handle<T, Platform, Core, detail::side::sending>,
                     public detail::send_operations<basic_sender<T, Platform, Core>, T, Platform> {
    using handle = detail::channel_handle<T, Platform, Core, detail::side::sending>;

public:
    using value_type = T;

private:
    template <class, class> friend struct detail::handle_maker;
    friend detail::send_operations<basic_sender, T, Platform>;

    using handle::handle;
    Core& source() noexcept { return this->core(); }
    detail::keep_alive hold() noexcept { return this->keep(); }
};

// One of those who receive; as a sender, but: where the last one is gone, the channel is closed,
// and what is inside is destroyed. Who waits to send gets the item back.
template <class T, class Platform, class Core>
class basic_receiver
    : public detail::channel_handle<T, Platform, Core, detail::side::receiving>,
      public detail::receive_operations<basic_receiver<T, Platform, Core>, T, Platform> {
    using handle = detail::channel_handle<T, Platform, Core, detail::side::receiving>;

public:
    using value_type = T;

private:
    template <class, class> friend struct detail::handle_maker;
    friend detail::receive_operations<basic_receiver, T, Platform>;

    using handle::handle;
    Core& source() noexcept { return this->core(); }
    detail::keep_alive hold() noexcept { return this->keep(); }
};

// A channel for at most `capacity` items (channel/channel.hpp), by its first two handles.
// Throws: std::length_error where no memory could hold that many, std::bad_alloc.
template <class T, class Platform = native_platform>
[[nodiscard]] std::pair<basic_sender<T, Platform>, basic_receiver<T, Platform>>
make_channel(std::size_t capacity) {
    return detail::handle_maker<basic_sender<T, Platform>, basic_receiver<T, Platform>>::make(
        capacity);
}

// An unbounded one (channel/unbounded_channel.hpp).
// Throws: std::bad_alloc.
template <class T, class Platform = native_platform>
[[nodiscard]] std::pair<basic_unbounded_sender<T, Platform>, basic_unbounded_receiver<T, Platform>>
make_unbounded_channel() {
    return detail::handle_maker<basic_unbounded_sender<T, Platform>,
                                basic_unbounded_receiver<T, Platform>>::make();
}

} // namespace bide::inline BIDE_ABI

#endif
