// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_ACQUISITION_HPP
#define BIDE_DURABLE_DETAIL_ACQUISITION_HPP

// A grant of a durable lock, and the acquisition that leads to it.

#include <bide/durable/detail/lock_engine.hpp>
#include <bide/durable/locks.hpp>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// ---- a grant

// Keeps the time at which its lease ends on this machine, and renews the lease.
class grant final : public monitor_client, public std::enable_shared_from_this<grant> {
public:
    // With a mark, the grant lasts while the mark is open, and does not end with its lease.
    grant(std::shared_ptr<lock_engine> engine, durable_ticket given, std::int64_t its_lane,
          std::int64_t good_until_ms, std::shared_ptr<slot_presence> mark = nullptr)
        : ticket(std::move(given)), lane(its_lane), engine_(std::move(engine)),
          mark_(std::move(mark)),
          good_until_ms_(mark_ != nullptr ? lease_monitor::never : good_until_ms) {}

    const durable_ticket ticket;
    const std::int64_t lane;
    bool is_elsewhere = false; // a coroutine acquired it: its calls run on store threads

    std::stop_token lost() const noexcept { return lost_.get_token(); }
    durable_loss loss() const noexcept {
        if (!is_ours()) {
            return durable_loss::forked;
        }
        // Order: relaxed; the reason publishes nothing else.
        const durable_loss why = loss_.load(std::memory_order_relaxed);
        return why == durable_loss::none && good_until() <= durable::boottime_ms()
                   ? durable_loss::expired // the lease monitor has not noticed yet
                   : why;
    }
    int descriptor() const noexcept { return mark_ != nullptr ? mark_->fd() : -1; }
    call_limits retry_time() const { return engine_->retry_time(); }

    bool is_held() const noexcept {
        return good_until() > durable::boottime_ms() && is_active() && is_ours();
    }
    std::chrono::milliseconds remaining() const noexcept {
        return std::chrono::milliseconds(
            is_held() ? std::max<std::int64_t>(good_until() - durable::boottime_ms(), 0) : 0);
    }

    // Throws: std::system_error, std::bad_alloc.
    void begin() {
        if (engine_->options().auto_renew) {
            background_job::begin({shared_from_this(), &renewal_}, engine_->renewals(),
                                  next_renewal(true));
        }
        monitor_until(warning_ms());
    }

    // Renews on this thread. In the background, a renewal takes at most the rest of the lease.
    result<void, std::error_code> renew(bool in_background = false) {
        if (is_held()) {
            const auto renewed = engine_->renew(
                ticket, in_background ? deadline::after(remaining()) : deadline::never(),
                in_background);
            const std::chrono::milliseconds left = remaining();
            // If the lease ended meanwhile, the grant is lost, even if the record was renewed. If
            // the grant was released meanwhile, lose() does nothing.
            if (renewed && left.count() > 0) {
                if (left < engine_->options().lease / 2) {
                    observer().renewed_late(ticket, left);
                }
                extend(*renewed);
            } else if (renewed || renewed.error() == durable_errc::lock_lost) {
                lose(left.count() == 0 ? durable_loss::expired : durable_loss::removed);
            } else {
                return unexpected{renewed.error()};
            }
        }
        return is_held() ? result<void, std::error_code>()
                         : unexpected{make_error_code(durable_errc::lock_lost)};
    }

    // The first part of a release, which calls no store. Returns true if the grant was held.
    bool stop_holding() noexcept {
        const bool in_time = is_held() && retire();
        leave();
        return in_time;
    }
    // The second part, which calls the store. If `hands_over` is true and the grant is inheritable,
    // first closes the mark of presence in this process. Returns true if a child may have the mark
    // open: then the grant continues.
    result<bool, std::error_code> give_back(bool in_time, bool hands_over) {
        if (!is_ours()) {
            return unexpected{make_error_code(durable_errc::lock_lost)};
        }
        bool may_be_gone = false;
        if (hands_over && in_time && mark_ != nullptr) {
            const std::int64_t mark = std::exchange(mark_, nullptr)->mark();
            if (engine_->on().is_present(mark) != presence::no) {
                return true;
            }
            may_be_gone = true; // removed by a contender that saw the closed mark: no error
        }
        const auto released = engine_->release(ticket);
        if (!released) {
            return released;
        }
        if (!in_time || !(*released || may_be_gone)) {
            return unexpected{make_error_code(durable_errc::lock_lost)};
        }
        observer().released(ticket, std::chrono::milliseconds(durable::boottime_ms() - begun_ms_));
        return false;
    }

