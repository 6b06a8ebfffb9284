// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_ACQUISITION_HPP
#define BIDE_DURABLE_DETAIL_ACQUISITION_HPP

// A grant of a durable lock, and an acquisition, which is what precedes it:
//
//   grant         keeps the time at which its lease ends on this machine, and renews the lease
//   withdrawal    removes from the record what an acquisition has left there
//   acquisition   goes from its first try to a guard or an error

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/background.hpp>
#include <bide/durable/detail/lock_engine.hpp>
#include <bide/durable/detail/try_to.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/guard.hpp>
#include <bide/durable/observer.hpp>
#include <bide/durable/options.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/ticket.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/task/task.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
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

#include <unistd.h>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// ---- a grant

class grant final : public monitor_client,
                    public background_job,
                    public std::enable_shared_from_this<grant> {
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

    bool is_held() const noexcept {
        return good_until() > durable::boottime_ms() && is_active() && is_ours();
    }
    std::chrono::milliseconds remaining() const noexcept {
        return std::chrono::milliseconds(
            is_held() ? std::max<std::int64_t>(good_until() - durable::boottime_ms(), 0) : 0);
    }

    // Starts the monitoring of the lease, and its renewals if the options say so.
    // Throws: std::system_error, std::bad_alloc.
    void begin();

    // Renews on this thread. In the background, a renewal takes at most the rest of the lease.
    result<void, std::error_code> renew(bool in_background = false);

    // A release consists of stop_holding(), which calls no store, and give_back(), which does.
    // stop_holding() returns true if the grant was held until this call.
    bool stop_holding() noexcept {
        const bool in_time = is_held() && retire();
        leave();
        return in_time;
    }
    // Releases the permits. If `hands_over` is true and the grant is inheritable, first closes the
    // mark of presence in this process. Returns true if a child has the mark open; the grant then
    // lasts until the last child has closed it.
    result<bool, std::error_code> give_back(bool in_time, bool hands_over);

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
    // Renews in the background.
    std::int64_t work() noexcept override;

    // True if calls for it run on store threads, as a coroutine acquired it.
    bool is_elsewhere = false;

    // Returns how long a call for it may take.
    call_limits retry_time() const { return engine_->retry_time(); }

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
    std::int64_t warning_ms() const noexcept { return good_until() - engine_->warn_before_ms(); }
    std::int64_t next_renewal(bool renewed) const noexcept;
    durable_observer& observer() const noexcept { return engine_->observer(); }

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
    std::shared_ptr<job_queue> renewals_; // nullptr: it is not renewed in the background
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
    observer().lost(ticket_, why);
    leave();
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
    if (warns) {
        observer().at_risk(ticket_, std::chrono::milliseconds(left));
        at_risk_.request_stop();
    }
    // Without memory no monitor would tell when the lease ends.
    if (!try_to([&] { monitor_until(warns ? good_until() : warning_ms()); })) {
        lose(durable_loss::expired);
    }
}

inline result<void, std::error_code> grant::renew(bool in_background) {
    if (is_held()) {
        const auto renewed = engine_->renew(
            ticket_, in_background ? deadline::after(remaining()) : deadline::never(),
            in_background);
        if (!renewed) {
            return unexpected{renewed.error()};
        }
        const std::chrono::milliseconds left = remaining();
        if (!*renewed) { // unless it was released meanwhile
            lose(left.count() == 0 ? durable_loss::expired : durable_loss::removed);
        } else {
            if (left < engine_->options().lease / 2) {
                observer().renewed_late(ticket_, left);
            }
            extend(**renewed);
        }
    }
    return is_held() ? result<void, std::error_code>()
                     : unexpected{make_error_code(durable_errc::lock_lost)};
}

