// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_HEAP_HPP
#define BIDE_MODEL_IMPL_HEAP_HPP

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/model/detail/execution.hpp>
#include <bide/model/detail/heap.hpp>
#include <bide/model/detail/memory.hpp>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace bide { inline namespace BIDE_ABI { namespace model::detail::heap {
namespace {

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

region regions[max_threads];
std::size_t pieces = 0;
bool misused = false;
freed when_freed = nullptr;
thread_local int inside = -1;

constexpr std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

void* allocate(std::size_t size, std::size_t alignment) noexcept {
    region& r = regions[inside];
    if (r.begin == nullptr) {
        r.begin = static_cast<std::byte*>(std::aligned_alloc(4096, region_size));
    }
    const std::size_t at = round_up(r.taken + sizeof(header), alignment < 16 ? 16 : alignment);
    if (r.begin == nullptr || size > most_size) {
        return nullptr;
    }
    if (at + size > region_size) {
        execution::needed().fail_now(failure::too_large,
                                     "a thread of a body allocates more than 4 MiB by new");
    }
    r.taken = at + size;
    auto* const h = reinterpret_cast<header*>(r.begin + at) - 1;
    *h = {used, static_cast<std::uint32_t>(size)};
    ++pieces;
    return r.begin + at;
}

bool is_ours(const void* p) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(p);
    for (const region& r : regions) {
        const auto begin = reinterpret_cast<std::uintptr_t>(r.begin);
        if (begin != 0 && address - begin < region_size) {
            return true;
        }
    }
    return false;
}

void release(void* p) noexcept {
    auto* const h = static_cast<header*>(p) - 1;
    if (h->mark != used) {
        misused = true;
        return;
    }
    if (inside >= 0 && when_freed != nullptr) {
        when_freed(p, h->size);
    }
    h->mark = dropped;
    std::memset(p, 0xdd, h->size);
    --pieces;
}

void* take(std::size_t size, std::size_t alignment) {
    void* const p = inside >= 0       ? allocate(size, alignment)
                    : alignment <= 16 ? std::malloc(size == 0 ? 1 : size)
                                      : std::aligned_alloc(alignment, round_up(size, alignment));
    if (p == nullptr) {
        BIDE_THROW(std::bad_alloc());
    }
    return p;
}

void give(void* p) noexcept {
    if (p == nullptr) {
        return;
    }
    if (is_ours(p)) {
        release(p);
    } else {
        std::free(p);
    }
}

} // namespace

void enter(int thread) noexcept { inside = thread; }

leave::leave() noexcept : thread_(inside) { enter(-1); }

void on_freed(freed call) noexcept { when_freed = call; }

bool in_body() noexcept { return inside >= 0; }

void reset() noexcept {
    for (region& r : regions) {
        r.taken = 0;
    }
    pieces = 0;
    misused = false;
}

std::size_t live() noexcept { return pieces; }

bool broken() noexcept { return misused; }

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
