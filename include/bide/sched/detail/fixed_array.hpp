// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_FIXED_ARRAY_HPP
#define BIDE_SCHED_DETAIL_FIXED_ARRAY_HPP

#include <bide/core/config.hpp>

#include <cstddef>
#include <memory>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// An array of objects that never move, with a fixed maximum size.
template <class T> class fixed_array {
public:
    // Throws: std::bad_alloc.
    explicit fixed_array(std::size_t most)
        : first_(std::allocator<T>().allocate(most)), most_(most) {}
    fixed_array(const fixed_array&) = delete;
    fixed_array& operator=(const fixed_array&) = delete;
    ~fixed_array() {
        shrink(0);
        std::allocator<T>().deallocate(first_, most_);
    }

    // Requires: there is room.
    template <class... Args> void add(Args&&... args) {
        std::construct_at(first_ + size_, std::forward<Args>(args)...);
        ++size_;
    }
    // Destroys the last objects, so that `size` objects are left.
    void shrink(std::size_t size) noexcept {
        while (size_ > size) {
            std::destroy_at(first_ + --size_);
        }
    }

    std::size_t size() const noexcept { return size_; }
    T* begin() noexcept { return first_; }
    T* end() noexcept { return first_ + size_; }
    const T* begin() const noexcept { return first_; }
    const T* end() const noexcept { return first_ + size_; }
    T& operator[](std::size_t at) noexcept { return first_[at]; }
    const T& operator[](std::size_t at) const noexcept { return first_[at]; }

private:
    T* const first_;
    const std::size_t most_;
    std::size_t size_ = 0;
};

}}} // namespace bide::BIDE_ABI::detail

#endif
