// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_HEAP_HPP
#define BIDE_MODEL_IMPL_HEAP_HPP

// The heap for the `new` expressions of a body. Each thread of the body has its own region of
// memory. Each execution allocates from the beginning of these regions again. So an abandoned
// execution leaks nothing, and a thread that makes the same allocations gets the same addresses.
// Within one execution, freed memory is used again only if options::reused_addresses says so.

#include <bide/core/detail/fatal.hpp>
#include <bide/model/detail/ops.hpp>

#include <cstdlib>
#include <cstring>
#include <vector>

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

// A block that a thread of the body has freed. `code` is the return address of the call.
struct freed_block {
    std::byte* begin = nullptr;
    std::size_t size = 0;
    int thread = 0;
    const void* code = nullptr;
};

inline region regions[ops::max_threads];
inline std::vector<freed_block> freed_blocks; // of this execution
inline std::size_t live = 0;                  // the number of blocks that were not freed
inline bool broken = false; // a block was freed twice, or an address was freed that is not a block
// If true, memory from before the body has its old contents again after each execution. So a body
// does not really free it.
inline bool restores = false;
// The size of a block that was allocated before the body: its first byte stands for all.
constexpr std::size_t before_body = 1;
// Called for each block that the body frees, unless it is nullptr. `code` is the return address of
// the call that frees.
inline void (*on_freed)(std::uintptr_t block, std::size_t size,
                        const void* code) noexcept = nullptr;
// The thread of the body whose code runs, and from whose region `new` allocates. If it is -1, the
// code of the checker runs, and `new` allocates from the heap of the program.
inline thread_local int inside = -1;

// While an object of this class exists, `inside` is -1.
class leave {
public:
    leave() noexcept {
        inside = -1;
        fence();
    }
    leave(const leave&) = delete;
    leave& operator=(const leave&) = delete;
    ~leave() {
        fence();
        inside = thread_;
    }

private:
    // Compilers assume that functions such as memset() and malloc() do not read `inside`.
    static void fence() noexcept { __asm__ __volatile__("" : : : "memory"); }

    const int thread_ = inside;
};

// False: blocks that are allocated now are new, and blocks that are freed now are not used again.
// That is so for the checker's own blocks on the heap of the body.
inline bool may_reuse = true;

// Returns a block that a thread of the body has freed, if it is used again; otherwise nullptr.
void* reused(std::size_t size, std::size_t alignment) noexcept;
// Lets `new` use the block again.
void offer(void* block, std::size_t size, const void* code) noexcept;

// Ends the execution: a thread of the body needs too much memory.
[[noreturn]] void fail_too_large();

// Frees all blocks.
inline void reset() noexcept {
    for (region& r : regions) {
        r.taken = 0;
    }
    live = 0;
    broken = false;
    may_reuse = true;
    freed_blocks.clear();
}

// Returns the freed block that contains the address; nullptr if there is none.
inline const freed_block* freed_block_of(const void* at) noexcept {
    for (auto i = freed_blocks.rbegin(); i != freed_blocks.rend(); ++i) {
        if (reinterpret_cast<std::uintptr_t>(at) - reinterpret_cast<std::uintptr_t>(i->begin) <
            i->size) {
            return &*i;
        }
    }
    return nullptr;
}

constexpr std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

inline void* allocate(std::size_t size, std::size_t alignment) noexcept {
    if (void* const again = reused(size, alignment); again != nullptr) {
        return again;
    }
    region& r = regions[inside];
    if (r.begin == nullptr) {
        const leave guard; // malloc() may be that of the body (model/unmodified.hpp)
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

// Returns true if a thread of a body has allocated the block.
inline bool is_ours(const void* p) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(p);
    for (const region& r : regions) {
        const auto begin = reinterpret_cast<std::uintptr_t>(r.begin);
        if (begin != 0 && address - begin < region_size) {
            return true;
        }
    }
    return false;
}

// Returns the size of a block that a thread of a body has allocated.
inline std::size_t size_of(const void* p) noexcept {
    return (static_cast<const header*>(p) - 1)->size;
}

inline void tell_freed(void* p, std::size_t size, const void* code) noexcept {
    if (inside >= 0) {
        const int thread = inside;
        const leave guard;
        freed_blocks.push_back({static_cast<std::byte*>(p), size, thread, code});
    }
    if (inside >= 0 && on_freed != nullptr && p != nullptr) {
        on_freed(reinterpret_cast<std::uintptr_t>(p), size, code);
    }
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

BIDE_NOINLINE inline void give_back(void* p, const void* code) noexcept {
    if (!is_ours(p)) {
        if (restores && inside >= 0) {
            tell_freed(p, before_body, code);
        } else {
            std::free(p);
        }
        return;
    }
    auto* const h = static_cast<header*>(p) - 1;
    if (h->mark != used) {
        broken = true;
        return;
    }
    tell_freed(p, h->size, code);
    h->mark = dropped;
    const leave guard; // memset() may be that of the body (model/unmodified.hpp)
    std::memset(p, 0xdd, h->size);
    --live;
}

BIDE_NOINLINE inline void give(void* p, const void* code) noexcept {
    const std::size_t size = p != nullptr && is_ours(p) ? size_of(p) : 0;
    give_back(p, code);
    if (size != 0 && !broken) {
        offer(p, size, code);
    }
}

}}} // namespace bide::BIDE_ABI::model::detail::heap

#endif
