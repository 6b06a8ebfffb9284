// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_PLATFORM_HPP
#define BIDE_CORE_PLATFORM_HPP

/// \file
/// Provides what the library needs of the machine: atomics, fences, spinning, sleeping, the clock
/// and thread-local state. A class whose correctness depends on the interleaving of threads is a
/// template on a platform. It uses these things only by the names below, so that a model checker
/// can run the same headers on its own platform.
///
/// \code
/// A platform P has
///   P::model                    true: the model checker explores executions. Loops that only spend
///                               time are left out. P::timer_service() replaces the service of
///                               core/timer.hpp, or returns nullptr: there is no service.
///   P::lock_looks               How often a waiter reads a held lock_bits before it sleeps.
///   P::atomic<T>, P::fence      std::atomic and its fence.
///   P::var<T>                   In a model, a T that is checked for data races. Otherwise a T.
///   P::stop_source, P::stop_token, P::stop_callback<F>   As std::stop_source and so on.
///   P::light_fence()            Acts as a seq_cst fence towards threads that run a heavy fence.
///   P::heavy_fence()            A seq_cst fence, also towards threads with light fences. Optional:
///                               without it, process_fence is used (detail/process_wide.hpp).
///   P::pause()                  The only way to spin. The loop around it only reads.
///   P::yield()                  Lets another thread run.
///   P::prefetch(address)        Fetches a cache line that the caller is about to write.
///   P::now()                    Steady time in nanoseconds.
///   P::futex_wait, futex_wake   See core/futex.hpp.
///   P::single_cpu()             true: the process may use one processor only.
///   P::local<T>()               The T of this thread, constant-initialised.
///   P::near_local<T>()          Another T of this thread, which is found faster. A coroutine uses the
///                               reference only before its next suspension point.
///   P::start_thread(f, x)       Optional. Runs f(x) on a thread of the service (core/timer.hpp).
///                               Returns a std::error_code.
/// \endcode

#include <bide/core/config.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>

// Includes only the clocks and durations. The <chrono> of libstdc++ also contains calendars and
// text output, which take a third of the time that a mutex takes to compile.
#if defined(__GLIBCXX__) && __has_include(<bits/chrono.h>)
#include <bits/chrono.h>
#else
#include <chrono>
#endif

// With libstdc++, only declares the classes of <stop_token>. That header includes the streams,
// which take a fifth of the time that a mutex takes to compile. A program that stops a wait
// includes <stop_token> itself.
#if defined(__GLIBCXX__) && !_GLIBCXX_INLINE_VERSION
// clang-format off
namespace std _GLIBCXX_VISIBILITY(default) {
class stop_token;
class stop_source;
template <class Callback> class stop_callback;
} // namespace std
// clang-format on
#else
#include <stop_token>
#endif

#if defined(__linux__)
#include <bit>
#include <cerrno>
#include <ctime>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <bide/core/detail/futex_other.hpp>
#endif
#if !defined(_WIN32)
#include <sched.h>
#endif

namespace bide { inline namespace BIDE_ABI {

struct runnable;
struct timer;

/// Is the type of a word that threads sleep on (core/futex.hpp).
using futex_word = std::uint32_t;

namespace detail {

// Converts an integer to a type that is narrower on some machines and the same type on others. If
// it is the same type, g++ would warn that a static_cast outside of a template is useless.
template <class To, class From> constexpr To integer_cast(From value) noexcept {
    return static_cast<To>(value);
}

// Replaces the clock, random numbers and sleeping on a thread that runs a simulation
// (test/scheduler.hpp), so that a run can be repeated.
class BIDE_SHARED simulated_machine {
public:
    // Returns the steady time in nanoseconds.
    virtual std::int64_t now() noexcept = 0;
    virtual std::uint64_t random() noexcept = 0;

    // Called when the calling thread would sleep. Runs the simulation instead, until is_over(of)
    // returns true or the steady time `until` has come. If nothing is left to simulate, returns
    // `idle`: then only another thread can wake the caller.
    enum class sleep_end { woken, timed_out, idle };
    using condition = bool (*)(const void* of) noexcept;
    virtual sleep_end sleep(condition is_over, const void* of, std::int64_t until) noexcept = 0;

    // Returns true if the simulation has processors. A thread that spins can then see a change.
    virtual bool has_processors() const noexcept { return false; }

