// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_ITEM_WAIT_HPP
#define BIDE_CHANNEL_DETAIL_ITEM_WAIT_HPP

// Waits that move an item: those of threads, and the operations of coroutines and selects. The
// object that is waited on, a Source, has
//
//   wait_status send(T&)          moves it in: granted. Untouched: waiting (full), closed, no_memory
//   bool send_allocates           true if no_memory is possible
//   wait_status recv(put)         put(T&) moves one out: granted; waiting (empty) or closed
//   wait_status enqueue(node&, side)          as in channel_core.hpp; the node carries the T, or the
//   bool cancel(node&, side, wait_status)     receiver's destination
//   bool pass_on(T&)              gives it to the next waiting receiver, or puts it back; false if
//                                 neither is possible: the item is untouched
//   bool yield_before_wait(try_again)         before a thread queues: true if try_again() was true
//   int64_t spin_budget_ns()      how long a queued thread yields before it sleeps; 0: as park()

#include <bide/channel/detail/element.hpp>
#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/result.hpp>
#include <bide/core/spin.hpp>
#include <bide/core/thread_wait.hpp>
#include <bide/core/wait_ops.hpp>
#include <bide/core/waiter.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace bide::inline BIDE_ABI {

/// Why an item was not sent, and the item.
template <class T> struct send_error {
    errc code; ///< closed, full, stopped or timeout.
    T value;   ///< The item, which was not sent.
};

namespace detail {

enum class side : unsigned char { sending, receiving };

// Where a waiting receiver wants its item. `put` moves the item there, under the source's lock.
struct destination {
    void (*put)(void* where, void* item) noexcept = nullptr;
    void* where = nullptr;

    template <class T> explicit destination(std::optional<T>& to) noexcept : where(&to) {
        put = [](void* out, void* received) noexcept {
            static_cast<std::optional<T>*>(out)->emplace(std::move(*static_cast<T*>(received)));
        };
    }
    // Requires: the vector has room for one more item.
    template <class T> explicit destination(std::vector<T>& to) noexcept : where(&to) {
        put = [](void* out, void* item) noexcept {
            static_cast<std::vector<T>*>(out)->push_back(std::move(*static_cast<T*>(item)));
        };
    }
    destination() noexcept = default;
};

template <class Self, class T, class Platform> class send_operations;

// The item of a queued sender, which its node carries.
template <class T, class Platform> T& item_of(const basic_waiter<Platform>& sender) noexcept {
    return sender.template carried<T>();
}

// Moves `item` to the destination of a queued receiver, which its node carries.
template <class T, class Platform>
void deliver(T& item, const basic_waiter<Platform>& receiver) noexcept {
    const auto& to = receiver.template carried<destination>();
    to.put(to.where, std::addressof(item));
}

// Keeps an object alive; empty, it keeps nothing.
class keep_alive {
public:
    using release = void (*)(void*) noexcept;

    keep_alive() noexcept = default;
    keep_alive(void* of, release how) noexcept : object_(of), how_(how) {}
    keep_alive(keep_alive&& other) noexcept
        : object_(std::exchange(other.object_, nullptr)), how_(other.how_) {}
    keep_alive& operator=(keep_alive&& other) noexcept {
        std::swap(object_, other.object_);
        std::swap(how_, other.how_);
        return *this;
    }
    ~keep_alive() {
        if (object_ != nullptr) {
            how_(object_);
        }
    }

    // Returns what keeps the channel of these send_operations alive.
    template <class Self, class T, class Platform>
    static keep_alive of(send_operations<Self, T, Platform>& operations) noexcept {
        return operations.hold();
    }

private:
    void* object_ = nullptr;
    release how_ = nullptr;
};

// What a coroutine's or a select's wait for an item carries: the item, or where it goes.
template <class T> struct recv_payload {
    std::optional<T> item;
    destination to;
    keep_alive alive;

    recv_payload() noexcept = default;
    explicit recv_payload(keep_alive kept) noexcept : alive(std::move(kept)) {}
    recv_payload(recv_payload&& unused) noexcept : alive(std::move(unused.alive)) {}
};
template <class T> struct send_payload {
    T value;
    keep_alive alive;

    template <class... Args>
    explicit send_payload(keep_alive kept, Args&&... args)
        : value(make_element<T>(std::forward<Args>(args)...)), alive(std::move(kept)) {}
};
struct recv_n_payload {
    destination to;
    keep_alive alive;

