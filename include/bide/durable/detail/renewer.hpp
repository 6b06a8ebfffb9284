#ifndef BIDE_DURABLE_DETAIL_RENEWER_HPP
#define BIDE_DURABLE_DETAIL_RENEWER_HPP

// Renews the leases of one lock's guards, each after about a third of its length, and again soon
// where the store failed. On a thread of its own, that comes with the first hold and goes some time
// after the last, or as a task on a scheduler. A store that hangs keeps those of this lock from
// being renewed, and nobody else's; that they are lost by then is the vigil's to say.

#include <bide/core/config.hpp>
#include <bide/core/detail/os_thread.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/hold.hpp>
#include <bide/durable/process.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sched/task.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

#include <unistd.h>

namespace bide::inline BIDE_ABI {
namespace detail {

class renewer : public std::enable_shared_from_this<renewer> {
public:
    renewer(std::chrono::milliseconds lease, scheduler* where)
        : lease_ms_(lease.count()), scheduler_(where), random_(std::random_device()()) {}
    renewer(const renewer&) = delete;
    renewer& operator=(const renewer&) = delete;
    ~renewer() {
        // Order: relaxed; the last reference is gone.
        inherited* const left = heir_.load(std::memory_order_relaxed);
        if (left != nullptr && left->heir->process_ == ::getpid()) {
            delete left;
        }
    }

    // Renews it from now on, as long as it is active.
    // Throws: std::system_error where no thread can be started, std::bad_alloc.
    void add(const std::shared_ptr<hold>& one);

private:
    static constexpr std::int64_t idle_ms = 5'000; // that the thread stays without a hold

    // Renews what is due. For how many milliseconds there is nothing to do then; below zero: it has
    // stopped, as nothing is left.
    std::int64_t round(bool may_stop) noexcept;
    std::int64_t try_round(bool may_stop);
    std::int64_t next_time(bool renewed);

    // A child of fork() has the parent's memory of a runner, but not the runner.
    struct inherited {
        std::shared_ptr<renewer> heir;
    };
    std::shared_ptr<renewer> heir();

    static void run(void* self) noexcept;
    static task<void> run_task(std::shared_ptr<renewer> self);

    const std::int64_t lease_ms_;
    scheduler* const scheduler_;
    const pid_t process_ = ::getpid();
    semaphore nudge_{0};
    mutex lock_;
    std::vector<std::weak_ptr<hold>> holds_; // under lock_
    bool running_ = false;                   // under lock_
    std::int64_t wakes_ms_ = 0;              // under lock_: when the runner looks again
    std::minstd_rand random_;                // the runner's
    // Of this process. A pointer, and not under lock_: the fork may have found that held.
    native_platform::atomic<inherited*> heir_{nullptr};
};

inline std::int64_t renewer::next_time(bool renewed) {
    const std::int64_t third = std::max<std::int64_t>(lease_ms_ / 3, 1);
    const std::int64_t rest = renewed ? third : std::max<std::int64_t>(third / 10, 1);
    std::uniform_int_distribution<std::int64_t> jitter(rest - rest / 10, rest);
    return durable::boottime_ms() + jitter(random_);
}

inline std::shared_ptr<renewer> renewer::heir() {
    // Order: acquire [VG2]; sees it made.
    inherited* found = heir_.load(std::memory_order_acquire);
    while (found == nullptr || found->heir->process_ != ::getpid()) {
        // The parent's scheduler has no threads here either. What the parent had is left as it is.
        auto mine = std::make_unique<inherited>(inherited{
            std::make_shared<renewer>(std::chrono::milliseconds(lease_ms_), nullptr)});
        // Order: release [VG2]; publishes what was made. Failure: acquire, of what another made.
        if (heir_.compare_exchange_strong(found, mine.get(), std::memory_order_release,
                                          std::memory_order_acquire)) {
            found = mine.release();
        }
    }
    return found->heir;
}

inline void renewer::add(const std::shared_ptr<hold>& one) {
    if (process_ != ::getpid()) {
        heir()->add(one);
        return;
    }
    one->renew_at_ms = durable::boottime_ms() + std::max<std::int64_t>(lease_ms_ / 3, 1);
    const std::lock_guard held(lock_);
    holds_.push_back(one);
    if (running_) {
        if (one->renew_at_ms < wakes_ms_) {
            nudge_.release();
        }
        return;
    }
    if (scheduler_ != nullptr) {
        scheduler_->spawn(run_task(shared_from_this()).named("bide: lease renewal")).detach();
    } else {
        auto* const self = new std::shared_ptr<renewer>(shared_from_this());
        if (const std::error_code error = os_thread::start_detached(&run, self)) {
            delete self;
            holds_.pop_back();
            throw_error(error);
        }
    }
    running_ = true;
}

inline std::int64_t renewer::round(bool may_stop) noexcept {
#if BIDE_EXCEPTIONS
    try {
        return try_round(may_stop);
    } catch (...) { // no memory, or the caller's clock: again soon, as where the store failed
        return std::clamp<std::int64_t>(lease_ms_ / 30, 1, idle_ms - 1);
    }
#else
    return try_round(may_stop);
#endif
}

inline std::int64_t renewer::try_round(bool may_stop) {
    std::vector<std::shared_ptr<hold>> due;
    const std::int64_t now = durable::boottime_ms();
    {
        const std::lock_guard held(lock_);
        std::int64_t next_ms = now + idle_ms;
        std::erase_if(holds_, [&](const std::weak_ptr<hold>& entry) {
            auto one = entry.lock();
            if (one == nullptr || !one->is_active()) {
                return true;
            }
            next_ms = std::min(next_ms, one->renew_at_ms);
            if (one->renew_at_ms <= now) {
                due.push_back(std::move(one));
            }
            return false;
        });
        if (holds_.empty() && may_stop) {
            running_ = false;
            return -1;
        }
        wakes_ms_ = next_ms;
        if (due.empty()) {
            return next_ms - now;
        }
    }
    for (const auto& one : due) {
        const bool renewed = one->is_active() && one->renew().has_value();
        one->renew_at_ms = next_time(renewed);
    }
    return 0;
}

inline void renewer::run(void* argument) noexcept {
    const std::unique_ptr<std::shared_ptr<renewer>> owned(
        static_cast<std::shared_ptr<renewer>*>(argument));
    renewer& self = **owned;
    os_thread::name_this("bide-lease", "", 0);
    bool was_idle = false;
    for (;;) {
        const std::int64_t rest = self.round(was_idle);
        if (rest < 0) {
            return;
        }
        was_idle = !self.nudge_.try_acquire_for(std::chrono::milliseconds(rest)) && rest == idle_ms;
    }
}

inline task<void> renewer::run_task(std::shared_ptr<renewer> self) {
    for (;;) {
        const std::int64_t rest = self->round(true);
        if (rest < 0) {
            co_return;
        }
        auto nudged = self->nudge_.async_acquire().with_timeout(std::chrono::milliseconds(rest));
        auto outcome = co_await std::move(nudged);
        if (outcome) {
            outcome->forget();
        }
        if (!outcome && outcome.error() == errc::stopped) { // the scheduler ends
            const std::lock_guard held(self->lock_);
            self->running_ = false;
            co_return;
        }
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
