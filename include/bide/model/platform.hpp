// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_PLATFORM_HPP
#define BIDE_MODEL_PLATFORM_HPP

/// \file
/// The model checker's place in the seam of core/platform.hpp: instantiate the library's templates with
/// model::platform, and every step that they take is the checker's to order.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/model/atomic.hpp>
#include <bide/model/detail/ops.hpp>
#include <bide/model/stop_token.hpp>

#include <atomic>
#include <cstdint>
#include <limits>
#include <system_error>

namespace bide::inline BIDE_ABI {
template <class Platform> class basic_timer_service;
} // namespace bide::inline BIDE_ABI

namespace bide::inline BIDE_ABI::model {

/// Is a platform of the library (core/platform.hpp) whose executions are explored. LockLooks: how often a
/// held lock_bits is read before its waiter sleeps.
template <int LockLooks> struct basic_platform {
    /// Says that executions are explored and not run.
    static constexpr bool model = true;
    /// Counts the reads of a held lock before its waiter sleeps.
    static constexpr int lock_looks = LockLooks;

    /// Names the atomic type.
    template <class T> using atomic = model::atomic<T>;
    /// Names the type of plain shared data.
    template <class T> using var = model::var<T>;

    /// Names the type that requests a stop.
    using stop_source = model::stop_source;
    /// Names the type by which a wait learns of a stop.
    using stop_token = model::stop_token;
    /// Names the type that calls an F at a stop.
    template <class F> using stop_callback = model::stop_callback<F>;

    /// Orders as std::atomic_thread_fence() does.
    static void fence(std::memory_order o, BIDE_MODEL_SITE) noexcept {
        detail::ops::fence(o, {file, line});
    }

    /// Is a seq_cst fence.
    static void light_fence(BIDE_MODEL_SITE) noexcept {
        detail::ops::fence(std::memory_order_seq_cst, {file, line});
    }
    /// Is a seq_cst fence. Returns true.
    static bool heavy_fence(BIDE_MODEL_SITE) noexcept {
        detail::ops::fence(std::memory_order_seq_cst, {file, line});
        return true;
    }

    /// Goes on when something that was read may have changed: a loop around it has no other end than
    /// that.
    static void pause() noexcept { detail::ops::pause(); }
    /// Is pause().
    static void yield() noexcept { detail::ops::pause(); }
    /// Does nothing.
    static void prefetch(const void*) noexcept {}
    /// Returns the time of this thread, in nanoseconds: see options::clock_jumps.
    static std::int64_t now() noexcept { return detail::ops::now(); }
    /// Returns false.
    static bool single_cpu() noexcept { return false; }

    /// Sleeps while `word` holds `expected`. Returns false if it has timed out. Of a 64-bit word only the low
    /// half is sure to be compared (core/futex.hpp).
    template <class Word>
    static bool futex_wait(const atomic<Word>& word, Word expected, std::int64_t until,
                           BIDE_MODEL_SITE) noexcept {
        return detail::ops::futex_wait(word.object(), &word, detail::to_bits(expected), 4, until,
                                       {file, line});
    }
    /// Wakes at most `count` threads that sleep on `word`; any of them.
    template <class Word>
    static void futex_wake(const atomic<Word>* word, int count, BIDE_MODEL_SITE) noexcept {
        detail::ops::futex_wake(word, count, {file, line});
    }

    /// Returns the T of this thread.
    template <class T> static T& local() noexcept {
        static constexpr char key = 0;
        return *static_cast<T*>(
            detail::ops::local(&key, [] { return static_cast<void*>(new T{}); }));
    }
    /// Is local().
    template <class T> static T& near_local() noexcept { return local<T>(); }

    /// Returns the one that the body named by use_service() (model/check.hpp); nullptr if there is none.
    static bide::basic_timer_service<basic_platform>* timer_service() noexcept {
        return static_cast<bide::basic_timer_service<basic_platform>*>(detail::ops::service());
    }

    /// Starts a daemon.
    static std::error_code start_thread(void (*body)(void*) noexcept, void* argument) noexcept {
        detail::ops::start_daemon(body, argument);
        return {};
    }
};

/// Waiters of the library's inner locks sleep at once: every step of the code is explored.
using platform = basic_platform<0>;

/// They wait for the lock without sleeping. How they sleep is lock_bits' own protocol, with a model of its
/// own; where that is left out of a larger one, there are orders of magnitude less executions.
using platform_without_lock_sleep = basic_platform<std::numeric_limits<int>::max()>;

} // namespace bide::inline BIDE_ABI::model

#endif
