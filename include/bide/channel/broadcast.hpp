#ifndef BIDE_CHANNEL_BROADCAST_HPP
#define BIDE_CHANNEL_BROADCAST_HPP

// Every value to everybody who has subscribed. Senders never wait; who is too slow misses values,
// and is told how many.

#include <bide/channel/detail/shared_value.hpp>
#include <bide/channel/detail/subscription.hpp>
#include <bide/channel/detail/try_range.hpp>
#include <bide/channel/detail/versioned_value.hpp>
#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/result.hpp>
#include <bide/fwd.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {

// Why a subscriber received nothing.
struct recv_error {
    errc code;            // lagged, closed, empty, stopped or timeout
    std::uint64_t missed; // how many values, where it lagged behind
};

namespace detail {

template <class T, class Platform> class broadcast_state : public basic_versioned_value<Platform> {
    static_assert(std::is_nothrow_move_constructible_v<T>,
                  "broadcast<T>: T's move constructor must not throw (its copies may)");

    using base = basic_versioned_value<Platform>;

public:
    using typename base::reader;
    static constexpr const char* reader_name = "broadcast subscriber";

    explicit broadcast_state(std::size_t capacity)
        : capacity_(capacity), kept_(new shared_value[capacity]) {}

    std::size_t capacity() const noexcept { return capacity_; }

    std::size_t send(T&& value) {
        shared_value news(std::move(value)); // in the end, what it pushes out
        typename base::wake_list told;
        base::lock();
        const std::size_t n = base::is_closed() ? 0 : base::readers();
        if (n != 0) {
            news.swap(kept_[base::latest() % capacity_]);
            base::post(told);
        }
        base::unlock();
        told.publish(wait_status::granted);
        return n;
    }

    // What `r` has not seen yet, if there is anything.
    result<T, recv_error> receive(reader& r, errc if_none);

private:
    using shared_value = basic_shared_value<T, Platform>;

    const std::size_t capacity_;
    const std::unique_ptr<shared_value[]> kept_; // item i is at i % capacity; under the lock
};

} // namespace detail

// How one of many receives what is sent. To be used by one at a time. A copy of it has received as
// much, and goes on by itself. It may outlive the broadcast, but not its own waits: it stays where
// it is while it waits.
template <class T, class Platform> class basic_broadcast_subscriber {
    using state = detail::broadcast_state<T, Platform>;

public:
    using value_type = T;
    using result_type = result<T, recv_error>;

    // Copies and moves are its members'. To destroy it, to move it and to assign to it
    // Requires: nobody waits on it; terminates otherwise.

    // A copy of the oldest value that it has not received yet. errc::lagged and how many it has
    // missed, once, where there were too many for the capacity: then it goes on with the oldest
    // that is still there. errc::closed: it has received all, and nothing more will come.
    // Blocks: while there is none.
    // Order: everything before the send happens-before the return.
    // Throws: what T's copy does; it has not received that value then, and may try again.
    result_type recv() { return wait(deadline::never()); }

    // As recv(); errc::stopped when a stop is requested first.
    result_type recv(std::stop_token token) { return wait(token); }

    // Never waits: errc::empty.
    result_type try_recv() { return at_.state().receive(at_.reader(), errc::empty); }

    // Receives without waiting until there is nothing: for (T& v : subscriber.try_iter()). An input
    // range; a copy is valid until the next increment. Values that were missed are passed over.
    // Throws: what T's copy does, as recv().
    detail::try_range<basic_broadcast_subscriber> try_iter() noexcept {
        return detail::try_range<basic_broadcast_subscriber>(*this);
    }

    // As recv(), for at most that long: errc::timeout.
    template <class R, class P> result_type try_recv_for(const std::chrono::duration<R, P>& rest) {
        return wait(deadline::after(rest));
    }
    template <class C, class D>
    result_type try_recv_until(const std::chrono::time_point<C, D>& when) {
        return wait(deadline::at(when));
    }

    // As recv(), for a coroutine. One that is destroyed has received nothing.
    basic_async_op<result_type, Platform> async_recv() noexcept {
        static constexpr auto ops = state::template ops<result_type>(&collect);
        return {ops,
                wait_target{static_cast<detail::basic_versioned_value<Platform>*>(&at_.state()),
                            &at_.reader()}};
    }

private:
    template <class U, class P> friend class basic_broadcast;

    explicit basic_broadcast_subscriber(state& s) noexcept : at_(s) {}

    template <class Limit> result_type wait(const Limit& limit) {
        return collect(at_.state(), at_.reader(), at_.state().wait(at_.reader(), limit));
    }
    static result_type collect(state& s, typename state::reader& r, wait_status what) {
        if (what == wait_status::granted) {
            return s.receive(r, errc::closed);
        }
        return unexpected{recv_error{errc_of(what), 0}};
    }
    static result_type collect(const wait_target& t, wait_status what) {
        auto* const versioned_value =
            static_cast<detail::basic_versioned_value<Platform>*>(t.queue);
        return collect(static_cast<state&>(*versioned_value),
                       *static_cast<typename state::reader*>(t.owner), what);
    }

    detail::subscription<state> at_;
};

