#ifndef BIDE_DURABLE_DETAIL_ACQUISITION_HPP
#define BIDE_DURABLE_DETAIL_ACQUISITION_HPP

// One acquisition from its first look to its guard, for threads and coroutines alike: look, and while
// it is not over wait for changed() until again(), in whatever way one waits. Who is destroyed
// before it is over leaves its place in the queue.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/durable/detail/hold.hpp>
#include <bide/durable/detail/lock_engine.hpp>
#include <bide/durable/detail/renewer.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/guard.hpp>
#include <bide/durable/options.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/ticket.hpp>
#include <bide/sched/task.hpp>
#include <bide/sync/event.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <system_error>
#include <utility>

#include <unistd.h>

namespace bide::inline BIDE_ABI {
namespace detail {

// What the locks of all kinds are made of.
struct lock_parts {
    std::shared_ptr<lock_engine> engine;
    std::shared_ptr<class renewer> renewer; // nullptr: guards do not renew

    static lock_parts make(slot_ref slot, std::int64_t permits, durable_options options) {
        lock_parts parts;
        if (options.auto_renew) {
            parts.renewer = std::make_shared<detail::renewer>(options.lease, options.renew_on);
        }
        parts.engine = std::make_shared<lock_engine>(std::move(slot), permits, std::move(options));
        return parts;
    }

    durable_ticket ticket(std::string holder_id, std::int64_t weight, bool process_bound) const {
        if (holder_id.empty()) {
            holder_id = engine->options().holder_id;
        }
        if (holder_id.empty()) {
            holder_id = durable::this_host() + ":" + std::to_string(::getpid());
        }
        return {std::move(holder_id), fresh_nonce(), weight, process_bound, 0};
    }
};

class acquisition {
public:
    using answer = result<durable_guard, std::error_code>;

    acquisition(lock_parts parts, acquire_request request)
        : parts_(std::move(parts)), stop_(std::move(request.stop)),
          until_(deadline::after(request.timeout)),
          ticket_(request.ticket
                      ? std::move(*request.ticket)
                      : parts_.ticket({}, request.weight, parts_.engine->options().process_bound)),
          may_wait_(!until_.is_poll()), well_ms_(durable::boottime_ms()), moved_ms_(well_ms_),
          random_(static_cast<unsigned>(std::hash<std::string>()(ticket_.nonce))) {
        ticket_.fence = 0; // an earlier grant's: what is to be withdrawn is this one's
        if (request.inheritable) {
            bind(request.ticket.has_value());
        }
    }
    acquisition(const acquisition&) = delete;
    acquisition& operator=(const acquisition&) = delete;
    ~acquisition() {
        withdraw();
        if (is_waiting_) {
            parts_.engine->end_waiting();
        }
    }

    // False: it is over.
    bool look();

    event& changed() noexcept { return *changed_; }
    deadline again() const noexcept { return again_; }
    const std::stop_token& stop() const noexcept { return stop_; }

    // To be called when a stop is requested, so that a thread that waits looks.
    void nudge() noexcept { parts_.engine->signal().signal(); }

    // Once it is over.
    answer take() { return std::move(*answer_); }

    // The wait was ended by its task's end.
    void stopped() { give_up(make_error_code(errc::stopped)); }

private:
    // Binds the hold to a mark of its own.
    void bind(bool has_ticket) {
        auto taken = parts_.engine->be_present();
        if (taken && !has_ticket) {
            ticket_.process_bound = false;
            mark_ = std::move(*taken);
        } else {
            refused_ = taken ? std::make_error_code(std::errc::operation_not_supported)
                             : taken.error();
        }
    }
    bool give_up(std::error_code why) {
        withdraw();
        answer_.emplace(unexpected{why});
        return false;
    }
    void withdraw() noexcept;
    result<lock_engine::acquired, std::error_code> try_once();
    bool granted(const lock_engine::acquired& got);
    void plan(std::int64_t position, std::int64_t expiry_in_ms, bool watched);

