// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_PRIORITY_CHANNEL_HPP
#define BIDE_CHANNEL_PRIORITY_CHANNEL_HPP

/// \file
/// A bounded channel from which the greatest item comes first.

#include <bide/channel/detail/locked_core.hpp>
#include <bide/channel/handles.hpp>

#include <functional>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// True if a comparison of two T does not throw. The standard library does not declare the operators
// of std::less<T> and std::greater<T> noexcept, so the operators of T are checked instead.
template <class Compare, class T>
inline constexpr bool compares_without_throwing =
    std::is_nothrow_invocable_r_v<bool, Compare&, const T&, const T&>;
template <class T>
inline constexpr bool compares_without_throwing<std::less<T>, T> =
    compares_without_throwing<std::less<>, T>;
template <class T>
inline constexpr bool compares_without_throwing<std::greater<T>, T> =
    compares_without_throwing<std::greater<>, T>;

// The items of a priority channel: the Items of locked_core.hpp. This is a binary heap in an array
// (J. Williams, "Algorithm 232: Heapsort", 1964). The root is the next item to be received.
//
// The heap does not swap items. It moves a hole (a free place), so each step moves one item. Items
// are numbered in the order in which they come. Of two equal items, the item with the lower number
// comes out first, so equal items keep their order. An item that is put back gets the lowest
// number.
//
// If Compare is not a strict weak order, the items come out in an unspecified order. No item is
// lost, because no step relies on consistent comparisons.
template <class T, class Compare, class Platform> class basic_item_heap {
    static_assert(is_element<T>);
    static_assert(compares_without_throwing<Compare, T>,
                  "bide: the comparison of a priority_channel must be noexcept: it also runs for "
                  "the item of another thread");

public:
    using value_type = T;
    struct displaced {};
    static constexpr const char* name = "priority_channel";
    static constexpr bool send_waits = true;

    explicit basic_item_heap(std::size_t capacity, Compare compare = Compare())
        : entries_(capacity, "bide::priority_channel: capacity too large"),
          compare_(std::move(compare)) {}

    std::size_t capacity() const noexcept { return entries_.capacity(); }
    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size() == 0; }
    bool is_full() const noexcept { return size() == capacity(); }

    void put(T& item, displaced&) noexcept { insert(item, youngest_++); }
    bool put_back(T& item) noexcept {
        const bool room = !is_full();
        if (room) {
            insert(item, --oldest_);
        }
        return room;
    }
    // Taking the root leaves a hole, which sinks to the bottom. The last entry is moved into the
    // hole and then rises. It seldom rises far, so this takes about one comparison for each level,
    // and not two (I. Wegener, "Bottom-Up-Heapsort", 1993).
    template <class Put> void take(Put& put) noexcept {
        put(entries_[0].item);
        entries_.destroy(0);
        const std::size_t last = size_ - 1;
        size_ = last;
        if (last == 0) {
            return;
        }
        std::size_t hole = 0;
        for (std::size_t child = 1; child < last; child = 2 * hole + 1) {
            const entry& left = entries_[child];
            if (child + 1 < last && !comes_before(left.item, left.came, entries_[child + 1])) {
                ++child;
            }
            entries_.relocate(hole, child);
            hole = child;
        }
        entry moved(std::move(entries_[last]));
        entries_.destroy(last);
        rise(hole, moved.item, moved.came);
    }

private:
    using order = std::int64_t;

    struct entry {
        entry(T& from, order at) noexcept : item(std::move(from)), came(at) {}
        entry(entry&&) noexcept = default;
        T item;
        order came;
    };

    bool comes_before(const T& item, order came, const entry& other) noexcept {
        return came < other.came ? !compare_(item, other.item) : compare_(other.item, item);
    }
    void insert(T& item, order came) noexcept {
        const std::size_t last = size_;
        size_ = last + 1;
        rise(last, item, came);
    }
    // Moves the hole up until the item may be placed in it.
    void rise(std::size_t hole, T& item, order came) noexcept {
        while (hole != 0) {
            const std::size_t parent = (hole - 1) / 2;
            if (!comes_before(item, came, entries_[parent])) {
                break;
            }
            entries_.relocate(hole, parent);
            hole = parent;
        }
        entries_.construct(hole, item, came);
    }

    item_array<entry> entries_;
    typename Platform::template var<std::size_t> size_{0};
    order youngest_ = 0; // the number of the next new item
    order oldest_ = 0;   // the number of the last item that was put back
    [[no_unique_address]] Compare compare_;
};

template <class T, class Compare, class Platform>
using basic_priority_core = basic_locked_core<basic_item_heap<T, Compare, Platform>, Platform>;

