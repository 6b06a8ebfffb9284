// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_ITEM_ARRAY_HPP
#define BIDE_CHANNEL_DETAIL_ITEM_ARRAY_HPP

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>

#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// Memory for `capacity` objects, which its owner constructs and destroys. The constructor allocates
// all of it.
template <class T> class item_array {
    struct place {
        alignas(T) std::byte bytes[sizeof(T)];
    };

public:
    // Throws: std::length_error(too_large) if no memory can hold so many objects, std::bad_alloc.
    item_array(std::size_t capacity, [[maybe_unused]] const char* too_large) : capacity_(capacity) {
        if (capacity > (std::numeric_limits<std::ptrdiff_t>::max)() / sizeof(place)) {
            BIDE_THROW(std::length_error(too_large));
        }
        places_ = std::allocator<place>().allocate(capacity);
    }
    ~item_array() { std::allocator<place>().deallocate(places_, capacity_); }

    item_array(const item_array&) = delete;
    item_array& operator=(const item_array&) = delete;

    std::size_t capacity() const noexcept { return capacity_; }

    template <class... Args> void construct(std::size_t i, Args&&... args) noexcept {
        ::new (static_cast<void*>(places_[i].bytes)) T(std::forward<Args>(args)...);
    }
    T& operator[](std::size_t i) const noexcept {
        return *std::launder(reinterpret_cast<T*>(places_[i].bytes));
    }
    void destroy(std::size_t i) noexcept { (*this)[i].~T(); }

    // Moves object `from` to place `to`, which is free. After that, place `from` is free.
    void relocate(std::size_t to, std::size_t from) noexcept {
        construct(to, std::move((*this)[from]));
        destroy(from);
    }

private:
    place* places_ = nullptr;
    std::size_t capacity_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
