// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_DURABLE_DETAIL_ACQUISITION_HPP
#define BIDE_DURABLE_DETAIL_ACQUISITION_HPP

// One acquisition of a durable lock, from its first try until it has a guard or an error. The
// caller calls look(). If the acquisition is not over, the caller waits for changed(), at most
// until again(), and calls look() again. Each look() either decides the acquisition or leaves it
// with a place in the queue. undo() removes the grant or the place from the record.
//
// The caller is always a coroutine: a blocking acquire() runs one by sync_wait(). Where look() runs
// and calls the store:
//
//   acquire() without a timeout and without a stop token   on the calling thread
//   any other acquire(), and async_acquire()               on a store thread, for one try at a time
//
// If the caller's time is up during a try, the caller returns before the try ends. The try shares
// ownership of the acquisition, so it can continue. When the try ends, its store thread removes
// the grant or the place from the record. If the store fails then, a background job removes it
// later (class withdrawals). If the caller is stopped between two tries, it makes one more store
// call, which removes the grant or the place. The caller waits for this call as for a try.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/errc.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/background.hpp>
#include <bide/durable/detail/grant.hpp>
#include <bide/durable/detail/lock_engine.hpp>
#include <bide/durable/detail/store_call.hpp>
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
#include <cstdint>
#include <exception>
#include <functional>
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

using engine_ptr = std::shared_ptr<lock_engine>;

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

// Removes from the record what the acquisitions of one lock have left there: places in the queue
// and grants. The job runs in the background. If the store fails, the job tries again after a
// pause. It stops trying when the entry has expired in the record.
class withdrawals final : public background_job {
public:
    withdrawals() noexcept : background_job(&store_threads::post) {}

    struct entry {
        durable_ticket ticket{};
        bool is_there = true; // it may be in the record
        lock_engine::taking_back how{};
        bool ends_waiting = false;            // it is counted as a waiter of this process
        bool hears_all = false;               // and wants to be notified of every change
        std::int64_t until_ms = 0;            // when it expires in the record, on boottime_ms()
        std::shared_ptr<lock_engine> of = {}; // its lock lives until the entry is taken back
    };

    // Hands the entry to a job in the background, which removes it from the record. Calls no store.
    // If there is no thread or no memory for the job, the entry stays in the record until it
    // expires.
    static void leave(const engine_ptr& of, entry left) noexcept {
        const durable_options& o = of->options();
        left.until_ms = durable::boottime_ms() + std::max(o.lease.count(), o.waiter_ttl.count());
        left.of = of;
        try_to([&] {
            of->withdrawals.get([] { return std::make_shared<withdrawals>(); })
                ->add(std::move(left));
        });
    }

private:
    static constexpr std::int64_t least_pause_ms = 10;
    static constexpr std::int64_t most_pause_ms = 1'000;

    void add(entry left) {
        {
            const std::lock_guard held(lock_);
            entries_.push_back(std::move(left));
        }
        if (!try_to([this] { wake_at(durable::boottime_ms()); })) {
            std::vector<entry> dropped; // the caller has a reference to their lock
            {
                const std::lock_guard held(lock_);
                dropped.swap(entries_);
            }
            std::for_each(dropped.begin(), dropped.end(), &end_waiting);
        }
    }
    std::int64_t due_ms() noexcept override { return 0; }
    std::int64_t work() noexcept override;
    static bool is_done(entry& one) noexcept;
    static void end_waiting(entry& one) noexcept {
        if (std::exchange(one.ends_waiting, false)) {
            one.of->end_waiting(one.hears_all);
        }
    }

    mutex lock_;
    std::vector<entry> entries_;             // under lock_
    std::int64_t pause_ms_ = least_pause_ms; // used by work()
};

inline std::int64_t withdrawals::work() noexcept {
    std::vector<entry> all;
    {
        const std::lock_guard held(lock_);
        all.swap(entries_);
    }
    std::erase_if(all, &is_done);
    if (all.empty()) {
        pause_ms_ = least_pause_ms;
        return never; // add() wakes it
    }
    {
        const std::lock_guard held(lock_);
        // If there is no memory for them, the entries stay in the record until they expire.
        try_to([&] { entries_.insert(entries_.end(), all.begin(), all.end()); });
    }
    return durable::boottime_ms() +
           std::exchange(pause_ms_, std::min(2 * pause_ms_, most_pause_ms));
}

