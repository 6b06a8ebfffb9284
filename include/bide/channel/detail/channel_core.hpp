// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_CHANNEL_CORE_HPP
#define BIDE_CHANNEL_DETAIL_CHANNEL_CORE_HPP

// A channel without its public operations: a ring, and the two queues of its waiters.
//
// Items go through the ring without any lock. A sender that finds the ring full, or a receiver that
// finds it empty, enters the queue of its side, under one lock. `flags` says which queues have
// waiters. An operation that has moved a position reads the flags. If the other side has waiters,
// it settles: under the lock, it moves items from the ring to waiting receivers, and from waiting
// senders into the ring, until neither is possible. So a wait ends with the item moved, or without
// effect. No waiter is woken only to look again, no waiter finds its item taken by another thread,
// and a time-out or a stop is decided under the lock.
//
// Why no waiter sleeps while an item is in the channel [ring.position]. One side moves a position
// and then reads the flags. The other side raises its flag and then reads the positions. All four
// steps are seq_cst, so they have one order, and the later of the two reads sees the other side's
// step:
//
//   receiver                              sender
//   lock; raise the flag                  move the tail
//   read the positions: empty? wait       read the flags: raised? settle
//
// If the tail moved first, the receiver finds the ring not empty, lowers the flag and tries again.
// If the flag was raised first, the sender sees it and settles once its item is published. This
// holds for each of many senders, independently of the other senders. A flag stays raised from an
// instant at which the ring was empty until there are no waiters, so each sender that moved the
// tail since then settles. The last sender to publish finds all items published, and settles under
// the lock come one after the other. To wake one receiver for each item is not enough: the first of
// two senders may publish last, and the receiver that the second one wakes finds the first slot
// unpublished and sleeps again.
//
// A slot that is claimed and not published is neither full nor empty. A thread that meets such a
// slot (attempt::busy) releases the lock and looks again soon. It does so for a coroutine too,
// because the claimer is only a few instructions from its publication.
//
// Last access. The flags are read between the claim and the publication of a slot. If they are
// down, the publication is the operation's last access to the channel. If not, the operation
// acquires the lock first and publishes under it, and the release of the lock is its last access.
// So a receiver that has its item may destroy the channel, whose destructor acquires the lock: no
// sender that put an item in accesses the channel any more.
//
// Closing is a bit in the tail. Items of sends that moved the tail before are received or stay in
// the channel. A receiver is told "closed" if the ring is empty and the bit is set.
//
// Past the ring. A sender that finds the receivers' flag raised acquires the lock before it claims a
// slot. If the ring is empty, it gives its item to the first waiting receiver. It moves no position,
// so it owes no settle. If the ring is not empty, its item goes through the ring: an item there may
// be from a send that has returned, behind a slot that is not published yet. A receiver does not do
// the same: the items in the ring are older than those of senders.
//
// A waiter that enters its queue does not settle either. It has read the positions under its raised
// flag; a thread that moves one later reads the flag and settles.
//
// With a capacity of 0 the ring is always full and always empty, so all items go past it, and each
// waiter that enters its queue settles. To settle then means to pair the two queues.

#include <bide/channel/detail/channel_waiters.hpp>
#include <bide/channel/detail/item_wait.hpp>
#include <bide/channel/ring.hpp>
#include <bide/core/backoff.hpp>
#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/spin.hpp>
#include <bide/core/waiter.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class T, class Platform, class Stamp> class basic_channel_core {
    using waiter_set = basic_channel_waiters<T, Platform, Stamp>;

