// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_UNBOUNDED_CORE_HPP
#define BIDE_CHANNEL_DETAIL_UNBOUNDED_CORE_HPP

// The items of an unbounded channel and a queue of receivers, under one lock: a Source of
// item_wait.hpp. The word:
//
//   bit 0, 1   the lock (core/lock_bits.hpp)
//   closed     every send fails; set under the lock, once
//
// A send gives its item to the first waiting receiver, or puts it behind the other items. A receive
// takes the first item, or queues. Both decide under the lock, so no re-check is needed: whenever
// the lock is free, a receiver waits only if there is no item. (A select whose choice has selected
// another case may still be queued; it does not count.)
//
// A wait that was decided under the lock is published after it. Segments are allocated before the
// lock is acquired and freed after it is released. The release of the lock is the last access of
// each operation to the channel, and the destructor acquires the lock first. So a caller that got
// the item, or saw the channel closed, may destroy the channel at once.

#include <bide/channel/detail/item_wait.hpp>
#include <bide/channel/detail/segment_queue.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/futex.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/spin.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waiter_queue.hpp>

#include <cstddef>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class T, class Platform> class basic_unbounded_core {
public:
    // A node carries the T to send, or the receiver's destination.
    using node = basic_waiter<Platform>;

    basic_unbounded_core() noexcept = default;
    ~basic_unbounded_core();

    basic_unbounded_core(const basic_unbounded_core&) = delete;
    basic_unbounded_core& operator=(const basic_unbounded_core&) = delete;

    // A send may fail because there is no memory.
    static constexpr bool send_allocates = true;

    // Moves `value` in: granted. Otherwise closed or no_memory, and `value` is untouched.
    wait_status send(T& value) noexcept { return send_one(value, nullptr); }

    // Calls put(T&), which moves an item out: granted. Otherwise waiting (empty) or closed.
    template <class Put> wait_status recv(Put&& put) noexcept;

    // Send or receive up to `most` items at once, and return the number of items. make(i) makes
    // item i. send_n() stops early if the channel is closed or memory has run out.
    template <class Make> std::size_t send_n(Make&& make, std::size_t most) noexcept;
    template <class Put> std::size_t recv_n(Put&& put, std::size_t most) noexcept;

    // Queues a receiver and returns waiting, or settles `w` and returns its status. A sender never
    // queues.
    wait_status enqueue(node& w, side which) noexcept;

    // Cancels the wait of `w`. Returns false if it is decided, or if `w` is not queued yet; then a
    // later enqueue() refuses it with `why`.
    bool cancel(node& w, side which, wait_status why) noexcept;

    // Passes on an item of a receiver that was destroyed: to the next waiting receiver, else to the
    // front. If the front lacks memory, the item goes to the back, which may have room. Returns
    // false if there is no room, or if the channel is closed; the item is untouched then.
    bool pass_on(T& item) noexcept;

    // Fails every later send. Returns true if this call closed it.
    bool close() noexcept;
    // Order: relaxed; a snapshot.
    bool is_closed() const noexcept {
        return (word_.load(std::memory_order_relaxed) & closed) != 0;
    }

    static constexpr std::size_t capacity() noexcept { return static_cast<std::size_t>(-1); }

    // Order: relaxed; a snapshot.
    std::size_t size() const noexcept { return size_.load(std::memory_order_relaxed); }

    // Runs before a thread queues: it yields a few times, so that senders supply many items.
    template <class Try> bool yield_before_wait(Try&& try_again) noexcept {
        return basic_spin<Platform>::yielding(try_again, yields);
    }
    std::int64_t spin_budget_ns() const noexcept { return 0; }

private:
    using lock = lock_bits<Platform, futex_word>;
    using queue = basic_segment_queue<T, Platform>;
    using segments = typename queue::segments;
    using wake_list = basic_wake_list<Platform>;

    static constexpr futex_word closed = 4;
    static constexpr int yields = 8;

    // Sends one item. If the send is a case of a select, `w` is its node; otherwise nullptr.
    // Returns waiting if the choice of `w` selected another wait.
    wait_status send_one(T& value, const node* w) noexcept;
    template <class Make>
    wait_status insert(Make& make, std::size_t most, std::size_t& sent, const node* w) noexcept;

    // Acquires the lock, and brings segments to push `most` items, or fewer if memory has run out.
    // Returns the word.
    futex_word acquire_with(segments& loose, std::size_t most) noexcept;

    // Requires: the lock

    // Gives the item to the first receiver that may have it. Returns false if there is none.
    bool meet(T& item, wake_list& granted) noexcept;

    void count(std::size_t more) noexcept {
        // Order: relaxed; it changes only under the lock, and other threads read a snapshot.
        size_.store(size_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
    }

    typename Platform::template atomic<futex_word> word_{0};
    basic_waiter_queue<Platform> receivers_;                  // under the lock
    queue items_;                                             // under the lock
    typename Platform::template atomic<std::size_t> size_{0}; // of items_; changes under the lock
};

template <class T, class Platform> basic_unbounded_core<T, Platform>::~basic_unbounded_core() {
    lock::acquire(word_); // every operation has released it
    if (!receivers_.empty()) {
        receivers_.fatal_destroyed("unbounded_channel", this);
    }
    // The items are destroyed while the channel is empty: their destructors may use it.
    queue rest;
    rest.swap(items_);
    // Order: relaxed; no other thread uses the channel.
    size_.store(0, std::memory_order_relaxed);
    lock::release_as(word_, closed);
}