inline bool withdrawals::is_done(entry& one) noexcept {
    end_waiting(one);
    if (!one.is_there) {
        return true;
    }
    bool is_settled = false;
    try_to([&] { // it may throw: no memory, or the clock of the caller
        const auto gone = one.of->release(one.ticket, one.how);
        is_settled = gone || !may_pass(gone.error());
    });
    return is_settled || durable::boottime_ms() >= one.until_ms;
}

class acquisition {
public:
    using answer = result<durable_guard, std::error_code>;

    acquisition(engine_ptr of, acquire_request request)
        : engine_(std::move(of)),
          limits_{deadline::after(request.timeout), engine_->grace(), std::move(request.stop)},
          ticket_(request.ticket
                      ? std::move(*request.ticket)
                      : ticket_of(*engine_, {}, request.weight, engine_->options().process_bound)),
          earlier_fence_(ticket_.fence), binds_(request.inheritable),
          has_ticket_(request.ticket.has_value()), may_wait_(!limits_.until.is_poll()),
          hears_all_(!ticket_.process_bound || binds_ || request.on_position ||
                     engine_->options().observer != nullptr),
          wanted_(wishes_of(request)), on_position_(std::move(request.on_position)),
          begun_ms_(durable::boottime_ms()), answered_ms_(begun_ms_), moved_ms_(begun_ms_),
          random_(static_cast<unsigned>(std::hash<std::string>()(ticket_.nonce))) {
        ticket_.fence = 0; // of an earlier grant; undo() takes back the grant of this acquisition
        if (!may_wait_) {
            limits_.until = deadline::at_ns(native_platform::now());
        }
        if (engine_->is_local()) {
            const deadline slow = deadline::after(engine_->options().retry_time);
            first_until_ = std::max(slow.steady_ns(), limits_.until.steady_ns());
        }
    }
    acquisition(const acquisition&) = delete;
    acquisition& operator=(const acquisition&) = delete;
    ~acquisition() { hand_over(); }

    // Returns how long the caller waits for the next look(). On a store of this machine, the first
    // look() may last for retry_time even if the timeout is shorter: so a free lock is acquired
    // even if the disk is slow.
    // Requires: no look() is under way.
    call_limits limits() const {
        call_limits next = limits_;
        if (is_first_ && first_until_ != 0) {
            next.until = deadline::at_ns(first_until_);
        }
        return next;
    }
    const std::stop_token& stop() const noexcept { return limits_.stop; }
    // Whether a timeout or a stop can end the acquisition.
    bool is_bounded() const noexcept {
        return !limits_.until.is_never() || limits_.stop.stop_possible();
    }
    // Returns the error for a caller whose time is up during the next look(): errc::timeout if the
    // last try found the lock held, the store's error if the last try failed,
    // durable_errc::no_answer if no try has ended so.
    // Requires: no look() is under way.
    std::error_code if_late() const noexcept { return if_late_; }

    // Makes one try, which calls the store. Returns false if the acquisition is over. If look()
    // throws, the acquisition is over, too.
    bool look();

    // Calls look(), and takes everything back if it throws. Returns what was thrown.
    std::exception_ptr thrown_by_look(bool& goes_on) noexcept {
        goes_on = false;
        std::exception_ptr thrown = thrown_by([&] { goes_on = look(); });
        if (thrown) {
            undo();
        }
        return thrown;
    }

    event& changed() noexcept { return *changed_; }
    deadline again() const noexcept { return again_; }

    // Returns the guard or the error. If `is_coroutine` is true, the guard calls the store on store
    // threads.
    // Requires: the acquisition is over.
    answer take(bool is_coroutine) {
        if (held_ == nullptr) {
            return unexpected{error_};
        }
        held_->is_elsewhere = is_coroutine;
        return durable_guard(std::exchange(held_, nullptr));
    }

