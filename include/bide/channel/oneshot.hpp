#ifndef BIDE_CHANNEL_ONESHOT_HPP
#define BIDE_CHANNEL_ONESHOT_HPP

// One value, once, from one to another: the answer to a request, say.

#include <bide/channel/detail/element.hpp>
#include <bide/channel/detail/item_wait.hpp>
#include <bide/channel/detail/oneshot_state.hpp>
#include <bide/channel/detail/try_range.hpp>
#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/fwd.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>

namespace bide::inline BIDE_ABI {

template <class T, class Platform> class basic_oneshot_receiver;

// Two ends, each in one hand; who has done with it lets go, whatever the other still does. One
// allocation, here; no other operation allocates. A value that was sent and not received is
// destroyed with the later of the two ends.
//
// T is moved under a lock: neither its moves nor the destructor of what was moved from may use the
// channel.
template <class T, class Platform> class basic_oneshot_sender {
public:
    using value_type = T;

    basic_oneshot_sender(basic_oneshot_sender&& other) noexcept
        : state_(std::exchange(other.state_, nullptr)) {}
    basic_oneshot_sender& operator=(basic_oneshot_sender other) noexcept {
        std::swap(state_, other.state_);
        return *this;
    }

    // Without having sent: the receiver is told errc::closed.
    // Requires: nobody waits for closed(); terminates otherwise.
    ~basic_oneshot_sender() {
        if (state_ != nullptr) {
            state::finish(state_, nullptr);
        }
    }

    // Sends it, and is done with: *this can only be destroyed or assigned to. Never waits.
    // errc::closed, and the value: there is no receiver any more.
    // Requires: nobody waits for closed(); terminates otherwise.
    result<void, send_error<T>> send(T value) && noexcept {
        const bool sent = state::finish(std::exchange(state_, nullptr), std::addressof(value));
        return detail::to_result(sent ? wait_status::granted : wait_status::closed, value);
    }

    // As send(), but makes the value of arguments: T(args...), or T{args...} of an aggregate.
    // Throws: what that does; nothing was sent then, and another send may follow.
    template <class... Args>
        requires detail::element_of<T, Args...>
    result<void, send_error<T>> emplace(Args&&... args) && {
        return std::move(*this).send(detail::make_element<T>(std::forward<Args>(args)...));
    }

    // The receiver has gone, or was closed: a send would be in vain.
    bool is_closed() const noexcept { return state_->is_closed(); }

    // Blocks: until the receiver has gone or was closed. The sender stays where it is until then.
    void closed() { state_->wait_closed(deadline::never()); }

    // As closed(), for at most that long; false: timed out.
    template <class R, class P> bool closed_for(const std::chrono::duration<R, P>& rest) {
        return state_->wait_closed(deadline::after(rest)) == wait_status::granted;
    }
    template <class C, class D> bool closed_until(const std::chrono::time_point<C, D>& when) {
        return state_->wait_closed(deadline::at(when)) == wait_status::granted;
    }

    // As closed(); errc::stopped when a stop is requested first.
    result<void> closed(std::stop_token token) {
        const wait_status what = state_->wait_closed(token);
        return result_of(what);
    }

    // As closed(), for a coroutine.
    basic_async_op<void, Platform> async_closed() {
        return {state::closed_ops, wait_target{state_, nullptr}};
    }

private:
    template <class U, class P>
    friend std::pair<basic_oneshot_sender<U, P>, basic_oneshot_receiver<U, P>> oneshot();

    using state = detail::oneshot_state<T, Platform>;
    explicit basic_oneshot_sender(state* s) noexcept : state_(s) {}

    state* state_;
};

template <class T, class Platform> class basic_oneshot_receiver {
public:
    using value_type = T;

    basic_oneshot_receiver(basic_oneshot_receiver&& other) noexcept
        : state_(std::exchange(other.state_, nullptr)) {}
    basic_oneshot_receiver& operator=(basic_oneshot_receiver other) noexcept {
        std::swap(state_, other.state_);
        return *this;
    }

    // As close(): who waits on it is told errc::closed.
    ~basic_oneshot_receiver() {
        if (state_ != nullptr) {
            state::close(state_, true);
        }
    }

    // Takes the value.
    // Blocks: until it is sent. errc::closed: it never will be, or was received already.
    // Order: everything before the send happens-before the return.
    result<T> recv() { return wait(deadline::never()); }

    // As recv(); errc::stopped when a stop is requested first.
    result<T> recv(std::stop_token token) { return wait(token); }

    // Never waits. errc::empty, or errc::closed.
    result<T> try_recv() noexcept {
        std::optional<T> value;
        return detail::to_received(state_->recv(detail::into(value)), value);
    }

    // The value if it is there, as a range of one: for (T& v : receiver.try_iter()).
    detail::try_range<basic_oneshot_receiver> try_iter() noexcept {
        return detail::try_range<basic_oneshot_receiver>(*this);
    }

    // As recv(), for at most that long; errc::timeout, errc::closed.
    template <class R, class P> result<T> try_recv_for(const std::chrono::duration<R, P>& rest) {
        return wait(deadline::after(rest));
    }
    template <class C, class D>
    result<T> try_recv_until(const std::chrono::time_point<C, D>& when) {
        return wait(deadline::at(when));
    }

    // As recv(), for a coroutine; nothing: closed. A value that came to one that was destroyed is
    // there for the next.
    basic_async_op<std::optional<T>, Platform> async_recv() {
        return {waits::recv_ops, wait_target{state_, this},
                detail::recv_payload<T>(state::keep(state_))};
    }

    // Nothing more is to be sent: a send fails from now on, and who waits for one is told. A value
    // that was sent before can still be received. True the first time.
    bool close() noexcept { return state::close(state_, false); }

private:
    template <class U, class P>
    friend std::pair<basic_oneshot_sender<U, P>, basic_oneshot_receiver<U, P>> oneshot();

    using state = detail::oneshot_state<T, Platform>;
    using waits = detail::item_wait<T, Platform, state>;
    explicit basic_oneshot_receiver(state* s) noexcept : state_(s) {}

    template <class Limit> result<T> wait(const Limit& limit) {
        std::optional<T> value;
        state* const from = state_;
        if (const wait_status got = from->recv(detail::into(value)); got != wait_status::waiting) {
            return detail::to_received(got, value);
        }
        const detail::keep_alive alive = state::keep(from);
        const wait_status got = waits::recv(*from, value, limit);
        return detail::to_received(got, value);
    }

    state* state_;
};

// The two ends: auto [sender, receiver] = bide::oneshot<int>();
// Throws: std::bad_alloc.
template <class T, class Platform = native_platform>
std::pair<basic_oneshot_sender<T, Platform>, basic_oneshot_receiver<T, Platform>> oneshot() {
    auto* const state = new detail::oneshot_state<T, Platform>;
    return {basic_oneshot_sender<T, Platform>(state), basic_oneshot_receiver<T, Platform>(state)};
}

} // namespace bide::inline BIDE_ABI

#endif