// The last `capacity` values are kept for those who have not received them yet, and go when they
// are pushed out, or with the last of broadcast and subscribers. A send allocates, a receive and a
// wait do not.
//
// Copies are made by those who receive, of one value perhaps several at a time, and under no lock;
// the last who refers to a value destroys it.
template <class T, class Platform> class basic_broadcast {
    using state = detail::broadcast_state<T, Platform>;

public:
    using value_type = T;
    using subscriber = basic_broadcast_subscriber<T, Platform>;

    // Throws: std::invalid_argument for a capacity of 0; std::bad_alloc.
    explicit basic_broadcast(std::size_t capacity) : at_(new state(checked(capacity))) {}

    // As close().
    ~basic_broadcast() = default;

    basic_broadcast(const basic_broadcast&) = delete;
    basic_broadcast& operator=(const basic_broadcast&) = delete;

    // To every subscriber; says how many there are. Never waits. 0: there is none, or it is closed;
    // the value is gone.
    // Throws: std::bad_alloc; nothing was sent then, and `value` is as it was.
    std::size_t send(T&& value) { return at_.state().send(std::move(value)); }
    std::size_t send(const T& value)
        requires std::is_copy_constructible_v<T>
    {
        return send(T(value));
    }

    // One that receives all that is sent from now on.
    subscriber subscribe() noexcept { return subscriber(at_.state()); }
    std::size_t subscribers() const noexcept { return at_.readers(); }

    // No more sends. Subscribers receive what there is, and are told then. True the first time.
    bool close() noexcept { return at_.state().close(); }
    bool is_closed() const noexcept { return at_.is_closed(); }

    std::size_t capacity() const noexcept { return at_.state().capacity(); }

private:
    static std::size_t checked(std::size_t capacity) {
        if (capacity == 0) {
            BIDE_THROW(std::invalid_argument("bide::broadcast: a capacity of 0 keeps no value"));
        }
        return capacity;
    }

    detail::publication<state> at_;
};

namespace detail {

template <class T, class Platform>
result<T, recv_error> broadcast_state<T, Platform>::receive(reader& r, errc if_none) {
    shared_value news;
    std::uint64_t missed = 0;
    base::lock();
    const wait_status now = base::look(r);
    if (now == wait_status::granted) {
        const std::uint64_t behind = base::latest() - r.seen;
        if (behind > capacity_) {
            missed = behind - capacity_;
        } else {
            news = kept_[r.seen % capacity_];
        }
    }
    base::unlock();
    if (news) {
        result<T, recv_error> got(std::in_place, *news);
        ++r.seen;
        return got;
    }
    r.seen += missed;
    const errc code = missed != 0                  ? errc::lagged
                      : now == wait_status::closed ? errc::closed
                                                   : if_none;
    return unexpected{recv_error{code, missed}};
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
