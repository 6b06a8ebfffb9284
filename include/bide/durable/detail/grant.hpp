// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_GRANT_HPP
#define BIDE_DURABLE_DETAIL_GRANT_HPP

// A grant of a durable lock, its renewals, and the time at which its lease ends on this machine. A
// renewal that the store has confirmed moves that time forward; nothing moves it back. At that time
// the lease monitor declares the grant lost, even if the store hangs or fails. It warns the holder
// before (durable_options::warn_before).

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/process_wide.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/background.hpp>
#include <bide/durable/detail/lock_engine.hpp>
#include <bide/durable/detail/store_call.hpp>
#include <bide/durable/detail/try_to.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/observer.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/ticket.hpp>
#include <bide/sync/mutex.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <unistd.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

class acquisition;

class grant final : public monitor_client, public std::enable_shared_from_this<grant> {
public:
    // With a mark of presence, the grant is bound to the mark and not to its lease.
    grant(std::shared_ptr<lock_engine> engine, durable_ticket given, std::int64_t lane,
          std::int64_t good_until_ms, std::shared_ptr<slot_presence> mark = nullptr)
        : engine_(std::move(engine)), ticket_(std::move(given)), lane_(lane),
          mark_(std::move(mark)),
          good_until_ms_(mark_ != nullptr ? lease_monitor::never : good_until_ms) {}

    const durable_ticket& ticket() const noexcept { return ticket_; }
    std::int64_t lane() const noexcept { return lane_; }
    std::stop_token lost() const noexcept { return lost_.get_token(); }
    std::stop_token at_risk() const noexcept { return at_risk_.get_token(); }
    durable_loss loss() const noexcept;
    int descriptor() const noexcept { return mark_ != nullptr ? mark_->fd() : -1; }
    bool is_inheritable() const noexcept { return mark_ != nullptr; }

    bool is_held() const noexcept {
        return good_until() > durable::boottime_ms() && is_active() && is_ours();
    }
    std::chrono::milliseconds remaining() const noexcept {
        return std::chrono::milliseconds(
            is_held() ? std::max<std::int64_t>(good_until() - durable::boottime_ms(), 0) : 0);
    }

    // Starts the monitoring of the lease.
    // Throws: std::system_error, std::bad_alloc.
    void begin() { monitor_until(good_until() - engine_->warn_before_ms()); }

    // Renews on this thread. The second function is for renewals in the background.
    result<void, std::error_code> renew() {
        return renew_by([this] { return engine_->renew(ticket_); });
    }
    result<void, std::error_code> renew_apart() {
        return renew_by(
            [this] { return engine_->renew_apart(ticket_, deadline::after(remaining())); });
    }

    // release() consists of stop_holding(), which calls no store, and give_back(), which does.
    // stop_holding() returns true if the grant was held until this call.
    bool stop_holding() noexcept {
        const bool in_time = is_held() && retire();
        leave();
        return in_time;
    }
    result<void, std::error_code> give_back(bool in_time);
    // Closes the mark of presence in this process. Returns true if a child has the mark open; the
    // grant then lasts until the last child has closed it. Returns false if the grant is released.
    result<bool, std::error_code> hand_over();

    // Detaches the ticket: the ticket keeps the permits when this object is destroyed.
    // Throws: std::bad_alloc; then nothing changes.
    void detach() {
        if (is_ours()) {
            engine_->keep_mark(ticket_);
        }
        leave();
    }

    // Stops the monitoring and the renewals.
    void leave() noexcept;

    // Returns true if the grant was not released, left or lost.
    bool is_active() const noexcept {
        // Order: acquire [grant.retire]; a renewal that finds it inactive comes after leave().
        return active_.load(std::memory_order_acquire);
    }

    // Called by the lease monitor: the end has come, or has moved on.
    void happened() noexcept override;

    std::int64_t lease_ms() const noexcept { return engine_->options().lease.count(); }

    // True if calls for it run on store threads, as a coroutine acquired it.
    bool is_elsewhere = false;

    // Returns how long a call for it may take.
    call_limits retry_time() const { return engine_->retry_time(); }

