// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_TENDED_POOL_HPP
#define BIDE_SCHED_DETAIL_TENDED_POOL_HPP

// The threads of a scheduler for blocking tasks. The workers tend them by a timer, which is armed only
// while something is to be done:
//
//   a start that the system has refused is owed. If all threads of the pool were blocked, none of
//   them would try again;
//   a thread has left, and is to be joined when it has ended.
//
// A thread that finds `armed_` set relies on the firing that resets it. The firing looks at the pool
// after that. Both threads access the pool under its lock: the first one before it looks at `armed_`, the
// firing after it has reset it. If the firing came first there, the reset would come first, too.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/timer_queue.hpp>
#include <bide/core/waker.hpp>
#include <bide/sched/blocking_pool.hpp>

#include <atomic>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// `Pool` is that of the workers.
template <class Platform, class Pool, class Thread>
class basic_tended_pool : public basic_blocking_pool<Platform, Thread> {
    using base = basic_blocking_pool<Platform, Thread>;

public:
    basic_tended_pool(Pool& workers, typename base::options wanted) noexcept
        : base(with_attention(std::move(wanted), this)), workers_(workers) {
        timer_.fire = waker(&on_timer, this);
    }

    basic_tended_pool(const basic_tended_pool&) = delete;
    basic_tended_pool& operator=(const basic_tended_pool&) = delete;

    // Requires: no thread that fires timers of the workers is left, and no call is under way.
    ~basic_tended_pool() {
        this->finish();
        cancel_timer<Platform>(timer_);
    }

private:
    static typename base::options with_attention(typename base::options wanted,
                                                 basic_tended_pool* self) noexcept {
        wanted.attention = waker(&arm, self);
        return wanted;
    }

    static void arm(void* self) noexcept {
        auto& mine = *static_cast<basic_tended_pool*>(self);
        // Order: acquire [tended_pool.armed]; the last firing no longer uses the timer.
        if (!mine.armed_.exchange(true, std::memory_order_acquire)) {
            mine.timer_.when =
                deadline::at_ns(Platform::now() + basic_worker_host<Platform>::retry_ns);
            mine.workers_.workers().front().timers.add(mine.timer_);
        }
    }

    static void on_timer(void* self) noexcept {
        auto& mine = *static_cast<basic_tended_pool*>(self);
        // Order: release [tended_pool.armed]; the next thread that arms the timer may write it.
        mine.armed_.store(false, std::memory_order_release);
        const bool leaves = mine.reap();
        if (mine.tend() || leaves) {
            arm(self);
        }
    }

    Pool& workers_;
    timer timer_;
    typename Platform::template atomic<bool> armed_{false};
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
