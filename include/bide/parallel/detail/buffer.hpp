// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_BUFFER_HPP
#define BIDE_PARALLEL_DETAIL_BUFFER_HPP

#include <bide/core/config.hpp>

#include <cstddef>
#include <limits>
#include <new>

namespace bide::inline BIDE_ABI {
namespace detail {

// Memory for n objects, which the owner constructs and destroys. Empty if there was no memory.
template <class T> class raw_buffer {
public:
    explicit raw_buffer(std::size_t elements) noexcept
        : memory_(static_cast<T*>(allocate(elements))) {}
    raw_buffer(const raw_buffer&) = delete;
    raw_buffer& operator=(const raw_buffer&) = delete;
    ~raw_buffer() {
        if constexpr (is_overaligned) {
            ::operator delete(memory_, std::align_val_t(alignof(T)));
        } else {
            ::operator delete(memory_);
        }
    }

    explicit operator bool() const noexcept { return memory_ != nullptr; }
    T* begin() const noexcept { return memory_; }

private:
    static constexpr bool is_overaligned = alignof(T) > __STDCPP_DEFAULT_NEW_ALIGNMENT__;

    static void* allocate(std::size_t n) noexcept {
        if (n > (std::numeric_limits<std::size_t>::max)() / sizeof(T)) {
            return nullptr;
        }
        const std::size_t bytes = n * sizeof(T);
        if constexpr (is_overaligned) {
            return ::operator new(bytes, std::align_val_t(alignof(T)), std::nothrow);
        } else {
            return ::operator new(bytes, std::nothrow);
        }
    }

    T* const memory_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
