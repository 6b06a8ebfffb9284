// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_RENEWER_HPP
#define BIDE_DURABLE_DETAIL_RENEWER_HPP

// Renews the leases of guards, each after about a third of its length, and again soon if the store
// failed. All locks that share a store share one renewer (renewers); any other lock has
// its own. It renews on a thread of its own, or as a task on a scheduler, which calls the store on
// store threads.
//
// The lease monitor starts the thread when the first renewal is due. So a grant that ends earlier
// needs no thread. The thread ends 5 to 10 s after the last grant. If the thread cannot be started,
// the lease monitor tries again, after the same pause as after a failed renewal. If the lease ends
// before a thread could be started, the lease monitor declares the grant lost.
//
// The renewer makes one call at a time, the earliest due first. A call that hangs delays the
// renewals of this renewer only, for as long as the slot lets it hang:
// - Locks that share a store renew on the slot's for_renewals(). A call that hangs on a lock's own
//   slot does not delay them. A renewal that hangs delays the renewals of the same store: its
//   connection hangs then, too.
// - Any other lock renews on its own slot, with the turn. If a call hangs there, the renewal waits
//   for the turn until the end of the lease at most.
//
// When a lease ends, the lease monitor declares its grant lost in every case. The threads are
// detached: a store that hangs does not keep the process from ending.

#include <bide/core/config.hpp>
#include <bide/core/detail/os_thread.hpp>
#include <bide/core/detail/process_wide.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/grant.hpp>
#include <bide/durable/detail/lease_monitor.hpp>
#include <bide/durable/detail/per_process.hpp>
#include <bide/durable/detail/store_call.hpp>
#include <bide/durable/detail/try_to.hpp>
#include <bide/durable/process.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/task.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// Each grant has a reference to its renewer. The renewer has weak references to its grants. A
// caller of look_through() has a reference, too. So if a grant ends there, the renewer is not
// destroyed under its own lock.
class renewer final : public monitor_client, public std::enable_shared_from_this<renewer> {
public:
    explicit renewer(scheduler* where) : scheduler_(where), random_(std::random_device()()) {}
    ~renewer() override {
        if (alarm_ms_ != never && !copies_.is_inherited()) {
            lease_monitor::here().cancel(*this);
        }
    }

    // Renews the grant from now on, as long as it is active.
    // Throws: std::system_error if the lease monitor cannot be started, std::bad_alloc; on a
    // scheduler, what its spawn() throws.
    void add(const std::shared_ptr<grant>& one);

    // Called by the lease monitor: the first renewal is due.
    void happened() noexcept override;

private:
    static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
    static constexpr std::size_t least_grants = 16;  // added before ended ones are removed
    static constexpr std::int64_t idle_ms = 5'000;   // how long the thread stays without a grant
    static constexpr std::int64_t failed_ms = 1'000; // until a failed round is tried again

    // Renews the grants that are due. Returns the number of milliseconds until the next renewal is
    // due. A negative number means that it has stopped, because no grant is left.
    std::int64_t round(bool may_stop) noexcept;
    std::int64_t try_round(bool may_stop);
    static bool try_renew(grant& one) noexcept;
    std::int64_t failed_rest_ms() const noexcept; // under lock_

    // Under lock_:
    std::int64_t next_time(std::int64_t lease_ms, bool renewed);
    // Removes the grants that have ended. Calls visit(shared_ptr<grant>&&) for each grant that has
    // not ended; visit does not throw. Returns when the next renewal is due.
    template <class Visit> std::int64_t look_through(Visit visit);
    std::int64_t look_through() {
        return look_through([](const std::shared_ptr<grant>&) {});
    }
    // Starts the runner at that time.
    void start_at(std::int64_t at_ms);
    bool start_thread() noexcept;

    static void run(void* self) noexcept;
    static task<void> run_task(std::shared_ptr<renewer> self);

