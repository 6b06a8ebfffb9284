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
// `at` is the address of the object, to find out which thread has freed its memory.
void plain_read(int object, const void* at) noexcept;
void plain_write(int object, const void* at) noexcept;

// Checks an access to bytes, each of which is a plain object (model/watch.hpp). `code` is the
// return address of the call that reports the access.
void watch(const void* from, std::size_t size, bool writes, const void* code) noexcept;
// The body enters a function, which returns to `code`, or leaves it.
void enter_function(const void* code) noexcept;
void leave_function() noexcept;
// Lets watch() know of the blocks that the body frees from now on. Returns true.
bool watch_frees() noexcept;

// Returns false if the time-out has ended the wait. `width` is the number of compared bytes.
bool futex_wait(int object, const void* address, bits expected, unsigned width, std::int64_t until,
                site s) noexcept;
void futex_wake(const void* address, int count, site s) noexcept;

void pause() noexcept;
// As pause(), for a thread that waits for the lock `object`. `what` is the kind of the lock.
void wait_for_lock(int object, const char* what, site s) noexcept;
std::int64_t now() noexcept;

// Returns the calling thread's object for `key`. In each execution, the first call by a thread
// makes the object by calling make().
void* local(const void* key, void* (*make)()) noexcept;

int this_thread() noexcept;

// ---- Code that was not written for the checker (model/unmodified.hpp)

// Returns true if the caller is a thread of a body.
bool in_body() noexcept;
// Returns the place of the instruction before the return address `code`.
site place_of(const void* code) noexcept;
// Returns the object of a real atomic, and of another object at this address that threads use, such
// as a mutex. If it has none, makes one. The initial value is that of the memory, or 0 if
// `has_value` is false.
int object_at(const volatile void* at, unsigned size, bool has_value, site s) noexcept;
// Checks the access to the atomic against plain accesses to its memory. If it was a write, updates
// the memory. Called after the step.
void accessed(const volatile void* at, unsigned size, int object, bool writes, site s) noexcept;
// The number that stands for a value of 16 bytes, and the value.
bits number_of(const void* value) noexcept;
void value_of(bits number, void* value) noexcept;

// Starts a thread that calls start(run, argument). Returns its number.
int start_thread(void (*start)(void* (*run)(void*), void*), void* (*run)(void*), void* argument);
void join_thread(int thread) noexcept;
// The thread is not joined, and may sleep for ever.
void detach_thread(int thread) noexcept;
// Joins the queue of `address`, calls between(argument), and sleeps. Returns false if the time-out
// has ended the sleep.
bool sleep_on(const void* address, std::int64_t until, void (*between)(void*), void* argument,
              site s) noexcept;
// Lets time pass for this thread.
void advance(std::int64_t ns) noexcept;
// Returns true if the time-out of a wait ends it now: a choice.
bool times_out(std::int64_t until, site s) noexcept;
// Returns the object of the word of a futex. The word may be the first half of an atomic.
int futex_word_at(const void* at, site s) noexcept;
// Ends the execution: the body does what the system does not allow.
[[noreturn]] void misuse(const char* what, site s) noexcept;
// Ends the execution: `what` is not modelled.
[[noreturn]] void refuse(const char* what, site s) noexcept;
// Memory in these ranges is that of the running thread: it is not watched.
struct memory_range {
    std::uintptr_t from = 0;
    std::size_t size = 0;
};
void set_thread_local(const memory_range* all, std::size_t count) noexcept;

// True: a compiler has made no difference between weak and strong compare-exchanges, so none has
// failed for no reason.
inline bool has_no_weak_exchange = false;

// What the checker calls, if a program has such code.
struct callbacks {
    void (*thread_begins)(int thread) noexcept;
    void (*thread_ends)(); // called by the thread
    void (*switches)(int thread, bool enters) noexcept;
    void (*execution_ends)() noexcept;
    // The thread frees memory. `code` is the return address of the call.
    void (*frees)(const void* from, std::size_t size, const void* code) noexcept;
};
inline const callbacks* unmodified = nullptr;

void* service() noexcept;
void start_daemon(void (*body)(void*) noexcept, void* argument) noexcept;

// Sets the name of the object in traces.
void name(int object, const char* text) noexcept;

}}} // namespace bide::BIDE_ABI::model::detail::ops

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

// Operators that read and write plain data as a T. `Self` converts to a T, and a T can be assigned
// to it.
template <class Self, class T> class var_operators {
public:
    /// Adds to the value. Counts as a read and a write.
    template <class U> BIDE_INLINE Self& operator+=(const U& by) noexcept {
        return self() = static_cast<T>(static_cast<T>(self()) + by);
    }
    /// Subtracts from the value. Counts as a read and a write.
    template <class U> BIDE_INLINE Self& operator-=(const U& by) noexcept {
        return self() = static_cast<T>(static_cast<T>(self()) - by);
    }
    /// Is += 1.
    BIDE_INLINE Self& operator++() noexcept { return *this += 1; }
    /// Is -= 1.
    BIDE_INLINE Self& operator--() noexcept { return *this -= 1; }
    /// Is += 1. Returns the previous value.
    BIDE_INLINE T operator++(int) noexcept {
        const T before = self();
        self() = static_cast<T>(before + 1);
        return before;
    }
    /// Is -= 1. Returns the previous value.
    BIDE_INLINE T operator--(int) noexcept {
        const T before = self();
        self() = static_cast<T>(before - 1);
        return before;
    }
    /// Reads the value, a pointer.
    BIDE_INLINE T operator->() const noexcept
        requires std::is_pointer_v<T>
    {
        return static_cast<const Self&>(*this);
    }

private:
    Self& self() noexcept { return static_cast<Self&>(*this); }
};

}}} // namespace bide::BIDE_ABI::model::detail

#endif
