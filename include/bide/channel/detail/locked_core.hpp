// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_DETAIL_LOCKED_CORE_HPP
#define BIDE_CHANNEL_DETAIL_LOCKED_CORE_HPP

// A channel under one lock, without its public operations: items in a container, and two queues of
// waiters. It is a Source (item_wait.hpp). The container, Items, has
//
//   value_type, name           the item; the name of the channel, for messages
//   bool send_waits            true if a send may find no room; Items then has is_full()
//   displaced                  the type of an object that is empty at first, and to which put()
//                              moves the item that it removes to make room. The caller of put()
//                              destroys this object after it has released the lock
//   size(), capacity(), empty()
//   put(T&, displaced&)        moves an item in; if send_waits, requires that there is room
//   bool put_back(T&)          moves a received item in again; if there is no room, returns false
//                              and leaves the item unchanged
//   take(f)                    calls f(T&), which moves the next item out; requires that there is
//                              an item
//
// Whenever the lock is free, a receiver waits only if there is no item, and a sender waits only if
// there is no room. This holds because a thread also serves the waiter before it releases the lock:
// a send hands its item to the first waiting receiver, and a receive moves in the item of the first
// waiting sender. So no waiter is woken only to look again. (The node of a select that has chosen
// another case may still be queued; it does not count as a waiter.)
//
// A thread ends a wait under the lock, and wakes the waiter after it has released the lock. The
// release of the lock is the last access of each operation to the channel, and the destructor
// acquires the lock first. So a caller that got the item, or saw the channel closed, may destroy
// the channel.

#include <bide/channel/detail/item_wait.hpp>

#include <stdexcept>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// Returns `capacity`.
// Throws: std::invalid_argument(why) if it is 0.
inline std::size_t not_zero(std::size_t capacity, [[maybe_unused]] const char* why) {
    if (capacity == 0) {
        BIDE_THROW(std::invalid_argument(why));
    }
    return capacity;
}

// Memory for `capacity` objects. The owner of the array constructs and destroys the objects. The
// constructor of the array allocates all memory.
template <class T> class item_array {
    struct place {
        alignas(T) std::byte bytes[sizeof(T)];
    };

public:
    // Throws: std::length_error(too_large) if no memory can hold so many objects, std::bad_alloc.
    item_array(std::size_t capacity, [[maybe_unused]] const char* too_large) : capacity_(capacity) {
        if (capacity > (std::numeric_limits<std::ptrdiff_t>::max)() / sizeof(place)) {
            BIDE_THROW(std::length_error(too_large));
        }
        places_ = new place[capacity];
    }
    ~item_array() { delete[] places_; }

    item_array& operator=(item_array&&) = delete;

    std::size_t capacity() const noexcept { return capacity_; }

    template <class... Args> void construct(std::size_t i, Args&&... args) noexcept {
        ::new (static_cast<void*>(places_[i].bytes)) T(std::forward<Args>(args)...);
    }
    T& operator[](std::size_t i) const noexcept {
        return *std::launder(reinterpret_cast<T*>(places_[i].bytes));
    }
    void destroy(std::size_t i) noexcept { (*this)[i].~T(); }

    // Moves object `from` to place `to`, which is free. After that, place `from` is free.
    void relocate(std::size_t to, std::size_t from) noexcept {
        construct(to, std::move((*this)[from]));
        destroy(from);
    }

private:
    place* places_ = nullptr;
    std::size_t capacity_;
};

