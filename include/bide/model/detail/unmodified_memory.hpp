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
#include <cstring>
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

// `Result` is the result of the system's function, which is called with the arguments `a`.
#define BIDE_MODEL_TEXT(Result, name, ...)                                                         \
    static constinit bide::model::detail::system_function<Result> system(#name);                   \
    const bool is_seen = bide::model::detail::ops::in_body();                                      \
    Result const result = system(__VA_ARGS__)
// Compilers have declarations of their own of these, with two versions in C++.
const void* bide_model_memchr(const void*, int, std::size_t) noexcept __asm__("memchr");
const char* bide_model_strchr(const char*, int) noexcept __asm__("strchr");

int memcmp(const void* one, const void* other, std::size_t size) noexcept {
    BIDE_MODEL_TEXT(int, memcmp, one, other, size);
    if (is_seen) {
        BIDE_MODEL_COPIED(one, size, false);
        BIDE_MODEL_COPIED(other, size, false);
    }
    return result;
}
const void* bide_model_memchr(const void* in, int value, std::size_t size) noexcept {
    BIDE_MODEL_TEXT(const void*, memchr, in, value, size);
    if (is_seen) {
        const auto* const begin = static_cast<const char*>(in);
        const auto* const found = static_cast<const char*>(result);
        BIDE_MODEL_COPIED(in, found == nullptr ? size : static_cast<std::size_t>(found - begin) + 1,
                          false);
    }
    return result;
}
std::size_t strlen(const char* text) noexcept {
    BIDE_MODEL_TEXT(std::size_t, strlen, text);
    if (is_seen) {
        BIDE_MODEL_COPIED(text, result + 1, false);
    }
    return result;
}
const char* bide_model_strchr(const char* text, int value) noexcept {
    BIDE_MODEL_TEXT(const char*, strchr, text, value);
    if (is_seen) {
        std::size_t read = 0;
        while (text + read != result && text[read] != '\0') {
            ++read;
        }
        BIDE_MODEL_COPIED(text, read + 1, false);
    }
    return result;
}
int strncmp(const char* one, const char* other, std::size_t size) noexcept {
    BIDE_MODEL_TEXT(int, strncmp, one, other, size);
    if (is_seen) {
        std::size_t read = 0;
        while (read != size && one[read] == other[read] && one[read] != '\0') {
            ++read;
        }
        read += read != size ? 1 : 0;
        BIDE_MODEL_COPIED(one, read, false);
        BIDE_MODEL_COPIED(other, read, false);
    }
    return result;
}
int strcmp(const char* one, const char* other) noexcept {
    BIDE_MODEL_TEXT(int, strcmp, one, other);
    if (is_seen) {
        std::size_t read = 0;
        while (one[read] == other[read] && one[read] != '\0') {
            ++read;
        }
        BIDE_MODEL_COPIED(one, read + 1, false);
        BIDE_MODEL_COPIED(other, read + 1, false);
    }
    return result;
}
char* strcpy(char* to, const char* from) noexcept {
    static constinit bide::model::detail::system_function<std::size_t> length("strlen");
    const std::size_t size = length(from) + 1;
    if (bide::model::detail::ops::in_body()) {
        BIDE_MODEL_COPIED(from, size, false);
        BIDE_MODEL_COPIED(to, size, true);
    }
    __memcpy_chk(to, from, size, size);
    return to;
}
#undef BIDE_MODEL_TEXT

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