    // Arms the time-out of a coroutine that is not part of a task (core/timer.hpp).
    virtual void add_timer(timer& t) noexcept = 0;

    // Runs `r` as on another thread, where it may block. Called only if has_threads() returns true.
    virtual void run_on_thread(runnable&) noexcept {}
    virtual bool has_threads() const noexcept { return false; }

    // Called after an operation that other threads can see (BIDE_SWITCH_AFTER() in
    // core/detail/noted.hpp). Other tasks may run inside of this call.
    virtual void switch_point() noexcept {}

    // Returns the machine of the calling thread; nullptr if the thread does not simulate.
    static simulated_machine* here() noexcept {
        // Order: relaxed; a thread looks for what it has set itself.
        return threads_.load(std::memory_order_relaxed) != 0 ? of_thread() : nullptr;
    }

    // Sets the machine of the calling thread. nullptr means that the thread runs no simulation.
    // Returns the previous one.
    static simulated_machine* exchange(simulated_machine* next) noexcept {
        simulated_machine* const old = std::exchange(of_thread(), next);
        // Order: relaxed; a thread looks for what it has set itself. To subtract 1, adds the
        // largest unsigned number: the sum wraps around.
        threads_.fetch_add((next != nullptr ? 1U : 0U) - (old != nullptr ? 1U : 0U),
                           std::memory_order_relaxed);
        return old;
    }

protected:
    ~simulated_machine() = default;

private:
    // Never inlined: the compiler could keep the address over a suspension point (see local()).
    BIDE_NOINLINE static simulated_machine*& of_thread() noexcept {
        static constinit thread_local simulated_machine* machine = nullptr;
        return machine;
    }

    static constinit inline std::atomic<unsigned> threads_{0}; // the threads that simulate
};

#if defined(__linux__)
// Sleeps and wakes by private futex(2), with absolute CLOCK_MONOTONIC deadlines. Calls
// FUTEX_WAIT_BITSET, because FUTEX_WAIT takes no absolute deadline. The caller's errno stays
// unchanged.
struct BIDE_SHARED os_futex {
    // Returns false if `until` (steady nanoseconds; the largest value: never) has passed.
    template <class Atomic, class Word>
    static bool wait(const Atomic& word, Word expected, std::int64_t until) noexcept {
        return wait_on(low_half<Word>(&word), static_cast<std::uint32_t>(expected), until);
    }

    // Uses the address only: the word may be destroyed.
    template <class Word> static void wake(const void* word, int count) noexcept {
        wake_on(low_half<Word>(word), count);
    }

private:
#if defined(SYS_futex_time64) // a 32-bit machine: its time_t has 32 or 64 bits
    static constexpr long wait_call = sizeof(std::time_t) > sizeof(long) ? SYS_futex_time64
                                                                         : SYS_futex;
#else
    static constexpr long wait_call = SYS_futex;
#endif

    // Returns the address of the 32 bits that the kernel compares: the least significant half of a
    // 64-bit word.
    template <class Word> static const void* low_half(const void* word) noexcept {
        constexpr bool high_first = std::endian::native == std::endian::big;
        return static_cast<const char*>(word) + (high_first ? sizeof(Word) - 4 : 0);
    }

    BIDE_COLD static void wake_on(const void* word, int count) noexcept {
        const int saved = errno;
        ::syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, count);
        errno = saved;
    }

