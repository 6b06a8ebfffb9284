// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_UNMODIFIED_MEMORY_HPP
#define BIDE_MODEL_DETAIL_UNMODIFIED_MEMORY_HPP

// malloc() and its like, and the functions that copy memory: see model/unmodified.hpp. In a body,
// malloc() is the heap of the body, as `new` is.

#include <bide/model/detail/plain_calls.hpp>
#include <bide/model/detail/unmodified_calls.hpp>
#include <bide/model/impl/heap.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <malloc.h>
#include <unistd.h>

#define BIDE_MODEL_COPIED(at, size, writes)                                                        \
    ::bide::model::detail::ops::watch(at, size, writes, __builtin_return_address(0))

extern "C" {

// The functions of glibc.
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);
void* __memcpy_chk(void*, const void*, std::size_t, std::size_t);
void* __memmove_chk(void*, const void*, std::size_t, std::size_t);
void* __memset_chk(void*, int, std::size_t, std::size_t);

void* malloc(std::size_t size) noexcept {
    namespace detail = bide::model::detail;
    return detail::ops::in_body() ? detail::heap::allocate(size, 16) : __libc_malloc(size);
}
void* memalign(std::size_t alignment, std::size_t size) noexcept {
    namespace detail = bide::model::detail;
    return detail::ops::in_body() ? detail::heap::allocate(size, alignment)
                                  : __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
    return memalign(alignment, size);
}
int posix_memalign(void** block, std::size_t alignment, std::size_t size) noexcept {
    void* const made = memalign(alignment, size);
    if (made == nullptr) {
        return ENOMEM;
    }
    *block = made;
    return 0;
}
void* calloc(std::size_t count, std::size_t size) noexcept {
    namespace detail = bide::model::detail;
    if (!detail::ops::in_body()) {
        return __libc_calloc(count, size);
    }
    if (size != 0 && count > detail::heap::most_size / size) {
        return nullptr;
    }
    void* const made = detail::heap::allocate(count * size, 16);
    return made == nullptr ? made : __memset_chk(made, 0, count * size, count * size);
}
void free(void* block) noexcept {
    namespace heap = bide::model::detail::heap;
    if (block != nullptr && (heap::is_ours(block) || bide::model::detail::ops::in_body())) {
        heap::give(block, __builtin_return_address(0));
    } else {
        __libc_free(block);
    }
}
void* realloc(void* block, std::size_t size) noexcept {
    namespace detail = bide::model::detail;
    if (!detail::ops::in_body()) {
        return __libc_realloc(block, size);
    }
    void* const made = size == 0 && block != nullptr ? nullptr : detail::heap::allocate(size, 16);
    if (block != nullptr && (made != nullptr || size == 0)) {
        const std::size_t old = detail::heap::is_ours(block) ? detail::heap::size_of(block)
                                                             : ::malloc_usable_size(block);
        if (made != nullptr) {
            const std::size_t copied = std::min(old, size);
            BIDE_MODEL_COPIED(block, copied, false);
            __memcpy_chk(made, block, copied, copied);
        }
        free(block);
    }
    return made;
}

void* memcpy(void* to, const void* from, std::size_t size) noexcept {
    if (bide::model::detail::ops::in_body()) {
        BIDE_MODEL_COPIED(from, size, false);
        BIDE_MODEL_COPIED(to, size, true);
    }
    return __memcpy_chk(to, from, size, size);
}
void* memmove(void* to, const void* from, std::size_t size) noexcept {
    if (bide::model::detail::ops::in_body()) {
        BIDE_MODEL_COPIED(from, size, false);
        BIDE_MODEL_COPIED(to, size, true);
    }
    return __memmove_chk(to, from, size, size);
}
void* memset(void* to, int value, std::size_t size) noexcept {
    if (bide::model::detail::ops::in_body()) {
        BIDE_MODEL_COPIED(to, size, true);
    }
    return __memset_chk(to, value, size, size);
}

} // extern "C"

#undef BIDE_MODEL_COPIED

namespace bide { inline namespace BIDE_ABI { namespace model::detail { namespace {

// stdio allocates the buffer of a stream at its first use. That must not be in a body.
[[maybe_unused]] const bool has_buffers = [] {
    static char buffer[BUFSIZ];
    std::setvbuf(stdout, buffer, ::isatty(1) != 0 ? _IOLBF : _IOFBF, sizeof buffer);
    heap::restores = true;
    return ops::watch_frees();
}();

}}}} // namespace bide::BIDE_ABI::model::detail

#endif
