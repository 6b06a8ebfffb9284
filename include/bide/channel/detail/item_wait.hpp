// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_ITEM_WAIT_HPP
#define BIDE_CHANNEL_DETAIL_ITEM_WAIT_HPP

// What most kinds of channels share: their lock, and the waits of threads, coroutines and selects
// for an item. A Source is the object that a wait belongs to, such as a channel. It has
//
//   wait_status send(T&)        Moves the item in and returns granted; or leaves it in place and
//                               returns waiting (full), closed or no_memory.
//   bool send_allocates         True if send() may return no_memory.
//   wait_status recv(put)       Calls put(T&), which moves an item out, and returns granted; or
//                               returns waiting (empty) or closed.
//   wait_status enqueue(node&, side), bool cancel(node&, side, wait_status)
//                               Queue and cancel a wait (basic_channel_core in channel.hpp). The
//                               node of a sender carries the T, that of a receiver the
//                               destination of the item.
//   bool pass_on(T&)            Moves the item to the next waiting receiver, or back into the
//                               source. If neither is possible, leaves it in place and returns
//                               false.
//   bool yield_before_wait(try_again)
//                               Lets a thread yield before it queues. Returns true if
//                               try_again() has returned true.
//   int64_t spin_budget_ns()    How long a queued thread spins and yields before it sleeps. If this
//                               is 0, the thread waits by waiter::park().

#include <bide/core/detail/item_payload.hpp>
#include <bide/core/waiter.hpp>

#include <vector>

