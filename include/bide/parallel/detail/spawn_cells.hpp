// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_SPAWN_CELLS_HPP
#define BIDE_PARALLEL_DETAIL_SPAWN_CELLS_HPP

// The memory of the functions that one frame of a scope spawns (spawn_frame.hpp): cells of one
// size. The first few lie in the frame itself, so a small scope allocates nothing. Others lie in
// blocks, each twice as large as the one before. A cell that is given back is taken again first,
// because its cache lines are there. Only the thread of the frame uses it.

#include <bide/core/config.hpp>

#include <cstddef>
#include <new>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

class spawn_cells {
public:
    static constexpr std::size_t cell_size = 96;
    static constexpr std::size_t cell_alignment = 16;

    spawn_cells() noexcept = default;
    spawn_cells(const spawn_cells&) = delete;
    spawn_cells& operator=(const spawn_cells&) = delete;
    ~spawn_cells() {
        while (block* const last = blocks_) {
            blocks_ = last->older;
            ::operator delete(last);
        }
    }

    // Throws: std::bad_alloc.
    void* take() {
        if (free_ != nullptr) {
            void* const mine = free_;
            free_ = *static_cast<void**>(mine);
            return mine;
        }
        if (next_ == end_) {
            grow();
        }
        return std::exchange(next_, next_ + cell_size);
    }

    void give_back(void* cell) noexcept {
        ::new (cell) void*(free_);
        free_ = cell;
    }

private:
    struct alignas(cell_alignment) block {
        block* older;
    };

    static constexpr std::size_t in_frame = 3;
    static constexpr std::size_t first_block = 16;
    static constexpr std::size_t largest_block = 1'024;

    BIDE_NOINLINE void grow() {
        void* const made = ::operator new(sizeof(block) + block_cells_ * cell_size);
        blocks_ = ::new (made) block{blocks_};
        next_ = static_cast<std::byte*>(made) + sizeof(block);
        end_ = next_ + block_cells_ * cell_size;
        block_cells_ = block_cells_ < largest_block ? 2 * block_cells_ : block_cells_;
    }

    void* free_ = nullptr; // each free cell begins with the address of the next one
    block* blocks_ = nullptr;
    std::size_t block_cells_ = first_block;
    std::byte* next_ = first_;
    std::byte* end_ = first_ + sizeof first_;
    alignas(cell_alignment) std::byte first_[in_frame * cell_size];
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
