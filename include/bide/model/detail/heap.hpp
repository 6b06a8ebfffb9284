// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_HEAP_HPP
#define BIDE_MODEL_DETAIL_HEAP_HPP

// Memory that a model allocates by `new`. Each thread of the model has its own region, which is
// used from its beginning in every execution. So an execution that is abandoned leaks nothing, and
// a thread that does the same gets the same addresses. No memory is given out twice in an
// execution.

#include <bide/core/config.hpp>
#include <cstddef>

namespace bide { inline namespace BIDE_ABI { namespace model::detail::heap {

// From now on, `new` allocates from the region of that thread of the model. If `thread` is -1,
// `new` allocates from the heap of the program.
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
