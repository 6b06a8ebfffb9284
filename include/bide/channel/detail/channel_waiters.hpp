#ifndef BIDE_CHANNEL_DETAIL_CHANNEL_WAITERS_HPP
#define BIDE_CHANNEL_DETAIL_CHANNEL_WAITERS_HPP

// What a channel does for those who wait: the two queues beside its ring, and how items are moved
// between ring and queues under the lock. Why that loses nobody is told in channel_core.hpp.

#include <bide/channel/detail/item_wait.hpp>
#include <bide/channel/ring.hpp>
#include <bide/core/config.hpp>
#include <bide/core/futex.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waiter_queue.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class T, class Platform, class Stamp> class basic_channel_waiters {
protected:
    using ring = basic_ring<T, Platform, Stamp>;
    using claim = typename ring::claim;
    using one = typename ring::one;
    using lock = lock_bits<Platform, futex_word>;
    using wait_queue = basic_waiter_queue<Platform>;

public:
    // Its amount is the address of the T to be sent, or of the receiver's destination.
    using node = basic_waiter<Platform>;

    // Ends the wait of `w`. False: it is decided already, or not queued yet, and queueing it will
    // be refused with `why`.
    bool cancel(node& w, side which, wait_status why) noexcept;

    // No more sends. True the first time.
    bool close() noexcept;

protected:
    explicit basic_channel_waiters(std::size_t capacity) : ring_(capacity) {}
    ~basic_channel_waiters() = default;

    using flag_set = futex_word;

    // Whose wait was decided, to be published when the lock is free. `self` is in the middle of its
    // own enqueue(), and is told by `self_status`.
    struct outcomes {
        node* self = nullptr;
        wait_status self_status = wait_status::waiting;
        basic_wake_list<Platform> granted;
        basic_wake_list<Platform> closed;

        void push(node& w, wait_status what) noexcept {
            if (&w == self) {
                self_status = what;
            } else {
                (what == wait_status::granted ? granted : closed).push(w);
            }
        }
        void publish() noexcept {
            basic_wake_list<Platform>::publish(granted, wait_status::granted, closed,
                                               wait_status::closed);
        }
    };

    static constexpr flag_set flag_of(side which) noexcept {
        return which == side::sending ? 1 : 2;
    }
    wait_queue& queue_of(side which) noexcept {
        return which == side::sending ? senders_ : receivers_;
    }

    // Order: seq_cst [C1]; after an index was moved. Acquire [C2]; a flag that was lowered brings the
    // indices that were moved for its waiters.
    bool anybody(side which) const noexcept {
        return (flags_.load(std::memory_order_seq_cst) & flag_of(which)) != 0;
    }

    // Publishes what was claimed under the lock, and settles, for the other side waits.
    void end_awaited(const claim& c) noexcept;

    // Past the ring: from hand to hand, if a waiter is on the other side.
    template <class Move> bool meet(side other, Move& move) noexcept;

    // Under the lock.
    void settle(outcomes& out) noexcept;
    bool serve(node& w, side which, outcomes& out) noexcept;
    void pair(outcomes& out) noexcept;
    bool match(node& sender, node& receiver, outcomes& out) noexcept;
    void finish(node& w, side which, wait_status what, outcomes& out) noexcept {
        w.commit();
        queue_of(which).remove(w);
        out.push(w, what);
    }
    void update_flags() noexcept;
    bool is_busy(side which) const noexcept {
        return which == side::sending ? ring_.push_is_busy() : ring_.pop_is_busy();
    }
    bool must_wait(side which) const noexcept {
        return which == side::sending ? ring_.is_full() : ring_.is_empty();
    }

    ring ring_;
    // Everybody reads it, it changes when a queue gets its first or loses its last waiter.
    alignas(cache_line_pair) typename Platform::template atomic<flag_set> flags_{0};
    alignas(cache_line_pair) typename Platform::template atomic<futex_word> lock_{0};
    wait_queue senders_;   // under the lock
    wait_queue receivers_; // under the lock
};

template <class T, class Platform, class Stamp>
BIDE_NOINLINE void basic_channel_waiters<T, Platform, Stamp>::end_awaited(const claim& c) noexcept {
    outcomes out;
    lock::acquire(lock_);
    auto slot = ring_.cells(c);
    for (std::size_t i = 0; i < c.size(); ++i, ++slot) {
        slot.end();
    }
    settle(out);
    lock::release(lock_);
    out.publish();
}

template <class T, class Platform, class Stamp>
template <class Move>
bool basic_channel_waiters<T, Platform, Stamp>::meet(side other, Move& move) noexcept {
    if (!anybody(other)) {
        return false;
    }
    outcomes out;
    lock::acquire(lock_);
    wait_queue& waiting = queue_of(other);
    bool met = false;
    while (!met && !waiting.empty()) {
        node& w = waiting.front();
        met = w.claim();
        if (met) {
            move(w);
            finish(w, other, wait_status::granted, out);
        } else {
            waiting.remove(w);
        }
    }
    update_flags();
    lock::release(lock_);
    out.publish();
    return met;
}

