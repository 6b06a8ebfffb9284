#ifndef BIDE_CHANNEL_DETAIL_CHANNEL_CORE_HPP
#define BIDE_CHANNEL_DETAIL_CHANNEL_CORE_HPP

// A ring, and two queues of those who wait for it: what a channel is, below its face.
//
// Items go through the ring without any lock. Who finds it full, or empty, goes into the queue of
// its side, under one lock, and `flags_` says which queues have somebody in them. Everybody who has
// moved an index looks at the flags, and where the other side waits, settles: under the lock, moves
// items from the ring to waiting receivers and from waiting senders into the ring until neither
// goes on. So a wait ends with the item moved, or with nothing: no waiter is woken to look for
// itself, none finds its item taken by another, and a time-out or a stop is decided under the lock.
//
// Why nothing is left inside with everybody asleep [C1]. One side moves an index and then reads the
// flags; the other raises its flag and then reads the indices. All four steps are seq_cst, so they
// stand in one order, and of the two that come later one sees the other's:
//
//   receiver                             sender
//   lock; raise the flag                 move the tail
//   read the indices: empty? wait        read the flags: raised? settle
//
// If the tail moved first, the receiver finds the ring not empty, lowers the flag and tries again;
// if the flag was first, the sender sees it and settles once its item is published. And that
// holds for each of many senders, whatever the others do: a flag stays raised from an instant at
// which the ring was empty until nobody waits, so whoever moved the tail since will settle, the
// last to publish finds all that the others have published, and settles under the lock take turns.
// To wake one receiver for each item does not do: the first of two senders may be the last to
// publish, and whom the second wakes finds the first slot unpublished and sleeps again.
//
// What an index claims and no stamp has published yet is neither there nor gone: who meets it
// (attempt::busy) leaves the lock and looks again soon, coroutine or thread: its claimer is between two
// of a few instructions.
//
// Last touches. The flags are read between the claim and the publication of a slot. If they are
// down, the publication is the operation's last touch of the channel; if not, it takes the lock
// first and publishes under it, and letting go of the lock is its last touch. So a receiver that
// has its item may destroy the channel, which waits for the lock: nobody who put an item in is
// inside any more.
//
// Closing is a bit in the tail. The sends that moved the tail before are received or stay inside,
// and "closed" is what a receiver is told when the ring is empty under the mark.
//
// Without a capacity the ring is always full and always empty, so everybody comes to settle, which
// pairs the two queues.

#include <bide/channel/detail/channel_waiters.hpp>
#include <bide/channel/detail/item_wait.hpp>
#include <bide/channel/ring.hpp>
#include <bide/core/backoff.hpp>
#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/futex.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/spin.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waiter_queue.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class T, class Platform, class Stamp>
class basic_channel_core : private basic_channel_waiters<T, Platform, Stamp> {
    using base = basic_channel_waiters<T, Platform, Stamp>;

public:
    using base::cancel;
    using base::close;
    using typename base::node;

    explicit basic_channel_core(std::size_t capacity) : base(capacity) {}
    ~basic_channel_core();

    basic_channel_core(const basic_channel_core&) = delete;
    basic_channel_core& operator=(const basic_channel_core&) = delete;

    // A send never fails for want of memory.
    static constexpr bool send_allocates = false;

    // Moves `value` in: granted; waiting (full) or closed: it is untouched.
    wait_status send(T& value) noexcept {
        std::size_t sent = 0;
        auto make = [&value]() noexcept -> T& { return value; };
        return push(make, one(), sent) == attempt::done ? wait_status::granted : send_again(value);
    }

    // Gives an item to put(T&), which moves it away: granted; else waiting (empty) or closed.
    template <class Put> wait_status recv(Put&& put) noexcept {
        std::size_t received = 0;
        return pop(put, one(), received) == attempt::done ? wait_status::granted : recv_again(put);
    }

    // The same for up to `most` items, in as few steps as there are: say how many. make(i) is the
    // i-th to be sent.
    template <class Make> std::size_t send_n(Make&& make, std::size_t most) noexcept;
    template <class Put> std::size_t recv_n(Put&& put, std::size_t most) noexcept;