template <class T, class Platform>
futex_word basic_unbounded_core<T, Platform>::acquire_with(segments& loose,
                                                           std::size_t most) noexcept {
    for (bool memory = true;;) {
        const futex_word seen = lock::acquire(word_);
        if ((seen & closed) != 0 || !memory) {
            return seen;
        }
        const std::size_t needed = items_.lacking(most);
        if (needed <= loose.size()) {
            return seen;
        }
        lock::release(word_);
        while (memory && loose.size() < needed) {
            memory = loose.allocate();
        }
    }
}

template <class T, class Platform>
template <class Make>
wait_status basic_unbounded_core<T, Platform>::insert(Make& make, std::size_t most,
                                                      std::size_t& sent, const node* w) noexcept {
    segments loose;
    wake_list granted;
    const futex_word seen = acquire_with(loose, most);
    if (w != nullptr && !w->claim()) {
        lock::release(word_);
        return wait_status::waiting;
    }
    if (w != nullptr) {
        w->commit(); // at once: it does not wait for what follows, and meets no other choice
    }
    if ((seen & closed) != 0) {
        lock::release(word_);
        return wait_status::closed;
    }
    while (sent < most && meet(make(sent), granted)) {
        ++sent;
    }
    const std::size_t handed = sent;
    while (sent < most && items_.push_back(make(sent), loose)) {
        ++sent;
    }
    count(sent - handed);
    lock::release(word_);
    granted.publish(wait_status::granted);
    return wait_status::granted;
}

template <class T, class Platform>
wait_status basic_unbounded_core<T, Platform>::send_one(T& value, const node* w) noexcept {
    std::size_t sent = 0;
    auto make = [&value](std::size_t) noexcept -> T& { return value; };
    const wait_status what = insert(make, 1, sent, w);
    return what == wait_status::granted && sent == 0 ? wait_status::no_memory : what;
}

template <class T, class Platform>
template <class Make>
std::size_t basic_unbounded_core<T, Platform>::send_n(Make&& make, std::size_t most) noexcept {
    std::size_t sent = 0;
    if (most != 0) {
        insert(make, most, sent, nullptr);
    }
    return sent;
}

template <class T, class Platform>
template <class Put>
wait_status basic_unbounded_core<T, Platform>::recv(Put&& put) noexcept {
    segments emptied;
    const futex_word seen = lock::acquire(word_);
    const bool any = !items_.empty();
    if (any) {
        items_.pop_front(put, emptied);
        count(static_cast<std::size_t>(-1));
    }
    lock::release(word_);
    return any                    ? wait_status::granted
           : (seen & closed) != 0 ? wait_status::closed
                                  : wait_status::waiting;
}

template <class T, class Platform>
template <class Put>
std::size_t basic_unbounded_core<T, Platform>::recv_n(Put&& put, std::size_t most) noexcept {
    segments emptied;
    std::size_t received = 0;
    lock::acquire(word_);
    for (; received < most && !items_.empty(); ++received) {
        items_.pop_front(put, emptied);
    }
    count(std::size_t{0} - received);
    lock::release(word_);
    return received;
}

template <class T, class Platform>
bool basic_unbounded_core<T, Platform>::meet(T& item, wake_list& granted) noexcept {
    while (!receivers_.empty()) {
        node& w = receivers_.pop();
        if (w.claim()) {
            deliver(item, w);
            w.commit();
            granted.push(w);
            return true;
        }
    }
    return false;
}

template <class T, class Platform>
wait_status basic_unbounded_core<T, Platform>::enqueue(node& w, side which) noexcept {
    if (which == side::sending) {
        const wait_status what = send_one(item_of<T>(w), &w);
        if (what != wait_status::waiting) {
            w.settle(what);
        }
        return what;
    }
    segments emptied;
    const futex_word seen = lock::acquire(word_);
    const bool any = !items_.empty();
    wait_status what = any                    ? wait_status::granted
                       : (seen & closed) != 0 ? wait_status::closed
                                              : w.forbidden();
    if (what == wait_status::waiting) {
        receivers_.push(w);
    } else if (any || (seen & closed) != 0) {
        if (w.claim()) {
            if (any) {
                auto put = [&w](T& item) noexcept { deliver(item, w); };
                items_.pop_front(put, emptied);
                count(static_cast<std::size_t>(-1));
            }
            w.commit();
        } else {
            what = wait_status::waiting; // its choice selected another wait: it need not queue
        }
    }
    lock::release(word_);
    if (what != wait_status::waiting) {
        w.settle(what);
    }
    return what;
}

template <class T, class Platform>
bool basic_unbounded_core<T, Platform>::cancel(node& w, side, wait_status why) noexcept {
    lock::acquire(word_);
    const bool ended = receivers_.withdraw(w, why);
    lock::release(word_);
    return ended;
}

template <class T, class Platform>
bool basic_unbounded_core<T, Platform>::pass_on(T& item) noexcept {
    segments loose;
    wake_list granted;
    for (bool memory = true;; memory = loose.allocate()) {
        const bool open = (lock::acquire(word_) & closed) == 0;
        const bool handed = meet(item, granted);
        const bool put_back =
            !handed && open &&
            (items_.push_front(item, loose) || (!memory && items_.push_back(item, loose)));
        if (put_back) {
            count(1);
        }
        lock::release(word_);
        if (handed || put_back || !open || !memory) {
            granted.publish(wait_status::granted);
            return handed || put_back;
        }
    }
}

template <class T, class Platform> bool basic_unbounded_core<T, Platform>::close() noexcept {
    wake_list failed;
    const bool first = (lock::acquire(word_) & closed) == 0;
    receivers_.pop_all(failed);
    lock::release_as(word_, closed);
    failed.publish(wait_status::closed);
    return first;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