    BIDE_COLD static bool wait_on(const void* word, std::uint32_t expected,
                                  std::int64_t until) noexcept {
        const int saved = errno;
        constexpr std::int64_t last_second = (std::numeric_limits<std::time_t>::max)();
        const std::int64_t seconds = until / 1'000'000'000;
        timespec at{};
        at.tv_sec = integer_cast<std::time_t>(seconds < last_second ? seconds : last_second);
        at.tv_nsec = integer_cast<long>(until % 1'000'000'000);
        const bool endless = until == (std::numeric_limits<std::int64_t>::max)();
        const auto failed =
            ::syscall(wait_call, word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, expected,
                      endless ? nullptr : &at, nullptr, FUTEX_BITSET_MATCH_ANY);
        const bool in_time = !(failed != 0 && errno == ETIMEDOUT);
        errno = saved;
        return in_time;
    }
};
#endif

} // namespace detail

/// The platform of the real machine. Futex is the class that makes the system calls to sleep on an
/// address and to wake the sleepers. The head of this file describes the members.
template <class Futex> struct BIDE_SHARED basic_native_platform {
    /// Says that the program runs, and that no model checker explores it.
    static constexpr bool model = false;
    /// Counts the reads of a held lock before its waiter sleeps.
    static constexpr int lock_looks = 5;

    /// Names the atomic type.
    template <class T> using atomic = std::atomic<T>;
    /// Names the type of plain shared data.
    template <class T> using var = T;

    /// Names the type that requests a stop.
    using stop_source = std::stop_source;
    /// Names the type by which a wait learns of a stop.
    using stop_token = std::stop_token;
    /// Names the type that calls an F at a stop.
    template <class F> using stop_callback = std::stop_callback<F>;

    /// Does the same as std::atomic_thread_fence().
    static void fence(std::memory_order order) noexcept { std::atomic_thread_fence(order); }

    /// Acts as a seq_cst fence, but only towards threads that run a heavy fence. It emits no
    /// instruction.
    // Order: seq_cst, for the compiler.
    static void light_fence() noexcept { std::atomic_signal_fence(std::memory_order_seq_cst); }

    /// Tells the processor that the caller spins.
    static void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#elif defined(_M_X64) || defined(_M_IX86)
        _mm_pause();
#elif defined(__aarch64__)
        asm volatile("isb" ::: "memory"); // `yield` is a no-op on most cores
#endif
    }

    /// Lets another thread run.
    static void yield() noexcept {
#if defined(_WIN32)
        ::SwitchToThread();
#else
        ::sched_yield();
#endif
    }

    /// Fetches the cache line at `address` for writing.
    static void prefetch(const void* address) noexcept {
#if defined(__GNUC__) || defined(__clang__)
        __builtin_prefetch(address, 1);
        asm volatile(""); // GCC 12 removes calls of a function that does nothing else
#else
        static_cast<void>(address);
#endif
    }

    /// Returns the steady time in nanoseconds; on a thread that simulates, the simulated time.
    static std::int64_t now() noexcept {
        if (auto* const simulated = detail::simulated_machine::here()) [[unlikely]] {
            return simulated->now();
        }
        const auto since = std::chrono::steady_clock::now().time_since_epoch();
        return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
    }

    /// Sleeps while `word` holds `expected`. Returns false if `until` (steady nanoseconds) has
    /// passed.
    template <class Word>
    static bool futex_wait(const atomic<Word>& word, Word expected, std::int64_t until) noexcept {
        return Futex::wait(word, expected, until);
    }

    /// Wakes at most `count` threads that sleep on `word`. Uses the address only.
    template <class Word> static void futex_wake(const atomic<Word>* word, int count) noexcept {
        Futex::template wake<Word>(word, count);
    }

    /// Returns whether the process may use one processor only.
    static bool single_cpu() noexcept {
#if defined(__linux__)
        cpu_set_t mask;
        // Uses the mask of the process's first thread, not that of the calling thread: the caller
        // may be pinned to one processor and wait for a thread on another.
        return ::sched_getaffinity(::getpid(), sizeof mask, &mask) == 0 && CPU_COUNT(&mask) == 1;
#else
        return false;
#endif
    }

    /// Returns the T of this thread.
    // Never inlined: otherwise the compiler could keep the address over a suspension point, after
    // which the coroutine may run on another thread.
    template <class T> BIDE_NOINLINE static T& local() noexcept {
        static constinit thread_local T value{};
        return value;
    }

    /// Returns another T of this thread. It is found faster than the T of local(). A coroutine must
    /// not use the reference after its next suspension point.
    // Not inlined if the compiler keeps such an address over a suspension point (BIDE_NEAR_LOCAL).
    template <class T> BIDE_NEAR_LOCAL static T& near_local() noexcept {
        static constinit thread_local T value{};
        return value;
    }
};

/// Is the platform of the types that users name, such as `mutex`.
struct BIDE_SHARED native_platform : basic_native_platform<detail::os_futex> {};

namespace detail {

struct BIDE_SHARED thread_mark_place {
    char unused;
};

// Returns an address that no other thread returns while the calling thread runs.
template <class Platform> const void* thread_mark() noexcept {
    return &Platform::template local<thread_mark_place>();
}

} // namespace detail
}} // namespace bide::BIDE_ABI

#endif