    // Queues `w` on a side (answers waiting), or completes it at once (answers and settles its
    // outcome).
    wait_status enqueue(node& w, side which) noexcept;

    // An item that came to a receiver which is not there any more: gives it to the next receiver
    // that waits, or puts it in, behind all that are inside. False: full or closed; it is untouched.
    bool pass_on(T& item) noexcept;

    bool is_closed() const noexcept { return ring_.is_closed(); }

    std::size_t capacity() const noexcept { return ring_.capacity(); }
    std::size_t size() const noexcept { return ring_.size(); }

    // A thread's patience before it queues: with some room, a few yields let the other side work
    // off, or supply, many items at a time; with little, the other side may be at it right now;
    // with none, somebody has to queue first.
    template <class Try> bool yield_before_wait(Try&& try_again) noexcept {
        using spin = basic_spin<Platform>;
        return capacity() > small_capacity ? spin::yielding(try_again, yields)
                                           : capacity() != 0 && spin::spin_once(try_again);
    }

    // With little room each item is waited for, and soon there.
    std::int64_t patience_ns() const noexcept { return capacity() > small_capacity ? 0 : 25'000; }

private:
    using base::anybody;
    using base::end_awaited;
    using base::lock_;
    using base::ring_;
    using typename base::claim;
    using typename base::lock;
    using typename base::one;
    using typename base::outcomes;

    static constexpr std::size_t small_capacity = 8;
    static constexpr int yields = 8;

    // One attempt at the ring, for `most` items or, as often, one; says how many. Where it is that
    // of a waiter who has claimed its choice, it commits, before it goes for the lock.
    template <class Make, class Count>
    attempt push(Make& make, Count most, std::size_t& sent, const node* w = nullptr) noexcept;
    template <class Put, class Count>
    attempt pop(Put& put, Count most, std::size_t& received, const node* w = nullptr) noexcept;

    BIDE_NOINLINE wait_status send_again(T& value) noexcept;
    template <class Put> BIDE_NOINLINE wait_status recv_again(Put& put) noexcept;

    // As often as it takes not to find it busy.
    template <class Step> attempt persist(Step&& step) noexcept {
        for (basic_backoff<Platform> again;; again()) {
            if (const attempt a = step(); a != attempt::busy) {
                return a;
            }
        }
    }

    // Publishes what was claimed: where the other side waits, under the lock, and settles.
    void end(const claim& c, bool awaited, const node* w) noexcept;

    std::optional<wait_status> attempt_for(node& w, side which) noexcept;
};

template <class T, class Platform, class Stamp>
basic_channel_core<T, Platform, Stamp>::~basic_channel_core() {
    lock::acquire(lock_); // whoever published under it is done
    if (!this->senders_.empty() || !this->receivers_.empty()) {
        (this->senders_.empty() ? this->receivers_ : this->senders_)
            .fatal_destroyed("channel", this);
    }
    lock::release(lock_); // the destructors of items may come back here
    ring_.close();
    // Each is destroyed after it was taken out.
    while (recv([](T& item) noexcept { [[maybe_unused]] const T last(std::move(item)); }) ==
           wait_status::granted) {
    }
}

template <class T, class Platform, class Stamp>
template <class Make, class Count>
attempt basic_channel_core<T, Platform, Stamp>::push(Make& make, Count most, std::size_t& sent,
                                                     const node* w) noexcept {
    claim c;
    if (const attempt a = ring_.begin_push(c, most); a != attempt::done) {
        return a;
    }
    const bool awaited = anybody(side::receiving);
    if constexpr (std::is_same_v<Count, one>) {
        ::new (ring_.place(c)) T(std::move(make()));
        end(c, awaited, w);
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
            end_awaited(c);
        }
    }
    return attempt::done;
}