inline result<bool, std::error_code> grant::give_back(bool in_time, bool hands_over) {
    if (!is_ours()) {
        return unexpected{make_error_code(durable_errc::lock_lost)};
    }
    bool may_be_gone = false;
    if (hands_over && in_time && mark_ != nullptr) {
        const std::int64_t mark = std::exchange(mark_, nullptr)->mark();
        // If it is unknown, contenders wait for its lease.
        if (engine_->on().is_present(mark) != presence::no) {
            return true;
        }
        // A contender that saw the closed mark may have removed the grant before this release. The
        // permits are then free, so this is no error.
        may_be_gone = true;
    }
    const auto released = engine_->release(ticket_);
    if (!released) {
        return released;
    }
    if (!in_time || !(*released || may_be_gone)) {
        return unexpected{make_error_code(durable_errc::lock_lost)};
    }
    observer().released(ticket_, std::chrono::milliseconds(durable::boottime_ms() - begun_ms_));
    return false;
}

using grant_ptr = std::shared_ptr<grant>;

// Ends the grant in this process. Returns a function that calls the store to release the grant in
// the record.
inline auto giving_back(const grant_ptr& held, bool hands_over = false) {
    return [held, hands_over, in_time = held->stop_holding()] {
        return held->give_back(in_time, hands_over);
    };
}

// Calls what(), which may call the store for this grant. If a coroutine acquired the grant, what()
// runs on a store thread, otherwise on this thread.
template <class What>
auto call_for(const grant_ptr& held, What what, call_kind kind = call_kind::has_to_run)
    -> decltype(what()) {
    return held->is_elsewhere ? call_store<decltype(what())>(what, held->retry_time(), kind)
                              : what();
}

// ---- renewals

// The job queues for renewals, by the name of their store.
struct BIDE_SHARED renewal_queues {
    mutex lock;
    std::map<std::string, std::weak_ptr<job_queue>> by_store; // under the lock
};

// Returns the queue for the renewals of a lock on that store. A child of fork() has queues of its
// own.
//
// The lease of a guard is renewed each time that about a third of it has passed, and again soon if
// the store failed. All locks that share a store share one queue; any other lock has its own. A
// call that hangs delays the other renewals of the same queue, until the slot gives up the call:
// - Locks that share a store renew on the slot's for_renewals(). A call that hangs on a lock's own
//   slot does not delay them. A renewal that hangs delays all renewals on that store, because they
//   share its connection.
// - Any other lock renews on its own slot. The renewal needs the turn, a mutex (slot_part). If a
//   call that has the turn hangs, the renewal waits for the turn, at most until the lease ends.
//
// When a lease ends, the lease monitor declares its grant lost in every case.
// Throws: std::bad_alloc, std::system_error.
inline std::shared_ptr<job_queue> renewal_queue(const std::string& store) {
    auto made = std::make_shared<job_queue>(&store_threads::post_renewal);
    if (store.empty()) {
        return made;
    }
    auto& all = of_process<renewal_queues>();
    const std::lock_guard held(all.lock);
    std::erase_if(all.by_store, [](const auto& entry) { return entry.second.expired(); });
    auto& entry = all.by_store[store];
    auto shared = entry.lock();
    if (shared == nullptr) {
        entry = shared = std::move(made);
    }
    return shared;
}

inline void grant::begin() {
    if (engine_->options().auto_renew) {
        renewals_ = engine_->renewals.get([this] { return renewal_queue(engine_->store()); });
        renewals_->add(shared_from_this(), next_renewal(true));
    }
    monitor_until(warning_ms());
}

// Spreads the renewals: they come up to a tenth earlier.
inline std::int64_t grant::next_renewal(bool renewed) const noexcept {
    const std::int64_t third = std::max<std::int64_t>(engine_->options().lease.count() / 3, 1);
    const std::int64_t rest = renewed ? third : std::max<std::int64_t>(third / 10, 1);
    const std::int64_t now = durable::boottime_ms();
    const std::uint64_t any = static_cast<std::uint64_t>(ticket_.fence + now) * 0x9e3779b97f4a7c15;
    return now + rest -
           static_cast<std::int64_t>((any >> 32) % static_cast<std::uint64_t>(rest / 10 + 1));
}

