// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_SIGNAL_WAIT_HPP
#define BIDE_CHANNEL_DETAIL_SIGNAL_WAIT_HPP

// The cases of a select without a value: an event, a time-out, a deadline and a stop.

#include <bide/channel/detail/select_core.hpp>
#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/timer.hpp>
#include <bide/core/timer_queue.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waiter_queue.hpp>
#include <bide/core/wake_scope.hpp>

#include <optional>
#include <stop_token>
#include <utility>
#include <variant>

namespace bide::inline BIDE_ABI {

template <class Result, class Platform> class basic_select_case;

namespace detail {

// Makes the operation a case of a select (channel/select.hpp).
template <class T, class Platform>
basic_select_case<T, Platform> case_of(basic_async_op<T, Platform>&& op) noexcept;

// Ends the select unless a case has happened. `node` is a basic_waiter<Platform>.
template <class Platform> void end_by(void* node) noexcept {
    auto& w = *static_cast<basic_waiter<Platform>*>(node);
    if (w.claim()) {
        w.commit();
        basic_wake_list<Platform>::publish(w, wait_status::granted);
    }
}

// A time-out, a deadline or a stop; empty for a case of another kind. Moved only before it begins.
class signal_payload {
public:
    signal_payload() noexcept = default;
    explicit signal_payload(select_timeout what) noexcept : timeout_(what) {}
    explicit signal_payload(std::stop_token what) noexcept : stop_(std::move(what)) {}
    signal_payload(signal_payload&& other) noexcept
        : timeout_(other.timeout_), stop_(std::move(other.stop_)) {}

    // Returns true if a coroutine that waits for it needs timers.
    bool needs_timers() const noexcept { return timeout_.has_value() || stop_.stop_possible(); }

    const select_timeout* timeout() const noexcept {
        return timeout_.has_value() ? &*timeout_ : nullptr;
    }

    // As enqueue() of an operation.
    template <class Platform> wait_status arm_timeout(basic_waiter<Platform>& w) noexcept {
        const deadline end = timeout_->from_now();
        if (end.is_never()) {
            return wait_status::waiting;
        }
        if (end.has_passed()) {
            return end_now(w);
        }
        clock_.when = end;
        clock_.fire = waker(&end_by<Platform>, &w);
        add_timer<Platform>(clock_);
        return wait_status::waiting;
    }
    template <class Platform> void disarm_timeout() noexcept {
        if (clock_.fire) {
            cancel_timer<Platform>(clock_);
            clock_.fire = {};
        }
    }

    bool has_passed() const noexcept { return timeout_->from_now().has_passed(); }
    bool is_stopped() const noexcept { return stop_.stop_requested(); }

    template <class Platform> wait_status arm_stop(basic_waiter<Platform>& w) noexcept {
        if (is_stopped()) {
            return end_now(w);
        }
        if (stop_.stop_possible()) {
            on_stop_.emplace(stop_, on_stop{&w, &stopped<Platform>}); // it may run at once, here
        }
        return wait_status::waiting;
    }
    void disarm_stop() noexcept { on_stop_.reset(); }

private:
    struct on_stop {
        void* node;
        void (*run)(void*) noexcept;
        void operator()() const noexcept { run(node); }
    };

    // What this resumes does not run on the thread that requested the stop.
    template <class Platform> static void stopped(void* node) noexcept {
        wake_scope<Platform> away(&service_executor<Platform>);
        end_by<Platform>(node);
    }

    template <class Platform> static wait_status end_now(basic_waiter<Platform>& w) noexcept {
        if (!w.claim()) {
            return wait_status::waiting;
        }
        w.commit();
        w.settle(wait_status::granted);
        return wait_status::granted;
    }

    std::optional<select_timeout> timeout_;
    timer clock_;
    std::stop_token stop_;
    std::optional<std::stop_callback<on_stop>> on_stop_;
};

} // namespace detail

template <> struct wait_payload<result<std::monostate>> {
    using type = detail::signal_payload;
};

namespace detail {

// The operations of these cases (core/wait_ops.hpp), without a result: the select knows that they
// have happened.
template <class Platform> struct timeout_wait {
    wait_status try_now() const noexcept { return wait_status::waiting; }
    wait_status enqueue(basic_waiter<Platform>& w, signal_payload& of) const noexcept {
        return of.arm_timeout(w);
    }
    bool cancel(basic_waiter<Platform>&, wait_status, signal_payload& of) const noexcept {
        of.template disarm_timeout<Platform>();
        return true;
    }
};

template <class Platform> struct deadline_wait : timeout_wait<Platform> {
    wait_status try_now(signal_payload& of) const noexcept {
        return of.has_passed() ? wait_status::granted : wait_status::waiting;
    }
};

template <class Platform> struct stop_wait {
    wait_status try_now(signal_payload& of) const noexcept {
        return of.is_stopped() ? wait_status::granted : wait_status::waiting;
    }
    wait_status enqueue(basic_waiter<Platform>& w, signal_payload& of) const noexcept {
        return of.arm_stop(w);
    }
    bool cancel(basic_waiter<Platform>&, wait_status, signal_payload& of) const noexcept {
        of.disarm_stop();
        return true;
    }
};

template <class Platform>
basic_select_case<std::monostate, Platform> timeout_case(select_timeout t) noexcept {
    return {timeout_wait<Platform>(), signal_payload(t), true};
}
template <class Platform>
basic_select_case<std::monostate, Platform> deadline_case(select_timeout t) noexcept {
    return {deadline_wait<Platform>(), signal_payload(t)};
}
template <class Platform>
basic_select_case<std::monostate, Platform> stop_case(std::stop_token t) noexcept {
    return {stop_wait<Platform>(), signal_payload(std::move(t))};
}

// Makes a case of a wait that has no value.
template <class Platform>
basic_select_case<std::monostate, Platform> signal_case(basic_wait<result<void>, Platform>&& w) {
    return basic_select_case<std::monostate, Platform>(*w.ops, w.target);
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
