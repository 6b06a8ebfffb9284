// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_OPS_HPP
#define BIDE_MODEL_DETAIL_OPS_HPP

// The operations of the modelled machine, which model::platform calls. Most operations are steps of
// the calling thread: the thread gives control to the checker, and the checker decides which thread
// makes its step next, and what that step does. An access of plain data is not a step.

#include <atomic>
#include <bide/core/config.hpp>
#include <cstdint>

namespace bide { inline namespace BIDE_ABI { namespace model::detail::ops {

using bits = std::uint64_t;
using order = std::memory_order;

// The number of an object that was not constructed in an execution.
inline constexpr int outside = -1;

// The place of a step in the source.
struct site {
    const char* file = nullptr;
    int line = 0;
    bool is_given =
        false; // the order is not written in that line: no weaker or stronger order is tried
};

enum class rmw { exchange, add, sub, add_real, bit_and, bit_or, bit_xor };

// Atomic objects. An object has a number from construction to destruction.
int make_atomic(bits initial);
void drop_atomic(int object) noexcept;
bits load(int object, order o, site s) noexcept;
void store(int object, bits value, order o, site s) noexcept;
// `width` is the size of the object in bytes. Arithmetic wraps around at that size.
bits modify(int object, rmw what, bits operand, unsigned width, order o, site s) noexcept;
bool compare_exchange(int object, bits& expected, bits desired, order success, order failure,
                      bool weak, site s) noexcept;
void fence(order o, site s) noexcept;

// Plain objects. If one of two accesses is a write, happens-before must order them.
int make_plain();
void drop_plain(int object) noexcept;
void plain_read(int object) noexcept;
void plain_write(int object) noexcept;

// Returns false if the time-out has ended the wait. `width` is the number of compared bytes.
bool futex_wait(int object, const void* address, bits expected, unsigned width, std::int64_t until,
                site s) noexcept;
void futex_wake(const void* address, int count, site s) noexcept;

void pause() noexcept;
std::int64_t now() noexcept;

// Returns the calling thread's object for `key`. In each execution, the first call by a thread
// makes the object by calling make().
void* local(const void* key, void* (*make)()) noexcept;

int this_thread() noexcept;

void* service() noexcept;
void start_daemon(void (*body)(void*) noexcept, void* argument) noexcept;

// Sets the name of the object in traces.
void name(int object, const char* text) noexcept;

}}} // namespace bide::BIDE_ABI::model::detail::ops

#endif
