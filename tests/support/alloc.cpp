#include "support/alloc.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BIDE_TESTS_ALLOC_IS_TAKEN                                                                  \
    1 // clang's ThreadSanitizer brings its own, which no other replaces
#endif
#endif

namespace {

thread_local std::size_t here = 0;
thread_local bool none_left = false;
std::atomic<std::size_t> everywhere{0};

} // namespace

std::size_t test::allocations_here() noexcept { return here; }
std::size_t test::allocations() noexcept { return everywhere.load(std::memory_order_relaxed); }
test::out_of_memory::out_of_memory() noexcept { none_left = true; }
test::out_of_memory::~out_of_memory() { none_left = false; }
bool test::counts_allocations() noexcept {
#if defined(BIDE_TESTS_ALLOC_IS_TAKEN)
    return false;
#else
    return true;
#endif
}

#if !defined(BIDE_TESTS_ALLOC_IS_TAKEN)

namespace {

void* allocate(std::size_t size, std::size_t alignment) noexcept {
    if (none_left) {
        return nullptr;
    }
    ++here;
    everywhere.fetch_add(1, std::memory_order_relaxed);
    size = size == 0 ? 1 : size;
    if (alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) {
        return std::malloc(size);
    }
    return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
    void* const memory = allocate(size, alignment);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}

constexpr std::size_t usual = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

} // namespace

void* operator new(std::size_t size) { return allocate_or_throw(size, usual); }
void* operator new(std::size_t size, std::align_val_t alignment) {
    return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size) { return allocate_or_throw(size, usual); }
void* operator new[](std::size_t size, std::align_val_t alignment) {
    return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
    return allocate(size, usual);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
    return allocate(size, usual);
}
void* operator new(std::size_t size, std::align_val_t a, const std::nothrow_t&) noexcept {
    return allocate(size, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t size, std::align_val_t a, const std::nothrow_t&) noexcept {
    return allocate(size, static_cast<std::size_t>(a));
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
    std::free(memory);
}

#endif
