// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_HEAP_HPP
#define BIDE_MODEL_DETAIL_HEAP_HPP

// Memory that a model allocates by `new`. Each thread of the model has its own region, which is
// used from its beginning in every execution. So an execution that is abandoned leaks nothing, and
// a thread that does the same gets the same addresses. No memory is given out twice in an
// execution.

#include <bide/core/config.hpp>
#include <cstddef>

namespace bide::inline BIDE_ABI::model::detail::heap {

// From here on `new` on this thread is that thread's of the model; -1: the program's own.
void enter(int thread) noexcept;

// While one lives, `new` is the program's own.
class leave {
public:
    leave() noexcept;
    leave(const leave&) = delete;
    leave& operator=(const leave&) = delete;
    ~leave() { enter(thread_); }

private:
    int thread_;
};

// Is called with each piece of memory that the model frees. Null: nothing is.
using freed = void (*)(const void* piece, std::size_t size) noexcept;
void on_freed(freed call) noexcept;

// Returns whether the code that runs is the body's, not the checker's.
bool in_body() noexcept;

// Forgets everything.
void reset() noexcept;

// Pieces that were not freed.
std::size_t live() noexcept;

// A piece was freed twice, or no piece: cleared by reset().
bool broken() noexcept;

} // namespace bide::inline BIDE_ABI::model::detail::heap

#endif
