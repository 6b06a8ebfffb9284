#ifndef BIDE_DURABLE_DETAIL_RENEWER_HPP
#define BIDE_DURABLE_DETAIL_RENEWER_HPP

// Renews the leases of guards, each after about a third of its length, and again soon if the store
// failed. The locks that share a store have one renewer (detail/renewers.hpp), any other lock has
// its own. It renews on a thread of its own; or as a task on a scheduler, which makes its calls on
// store threads.
//
// The vigil starts the thread when the first renewal is due, so a hold that ends earlier costs no
// thread. The thread ends some time after the last hold. If it cannot be started, the vigil tries
// again as soon as after a renewal that failed. If that goes on until the end of the lease, the
// vigil declares the hold lost.
//
// The renewer makes one call at a time, the earliest due first. A call that hangs delays the
// renewals of this renewer, and no other's, for as long as the slot lets it hang:
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
#include <bide/durable/detail/per_process.hpp>
#include <bide/durable/detail/store_call.hpp>
#include <bide/durable/detail/try_to.hpp>
#include <bide/durable/detail/vigil.hpp>
#include <bide/durable/detail/watched.hpp>
#include <bide/durable/process.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/task.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
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

class renewer final : public watched, public std::enable_shared_from_this<renewer> {
public:
    explicit renewer(scheduler* where) : scheduler_(where), random_(std::random_device()()) {}
    ~renewer() override {
        if (alarm_ms_ != never && process_ == ::getpid()) {
            vigil::here().cancel(*this);
        }
    }

    // Renews it from now on, as long as it is active.
    // Throws: std::system_error where the vigil cannot be started, std::bad_alloc; on a scheduler,
    // what its spawn() throws.
    void add(const std::shared_ptr<hold>& one);

    // The vigil's: the first renewal is due.
    void happened() noexcept override;

private:
    static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
    static constexpr std::size_t least_holds = 16;   // that are looked through
    static constexpr std::int64_t idle_ms = 5'000;   // that the thread stays without a hold
    static constexpr std::int64_t failed_ms = 1'000; // until a round that failed is tried again

    // Renews what is due. For how many milliseconds there is nothing to do then; below zero: it has
    // stopped, as nothing is left.
    std::int64_t round(bool may_stop) noexcept;
    std::int64_t try_round(bool may_stop);
    static bool try_renew(hold& one) noexcept;
    std::int64_t failed_rest_ms() const noexcept; // under lock_

    // Under lock_:
    std::int64_t next_time(std::int64_t lease_ms, bool renewed);
    // Forgets the holds that have ended. Calls visit(shared_ptr<hold>&&) for any other one, which
    // does not throw. Returns when the next renewal is due.
    template <class Visit> std::int64_t look_through(Visit visit);
    std::int64_t look_through() {
        return look_through([](const std::shared_ptr<hold>&) {});
    }
    // Starts the runner at that time.
    void start_at(std::int64_t at_ms);
    bool start_thread() noexcept;

    // A child of fork() has the parent's memory of a runner, but not the runner. So it has a renewer
    // of its own. The parent's scheduler has no threads there either.
    std::shared_ptr<renewer> heir() {
        return heir_.get([] { return std::make_shared<renewer>(nullptr); });
    }

    static void run(void* self) noexcept;
    static task<void> run_task(std::shared_ptr<renewer> self);

    scheduler* const scheduler_;
    const pid_t process_ = ::getpid();
    semaphore nudge_{0};
    mutex lock_;
    std::vector<std::weak_ptr<hold>> holds_; // under lock_
    std::size_t most_holds_ = least_holds;   // under lock_: before some are forgotten
    bool running_ = false;                   // under lock_
    std::shared_ptr<renewer> self_;          // under lock_: from the start of a thread to its run
    std::int64_t alarm_ms_ = never;          // under lock_: when the vigil tells this one
    std::int64_t wakes_ms_ = 0;              // under lock_: when the runner looks again
    std::minstd_rand random_;                // under lock_
    std::int64_t shortest_ms_ = failed_ms;   // under lock_: the shortest lease so far
    per_process<std::shared_ptr<renewer>> heir_; // not under lock_: the fork may have found that held
};