    // Detaches the ticket: the ticket keeps the permits when this object is destroyed.
    // Throws: std::bad_alloc; then nothing changes.
    void detach() {
        if (is_ours()) {
            engine_->keep_mark(ticket);
        }
        leave();
    }

    // Stops the monitoring and the renewals.
    void leave() noexcept {
        retire();
        if (is_ours()) { // if there is no memory for a monitor, there is nothing to cancel
            try_to([this] { lease_monitor::here().cancel(*this); });
            renewal_.cancel();
        }
    }

private:
    // Returns true if the grant was not released, left or lost.
    bool is_active() const noexcept {
        // Order: acquire [grant.retire]; if inactive, what was done before retire() is seen.
        return active_.load(std::memory_order_acquire);
    }
    std::int64_t good_until() const noexcept {
        // Order: relaxed; the number publishes nothing else.
        return good_until_ms_.load(std::memory_order_relaxed);
    }
    void extend(std::int64_t good_until_ms) noexcept {
        std::int64_t known = good_until();
        // Order: relaxed, both; the number publishes nothing else.
        while (known < good_until_ms &&
               !good_until_ms_.compare_exchange_weak(
                   known, good_until_ms, std::memory_order_relaxed, std::memory_order_relaxed)) {
        }
    }
    // Called by the lease monitor at the time of monitor_until(). The lease may be longer now.
    void happened() noexcept override {
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
            observer().at_risk(ticket, std::chrono::milliseconds(left));
        }
        // Without memory, no monitor would report the end of the lease: the grant counts as lost.
        if (!try_to([&] { monitor_until(warns ? good_until() : warning_ms()); })) {
            lose(durable_loss::expired);
        }
    }
    void monitor_until(std::int64_t at_ms) {
        if (mark_ == nullptr) {
            lease_monitor::here().alarm(shared_from_this(), at_ms);
        }
    }
    std::int64_t warning_ms() const noexcept { return good_until() - engine_->warn_before_ms(); }
    // Returns the time of the next renewal: in a third of the lease, or in a tenth of that if the
    // last renewal failed. A random part of up to a tenth is subtracted, to spread the renewals.
    std::int64_t next_renewal(bool renewed) const noexcept {
        const std::int64_t third = std::max<std::int64_t>(engine_->options().lease.count() / 3, 1);
        const std::int64_t rest = renewed ? third : std::max<std::int64_t>(third / 10, 1);
        return durable::boottime_ms() + rest - jitter(rest / 10);
    }
    durable_observer& observer() const noexcept { return engine_->observer(); }

    // Returns true to the first caller, which releases the grant, detaches it, or reports its loss.
    bool retire() noexcept {
        // Order: acq_rel [grant.retire]; a thread that renews sees what this thread did before.
        return active_.exchange(false, std::memory_order_acq_rel);
    }
    void lose(durable_loss why) noexcept {
        if (!retire()) {
            return;
        }
        // Order: relaxed; request_stop() follows, and publishes it to the callbacks of lost_.
        loss_.store(why, std::memory_order_relaxed);
        observer().lost(ticket, why);
        leave();
        lost_.request_stop();
    }

    // A child of fork() has a copy of its parent's grant, and does not own it.
    bool is_ours() const noexcept { return process_ == process_token::here(); }

    const std::shared_ptr<lock_engine> engine_;
    std::shared_ptr<slot_presence> mark_;
    const process_token* const process_ = process_token::here();
    native_platform::atomic<std::int64_t> good_until_ms_;
    native_platform::atomic<bool> active_{true};
    native_platform::atomic<durable_loss> loss_{durable_loss::none};
    const std::int64_t begun_ms_ = durable::boottime_ms();
    background_job renewal_{[this] {
        bool renewed = false;
        // If the slot or the clock of a lock throws, the job tries again later.
        try_to([&] { renewed = renew(true).has_value(); });
        return is_active() ? next_renewal(renewed) : background_job::never;
    }};
    std::stop_source lost_;
};

using grant_ptr = std::shared_ptr<grant>;

// Returns a function that releases in the record what has ended in this process.
inline auto giving_back(const grant_ptr& held, bool hands_over = false) {
    return [held, hands_over, in_time = held->stop_holding()] {
        return held->give_back(in_time, hands_over);
    };
}