namespace bide { inline namespace BIDE_ABI {

namespace detail {

// A lock in the lowest bit of a word, for critical sections of a few instructions. The user of the
// word keeps state in the other bits. Only the holder of the lock changes these bits.
//
// Waiters do not write to the word, so the release is a plain store. Lock and unlock together take
// one read-modify-write, where core/lock_bits.hpp needs two. But a release wakes no waiter: a
// waiter pauses (lock_bits::stay_away), then yields, and at last sleeps for short times
// (basic_backoff). Such waits are short, because a holder releases within a few instructions,
// unless it is preempted.
//
// The release is the holder's last access to the word. The next holder sees what the releaser wrote
// [brief_lock.release].

template <class Platform> struct brief_lock {
    using word = std::uint32_t;
    using atomic = typename Platform::template atomic<word>;

    static constexpr word held = 1;

    // Blocks: until the holder releases. Returns the word without `held`.
    // Order: acquire [brief_lock.release]; sees what the last holder wrote.
    static word acquire(atomic& at) noexcept {
        return acquire_by<std::memory_order_acquire>(at, 0);
    }

    // Acquires the lock, and sets the bits `more` in the same step.
    // Order: seq_cst; the caller pairs this step with another seq_cst step. Also acquires.
    static word acquire_with(atomic& at, word more) noexcept {
        return acquire_by<std::memory_order_seq_cst>(at, more);
    }

    // Releases the lock and stores `next`, which lacks `held`.
    static void release(atomic& at, word next) noexcept {
        // Order: release [brief_lock.release]; the next holder sees what this holder wrote.
        at.store(next, std::memory_order_release);
    }

private:
    template <std::memory_order Order> static word acquire_by(atomic& at, word more) noexcept {
        // Order: relaxed; the CAS decides.
        word seen = at.load(std::memory_order_relaxed) & ~held;
        // Order: acquire at least [brief_lock.release]; sees what the last holder wrote. Failure:
        // relaxed, the slow path reads again.
        if (at.compare_exchange_weak(seen, seen | more | held, Order, std::memory_order_relaxed)) {
            return seen;
        }
        return acquire_slow<Order>(at, more);
    }

    template <std::memory_order Order>
    BIDE_NOINLINE static word acquire_slow(atomic& at, word more) noexcept {
        basic_backoff<Platform> again;
        for (int looks = 0;;) {
            // Order: relaxed; the CAS decides.
            word seen = at.load(std::memory_order_relaxed);
            if ((seen & held) != 0) {
                if (looks < Platform::lock_looks) {
                    lock_bits<Platform, word>::stay_away(looks++);
                } else {
                    again();
                }
                continue;
            }
            // Order: acquire at least [brief_lock.release]; sees what the last holder wrote.
            // Failure: relaxed, the loop reads again.
            if (at.compare_exchange_weak(seen, seen | more | held, Order,
                                         std::memory_order_relaxed)) {
                return seen;
            }
        }
    }
};

} // namespace detail

/// Why an item was not sent, and the item.
template <class T> struct send_error {
    errc code; ///< closed, full, stopped or timeout.
    T value;   ///< The item, which was not sent.
};

namespace detail {

// A base class for a Source whose threads yield a few times before they queue. Meanwhile the other
// side can move many items. A queued thread does not spin.
template <class Platform> class yielding_source {
public:
    template <class Try> bool yield_before_wait(Try&& try_again) noexcept {
        return basic_spin<Platform>::yielding(try_again, yields);
    }
    std::int64_t spin_budget_ns() const noexcept { return 0; }

private:
    static constexpr int yields = 8;
};

// Checks what every channel requires of its items. If a requirement is not met, an error message
// names it. The destructor is checked first, because std::is_nothrow_move_constructible is also
// false if the destructor may throw.
//
// The channels rely on nothing else: an item is constructed in place by direct initialisation and
// never assigned, and its address is taken by __builtin_addressof(). An item of any alignment is
// aligned inside a channel.
template <class T> constexpr bool check_element() noexcept {
    static_assert(std::is_object_v<T> && !std::is_const_v<T>,
                  "bide: a channel's elements must be objects that are not const");
    static_assert(std::is_nothrow_destructible_v<T>,
                  "bide: a channel's elements must not throw when destroyed");
    static_assert(std::is_nothrow_move_constructible_v<T>,
                  "bide: a channel's elements must not throw when moved: declare the move "
                  "constructor noexcept, or send a std::unique_ptr<T>");
    return true;
}
template <class T> inline constexpr bool is_element = check_element<T>();

// Constructs an item from arguments in parentheses. If the compiler cannot initialise an aggregate
// by parentheses (clang before 16), an aggregate is constructed with braces.
template <class T, class... Args>
concept element_of = std::is_constructible_v<T, Args...> ||
                     requires(Args&&... args) { T{std::forward<Args>(args)...}; };

template <class T, class... Args> T make_element(Args&&... args) {
    if constexpr (std::is_constructible_v<T, Args...>) {
        return T(std::forward<Args>(args)...);
    } else {
        return T{std::forward<Args>(args)...};
    }
}

// True if the compiler destroys twice a T that braces make in a co_await expression.
template <class T>
inline constexpr bool is_broken_in_braces =
    BIDE_BRACED_AWAIT_BUG && std::is_aggregate_v<T> && !std::is_trivially_destructible_v<T>;

enum class side : unsigned char { sending, receiving };

// The item of a queued sender, which its node carries.
template <class T, class Platform> T& item_of(const basic_waiter<Platform>& sender) noexcept {
    return sender.template carried<T>();
}

// Moves `item` to the destination of a queued receiver, which its node carries.
template <class T, class Platform>
void deliver(T& item, const basic_waiter<Platform>& receiver) noexcept {
    const auto& to = receiver.template carried<destination>();
    to.put(to.where, __builtin_addressof(item));
}

// Takes waiters out of the queue until one can be granted. Moves the item of that waiter by
// move(node&), and adds the waiter to `granted`. If no waiter can be granted, returns false.
template <class Platform, class Move>
bool meet(basic_waiter_queue<Platform>& waiting, Move&& move,
          basic_wake_list<Platform>& granted) noexcept {
    while (!waiting.empty()) {
        auto& w = waiting.pop();
        if (w.claim()) { // else its select has chosen another case
            move(w);
            w.commit();
            granted.push(w);
            return true;
        }
    }
    return false;
}
template <class T, class Platform>
bool hand_over(T& item, basic_waiter_queue<Platform>& receivers,
               basic_wake_list<Platform>& granted) noexcept {
    return detail::meet(
        receivers, [&item](auto& receiver) noexcept { detail::deliver(item, receiver); }, granted);
}

template <class T> struct send_payload {
    T value;
    keep_alive alive;

    template <class... Args>
    explicit send_payload(keep_alive kept, Args&&... args)
        : value(detail::make_element<T>(std::forward<Args>(args)...)), alive(std::move(kept)) {}
};

} // namespace detail

template <class T> struct wait_payload<result<void, send_error<T>>> {
    using type = detail::send_payload<T>;
};

namespace detail {

// Makes room for `more` items. If the vector has to grow, at least doubles its capacity, so that
// many small appends cost linear time.
template <class T> void make_room(std::vector<T>& out, std::size_t more) {
    if (out.capacity() - out.size() < more) {
        const std::size_t least = out.size() + more, twice = 2 * out.capacity();
        out.reserve(least > twice ? least : twice);
    }
}

// Appends up to `max` items, as long as there are any.
template <class Source, class T>
std::size_t recv_more(Source& s, std::vector<T>& out, std::size_t max) {
    std::size_t all = 0;
    while (all < max) {
        const std::size_t inside = s.size();
        const std::size_t most = inside == 0 ? 1 : inside < max - all ? inside : max - all;
        detail::make_room(out, most);
        const std::size_t n = s.recv_n(detail::into(out), most);
        if (n == 0) {
            break;
        }
        all += n;
    }
    return all;
}

// Receives and destroys all items, without a lock: the destructor of an item may use the channel.
template <class T, class Source> void destroy_items(Source& s) noexcept {
    std::optional<T> item;
    while (s.recv(detail::into(item)) == wait_status::granted) {
        item.reset();
    }
}

// Throws: std::bad_alloc if a send found no memory.
inline void require_memory(wait_status what) {
    if (what == wait_status::no_memory) {
        BIDE_THROW(std::bad_alloc());
    }
}

// Throws: std::bad_alloc if a send found no memory; `value` is unchanged then.
template <class T> result<void, send_error<T>> to_result(wait_status what, T& value) {
    require_memory(what);
    if (what == wait_status::granted) {
        return {};
    }
    const errc code = what == wait_status::waiting ? errc::full : errc_of(what);
    return unexpected<send_error<T>>{send_error<T>{code, T(std::move(value))}};
}
template <class T> result<T> to_received(wait_status what, std::optional<T>& item) noexcept {
    if (what == wait_status::granted) {
        return result<T>(std::in_place, std::move(*item));
    }
    return unexpected{what == wait_status::waiting ? errc::empty : errc_of(what)};
}

template <class T, class Platform, class Source> class item_wait {
    using node = basic_waiter<Platform>;

    // The common part of the operations on one side of a source.
    template <side Which> struct wait {
        Source& source;

        wait(Source& on) noexcept : source(on) {}
        const auto& primitive() const noexcept { return source; }
        // `place` is the T to send, or a destination.
        template <class Place> wait_status queue(node& w, Place& place) const noexcept {
            w.carry(place);
            return source.enqueue(w, Which);
        }
        bool cancel(node& w, wait_status why) const noexcept {
            return source.cancel(w, Which, why);
        }
    };

    // The wait of a thread, with the interface that thread_wait needs. Senders and receivers use
    // this one type, so that a program contains its code only once.
    struct thread {
        Source& source;
        side which;
        std::byte& place;            // the T to send, or the destination
        std::int64_t spin_budget_ns; // read at the start: the source may be destroyed later

        const auto& primitive() const noexcept { return source; }
        wait_status enqueue(node& w) noexcept {
            w.carry(place);
            return source.enqueue(w, which);
        }
        bool cancel(node& w, wait_status why) noexcept { return source.cancel(w, which, why); }
        bool await(node& w, deadline until) noexcept {
            if (spin_budget_ns == 0) {
                return w.park(until);
            }
            basic_spin<Platform>::spin_then_yield([&w]() noexcept { return w.is_complete(); },
                                                  spin_budget_ns);
            return w.sleep_through(until);
        }
    };

    // Blocks the thread until the operation has ended. again() tries the operation once more.
    // `limit` is a deadline or a stop token. `place` is the T to send, or the destination of the
    // item to receive.
    template <class Place, class Again, class Limit>
    static wait_status block(Source& s, side which, Place& place, Again&& again,
                             const Limit& limit) noexcept {
        if constexpr (std::is_same_v<Limit, deadline>) {
            if (limit.is_poll()) {
                return wait_status::timed_out;
            }
        }
        auto* const at = reinterpret_cast<std::byte*>(__builtin_addressof(place));
        thread queue{s, which, *at, s.spin_budget_ns()};
        wait_status got = wait_status::waiting;
        if (s.yield_before_wait(
                [&]() noexcept { return (got = again()) != wait_status::waiting; })) {
            return got;
        }
        return thread_wait<thread, Platform>::until(queue, 1, limit);
    }

    // `to` is the destination of `out`.
    template <class Out, class Limit>
    static wait_status recv_at(Source& s, destination& to, Out& out, const Limit& limit) noexcept {
        return block(
            s, side::receiving, to, [&]() noexcept { return s.recv(detail::into(out)); }, limit);
    }

    struct alignas(64) alignas(std::optional<T>) place_for_one {
        std::optional<T> item;
        destination to{item};
    };

public:
    // ---- Threads, after a first attempt

    // `out` is a vector with room for one more.
    template <class Limit>
    static wait_status recv(Source& s, std::vector<T>& out, const Limit& limit) noexcept {
        destination to(out);
        return recv_at(s, to, out, limit);
    }
    // Requires: `out` is empty.
    // A sender reads the `destination` of a waiting receiver and then writes the item. If the
    // destination and the item fit into one cache line, the item is received in a place_for_one and
    // then moved to `out`. So the sender accesses one line, not two.
    template <class Limit>
    static wait_status recv(Source& s, std::optional<T>& out, const Limit& limit) noexcept {
        if constexpr (sizeof(place_for_one) > 64) {
            destination to(out);
            return recv_at(s, to, out, limit);
        } else {
            place_for_one place;
            const wait_status got = recv_at(s, place.to, place.item, limit);
            if (place.item) {
                out.emplace(std::move(*place.item));
            }
            return got;
        }
    }
    template <class Limit>
    static wait_status send(Source& s, T& value, const Limit& limit) noexcept {
        return block(s, side::sending, value, [&]() noexcept { return s.send(value); }, limit);
    }

    // ---- Operations (core/wait_ops.hpp)

    // The value is empty if the channel is closed and no item is left.
    struct receiving : wait<side::receiving> {
        using payload = recv_payload<T>;
        using received = result<std::optional<T>>;

        using wait<side::receiving>::wait;
        wait_status try_now(payload& got) const noexcept {
            return this->source.recv(detail::into(got.item));
        }
        wait_status enqueue(node& w, payload& got) const noexcept {
            got.to = destination(got.item);
            return this->queue(w, got.to);
        }
        received collect(wait_status what, payload& got) const {
            if (what == wait_status::granted) {
                received item(std::in_place, std::in_place, std::move(*got.item));
                got.item.reset(); // a bytewise move of the optional would wait for its last stores
                return item;
            }
            if (what == wait_status::closed) {
                return std::optional<T>();
            }
            return unexpected{errc_of(what)};
        }
        void give_back(wait_status what, payload& got) const noexcept {
            if (what == wait_status::granted) {
                this->source.pass_on(*got.item);
                got.item.reset();
            }
        }
    };

    // Appends up to `max` items to `out`, which has room for one more.
    struct receiving_n : wait<side::receiving> {
        using payload = recv_n_payload;

        std::vector<T>& out;
        std::size_t limit;

        receiving_n(Source& from, std::vector<T>& to, std::size_t most) noexcept
            : wait<side::receiving>(from), out(to), limit(most) {}
        wait_status try_now() const noexcept {
            return limit == 0 ? wait_status::granted : this->source.recv(detail::into(out));
        }
        wait_status enqueue(node& w, payload& got) const noexcept {
            got.to = destination(out);
            return this->queue(w, got.to);
        }
        result<std::size_t> collect(wait_status what) const {
            if (what == wait_status::granted && limit != 0) {
                return 1 + detail::recv_more(this->source, out, limit - 1);
            }
            if (what == wait_status::granted || what == wait_status::closed) {
                return std::size_t{0};
            }
            return unexpected{errc_of(what)};
        }
        void give_back(wait_status what) const noexcept {
            if (what == wait_status::granted && limit != 0) {
                T item(std::move(out.back())); // a vector<bool> has no reference to it
                out.pop_back();
                if (!this->source.pass_on(item)) {
                    out.push_back(std::move(item));
                }
            }
        }
    };

    struct sending : wait<side::sending> {
        using payload = send_payload<T>;

        using wait<side::sending>::wait;
        wait_status try_now(payload& of) const noexcept { return this->source.send(of.value); }
        wait_status enqueue(node& w, payload& of) const noexcept {
            return this->queue(w, of.value);
        }
        result<void, send_error<T>> collect(wait_status what, payload& of) const {
            return detail::to_result(what, of.value);
        }
        void give_back(wait_status) const noexcept {}
    };

    // Sends `value`, which stays in place unless it is sent.
    struct sending_from : wait<side::sending> {
        T& value;

        sending_from(Source& to, T& from) noexcept : wait<side::sending>(to), value(from) {}
        wait_status try_now() const noexcept { return this->source.send(value); }
        wait_status enqueue(node& w) const noexcept { return this->queue(w, value); }
        result<void> collect(wait_status what) const {
            require_memory(what);
            return result_of(what);
        }
        void give_back(wait_status) const noexcept {}
    };
};

} // namespace detail

}} // namespace bide::BIDE_ABI

#endif
