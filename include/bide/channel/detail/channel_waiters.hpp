// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_CHANNEL_WAITERS_HPP
#define BIDE_CHANNEL_DETAIL_CHANNEL_WAITERS_HPP

// The waiters of a channel: the two queues beside its ring, and the moves of items between the ring
// and the queues under the lock. channel_core.hpp proves that no waiter is forgotten.

#include <bide/channel/detail/brief_lock.hpp>
#include <bide/channel/detail/item_wait.hpp>
#include <bide/channel/ring.hpp>
#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waiter_queue.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// Each function gets the ring of the channel, which lies beside it.
template <class T, class Platform, class Stamp> class basic_channel_waiters {
public:
    using ring = basic_ring<T, Platform, Stamp>;
    using claim = typename ring::claim;

    // A node carries the T to send, or the receiver's destination.
    using node = basic_waiter<Platform>;

    basic_channel_waiters() noexcept = default;
    basic_channel_waiters(const basic_channel_waiters&) = delete;
    basic_channel_waiters& operator=(const basic_channel_waiters&) = delete;

    // For the destructor of a channel: waits for operations that publish under the lock. Terminates
    // if there are waiters.
    void require_none(const void* channel) noexcept;

    // Returns true if there are waiters on that side.
    // Order: seq_cst [ring.position]; after a position was moved. Acquire [brief_lock.release]; if
    // the flag was lowered, the caller sees the positions that were moved for the waiters. A thread
    // that reads the ring after it found no waiter (pass_on) sees what the last waiter took or put
    // in.
    bool any(side which) const noexcept {
        return (word_.load(std::memory_order_seq_cst) & flag_of(which)) != 0;
    }

    // Publishes claimed slots under the lock, and settles: the other side has waiters.
    void end_and_settle(ring& r, claim c) noexcept;

    // Moves an item past the ring by move(node&), if the other side has a waiter.
    // If `first` is given, only if that ring is empty: its items go first.
    template <class Move> bool meet(side other, Move& move, const ring* first = nullptr) noexcept;

    // Acquires the lock for queue(). If a wait on that side need not queue, returns false without
    // the lock. The caller then tries the ring again.
    bool lock_to_wait(const ring& r, side which) noexcept;

    // Queues `w` and returns waiting, or settles `w` and returns its status. Releases the lock.
    // Requires: lock_to_wait().
    wait_status queue(ring& r, node& w, side which) noexcept;

    // Cancels the wait of `w`. Returns false if it is decided, or if `w` is not queued yet; then
    // queue() refuses it with `why`.
    bool cancel(node& w, side which, wait_status why) noexcept;

    // Closes the ring and settles. Returns true if this call closed it.
    bool close(ring& r) noexcept;

private:
    using lock = brief_lock<Platform>;
    using one = typename ring::one;
    using wait_queue = basic_waiter_queue<Platform>;
    using wake_list = basic_wake_list<Platform>;
    using word = typename lock::word;

    // The waits that were decided under the lock. They are published after it is released. `self`
    // is the node of a queue() that has not returned; it gets `self_status`.
    struct outcomes {
        node* self = nullptr;
        wait_status self_status = wait_status::waiting;
        wake_list granted;
        wake_list closed;

        void push(node& w, wait_status what) noexcept {
            if (&w == self) {
                self_status = what;
            } else {
                (what == wait_status::granted ? granted : closed).push(w);
            }
        }
        void publish() noexcept {
            wake_list::publish(granted, wait_status::granted, closed, wait_status::closed);
        }
    };

    static constexpr word flag_of(side which) noexcept { return which == side::sending ? 2 : 4; }
    wait_queue& queue_of(side which) noexcept {
        return which == side::sending ? senders_ : receivers_;
    }

    // Requires: the lock
    void settle(ring& r, outcomes& out) noexcept;
    bool serve(ring& r, node& w, side which, outcomes& out) noexcept;
    void pair(outcomes& out) noexcept;
    bool match(node& sender, node& receiver, outcomes& out) noexcept;
    void finish(node& w, side which, wait_status what, outcomes& out) noexcept {
        w.commit();
        queue_of(which).remove(w);
        out.push(w, what);
    }
    // Releases the lock and updates the flags in one step.
    void unlock() noexcept {
        lock::release(word_, (senders_.empty() ? 0 : flag_of(side::sending)) |
                                 (receivers_.empty() ? 0 : flag_of(side::receiving)));
    }

    // The flags, and the lock. Every operation reads it. While nothing waits, it does not change.
    alignas(cache_line_pair) typename lock::atomic word_{0};
    wait_queue senders_;   // under the lock
    wait_queue receivers_; // under the lock
};

template <class T, class Platform, class Stamp>
void basic_channel_waiters<T, Platform, Stamp>::require_none(const void* channel) noexcept {
    lock::acquire(word_);
    if (!senders_.empty() || !receivers_.empty()) {
        (senders_.empty() ? receivers_ : senders_).fatal_destroyed("channel", channel);
    }
    unlock(); // the destructors of items may use the channel
}