inline std::int64_t grant::work() noexcept {
    bool renewed = false;
    // If the slot or the clock of a lock throws, the lock is renewed nevertheless.
    try_to([&] { renewed = renew(true).has_value(); });
    return is_active() ? next_renewal(renewed) : never;
}

inline void grant::leave() noexcept {
    retire();
    if (is_ours()) { // without a monitor, and without memory for one, nothing is to cancel
        try_to([this] { lease_monitor::here().cancel(*this); });
        if (renewals_ != nullptr) {
            renewals_->remove(*this);
        }
    }
}

// ---- what is taken back

using engine_ptr = std::shared_ptr<lock_engine>;

// Removes from the record what an acquisition has left there: a place in the queue, or a grant. If
// the store fails, tries again after a pause, until the entry has expired in the record.
class withdrawal final : public background_job {
public:
    withdrawal(engine_ptr of, durable_ticket ticket, durable::release_terms how) noexcept
        : engine_(std::move(of)), ticket_(std::move(ticket)), how_(how),
          until_ms_(durable::boottime_ms() + std::max(engine_->options().lease.count(),
                                                      engine_->options().waiter_ttl.count())) {}

    // Begins in the background. Calls no store. If there is no thread or no memory for the job, the
    // entry stays in the record until it expires.
    static void begin(const engine_ptr& of, durable_ticket ticket,
                      durable::release_terms how) noexcept {
        try_to([&] {
            of->withdrawals.get([] { return std::make_shared<job_queue>(&store_threads::post); })
                ->add(std::make_shared<withdrawal>(of, std::move(ticket), how),
                      durable::boottime_ms());
        });
    }