public:
    static constexpr const char* waited_for = "channel";

    using node = typename waiter_set::node;

    explicit basic_channel_core(std::size_t capacity) : ring_(capacity) {}
    ~basic_channel_core();

    basic_channel_core(const basic_channel_core&) = delete;
    basic_channel_core& operator=(const basic_channel_core&) = delete;

    // A send never lacks memory.
    static constexpr bool send_allocates = false;

    // Moves `value` in: granted. Otherwise waiting (full) or closed, and `value` is untouched.
    wait_status send(T& value) noexcept {
        std::size_t sent = 0;
        auto make = [&value]() noexcept -> T& { return value; };
        return !waiters_.any(side::receiving) && push(make, one(), sent) == attempt::done
                   ? wait_status::granted
                   : send_again(value);
    }

    // Calls put(T&), which moves an item out: granted. Otherwise waiting (empty) or closed.
    template <class Put> wait_status recv(Put&& put) noexcept {
        std::size_t received = 0;
        const attempt a = pop(put, one(), received);
        return a == attempt::done ? wait_status::granted : recv_again(put, a);
    }

    // Send or receive up to `most` items in as few steps as possible, and return the number of
    // items. make(i) makes item i.
    template <class Make> std::size_t send_n(Make&& make, std::size_t most) noexcept;
    template <class Put> std::size_t recv_n(Put&& put, std::size_t most) noexcept;

    // Queues `w` on a side and returns waiting, or settles `w` and returns its status.
    wait_status enqueue(node& w, side which) noexcept;

    // Cancels the wait of `w`. Returns false if it is decided, or if `w` is not queued yet; then a
    // later enqueue() refuses it with `why`.
    bool cancel(node& w, side which, wait_status why) noexcept {
        return waiters_.cancel(w, which, why);
    }

    // Passes on an item of a receiver that was destroyed: to the next waiting receiver, else behind
    // all items. Returns false if the channel is full or closed; the item is untouched then.
    bool pass_on(T& item) noexcept;

    // Fails every later send. Returns true if this call closed it.
    bool close() noexcept { return waiters_.close(ring_); }
    bool is_closed() const noexcept { return ring_.is_closed(); }

    std::size_t capacity() const noexcept { return ring_.capacity(); }
    std::size_t size() const noexcept { return ring_.size(); }
    bool is_full() const noexcept { return size() == capacity(); }

    // What a thread does before it queues. With a large capacity it first pauses, so that the other
    // side moves many items from its own processor. Then it yields a few times, because the other
    // side may have no processor. A thread that only yields makes room for other threads of its own
    // side, and both processors then send, or receive, at the same time. With a small capacity it
    // spins once, for the other side may be about to move an item. With a capacity of 0 it does
    // nothing, because one side has to queue first.
    template <class Try> bool yield_before_wait(Try&& try_again) noexcept {
        using spin = basic_spin<Platform>;
        if (capacity() > small_capacity) {
            return spin::spin_apart(try_again) || spin::yielding(try_again, yields);
        }
        return capacity() != 0 && spin::spin_once(try_again);
    }

    // With a small capacity a thread waits for each item, which comes soon.
    std::int64_t spin_budget_ns() const noexcept {
        return capacity() > small_capacity ? 0 : 25'000;
    }

private:
    using ring = typename waiter_set::ring;
    using claim = typename ring::claim;
    using one = typename ring::one;

    static constexpr std::size_t small_capacity = 8;
    static constexpr int yields = 8;

    // Make one attempt at the ring, for `most` items, and set how many items it moved. They call
    // make() or put() before they acquire the lock.
    template <class Make, class Count>
    attempt push(Make& make, Count most, std::size_t& sent) noexcept;
    template <class Put, class Count>
    attempt pop(Put& put, Count most, std::size_t& received) noexcept;

    BIDE_NOINLINE wait_status send_again(T& value) noexcept;
    template <class Put> BIDE_NOINLINE wait_status recv_again(Put& put, attempt last) noexcept;

    // Repeats an attempt until the ring is not busy. `last` is the outcome of the attempt before.
    template <class Step> attempt persist(Step&& step, attempt last = attempt::busy) noexcept {
        basic_backoff<Platform> again;
        while (last == attempt::busy && (last = step()) == attempt::busy) {
            again();
        }
        return last;
    }

    // Publishes what was claimed. If the other side has waiters, under the lock, and settles.
    BIDE_INLINE void end(const claim& c, bool awaited) noexcept;

    std::optional<wait_status> attempt_for(node& w, side which) noexcept;

    ring ring_;
    waiter_set waiters_;
};

template <class T, class Platform, class Stamp>
basic_channel_core<T, Platform, Stamp>::~basic_channel_core() {
    waiters_.require_none(this);
    ring_.close();
    // Each item is destroyed after it was taken out.
    while (recv([](T& received) noexcept { [[maybe_unused]] const T last(std::move(received)); }) ==
           wait_status::granted) {
    }
}

template <class T, class Platform, class Stamp>
template <class Make, class Count>
attempt basic_channel_core<T, Platform, Stamp>::push(Make& make, Count most,
                                                     std::size_t& sent) noexcept {
    claim c;
    if (const attempt a = ring_.begin_push(c, most); a != attempt::done) {
        return a;
    }
    const bool awaited = waiters_.any(side::receiving);
    if constexpr (std::is_same_v<Count, one>) {
        ::new (ring_.place(c)) T(std::move(make()));
        end(c, awaited);
    } else {
        sent = c.size();
        auto slot = ring_.cells(c);
        for (std::size_t i = 0; i < c.size(); ++i, ++slot) {
            ::new (slot.place()) T(std::move(make()));
            if (!awaited) {
                slot.end();
            }
        }
        if (awaited) {
            waiters_.end_and_settle(ring_, c);
        }
    }
    return attempt::done;
}

template <class T, class Platform, class Stamp>
template <class Put, class Count>
attempt basic_channel_core<T, Platform, Stamp>::pop(Put& put, Count most,
                                                    std::size_t& received) noexcept {
    claim c;
    if (const attempt a = ring_.begin_pop(c, most); a != attempt::done) {
        return a;
    }
    const bool awaited = waiters_.any(side::sending);
    if constexpr (std::is_same_v<Count, one>) {
        T& item = ring_.item(c);
        put(item);
        item.~T();
        end(c, awaited);
    } else {
        received = c.size();
        auto slot = ring_.cells(c);
        for (std::size_t i = 0; i < c.size(); ++i, ++slot) {
            T& item = slot.item();
            put(item);
            item.~T();
            if (!awaited) {
                slot.end();
            }
        }
        if (awaited) {
            waiters_.end_and_settle(ring_, c);
        }
    }
    return attempt::done;
}

