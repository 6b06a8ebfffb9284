// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_ONESHOT_STATE_HPP
#define BIDE_CHANNEL_DETAIL_ONESHOT_STATE_HPP

// The state that the two ends of a oneshot share. `finished` and `closed` are marks. The lock
// guards the rest:
//
//   value_   finished  closed
//   none     no        no       at the beginning; both sides may wait
//   none     no        yes      the receiver has closed it; no waiter
//   there    yes       any      sent, not received yet; no waiter
//   none     yes       any      received, or never sent; no waiter
//   there    no        any      never: a sender that has sent has finished
//
// A value goes to the first waiter, or stays here.

#include <bide/channel/detail/item_wait.hpp>
#include <bide/channel/detail/shared_state.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/thread_wait.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/waiter.hpp>

#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// A Source of item_wait.hpp, whose sending side waits for close().
template <class T, class Platform> class oneshot_state : public basic_shared_state<Platform> {
    static_assert(std::is_nothrow_move_constructible_v<T> && std::is_nothrow_destructible_v<T>,
                  "bide: oneshot<T>: the move constructor and the destructor of T must not throw; "
                  "send a std::unique_ptr<T> otherwise");

    using base = basic_shared_state<Platform>;

public:
    static constexpr const char* waited_for = "oneshot";

    using typename base::node;
    using typename base::wake_list;

    oneshot_state() noexcept : base(2) {}

    // ---- The two ends

    // Ends the sender. If `value` is not nullptr, sends the value first. Returns true if it was
    // sent; otherwise the value is untouched.
    static bool finish(oneshot_state* s, T* value) noexcept;

    // Closes for the receiver, which ends if `leaves`. Returns true if this call closed it.
    static bool close(oneshot_state* s, bool leaves) noexcept;

    static void drop(oneshot_state* s) noexcept {
        if (s->drop_reference()) {
            delete s;
        }
    }
    static keep_alive keep(oneshot_state* s) noexcept {
        s->add_reference();
        return {s, [](void* p) noexcept { drop(static_cast<oneshot_state*>(p)); }};
    }

    // ---- The sender

    bool is_closed() const noexcept { return base::has(closed); }

    // The operation that waits for it (core/wait_ops.hpp).
    struct close_wait {
        oneshot_state& of;

        const auto& primitive() const noexcept { return of; }
        wait_status try_now() const noexcept {
            return of.is_closed() ? wait_status::granted : wait_status::waiting;
        }
        wait_status enqueue(node& w) const noexcept { return of.enqueue(w, side::sending); }
        bool cancel(node& w, wait_status why) const noexcept {
            return of.cancel(w, side::sending, why);
        }
        result<void> collect(wait_status what) const noexcept { return result_of(what); }
    };
    wait_status wait_closed(deadline until) noexcept {
        close_wait mine{*this};
        return is_closed() ? wait_status::granted : waits::until(mine, 1, until);
    }
    wait_status wait_closed(const typename Platform::stop_token& token) noexcept {
        close_wait mine{*this};
        return is_closed() ? wait_status::granted : waits::stoppable(mine, 1, token);
    }

    // ---- The receiver

    template <class Put> wait_status recv(Put&& put) noexcept {
        if (!base::has(finished | closed)) {
            return wait_status::waiting;
        }
        base::lock();
        const wait_status now = look(side::receiving);
        if (now == wait_status::granted) {
            put(*value_);
            value_.reset();
        }
        base::unlock();
        return now;
    }

    // Puts a received item back. There is no waiter once a value was sent.
    bool pass_on(T& item) noexcept {
        base::lock();
        value_.emplace(std::move(item));
        base::unlock();
        return true;
    }

    template <class Try> bool yield_before_wait(Try&&) noexcept { return false; }
    std::int64_t spin_budget_ns() const noexcept { return 0; }

    // ---- Both

    wait_status enqueue(node& w, side which) noexcept;
    bool cancel(node& w, side which, wait_status why) noexcept {
        base::lock();
        const bool ended = queue_of(which).withdraw(w, why);
        base::unlock();
        return ended;
    }

private:
    using waits = thread_wait<close_wait, Platform>;
    static constexpr auto finished = base::first_mark;
    static constexpr auto closed = base::second_mark;

    typename base::wait_queue& queue_of(side which) noexcept {
        return which == side::sending ? senders_ : receivers_;
    }

    // Requires: the lock. Returns the present outcome of a wait on that side.
    wait_status look(side which) const noexcept {
        if (which == side::sending) {
            return base::has(closed) ? wait_status::granted : wait_status::waiting;
        }
        if (value_) {
            return wait_status::granted;
        }
        return base::has(finished | closed) ? wait_status::closed : wait_status::waiting;
    }

    std::optional<T> value_;
    typename base::wait_queue receivers_; // each carries a destination
    typename base::wait_queue senders_;
};

template <class T, class Platform>
bool oneshot_state<T, Platform>::finish(oneshot_state* s, T* value) noexcept {
    wake_list granted;
    wake_list told;
    s->lock();
    if (!s->senders_.empty()) {
        s->senders_.fatal_destroyed("oneshot sender", s);
    }
    const bool sends = value != nullptr && !s->has(closed);
    bool received = !sends;
    while (!received && !s->receivers_.empty()) {
        node& w = s->receivers_.pop();
        received = w.claim(); // else its choice selected another wait
        if (received) {
            deliver(*value, w);
            w.commit();
            granted.push(w);
        }
    }
    if (!received) {
        s->value_.emplace(std::move(*value));
    }
    s->receivers_.pop_all(told);
    const bool last = s->unlock_with(finished, true);
    wake_list::publish(granted, wait_status::granted, told, wait_status::closed);
    if (last) {
        delete s;
    }
    return sends;
}

template <class T, class Platform>
bool oneshot_state<T, Platform>::close(oneshot_state* s, bool leaves) noexcept {
    if (leaves && s->is_alone()) { // the sender has ended, and there are no waiters
        delete s;
        return false;
    }
    wake_list granted;
    wake_list told;
    s->lock();
    const bool first = !s->has(closed);
    s->senders_.pop_all(granted);
    s->receivers_.pop_all(told);
    const bool last = s->unlock_with(closed, leaves);
    wake_list::publish(granted, wait_status::granted, told, wait_status::closed);
    if (last) {
        delete s;
    }
    return first;
}

template <class T, class Platform>
wait_status oneshot_state<T, Platform>::enqueue(node& w, side which) noexcept {
    base::lock();
    wait_status what = look(which);
    if (what == wait_status::waiting) {
        what = base::queue(queue_of(which), w);
    } else if (what = base::complete(w, what);
               what == wait_status::granted && which == side::receiving) {
        deliver(*value_, w);
        value_.reset();
    }
    base::unlock();
    return what;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