    std::int64_t work() noexcept override {
        bool is_settled = false;
        try_to([&] { // it may throw: no memory, or the clock of the caller
            const auto gone = engine_->release(ticket_, how_);
            is_settled = gone || !may_pass(gone.error());
        });
        const std::int64_t now = durable::boottime_ms();
        return is_settled || now >= until_ms_
                   ? never
                   : now + std::exchange(pause_ms_, std::min<std::int64_t>(2 * pause_ms_, 1'000));
    }

private:
    const engine_ptr engine_;
    const durable_ticket ticket_;
    const durable::release_terms how_;
    const std::int64_t until_ms_; // when the entry expires in the record
    std::int64_t pause_ms_ = 10;
};

// ---- an acquisition

inline durable_ticket ticket_of(const lock_engine& engine, std::string holder_id,
                                std::int64_t weight, bool process_bound) {
    if (holder_id.empty()) {
        holder_id = engine.options().holder_id;
    }
    if (holder_id.empty()) {
        holder_id = durable::this_host() + ":" + std::to_string(::getpid());
    }
    return {std::move(holder_id), fresh_nonce(), weight, process_bound, 0};
}

// One acquisition of a durable lock. The caller calls step(). If the acquisition is not over, the
// caller waits for changed(), at most until again(), and calls step() again. Each step() either
// decides the acquisition or leaves it with a place in the queue. Where step() runs and calls the
// store:
//
//   acquire() without a timeout and without a stop token   on the calling thread
//   any other acquire(), and async_acquire()               on a store thread, for one step
//
// If the caller's time is up during a step, the caller returns before the step ends. The step
// shares ownership of the acquisition, so it can continue. After the step, the destructor hands the
// grant or the place in the queue to a job in the background (class withdrawal), which removes it
// from the record. If the caller is stopped between two steps, it makes one more step, which
// removes the grant or the place.
class acquisition {
public:
    using answer = result<durable_guard, std::error_code>;

    acquisition(engine_ptr of, acquire_request request)
        : engine_(std::move(of)), request_(std::move(request)),
          until_(deadline::after(request_.timeout)),
          limits_{until_, engine_->grace(), request_.stop},
          ticket_(request_.ticket ? *request_.ticket
                                  : ticket_of(*engine_, {}, request_.weight,
                                              options().process_bound && !request_.inheritable)),
          may_wait_(!until_.is_poll()), hears_all_(!ticket_.process_bound || request_.on_position ||
                                                   options().observer != nullptr),
          wanted_(wishes()), begun_ms_(durable::boottime_ms()), answered_ms_(begun_ms_),
          moved_ms_(begun_ms_),
          random_(static_cast<unsigned>(std::hash<std::string>()(ticket_.nonce))) {
        ticket_.fence = 0; // of an earlier grant; undo() takes back the grant of this acquisition
        if (!may_wait_) {
            limits_.until = until_ = deadline::at_ns(native_platform::now());
        }
        if (engine_->is_local()) {
            const deadline slow = deadline::after(options().retry_time);
            limits_.until = deadline::at_ns(std::max(slow.steady_ns(), until_.steady_ns()));
        }
    }
    acquisition(const acquisition&) = delete;
    acquisition& operator=(const acquisition&) = delete;
    ~acquisition() { // on any thread: what may block is left to the withdrawal
        end(false);
        drop_grant();
        if (may_be_there_) {
            withdrawal::begin(engine_, std::move(ticket_), undoing());
        }
    }

    // Returns how long the caller waits for the next step(). On a store of this machine, the first
    // step() may last for retry_time even if the timeout is shorter: so a free lock is acquired
    // even if the disk is slow.
    // Requires: no step() is under way.
    const call_limits& limits() const noexcept { return limits_; }
    // Whether a timeout or a stop can end the acquisition.
    bool is_bounded() const noexcept { return !until_.is_never() || request_.stop.stop_possible(); }
    // Returns the error for a caller whose time is up during the next step(). It is errc::timeout
    // if the last try found the lock held, and the store's error if the last try failed. If no try
    // has ended in either way, it is durable_errc::no_answer.
    // Requires: no step() is under way.
    std::error_code if_late() const noexcept { return if_late_; }

    // Makes one try, which calls the store. If `is_stopped` is true, gives up instead. Returns
    // false if the acquisition is over.
    // Throws: what acquire_request::on_position and durable_options::now throw, std::bad_alloc,
    // std::system_error. In this case the acquisition is over, and its grant or its place in the
    // queue is given back.
    bool step(bool is_stopped = false) {
        bool goes_on = false;
        const std::exception_ptr thrown = thrown_by(
            [&] { goes_on = is_stopped ? give_up(make_error_code(errc::stopped)) : look(); });
        if (thrown) {
            undo();
        }
        if (!goes_on) {
            end();
        }
        if (thrown) {
            std::rethrow_exception(thrown);
        }
        return goes_on;
    }

    event& changed() noexcept { return *changed_; }
    deadline again() const noexcept { return again_; }

    // Returns the guard or the error, and tells the observer. If `is_coroutine` is true, the guard
    // calls the store on store threads.
    // Requires: the acquisition is over.
    answer take(bool is_coroutine) {
        if (held_ == nullptr) {
            return failed(error_);
        }
        observer().acquired(held_->ticket(), waited());
        held_->is_elsewhere = is_coroutine;
        return durable_guard(std::exchange(held_, nullptr));
    }
    // Returns the error, and tells the observer. Uses nothing that a store call uses.
    answer failed(std::error_code why) const {
        observer().gave_up(why, waited());
        return unexpected{why};
    }

private:
    const durable_options& options() const noexcept { return engine_->options(); }
    durable_observer& observer() const noexcept { return engine_->observer(); }
    std::chrono::milliseconds waited() const noexcept {
        return std::chrono::milliseconds(durable::boottime_ms() - begun_ms_);
    }
    acquire_wishes wishes() const {
        acquire_wishes wanted{{request_.note, {}}, request_.at_least.count()};
        // The contender listens (terms::listens) only if it reads the record often enough: then it
        // finds its grant before the lease ends, even if no notification reaches it.
        wanted.listens = ticket_.process_bound && may_wait_ &&
                         options().lease.count() * 1000 / 4 >= longest_pause_us();
        for (const auto& [key, value] : request_.labels) {
            wanted.about.labels.push_back({key, value});
        }
        std::sort(wanted.about.labels.begin(), wanted.about.labels.end(),
                  [](const auto& a, const auto& b) { return a.key < b.key; });
        return wanted;
    }
    // Returns how the entry is removed from the record. An earlier grant of the ticket stays. The
    // contender did no work, so no minimum hold time applies.
    durable::release_terms undoing() const noexcept {
        return {request_.ticket ? request_.ticket->fence : 0, true, is_unsure_};
    }
    // Drops the grant, so that undo() takes it back.
    void drop_grant() noexcept {
        if (held_ != nullptr) {
            std::exchange(held_, nullptr)->leave();
            may_be_there_ = true;
            is_unsure_ = false;
        }
    }
    // Takes back the grant or the place in the queue, with one call to the store.
    void undo() noexcept;
    bool give_up(std::error_code why) noexcept {
        undo();
        error_ = why;
        return false;
    }
    // Counts this acquisition as a waiter of this process, until end().
    void count() noexcept {
        if (!std::exchange(is_counted_, true)) {
            engine_->begin_waiting(hears_all_);
        }
    }
    void end(bool may_close = true) noexcept {
        if (std::exchange(is_counted_, false)) {
            engine_->end_waiting(hears_all_, may_close);
        }
    }
    // Returns the longest time between two reads of the record by a waiter that gets no
    // notification. It is less than waiter_ttl, because the reads refresh the waiter's place in the
    // queue.
    std::int64_t longest_pause_us() const noexcept {
        const durable_options& o = options();
        const std::int64_t ttl = o.waiter_ttl.count() != 0 ? o.waiter_ttl.count() : o.lease.count();
        return std::min(limited_us(o.poll_most), std::max<std::int64_t>(ttl * 1000 / 4, 1000));
    }
    static std::int64_t limited_us(std::chrono::milliseconds t) noexcept { // at most an hour
        return std::min<std::int64_t>(t.count(), 3'600'000) * 1000;
    }
    bool look();
    result<lock_engine::acquired, std::error_code> try_once();
    bool granted(const lock_engine::acquired& got);
    void move_to(std::int64_t position);
    void plan(const lock_engine::acquired& got);

    const engine_ptr engine_;
    const acquire_request request_;
    deadline until_;
    call_limits limits_; // of the next step
    durable_ticket ticket_;
    const bool may_wait_;
    const bool hears_all_; // of every change, and not only of those that concern it
    const acquire_wishes wanted_;
    const std::int64_t begun_ms_;
    std::int64_t answered_ms_; // when the store last answered in time
    std::int64_t moved_ms_;    // when the queue last moved
    std::int64_t position_ = -1;
    std::minstd_rand random_;
    std::shared_ptr<slot_presence> mark_; // of an inheritable grant
    bool may_be_there_ = false;           // the record may have an entry of it
    bool is_unsure_ = false;              // what a failed try wrote may still reach the store
    bool is_counted_ = false;             // it is counted as a waiter of this process
    std::error_code if_late_ = make_error_code(durable_errc::no_answer);
    std::shared_ptr<event> changed_;
    deadline again_ = deadline::poll();
    std::shared_ptr<grant> held_;
    std::error_code error_;
};

// Whether the operation certainly stored nothing, because other contenders were faster.
inline bool stored_nothing(const std::error_code& error) noexcept {
    return error == durable_errc::conflict_timeout || error == durable_errc::store_busy;
}

// The first read opens no watch and no wake socket, because most acquisitions need only one read.
// If the contender has to wait, a second read opens both. The second read is not needed if the
// descriptors that an earlier waiter of this process has opened suffice.
inline result<lock_engine::acquired, std::error_code> acquisition::try_once() {
    const deadline until = call_limits::later(limits_.until, limits_.grace);
    const auto look_for = [&](intent what) {
        const bool was_there = std::exchange(may_be_there_, true);
        const bool was_unsure = std::exchange(is_unsure_, true);
        auto got = engine_->acquire(ticket_, what, until, mark_.get(), wanted_);
        const bool wrote_nothing = !got && stored_nothing(got.error());
        may_be_there_ = was_there || !wrote_nothing;
        is_unsure_ = wrote_nothing ? was_unsure : !got && may_pass(got.error());
        return got;
    };
    if (!may_wait_) {
        return look_for(intent::nothing);
    }
    count();
    auto got = look_for(intent::wait);
    const bool is_unheard = got && got->outcome.status == durable::acquire_status::waiting &&
                            !got->is_watched && got->can_be_watched;
    return is_unheard ? look_for(intent::watch) : got;
}

inline bool acquisition::look() {
    if (request_.inheritable && mark_ == nullptr) {
        if (request_.ticket) {
            return give_up(std::make_error_code(std::errc::operation_not_supported));
        }
        auto taken = engine_->on().be_present();
        if (!taken) { // if files cannot be used, a read of the slot tells why
            const auto seen = engine_->inspect();
            return give_up(seen ? taken.error() : seen.error());
        }
        mark_ = std::move(*taken);
    }
    changed_ = engine_->signal().next();
    const auto got = try_once();
    const bool is_busy = !got && stored_nothing(got.error());
    const bool is_last =
        native_platform::now() >= call_limits::later(limits_.until, limits_.grace).steady_ns();
    limits_.until = until_;
    if (!is_busy) {
        if_late_ = got ? make_error_code(errc::timeout) : got.error();
    }
    const std::int64_t now = durable::boottime_ms();
    const bool may_retry = now - answered_ms_ < options().retry_time.count();
    const bool is_late = native_platform::now() >= until_.steady_ns();
    if (!got) {
        if (!may_wait_ || !may_pass(got.error()) || !may_retry) {
            return give_up(!may_wait_ && is_busy && is_last
                               ? make_error_code(durable_errc::no_answer)
                               : got.error());
        }
    } else if (got->outcome.status == durable::acquire_status::waiting) {
        answered_ms_ = now;
        if (!may_wait_) {
            may_be_there_ = false;
            return give_up(make_error_code(errc::timeout));
        }
        move_to(got->outcome.position);
    } else if (granted(*got)) {
        return false;
    } else {
        if_late_ = make_error_code(durable_errc::no_answer);
        if (!may_retry) { // every answer of the store comes too late
            return give_up(make_error_code(durable_errc::lock_lost));
        }
    }
    plan(got ? *got : lock_engine::acquired());
    if (request_.stop.stop_requested()) {
        return give_up(make_error_code(errc::stopped));
    }
    return is_late ? give_up(if_late_) : true;
}

// Returns false if the store took so long that the lease has expired.
inline bool acquisition::granted(const lock_engine::acquired& got) {
    if (mark_ == nullptr && got.good_until_ms <= durable::boottime_ms()) {
        return false;
    }
    ticket_.fence = got.outcome.fence;
    // From here on only the grant keeps the mark of presence open in this process. So after the
    // grant has closed the mark, the slot can tell whether a child still has the mark open.
    held_ = std::make_shared<grant>(engine_, ticket_, got.outcome.lane, got.good_until_ms,
                                    std::exchange(mark_, nullptr));
    may_be_there_ = false;
    held_->begin();
    return true;
}

// Tells the observer and the request how many waiters are ahead, if the number has changed.
// Throws: what acquire_request::on_position throws.
inline void acquisition::move_to(std::int64_t position) {
    if (std::exchange(position_, position) == position) {
        return;
    }
    moved_ms_ = durable::boottime_ms();
    observer().waits(ticket_, position);
    if (request_.on_position) {
        request_.on_position(position);
    }
}

inline void acquisition::undo() noexcept {
    drop_grant();
    if (!may_be_there_) {
        return;
    }
    const deadline until = is_bounded() ? deadline::after(limits_.grace) : deadline::never();
    try_to([&] { // may throw (no memory, the caller's clock): then class withdrawal tries again
        const auto gone = engine_->release(ticket_, undoing(), until);
        may_be_there_ = !gone && may_pass(gone.error());
    });
}

// Plans the next try, for the case that no change is signalled.
inline void acquisition::plan(const lock_engine::acquired& got) {
    const std::int64_t position = got.outcome.position;
    const std::int64_t least = limited_us(options().poll_least);
    std::int64_t us = limited_us(options().poll_most);
    if (!got.is_watched) { // while the queue moves, the permits may come soon
        const std::int64_t stood_us = (durable::boottime_ms() - moved_ms_) * 1000;
        us = std::clamp(stood_us / 8, least, us) * (1 + std::min<std::int64_t>(position, 3));
    }
    us = std::min(us, longest_pause_us());
    const auto some = [this](std::int64_t up_to) {
        return std::uniform_int_distribution<std::int64_t>(0, up_to)(random_);
    };
    us += some(us / 4);
    if (got.expiry_in_ms != 0) { // the first waiter tries a little earlier than the later ones
        us = std::min(us, got.expiry_in_ms * 1000 + some(1000) +
                              1000 * std::min<std::int64_t>(position, 10));
    }
    const std::int64_t at = native_platform::now() + us * 1000;
    again_ = deadline::at_ns(std::min(at, until_.steady_ns()));
}

// Acquires for a coroutine if `it` is nullptr. Otherwise acquires for a thread, which waits for
// this task, and `it` is the acquisition. If that acquisition has no limit, the thread has made the
// first step itself.
inline task<acquisition::answer> acquire_task(engine_ptr of, acquire_request request,
                                              std::shared_ptr<acquisition> it = nullptr) {
    const bool is_coroutine = it == nullptr;
    if (is_coroutine) {
        it = std::make_shared<acquisition>(std::move(of), std::move(request));
    }
    const bool is_here = !is_coroutine && !it->is_bounded();
    for (bool waits = is_here;; waits = true) {
        bool is_stopped = false;
        if (waits) {
            auto change =
                it->changed().async_wait().with_deadline(it->again()).with_stop(it->limits().stop);
            const auto changed = co_await std::move(change);
            is_stopped = !changed && changed.error() == errc::stopped;
        }
        bool goes_on = false;
        if (is_here) {
            goes_on = it->step();
        } else {
            const std::error_code late =
                is_stopped ? make_error_code(errc::stopped) : it->if_late();
            std::function<result<bool, std::error_code>()> step = [it, is_stopped] {
                return result<bool, std::error_code>(it->step(is_stopped));
            };
            auto stepping = async_call_store(std::move(step), it->limits());
            const auto done = co_await std::move(stepping);
            if (!done) {
                co_return it->failed(done.error() == errc::timeout ? late : done.error());
            }
            goes_on = *done;
        }
        if (!goes_on) {
            co_return it->take(is_coroutine);
        }
    }
}

// Acquires for a thread. Without a limit, the first step needs no coroutine.
inline acquisition::answer acquire_blocking(const engine_ptr& of, acquire_request request) {
    const auto it = std::make_shared<acquisition>(of, std::move(request));
    return it->is_bounded() || it->step() ? sync_wait(acquire_task({}, {}, it)) : it->take(false);
}

// ---- a guard whose loss stops something else

// The callback of a stop that stops another source, too.
struct stops_other {
    std::stop_source other;
    void operator()() {
        std::stop_source mine(other); // a callback of `other` may destroy this
        mine.request_stop();
    }
};
using linked_stop = std::stop_callback<stops_other>;

struct linked_guard {
    linked_guard(durable_guard of, const std::stop_source& stopped)
        : guard(std::move(of)), on_loss(guard.lost(), stops_other{stopped}) {}

    durable_guard guard;
    linked_stop on_loss;
};

}}} // namespace bide::BIDE_ABI::detail

#endif
