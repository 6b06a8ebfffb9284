// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_ITEM_WINDOW_HPP
#define BIDE_CHANNEL_DETAIL_ITEM_WINDOW_HPP

// The items of a sliding channel: Items of locked_core.hpp. The latest `capacity` items, in an array
// whose end is followed by its begin.

#include <bide/channel/detail/element.hpp>
#include <bide/channel/detail/item_array.hpp>
#include <bide/core/config.hpp>

#include <cstddef>
#include <optional>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

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

    // If there is no room, the oldest item goes to `out`.
    void put(T& item, displaced& out) noexcept {
        if (size() == capacity()) {
            auto away = [&out](T& oldest) noexcept { out.emplace(std::move(oldest)); };
            take(away);
        }
        items_.construct(wrapped(first_ + size_), std::move(item));
        size_ = size_ + 1;
    }
    // An item that comes back is the oldest. If there is no room, it is the one to be displaced.
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

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
