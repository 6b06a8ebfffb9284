#ifndef BIDE_DURABLE_DETAIL_RENEWER_HPP
#define BIDE_DURABLE_DETAIL_RENEWER_HPP

// Renews the leases of guards, each after about a third of its length, and again soon if the store
// failed. The locks that share a store have one renewer (detail/renewers.hpp), any other lock has
// its own. It renews on a thread of its own, which starts with the first hold and ends some time
// after the last; or as a task on a scheduler, which makes its calls on store threads.
//
// It makes one call at a time, the earliest due first. A call that hangs delays the renewals of
// this renewer, and no other's, for as long as the slot lets it hang:
//   - locks that share a store renew on the slot's for_renewals(). A call that hangs on a lock's
//     own slot does not delay them. A renewal that hangs delays the others of the same store, whose
//     connection hangs then, too.
//   - any other lock renews on its own slot, in its turn. If a call hangs there, the renewal waits
//     for the turn no longer than until the end of the lease.
// The vigil declares a hold lost in any case when its lease ends. The threads are detached: a store
// that hangs does not keep the process from ending.

#include <bide/core/config.hpp>
#include <bide/core/detail/os_thread.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/hold.hpp>
#include <bide/durable/detail/store_call.hpp>
#include <bide/durable/process.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/task.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
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
    explicit renewer(scheduler* where) : scheduler_(where), random_(std::random_device()()) {}
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
    static constexpr std::int64_t idle_ms = 5'000;   // that the thread stays without a hold
    static constexpr std::int64_t failed_ms = 1'000; // until a round that failed is tried again

    // Renews what is due. For how many milliseconds there is nothing to do then; below zero: it has
    // stopped, as nothing is left.
    std::int64_t round(bool may_stop) noexcept;
    std::int64_t try_round(bool may_stop);
    static bool try_renew(hold& one) noexcept;
    std::int64_t next_time(std::int64_t lease_ms, bool renewed); // under lock_

    // A child of fork() has the parent's memory of a runner, but not the runner.
    struct inherited {
        std::shared_ptr<renewer> heir;
    };
    std::shared_ptr<renewer> heir();

    static void run(void* self) noexcept;
    static task<void> run_task(std::shared_ptr<renewer> self);

    scheduler* const scheduler_;
    const pid_t process_ = ::getpid();
    semaphore nudge_{0};
    mutex lock_;
    std::vector<std::weak_ptr<hold>> holds_; // under lock_
    bool running_ = false;                   // under lock_
    std::int64_t wakes_ms_ = 0;              // under lock_: when the runner looks again
    std::minstd_rand random_;                // under lock_
    std::int64_t shortest_ms_ = failed_ms;   // under lock_: the shortest lease so far
    // Of this process. A pointer, and not under lock_: the fork may have found that held.
    native_platform::atomic<inherited*> heir_{nullptr};
};

inline std::int64_t renewer::next_time(std::int64_t lease_ms, bool renewed) {
    const std::int64_t third = std::max<std::int64_t>(lease_ms / 3, 1);
    const std::int64_t rest = renewed ? third : std::max<std::int64_t>(third / 10, 1);
    std::uniform_int_distribution<std::int64_t> jitter(rest - rest / 10, rest);
    return durable::boottime_ms() + jitter(random_);
}

inline std::shared_ptr<renewer> renewer::heir() {
    // Order: acquire [VG2]; sees it made.
    inherited* found = heir_.load(std::memory_order_acquire);
    while (found == nullptr || found->heir->process_ != ::getpid()) {
        // The parent's scheduler has no threads here either. What the parent had is left as it is.
        auto mine = std::make_unique<inherited>(inherited{std::make_shared<renewer>(nullptr)});
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
    const std::int64_t lease_ms = one->lease_ms();
    const std::lock_guard held(lock_);
    one->renew_at_ms = durable::boottime_ms() + std::max<std::int64_t>(lease_ms / 3, 1);
    shortest_ms_ = std::min(shortest_ms_, lease_ms);
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
        const std::lock_guard held(lock_);
        return std::max<std::int64_t>(shortest_ms_ / 30, 1);
    }
#else
    return try_round(may_stop);
#endif
}

// A lock whose slot or clock throws keeps no other one from its renewal.
inline bool renewer::try_renew(hold& one) noexcept {
#if BIDE_EXCEPTIONS
    try {
        return one.is_active() && one.renew_apart().has_value();
    } catch (...) {
        return false;
    }
#else
    return one.is_active() && one.renew_apart().has_value();
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
    std::sort(due.begin(), due.end(),
              [](const auto& a, const auto& b) { return a->renew_at_ms < b->renew_at_ms; });
    for (const auto& one : due) {
        const bool renewed = try_renew(*one);
        const std::lock_guard held(lock_);
        one->renew_at_ms = next_time(one->lease_ms(), renewed);
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
    using answer = result<std::int64_t, std::error_code>;
    for (;;) {
        const std::function<answer()> round = [self] { return answer(self->round(true)); };
        auto looking = async_call_store<answer>(round, call_limits());
        const auto looked = co_await std::move(looking);
        bool has_stopped = !looked && looked.error() == errc::stopped; // the scheduler ends
        if (!has_stopped) {
            const std::int64_t rest = looked.value_or(failed_ms); // without a thread: later
            if (rest < 0) {
                co_return;
            }
            auto nudged =
                self->nudge_.async_acquire().with_timeout(std::chrono::milliseconds(rest));
            auto outcome = co_await std::move(nudged);
            if (outcome) {
                outcome->forget();
            }
            has_stopped = !outcome && outcome.error() == errc::stopped;
        }
        if (has_stopped) {
            const std::lock_guard held(self->lock_);
            self->running_ = false;
            co_return;
        }
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
