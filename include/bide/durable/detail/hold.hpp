#ifndef BIDE_DURABLE_DETAIL_HOLD_HPP
#define BIDE_DURABLE_DETAIL_HOLD_HPP

// A hold and what keeps it: the end of its lease as this machine knows it, watched over by the
// vigil, and its renewals. The end only moves forward, by a renewal that the store has confirmed;
// whatever hangs or fails, the vigil declares the hold lost when it comes.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/lock_engine.hpp>
#include <bide/durable/detail/store_call.hpp>
#include <bide/durable/detail/try_to.hpp>
#include <bide/durable/detail/vigil.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/ticket.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stop_token>
#include <system_error>
#include <utility>

#include <unistd.h>

namespace bide::inline BIDE_ABI {
namespace detail {

class acquisition;

class hold final : public watched, public std::enable_shared_from_this<hold> {
public:
    // With a mark it is bound to that and not to its lease.
    hold(std::shared_ptr<lock_engine> engine, durable_ticket t, std::int64_t lane,
         std::int64_t good_until_ms, std::shared_ptr<slot_presence> mark = nullptr)
        : engine_(std::move(engine)), ticket_(std::move(t)), lane_(lane), mark_(std::move(mark)),
          good_until_ms_(mark_ != nullptr ? never_ms : good_until_ms) {}

    const durable_ticket& ticket() const noexcept { return ticket_; }
    std::int64_t lane() const noexcept { return lane_; }
    std::stop_token lost() const noexcept { return lost_.get_token(); }
    int descriptor() const noexcept { return mark_ != nullptr ? mark_->fd() : -1; }
    bool is_inheritable() const noexcept { return mark_ != nullptr; }

    bool is_held() const noexcept {
        return good_until() > durable::boottime_ms() && is_active() && is_ours();
    }
    std::chrono::milliseconds remaining() const noexcept {
        return std::chrono::milliseconds(
            is_held() ? std::max<std::int64_t>(good_until() - durable::boottime_ms(), 0) : 0);
    }

    // The vigil is to watch over it.
    // Throws: std::system_error, std::bad_alloc.
    void begin() {
        if (mark_ == nullptr) {
            vigil::here().alarm(shared_from_this(), good_until());
        }
    }

    // On this thread. The second is for renewals in the background.
    result<void, std::error_code> renew() {
        return renew_by([this] { return engine_->renew(ticket_, std::nullopt); });
    }
    result<void, std::error_code> renew_apart() {
        return renew_by(
            [this] { return engine_->renew_apart(ticket_, deadline::after(remaining())); });
    }

    // release() in two steps: the first one calls no store. It returns whether the hold was good
    // until now.
    bool stop_holding() noexcept {
        const bool in_time = is_held() && retire();
        leave();
        return in_time;
    }
    result<void, std::error_code> give_back(bool in_time);
    // Closes the mark here. True: a child has it open, and the hold goes on with that. False: it is
    // released.
    result<bool, std::error_code> hand_over();

    // The ticket goes on without it.
    // Throws: std::bad_alloc; nothing changes then.
    void detach() {
        if (ticket_.process_bound && is_ours()) {
            engine_->keep_mark(ticket_.nonce);
        }
        leave();
    }

    // Stops to look after it.
    void leave() noexcept;

    // It is being looked after: not released, left or lost.
    bool is_active() const noexcept {
        // Order: acquire [HD1]; the renewal that finds it inactive comes after leave().
        return active_.load(std::memory_order_acquire);
    }

    // The vigil's: the end has come, or has moved on.
    void happened() noexcept override;

    std::int64_t lease_ms() const noexcept { return engine_->options().lease.count(); }

    // Whether calls for it are made on store threads: a coroutine acquired it.
    bool is_elsewhere = false;

    // How long a call for it may take.
    call_limits patience() const { return engine_->patience(); }

    // The renewer's: when it is to be renewed next.
    std::int64_t renew_at_ms = 0;

private:
    static constexpr std::int64_t never_ms = std::numeric_limits<std::int64_t>::max();

    std::int64_t good_until() const noexcept {
        // Order: relaxed; a number by itself.
        return good_until_ms_.load(std::memory_order_relaxed);
    }
    void extend(std::int64_t good_until_ms) noexcept;
    template <class Renew> result<void, std::error_code> renew_by(Renew renew);

