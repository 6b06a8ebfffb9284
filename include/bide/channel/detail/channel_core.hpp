// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_CHANNEL_CORE_HPP
#define BIDE_CHANNEL_DETAIL_CHANNEL_CORE_HPP

// A channel without its public operations: a ring, and the two queues of its waiters.
//
// Items go through the ring without any lock. A sender that finds the ring full, or a receiver that
// finds it empty, enters the queue of its side, under one lock. `flags` says which queues have
// waiters. The positions are the head and the tail of the ring. An operation that has moved a
// position reads the flags. If the other side has waiters, the operation settles: under the lock,
// it moves items from the ring to waiting receivers, and from waiting senders into the ring, until
// neither is possible. So a wait either ends with its item moved, or has no effect. No waiter is
// woken only to look again, no waiter finds its item taken by another thread, and a time-out or a
// stop is decided under the lock.
//
// Why no waiter sleeps while an item is in the channel [ring.position]. One side moves a position
// and then reads the flags. The other side raises its flag and then reads the positions. All four
// steps are seq_cst, so they have one order. The later of the two reads sees what the other side
// has moved or raised:
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
// A slot that is claimed and not published is neither full nor empty. A thread that finds such a
// slot (attempt::busy) releases the lock and soon tries again. The operation of a coroutine does
// the same and does not suspend, because the claimer will publish within a few instructions.
//
// Last access. The flags are read between the claim and the publication of a slot. If the other
// side's flag is down, the publication is the operation's last access to the channel. If it is up,
// the operation acquires the lock, publishes under it, and the release of the lock is its last
// access. So a receiver that has its item may destroy the channel: no sender of a received item
// accesses the channel after the destructor has acquired the lock.
//
// Closing sets a bit in the tail. If a send moved the tail before that, its item is received or
// stays in the channel. A receiver is told "closed" if the ring is empty and the bit is set.
//
// Past the ring. A sender that finds the receivers' flag raised acquires the lock before it claims
// a slot. If the ring is empty, the sender gives its item to the first waiting receiver. It moves
// no position, so it need not settle. If the ring is not empty, the sender puts its item into the
// ring, behind the older items. (Receivers may wait although the ring is not empty: an older item
// may lie behind a slot that is not published yet.) A receiver never takes an item past the ring,
// because the items in the ring are older than those of waiting senders.
//
// A waiter that enters its queue does not settle either. It has read the positions after it raised
// its flag. If a thread moves a position later, that thread reads the flag and settles.
//
// With a capacity of 0, the ring is always full and always empty. So all items go past the ring,
// and each waiter that enters its queue settles. To settle then means to match waiting senders with
// waiting receivers.

#include <bide/channel/detail/item_wait.hpp>
#include <bide/channel/ring.hpp>

#include <optional>

