// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_BIASED_SHARED_MUTEX_HPP
#define BIDE_SYNC_BIASED_SHARED_MUTEX_HPP

/// \file
/// A reader-writer mutex for data that is read far more often than it is written.
//
// A shared_mutex counts its readers in one word, so its readers take that cache line from each other.
// Here each thread counts in a slot with a line of its own, until a writer comes and revokes that: the
// biased locking of BRAVO (Dice and Kogan, USENIX ATC 2019). detail/biased_permits.hpp has the
// protocol.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/detail/noted.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/thread_wait.hpp>
#include <bide/fwd.hpp>
#include <bide/sync/detail/biased_permits.hpp>
#include <bide/sync/detail/lock_wait.hpp>

#include <chrono>
#include <cstddef>
#include <mutex>
#include <shared_mutex>
#include <type_traits>

namespace bide::inline BIDE_ABI {

/// A shared_mutex that is biased to readers. SharedTimedLockable. While it is biased, readers on
/// different threads share no cache line. A writer ends the bias, and waits in line with the readers
/// that come after it, first come, first served; so neither side starves. It is biased from the
/// beginning, and again when as many reads as it has slots needed no wait since the bias ended.
///
/// A writer pays for it: a write that ends the bias writes all slots. It takes a cache line pair for
/// each slot and one more: 2,176 bytes with 16 slots.
///
/// Not recursive, not even for readers: if a reader locks again behind a waiting writer, both wait for
/// ever. Any thread may unlock it, so a coroutine may hold it across a suspension. A reader that is
/// unlocked by another thread than it was locked by may have to write the line that all threads share.
/// A condition_variable does not wait with it.
///
/// `Slots` is a power of two: how many threads read without sharing a line. Threads get their slots in
/// turn, in the order of their first reads.
template <class Platform, unsigned Slots> class basic_biased_shared_mutex {
    using permits = detail::basic_biased_permits<Platform, Slots>;
    using queue = typename permits::queue;
    using read_wait = thread_wait<queue, Platform>;
    using write_wait = thread_wait<permits, Platform>;

public:
    /// Constructs a mutex that is not locked, and is biased.
    constexpr basic_biased_shared_mutex() noexcept : basic_biased_shared_mutex(nullptr) {}

    /// Constructs a mutex that is not locked, with a name for reports (core/deadlock_check.hpp). The
    /// name is copied if BIDE_DEADLOCK_CHECK is defined, and ignored otherwise.
    constexpr explicit basic_biased_shared_mutex([[maybe_unused]] const char* called) noexcept {
        BIDE_CHECKED(detail::note_made<Platform>(this, name, called);)
    }

    /// Destroys the mutex.
    /// Requires: there are no waiters; terminates otherwise.
    ~basic_biased_shared_mutex() {
        permits_.in_queue().require_no_waiters(name, this);
        BIDE_CHECKED(detail::note_gone<Platform>(this);)
    }

    basic_biased_shared_mutex(const basic_biased_shared_mutex&) = delete;
    basic_biased_shared_mutex& operator=(const basic_biased_shared_mutex&) = delete;

    // ---- Exclusive

    /// Locks the mutex exclusively. Ends the bias.
    /// Blocks: until the mutex is free and every earlier waiter has had it. Readers that come after
    /// the call wait behind it.
    /// Memory order: what happens before the unlocks that freed it happens before the return.
    void lock() {
        if (!permits_.try_take_known()) {
            write_wait::until(permits_, all, deadline::never());
        }
        noted(true);
    }

    /// Locks the mutex exclusively if it is free and there are no waiters. Never blocks. Ends the
    /// bias, even if it returns false.
    /// Returns: true if the caller locked it.
    [[nodiscard]] bool try_lock() noexcept { return noted(permits_.try_take_all()); }

    /// Unlocks the mutex, or hands it to the first waiters.
    /// Requires: the mutex is locked exclusively; terminates if it can tell that it is not.
    void unlock() noexcept {
        BIDE_CHECKED(detail::note_unlocked<Platform>(&permits_);)
        if (!permits_.in_queue().give_known(0, all) && !permits_.in_queue().give(all, all)) {
            detail::fatal(name, this, "unlocked while not locked");
        }
    }

    /// Locks the mutex as lock() does, but waits at most `rest`.
    /// Returns: true if the caller locked it.
    template <class R, class P>
    [[nodiscard]] bool try_lock_for(const std::chrono::duration<R, P>& rest) {
        return try_lock() || noted(write(deadline::after(rest)));
    }
    /// Locks the mutex as lock() does, but waits at most until a point in time.
    template <class C, class D>
    [[nodiscard]] bool try_lock_until(const std::chrono::time_point<C, D>& when) {
        return try_lock() || noted(write(deadline::at(when)));
    }
    /// Locks the mutex as lock() does, unless a stop is requested first.
    /// Returns: errc::stopped if the caller did not lock it.
    result_on<void, Platform> lock(typename Platform::stop_token token) {
        return detail::stopped_or<Platform>(
            try_lock() ||
            noted(write_wait::stoppable(permits_, all, token) == wait_status::granted));
    }

    /// Turns an exclusive lock into a shared lock. No writer locks the mutex in between. The
    /// readers that are first in the queue lock it too.
    /// Requires: the mutex is locked exclusively; terminates if it can tell that it is not.
    void unlock_and_lock_shared() noexcept {
        BIDE_CHECKED(detail::note_unlocked<Platform>(&permits_);)
        noted_shared(true);
        if (!permits_.in_queue().give(all - 1, all - 1)) {
            detail::fatal(name, this, "downgraded while not locked");
        }
    }

    // ---- Shared

    /// Locks the mutex shared.
    /// Blocks: until no writer has the mutex and every earlier waiter has had it.
    /// Memory order: what happens before the last exclusive unlock happens before the return.
    void lock_shared() {
        if (!try_lock_shared()) {
            read_wait::until(permits_.in_queue(), 1, deadline::never());
            noted_shared(true);
        }
    }

    /// Locks the mutex shared if no writer has it and there are no waiters. Never blocks.
    /// Returns: true if the caller locked it.
    [[nodiscard]] bool try_lock_shared() noexcept { return noted_shared(permits_.try_take_one()); }

    /// Unlocks a shared lock, and hands the mutex to the first waiters if it was the last one.
    /// Requires: the mutex is locked shared; terminates if it can tell that it is not. While it is
    /// biased, it cannot tell; then a later unlock() terminates.
    void unlock_shared() noexcept {
        BIDE_CHECKED(detail::note_unlocked<Platform>(&permits_, detail::wait_notes::mode::shared);)
        if (!permits_.give_one()) {
            detail::fatal(name, this, "unlocked (shared) while not locked");
        }
    }

    /// Locks the mutex as lock_shared() does, but waits at most `rest`.
    /// Returns: true if the caller locked it.
    template <class R, class P>
    [[nodiscard]] bool try_lock_shared_for(const std::chrono::duration<R, P>& rest) {
        return try_lock_shared() || noted_shared(read(deadline::after(rest)));
    }
    /// Locks the mutex as lock_shared() does, but waits at most until a point in time.
    template <class C, class D>
    [[nodiscard]] bool try_lock_shared_until(const std::chrono::time_point<C, D>& when) {
        return try_lock_shared() || noted_shared(read(deadline::at(when)));
    }
    /// Locks the mutex as lock_shared() does, unless a stop is requested first.
    /// Returns: errc::stopped if the caller did not lock it.
    result_on<void, Platform> lock_shared(typename Platform::stop_token token) {
        return detail::stopped_or<Platform>(
            try_lock_shared() || noted_shared(read_wait::stoppable(permits_.in_queue(), 1, token) ==
                                              wait_status::granted));
    }

    // ---- Coroutines

    /// Locks the mutex as lock() does, for a coroutine.
    /// Returns: an operation for co_await; its value is a lock that unlocks the mutex.
    basic_async_op<std::unique_lock<basic_biased_shared_mutex>, Platform> async_lock() {
        return async_lock_as(
            [this]() noexcept { return std::unique_lock(*this, std::adopt_lock); });
    }
    /// Locks the mutex as lock_shared() does, for a coroutine.
    /// Returns: an operation for co_await; its value is a lock that unlocks the mutex, on any thread.
    basic_async_op<std::shared_lock<basic_biased_shared_mutex>, Platform> async_lock_shared() {
        const auto make = [this]() noexcept { return std::shared_lock(*this, std::adopt_lock); };
        return {detail::lock_wait<typename permits::reading, std::remove_const_t<decltype(make)>>{
            {permits_}, make}};
    }

    /// Makes an async_lock() with another result, for wrappers of the mutex. `make` is called when
    /// the mutex is locked, and returns the result. It is copied bytewise, and has a pointer at
    /// most.
    template <class Make>
    basic_async_op<detail::lock_made_by<Make>, Platform> async_lock_as(Make make) noexcept {
        return {detail::lock_wait<typename permits::writing, Make>{{permits_}, make}};
    }

private:
    static constexpr const char* name = "biased_shared_mutex";
    static constexpr std::ptrdiff_t all = permits::all;

    // Each passes on whether the caller has locked it.
    bool noted(bool is_locked) noexcept {
        BIDE_CHECKED(detail::note_locked<Platform>(&permits_, is_locked);)
        return is_locked;
    }
    bool noted_shared(bool is_locked) noexcept {
        BIDE_CHECKED(
            detail::note_locked<Platform>(&permits_, is_locked, detail::wait_notes::mode::shared);)
        return is_locked;
    }

    bool write(deadline end) noexcept {
        return write_wait::until(permits_, all, end) == wait_status::granted;
    }
    bool read(deadline end) noexcept {
        return read_wait::until(permits_.in_queue(), 1, end) == wait_status::granted;
    }

    permits permits_;
};

/// A reader-biased mutex for users.
using biased_shared_mutex = basic_biased_shared_mutex<native_platform>;
static_assert(sizeof(biased_shared_mutex) == 17 * cache_line_pair);

} // namespace bide::inline BIDE_ABI

#endif