template <class T, class Platform, class Stamp>
BIDE_NOINLINE void basic_channel_waiters<T, Platform, Stamp>::end_and_settle(ring& r,
                                                                             claim c) noexcept {
    outcomes out;
    lock::acquire(word_);
    auto slot = r.cells(c);
    for (std::size_t i = 0; i < c.size(); ++i, ++slot) {
        slot.end();
    }
    settle(r, out);
    unlock();
    out.publish();
}

template <class T, class Platform, class Stamp>
template <class Move>
bool basic_channel_waiters<T, Platform, Stamp>::meet(side other, Move& move,
                                                     const ring* first) noexcept {
    if (!any(other)) {
        return false;
    }
    outcomes out;
    lock::acquire(word_);
    wait_queue& waiting = queue_of(other);
    bool met = false;
    const bool may = first == nullptr || first->is_empty();
    while (may && !met && !waiting.empty()) {
        node& w = waiting.front();
        met = w.claim();
        if (met) {
            move(w);
            finish(w, other, wait_status::granted, out);
        } else {
            waiting.remove(w);
        }
    }
    unlock();
    out.publish();
    return met;
}

template <class T, class Platform, class Stamp>
bool basic_channel_waiters<T, Platform, Stamp>::lock_to_wait(const ring& r, side which) noexcept {
    // Order: seq_cst [ring.position]; the first half of a pair, whose second half reads positions.
    lock::acquire_with(word_, flag_of(which));
    // Behind other waiters, the flag is up since an instant at which the ring had nothing for them.
    if (!queue_of(which).empty() || (which == side::sending ? r.is_full() : r.is_empty())) {
        return true;
    }
    unlock();
    return false;
}

template <class T, class Platform, class Stamp>
wait_status basic_channel_waiters<T, Platform, Stamp>::queue(ring& r, node& w,
                                                             side which) noexcept {
    if (const wait_status forbidden = w.forbidden(); forbidden != wait_status::waiting) {
        unlock();
        w.settle(forbidden);
        return forbidden;
    }
    queue_of(which).push(w);
    if (r.capacity() != 0 && !r.is_closed()) {
        // A position that moves from here on is followed by a look at the flag, and settled.
        unlock();
        return wait_status::waiting;
    }
    outcomes out;
    out.self = &w;
    settle(r, out);
    unlock();
    out.publish();
    if (out.self_status != wait_status::waiting) {
        w.settle(out.self_status);
    }
    return out.self_status;
}

template <class T, class Platform, class Stamp>
bool basic_channel_waiters<T, Platform, Stamp>::cancel(node& w, side which,
                                                       wait_status why) noexcept {
    lock::acquire(word_);
    const bool ended = queue_of(which).withdraw(w, why);
    unlock();
    return ended;
}

// All under the lock: a waiter that learns of the close may destroy the channel.
template <class T, class Platform, class Stamp>
bool basic_channel_waiters<T, Platform, Stamp>::close(ring& r) noexcept {
    outcomes out;
    lock::acquire(word_);
    const bool first = r.close();
    settle(r, out);
    unlock();
    out.publish();
    return first;
}

template <class T, class Platform, class Stamp>
void basic_channel_waiters<T, Platform, Stamp>::settle(ring& r, outcomes& out) noexcept {
    bool again = true;
    while (again) {
        again = false;
        while (!receivers_.empty() && serve(r, receivers_.front(), side::receiving, out)) {
            again = true;
        }
        while (!senders_.empty() && serve(r, senders_.front(), side::sending, out)) {
            again = true;
        }
    }
    if (r.capacity() == 0) {
        pair(out);
    }
}

// Moves an item between the ring and the first waiter of a queue. Returns false if it cannot.
template <class T, class Platform, class Stamp>
bool basic_channel_waiters<T, Platform, Stamp>::serve(ring& r, node& w, side which,
                                                      outcomes& out) noexcept {
    if (!w.claim()) { // its choice selected another wait
        queue_of(which).remove(w);
        return true;
    }
    claim c;
    const bool sends = which == side::sending;
    const attempt a = sends ? r.begin_push(c, one()) : r.begin_pop(c, one());
    if (a == attempt::not_now || a == attempt::busy) {
        w.abandon();
        return false;
    }
    if (a == attempt::done) {
        if (sends) {
            ::new (r.place(c)) T(std::move(item_of<T>(w)));
        } else {
            T& item = r.item(c);
            deliver(item, w);
            item.~T();
        }
        r.end(c);
    }
    finish(w, which, a == attempt::done ? wait_status::granted : wait_status::closed, out);
    return true;
}

// With a capacity of 0: pairs each sender with the first receiver that it may meet.
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

// Passes the item of a waiting sender to a waiting receiver. If one of the two has lost its choice
// to another case, takes that one out of its queue instead. Returns false if the sender left its
// queue, in either way.
template <class T, class Platform, class Stamp>
bool basic_channel_waiters<T, Platform, Stamp>::match(node& sender, node& receiver,
                                                      outcomes& out) noexcept {
    const auto* const mine = sender.choice();
    const auto* const yours = receiver.choice();
    if (mine != nullptr && mine == yours) {
        return true; // two cases of one select do not meet
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

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
