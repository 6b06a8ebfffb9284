// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_OPS_HPP
#define BIDE_MODEL_DETAIL_OPS_HPP

// The operations of the modelled machine, which model::platform calls. Most operations are steps of
// the calling thread. Before a step, the thread gives control to the checker. The checker decides
// which thread makes its step next, and what the step does. An access of plain data is not a step.

#include <bide/core/platform.hpp>

namespace bide { inline namespace BIDE_ABI { namespace model::detail::ops {

using bits = std::uint64_t;
using order = std::memory_order;

// The number of an object that was not constructed in an execution.
inline constexpr int outside = -1;

// The largest number of threads of a body.
inline constexpr int max_threads = 8;

// The place of a step in the source. Sites lie on the stacks of threads, and the checker compares
// stacks to find loops. So a site has no padding.
struct site {
    const char* file = nullptr;
    int line = 0;
    int is_given = 0; // 1: no memory order is written there, so no other one is tried
};

// Atomic objects. An object has a number from construction to destruction.
int make_atomic(bits initial);
void drop_atomic(int object) noexcept;
bits load(int object, order o, site s) noexcept;
void store(int object, bits value, order o, site s) noexcept;
// Reads a value, and writes next(value, operand). Returns the value that was read.
bits modify(int object, bits (*next)(bits, bits), bits operand, order o, site s) noexcept;
bool compare_exchange(int object, bits& expected, bits desired, order success, order failure,
                      bool weak, site s) noexcept;
void fence(order o, site s) noexcept;

// Plain objects. If one of two accesses is a write, happens-before must order them.
int make_plain();
void drop_plain(int object) noexcept;
void plain_read(int object) noexcept;
void plain_write(int object) noexcept;

// Checks an access to bytes, each of which is a plain object (model/watch.hpp).
void watch(const void* from, std::size_t size, bool writes) noexcept;
// Lets watch() know of the blocks that the body frees from now on. Returns true.
bool watch_frees() noexcept;

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

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

// The operators of plain data that read and write it as a T. `Self` converts to a T, and a T can be
// assigned to it.
template <class Self, class T> class var_operators {
public:
    /// Adds to the value. Counts as a read and a write.
    template <class U> Self& operator+=(const U& by) noexcept {
        return self() = static_cast<T>(static_cast<T>(self()) + by);
    }
    /// Subtracts from the value. Counts as a read and a write.
    template <class U> Self& operator-=(const U& by) noexcept {
        return self() = static_cast<T>(static_cast<T>(self()) - by);
    }
    /// Is += 1.
    Self& operator++() noexcept { return *this += 1; }
    /// Is -= 1.
    Self& operator--() noexcept { return *this -= 1; }
    /// Is += 1. Returns the previous value.
    T operator++(int) noexcept {
        const T before = self();
        self() = static_cast<T>(before + 1);
        return before;
    }
    /// Is -= 1. Returns the previous value.
    T operator--(int) noexcept {
        const T before = self();
        self() = static_cast<T>(before - 1);
        return before;
    }
    /// Reads the value, a pointer.
    T operator->() const noexcept
        requires std::is_pointer_v<T>
    {
        return static_cast<const Self&>(*this);
    }

private:
    Self& self() noexcept { return static_cast<Self&>(*this); }
};

}}} // namespace bide::BIDE_ABI::model::detail

#endif
