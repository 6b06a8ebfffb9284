// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_ONESHOT_HPP
#define BIDE_CHANNEL_ONESHOT_HPP

/// \file
/// A channel for one value, from one sender to one receiver: the reply to a request, for example.

#include <bide/channel/detail/item_wait.hpp>
#include <bide/channel/detail/shared_state.hpp>

#include <memory>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// The state that the two ends of a oneshot share. `finished` and `closed` are flags. The lock
// guards the value and the waiters. The states are:
//
//   value_   finished  closed
//   none     no        no       at the beginning; both sides may wait
//   none     no        yes      the receiver has closed the channel; no waiter
//   set      yes       any      sent, not received yet; no waiter
//   none     yes       any      received, or never sent; no waiter
//   set      no        any      never: a sender that has sent has finished
//
// A sent value goes directly to a waiting receiver. If none waits, the value stays in `value_`.
//
// This is a Source (item_wait.hpp). A wait on the sending side waits for close().
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

    // Ends the sender. If `value` is not nullptr, sends the value first. Returns true if the value
    // was sent. If not, the value is unchanged.
    static bool finish(oneshot_state* s, T* value) noexcept {
        wake_list granted;
        wake_list failed;
        s->lock();
        if (!s->senders_.empty()) {
            s->senders_.fatal_destroyed("oneshot sender", s);
        }
        const bool sends = value != nullptr && !s->has(closed);
        if (sends && !detail::hand_over(*value, s->receivers_, granted)) {
            s->value_.emplace(std::move(*value));
        }
        s->receivers_.pop_all(failed);
        const bool last = s->unlock_with(finished, true);
        wake_list::publish(granted, wait_status::granted, failed, wait_status::closed);
        if (last) {
            delete s;
        }
        return sends;
    }

    // The receiver closes the channel. `drops` is true if the destructor of the receiver calls this
    // function, which then also drops the receiver's reference to the state. Returns true if this
    // call closed the channel. (If `drops` is true, the result is not used.)
    static bool close(oneshot_state* s, bool drops) noexcept {
        if (drops && s->is_alone()) { // the sender has ended, and there are no waiters
            delete s;
            return false;
        }
        wake_list granted;
        wake_list failed;
        s->lock();
        const bool first = !s->has(closed);
        s->senders_.pop_all(granted);
        s->receivers_.pop_all(failed);
        const bool last = s->unlock_with(closed, drops);
        wake_list::publish(granted, wait_status::granted, failed, wait_status::closed);
        if (last) {
            delete s;
        }
        return first;
    }

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

    // The operation that waits for close() (core/wait_ops.hpp).
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
    template <class Limit> wait_status wait_closed(const Limit& limit) noexcept {
        close_wait mine{*this};
        return base::wait_in(mine, limit);
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

    // Puts a received item back. No receiver waits, because a value was sent.
    bool pass_on(T& item) noexcept {
        base::lock();
        value_.emplace(std::move(item));
        base::unlock();
        return true;
    }

    template <class Try> bool yield_before_wait(Try&&) noexcept { return false; }
    std::int64_t spin_budget_ns() const noexcept { return 0; }

    // ---- Both

    wait_status enqueue(node& w, side which) noexcept {
        base::lock();
        wait_status what = look(which);
        if (what == wait_status::waiting) {
            what = base::queue(queue_of(which), w);
        } else if (what = base::complete(w, what);
                   what == wait_status::granted && which == side::receiving) {
            detail::deliver(*value_, w);
            value_.reset();
        }
        base::unlock();
        return what;
    }
    bool cancel(node& w, side which, wait_status why) noexcept {
        return base::locked([&]() noexcept { return queue_of(which).withdraw(w, why); });
    }

private:
    static constexpr auto finished = base::first_flag;
    static constexpr auto closed = base::second_flag;

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

} // namespace detail

/// Receives the value of a oneshot channel.
template <class T, class Platform> class basic_oneshot_receiver;

