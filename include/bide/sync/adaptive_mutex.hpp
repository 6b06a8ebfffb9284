#ifndef BIDE_SYNC_ADAPTIVE_MUTEX_HPP
#define BIDE_SYNC_ADAPTIVE_MUTEX_HPP

// A mutex for hot, short sections of threads: unfair, but starvation is bounded. Whoever comes by
// while it is free takes it, before those who wait, but only so often. (Compare parking_lot's
// eventual fairness. sync/detail/adaptive_lock.hpp has the protocol.)

#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/core/thread_wait.hpp>
#include <bide/sync/detail/adaptive_lock.hpp>

#include <chrono>
#include <mutex>
#include <stop_token>

namespace bide::inline BIDE_ABI {

template <class Platform> class basic_adaptive_mutex {
    using queue = detail::basic_adaptive_lock<Platform>;
    using wait = thread_wait<queue, Platform>;

public:
    // How often the head of the queue is overtaken at most, and how long it puts up with that from
    // the moment it was first woken.
    static constexpr unsigned max_overtakes = queue::max_overtakes;
    static constexpr std::chrono::microseconds patience = queue::patience;

    constexpr basic_adaptive_mutex() noexcept = default;

    // Requires: nobody waits; terminates otherwise.
    ~basic_adaptive_mutex() { lock_.require_no_waiters("adaptive_mutex", this); }

    basic_adaptive_mutex(const basic_adaptive_mutex&) = delete;
    basic_adaptive_mutex& operator=(const basic_adaptive_mutex&) = delete;

    // Blocks: until it is free or handed over.
    // Order: everything before the last unlock() happens-before the return.
    void lock() {
        if (!lock_.take_free()) {
            lock_.lock_slow(deadline::never());
        }
    }

    // Never waits. False: taken.
    bool try_lock() noexcept { return lock_.take_free() || lock_.barge(); }

    // Requires: it is locked; terminates otherwise.
    void unlock() noexcept { lock_.unlock(this); }

    // As lock(), for at most that long; false: timed out.
    template <class R, class P> bool try_lock_for(const std::chrono::duration<R, P>& rest) {
        return try_lock() || lock_.lock_slow(deadline::after(rest));
    }
    template <class C, class D> bool try_lock_until(const std::chrono::time_point<C, D>& when) {
        return try_lock() || lock_.lock_slow(deadline::at(when));
    }

    // As lock(); errc::stopped when a stop is requested first.
    result<void> lock(std::stop_token token) {
        if (try_lock() || wait::stoppable(lock_, 1, token) == wait_status::granted) {
            return {};
        }
        return unexpected{errc::stopped};
    }

    // As lock(), for a coroutine.
    basic_async_op<std::unique_lock<basic_adaptive_mutex>, Platform> async_lock() {
        return async_lock_as<std::unique_lock<basic_adaptive_mutex>, &collect>(this);
    }

    // For wrappers: async_lock() with a result of their own, made by `Collect` from target.owner.
    template <class T, result<T> (*Collect)(const wait_target&, wait_status) noexcept>
    basic_async_op<T, Platform> async_lock_as(void* owner) noexcept {
        static constexpr wait_ops<result<T>, Platform> ops{&queue::try_now, &queue::enqueue_op,
                                                           &queue::cancel_op, Collect};
        return {ops, wait_target{&lock_, owner, 1}};
    }

private:
    static result<std::unique_lock<basic_adaptive_mutex>> collect(const wait_target& t,
                                                                  wait_status what) noexcept {
        if (what != wait_status::granted) {
            return unexpected{errc_of(what)};
        }
        return std::unique_lock(*static_cast<basic_adaptive_mutex*>(t.owner), std::adopt_lock);
    }

    queue lock_;
};

using adaptive_mutex = basic_adaptive_mutex<native_platform>;
static_assert(sizeof(adaptive_mutex) == 16 || sizeof(void*) != 8);

} // namespace bide::inline BIDE_ABI

#endif
