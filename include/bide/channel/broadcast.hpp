// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_BROADCAST_HPP
#define BIDE_CHANNEL_BROADCAST_HPP

/// \file
/// Sends every value to every subscriber. A sender never waits; a slow subscriber misses values.

#include <bide/channel/detail/versioned_value.hpp>
#include <bide/core/result.hpp>

#include <memory>
#include <stdexcept>

namespace bide { inline namespace BIDE_ABI {

/// Why a subscriber received nothing.
struct recv_error {
    errc code;            ///< lagged, closed, empty, stopped or timeout.
    std::uint64_t missed; ///< For lagged: the number of values that were missed.
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
        : capacity_(capacity), kept_(new shared_value[capacity]) {
        if (capacity == 0) {
            BIDE_THROW(std::invalid_argument("bide::broadcast: a capacity of 0 keeps no value"));
        }
    }

    std::size_t capacity() const noexcept { return capacity_; }

    std::size_t send(T&& value) {
        shared_value news(std::move(value)); // after the swap: the value that leaves
        typename base::wake_list woken;
        base::lock();
        const std::size_t n = base::is_closed() ? 0 : base::readers();
        if (n != 0) {
            news.swap(kept_[base::latest() % capacity_]);
            base::post(woken);
        }
        base::unlock();
        woken.publish(wait_status::granted);
        return n;
    }

    // Returns the oldest value that `r` has not received, or the reason why there is none.
    result<T, recv_error> receive(reader& r, errc if_none) {
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

private:
    using shared_value = basic_shared_value<T, Platform>;

    const std::size_t capacity_;
    const std::unique_ptr<shared_value[]> kept_; // item i is at i % capacity; under the lock
};

} // namespace detail

/// Receives the values of a broadcast. One thread or coroutine uses it at a time. A copy starts at
/// the same value as its original and is independent afterwards. A subscriber may outlive the
/// broadcast.
/// Requires: the subscriber is not moved or destroyed while it waits; terminates otherwise.
template <class T, class Platform> class basic_broadcast_subscriber {
    using state = detail::broadcast_state<T, Platform>;

public:
    /// The type of a value.
    using value_type = T;
    /// The result of a receive.
    using result_type = result<T, recv_error>;

    /// Receives a copy of the oldest value that this subscriber has not received.
    /// Blocks: while there is no such value.
    /// Returns: the value. errc::closed: this subscriber has received all values, and no more will
    /// come. errc::lagged: the broadcast dropped values before this subscriber received them.
    /// `missed` is their number, and the next receive gets the oldest value that is still kept.
    /// Throws: what the copy constructor of T throws; the value then counts as not received.
    /// Memory order: what happens before the send happens before the return.
    result_type recv() { return wait(deadline::never()); }

    /// Receives as recv() does, unless a stop is requested first.
    /// Returns: as recv(), or errc::stopped.
    result_type recv(typename Platform::stop_token token) { return wait(token); }

    /// Receives as recv() does if there is a value. Never blocks.
    /// Returns: as recv(), or errc::empty.
    result_type try_recv() {
        BIDE_SWITCH_AFTER();
        return at_.state().receive(at_.reader(), errc::empty);
    }

    /// Receives as recv() does, but waits at most `rest`.
    /// Returns: as recv(), or errc::timeout.
    result_type try_recv_for(deadline::from_now rest) { return wait(deadline(rest)); }
    /// Receives as recv() does, but waits at most until a point in time.
    result_type try_recv_until(deadline when) { return wait(when); }

    /// Receives as recv() does, for a coroutine.
    /// Cancellation: if the operation is destroyed, no value counts as received.
    basic_async_op<result_type, Platform> async_recv() noexcept {
        return {receiving{{at_.state(), at_.reader()}}};
    }

private:
    template <class U, class P> friend class basic_broadcast;

    explicit basic_broadcast_subscriber(state& of) noexcept : at_(of) {}

    template <class Limit> result_type wait(const Limit& limit) {
        return collect(at_.state(), at_.reader(), at_.state().wait(at_.reader(), limit));
    }
    static result_type collect(state& s, typename state::reader& r, wait_status what) {
        if (what == wait_status::granted) {
            return s.receive(r, errc::closed);
        }
        return unexpected{recv_error{errc_of(what), 0}};
    }
    // The operation of async_recv() (core/wait_ops.hpp).
    struct receiving : state::reader_wait {
        result_type collect(wait_status what) const {
            return basic_broadcast_subscriber::collect(static_cast<state&>(this->of), this->its,
                                                       what);
        }
    };

    detail::subscription<state> at_;
};

/// Sends each value to every subscriber. The last `capacity` values are kept for subscribers that
/// have not received them. A value is destroyed when newer values displace it, or when the
/// broadcast and all its subscribers are destroyed. A send allocates; a receive and a wait do not.
///
/// \code
/// bide::broadcast<int> prices(16); // keeps the last 16 values
/// std::jthread reader([values = prices.subscribe()]() mutable {
///     while (auto price = values.recv()) std::printf("%d\n", *price); // until closed, or late
/// });
/// prices.send(7); // the number of subscribers; never blocks
/// prices.close();
/// \endcode
///
/// In a coroutine: `co_await values.async_recv()`.
///
/// Subscribers copy values without a lock, so several may copy one value at the same time. The last
/// thread that refers to a value destroys it.
template <class T, class Platform> class basic_broadcast {
    using state = detail::broadcast_state<T, Platform>;

public:
    /// The type of a value.
    using value_type = T;
    /// The type of a subscriber.
    using subscriber = basic_broadcast_subscriber<T, Platform>;

    /// Constructs a broadcast that keeps `capacity` values.
    /// Throws: std::invalid_argument if `capacity` is 0; std::bad_alloc.
    explicit basic_broadcast(std::size_t capacity) : at_(new state(capacity)) {}

    /// Closes the broadcast as close() does.
    ~basic_broadcast() = default;

    basic_broadcast& operator=(basic_broadcast&&) = delete;

    /// Sends a value to every subscriber. Never blocks.
    /// Returns: the number of subscribers. If there is no subscriber, or if the broadcast is
    /// closed, returns 0 and destroys the value.
    /// Throws: std::bad_alloc; nothing was sent then, and `value` is unchanged.
    std::size_t send(T&& value) {
        BIDE_SWITCH_AFTER();
        return at_.state().send(std::move(value));
    }
    /// Does the same with a copy of `value`.
    std::size_t send(const T& value)
        requires std::is_copy_constructible_v<T>
    {
        return send(T(value));
    }

    /// Returns a subscriber that receives every value sent from this call on.
    subscriber subscribe() noexcept { return subscriber(at_.state()); }
    /// Returns the number of subscribers.
    std::size_t subscribers() const noexcept { return at_.readers(); }

    /// Closes the broadcast. Subscribers still receive the kept values, and then errc::closed.
    /// Returns: true if this call closed it.
    bool close() noexcept {
        BIDE_SWITCH_AFTER();
        return at_.state().close();
    }
    /// Returns true if close() was called.
    bool is_closed() const noexcept { return at_.is_closed(); }

    /// Returns how many values are kept.
    std::size_t capacity() const noexcept { return at_.state().capacity(); }

private:
    detail::publication<state> at_;
};

}} // namespace bide::BIDE_ABI

#endif