    const lock_parts parts_;
    const std::stop_token stop_;
    const deadline until_;
    durable_ticket ticket_;
    std::shared_ptr<slot_presence> mark_; // of a hold that is inheritable
    std::error_code refused_{};           // before the first look
    const bool may_wait_;
    std::int64_t well_ms_;  // when the store last answered, and in time
    std::int64_t moved_ms_; // when the queue last moved
    std::int64_t position_ = -1;
    std::minstd_rand random_;
    bool may_be_queued_ = false;
    bool is_unsure_ = false;  // the last look failed: what it wrote may still come
    bool is_waiting_ = false; // and counts as such
    std::shared_ptr<event> changed_;
    deadline again_ = deadline::poll();
    std::optional<answer> answer_;
};

// The first look is one without much ado: most of them are the last.
inline result<lock_engine::acquired, std::error_code> acquisition::try_once() {
    lock_engine& engine = *parts_.engine;
    const auto look_for = [&](intent what) {
        return engine.acquire(ticket_, std::nullopt, what, deadline::never(), mark_.get());
    };
    if (!may_wait_) {
        return look_for(intent::nothing);
    }
    auto got = look_for(is_waiting_ ? intent::wait : intent::queue);
    if (got && got->outcome.is == durable::standing::waiting) {
        if (!is_waiting_) {
            engine.begin_waiting();
            is_waiting_ = true;
            return look_for(intent::watch);
        }
        if (got->can_be_watched) {
            return look_for(intent::watch);
        }
    }
    return got;
}

inline bool acquisition::look() {
    if (refused_) {
        return give_up(refused_);
    }
    changed_ = parts_.engine->signal().next();
    may_be_queued_ = true;
    is_unsure_ = true;
    auto got = try_once();
    is_unsure_ = !got && may_pass(got.error());
    const std::int64_t now = durable::boottime_ms();
    const bool patient = now - well_ms_ < parts_.engine->options().patience.count();
    if (!got) {
        if (!may_wait_ || !is_unsure_ || !patient) {
            return give_up(got.error());
        }
        plan(0, 0, false);
    } else {
        if (got->outcome.is != durable::standing::waiting) {
            if (granted(*got)) {
                return false;
            }
            if (!patient) { // the store never is in time
                return give_up(make_error_code(durable_errc::lock_lost));
            }
        } else {
            well_ms_ = now;
            if (!may_wait_) {
                may_be_queued_ = false;
                return give_up(make_error_code(errc::timeout));
            }
        }
        plan(got->outcome.position, got->expiry_in_ms, got->is_watched);
    }
    if (stop_.stop_requested()) {
        return give_up(make_error_code(errc::stopped));
    }
    if (native_platform::now() >= until_.steady_ns()) {
        return give_up(make_error_code(errc::timeout));
    }
    return true;
}

// False: the store took so long that the lease is over already.
inline bool acquisition::granted(const lock_engine::acquired& got) {
    ticket_.fence = got.outcome.fence;
    if (mark_ == nullptr && got.good_until_ms <= durable::boottime_ms()) {
        ticket_.fence = 0;
        return false;
    }
    const auto held =
        std::make_shared<hold>(parts_.engine, ticket_, got.outcome.lane, got.good_until_ms, mark_);
    held->begin();
    if (parts_.renewer != nullptr) {
        parts_.renewer->add(held);
    }
    may_be_queued_ = false;
    answer_.emplace(durable_guard(held));
    return true;
}

inline void acquisition::withdraw() noexcept {
    if (std::exchange(may_be_queued_, false)) {
#if BIDE_EXCEPTIONS
        try {
            static_cast<void>(parts_.engine->release(ticket_, is_unsure_));
        } catch (...) { // no memory: its place is over after a while
            ticket_.fence = 0;
        }
#else
        static_cast<void>(parts_.engine->release(ticket_, is_unsure_));
#endif
    }
}

// When to look again where nothing signals.
inline void acquisition::plan(std::int64_t position, std::int64_t expiry_in_ms, bool watched) {
    const durable_options& o = parts_.engine->options();
    const auto limited = [](std::chrono::milliseconds t) { // an hour is as good as never
        return std::min<std::int64_t>(t.count(), 3'600'000) * 1000;
    };
    const std::int64_t least = limited(o.poll_least);
    const std::int64_t most = limited(o.poll_most);
    std::int64_t us = most;
    if (!watched) {
        // As long as the queue moves the turn may come soon.
        if (position != position_) {
            position_ = position;
            moved_ms_ = durable::boottime_ms();
        }
        const std::int64_t stood_us = (durable::boottime_ms() - moved_ms_) * 1000;
        us = std::clamp(stood_us / 8, least, most) * (1 + std::min<std::int64_t>(position, 3));
    }
    const std::int64_t ttl = o.waiter_ttl.count() != 0 ? o.waiter_ttl.count() : o.lease.count();
    us = std::min({us, most, std::max<std::int64_t>(ttl * 1000 / 4, 1000)});
    const auto some = [this](std::int64_t up_to) {
        return std::uniform_int_distribution<std::int64_t>(0, up_to)(random_);
    };
    us += some(us / 4);
    if (expiry_in_ms != 0) { // the first in line somewhat before the others
        us = std::min(us, expiry_in_ms * 1000 + some(1000) +
                              1000 * std::min<std::int64_t>(position, 10));
    }
    const std::int64_t at = native_platform::now() + us * 1000;
    again_ = deadline::at_ns(std::min(at, until_.steady_ns()));
}

// For a thread.
inline acquisition::answer acquire_blocking(lock_parts parts, acquire_request request) {
    acquisition it(std::move(parts), std::move(request));
    const auto look = [&it]() noexcept { it.nudge(); };
    const std::stop_callback on_stop(it.stop(), look);
    while (it.look()) {
        const std::int64_t rest = it.again().steady_ns() - native_platform::now();
        it.changed().wait_for(std::chrono::nanoseconds(rest));
    }
    return it.take();
}

// For a coroutine.
inline task<acquisition::answer> acquire_task(lock_parts parts, acquire_request request) {
    acquisition it(std::move(parts), std::move(request));
    while (it.look()) {
        auto change = it.changed().async_wait().with_deadline(it.again()).with_stop(it.stop());
        const auto changed = co_await std::move(change);
        if (!changed && changed.error() == errc::stopped) {
            it.stopped();
            break;
        }
    }
    co_return it.take();
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