template <class Items, class Platform> class basic_locked_core : public yielding_source<Platform> {
    using T = typename Items::value_type;

public:
    static constexpr const char* waited_for = Items::name;

    // The node of a wait carries the T to send, or the destination of the item to receive.
    using node = basic_waiter<Platform>;
    using displaced = typename Items::displaced;

    template <class... More>
    explicit basic_locked_core(std::size_t capacity, More... more)
        : items_(capacity, std::move(more)...) {}
    ~basic_locked_core() {
        lock::acquire(word_); // every operation has released it
        if (!senders_.empty() || !receivers_.empty()) {
            (senders_.empty() ? receivers_ : senders_).fatal_destroyed(Items::name, this);
        }
        lock::release(word_, closed);
        detail::destroy_items<T>(*this);
    }

    basic_locked_core& operator=(basic_locked_core&&) = delete;

    // A send never lacks memory.
    static constexpr bool send_allocates = false;

    // If there is room, moves `value` in and returns granted. If not, leaves `value` unchanged and
    // returns waiting (full) or closed.
    wait_status send(T& value, displaced& old) noexcept {
        wake_list granted;
        const lock_word seen = lock::acquire(word_);
        const wait_status what = seen == closed ? wait_status::closed
                                 : has_room()   ? wait_status::granted
                                                : wait_status::waiting;
        if (what == wait_status::granted) {
            insert(value, old, granted);
        }
        unlock(seen);
        granted.publish(wait_status::granted);
        return what;
    }
    wait_status send(T& value) noexcept {
        displaced old; // destroyed without the lock
        return send(value, old);
    }

    // If there is an item, calls put(T&), which moves it out, and returns granted. If there is
    // none, returns waiting (empty) or closed.
    template <class Put> wait_status recv(Put&& put) noexcept {
        wake_list granted;
        const lock_word seen = lock::acquire(word_);
        const wait_status what = !items_.empty()  ? wait_status::granted
                                 : seen == closed ? wait_status::closed
                                                  : wait_status::waiting;
        if (what == wait_status::granted) {
            extract(put, granted);
        }
        unlock(seen);
        granted.publish(wait_status::granted);
        return what;
    }

    // send_n() and recv_n() transfer up to `most` items and return how many. make(i) makes item i.
    template <class Make> std::size_t send_n(Make&& make, std::size_t most) noexcept {
        std::size_t sent = 0;
        while (sent < most && send(make(sent)) == wait_status::granted) {
            ++sent;
        }
        return sent;
    }
    template <class Put> std::size_t recv_n(Put&& put, std::size_t most) noexcept {
        wake_list granted;
        std::size_t received = 0;
        const lock_word seen = lock::acquire(word_);
        for (; received < most && !items_.empty(); ++received) {
            extract(put, granted);
        }
        unlock(seen);
        granted.publish(wait_status::granted);
        return received;
    }

    // If the send or receive of `w` can end now, completes `w` and returns its status. If not,
    // queues `w` and returns waiting.
    wait_status enqueue(node& w, side which) noexcept {
        displaced old;
        wake_list granted;
        const lock_word seen = lock::acquire(word_);
        const bool sends = which == side::sending;
        const bool over = seen == closed;
        const bool may = sends ? !over && has_room() : !items_.empty();
        wait_status what = may ? wait_status::granted : over ? wait_status::closed : w.forbidden();
        if (what == wait_status::waiting) {
            queue_of(which).push(w);
        } else if ((may || over) && !w.claim()) {
            what = wait_status::waiting; // its select has chosen another case: not queued
        } else if (may || over) {
            w.commit(); // first, because insert() and extract() may claim another select
            if (may && sends) {
                insert(detail::item_of<T>(w), old, granted);
            } else if (may) {
                auto put = [&w](T& item) noexcept { detail::deliver(item, w); };
                extract(put, granted);
            }
        }
        unlock(seen);
        granted.publish(wait_status::granted);
        if (what != wait_status::waiting) {
            w.settle(what);
        }
        return what;
    }

    // Cancels the wait of `w`. If another thread has ended the wait before, returns false. If `w`
    // is not queued yet, also returns false, and a later enqueue() completes `w` with `why`.
    bool cancel(node& w, side which, wait_status why) noexcept {
        const lock_word seen = lock::acquire(word_);
        const bool ended = queue_of(which).withdraw(w, why);
        lock::release(word_, seen);
        return ended;
    }

    // Passes on the item of a receiver that was destroyed. The item goes to the next waiting
    // receiver. If none waits, the item goes back into the container. If there is no room, or if
    // the channel is closed, returns false and leaves the item unchanged.
    bool pass_on(T& item) noexcept {
        wake_list granted;
        const lock_word seen = lock::acquire(word_);
        const bool passed = seen != closed &&
                            (detail::hand_over(item, receivers_, granted) || items_.put_back(item));
        unlock(seen);
        granted.publish(wait_status::granted);
        return passed;
    }

    // Makes later sends fail, and ends all waits. Returns true if this call closed the channel.
    bool close() noexcept {
        wake_list failed;
        const bool first = lock::acquire(word_) != closed;
        senders_.pop_all(failed);
        receivers_.pop_all(failed);
        lock::release(word_, closed);
        failed.publish(wait_status::closed);
        return first;
    }
    // Order: relaxed; a snapshot.
    bool is_closed() const noexcept {
        return (word_.load(std::memory_order_relaxed) & closed) != 0;
    }

    std::size_t capacity() const noexcept { return items_.capacity(); }
    // Order: relaxed; a snapshot.
    std::size_t size() const noexcept { return count_.load(std::memory_order_relaxed); }
    bool is_full() const noexcept { return Items::send_waits && size() == capacity(); }

private:
    using lock = brief_lock<Platform>;
    using lock_word = typename lock::word;
    using wait_queue = basic_waiter_queue<Platform>;
    using wake_list = basic_wake_list<Platform>;

    static constexpr lock_word closed = 2; // every send fails; set under the lock, once

    wait_queue& queue_of(side which) noexcept {
        return which == side::sending ? senders_ : receivers_;
    }

    // Requires: the lock

    bool has_room() const noexcept {
        if constexpr (Items::send_waits) {
            return !items_.is_full();
        } else {
            return true;
        }
    }
    // Requires: has_room().
    void insert(T& item, displaced& old, wake_list& granted) noexcept {
        if (!detail::hand_over(item, receivers_, granted)) {
            items_.put(item, old);
        }
    }
    // Requires: not empty.
    template <class Put> void extract(Put& put, wake_list& granted) noexcept {
        items_.take(put);
        if constexpr (Items::send_waits) {
            auto admit = [this](node& w) noexcept {
                displaced none;
                items_.put(detail::item_of<T>(w), none);
            };
            detail::meet(senders_, admit, granted);
        }
    }

    void unlock(lock_word next) noexcept {
        // Order: relaxed; size() is only a snapshot.
        count_.store(items_.size(), std::memory_order_relaxed);
        lock::release(word_, next);
    }

    alignas(cache_line_pair) typename lock::atomic word_{0};
    Items items_;                                              // under the lock
    wait_queue senders_;                                       // under the lock
    wait_queue receivers_;                                     // under the lock
    typename Platform::template atomic<std::size_t> count_{0}; // changes under the lock
};

}}} // namespace bide::BIDE_ABI::detail

#endif