    recv_n_payload() noexcept = default;
    explicit recv_n_payload(keep_alive kept) noexcept : alive(std::move(kept)) {}
};

} // namespace detail

template <class T> struct wait_payload<result<std::optional<T>>> {
    using type = detail::recv_payload<T>;
};
template <class T> struct wait_payload<result<void, send_error<T>>> {
    using type = detail::send_payload<T>;
};
template <> struct wait_payload<result<std::size_t>> {
    using type = detail::recv_n_payload;
};

namespace detail {

// Returns a function that moves an item to `item`.
template <class T> auto into(std::optional<T>& item) noexcept {
    return [&item](T& from) noexcept { item.emplace(std::move(from)); };
}
template <class T> auto into(std::vector<T>& items) noexcept { // requires room for one more
    return [&items](T& from) noexcept { items.push_back(std::move(from)); };
}

// Makes room for `more` items as push_back does, so that many small appends cost linear time.
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
        make_room(out, most);
        const std::size_t n = s.recv_n(into(out), most);
        if (n == 0) {
            break;
        }
        all += n;
    }
    return all;
}

// Throws: std::bad_alloc if a send found no memory.
inline void require_memory(wait_status what) {
    if (what == wait_status::no_memory) {
        BIDE_THROW(std::bad_alloc());
    }
}

// Throws: as require_memory(); `value` is untouched then.
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

    // One side of a source, with the interface that thread_wait needs. Place is a T or a
    // destination.
    template <class Place> struct source_side {
        Source& of;
        side which;
        Place& place;
        std::int64_t spin_budget_ns = of.spin_budget_ns(); // read now: the source may be gone later
        const auto& primitive() const noexcept { return of; }
        wait_status enqueue(node& w) noexcept { return queue(of, w, which, place); }
        bool cancel(node& w, wait_status why) noexcept { return of.cancel(w, which, why); }
        bool await(node& w, deadline until) noexcept {
            if (spin_budget_ns == 0) {
                return w.park(until);
            }
            basic_spin<Platform>::spin_then_yield([&w]() noexcept { return w.is_complete(); },
                                                  spin_budget_ns);
            return w.sleep_through(until);
        }

        wait_status block(deadline until) noexcept {
            return thread_wait<source_side, Platform>::until(*this, 1, until);
        }
        wait_status block(const typename Platform::stop_token& token) noexcept {
            return thread_wait<source_side, Platform>::stoppable(*this, 1, token);
        }
    };

    static bool is_poll(deadline until) noexcept { return until.is_poll(); }
    static bool is_poll(const typename Platform::stop_token&) noexcept { return false; }

    template <class Place>
    static wait_status queue(Source& of, node& w, side which, Place& place) noexcept {
        w.carry(place);
        return of.enqueue(w, which);
    }