template <class T, class Platform, class Stamp>
template <class Put, class Count>
attempt basic_channel_core<T, Platform, Stamp>::pop(Put& put, Count most, std::size_t& received,
                                                    const node* w) noexcept {
    claim c;
    if (const attempt a = ring_.begin_pop(c, most); a != attempt::done) {
        return a;
    }
    const bool awaited = anybody(side::sending);
    if constexpr (std::is_same_v<Count, one>) {
        T& item = ring_.item(c);
        put(item);
        item.~T();
        end(c, awaited, w);
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
            end_awaited(c);
        }
    }
    return attempt::done;
}

template <class T, class Platform, class Stamp>
void basic_channel_core<T, Platform, Stamp>::end(const claim& c, bool awaited,
                                                 const node* w) noexcept {
    if (w != nullptr) {
        w->commit();
    }
    if (awaited) {
        end_awaited(c);
    } else {
        ring_.end(c);
    }
}

template <class T, class Platform, class Stamp>
BIDE_NOINLINE wait_status basic_channel_core<T, Platform, Stamp>::send_again(T& value) noexcept {
    std::size_t sent = 0;
    auto make = [&value]() noexcept -> T& { return value; };
    switch (persist([&]() noexcept { return push(make, one(), sent); })) {
    case attempt::done: return wait_status::granted;
    case attempt::closed: return wait_status::closed;
    default: break;
    }
    auto give = [&value](node& receiver) noexcept { deliver(value, receiver); };
    return capacity() == 0 && this->meet(side::receiving, give) ? wait_status::granted
                                                                : wait_status::waiting;
}

template <class T, class Platform, class Stamp>
template <class Put>
BIDE_NOINLINE wait_status basic_channel_core<T, Platform, Stamp>::recv_again(Put& put) noexcept {
    std::size_t received = 0;
    switch (persist([&]() noexcept { return pop(put, one(), received); })) {
    case attempt::done: return wait_status::granted;
    case attempt::closed: return wait_status::closed;
    default: break;
    }
    auto take = [&put](node& sender) noexcept { put(item_of<T>(sender)); };
    return capacity() == 0 && this->meet(side::sending, take) ? wait_status::granted
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
    for (;;) {
        lock::acquire(lock_);
        if (!this->queue_of(which).empty()) {
            break; // the flag is up since there was nothing to be had
        }
        // Order: seq_cst [C1]; the first half of a pair, whose second is a look at the indices.
        this->flags_.fetch_or(this->flag_of(which), std::memory_order_seq_cst);
        if (this->must_wait(which)) {
            break;
        }
        this->update_flags();
        lock::release(lock_);
        if (const auto what = attempt_for(w, which)) {
            return *what;
        }
        // Only reads, out of everybody's way.
        for (basic_backoff<Platform> again; this->is_busy(which); again()) {
        }
    }
    if (const wait_status forbidden = w.forbidden(); forbidden != wait_status::waiting) {
        this->update_flags();
        lock::release(lock_);
        w.settle(forbidden);
        return forbidden;
    }
    outcomes out;
    out.self = &w;
    this->queue_of(which).push(w);
    this->settle(out);
    lock::release(lock_);
    out.publish();
    if (out.self_status != wait_status::waiting) {
        w.settle(out.self_status);
    }
    return out.self_status;
}

// The owner's own attempt at what its wait is for. Nothing: in vain.
template <class T, class Platform, class Stamp>
std::optional<wait_status>
basic_channel_core<T, Platform, Stamp>::attempt_for(node& w, side which) noexcept {
    if (!w.claim()) {
        return wait_status::waiting; // its choice fell on another wait, so it need not even queue
    }
    std::size_t count = 0;
    auto make = [&w]() noexcept -> T& { return item_of<T>(w); };
    auto put = [&w](T& item) noexcept { deliver(item, w); };
    switch (which == side::sending ? push(make, one(), count, &w) : pop(put, one(), count, &w)) {
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
    // First a receiver that waits: it may do so beside a ring that is full of what no stamp has
    // published yet.
    auto give = [&item](node& receiver) noexcept { deliver(item, receiver); };
    return this->meet(side::receiving, give) || send(item) == wait_status::granted;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