    // Tells the observer how the acquisition ended. Uses nothing that a store call uses.
    answer told(answer end) const noexcept {
        if (observer() != nullptr) {
            const std::chrono::milliseconds waited(durable::boottime_ms() - begun_ms_);
            if (end) {
                observer()->acquired(end->ticket(), waited);
            } else {
                observer()->gave_up(end.error(), waited);
            }
        }
        return end;
    }

    // Takes back the grant or the place in the queue, with one call to the store.
    void undo() noexcept;

    // Gives up because the task was cancelled. Calls the store.
    void give_up_stopped() noexcept { give_up(make_error_code(errc::stopped)); }

    // Ends the waiting. It uses nothing that take() uses.
    void end() noexcept {
        if (std::exchange(is_counted_, false)) {
            engine_->end_waiting(hears_all_);
        }
    }

private:
    // Binds the grant to a mark of presence of its own (slot_presence).
    void bind() {
        auto taken = engine_->on().be_present();
        if (!taken) {
            // If the files cannot be used, a read of the slot gives a better error than
            // be_present().
            const auto seen = engine_->inspect();
            refused_ = seen ? taken.error() : seen.error();
        } else if (has_ticket_) {
            refused_ = std::make_error_code(std::errc::operation_not_supported);
        } else {
            ticket_.process_bound = false;
            mark_ = std::move(*taken);
        }
    }
    acquire_wishes wishes_of(acquire_request& request) const {
        acquire_wishes wanted{{std::move(request.note), {}}, request.at_least.count()};
        // The contender listens (terms::listens) only if it reads the record often enough: then it
        // finds its grant before the lease ends, even if no notification reaches it.
        wanted.listens = ticket_.process_bound && !binds_ && may_wait_ &&
                         engine_->options().lease.count() * 1000 / 4 >= longest_pause_us();
        for (auto& [key, value] : request.labels) {
            wanted.about.labels.push_back({std::move(key), std::move(value)});
        }
        std::sort(wanted.about.labels.begin(), wanted.about.labels.end(),
                  [](const auto& a, const auto& b) { return a.key < b.key; });
        return wanted;
    }
    // Returns how the entry is removed from the record. The contender did no work, so no minimum
    // hold time applies.
    lock_engine::taking_back taking_back() const noexcept {
        return {is_unsure_, {earlier_fence_, true}};
    }
    // Drops the grant, so that undo() takes it back.
    void drop_grant() noexcept {
        if (held_ != nullptr) {
            std::exchange(held_, nullptr)->leave();
            may_be_queued_ = true;
            is_unsure_ = false;
        }
    }
    // Hands the entry that is still in the record to a job in the background (class withdrawals).
    // Calls no store.
    void hand_over() noexcept;

    bool give_up(std::error_code why) noexcept {
        undo();
        error_ = why;
        return false;
    }
    durable_observer* observer() const noexcept { return engine_->options().observer.get(); }
    // Returns the longest time between two reads of the record by a waiter that gets no
    // notification. It is less than waiter_ttl, because the reads refresh the waiter's place in the
    // queue.
    std::int64_t longest_pause_us() const noexcept {
        const durable_options& o = engine_->options();
        const std::int64_t ttl = o.waiter_ttl.count() != 0 ? o.waiter_ttl.count() : o.lease.count();
        return std::min(limited_us(o.poll_most), std::max<std::int64_t>(ttl * 1000 / 4, 1000));
    }
    static std::int64_t limited_us(std::chrono::milliseconds t) noexcept { // at most an hour
        return std::min<std::int64_t>(t.count(), 3'600'000) * 1000;
    }
    // Counts this acquisition as a waiter of this process.
    void count() noexcept {
        engine_->begin_waiting(hears_all_);
        is_counted_ = true;
    }
    // Reports the number of waiters ahead to the observer and to on_position, if it has changed.
    // Throws: what acquire_request::on_position throws.
    void tell_position(std::int64_t ahead);
    result<lock_engine::acquired, std::error_code> try_once();
    bool granted(const lock_engine::acquired& got);
    void plan(std::int64_t position, std::int64_t expiry_in_ms, bool is_watched);