    // True to one: who gives it back, or who finds it lost.
    bool retire() noexcept {
        // Order: acq_rel [HD1]; who renews sees that nobody looks after it any more.
        return active_.exchange(false, std::memory_order_acq_rel);
    }
    void lose() noexcept {
        if (retire()) {
            lost_.request_stop();
        }
    }

    // A child of fork() has a copy of what its parent holds.
    bool is_ours() const noexcept { return process_ == ::getpid(); }

    const std::shared_ptr<lock_engine> engine_;
    const durable_ticket ticket_;
    const std::int64_t lane_;
    std::shared_ptr<slot_presence> mark_;
    const pid_t process_ = ::getpid();
    native_platform::atomic<std::int64_t> good_until_ms_;
    native_platform::atomic<bool> active_{true};
    std::stop_source lost_;
};

inline void hold::extend(std::int64_t good_until_ms) noexcept {
    std::int64_t known = good_until();
    // Order: relaxed, both; a number by itself.
    while (known < good_until_ms &&
           !good_until_ms_.compare_exchange_weak(known, good_until_ms, std::memory_order_relaxed,
                                                 std::memory_order_relaxed)) {
    }
}

inline void hold::happened() noexcept {
    if (!is_active()) {
        return;
    }
    if (good_until() <= durable::boottime_ms()) {
        lose();
        return;
    }
    if (!try_to([this] { begin(); })) { // no memory: nothing would tell when it is over
        lose();
    }
}

template <class Renew> result<void, std::error_code> hold::renew_by(Renew renew) {
    if (!is_held()) {
        return unexpected{make_error_code(durable_errc::lock_lost)};
    }
    const auto renewed = renew();
    if (!renewed) {
        return unexpected{renewed.error()};
    }
    if (!*renewed) {
        lose(); // unless it was given back meanwhile
        return unexpected{make_error_code(durable_errc::lock_lost)};
    }
    extend(**renewed);
    if (!is_held()) { // confirmed too late
        return unexpected{make_error_code(durable_errc::lock_lost)};
    }
    return {};
}

inline void hold::leave() noexcept {
    retire();
    if (is_ours()) {
        vigil::here().cancel(*this);
    }
}

inline result<void, std::error_code> hold::give_back(bool in_time) {
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
    return {};
}

inline result<bool, std::error_code> hold::hand_over() {
    const bool in_time = stop_holding();
    if (mark_ == nullptr || !in_time) {
        auto released = give_back(in_time);
        return released ? result<bool, std::error_code>(false) : unexpected{released.error()};
    }
    const std::int64_t mark = std::exchange(mark_, nullptr)->mark();
    // Unknown: its lease decides, then, and contenders wait for that.
    if (engine_->is_present(mark) != presence::no) {
        return true;
    }
    // A contender that has seen the mark gone may have removed it already: that is a release, too.
    const auto released = engine_->release(ticket_);
    return released ? result<bool, std::error_code>(false) : unexpected{released.error()};
}

// Renews, and gives back, on this thread; or on a store thread, and waits for it.
inline result<void, std::error_code> renew_hold(const std::shared_ptr<hold>& held) {
    if (!held->is_elsewhere) {
        return held->renew();
    }
    return call_store<result<void, std::error_code>>([held] { return held->renew(); },
                                                     held->patience());
}

inline std::function<result<void, std::error_code>()>
giving_back(const std::shared_ptr<hold>& held) {
    return [held, in_time = held->stop_holding()] { return held->give_back(in_time); };
}

inline result<void, std::error_code> release_hold(const std::shared_ptr<hold>& held) {
    if (!held->is_elsewhere) {
        return held->give_back(held->stop_holding());
    }
    return call_store(giving_back(held), held->patience(), call_kind::has_to_run);
}

inline result<bool, std::error_code> hand_over_hold(const std::shared_ptr<hold>& held) {
    if (!held->is_elsewhere) {
        return held->hand_over();
    }
    return call_store<result<bool, std::error_code>>([held] { return held->hand_over(); },
                                                     held->patience(), call_kind::has_to_run);
}

// As release_hold(), or hand_over_hold() where it is inheritable, unless that would be in vain.
inline void end_hold(const std::shared_ptr<hold>& held) noexcept {
    const auto end = [&held] {
        if (held->is_inheritable()) {
            static_cast<void>(hand_over_hold(held));
        } else {
            static_cast<void>(release_hold(held));
        }
    };
    if (!held->is_held()) { // others may have been let in, and a store that hangs is not asked
        held->leave();
        return;
    }
    if (!try_to(end)) { // it is over with its lease
        held->leave();
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