    std::int64_t renew_at_ms = 0; // used by the renewer: when the next renewal is due

private:
    std::int64_t good_until() const noexcept {
        // Order: relaxed; the number publishes nothing else.
        return good_until_ms_.load(std::memory_order_relaxed);
    }
    void extend(std::int64_t good_until_ms) noexcept;
    void monitor_until(std::int64_t at_ms) {
        if (mark_ == nullptr) {
            lease_monitor::here().alarm(shared_from_this(), at_ms);
        }
    }
    durable_observer* observer() const noexcept { return engine_->options().observer.get(); }
    template <class Renew> result<void, std::error_code> renew_by(Renew renew);

    // Returns true to one caller: the one that releases it, or the one that finds it lost.
    bool retire() noexcept {
        // Order: acq_rel [grant.retire]; a thread that renews sees what this thread did before.
        return active_.exchange(false, std::memory_order_acq_rel);
    }
    void lose(durable_loss why) noexcept;

    // A child of fork() has a copy of its parent's grant, and does not own it.
    bool is_ours() const noexcept { return process_ == ::getpid(); }

    const std::shared_ptr<lock_engine> engine_;
    const durable_ticket ticket_;
    const std::int64_t lane_;
    std::shared_ptr<slot_presence> mark_;
    const pid_t process_ = ::getpid();
    native_platform::atomic<std::int64_t> good_until_ms_;
    native_platform::atomic<bool> active_{true};
    native_platform::atomic<durable_loss> loss_{durable_loss::none};
    const std::int64_t begun_ms_ = durable::boottime_ms();
    std::stop_source at_risk_;
    std::stop_source lost_;
};

inline durable_loss grant::loss() const noexcept {
    if (!is_ours()) {
        return durable_loss::forked;
    }
    // Order: relaxed; the reason publishes nothing else.
    const durable_loss why = loss_.load(std::memory_order_relaxed);
    return why == durable_loss::none && good_until() <= durable::boottime_ms()
               ? durable_loss::expired // the lease monitor has not noticed yet
               : why;
}

inline void grant::lose(durable_loss why) noexcept {
    if (!retire()) {
        return;
    }
    // Order: relaxed; a callback of lost_ runs on this thread, or after the stop was requested.
    loss_.store(why, std::memory_order_relaxed);
    if (observer() != nullptr) {
        observer()->lost(ticket_, why);
    }
    lost_.request_stop();
}

inline void grant::extend(std::int64_t good_until_ms) noexcept {
    std::int64_t known = good_until();
    // Order: relaxed, both; the number publishes nothing else.
    while (known < good_until_ms &&
           !good_until_ms_.compare_exchange_weak(known, good_until_ms, std::memory_order_relaxed,
                                                 std::memory_order_relaxed)) {
    }
}

inline void grant::happened() noexcept {
    if (!is_active()) {
        return;
    }
    const std::int64_t left = good_until() - durable::boottime_ms();
    if (left <= 0) {
        lose(durable_loss::expired);
        return;
    }
    const bool warns = left <= engine_->warn_before_ms();
    if (warns && observer() != nullptr) {
        observer()->at_risk(ticket_, std::chrono::milliseconds(left));
    }
    if (warns) {
        at_risk_.request_stop();
    }
    // Without memory no monitor would tell when the lease ends.
    if (!try_to([&] { warns ? monitor_until(good_until()) : begin(); })) {
        lose(durable_loss::expired);
    }
}

template <class Renew> result<void, std::error_code> grant::renew_by(Renew renew) {
    if (!is_held()) {
        return unexpected{make_error_code(durable_errc::lock_lost)};
    }
    const auto renewed = renew();
    if (!renewed) {
        return unexpected{renewed.error()};
    }
    if (!*renewed) { // unless it was released meanwhile
        lose(remaining().count() == 0 ? durable_loss::expired : durable_loss::removed);
        return unexpected{make_error_code(durable_errc::lock_lost)};
    }
    const std::chrono::milliseconds left = remaining();
    if (observer() != nullptr && left.count() < lease_ms() / 2) {
        observer()->renewed_late(ticket_, left);
    }
    extend(**renewed);
    if (!is_held()) { // the renewal was confirmed too late
        return unexpected{make_error_code(durable_errc::lock_lost)};
    }
    return {};
}