    const engine_ptr engine_;
    call_limits limits_;
    std::int64_t first_until_ = 0; // the end of the first look(), if that is not limits_.until
    bool is_first_ = true;         // no look() has ended
    std::error_code if_late_ = make_error_code(durable_errc::no_answer);
    durable_ticket ticket_;
    const std::int64_t earlier_fence_;    // of an earlier grant, which undo() keeps
    std::shared_ptr<slot_presence> mark_; // of an inheritable grant
    std::error_code refused_{};           // by the first look(), which binds the grant
    const bool binds_;
    const bool has_ticket_;
    const bool may_wait_;
    const bool hears_all_; // of every change, and not only of those that concern it
    const acquire_wishes wanted_;
    const std::function<void(std::int64_t)> on_position_; // acquire_request::on_position
    const std::int64_t begun_ms_;
    std::int64_t answered_ms_; // when the store last answered in time
    std::int64_t moved_ms_;    // when the queue last moved
    std::int64_t position_ = -1;
    std::int64_t told_position_ = -1;
    std::minstd_rand random_;
    bool may_be_queued_ = false;
    bool is_unsure_ = false;  // a try failed: what it wrote may still arrive
    bool is_waiting_ = false; // it has a place in the queue, as far as it knows
    bool is_counted_ = false; // it is counted as a waiter of this process
    std::shared_ptr<event> changed_;
    deadline again_ = deadline::poll();
    std::shared_ptr<grant> held_;
    std::error_code error_;
};

// The first read opens no watch and no wake socket, because most acquisitions need only one read.
// If the contender has to wait, a second read opens both. The second read is not needed if an
// earlier waiter of this process has opened the wake socket: the process is notified through that
// socket.
inline result<lock_engine::acquired, std::error_code> acquisition::try_once() {
    lock_engine& engine = *engine_;
    const deadline until = call_limits::later(limits().until, limits_.grace);
    const auto look_for = [&](intent what) {
        return engine.acquire(ticket_, what, until, mark_.get(), wanted_);
    };
    if (!may_wait_) {
        return look_for(intent::nothing);
    }
    if (!is_counted_ && engine.has_waited()) {
        count();
    }
    auto got = look_for(is_counted_ ? intent::wait : intent::queue);
    if (!got || got->outcome.status != durable::acquire_status::waiting) {
        return got;
    }
    is_waiting_ = true;
    if (!is_counted_) {
        count();
        return look_for(intent::watch);
    }
    return !got->is_watched && got->can_be_watched ? look_for(intent::watch) : std::move(got);
}

inline bool acquisition::look() {
    if (binds_ && mark_ == nullptr) {
        bind();
        if (refused_) {
            return give_up(refused_);
        }
    }
    changed_ = engine_->signal().next();
    const bool was_queued = may_be_queued_;
    const bool was_unsure = is_unsure_;
    may_be_queued_ = true;
    is_unsure_ = true;
    auto got = try_once();
    const bool passes = !got && may_pass(got.error());
    const bool is_busy = !got && (got.error() == durable_errc::conflict_timeout ||
                                  got.error() == durable_errc::store_busy);
    const bool has_written = got || is_waiting_ || !is_busy;
    const deadline last = call_limits::later(limits().until, limits_.grace);
    is_first_ = false;
    if (!is_busy) {
        if_late_ = got ? make_error_code(errc::timeout) : got.error();
    }
    may_be_queued_ = was_queued || has_written;
    is_unsure_ = has_written ? passes : was_unsure;
    const std::int64_t now = durable::boottime_ms();
    const bool may_retry = now - answered_ms_ < engine_->options().retry_time.count();
    const bool is_late = native_platform::now() >= limits_.until.steady_ns();
    if (!got) {
        if (!may_wait_ || !passes || !may_retry) {
            const bool is_up = !may_wait_ && is_busy && last.steady_ns() <= native_platform::now();
            return give_up(is_up ? make_error_code(durable_errc::no_answer) : got.error());
        }
        plan(0, 0, false);
    } else {
        if (got->outcome.status != durable::acquire_status::waiting) {
            if (granted(*got)) {
                return false;
            }
            if_late_ = make_error_code(durable_errc::no_answer);
            if (!may_retry) { // every answer of the store comes too late
                return give_up(make_error_code(durable_errc::lock_lost));
            }
        } else {
            answered_ms_ = now;
            if (!may_wait_) {
                may_be_queued_ = false;
                return give_up(make_error_code(errc::timeout));
            }
            tell_position(got->outcome.position);
        }
        plan(got->outcome.position, got->expiry_in_ms, got->is_watched);
    }
    if (limits_.stop.stop_requested()) {
        return give_up(make_error_code(errc::stopped));
    }
    return is_late ? give_up(if_late_) : true;
}

