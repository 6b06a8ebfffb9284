// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_WITHDRAWALS_HPP
#define BIDE_DURABLE_DETAIL_WITHDRAWALS_HPP

// Takes back what the acquisitions of one lock left in the store: a place in the queue, or a grant.
//
// It works in the background, on one store thread for each lock, and again after a pause while the
// store fails. An entry is dropped when its time in the record ends.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/timer.hpp>
#include <bide/core/wake_scope.hpp>
#include <bide/core/waker.hpp>
#include <bide/durable/detail/lease_monitor.hpp>
#include <bide/durable/detail/lock_engine.hpp>
#include <bide/durable/detail/per_process.hpp>
#include <bide/durable/detail/store_call.hpp>
#include <bide/durable/detail/try_to.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/ticket.hpp>
#include <bide/sync/mutex.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace detail {

class withdrawals final : public monitor_client, public std::enable_shared_from_this<withdrawals> {
public:
    explicit withdrawals(std::shared_ptr<lock_engine> engine) : engine_(std::move(engine)) {
        runs_.run = waker(&run, this);
    }

    struct entry {
        durable_ticket ticket{};
        bool is_there = true; // it may be in the record
        lock_engine::taking_back how{};
        bool ends_waiting = false; // it is counted as a waiter of this process
        bool hears_all = false;    // such a one
        std::int64_t until_ms = 0; // when its time in the record ends, on boottime_ms()
    };

    // Takes the entry back soon. Calls no store. If there is no thread or no memory for it, the
    // entry ends with its time in the record.
    void add(entry left) noexcept;

    // Called by the lease monitor: the pause is over.
    void happened() noexcept override { post(); }

private:
    static constexpr std::int64_t least_pause_ms = 10;
    static constexpr std::int64_t most_pause_ms = 1'000;

    static void run(void* self) noexcept;
    bool try_all() noexcept;
    bool is_done(entry& one) noexcept;
    void post() noexcept;
    void pause() noexcept;

    const std::shared_ptr<lock_engine> engine_;
    copies_in_children<withdrawals> copies_;
    runnable runs_;
    mutex lock_;
    // Under lock_:
    std::vector<entry> entries_;
    std::shared_ptr<withdrawals> self_; // set while it is posted, runs or pauses
    // Used by the runner:
    std::int64_t pause_ms_ = least_pause_ms;
};

inline void withdrawals::add(entry left) noexcept {
    if (copies_.is_inherited()) {
        try_to([&] {
            copies_.copy([this] { return std::make_shared<withdrawals>(engine_); })
                .add(std::move(left));
        });
        return;
    }
    const durable_options& o = engine_->options();
    left.until_ms = durable::boottime_ms() + std::max(o.lease.count(), o.waiter_ttl.count());
    {
        const std::lock_guard held(lock_);
        if (!try_to([&] { entries_.push_back(std::move(left)); }) || self_ != nullptr) {
            return;
        }
        self_ = shared_from_this();
    }
    post();
}

inline void withdrawals::post() noexcept {
    if (store_threads::post(runs_)) {
        pause();
    }
}

inline void withdrawals::pause() noexcept {
    const std::int64_t at = durable::boottime_ms() + pause_ms_;
    pause_ms_ = std::min(2 * pause_ms_, most_pause_ms);
    if (!try_to([&] { lease_monitor::here().alarm(shared_from_this(), at); })) {
        const std::lock_guard held(lock_);
        entries_.clear();
        self_.reset(); // the caller has a reference
    }
}

inline void withdrawals::run(void* self) noexcept {
    auto& me = *static_cast<withdrawals*>(self);
    std::shared_ptr<withdrawals> alive; // destroyed after the lock is released
    const wake_scope<native_platform> away(&service_executor<native_platform>);
    while (me.try_all()) {
        const std::lock_guard held(me.lock_);
        if (me.entries_.empty()) {
            me.pause_ms_ = least_pause_ms;
            alive = std::move(me.self_);
            return;
        }
    }
    {
        const std::lock_guard held(me.lock_);
        alive = me.self_;
    }
    me.pause();
}

// Returns false if the store has failed and an entry is left.
inline bool withdrawals::try_all() noexcept {
    std::vector<entry> all;
    {
        const std::lock_guard held(lock_);
        all.swap(entries_);
    }
    std::erase_if(all, [this](entry& one) { return is_done(one); });
    if (all.empty()) {
        return true;
    }
    const std::lock_guard held(lock_);
    if (entries_.empty()) {
        entries_.swap(all);
        return false;
    }
    // If there is no memory for them, the entries end with their time in the record.
    try_to([&] { entries_.insert(entries_.end(), all.begin(), all.end()); });
    return false;
}

inline bool withdrawals::is_done(entry& one) noexcept {
    if (std::exchange(one.ends_waiting, false)) {
        engine_->end_waiting(one.hears_all);
    }
    if (!one.is_there) {
        return true;
    }
    bool is_settled = false;
    try_to([&] { // it may throw: no memory, or the clock of the caller
        const auto gone = engine_->release(one.ticket, one.how);
        is_settled = gone || !may_pass(gone.error());
    });
    return is_settled || durable::boottime_ms() >= one.until_ms;
}

}}} // namespace bide::BIDE_ABI::detail

#endif
