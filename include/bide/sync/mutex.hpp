#ifndef BIDE_SYNC_MUTEX_HPP
#define BIDE_SYNC_MUTEX_HPP

// A semaphore of one permit with a lock's face: TimedLockable, first come first served over threads
// and coroutines alike, not recursive. It may be unlocked by another thread than the one that
// locked it, so a coroutine may hold it over a suspension and a change of thread.
//
// Order costs: a lock that is always handed to the one who waited longest makes everybody wait for
// that one to wake up. For hot, short sections of threads there is adaptive_mutex.

#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/thread_wait.hpp>
#include <bide/sync/detail/permit_queue.hpp>

#include <chrono>
#include <mutex>
#include <stop_token>

namespace bide::inline BIDE_ABI {

template <class Platform> class basic_mutex {
    using queue = detail::basic_permit_queue<Platform>;
    using wait = thread_wait<queue, Platform>;

public:
    constexpr basic_mutex() noexcept : permits_(1) {}

    // Requires: nobody waits; terminates otherwise.
    ~basic_mutex() { permits_.require_no_waiters("mutex", this); }

    basic_mutex(const basic_mutex&) = delete;
    basic_mutex& operator=(const basic_mutex&) = delete;

    // Blocks: until it is this caller's turn.
    // Order: everything before the last unlock() happens-before the return.
    void lock() {
        if (!permits_.take_known(1, 1)) {
            wait::until(permits_, 1, deadline::never());
        }
    }

    // Never waits. False: locked.
    bool try_lock() noexcept { return permits_.take_known(1, 1) || permits_.try_take(1); }

    // Hands the lock to who waits longest.
    // Requires: it is locked; terminates otherwise.
    void unlock() noexcept {
        if (!permits_.give_known(0, 1) && !permits_.give(1, 1)) {
            detail::fatal("mutex", this, "unlocked while not locked");
        }
    }

    // As lock(), for at most that long; false: timed out.
    template <class R, class P> bool try_lock_for(const std::chrono::duration<R, P>& rest) {
        return try_lock() ||
               wait::until(permits_, 1, deadline::after(rest)) == wait_status::granted;
    }
    template <class C, class D> bool try_lock_until(const std::chrono::time_point<C, D>& when) {
        return try_lock() || wait::until(permits_, 1, deadline::at(when)) == wait_status::granted;
    }

    // As lock(); errc::stopped when a stop is requested first.
    result<void> lock(std::stop_token token) {
        if (try_lock() || wait::stoppable(permits_, 1, token) == wait_status::granted) {
            return {};
        }
        return unexpected{errc::stopped};
    }

    // As lock(), for a coroutine.
    basic_async_op<std::unique_lock<basic_mutex>, Platform> async_lock() {
        return async_lock_as<std::unique_lock<basic_mutex>, &collect>(this);
    }

    // For wrappers: async_lock() with a result of their own, made by `Collect` from target.owner.
    template <class T, result<T> (*Collect)(const wait_target&, wait_status) noexcept>
    basic_async_op<T, Platform> async_lock_as(void* owner) noexcept {
        static constexpr wait_ops<result<T>, Platform> ops{&queue::try_now, &queue::enqueue_op,
                                                           &queue::cancel_op, Collect};
        return {ops, wait_target{&permits_, owner, 1}};
    }

private:
    static result<std::unique_lock<basic_mutex>> collect(const wait_target& t,
                                                         wait_status what) noexcept {
        if (what != wait_status::granted) {
            return unexpected{errc_of(what)};
        }
        return std::unique_lock(*static_cast<basic_mutex*>(t.owner), std::adopt_lock);
    }

    queue permits_;
};

using mutex = basic_mutex<native_platform>;
static_assert(sizeof(mutex) == 16 || sizeof(void*) != 8);

} // namespace bide::inline BIDE_ABI

#endif