// Returns false if the store took so long that the lease has expired.
inline bool acquisition::granted(const lock_engine::acquired& got) {
    ticket_.fence = got.outcome.fence;
    if (mark_ == nullptr && got.good_until_ms <= durable::boottime_ms()) {
        ticket_.fence = 0;
        return false;
    }
    // From here on only the grant keeps the mark of presence open in this process. So after the
    // grant has closed the mark, the slot can tell whether a child still has the mark open.
    held_ = std::make_shared<grant>(engine_, ticket_, got.outcome.lane, got.good_until_ms,
                                    std::exchange(mark_, nullptr));
    may_be_queued_ = false;
    const std::exception_ptr thrown = thrown_by([this] {
        held_->begin();
        renew_in_background(held_, *engine_);
    });
    if (thrown) {
        undo();
        std::rethrow_exception(thrown);
    }
    return true;
}

inline void acquisition::tell_position(std::int64_t ahead) {
    if (ahead == told_position_) {
        return;
    }
    told_position_ = ahead;
    if (observer() != nullptr) {
        observer()->waits(ticket_, ahead);
    }
    if (on_position_) {
        on_position_(ahead);
    }
}

inline void acquisition::undo() noexcept {
    drop_grant();
    if (!may_be_queued_) {
        return;
    }
    const deadline until = is_bounded() ? deadline::after(limits_.grace) : deadline::never();
    try_to([&] { // may throw (no memory, the caller's clock): then class withdrawals tries again
        const auto gone = engine_->release(ticket_, taking_back(), until);
        may_be_queued_ = !gone && may_pass(gone.error());
    });
}

inline void acquisition::hand_over() noexcept {
    drop_grant();
    if (may_be_queued_ || is_counted_) {
        withdrawals::leave(
            engine_, {std::move(ticket_), may_be_queued_, taking_back(), is_counted_, hears_all_});
        may_be_queued_ = is_counted_ = false;
    }
}

// Plans the next try, for the case that no change is signalled.
inline void acquisition::plan(std::int64_t position, std::int64_t expiry_in_ms, bool is_watched) {
    const durable_options& o = engine_->options();
    const std::int64_t least = limited_us(o.poll_least);
    const std::int64_t most = limited_us(o.poll_most);
    std::int64_t us = most;
    if (!is_watched) {
        // While the queue moves, the turn may come soon.
        if (position != position_) {
            position_ = position;
            moved_ms_ = durable::boottime_ms();
        }
        const std::int64_t stood_us = (durable::boottime_ms() - moved_ms_) * 1000;
        us = std::clamp(stood_us / 8, least, most) * (1 + std::min<std::int64_t>(position, 3));
    }
    us = std::min(us, longest_pause_us());
    const auto some = [this](std::int64_t up_to) {
        return std::uniform_int_distribution<std::int64_t>(0, up_to)(random_);
    };
    us += some(us / 4);
    if (expiry_in_ms != 0) { // the first waiter tries a little earlier than the later ones
        us = std::min(us, expiry_in_ms * 1000 + some(1000) +
                              1000 * std::min<std::int64_t>(position, 10));
    }
    const std::int64_t at = native_platform::now() + us * 1000;
    again_ = deadline::at_ns(std::min(at, limits_.until.steady_ns()));
}

// ---- the calls of an acquisition

// One call of an acquisition on a store thread.
class look_call final : public store_call {
public:
    enum class kind { look, give_up };

    look_call(std::shared_ptr<acquisition> of, kind what) : of_(std::move(of)), kind_(what) {}