inline std::size_t capacity_to_order(std::size_t capacity) {
    return not_zero(capacity, "bide::priority_channel: a capacity of 0 orders no items");
}

} // namespace detail

/// A bounded channel for threads and coroutines, from which the greatest item by Compare comes
/// first. compare(a, b) returns true if a is less than b, as for std::priority_queue. Equal items
/// come out in the order in which they came in. The channel contains at most `capacity` items.
///
/// \code
/// bide::priority_channel<int> urgent(16);
/// if (urgent.send(1) && urgent.send(7)) { // neither fails: the channel is open
///     auto first = urgent.recv();         // 7
/// }
/// \endcode
///
/// Only the items in the channel are ordered. If the channel is full, senders wait in the order in
/// which they came, whatever they send. So each sender waits for a limited number of receives, even
/// if its item is low. A receive takes the greatest item, and then the item of the first waiting
/// sender goes in. Receivers are served in the order in which they came.
///
/// If a send succeeded, its item is received or stays in the channel, also after close(). If the
/// item was granted to a coroutine that is destroyed before it resumes, the next waiting receiver
/// gets the item. If no receiver waits, the item goes back into the channel, before all items that
/// equal it. If the channel is full or closed, the item is destroyed. core/async_op.hpp says when a
/// coroutine may be destroyed.
///
/// Compare must be noexcept. If it is std::less or std::greater, the operator < or > of T must be
/// noexcept. The move constructor of T must be noexcept, too. The reason is that a receiver also
/// compares and moves the item of a waiting sender, and cannot report an exception to that sender.
/// If Compare is not a strict weak order, the items come out in an unspecified order; no item is
/// lost.
///
/// T is moved into the channel, inside it, and out of it under the lock of the channel. A thread
/// that neither sends nor receives an item may move the item. A send makes up to log2(size) moves
/// and as many comparisons; a receive makes up to twice as many of both. If T is large, send a
/// std::unique_ptr<T>. Compare, the move constructor of T and the destructor of a moved-from T must
/// not use the channel; the destructor of an item may.
///
/// Destroys: a receiver that has an item, or has learned that the channel is closed, may destroy
/// the channel. The send or close() need not have returned. A sender that knows that its item was
/// received may destroy the channel, even if that receive has not returned. Both are forbidden if
/// the other side does one of the following: it sends or receives several items in one call; it has
/// several cases of this channel in one select; a time-out or a stop ends its wait at that moment;
/// it is a coroutine that is destroyed before it resumes.
template <class T, class Compare, class Platform>
class basic_priority_channel
    : public channel_operations<basic_priority_channel<T, Compare, Platform>, T, Platform,
                                detail::basic_priority_core<T, Compare, Platform>> {
    using base = typename basic_priority_channel::channel_operations;

public:
    /// The type of the comparison.
    using value_compare = Compare;

    /// Constructs an empty channel, and allocates all its memory.
    /// Throws: std::invalid_argument if `capacity` is 0 (a bide::channel may have that capacity),
    /// std::length_error if no memory can hold `capacity` items, std::bad_alloc, and what the move
    /// of Compare throws.
    explicit basic_priority_channel(std::size_t capacity, Compare compare = Compare())
        : base(std::in_place, detail::capacity_to_order(capacity), std::move(compare)) {}
};

/// The priority channel of native threads and coroutines.
template <class T, class Compare = std::less<>>
using priority_channel = basic_priority_channel<T, Compare, native_platform>;

/// Sends into a priority channel (channel/handles.hpp).
template <class T, class Compare = std::less<>, class Platform = native_platform>
using basic_priority_sender =
    basic_sender<T, Platform, detail::basic_priority_core<T, Compare, Platform>>;
/// Receives from a priority channel (channel/handles.hpp).
template <class T, class Compare = std::less<>, class Platform = native_platform>
using basic_priority_receiver =
    basic_receiver<T, Platform, detail::basic_priority_core<T, Compare, Platform>>;

/// Makes a priority channel: make_priority_channel<job>(100, compare).
/// Returns: its first sender and its first receiver.
/// Throws: as the constructor of the channel.
/// Requires: Compare has a default constructor. Moved-from handles refer to a closed channel with a
/// default-constructed Compare.
template <class T, class Compare = std::less<>, class Platform = native_platform>
    requires std::is_default_constructible_v<Compare>
[[nodiscard]] auto make_priority_channel(std::size_t capacity, Compare compare = Compare()) {
    return detail::handle_maker<
        basic_priority_sender<T, Compare, Platform>,
        basic_priority_receiver<T, Compare, Platform>>::make(detail::capacity_to_order(capacity),
                                                             std::move(compare));
}

}} // namespace bide::BIDE_ABI

#endif