/// Sends the value of a oneshot channel. The channel has two ends, a sender and a receiver, each
/// with one owner. Either end may be destroyed while the other is in use. Only oneshot() allocates.
/// If a value was sent and not received, the end that is destroyed last destroys the value.
///
/// \code
/// auto [sender, receiver] = bide::oneshot<int>();
/// std::jthread worker([reply = std::move(sender)]() mutable {
///     const auto sent = std::move(reply).send(42); // fails if the receiver is gone
/// });
/// bide::result<int> answer = receiver.recv(); // errc::closed if the sender was destroyed
/// \endcode
///
/// In a coroutine: `co_await receiver.async_recv()`.
///
/// T is moved under a lock. The move constructor of T and the destructor of a moved-from T must not
/// use the channel.
template <class T, class Platform> class basic_oneshot_sender {
public:
    /// The type of the value.
    using value_type = T;

    /// Takes over the end of `other`. After that, `other` can only be destroyed or assigned to.
    basic_oneshot_sender(basic_oneshot_sender&& other) noexcept = default;
    /// Destroys its end and takes over the end of `other`.
    basic_oneshot_sender& operator=(basic_oneshot_sender&& other) noexcept = default;
    /// Destroys the sender. If it has not sent, the receiver gets errc::closed.
    /// Requires: no caller waits in closed(); terminates otherwise.
    ~basic_oneshot_sender() = default;

    /// Sends the value. After that, the sender can only be destroyed or assigned to. Never blocks.
    /// Returns: errc::closed, with the value, if there is no receiver.
    /// Requires: no caller waits in closed(); terminates otherwise.
    result<void, send_error<T>> send(T value) && noexcept {
        BIDE_SWITCH_AFTER();
        const bool sent = state::finish(state_.release(), __builtin_addressof(value));
        return detail::to_result(sent ? wait_status::granted : wait_status::closed, value);
    }

    /// Returns true if a send would fail: the receiver was destroyed or closed.
    bool is_closed() const noexcept { return state_->is_closed(); }

    /// Waits until the receiver is destroyed or closed.
    /// Requires: the sender is not moved meanwhile.
    /// Blocks: until the receiver is destroyed or closed.
    void closed() { state_->wait_closed(deadline::never()); }

    /// Waits as closed() does, but at most `rest`.
    /// Returns: true if the receiver is destroyed or closed; false after the time-out.
    bool closed_for(deadline::from_now rest) {
        return state_->wait_closed(deadline(rest)) == wait_status::granted;
    }
    /// Waits as closed() does, but at most until a point in time.
    bool closed_until(deadline when) { return state_->wait_closed(when) == wait_status::granted; }

    /// Waits as closed() does, unless a stop is requested first.
    /// Returns: errc::stopped if the stop came before the receiver was destroyed or closed.
    result<void> closed(typename Platform::stop_token token) {
        return result_of(state_->wait_closed(token));
    }

    /// Waits as closed() does, for a coroutine.
    /// Returns: an operation for co_await.
    basic_async_op<void, Platform> async_closed() { return {typename state::close_wait{*state_}}; }

private:
    template <class U, class P>
    friend std::pair<basic_oneshot_sender<U, P>, basic_oneshot_receiver<U, P>> oneshot();

    using state = detail::oneshot_state<T, Platform>;
    explicit basic_oneshot_sender(state* of) noexcept : state_(of) {}

    struct end {
        void operator()(state* s) const noexcept { state::finish(s, nullptr); }
    };

    std::unique_ptr<state, end> state_;
};

/// Receives the value of a oneshot channel; see basic_oneshot_sender.
template <class T, class Platform> class basic_oneshot_receiver {
public:
    /// The type of the value.
    using value_type = T;

    /// Takes over the end of `other`. After that, `other` can only be destroyed or assigned to.
    basic_oneshot_receiver(basic_oneshot_receiver&& other) noexcept = default;
    /// Destroys its end and takes over the end of `other`.
    basic_oneshot_receiver& operator=(basic_oneshot_receiver&& other) noexcept = default;
    /// Closes the channel as close() does. A wait of this receiver ends with errc::closed.
    ~basic_oneshot_receiver() = default;

    /// Receives the value.
    /// Blocks: until the value is sent.
    /// Returns: the value; errc::closed if it will never be sent, or was received already.
    /// Memory order: what happens before the send happens before the return.
    result<T> recv() { return wait(deadline::never()); }

    /// Receives as recv() does, unless a stop is requested first.
    /// Returns: as recv(), or errc::stopped.
    result<T> recv(typename Platform::stop_token token) { return wait(token); }

    /// Receives as recv() does if the value was sent. Never blocks.
    /// Returns: as recv(), or errc::empty.
    result<T> try_recv() noexcept {
        BIDE_SWITCH_AFTER();
        std::optional<T> value;
        return detail::to_received(state_->recv(detail::into(value)), value);
    }

    /// Receives as recv() does, but waits at most `rest`.
    /// Returns: as recv(), or errc::timeout.
    result<T> try_recv_for(deadline::from_now rest) { return wait(deadline(rest)); }
    /// Receives as recv() does, but waits at most until a point in time.
    result<T> try_recv_until(deadline when) { return wait(when); }

    /// Receives as recv() does, for a coroutine.
    /// Returns: an operation for co_await; its value is empty if recv() would return errc::closed.
    /// Cancellation: if the operation is destroyed (core/async_op.hpp) after the value was granted
    /// to it, the next receive gets the value.
    basic_async_op<std::optional<T>, Platform> async_recv() {
        return {typename waits::receiving{*state_},
                detail::recv_payload<T>(state::keep(state_.get()))};
    }

    /// Closes the channel: a later send fails, and a waiting receive ends. A value that was sent
    /// before can still be received.
    /// Returns: true if this call closed it.
    bool close() noexcept {
        BIDE_SWITCH_AFTER();
        return state::close(state_.get(), false);
    }

private:
    template <class U, class P>
    friend std::pair<basic_oneshot_sender<U, P>, basic_oneshot_receiver<U, P>> oneshot();

    using state = detail::oneshot_state<T, Platform>;
    using waits = detail::item_wait<T, Platform, state>;
    explicit basic_oneshot_receiver(state* of) noexcept : state_(of) {}

    template <class Limit> result<T> wait(const Limit& limit) {
        std::optional<T> value;
        state* const from = state_.get();
        if (const wait_status got = from->recv(detail::into(value)); got != wait_status::waiting) {
            return detail::to_received(got, value);
        }
        const detail::keep_alive alive = state::keep(from);
        const wait_status got = waits::recv(*from, value, limit);
        return detail::to_received(got, value);
    }

    struct end {
        void operator()(state* s) const noexcept { state::close(s, true); }
    };

    std::unique_ptr<state, end> state_;
};

/// Makes a oneshot channel: auto [sender, receiver] = bide::oneshot<int>();
/// Returns: its sender and its receiver.
/// Throws: std::bad_alloc.
template <class T, class Platform = native_platform>
std::pair<basic_oneshot_sender<T, Platform>, basic_oneshot_receiver<T, Platform>> oneshot() {
    auto* const state = new detail::oneshot_state<T, Platform>;
    return {basic_oneshot_sender<T, Platform>(state), basic_oneshot_receiver<T, Platform>(state)};
}

}} // namespace bide::BIDE_ABI

#endif
