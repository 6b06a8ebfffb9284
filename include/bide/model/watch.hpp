// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_WATCH_HPP
#define BIDE_MODEL_WATCH_HPP

/// \file
/// Makes the checker see accesses to plain memory that is not a model::var. One file of the program
/// includes this header. The bodies are compiled with -fsanitize=thread, and the program is linked
/// without that option. So each access to memory in a body calls a function of this header, instead
/// of one of ThreadSanitizer. The file that includes this header is compiled without that option.
/// bide_add_model(... WATCH) sets these options. The checker does not see accesses by functions
/// that were compiled without -fsanitize=thread.

#include <bide/model/detail/plain_calls.hpp>

namespace bide { inline namespace BIDE_ABI { namespace model::detail { namespace {

[[maybe_unused]] const bool is_watched = ops::watch_frees();

}}}} // namespace bide::BIDE_ABI::model::detail

/// \cond
extern "C" {

// A body calls these functions for real atomics, such as std::atomic, and not for the atomics of
// the checker. They operate on the atomic and check nothing.
void __tsan_atomic_thread_fence(int /*order*/) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int /*order*/) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

#define BIDE_MODEL_CHANGED(bits, name)                                                             \
    std::uint##bits##_t __tsan_atomic##bits##_##name(volatile std::uint##bits##_t* at,             \
                                                     std::uint##bits##_t by, int) {                \
        return __atomic_##name(at, by, __ATOMIC_SEQ_CST);                                          \
    }
#define BIDE_MODEL_COMPARED(bits, name)                                                            \
    int __tsan_atomic##bits##_compare_exchange_##name(volatile std::uint##bits##_t* at,            \
                                                      std::uint##bits##_t* expected,               \
                                                      std::uint##bits##_t desired, int, int) {     \
        return __atomic_compare_exchange_n(at, expected, desired, false, __ATOMIC_SEQ_CST,         \
                                           __ATOMIC_SEQ_CST);                                      \
    }
#define BIDE_MODEL_ATOMICS(bits)                                                                   \
    std::uint##bits##_t __tsan_atomic##bits##_load(const volatile std::uint##bits##_t* at, int) {  \
        return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                              \
    }                                                                                              \
    void __tsan_atomic##bits##_store(volatile std::uint##bits##_t* at, std::uint##bits##_t value,  \
                                     int) {                                                        \
        __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                             \
    }                                                                                              \
    std::uint##bits##_t __tsan_atomic##bits##_exchange(volatile std::uint##bits##_t* at,           \
                                                       std::uint##bits##_t value, int) {           \
        return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                   \
    }                                                                                              \
    BIDE_MODEL_CHANGED(bits, fetch_add)                                                            \
    BIDE_MODEL_CHANGED(bits, fetch_sub)                                                            \
    BIDE_MODEL_CHANGED(bits, fetch_and)                                                            \
    BIDE_MODEL_CHANGED(bits, fetch_or)                                                             \
    BIDE_MODEL_CHANGED(bits, fetch_xor)                                                            \
    BIDE_MODEL_CHANGED(bits, fetch_nand)                                                           \
    BIDE_MODEL_COMPARED(bits, strong)                                                              \
    BIDE_MODEL_COMPARED(bits, weak)
BIDE_MODEL_ATOMICS(8)
BIDE_MODEL_ATOMICS(16)
BIDE_MODEL_ATOMICS(32)
BIDE_MODEL_ATOMICS(64)
#undef BIDE_MODEL_ATOMICS
#undef BIDE_MODEL_COMPARED
#undef BIDE_MODEL_CHANGED

} // extern "C"
/// \endcond

#endif