inline void grant::leave() noexcept {
    retire();
    if (is_ours()) { // without a monitor, and without memory for one, nothing is to cancel
        try_to([this] { lease_monitor::here().cancel(*this); });
    }
}

inline result<void, std::error_code> grant::give_back(bool in_time) {
    if (!is_ours()) {
        return unexpected{make_error_code(durable_errc::lock_lost)};
    }
    const auto released = engine_->release(ticket_);
    if (!released) {
        return unexpected{released.error()};
    }
    if (!*released || !in_time) {
        return unexpected{make_error_code(durable_errc::lock_lost)};
    }
    if (observer() != nullptr) {
        observer()->released(ticket_,
                             std::chrono::milliseconds(durable::boottime_ms() - begun_ms_));
    }
    return {};
}

inline result<bool, std::error_code> grant::hand_over() {
    const bool in_time = stop_holding();
    if (mark_ == nullptr || !in_time) {
        auto released = give_back(in_time);
        return released ? result<bool, std::error_code>(false) : unexpected{released.error()};
    }
    const std::int64_t mark = std::exchange(mark_, nullptr)->mark();
    // If it is unknown, contenders wait for its lease.
    if (engine_->on().is_present(mark) != presence::no) {
        return true;
    }
    // If a contender has seen that no process has the mark open, it may have removed the grant
    // already. That counts as a release, too.
    const auto released = engine_->release(ticket_);
    return released ? result<bool, std::error_code>(false) : unexpected{released.error()};
}

// ---- calls of guards

using grant_ptr = std::shared_ptr<grant>;

// Calls what(), which may call the store for this grant. If a coroutine acquired the grant, what()
// runs on a store thread, otherwise on this thread.
template <class What>
auto call_for(const grant_ptr& held, What what, call_kind kind = call_kind::may_be_skipped)
    -> decltype(what()) {
    return held->is_elsewhere ? call_store<decltype(what())>(what, held->retry_time(), kind)
                              : what();
}

inline auto renewing(const grant_ptr& held) {
    return [held] { return held->renew(); };
}
inline auto giving_back(const grant_ptr& held) {
    return [held, in_time = held->stop_holding()] { return held->give_back(in_time); };
}
inline result<void, std::error_code> release_grant(const grant_ptr& held) {
    return call_for(held, giving_back(held), call_kind::has_to_run);
}
inline result<bool, std::error_code> hand_over_grant(const grant_ptr& held) {
    return call_for(held, [held] { return held->hand_over(); }, call_kind::has_to_run);
}

// Ends a grant as release_grant() does, or as hand_over_grant() does if the grant is inheritable.
// Does nothing if the grant has ended.
inline void end_grant(const grant_ptr& held) noexcept {
    const auto end = [&held] {
        if (held->is_inheritable()) {
            static_cast<void>(hand_over_grant(held));
        } else {
            static_cast<void>(release_grant(held));
        }
    };
    if (!held->is_held()) { // another contender may hold it now; a store that hangs is not called
        held->leave();
        return;
    }
    if (!try_to(end)) { // the grant ends with its lease
        held->leave();
    }
}

// ---- renewals

// Renews the leases of guards, each after about a third of its length, and again soon if the store
// failed. All locks that share a store share one renewer (renewers); any other lock has its own.
//
// A renewer makes one call at a time, and always the one that is due first. A call that hangs
// delays only the other renewals of the same renewer, until the slot gives up the call:
// - Locks that share a store renew on the slot's for_renewals(). A call that hangs on a lock's own
//   slot does not delay them. A renewal that hangs delays all renewals on that store, because they
//   share its connection.
// - Any other lock renews on its own slot. The renewal needs the turn, a mutex (process_part). If a
//   call that has the turn hangs, the renewal waits for the turn, at most until the lease ends.
//
// When a lease ends, the lease monitor declares its grant lost in every case.
class renewer final : public background_job {
public:
    renewer() : background_job(&store_threads::post_renewal) {}

    // Renews the grant from now on, as long as it is active.
    // Throws: as background_job::wake_at().
    void add(const grant_ptr& one) {
        std::int64_t at_ms = 0;
        {
            const std::lock_guard held(lock_);
            if (grants_.size() >= most_grants_) {
                look_through([](const grant_ptr&) {});
            }
            at_ms = one->renew_at_ms = next_time(one->lease_ms(), true);
            grants_.push_back(one);
        }
        wake_at(at_ms);
    }

private:
    static constexpr std::size_t least_grants = 16; // added before ended ones are removed

