// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_WATCH_HPP
#define BIDE_MODEL_WATCH_HPP

/// \file
/// Makes the checker see accesses to plain memory that is not a model::var. One file of the program
/// includes this header. The bodies are compiled with -fsanitize=thread, and the program is linked
/// without that option. So each access to memory in a body calls a function of this header, instead
/// of one of ThreadSanitizer.
/// bide_add_model(... WATCH) sets these options. The file that includes this header is compiled
/// without -fsanitize=thread. The checker does not see accesses by functions that were compiled
/// without this option.

#include <bide/core/config.hpp>
#include <bide/model/detail/execution.hpp>
#include <bide/model/detail/heap.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace model::detail { namespace {

// The bytes that were accessed in an execution. Each byte is modelled as a plain object. The heap
// does not use freed memory again in the same execution.
class watched_memory {
public:
    void access(execution& x, std::uintptr_t byte, bool writes) {
        begin(x);
        const auto [at, fresh] = objects_.try_emplace(byte, 0);
        if (fresh) {
            at->second = of_freed(byte);
            at->second = at->second >= 0 ? at->second : x.mem().make_watched();
        }
        if (!x.mem().is_plain(at->second)) {
            writes ? x.mem().write_plain(at->second, x.self().knows)
                   : x.mem().read_plain(at->second,
                                        x.self().knows); // so that found() has the thread
            x.fail_now(failure::lifetime, std::string(writes ? "write to" : "read of") +
                                              " memory that was freed by T" +
                                              std::to_string(x.mem().found().first.thread));
        }
        std::string wrong = writes ? x.mem().write_plain(at->second, x.self().knows)
                                   : x.mem().read_plain(at->second, x.self().knows);
        if (!wrong.empty()) {
            x.fail_now(failure::race, std::move(wrong));
        }
    }

    void free(execution& x, std::uintptr_t from, std::size_t size) {
        begin(x);
        const int rest = x.mem().make_watched(); // stands for the bytes that were never accessed
        x.mem().drop_plain(rest, x.self().knows);
        freed_[from] = {from + size, rest};
        for (std::size_t i = 0; i < size; ++i) {
            const auto at = objects_.find(from + i);
            if (at == objects_.end()) {
                continue;
            }
            if (std::string wrong = x.mem().drop_plain(at->second, x.self().knows);
                !wrong.empty()) {
                x.fail_now(failure::lifetime, "memory is freed; " + wrong);
            }
        }
    }

private:
    struct piece {
        std::uintptr_t end = 0;
        int object = outside;
    };

    void begin(const execution& x) {
        if (number_ != x.number) {
            number_ = x.number;
            objects_.clear();
            freed_.clear();
        }
    }
    int of_freed(std::uintptr_t byte) const {
        const auto next = freed_.upper_bound(byte);
        if (next == freed_.begin()) {
            return outside;
        }
        const piece& before = std::prev(next)->second;
        return byte < before.end ? before.object : outside;
    }

    std::uint64_t number_ = 0;
    std::unordered_map<std::uintptr_t, int> objects_;
    std::map<std::uintptr_t, piece> freed_;
};

watched_memory& watched() {
    static watched_memory all;
    return all;
}

void watch(const void* from, std::size_t size, bool writes) {
    execution* const x = execution::current();
    // Accesses of the checker itself are not watched. The checker and the body share instances of
    // templates of the standard library. The linker may choose the instances that were compiled
    // with -fsanitize=thread, so the checker can call this function, too.
    if (x == nullptr || !heap::in_body()) {
        return;
    }
    const heap::leave guard;
    if (writes && !x->self().stack.holds(from)) {
        x->self().looks.clear(); // a loop that writes memory does more than wait
    }
    const auto first = reinterpret_cast<std::uintptr_t>(from);
    for (std::size_t i = 0; i < size; ++i) {
        watched().access(*x, first + i, writes);
    }
}

void watch_freed(const void* piece, std::size_t size) noexcept {
    if (execution* const x = execution::current(); x != nullptr) {
        const heap::leave guard;
        watched().free(*x, reinterpret_cast<std::uintptr_t>(piece), size);
    }
}

[[maybe_unused]] const bool is_told = (heap::on_freed(&watch_freed), true);

}}}} // namespace bide::BIDE_ABI::model::detail

/// \cond
// The functions that compilers call. The compilers define the names.
extern "C" {

#define BIDE_MODEL_WATCHED(size)                                                                   \
    void __tsan_read##size(void* at) { bide::model::detail::watch(at, size, false); }              \
    void __tsan_write##size(void* at) { bide::model::detail::watch(at, size, true); }              \
    void __tsan_read_write##size(void* at) { bide::model::detail::watch(at, size, true); }         \
    void __tsan_unaligned_read##size(void* at) { bide::model::detail::watch(at, size, false); }    \
    void __tsan_unaligned_write##size(void* at) { bide::model::detail::watch(at, size, true); }    \
    void __tsan_unaligned_read_write##size(void* at) { bide::model::detail::watch(at, size, true); }
BIDE_MODEL_WATCHED(1)
BIDE_MODEL_WATCHED(2)
BIDE_MODEL_WATCHED(4)
BIDE_MODEL_WATCHED(8)
BIDE_MODEL_WATCHED(16)
#undef BIDE_MODEL_WATCHED

void __tsan_init() {}
void __tsan_func_entry(void* /*caller*/) {}
void __tsan_func_exit() {}
void __tsan_ignore_thread_begin() {}
void __tsan_ignore_thread_end() {}
void __tsan_vptr_read(void** at) { bide::model::detail::watch(at, sizeof *at, false); }
void __tsan_vptr_update(void** at, void* /*to*/) {
    bide::model::detail::watch(at, sizeof *at, true);
}
void __tsan_read_range(void* at, unsigned long size) {
    bide::model::detail::watch(at, size, false);
}
void __tsan_write_range(void* at, unsigned long size) {
    bide::model::detail::watch(at, size, true);
}
void* __tsan_memcpy(void* to, const void* from, std::size_t size) {
    bide::model::detail::watch(from, size, false);
    bide::model::detail::watch(to, size, true);
    return std::memcpy(to, from, size);
}
void* __tsan_memmove(void* to, const void* from, std::size_t size) {
    bide::model::detail::watch(from, size, false);
    bide::model::detail::watch(to, size, true);
    return std::memmove(to, from, size);
}
void* __tsan_memset(void* to, int value, std::size_t size) {
    bide::model::detail::watch(to, size, true);
    return std::memset(to, value, size);
}

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