namespace bide { inline namespace BIDE_ABI { namespace detail {

template <class T, class Platform, class Stamp> class basic_channel_core {
    static_assert(is_element<T>);

public:
    static constexpr const char* waited_for = "channel";

    // A node carries the T to send, or the receiver's destination.
    using node = basic_waiter<Platform>;

    explicit basic_channel_core(std::size_t capacity) : ring_(capacity) {}
    ~basic_channel_core() {
        lock::acquire(word_); // every operation that publishes under the lock has released it
        if (!senders_.empty() || !receivers_.empty()) {
            (senders_.empty() ? receivers_ : senders_).fatal_destroyed("channel", this);
        }
        unlock(); // the destructors of items may use the channel
        ring_.close();
        detail::destroy_items<T>(*this);
    }

    basic_channel_core& operator=(basic_channel_core&&) = delete;

    // A send never lacks memory.
    static constexpr bool send_allocates = false;

    // Moves `value` in and returns granted. Otherwise leaves `value` unchanged and returns waiting
    // (full) or closed.
    wait_status send(T& value) noexcept {
        std::size_t sent = 0;
        auto make = [&value]() noexcept -> T& { return value; };
        return !any(side::receiving) && transfer<side::sending>(make, one(), sent) == attempt::done
                   ? wait_status::granted
                   : send_again(value);
    }

    // If there is an item, calls put(T&), which moves it out, and returns granted. Otherwise
    // returns waiting (empty) or closed.
    template <class Put> wait_status recv(Put&& put) noexcept {
        std::size_t received = 0;
        const attempt a = transfer<side::receiving>(put, one(), received);
        return a == attempt::done ? wait_status::granted : recv_again(put, a);
    }

    // send_n() and recv_n() transfer up to `most` items in as few steps as possible, and return the
    // number of items. make(i) makes item i.
    template <class Make> std::size_t send_n(Make&& make, std::size_t most) noexcept {
        auto next = [&make, i = std::size_t{0}]() mutable noexcept -> T& { return make(i++); };
        return transfer_n<side::sending>(next, most);
    }
    template <class Put> std::size_t recv_n(Put&& put, std::size_t most) noexcept {
        return transfer_n<side::receiving>(put, most);
    }

    // Queues `w` on a side and returns waiting, or completes the wait of `w` and returns its
    // status.
    wait_status enqueue(node& w, side which) noexcept {
        while (!lock_to_wait(which)) {
            if (const auto what = attempt_for(w, which)) {
                return *what;
            }
            // Spins reading only, so that the cache lines stay shared.
            for (basic_backoff<Platform> again;
                 which == side::sending ? ring_.push_is_busy() : ring_.pop_is_busy(); again()) {
            }
        }
        if (const wait_status forbidden = w.forbidden(); forbidden != wait_status::waiting) {
            unlock();
            w.settle(forbidden);
            return forbidden;
        }
        queue_of(which).push(w);
        if (capacity() != 0 && !is_closed()) {
            // If a thread moves a position later, it reads the flag and settles.
            unlock();
            return wait_status::waiting;
        }
        outcomes out;
        out.self = &w;
        settle(out);
        unlock();
        out.publish();
        if (out.self_status != wait_status::waiting) {
            w.settle(out.self_status);
        }
        return out.self_status;
    }

    // Cancels the wait of `w`. Returns false if the wait was decided before. Also returns false if
    // `w` is not queued yet; a later enqueue() then refuses `w` with `why`.
    bool cancel(node& w, side which, wait_status why) noexcept {
        lock::acquire(word_);
        const bool ended = queue_of(which).withdraw(w, why);
        unlock();
        return ended;
    }

    // Passes on the item of a receiver that was destroyed. The item goes to the next waiting
    // receiver, or if none waits, behind all items. If the channel is full or closed, returns false
    // and leaves the item unchanged.
    bool pass_on(T& item) noexcept {
        // Waiting receivers come first. One may wait although the ring is full, while no item in
        // the ring is published.
        auto give = [&item](node& receiver) noexcept { detail::deliver(item, receiver); };
        return meet(side::receiving, give) || send(item) == wait_status::granted;
    }

    // Fails every later send. Returns true if this call closed the channel. Closes and settles
    // under one lock, because a waiter that learns of the close may destroy the channel.
    bool close() noexcept {
        outcomes out;
        lock::acquire(word_);
        const bool first = ring_.close();
        settle(out);
        unlock();
        out.publish();
        return first;
    }
    bool is_closed() const noexcept { return ring_.is_closed(); }

    std::size_t capacity() const noexcept { return ring_.capacity(); }
    std::size_t size() const noexcept { return ring_.size(); }
    bool is_full() const noexcept { return size() == capacity(); }

    // Spins or yields before a thread queues; returns true if try_again() succeeded. With a large
    // capacity, the thread first pauses, so that the other side can move many items on its own
    // processor. Then it yields a few times, in case the other side has no processor. (If the
    // thread only yielded, another thread of its own side might run next.) With a small capacity,
    // the thread spins once, because the other side may be about to move an item. With a capacity
    // of 0, the thread does nothing, because one side has to queue first.
    template <class Try> bool yield_before_wait(Try&& try_again) noexcept {
        using spin = basic_spin<Platform>;
        if (capacity() > small_capacity) {
            return spin::spin_apart(try_again) || spin::yielding(try_again, yields);
        }
        return capacity() != 0 && spin::spin_once(try_again);
    }

    // With a small capacity, a thread waits for almost every item, and the wait is short. So the
    // thread spins.
    std::int64_t spin_budget_ns() const noexcept {
        return capacity() > small_capacity ? 0 : 25'000;
    }

private:
    using ring = basic_ring<T, Platform, Stamp>;
    using claim = typename ring::claim;
    using one = typename ring::one;
    using lock = brief_lock<Platform>;
    using word = typename lock::word;
    using wait_queue = basic_waiter_queue<Platform>;
    using wake_list = basic_wake_list<Platform>;

    // The waits that were decided under the lock. They are published after the lock is released.
    // `self` is the node of the enqueue() that is running. Its status is stored in `self_status`
    // instead.
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

    static constexpr std::size_t small_capacity = 8;
    static constexpr int yields = 8;

    // Makes one attempt to move up to `most` items into or out of the ring. If Count is not `one`,
    // sets `moved` to the number of items. For a sender, move() makes an item. For a receiver,
    // move(T&) takes an item. Calls move() before it acquires the lock.
    template <side Which, class Move, class Count>
    attempt transfer(Move& move, Count most, std::size_t& moved) noexcept {
        claim c;
        const attempt a =
            Which == side::sending ? ring_.begin_push(c, most) : ring_.begin_pop(c, most);
        if (a != attempt::done) {
            return a;
        }
        const bool awaited = any(Which == side::sending ? side::receiving : side::sending);
        if constexpr (std::is_same_v<Count, one>) {
            move_one<Which>(move, ring_.place(c));
            if (!awaited) {
                ring_.end(c);
            }
        } else {
            moved = c.size();
            auto slot = ring_.cells(c);
            for (std::size_t i = 0; i < c.size(); ++i, ++slot) {
                move_one<Which>(move, slot.place());
                if (!awaited) {
                    slot.end();
                }
            }
        }
        if (awaited) {
            end_and_settle(c);
        }
        return attempt::done;
    }
    template <side Which, class Move>
    std::size_t transfer_n(Move& move, std::size_t most) noexcept {
        std::size_t all = 0;
        for (bool done = true; all < most;) {
            const std::size_t rest = most - all < capacity() ? most - all : capacity();
            std::size_t moved = 1;
            if (rest != 0) {
                auto step = [&]() noexcept { return transfer<Which>(move, rest, moved); };
                done = persist(step) == attempt::done;
            } else if constexpr (Which == side::sending) {
                done = send(move()) == wait_status::granted;
            } else {
                done = recv(move) == wait_status::granted;
            }
            if (!done) {
                break;
            }
            all += moved;
        }
        return all;
    }

    // Moves an item into an empty place, or out of a full one.
    template <side Which, class Move> static void move_one(Move& move, void* place) noexcept {
        if constexpr (Which == side::sending) {
            ::new (place) T(std::move(move()));
        } else {
            T& item = *std::launder(static_cast<T*>(place));
            move(item);
            item.~T();
        }
    }

    BIDE_NOINLINE wait_status send_again(T& value) noexcept {
        auto give = [&value](node& receiver) noexcept { detail::deliver(value, receiver); };
        if (!is_closed() && meet(side::receiving, give, true)) {
            return wait_status::granted;
        }
        std::size_t sent = 0;
        auto make = [&value]() noexcept -> T& { return value; };
        switch (persist([&]() noexcept { return transfer<side::sending>(make, one(), sent); })) {
        case attempt::done: return wait_status::granted;
        case attempt::closed: return wait_status::closed;
        default: return wait_status::waiting;
        }
    }
    template <class Put> BIDE_NOINLINE wait_status recv_again(Put& put, attempt last) noexcept {
        std::size_t received = 0;
        switch (persist([&]() noexcept { return transfer<side::receiving>(put, one(), received); },
                        last)) {
        case attempt::done: return wait_status::granted;
        case attempt::closed: return wait_status::closed;
        default: break;
        }
        auto take = [&put](node& sender) noexcept { put(detail::item_of<T>(sender)); };
        return capacity() == 0 && meet(side::sending, take) ? wait_status::granted
                                                            : wait_status::waiting;
    }

    // Repeats an attempt until the ring is not busy. `last` is the outcome of the attempt before.
    template <class Step> attempt persist(Step&& step, attempt last = attempt::busy) noexcept {
        basic_backoff<Platform> again;
        while (last == attempt::busy && (last = step()) == attempt::busy) {
            again();
        }
        return last;
    }

    // Publishes claimed slots under the lock, and settles, because the other side has waiters.
    BIDE_NOINLINE void end_and_settle(claim c) noexcept {
        outcomes out;
        lock::acquire(word_);
        auto slot = ring_.cells(c);
        for (std::size_t i = 0; i < c.size(); ++i, ++slot) {
            slot.end();
        }
        settle(out);
        unlock();
        out.publish();
    }

    // Attempts to complete the wait with the ring alone. Returns nothing if that fails.
    std::optional<wait_status> attempt_for(node& w, side which) noexcept {
        if (!w.claim()) {
            return wait_status::waiting; // its choice selected another wait: it need not queue
        }
        std::size_t count = 0;
        auto make = [&w]() noexcept -> T& {
            w.commit();
            return detail::item_of<T>(w);
        };
        auto put = [&w](T& received) noexcept {
            w.commit();
            detail::deliver(received, w);
        };
        switch (which == side::sending ? transfer<side::sending>(make, one(), count)
                                       : transfer<side::receiving>(put, one(), count)) {
        case attempt::done: w.settle(wait_status::granted); return wait_status::granted;
        case attempt::closed:
            w.commit();
            w.settle(wait_status::closed);
            return wait_status::closed;
        default: w.abandon(); return std::nullopt;
        }
    }

    // Returns true if there are waiters on that side.
    // Order: seq_cst [ring.position]; the caller has moved a position before. Acquire
    // [brief_lock.release]; if the flag was lowered, the caller sees the positions that were moved
    // for the waiters. A thread that found no waiter and then reads the ring (pass_on) sees what
    // the last waiter took or put in.
    bool any(side which) const noexcept {
        return (word_.load(std::memory_order_seq_cst) & flag_of(which)) != 0;
    }

    // If the other side has a waiter, moves an item directly to or from that waiter by move(node&),
    // and returns true. If `behind_ring` is true, does so only if the ring is empty, because the
    // items in the ring go first.
    template <class Move> bool meet(side other, Move& move, bool behind_ring = false) noexcept {
        if (!any(other)) {
            return false;
        }
        wake_list granted;
        lock::acquire(word_);
        const bool met =
            (!behind_ring || ring_.is_empty()) && detail::meet(queue_of(other), move, granted);
        unlock();
        granted.publish(wait_status::granted);
        return met;
    }

    // Acquires the lock and raises the flag, so that the caller can queue a waiter on that side. If
    // the ring now has room or an item for that waiter, releases the lock and returns false. The
    // caller then tries the ring again.
    bool lock_to_wait(side which) noexcept {
        // Order: seq_cst [ring.position]; the first half of a pair, whose second half reads
        // positions.
        lock::acquire_with(word_, flag_of(which));
        // If other waiters are queued, the flag was already up at an instant at which the ring had
        // nothing for them. So the ring need not be checked again.
        if (!queue_of(which).empty() ||
            (which == side::sending ? ring_.is_full() : ring_.is_empty())) {
            return true;
        }
        unlock();
        return false;
    }

    // ---- Requires: the lock

    void settle(outcomes& out) noexcept {
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
        if (capacity() == 0) {
            pair(out);
        }
    }
    // Moves an item between the ring and the first waiter of a queue. Returns false if it cannot.
    bool serve(node& w, side which, outcomes& out) noexcept {
        if (!w.claim()) { // its choice selected another wait
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
                ::new (ring_.place(c)) T(std::move(detail::item_of<T>(w)));
            } else {
                T& item = ring_.item(c);
                detail::deliver(item, w);
                item.~T();
            }
            ring_.end(c);
        }
        finish(w, which, a == attempt::done ? wait_status::granted : wait_status::closed, out);
        return true;
    }
    // With a capacity of 0: pairs each sender with the first receiver that it may meet.
    void pair(outcomes& out) noexcept {
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
    // Passes the item of a waiting sender to a waiting receiver. If one of the two belongs to a
    // select that has chosen another case, takes that one out of its queue instead. Returns false
    // if the sender is no longer in its queue.
    bool match(node& sender, node& receiver, outcomes& out) noexcept {
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
            detail::deliver(detail::item_of<T>(sender), receiver);
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
    void finish(node& w, side which, wait_status what, outcomes& out) noexcept {
        w.commit();
        queue_of(which).remove(w);
        out.push(w, what);
    }
    // Releases the lock and sets the flags by the state of the queues, in one step.
    void unlock() noexcept {
        lock::release(word_, (senders_.empty() ? 0 : flag_of(side::sending)) |
                                 (receivers_.empty() ? 0 : flag_of(side::receiving)));
    }

    static constexpr word flag_of(side which) noexcept { return which == side::sending ? 2 : 4; }
    wait_queue& queue_of(side which) noexcept {
        return which == side::sending ? senders_ : receivers_;
    }

    ring ring_;
    // The flags, and the lock. Every operation reads it. While nothing waits, it does not change.
    alignas(cache_line_pair) typename lock::atomic word_{0};
    wait_queue senders_;   // under the lock
    wait_queue receivers_; // under the lock
};

}}} // namespace bide::BIDE_ABI::detail

#endif
