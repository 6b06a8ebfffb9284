// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_PLATFORM_HPP
#define BIDE_MODEL_PLATFORM_HPP

/// \file
/// The platform of the model checker (core/platform.hpp says what a platform is). If a template of
/// the library is instantiated with model::platform, the checker decides the order of all its
/// steps.

#include <bide/model/stop_token.hpp>

#include <system_error>

namespace bide { inline namespace BIDE_ABI {
template <class Platform> class basic_timer_service;
}} // namespace bide::BIDE_ABI

namespace bide { inline namespace BIDE_ABI { namespace model {

/// Is a platform (core/platform.hpp) for code whose executions are explored. LockLooks is the
/// number of times that a waiter reads a held lock_bits before it sleeps.
template <int LockLooks> struct basic_platform {
    /// Says that executions are explored and not run.
    static constexpr bool model = true;
    /// The number of times that a waiter reads a held lock before it sleeps.
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

    /// Tells the checker that the thread waits in a loop. Waits until a value that the thread has
    /// read may have changed. Requires: the loop ends only because of such a change.
    [[gnu::always_inline]] static void pause() noexcept { detail::ops::pause(); }
    /// Is pause().
    [[gnu::always_inline]] static void yield() noexcept { detail::ops::pause(); }
    /// Does nothing.
    static void prefetch(const void*) noexcept {}
    /// Returns the time of this thread in nanoseconds. options::clock_jumps says how it advances.
    static std::int64_t now() noexcept { return detail::ops::now(); }
    /// Returns false.
    static bool single_cpu() noexcept { return false; }

    /// Sleeps while `word` contains `expected`. Returns false after a time-out. If `word` has 64
    /// bits, only the low half is guaranteed to be compared (core/futex.hpp).
    template <class Word>
    static bool futex_wait(const atomic<Word>& word, Word expected, std::int64_t until,
                           BIDE_MODEL_SITE) noexcept {
        return detail::ops::futex_wait(word.object(), &word, detail::to_bits(expected), 4, until,
                                       {file, line});
    }
    /// Wakes at most `count` of the threads that sleep on `word`. The checker explores each choice.
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

    /// Returns the service that the body has set by use_service() (model/check.hpp), or nullptr if
    /// the body has set none.
    static bide::basic_timer_service<basic_platform>* timer_service() noexcept {
        return static_cast<bide::basic_timer_service<basic_platform>*>(detail::ops::service());
    }

    /// Starts a daemon() (model/check.hpp) that calls body(argument).
    static std::error_code start_thread(void (*body)(void*) noexcept, void* argument) noexcept {
        detail::ops::start_daemon(body, argument);
        return {};
    }
};

/// A platform on which a waiter of a lock_bits, the library's internal lock, sleeps at once. So
/// this sleep is explored, too.
using platform = basic_platform<0>;

/// A platform on which a waiter of a lock_bits, the library's internal lock, never sleeps. With
/// this platform, a large model has fewer executions by orders of magnitude. A separate model
/// checks the sleep of lock_bits.
using platform_without_lock_sleep = basic_platform<std::numeric_limits<int>::max()>;

}}} // namespace bide::BIDE_ABI::model

#endif
