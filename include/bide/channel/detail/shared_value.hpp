// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_SHARED_VALUE_HPP
#define BIDE_CHANNEL_DETAIL_SHARED_VALUE_HPP

// A counted reference to a value that does not change once it is shared. The last reference
// destroys the value. So no lock is held while a value is copied or destroyed. (std::shared_ptr
// does the same, but on atomics that are not the platform's.)

#include <bide/core/config.hpp>

#include <atomic>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class T, class Platform> class basic_shared_value {
    static_assert(std::is_copy_constructible_v<T> && std::is_nothrow_destructible_v<T>,
                  "bide: receivers copy the value: T must be copyable, and its destructor must not "
                  "throw");

public:
    basic_shared_value() noexcept = default;

    // Throws: std::bad_alloc, and what the move or copy of T throws.
    explicit basic_shared_value(T&& from) : cell_(new cell(std::move(from))) {}
    explicit basic_shared_value(const T& from) : cell_(new cell(from)) {}

    basic_shared_value(const basic_shared_value& other) noexcept : cell_(other.cell_) {
        if (cell_ != nullptr) {
            // Order: relaxed; `other` keeps the value meanwhile.
            cell_->references.fetch_add(1, std::memory_order_relaxed);
        }
    }
    basic_shared_value(basic_shared_value&& other) noexcept
        : cell_(std::exchange(other.cell_, nullptr)) {}
    basic_shared_value& operator=(basic_shared_value other) noexcept {
        swap(other);
        return *this;
    }
    ~basic_shared_value() {
        // Order: acq_rel; release [shared_value.reference]: this user has read the value; acquire
        // [shared_value.reference]: so have all users before the value is destroyed.
        if (cell_ != nullptr && cell_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            delete cell_;
        }
    }

    void swap(basic_shared_value& other) noexcept { std::swap(cell_, other.cell_); }

    explicit operator bool() const noexcept { return cell_ != nullptr; }
    const T& operator*() const noexcept { return cell_->value; }

    // Requires: there is no other reference to the value.
    T& sole() noexcept { return cell_->value; }

private:
    struct cell {
        explicit cell(T&& from) : value(std::move(from)) {}
        explicit cell(const T& from) : value(from) {}
        T value;
        typename Platform::template atomic<std::size_t> references{1};
    };

    typename Platform::template var<cell*> cell_{nullptr};
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