// Calls what() for this grant: on a store thread if a coroutine acquired it, otherwise here.
template <class What>
auto call_for(const grant_ptr& held, What what, call_kind kind = call_kind::has_to_run)
    -> decltype(what()) {
    return held->is_elsewhere ? call_store<decltype(what())>(what, held->retry_time(), kind)
                              : what();
}

// ---- what is taken back

using engine_ptr = std::shared_ptr<lock_engine>;

// Removes in the background what an acquisition has left in the record. If the store fails, the job
// tries again after a pause, until the entry has expired. Without a thread or memory for the job,
// the entry stays until it expires.
inline void withdraw(const engine_ptr& of, durable_ticket ticket,
                     durable::release_terms how) noexcept {
    try_to([&] {
        const std::int64_t now = durable::boottime_ms();
        const std::int64_t until = now + std::max(of->terms().lease_ms, of->terms().waiter_ttl_ms);
        auto work = [of, t = std::move(ticket), how, until, pause = std::int64_t{10}]() mutable {
            bool is_settled = false;
            try_to([&] { // it may throw: no memory, or the clock of the caller
                const auto gone = of->release(t, how);
                is_settled = gone || !may_pass(gone.error());
            });
            const std::int64_t next = durable::boottime_ms() + pause;
            pause = std::min<std::int64_t>(2 * pause, 1'000);
            return is_settled || next >= until ? background_job::never : next;
        };
        background_job::begin(std::make_shared<background_job>(std::move(work)), of->withdrawals(),
                              now);
    });
}

// ---- an acquisition

// Whether a timeout or a stop can end the acquisition.
inline bool is_bounded(const acquire_request& r) noexcept {
    return r.timeout != std::chrono::nanoseconds::max() || r.stop.stop_possible();
}

// Whether the operation certainly stored nothing, because other contenders were faster.
inline bool stored_nothing(const std::error_code& error) noexcept {
    return error == durable_errc::conflict_timeout || error == durable_errc::store_busy;
}

// Makes tries until there is a guard or an error. While step() returns true, the caller waits for
// changed(), at most until again(), and calls step() again. acquire() without a limit calls step()
// on the calling thread; any other acquisition calls it on a store thread.
//
// If the caller's time is up during a step, the caller returns before the step ends. The step, too,
// owns the acquisition. So the destructor runs after the step, and passes the grant or the place in
// the queue to withdraw(). A caller that is stopped between two steps makes one more step.
class acquisition {
public:
    using answer = result<durable_guard, std::error_code>;

    acquisition(engine_ptr of, acquire_request request)
        : engine_(std::move(of)), request_(std::move(request)),
          until_(deadline::after(request_.timeout)),
          limits_{until_, engine_->grace(), request_.stop},
          ticket_(request_.ticket
                      ? *request_.ticket
                      : engine_->ticket({}, request_.weight,
                                        options().process_bound && !request_.inheritable)),
          may_wait_(!until_.is_poll()), terms_(engine_->terms()), begun_ms_(durable::boottime_ms()),
          answered_ms_(begun_ms_), moved_ms_(begun_ms_) {
        ticket_.fence = 0; // of an earlier grant, which is not taken back
        terms_.at_least_ms = request_.at_least.count();
        // If pass_on() grants the lock to this contender, the contender notices the grant even
        // without a notification, long before its lease ends.
        terms_.listens = ticket_.process_bound && may_wait_ &&
                         options().lease.count() * 1000 / 4 >= longest_pause_us();
        about_.note = request_.note;
        for (const auto& [key, value] : request_.labels) {
            about_.labels.push_back({key, value});
        }
        std::ranges::sort(about_.labels, {}, &durable::label::key);
        if (!may_wait_) {
            limits_.until = until_ = deadline::at_ns(native_platform::now());
        }
        if (engine_->is_local()) {
            const deadline slow = deadline::after(options().retry_time);
            limits_.until = deadline::at_ns(std::max(slow.steady_ns(), until_.steady_ns()));
        }
    }
    acquisition& operator=(acquisition&&) = delete;
    ~acquisition() { // on any thread: what may block is left to withdraw()
        drop_grant();
        if (may_be_there_) {
            withdraw(engine_, std::move(ticket_), undoing());
        }
    }

    // Returns how long the caller waits for the next step(). On a store of this machine, that is
    // longer for the first step: see durable_options::attempt_limit.
    // Requires: no step() is under way. This also applies to if_late().
    const call_limits& limits() const noexcept { return limits_; }
    // Returns the error for a caller whose time is up during the next step(): errc::timeout if the
    // last try found the lock held; the store's error if the last try failed;
    // durable_errc::no_answer if no try has ended yet.
    std::error_code if_late() const noexcept { return if_late_; }

    // Makes one try, which calls the store. If `is_stopped` is true, gives up instead. Returns
    // false if the acquisition is over.
    // Throws: what acquire_request::on_position and durable_options::now throw, std::bad_alloc,
    // std::system_error. Then the destructor removes what is stored.
    bool step(bool is_stopped = false) {
        return is_stopped ? give_up(make_error_code(errc::stopped)) : look();
    }

    event& changed() noexcept { return *changed_; }
    deadline again() const noexcept { return deadline::at_ns(again_ns_); }

    // Returns the guard or the error of an acquisition that is over. If `is_coroutine` is true, the
    // guard calls the store on store threads.
    answer take(bool is_coroutine) {
        if (held_ == nullptr) {
            return failed(error_);
        }
        observer().acquired(held_->ticket, waited());
        held_->is_elsewhere = is_coroutine;
        return durable_guard(std::exchange(held_, nullptr));
    }
    // Returns the error, and tells the observer. May be called while a step is under way.
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
    // Returns the terms for the removal of what this acquisition has stored: an earlier grant of
    // the ticket stays, and no minimum hold time applies.
    durable::release_terms undoing() const noexcept {
        return {request_.ticket ? request_.ticket->fence : 0, true, is_unsure_};
    }
    // give_up() or the destructor then removes the grant from the record.
    void drop_grant() noexcept {
        if (held_ != nullptr) {
            std::exchange(held_, nullptr)->leave();
            may_be_there_ = true;
            is_unsure_ = false;
        }
    }
    // Takes back the grant or the place in the queue, with one call to the store. If that fails or
    // throws (std::bad_alloc, durable_options::now), the destructor tries again.
    bool give_up(std::error_code why) noexcept {
        drop_grant();
        error_ = why;
        if (may_be_there_) {
            const deadline until =
                is_bounded(request_) ? deadline::after(limits_.grace) : deadline::never();
            try_to([&] {
                const auto gone = engine_->release(ticket_, undoing(), until);
                may_be_there_ = !gone && may_pass(gone.error());
            });
        }
        return false;
    }
    // Returns the longest time between two reads of the record. It is less than waiter_ttl, because
    // the reads refresh the waiter's place in the queue.
    std::int64_t longest_pause_us() const noexcept {
        return std::min(limited_us(options().poll_most),
                        std::max<std::int64_t>(engine_->terms().waiter_ttl_ms * 250, 1000));
    }
    static std::int64_t limited_us(std::chrono::milliseconds t) noexcept { // at most an hour
        return std::min<std::int64_t>(t.count(), 3'600'000) * 1000;
    }
    bool look() {
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
            const std::int64_t ahead = got->outcome.position;
            if (std::exchange(position_, ahead) != ahead) {
                moved_ms_ = now;
                observer().waits(ticket_, ahead);
                if (request_.on_position) {
                    request_.on_position(ahead);
                }
            }
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
    // The first read opens no descriptor, because most acquisitions need only one read. If the
    // contender has to wait, a further read opens the wake socket, unless an earlier waiter of this
    // process did. If the socket is not enough, a further read opens the file events.
    result<lock_engine::acquired, std::error_code> try_once() {
        const deadline until = call_limits::later(limits_.until, limits_.grace);
        const auto look_for = [&](intent what) {
            const bool was_there = std::exchange(may_be_there_, true);
            const bool was_unsure = std::exchange(is_unsure_, true);
            auto got = engine_->acquire(ticket_, what, terms_, until, mark_.get(), about_);
            const bool wrote_nothing = !got && stored_nothing(got.error());
            may_be_there_ = was_there || !wrote_nothing;
            is_unsure_ = wrote_nothing ? was_unsure : !got && may_pass(got.error());
            return got;
        };
        if (!may_wait_) {
            return look_for(intent::nothing);
        }
        auto got = look_for(intent::wait);
        for (int reads = 1; reads < 3 && got && got->can_be_told; ++reads) {
            got = look_for(intent::listen);
        }
        return got;
    }
    // Returns false if the store took so long that the lease has expired.
    bool granted(const lock_engine::acquired& got) {
        if (mark_ == nullptr && got.good_until_ms <= durable::boottime_ms()) {
            return false;
        }
        ticket_.fence = got.outcome.fence;
        // Gives the mark away, so that only the grant keeps it open in this process. When the grant
        // has closed it, the slot can tell whether a child has it open.
        held_ = std::make_shared<grant>(engine_, ticket_, got.outcome.lane, got.good_until_ms,
                                        std::exchange(mark_, nullptr));
        may_be_there_ = false;
        held_->begin();
        return true;
    }
    // Sets the time of the next try, which comes earlier if a change is signalled.
    void plan(const lock_engine::acquired& got) {
        const std::int64_t position = got.outcome.position;
        const std::int64_t least = limited_us(options().poll_least);
        std::int64_t us = limited_us(options().poll_most);
        // Polls often while the queue moves, if no notification comes or the position is reported.
        if (!got.is_told || request_.on_position || options().observer != nullptr) {
            const std::int64_t stood_us = (durable::boottime_ms() - moved_ms_) * 1000;
            us = std::clamp(stood_us / 8, least, us) * (1 + std::min<std::int64_t>(position, 3));
        }
        us = std::min(us, longest_pause_us());
        us += jitter(us / 4);
        if (got.expiry_in_ms != 0) { // the first waiter tries a little earlier than the later ones
            us = std::min(us, got.expiry_in_ms * 1000 + jitter(1000) +
                                  1000 * std::min<std::int64_t>(position, 10));
        }
        again_ns_ = std::min(native_platform::now() + us * 1000, until_.steady_ns());
    }

    const engine_ptr engine_;
    const acquire_request request_;
    deadline until_;
    call_limits limits_; // of the next step
    durable_ticket ticket_;
    const bool may_wait_;
    durable::terms terms_;
    durable::description about_{};
    const std::int64_t begun_ms_;
    std::int64_t answered_ms_; // when the store last answered in time
    std::int64_t moved_ms_;    // when the queue last moved
    std::int64_t position_ = -1;
    std::shared_ptr<slot_presence> mark_; // of an inheritable grant
    bool may_be_there_ = false;           // the record may have an entry of it
    bool is_unsure_ = false;              // what a failed try wrote may still reach the store
    std::error_code if_late_ = make_error_code(durable_errc::no_answer);
    std::shared_ptr<event> changed_;
    std::int64_t again_ns_ = 0;
    std::shared_ptr<grant> held_;
    std::error_code error_;
};

// Acquires; each step runs on a store thread. If `is_coroutine` is true, so do the guard's calls.
inline task<acquisition::answer> acquire_task(engine_ptr of, acquire_request request,
                                              bool is_coroutine = true) {
    const auto it = std::make_shared<acquisition>(std::move(of), std::move(request));
    for (bool waits = false;; waits = true) {
        bool is_stopped = false;
        if (waits) {
            auto change =
                it->changed().async_wait().with_deadline(it->again()).with_stop(it->limits().stop);
            const auto changed = co_await std::move(change);
            is_stopped = !changed && changed.error() == errc::stopped;
        }
        const std::error_code late = is_stopped ? make_error_code(errc::stopped) : it->if_late();
        std::function<result<bool, std::error_code>()> step = [it, is_stopped] {
            return result<bool, std::error_code>(it->step(is_stopped));
        };
        auto stepping = async_call_store(std::move(step), it->limits());
        const auto goes_on = co_await std::move(stepping);
        if (!goes_on) {
            co_return it->failed(goes_on.error() == errc::timeout ? late : goes_on.error());
        }
        if (!*goes_on) {
            co_return it->take(is_coroutine);
        }
    }
}

// Acquires for this thread. Without a timeout and a stop token, the thread itself calls step().
inline acquisition::answer acquire_blocking(const engine_ptr& of, acquire_request request) {
    if (is_bounded(request)) {
        return sync_wait(acquire_task(of, std::move(request), false));
    }
    const auto it = std::make_shared<acquisition>(of, std::move(request));
    while (it->step()) {
        it->changed().wait_until(it->again());
    }
    return it->take(false);
}

// ---- a guard whose loss stops something else

// A stop callback that requests a stop of another source.
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
