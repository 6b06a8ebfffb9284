// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_UNBOUNDED_CORE_HPP
#define BIDE_CHANNEL_DETAIL_UNBOUNDED_CORE_HPP

// The items of an unbounded channel (unbounded_sides.hpp) and a queue of receivers: a Source of
// item_wait.hpp.
//
// A send acquires the lock of the senders. It gives its item to the first waiting receiver, or puts
// it behind the other items. A receive acquires the lock of the receivers, and takes the first item.
// A receiver that has to wait queues while it holds both locks, so no re-check is needed: whenever
// the lock of the senders is free, a receiver waits only if neither side has an item. (A select
// whose choice has selected another case may still be queued; it does not count.)
//
// A wait that was decided under a lock is published after it. Segments are allocated before a lock
// is acquired and freed after it is released. The release of a lock is the last access of each
// operation to the channel, and the destructor acquires both locks first. So a caller that got the
// item, or saw the channel closed, may destroy the channel at once.

#include <bide/channel/detail/item_wait.hpp>
#include <bide/channel/detail/unbounded_sides.hpp>
#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/fatal.hpp>
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
    static constexpr const char* waited_for = "unbounded_channel";

    // A node carries the T to send, or the receiver's destination.
    using node = basic_waiter<Platform>;

    basic_unbounded_core() noexcept = default;
    ~basic_unbounded_core();

    basic_unbounded_core(const basic_unbounded_core&) = delete;
    basic_unbounded_core& operator=(const basic_unbounded_core&) = delete;

    // A send may fail because there is no memory.
    static constexpr bool send_allocates = true;

    // Moves `value` in: granted. Otherwise closed or no_memory, and `value` is untouched.
    wait_status send(T& value) noexcept;

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
        return (sides_.sending.word.load(std::memory_order_relaxed) & closed) != 0;
    }

    static constexpr std::size_t capacity() noexcept { return static_cast<std::size_t>(-1); }

    std::size_t size() const noexcept { return sides_.size(); }
    static constexpr bool is_full() noexcept { return false; }

    // Runs before a thread queues: it yields a few times, so that senders supply many items.
    template <class Try> bool yield_before_wait(Try&& try_again) noexcept {
        return basic_spin<Platform>::yielding(try_again, yields);
    }
    std::int64_t spin_budget_ns() const noexcept { return 0; }

private:
    using sides = basic_unbounded_sides<T, Platform>;
    using lock = typename sides::lock;
    using lock_word = typename sides::lock_word;
    using queue = typename sides::queue;
    using segments = typename sides::segments;
    using wake_list = basic_wake_list<Platform>;

    static constexpr lock_word closed = sides::closed;
    static constexpr int yields = 8;

    // Sends one item. If the send is a case of a select, `w` is its node; otherwise nullptr.
    // Returns waiting if the choice of `w` selected another wait.
    wait_status send_one(T& value, const node* w) noexcept;
    template <class Make>
    wait_status insert(Make& make, std::size_t most, std::size_t& sent, const node* w) noexcept;

    // Acquires the lock of the senders, and brings segments to push `most` items, or fewer if memory
    // has run out. Returns the word.
    lock_word acquire_with(segments& loose, std::size_t most) noexcept;

    // Requires: the lock of the senders

    // Gives the item to the first receiver that may have it. Returns false if there is none.
    bool meet(T& item, wake_list& granted) noexcept;

    sides sides_;
};

template <class T, class Platform> basic_unbounded_core<T, Platform>::~basic_unbounded_core() {
    lock::acquire(sides_.receiving.word); // every operation has released it
    lock::acquire(sides_.sending.word);
    if (!sides_.sending.receivers.empty()) {
        sides_.sending.receivers.fatal_destroyed("unbounded_channel", this);
    }
    // The items are destroyed while the channel is empty: their destructors may use it. The items of
    // the receivers come first.
    queue younger;
    queue older;
    younger.swap(sides_.sending.items);
    older.swap(sides_.receiving.items);
    // Order: relaxed; no other thread uses the channel.
    sides_.receiving.count.store(sides_.sending.count.load(std::memory_order_relaxed),
                                 std::memory_order_relaxed);
    lock::release(sides_.sending.word, closed);
    lock::release(sides_.receiving.word, 0);
}

// ---- Sending