    scheduler* const scheduler_;
    semaphore nudge_{0};
    mutex lock_;
    std::vector<std::weak_ptr<grant>> grants_; // under lock_
    std::size_t most_grants_ = least_grants; // under lock_: how many before ended ones are removed
    bool running_ = false;                   // under lock_
    std::shared_ptr<renewer> self_;          // under lock_: from the start of a thread to its run
    std::int64_t alarm_ms_ = never; // under lock_: when the lease monitor notifies this renewer
    std::int64_t wakes_ms_ = 0;     // under lock_: when the runner wakes
    std::minstd_rand random_;       // under lock_
    std::int64_t shortest_ms_ = failed_ms; // under lock_: the shortest lease so far
    copies_in_children<renewer> copies_;
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
    std::erase_if(grants_, [&](const std::weak_ptr<grant>& entry) {
        auto one = entry.lock();
        if (one == nullptr || !one->is_active()) {
            return true;
        }
        next_ms = std::min(next_ms, one->renew_at_ms);
        visit(std::move(one));
        return false;
    });
    most_grants_ = std::max(2 * grants_.size(), least_grants);
    return next_ms;
}

inline void renewer::start_at(std::int64_t at_ms) {
    if (at_ms < alarm_ms_) {
        lease_monitor::here().alarm(shared_from_this(), at_ms);
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

inline void renewer::add(const std::shared_ptr<grant>& one) {
    if (copies_.is_inherited()) { // the parent's scheduler has no threads here either
        copies_.copy([] { return std::make_shared<renewer>(nullptr); }).add(one);
        return;
    }
    const std::int64_t lease_ms = one->lease_ms();
    const std::lock_guard held(lock_);
    if (grants_.size() >= most_grants_) {
        look_through();
    }
    one->renew_at_ms = durable::boottime_ms() + std::max<std::int64_t>(lease_ms / 3, 1);
    shortest_ms_ = std::min(shortest_ms_, lease_ms);
    grants_.push_back(one);
    one->renewed_by = shared_from_this();
    if (running_) {
        if (one->renew_at_ms < wakes_ms_) {
            nudge_.release();
        }
    } else if (scheduler_ !=
               nullptr) { // now: the scheduler may end before the first renewal is due
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
    // If there is no memory for that, the lease monitor still declares the grants lost in time.
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

// If the slot or the clock of a lock throws, the other locks are renewed nevertheless.
inline bool renewer::try_renew(grant& one) noexcept {
    bool renewed = false;
    try_to([&] { renewed = one.is_active() && one.renew_apart().has_value(); });
    return renewed;
}

inline std::int64_t renewer::try_round(bool may_stop) {
    std::vector<std::shared_ptr<grant>> due;
    const std::int64_t now = durable::boottime_ms();
    {
        const std::lock_guard held(lock_);
        due.reserve(grants_.size());
        const std::int64_t due_ms = look_through([&](std::shared_ptr<grant>&& one) {
            if (one->renew_at_ms <= now) {
                due.push_back(std::move(one));
            }
        });
        const std::int64_t next_ms = std::min(due_ms, now + idle_ms);
        if (grants_.empty() && may_stop) {
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

// The renewers of this process, by the name of their store: locks that share a store share one
// renewer and its thread. An entry is removed with its last lock. A child of fork() has a table of
// its own.
class BIDE_SHARED renewers {
public:
    // Throws: std::bad_alloc.
    static std::shared_ptr<renewer> of(const std::string& store) {
        renewers& all = here();
        const std::lock_guard held(all.lock_);
        auto& entry = all.by_store_[store];
        auto found = entry.lock();
        if (found == nullptr) {
            found = std::shared_ptr<renewer>(new renewer(nullptr), forget{store});
            entry = found;
        }
        return found;
    }

    // Returns how many stores have a renewer at this moment.
    static std::size_t count() {
        renewers& all = here();
        const std::lock_guard held(all.lock_);
        return all.by_store_.size();
    }

private:
    struct forget {
        std::string store;
        void operator()(renewer* gone) const {
            delete gone;
            renewers& all = here();
            const std::lock_guard held(all.lock_);
            const auto entry = all.by_store_.find(store);
            if (entry != all.by_store_.end() && entry->second.expired()) {
                all.by_store_.erase(entry);
            }
        }
    };

    static renewers& here() {
        renewers* const all =
            process_wide<renewers, native_platform>::get(+[] { return new renewers; });
        if (all == nullptr) {
            throw_error(std::make_error_code(std::errc::not_enough_memory));
        }
        return *all;
    }

    mutex lock_;
    std::map<std::string, std::weak_ptr<renewer>> by_store_; // under lock_
};

}}} // namespace bide::BIDE_ABI::detail

#endif
