// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_PLAIN_CALLS_HPP
#define BIDE_MODEL_DETAIL_PLAIN_CALLS_HPP

// The functions that code calls at each access to plain memory, if it was compiled with
// -fsanitize=thread.

#include <bide/model/detail/ops.hpp>

#include <cstring>

#define BIDE_MODEL_WATCH(at, size, writes)                                                         \
    ::bide::model::detail::ops::watch(at, size, writes, __builtin_return_address(0))

// The functions that compilers call. The compilers define the names.
extern "C" {

#define BIDE_MODEL_ACCESS(name, size, writes)                                                      \
    void __tsan_##name##size(void* at) { BIDE_MODEL_WATCH(at, size, writes); }
#define BIDE_MODEL_WATCHED(size)                                                                   \
    BIDE_MODEL_ACCESS(read, size, false)                                                           \
    BIDE_MODEL_ACCESS(write, size, true)                                                           \
    BIDE_MODEL_ACCESS(read_write, size, true)                                                      \
    BIDE_MODEL_ACCESS(unaligned_read, size, false)                                                 \
    BIDE_MODEL_ACCESS(unaligned_write, size, true)                                                 \
    BIDE_MODEL_ACCESS(unaligned_read_write, size, true)
BIDE_MODEL_WATCHED(1)
BIDE_MODEL_WATCHED(2)
BIDE_MODEL_WATCHED(4)
BIDE_MODEL_WATCHED(8)
BIDE_MODEL_WATCHED(16)
#undef BIDE_MODEL_WATCHED
#undef BIDE_MODEL_ACCESS

void __tsan_init() {}
void __tsan_func_entry(void* caller) { bide::model::detail::ops::enter_function(caller); }
void __tsan_func_exit() { bide::model::detail::ops::leave_function(); }
void __tsan_ignore_thread_begin() {}
void __tsan_ignore_thread_end() {}
void __tsan_vptr_read(void** at) { BIDE_MODEL_WATCH(at, sizeof *at, false); }
void __tsan_vptr_update(void** at, void* /*to*/) { BIDE_MODEL_WATCH(at, sizeof *at, true); }
void __tsan_read_range(void* at, unsigned long size) { BIDE_MODEL_WATCH(at, size, false); }
void __tsan_write_range(void* at, unsigned long size) { BIDE_MODEL_WATCH(at, size, true); }
void* __tsan_memcpy(void* to, const void* from, std::size_t size) {
    BIDE_MODEL_WATCH(from, size, false);
    BIDE_MODEL_WATCH(to, size, true);
    return std::memcpy(to, from, size);
}
void* __tsan_memmove(void* to, const void* from, std::size_t size) {
    BIDE_MODEL_WATCH(from, size, false);
    BIDE_MODEL_WATCH(to, size, true);
    return std::memmove(to, from, size);
}
void* __tsan_memset(void* to, int value, std::size_t size) {
    BIDE_MODEL_WATCH(to, size, true);
    return std::memset(to, value, size);
}

} // extern "C"

#undef BIDE_MODEL_WATCH

#endif