    std::int64_t due_ms() noexcept override {
        const std::lock_guard held(lock_);
        return look_through([](const grant_ptr&) {});
    }
    std::int64_t work() noexcept override;

    // If the slot or the clock of a lock throws, the other locks are renewed nevertheless.
    static bool try_renew(grant& one) noexcept {
        bool renewed = false;
        try_to([&] { renewed = one.is_active() && one.renew_apart().has_value(); });
        return renewed;
    }

    // Under lock_:
    std::int64_t next_time(std::int64_t lease_ms, bool renewed) {
        const std::int64_t third = std::max<std::int64_t>(lease_ms / 3, 1);
        const std::int64_t rest = renewed ? third : std::max<std::int64_t>(third / 10, 1);
        std::uniform_int_distribution<std::int64_t> jitter(rest - rest / 10, rest);
        return durable::boottime_ms() + jitter(random_);
    }
    // Removes the grants that have ended. Calls visit(grant_ptr) for each of the others; visit must
    // not throw. Returns when the next renewal is due.
    template <class Visit> std::int64_t look_through(Visit visit) {
        std::int64_t next_ms = never;
        std::erase_if(grants_, [&](const std::weak_ptr<grant>& entry) {
            const grant_ptr one = entry.lock();
            if (one == nullptr || !one->is_active()) {
                return true;
            }
            next_ms = std::min(next_ms, one->renew_at_ms);
            visit(one);
            return false;
        });
        most_grants_ = std::max(2 * grants_.size(), least_grants);
        return next_ms;
    }

    mutex lock_;
    // Under lock_:
    std::vector<std::weak_ptr<grant>> grants_;
    std::size_t most_grants_ = least_grants; // how many before ended ones are removed
    std::minstd_rand random_{std::random_device()()};
};

inline std::int64_t renewer::work() noexcept {
    std::vector<grant_ptr> due;
    const std::int64_t now = durable::boottime_ms();
    const auto collect = [&] {
        const std::lock_guard held(lock_);
        due.reserve(grants_.size());
        return look_through([&](const grant_ptr& one) {
            if (one->renew_at_ms <= now) {
                due.push_back(one);
            }
        });
    };
    std::int64_t next_ms = now + 100; // if there is no memory
    try_to([&] { next_ms = collect(); });
    std::sort(due.begin(), due.end(), [](const grant_ptr& a, const grant_ptr& b) {
        return a->renew_at_ms < b->renew_at_ms;
    });
    for (const grant_ptr& one : due) {
        const bool renewed = try_renew(*one);
        const std::lock_guard held(lock_);
        one->renew_at_ms = next_time(one->lease_ms(), renewed);
    }
    return next_ms; // if it is past, the job works once more, and finds the next time
}

// The renewers of this process, by the name of their store. A child of fork() has a table of its
// own.
class BIDE_SHARED renewers {
public:
    // Throws: std::bad_alloc.
    static std::shared_ptr<renewer> of(const std::string& store) {
        renewers& all = here();
        const std::lock_guard held(all.lock_);
        std::erase_if(all.by_store_, [](const auto& entry) { return entry.second.expired(); });
        auto& entry = all.by_store_[store];
        auto found = entry.lock();
        if (found == nullptr) {
            entry = found = std::make_shared<renewer>();
        }
        return found;
    }

    // Returns how many stores have a renewer at this moment.
    static std::size_t count() {
        renewers& all = here();
        const std::lock_guard held(all.lock_);
        std::erase_if(all.by_store_, [](const auto& entry) { return entry.second.expired(); });
        return all.by_store_.size();
    }

private:
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

// Renews the lease of the grant in the background, if the options of its lock say so.
// Throws: as renewer::add().
inline void renew_in_background(const grant_ptr& one, lock_engine& of) {
    if (of.options().auto_renew) {
        of.renewer
            .get([&of] {
                return of.store().empty() ? std::make_shared<renewer>() : renewers::of(of.store());
            })
            ->add(one);
    }
}

}}} // namespace bide::BIDE_ABI::detail

#endif
