#ifndef BIDE_CORE_PLATFORM_HPP
#define BIDE_CORE_PLATFORM_HPP

// The seam between the library and the machine: atomics, fences, spinning, sleeping, the clock, and
// thread-local state. Everything whose correctness depends on interleaving is a template on a
// platform, written against the names below and nothing else, so that a model checker's platform
// can take this one's place under the very same headers.
//
// A platform P has
//   P::model                    true where executions are explored rather than run: loops that only
//                               buy time (spinning) are then left out, and P::timer_service()
//                               stands in for core/timer.hpp's own; nullptr: there is none
//   P::lock_pauses              looks at a held lock_bits before its waiter sleeps
//   P::atomic<T>, P::fence      std::atomic and its fence
//   P::var<T>                   T, where races on plain shared data are to be found; T itself here
//   P::pause()                  the only way to spin; a loop around it only reads
//   P::yield()                  lets another thread run; for loops that pause() was not enough for
//   P::prefetch(address)        a line that is going to be written
//   P::now()                    steady nanoseconds
//   P::futex_wait, futex_wake   see core/futex.hpp
//   P::single_cpu()             the process has one processor only: spinning is in vain
//   P::local<T>()               this thread's T, constant-initialised
//   P::start_thread(f, x)       optional: runs f(x) on a thread of the service (core/timer.hpp), and
//                               returns an error_code
//   P::near_local<T>()          another one, for what takes a few nanoseconds altogether; read and
//                               done with before the next suspension point of a coroutine

#include <bide/core/config.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>

#if defined(__linux__)
#include <bide/core/detail/futex_linux.hpp>
#include <unistd.h>
#elif defined(_WIN32)
#include <bide/core/detail/futex_windows.hpp>
#elif defined(__APPLE__) && __has_include(<os/os_sync_wait_on_address.h>)
#include <bide/core/detail/futex_darwin.hpp>
#else
#include <bide/core/detail/futex_portable.hpp>
namespace bide::inline BIDE_ABI {
namespace detail {
using os_futex = portable_futex;
} // namespace detail
} // namespace bide::inline BIDE_ABI
#endif
#if !defined(_WIN32)
#include <sched.h>
#endif

namespace bide::inline BIDE_ABI {

template <class Futex> struct basic_native_platform {
    static constexpr bool model = false;
    static constexpr int lock_pauses = 64;

    template <class T> using atomic = std::atomic<T>;
    template <class T> using var = T;

    static void fence(std::memory_order order) noexcept { std::atomic_thread_fence(order); }

    static void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#elif defined(_M_X64) || defined(_M_IX86)
        _mm_pause();
#elif defined(__aarch64__)
        asm volatile("isb" ::: "memory"); // `yield` is a no-op on most cores
#endif
    }

    static void yield() noexcept {
#if defined(_WIN32)
        ::SwitchToThread();
#else
        ::sched_yield();
#endif
    }

    static void prefetch(const void* address) noexcept {
#if defined(__GNUC__) || defined(__clang__)
        __builtin_prefetch(address, 1);
#else
        static_cast<void>(address);
#endif
    }

    static std::int64_t now() noexcept {
        const auto since = std::chrono::steady_clock::now().time_since_epoch();
        return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
    }

    template <class Word>
    static bool futex_wait(const atomic<Word>& word, Word expected, std::int64_t until) noexcept {
        return Futex::wait(word, expected, until);
    }

    template <class Word> static void futex_wake(const atomic<Word>* word, int count) noexcept {
        Futex::template wake<Word>(word, count);
    }

    static bool single_cpu() noexcept {
#if defined(__linux__)
        cpu_set_t mask;
        // The process's, which is its first thread's: one that is pinned to a processor may wait
        // for one that is pinned to another.
        return ::sched_getaffinity(::getpid(), sizeof mask, &mask) == 0 && CPU_COUNT(&mask) == 1;
#else
        return false;
#endif
    }

    // Out of line: a compiler that inlines it may keep the address of the old thread's object over
    // a suspension point that continues on another thread.
    template <class T> BIDE_NOINLINE static T& local() noexcept {
        static constinit thread_local T value{};
        return value;
    }

    // Inlined, where the compiler knows that a coroutine may go on on another thread.
    template <class T> BIDE_NEAR_LOCAL static T& near_local() noexcept {
        static constinit thread_local T value{};
        return value;
    }
};

using native_platform = basic_native_platform<detail::os_futex>;

} // namespace bide::inline BIDE_ABI

#endif
