#include "support/alloc.hpp"

#include <atomic>
#include <cstddef>
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
std::atomic<std::ptrdiff_t> live{0};

// A test::failing_allocations: `left` allocations succeed yet.
enum class counting { off, one_thread, all_threads };
std::atomic<counting> counted_threads{counting::off};
thread_local bool is_counted = false;
std::atomic<std::ptrdiff_t> left{0};
std::atomic<bool> fails_once{false};

// Whether this allocation is one that fails.
bool fails_now() noexcept {
    const counting threads = counted_threads.load(std::memory_order_acquire);
    if (none_left) {
        return true;
    }
    if (threads == counting::off || (threads == counting::one_thread && !is_counted)) {
        return false;
    }
    const std::ptrdiff_t before = left.fetch_sub(1);
    return fails_once.load() ? before == 0 : before <= 0;
}

} // namespace

std::size_t test::allocations_here() noexcept { return here; }
std::size_t test::allocations() noexcept { return everywhere.load(std::memory_order_relaxed); }
test::out_of_memory::out_of_memory() noexcept { none_left = true; }
test::out_of_memory::~out_of_memory() { none_left = false; }
std::size_t test::live_allocations() noexcept {
    return static_cast<std::size_t>(live.load(std::memory_order_relaxed));
}
test::failing_allocations::failing_allocations(std::size_t n, shortage how,
                                               bool of_all_threads) noexcept {
    left = static_cast<std::ptrdiff_t>(n);
    fails_once = how == shortage::single;
    is_counted = true;
    counted_threads = of_all_threads ? counting::all_threads : counting::one_thread;
}
test::failing_allocations::~failing_allocations() {
    counted_threads = counting::off;
    is_counted = false;
}
bool test::fails_as_allocation() noexcept { return fails_now(); }
bool test::failing_allocations::has_failed() const noexcept { return left.load() < 0; }
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
    if (fails_now()) {
        return nullptr;
    }
    ++here;
    everywhere.fetch_add(1, std::memory_order_relaxed);
    live.fetch_add(1, std::memory_order_relaxed);
    size = size == 0 ? 1 : size;
#if defined(_WIN32)
    return ::_aligned_malloc(size, alignment);
#else
    if (alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) {
        return std::malloc(size);
    }
    return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
#endif
}

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
    void* const memory = allocate(size, alignment);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}

void release(void* memory) noexcept {
    if (memory != nullptr) {
        live.fetch_sub(1, std::memory_order_relaxed);
#if defined(_WIN32)
        ::_aligned_free(memory);
#else
        std::free(memory);
#endif
    }
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

void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { release(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
    release(memory);
}
void operator delete[](void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
    release(memory);
}

#endif