template <class T, class Platform, class Stamp>
BIDE_INLINE void basic_channel_core<T, Platform, Stamp>::end(const claim& c,
                                                             bool awaited) noexcept {
    if (awaited) {
        waiters_.end_and_settle(ring_, c);
    } else {
        ring_.end(c);
    }
}

template <class T, class Platform, class Stamp>
BIDE_NOINLINE wait_status basic_channel_core<T, Platform, Stamp>::send_again(T& value) noexcept {
    auto give = [&value](node& receiver) noexcept { deliver(value, receiver); };
    if (!is_closed() && waiters_.meet(side::receiving, give, &ring_)) {
        return wait_status::granted;
    }
    std::size_t sent = 0;
    auto make = [&value]() noexcept -> T& { return value; };
    switch (persist([&]() noexcept { return push(make, one(), sent); })) {
    case attempt::done: return wait_status::granted;
    case attempt::closed: return wait_status::closed;
    default: return wait_status::waiting;
    }
}

template <class T, class Platform, class Stamp>
template <class Put>
BIDE_NOINLINE wait_status
basic_channel_core<T, Platform, Stamp>::recv_again(Put& put, attempt last) noexcept {
    std::size_t received = 0;
    switch (persist([&]() noexcept { return pop(put, one(), received); }, last)) {
    case attempt::done: return wait_status::granted;
    case attempt::closed: return wait_status::closed;
    default: break;
    }
    auto take = [&put](node& sender) noexcept { put(item_of<T>(sender)); };
    return capacity() == 0 && waiters_.meet(side::sending, take) ? wait_status::granted
                                                                 : wait_status::waiting;
}

template <class T, class Platform, class Stamp>
template <class Make>
std::size_t basic_channel_core<T, Platform, Stamp>::send_n(Make&& make, std::size_t most) noexcept {
    std::size_t all = 0;
    while (all < most) {
        const std::size_t rest = most - all < capacity() ? most - all : capacity();
        std::size_t sent = 0;
        if (rest == 0) {
            if (send(make(all)) != wait_status::granted) {
                break;
            }
            sent = 1;
        } else if (auto next = [&make, i = all]() mutable noexcept -> T& { return make(i++); };
                   persist([&]() noexcept { return push(next, rest, sent); }) != attempt::done) {
            break;
        }
        all += sent;
    }
    return all;
}

template <class T, class Platform, class Stamp>
template <class Put>
std::size_t basic_channel_core<T, Platform, Stamp>::recv_n(Put&& put, std::size_t most) noexcept {
    std::size_t all = 0;
    while (all < most) {
        const std::size_t rest = most - all < capacity() ? most - all : capacity();
        std::size_t received = 1;
        if (rest == 0 ? recv(put) != wait_status::granted : persist([&]() noexcept {
                                                                return pop(put, rest, received);
                                                            }) != attempt::done) {
            break;
        }
        all += received;
    }
    return all;
}

template <class T, class Platform, class Stamp>
wait_status basic_channel_core<T, Platform, Stamp>::enqueue(node& w, side which) noexcept {
    while (!waiters_.lock_to_wait(ring_, which)) {
        if (const auto what = attempt_for(w, which)) {
            return *what;
        }
        // Spins reading only, so that the cache lines stay shared.
        for (basic_backoff<Platform> again;
             which == side::sending ? ring_.push_is_busy() : ring_.pop_is_busy(); again()) {
        }
    }
    return waiters_.queue(ring_, w, which);
}

// Attempts to complete the wait at the ring. Returns nothing if that fails.
template <class T, class Platform, class Stamp>
std::optional<wait_status>
basic_channel_core<T, Platform, Stamp>::attempt_for(node& w, side which) noexcept {
    if (!w.claim()) {
        return wait_status::waiting; // its choice selected another wait: it need not queue
    }
    std::size_t count = 0;
    auto make = [&w]() noexcept -> T& {
        w.commit();
        return item_of<T>(w);
    };
    auto put = [&w](T& received) noexcept {
        w.commit();
        deliver(received, w);
    };
    switch (which == side::sending ? push(make, one(), count) : pop(put, one(), count)) {
    case attempt::done: w.settle(wait_status::granted); return wait_status::granted;
    case attempt::closed:
        w.commit();
        w.settle(wait_status::closed);
        return wait_status::closed;
    default: w.abandon(); return std::nullopt;
    }
}

template <class T, class Platform, class Stamp>
bool basic_channel_core<T, Platform, Stamp>::pass_on(T& item) noexcept {
    // First a waiting receiver: it may wait while the ring is full of items that are not published.
    auto give = [&item](node& receiver) noexcept { deliver(item, receiver); };
    return waiters_.meet(side::receiving, give) || send(item) == wait_status::granted;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
