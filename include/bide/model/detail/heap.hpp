// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_HEAP_HPP
#define BIDE_MODEL_DETAIL_HEAP_HPP

// The heap for the `new` expressions of a body. Each thread of the body has its own region of
// memory. Each execution allocates from the beginning of these regions again. So an abandoned
// execution leaks nothing, and a thread that makes the same allocations gets the same addresses.
// Within one execution, freed memory is not used again.

#include <bide/core/config.hpp>
#include <cstddef>

namespace bide { inline namespace BIDE_ABI { namespace model::detail::heap {

// Lets `new` allocate from the region of the body's thread `thread`. If `thread` is -1, lets `new`
// allocate from the heap of the program.
void enter(int thread) noexcept;

// While an object of this class exists, `new` allocates from the heap of the program.
class leave {
public:
    leave() noexcept;
    leave(const leave&) = delete;
    leave& operator=(const leave&) = delete;
    ~leave() { enter(thread_); }

private:
    int thread_;
};

// Sets the function that is called for each block that the body frees. nullptr: none is called.
using freed = void (*)(const void* piece, std::size_t size) noexcept;
void on_freed(freed call) noexcept;

// Returns true if the running code belongs to the body, false if it belongs to the checker.
bool in_body() noexcept;

// Empties all regions, and resets live() and broken().
void reset() noexcept;

// Returns the number of blocks that were not freed.
std::size_t live() noexcept;

// Returns true if a block was freed twice, or an address was freed that is not a block.
bool broken() noexcept;

}}} // namespace bide::BIDE_ABI::model::detail::heap

#endif