template <class T, class Platform, class Stamp>
bool basic_channel_waiters<T, Platform, Stamp>::cancel(node& w, side which,
                                                       wait_status why) noexcept {
    lock::acquire(lock_);
    const bool ended = queue_of(which).withdraw(w, why);
    if (ended) {
        update_flags();
    }
    lock::release(lock_);
    return ended;
}

// All of it under the lock, for whoever is told may destroy the channel.
template <class T, class Platform, class Stamp>
bool basic_channel_waiters<T, Platform, Stamp>::close() noexcept {
    outcomes out;
    lock::acquire(lock_);
    const bool first = ring_.close();
    settle(out);
    lock::release(lock_);
    out.publish();
    return first;
}

template <class T, class Platform, class Stamp>
void basic_channel_waiters<T, Platform, Stamp>::settle(outcomes& out) noexcept {
    bool again = true;
    while (again) {
        again = false;
        while (!receivers_.empty() && serve(receivers_.front(), side::receiving, out)) {
            again = true;
        }
        while (!senders_.empty() && serve(senders_.front(), side::sending, out)) {
            again = true;
        }
    }
    if (ring_.capacity() == 0) {
        pair(out);
    }
    update_flags();
}

// Moves an item between the ring and the waiter at the head of a queue. False: there is nothing to
// move.
template <class T, class Platform, class Stamp>
bool basic_channel_waiters<T, Platform, Stamp>::serve(node& w, side which, outcomes& out) noexcept {
    if (!w.claim()) { // its choice fell on another wait
        queue_of(which).remove(w);
        return true;
    }
    claim c;
    const bool sends = which == side::sending;
    const attempt a = sends ? ring_.begin_push(c, one()) : ring_.begin_pop(c, one());
    if (a == attempt::not_now || a == attempt::busy) {
        w.abandon();
        return false;
    }
    if (a == attempt::done) {
        if (sends) {
            ::new (ring_.place(c)) T(std::move(item_of<T>(w)));
        } else {
            T& item = ring_.item(c);
            deliver(item, w);
            item.~T();
        }
        ring_.end(c);
    }
    finish(w, which, a == attempt::done ? wait_status::granted : wait_status::closed, out);
    return true;
}

// Without a ring: each sender with the first receiver that it may meet.
template <class T, class Platform, class Stamp>
void basic_channel_waiters<T, Platform, Stamp>::pair(outcomes& out) noexcept {
    node* next_sender = nullptr;
    for (node* s = senders_.empty() ? nullptr : &senders_.front();
         s != nullptr && !receivers_.empty(); s = next_sender) {
        next_sender = senders_.after(*s);
        node* next_receiver = nullptr;
        for (node* r = receivers_.empty() ? nullptr : &receivers_.front(); r != nullptr;
             r = next_receiver) {
            next_receiver = receivers_.after(*r);
            if (!match(*s, *r, out)) {
                break;
            }
        }
    }
}

// Two that wait on either side of a rendezvous. False: the sender is done with, one way or another.
template <class T, class Platform, class Stamp>
bool basic_channel_waiters<T, Platform, Stamp>::match(node& sender, node& receiver,
                                                      outcomes& out) noexcept {
    const auto* const mine = sender.choice();
    const auto* const yours = receiver.choice();
    if (mine != nullptr && mine == yours) {
        return true; // a select does not meet itself
    }
    const bool sender_first =
        reinterpret_cast<std::uintptr_t>(mine) < reinterpret_cast<std::uintptr_t>(yours);
    node& first = sender_first ? sender : receiver;
    node& second = sender_first ? receiver : sender;
    const bool first_open = first.claim();
    const bool second_open = first_open && second.claim();
    if (second_open) {
        deliver(item_of<T>(sender), receiver);
        finish(sender, side::sending, wait_status::granted, out);
        finish(receiver, side::receiving, wait_status::granted, out);
        return false;
    }
    if (first_open) {
        first.abandon();
    }
    node& gone = first_open ? second : first;
    (&gone == &sender ? senders_ : receivers_).remove(gone);
    return &gone != &sender;
}

template <class T, class Platform, class Stamp>
void basic_channel_waiters<T, Platform, Stamp>::update_flags() noexcept {
    const flag_set now = (senders_.empty() ? 0 : flag_of(side::sending)) |
                         (receivers_.empty() ? 0 : flag_of(side::receiving));
    // Order: relaxed; it changes under the lock alone.
    if (now != flags_.load(std::memory_order_relaxed)) {
        // Order: release [C2]; it lowers a flag (enqueue raises it). A look at the ring that comes
        // after one that finds no waiter (pass_on) sees what the last waiter took, or put in.
        flags_.store(now, std::memory_order_release);
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