template <class T, class Platform>
auto basic_unbounded_core<T, Platform>::acquire_with(segments& loose, std::size_t most) noexcept
    -> lock_word {
    for (bool memory = true;;) {
        const lock_word seen = lock::acquire(sides_.sending.word);
        if (seen == closed || !memory) {
            return seen;
        }
        const std::size_t needed = sides_.sending.items.lacking(most);
        if (needed <= loose.size()) {
            return seen;
        }
        lock::release(sides_.sending.word, seen);
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
    const lock_word seen = acquire_with(loose, most);
    if (w != nullptr && !w->claim()) {
        lock::release(sides_.sending.word, seen);
        return wait_status::waiting;
    }
    if (w != nullptr) {
        w->commit(); // at once: it does not wait for what follows, and meets no other choice
    }
    if (seen == closed) {
        lock::release(sides_.sending.word, seen);
        return wait_status::closed;
    }
    while (sent < most && meet(make(sent), granted)) {
        ++sent;
    }
    const std::size_t handed = sent;
    while (sent < most && sides_.sending.items.push_back(make(sent), loose)) {
        ++sent;
    }
    sides::count(sides_.sending.count, sent - handed);
    lock::release(sides_.sending.word, seen);
    granted.publish(wait_status::granted);
    return wait_status::granted;
}

template <class T, class Platform>
wait_status basic_unbounded_core<T, Platform>::send(T& value) noexcept {
    const lock_word seen = lock::acquire(sides_.sending.word);
    if (seen != closed && sides_.sending.receivers.empty() && sides_.sending.items.has_room()) {
        segments none;
        sides_.sending.items.push_back(value, none);
        sides::count(sides_.sending.count, 1);
        lock::release(sides_.sending.word, seen);
        return wait_status::granted;
    }
    lock::release(sides_.sending.word, seen);
    return send_one(value, nullptr);
}

template <class T, class Platform>
BIDE_NOINLINE wait_status basic_unbounded_core<T, Platform>::send_one(T& value,
                                                                      const node* w) noexcept {
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
bool basic_unbounded_core<T, Platform>::meet(T& item, wake_list& granted) noexcept {
    while (!sides_.sending.receivers.empty()) {
        node& w = sides_.sending.receivers.pop();
        if (w.claim()) {
            deliver(item, w);
            w.commit();
            granted.push(w);
            return true;
        }
    }
    return false;
}

// ---- Receiving

template <class T, class Platform>
template <class Put>
wait_status basic_unbounded_core<T, Platform>::recv(Put&& put) noexcept {
    segments emptied;
    lock::acquire(sides_.receiving.word);
    const wait_status what = sides_.look();
    if (what == wait_status::granted) {
        sides_.take(put, emptied);
    }
    lock::release(sides_.receiving.word, 0);
    return what;
}

template <class T, class Platform>
template <class Put>
std::size_t basic_unbounded_core<T, Platform>::recv_n(Put&& put, std::size_t most) noexcept {
    segments emptied;
    std::size_t received = 0;
    lock::acquire(sides_.receiving.word);
    for (; received < most && sides_.look() == wait_status::granted; ++received) {
        sides_.take(put, emptied);
    }
    lock::release(sides_.receiving.word, 0);
    return received;
}

// ---- Waiting

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
    lock::acquire(sides_.receiving.word);
    const lock_word seen = lock::acquire(sides_.sending.word);
    if (sides_.receiving.items.empty() && !sides_.sending.items.empty()) {
        sides_.receiving.items.take_all(sides_.sending.items);
    }
    const bool any = !sides_.receiving.items.empty();
    const bool decided = any || seen == closed;
    wait_status what = any ? wait_status::granted : decided ? wait_status::closed : w.forbidden();
    if (what == wait_status::waiting) {
        sides_.sending.receivers.push(w);
    }
    lock::release(sides_.sending.word, seen);
    if (decided) {
        if (w.claim()) {
            if (any) {
                auto put = [&w](T& item) noexcept { deliver(item, w); };
                sides_.take(put, emptied);
            }
            w.commit();
        } else {
            what = wait_status::waiting; // its choice selected another wait: it need not queue
        }
    }
    lock::release(sides_.receiving.word, 0);
    if (what != wait_status::waiting) {
        w.settle(what);
    }
    return what;
}

template <class T, class Platform>
bool basic_unbounded_core<T, Platform>::cancel(node& w, side, wait_status why) noexcept {
    const lock_word seen = lock::acquire(sides_.sending.word);
    const bool ended = sides_.sending.receivers.withdraw(w, why);
    lock::release(sides_.sending.word, seen);
    return ended;
}

template <class T, class Platform>
bool basic_unbounded_core<T, Platform>::pass_on(T& item) noexcept {
    segments loose;
    wake_list granted;
    for (bool memory = true;; memory = loose.allocate()) {
        lock::acquire(sides_.receiving.word);
        const lock_word seen = lock::acquire(sides_.sending.word);
        const bool open = seen != closed;
        const bool handed = meet(item, granted);
        bool put_back = !handed && open && sides_.receiving.items.push_front(item, loose);
        if (put_back) {
            sides::count(sides_.receiving.count, static_cast<std::size_t>(-1));
        } else if (!handed && open && !memory && sides_.sending.items.push_back(item, loose)) {
            sides::count(sides_.sending.count, 1);
            put_back = true;
        }
        lock::release(sides_.sending.word, seen);
        lock::release(sides_.receiving.word, 0);
        if (handed || put_back || !open || !memory) {
            granted.publish(wait_status::granted);
            return handed || put_back;
        }
    }
}

template <class T, class Platform> bool basic_unbounded_core<T, Platform>::close() noexcept {
    wake_list failed;
    const bool first = lock::acquire(sides_.sending.word) != closed;
    sides_.sending.receivers.pop_all(failed);
    lock::release(sides_.sending.word, closed);
    failed.publish(wait_status::closed);
    return first;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