inline std::int64_t renewer::next_time(std::int64_t lease_ms, bool renewed) {
    const std::int64_t third = std::max<std::int64_t>(lease_ms / 3, 1);
    const std::int64_t rest = renewed ? third : std::max<std::int64_t>(third / 10, 1);
    std::uniform_int_distribution<std::int64_t> jitter(rest - rest / 10, rest);
    return durable::boottime_ms() + jitter(random_);
}

inline std::int64_t renewer::failed_rest_ms() const noexcept {
    return std::max<std::int64_t>(shortest_ms_ / 30, 1);
}

template <class Visit> std::int64_t renewer::look_through(Visit visit) {
    std::int64_t next_ms = never;
    std::erase_if(holds_, [&](const std::weak_ptr<hold>& entry) {
        auto one = entry.lock();
        if (one == nullptr || !one->is_active()) {
            return true;
        }
        next_ms = std::min(next_ms, one->renew_at_ms);
        visit(std::move(one));
        return false;
    });
    most_holds_ = std::max(2 * holds_.size(), least_holds);
    return next_ms;
}

inline void renewer::start_at(std::int64_t at_ms) {
    if (at_ms < alarm_ms_) {
        vigil::here().alarm(shared_from_this(), at_ms);
        alarm_ms_ = at_ms;
    }
}

inline bool renewer::start_thread() noexcept {
    self_ = shared_from_this();
    running_ = !os_thread::start_detached(&run, this);
    if (!running_) {
        self_.reset();
    }
    return running_;
}

inline void renewer::add(const std::shared_ptr<hold>& one) {
    if (process_ != ::getpid()) {
        heir()->add(one);
        return;
    }
    const std::int64_t lease_ms = one->lease_ms();
    const std::lock_guard held(lock_);
    if (holds_.size() >= most_holds_) {
        look_through();
    }
    one->renew_at_ms = durable::boottime_ms() + std::max<std::int64_t>(lease_ms / 3, 1);
    shortest_ms_ = std::min(shortest_ms_, lease_ms);
    holds_.push_back(one);
    if (running_) {
        if (one->renew_at_ms < wakes_ms_) {
            nudge_.release();
        }
    } else if (scheduler_ != nullptr) { // at once: it may end before the first renewal is due
        scheduler_->spawn(run_task(shared_from_this()).named("bide: lease renewal")).detach();
        running_ = true;
    } else {
        start_at(one->renew_at_ms);
    }
}

inline void renewer::happened() noexcept {
    const std::lock_guard held(lock_);
    alarm_ms_ = never;
    if (running_) {
        return;
    }
    const std::int64_t now = durable::boottime_ms();
    const std::int64_t due_ms = look_through();
    if (due_ms == never || (due_ms <= now && start_thread())) {
        return;
    }
    // Without memory for it the vigil tells the end of the leases all the same.
    try_to([&] { start_at(std::max(due_ms, now + failed_rest_ms())); });
}

inline std::int64_t renewer::round(bool may_stop) noexcept {
    std::int64_t rest = 0;
    if (!try_to([&] { rest = try_round(may_stop); })) { // no memory, or the caller's clock
        const std::lock_guard held(lock_);
        rest = failed_rest_ms();
    }
    return rest;
}

// A lock whose slot or clock throws keeps no other one from its renewal.
inline bool renewer::try_renew(hold& one) noexcept {
    bool renewed = false;
    try_to([&] { renewed = one.is_active() && one.renew_apart().has_value(); });
    return renewed;
}

inline std::int64_t renewer::try_round(bool may_stop) {
    std::vector<std::shared_ptr<hold>> due;
    const std::int64_t now = durable::boottime_ms();
    {
        const std::lock_guard held(lock_);
        due.reserve(holds_.size());
        const std::int64_t due_ms = look_through([&](std::shared_ptr<hold>&& one) {
            if (one->renew_at_ms <= now) {
                due.push_back(std::move(one));
            }
        });
        const std::int64_t next_ms = std::min(due_ms, now + idle_ms);
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
    auto& self = *static_cast<renewer*>(argument);
    std::shared_ptr<renewer> alive;
    {
        const std::lock_guard held(self.lock_);
        alive = std::move(self.self_);
    }
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