public:
    // ---- Threads, after a first attempt. `limit` is a deadline or a stop token.

    // `out` is an empty optional, or a vector with room for one more.
    template <class Out, class Limit>
    static wait_status recv(Source& s, Out& out, const Limit& limit) noexcept {
        wait_status got = wait_status::waiting;
        if (!is_poll(limit) && s.yield_before_wait([&]() noexcept {
                return (got = s.recv(into(out))) != wait_status::waiting;
            })) {
            return got;
        }
        destination to(out);
        return source_side<destination>{s, side::receiving, to}.block(limit);
    }

    template <class Limit>
    static wait_status send(Source& s, T& value, const Limit& limit) noexcept {
        wait_status got = wait_status::waiting;
        if (!is_poll(limit) && s.yield_before_wait([&]() noexcept {
                return (got = s.send(value)) != wait_status::waiting;
            })) {
            return got;
        }
        return source_side<T>{s, side::sending, value}.block(limit);
    }

    // ---- Operations (core/wait_ops.hpp)

    // The value is empty if the channel is closed and no item is left.
    struct receiving {
        using payload = recv_payload<T>;
        using received = result<std::optional<T>>;

        Source& from;
        const auto& primitive() const noexcept { return from; }
        wait_status try_now(payload& got) const noexcept { return from.recv(into(got.item)); }
        template <class Again> void yield_before_wait(Again&& again) const noexcept {
            from.yield_before_wait(again);
        }
        wait_status enqueue(node& w, payload& got) const noexcept {
            got.to = destination(got.item);
            return queue(from, w, side::receiving, got.to);
        }
        bool cancel(node& w, wait_status why) const noexcept {
            return from.cancel(w, side::receiving, why);
        }
        received collect(wait_status what, payload& got) const {
            if (what == wait_status::granted) {
                received item(std::in_place, std::in_place, std::move(*got.item));
                got.item.reset(); // a move of the optional's bytes would wait for the cache
                return item;
            }
            if (what == wait_status::closed) {
                return std::optional<T>();
            }
            return unexpected{errc_of(what)};
        }
        void give_back(wait_status what, payload& got) const noexcept {
            if (what == wait_status::granted) {
                from.pass_on(*got.item);
                got.item.reset();
            }
        }
    };

    // Appends up to `max` items to `out`, which has room for one more.
    struct receiving_n {
        using payload = recv_n_payload;

        Source& from;
        std::vector<T>& out;
        std::size_t max;
        const auto& primitive() const noexcept { return from; }
        wait_status try_now() const noexcept {
            return max == 0 ? wait_status::granted : from.recv(into(out));
        }
        template <class Again> void yield_before_wait(Again&& again) const noexcept {
            from.yield_before_wait(again);
        }
        wait_status enqueue(node& w, payload& got) const noexcept {
            got.to = destination(out);
            return queue(from, w, side::receiving, got.to);
        }
        bool cancel(node& w, wait_status why) const noexcept {
            return from.cancel(w, side::receiving, why);
        }
        result<std::size_t> collect(wait_status what) const {
            if (what == wait_status::granted && max != 0) {
                return 1 + recv_more(from, out, max - 1);
            }
            if (what == wait_status::granted || what == wait_status::closed) {
                return std::size_t{0};
            }
            return unexpected{errc_of(what)};
        }
        void give_back(wait_status what) const noexcept {
            if (what == wait_status::granted && max != 0) {
                T item(std::move(out.back())); // a vector<bool> has no reference to it
                out.pop_back();
                if (!from.pass_on(item)) {
                    out.push_back(std::move(item));
                }
            }
        }
    };

    struct sending {
        using payload = send_payload<T>;

        Source& to;
        const auto& primitive() const noexcept { return to; }
        wait_status try_now(payload& of) const noexcept { return to.send(of.value); }
        template <class Again> void yield_before_wait(Again&& again) const noexcept {
            to.yield_before_wait(again);
        }
        wait_status enqueue(node& w, payload& of) const noexcept {
            return queue(to, w, side::sending, of.value);
        }
        bool cancel(node& w, wait_status why) const noexcept {
            return to.cancel(w, side::sending, why);
        }
        result<void, send_error<T>> collect(wait_status what, payload& of) const {
            return to_result(what, of.value);
        }
        void give_back(wait_status) const noexcept {}
    };

    // Sends `value`, which stays in place unless it is sent.
    struct sending_from {
        Source& to;
        T& value;
        const auto& primitive() const noexcept { return to; }
        wait_status try_now() const noexcept { return to.send(value); }
        template <class Again> void yield_before_wait(Again&& again) const noexcept {
            to.yield_before_wait(again);
        }
        wait_status enqueue(node& w) const noexcept { return queue(to, w, side::sending, value); }
        bool cancel(node& w, wait_status why) const noexcept {
            return to.cancel(w, side::sending, why);
        }
        result<void> collect(wait_status what) const {
            require_memory(what);
            return result_of(what);
        }
        void give_back(wait_status) const noexcept {}
    };
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