    // Returns true if the acquisition is not over.
    // Requires: the call has ended.
    bool goes_on() const {
        if (thrown_) {
            std::rethrow_exception(thrown_);
        }
        return goes_on_;
    }

private:
    void call() noexcept override {
        if (kind_ == kind::give_up) {
            of_->give_up_stopped();
        } else {
            thrown_ = of_->thrown_by_look(goes_on_);
        }
        is_over_ = !goes_on_;
    }
    void was_left() noexcept override {
        of_->undo();
        is_over_ = true;
    }
    void afterwards() noexcept override {
        if (is_over_) {
            of_->end();
        }
        of_.reset();
    }

    std::shared_ptr<acquisition> of_;
    const kind kind_;
    bool goes_on_ = false;
    bool is_over_ = false; // used by the store thread only
    std::exception_ptr thrown_;
};

// A call that its caller leaves if this object is destroyed before the call has ended.
class started_call {
public:
    // Throws: std::system_error if no store thread can be started, std::bad_alloc.
    started_call(const std::shared_ptr<acquisition>& of, look_call::kind what)
        : call_(std::make_shared<look_call>(of, what)) {
        if (const std::error_code error = store_call::start(call_)) {
            throw_error(error);
        }
    }
    started_call(const started_call&) = delete;
    started_call& operator=(const started_call&) = delete;
    ~started_call() { call_->leave(); }

    const std::shared_ptr<look_call>& call() const noexcept { return call_; }

private:
    const std::shared_ptr<look_call> call_;
};

// Whose guard it is, and where the tries call the store.
enum class acquirer {
    coroutine, // on store threads; so does the guard
    bounded,   // a thread: on store threads
    here       // a thread: on that thread
};

// Tries on this thread. Returns true if the acquisition is not over.
inline bool look_here(acquisition& it) {
    bool goes_on = false;
    const std::exception_ptr thrown = it.thrown_by_look(goes_on);
    if (!goes_on) {
        it.end();
    }
    if (thrown) {
        std::rethrow_exception(thrown);
    }
    return goes_on;
}

// Acquires for a coroutine; with `it`, goes on with an acquisition of a thread.
inline task<acquisition::answer> acquire_task(engine_ptr of, acquire_request request,
                                              std::shared_ptr<acquisition> it = nullptr,
                                              acquirer by = acquirer::coroutine) {
    if (it == nullptr) {
        it = std::make_shared<acquisition>(std::move(of), std::move(request));
    }
    for (bool waits = by == acquirer::here;; waits = true) {
        if (waits) {
            auto change =
                it->changed().async_wait().with_deadline(it->again()).with_stop(it->stop());
            const auto changed = co_await std::move(change);
            if (!changed && changed.error() == errc::stopped) {
                break;
            }
        }
        if (by == acquirer::here) {
            if (!look_here(*it)) {
                co_return it->told(it->take(false));
            }
            continue;
        }
        const call_limits limits = it->limits();
        const std::error_code late = it->if_late();
        const started_call look(it, look_call::kind::look);
        auto looking = wait_for_call(look.call(), limits);
        if (const std::error_code why = co_await std::move(looking)) {
            co_return it->told(unexpected{why == errc::timeout ? late : why});
        }
        if (!look.call()->goes_on()) {
            co_return it->told(it->take(by == acquirer::coroutine));
        }
    }
    const call_limits limits = it->limits();
    const started_call last(it, look_call::kind::give_up);
    auto leaving = wait_for_call(last.call(), limits);
    static_cast<void>(co_await std::move(leaving));
    co_return it->told(unexpected{make_error_code(errc::stopped)});
}

// Acquires for a thread. Without a limit, the first try needs no coroutine.
inline acquisition::answer acquire_blocking(const engine_ptr& of, acquire_request request) {
    const auto it = std::make_shared<acquisition>(of, std::move(request));
    if (it->is_bounded()) {
        return sync_wait(acquire_task({}, {}, it, acquirer::bounded));
    }
    return look_here(*it) ? sync_wait(acquire_task({}, {}, it, acquirer::here))
                          : it->told(it->take(false));
}

}}} // namespace bide::BIDE_ABI::detail

#endif
