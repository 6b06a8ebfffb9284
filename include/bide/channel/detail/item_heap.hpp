// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_ITEM_HEAP_HPP
#define BIDE_CHANNEL_DETAIL_ITEM_HEAP_HPP

// The items of a priority channel: Items of locked_core.hpp. A binary heap in an array (J. Williams,
// "Algorithm 232: Heapsort", 1964). The root is the item that comes out next.
//
// The heap moves a hole instead of swapping items: each step moves one item. An item with a greater
// order came later. So the heap orders any two items, and equal items come out in the order in which
// they came in. An item that comes back gets an order below all others.
//
// If Compare is not a strict weak order, the items come out in some order. None is lost, because no
// step depends on what the comparisons say together.

#include <bide/channel/detail/element.hpp>
#include <bide/channel/detail/item_array.hpp>
#include <bide/core/config.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// True if a comparison of two T does not throw. The standard library does not say noexcept for
// std::less<T> and std::greater<T>, so their operators are asked.
template <class Compare, class T>
inline constexpr bool compares_without_throwing =
    std::is_nothrow_invocable_r_v<bool, Compare&, const T&, const T&>;
template <class T>
inline constexpr bool compares_without_throwing<std::less<T>, T> =
    compares_without_throwing<std::less<>, T>;
template <class T>
inline constexpr bool compares_without_throwing<std::greater<T>, T> =
    compares_without_throwing<std::greater<>, T>;

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
    template <class Put> void take(Put& put) noexcept;

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
    void rise(std::size_t hole, T& item, order came) noexcept;

    item_array<entry> entries_;
    typename Platform::template var<std::size_t> size_{0};
    order youngest_ = 0; // the next order of an item that comes in
    order oldest_ = 0;   // the last order of an item that came back
    [[no_unique_address]] Compare compare_;
};

// The hole rises until the item fits into it.
template <class T, class Compare, class Platform>
void basic_item_heap<T, Compare, Platform>::rise(std::size_t hole, T& item, order came) noexcept {
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

// The root leaves a hole, which sinks to the bottom. There the last entry goes in, and rises: it
// seldom rises far, so this takes about one comparison for each level, and not two (I. Wegener,
// "Bottom-Up-Heapsort", 1993).
template <class T, class Compare, class Platform>
template <class Put>
void basic_item_heap<T, Compare, Platform>::take(Put& put) noexcept {
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

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
