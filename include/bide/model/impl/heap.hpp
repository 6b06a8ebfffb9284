// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_HEAP_HPP
#define BIDE_MODEL_IMPL_HEAP_HPP

// The heap for the `new` expressions of a body. Each thread of the body has its own region of
// memory. Each execution allocates from the beginning of these regions again. So an abandoned
// execution leaks nothing, and a thread that makes the same allocations gets the same addresses.
// Within one execution, freed memory is not used again.

#include <bide/core/detail/fatal.hpp>
#include <bide/model/detail/ops.hpp>

#include <cstdlib>
#include <cstring>

namespace bide { inline namespace BIDE_ABI { namespace model::detail::heap {

constexpr std::size_t region_size = std::size_t{4} << 20;
constexpr std::size_t most_size = std::size_t{1} << 31; // larger blocks are refused
constexpr std::uint32_t used = 0x5eed'a11c;
constexpr std::uint32_t dropped = 0xdead'a11c;

struct header {
    std::uint32_t mark;
    std::uint32_t size;
};

struct region {
    std::byte* begin = nullptr;
    std::size_t taken = 0;
};

inline region regions[ops::max_threads];
inline std::size_t live = 0; // the number of blocks that were not freed
inline bool broken = false;  // a block was freed twice, or an address was freed that is not a block
// Called for each block that the body frees, unless it is nullptr.
inline void (*on_freed)(std::uintptr_t block, std::size_t size) noexcept = nullptr;
// The thread of the body whose code runs, and from whose region `new` allocates. If it is -1, the
// code of the checker runs, and `new` allocates from the heap of the program.
inline thread_local int inside = -1;

// While an object of this class exists, `inside` is -1.
class leave {
public:
    leave() noexcept { inside = -1; }
    leave(const leave&) = delete;
    leave& operator=(const leave&) = delete;
    ~leave() { inside = thread_; }

private:
    const int thread_ = inside;
};

// Ends the execution: a thread of the body needs too much memory.
[[noreturn]] void fail_too_large();

// Frees all blocks.
inline void reset() noexcept {
    for (region& r : regions) {
        r.taken = 0;
    }
    live = 0;
    broken = false;
}

constexpr std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

inline void* allocate(std::size_t size, std::size_t alignment) noexcept {
    region& r = regions[inside];
    if (r.begin == nullptr) {
        r.begin = static_cast<std::byte*>(std::aligned_alloc(4096, region_size));
    }
    const std::size_t at = round_up(r.taken + sizeof(header), alignment < 16 ? 16 : alignment);
    if (r.begin == nullptr || size > most_size) {
        return nullptr;
    }
    if (at + size > region_size) {
        fail_too_large();
    }
    r.taken = at + size;
    auto* const h = reinterpret_cast<header*>(r.begin + at) - 1;
    *h = {used, static_cast<std::uint32_t>(size)};
    ++live;
    return r.begin + at;
}

// Neither take() nor give() is inlined: a compiler that inlines both into one function may assume
// that no header precedes a block.
BIDE_NOINLINE inline void* take(std::size_t size, std::size_t alignment) {
    void* const p = inside >= 0       ? allocate(size, alignment)
                    : alignment <= 16 ? std::malloc(size == 0 ? 1 : size)
                                      : std::aligned_alloc(alignment, round_up(size, alignment));
    if (p == nullptr) {
        BIDE_THROW(std::bad_alloc());
    }
    return p;
}

BIDE_NOINLINE inline void give(void* p) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(p);
    bool is_ours = false;
    for (const region& r : regions) {
        const auto begin = reinterpret_cast<std::uintptr_t>(r.begin);
        is_ours = is_ours || (begin != 0 && address - begin < region_size);
    }
    if (!is_ours) {
        std::free(p);
        return;
    }
    auto* const h = static_cast<header*>(p) - 1;
    if (h->mark != used) {
        broken = true;
        return;
    }
    if (inside >= 0 && on_freed != nullptr) {
        on_freed(address, h->size);
    }
    h->mark = dropped;
    std::memset(p, 0xdd, h->size);
    --live;
}

}}} // namespace bide::BIDE_ABI::model::detail::heap

// The array and nothrow forms call these functions.
void* operator new(std::size_t size) { return bide::model::detail::heap::take(size, 16); }
void* operator new(std::size_t size, std::align_val_t alignment) {
    return bide::model::detail::heap::take(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* p) noexcept { bide::model::detail::heap::give(p); }
void operator delete(void* p, std::size_t) noexcept { bide::model::detail::heap::give(p); }
void operator delete(void* p, std::align_val_t) noexcept { bide::model::detail::heap::give(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
    bide::model::detail::heap::give(p);
}

#endif
