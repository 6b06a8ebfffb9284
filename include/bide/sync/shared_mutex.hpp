#ifndef BIDE_SYNC_SHARED_MUTEX_HPP
#define BIDE_SYNC_SHARED_MUTEX_HPP

// Readers take one permit, a writer all there are: one queue, first come first served, so that
// readers behind a waiting writer wait for it and neither side starves. SharedTimedLockable. Not
// recursive, for readers neither: a reader that locks again behind a waiting writer waits for ever.

#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/thread_wait.hpp>
#include <bide/sync/detail/permit_queue.hpp>

#include <chrono>
#include <cstddef>
#include <mutex>
#include <shared_mutex>
#include <stop_token>

namespace bide::inline BIDE_ABI {

template <class Platform> class basic_shared_mutex {
    using queue = detail::basic_permit_queue<Platform>;
    using wait = thread_wait<queue, Platform>;

public:
    constexpr basic_shared_mutex() noexcept : permits_(all) {}

    // Requires: nobody waits; terminates otherwise.
    ~basic_shared_mutex() { permits_.require_no_waiters("shared_mutex", this); }

    basic_shared_mutex(const basic_shared_mutex&) = delete;
    basic_shared_mutex& operator=(const basic_shared_mutex&) = delete;

    // ---- Exclusive

    // Blocks: until it is this caller's turn and nobody holds it.
    // Order: everything before the unlocks that made way happens-before the return.
    void lock() {
        if (!permits_.take_known(all, all)) {
            wait::until(permits_, all, deadline::never());
        }
    }

    // Never waits. False: held, or somebody waits.
    bool try_lock() noexcept { return permits_.take_known(all, all) || permits_.try_take(all); }

    // Requires: locked exclusively; terminates where that can be told.
    void unlock() noexcept {
        if (!permits_.give_known(0, all) && !permits_.give(all, all)) {
            detail::fatal("shared_mutex", this, "unlocked while not locked");
        }
    }

    template <class R, class P> bool try_lock_for(const std::chrono::duration<R, P>& rest) {
        return try_lock() ||
               wait::until(permits_, all, deadline::after(rest)) == wait_status::granted;
    }
    template <class C, class D> bool try_lock_until(const std::chrono::time_point<C, D>& when) {
        return try_lock() || wait::until(permits_, all, deadline::at(when)) == wait_status::granted;
    }
    result<void> lock(std::stop_token token) {
        return stopped_or(try_lock() ||
                          wait::stoppable(permits_, all, token) == wait_status::granted);
    }

    // Turns an exclusive lock into a shared one, with no moment in between; readers that are next
    // in the queue enter too.
    // Requires: locked exclusively; terminates where that can be told.
    void unlock_and_lock_shared() noexcept {
        if (!permits_.give(all - 1, all - 1)) {
            detail::fatal("shared_mutex", this, "downgraded while not locked");
        }
    }

    // ---- Shared

    // Blocks: until it is this caller's turn and no writer holds it.
    void lock_shared() {
        if (!try_lock_shared()) {
            wait::until(permits_, 1, deadline::never());
        }
    }

    // Never waits. False: held exclusively, or somebody waits.
    bool try_lock_shared() noexcept { return permits_.take_known(all, 1) || permits_.try_take(1); }

    // Requires: locked shared; terminates where that can be told.
    void unlock_shared() noexcept {
        if (!permits_.give_known(all - 1, 1) && !permits_.give(1, all)) {
            detail::fatal("shared_mutex", this, "unlocked (shared) while not locked");
        }
    }

    template <class R, class P> bool try_lock_shared_for(const std::chrono::duration<R, P>& rest) {
        return try_lock_shared() ||
               wait::until(permits_, 1, deadline::after(rest)) == wait_status::granted;
    }
    template <class C, class D>
    bool try_lock_shared_until(const std::chrono::time_point<C, D>& when) {
        return try_lock_shared() ||
               wait::until(permits_, 1, deadline::at(when)) == wait_status::granted;
    }
    result<void> lock_shared(std::stop_token token) {
        return stopped_or(try_lock_shared() ||
                          wait::stoppable(permits_, 1, token) == wait_status::granted);
    }

    // ---- Coroutines

    basic_async_op<std::unique_lock<basic_shared_mutex>, Platform> async_lock() {
        return async_lock_as<std::unique_lock<basic_shared_mutex>,
                             &collect<std::unique_lock<basic_shared_mutex>>>(this);
    }
    basic_async_op<std::shared_lock<basic_shared_mutex>, Platform> async_lock_shared() {
        using held = std::shared_lock<basic_shared_mutex>;
        return operation<held, &collect<held>>(this, 1);
    }

    // For wrappers: async_lock() with a result of their own, made by `Collect` from target.owner.
    template <class T, result<T> (*Collect)(const wait_target&, wait_status) noexcept>
    basic_async_op<T, Platform> async_lock_as(void* owner) noexcept {
        return operation<T, Collect>(owner, all);
    }

private:
    static constexpr std::ptrdiff_t all = (queue::max)();

    static result<void> stopped_or(bool locked) noexcept {
        return locked ? result<void>() : unexpected{errc::stopped};
    }

    template <class T, result<T> (*Collect)(const wait_target&, wait_status) noexcept>
    basic_async_op<T, Platform> operation(void* owner, std::ptrdiff_t amount) noexcept {
        static constexpr wait_ops<result<T>, Platform> ops{&queue::try_now, &queue::enqueue_op,
                                                           &queue::cancel_op, Collect};
        return {ops, wait_target{&permits_, owner, amount}};
    }

    template <class Held>
    static result<Held> collect(const wait_target& t, wait_status what) noexcept {
        if (what != wait_status::granted) {
            return unexpected{errc_of(what)};
        }
        return Held(*static_cast<basic_shared_mutex*>(t.owner), std::adopt_lock);
    }

    queue permits_;
};

using shared_mutex = basic_shared_mutex<native_platform>;
static_assert(sizeof(shared_mutex) <= 32);

} // namespace bide::inline BIDE_ABI

#endif
