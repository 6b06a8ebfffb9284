// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_CHANNEL_HPP
#define BIDE_CHANNEL_CHANNEL_HPP

/// \file
/// A bounded queue that can be closed. Many threads and coroutines send to it and receive from it.
///
/// The functions for coroutines, async_send() and async_recv(), need a header of `task`, or
/// core/async_op.hpp.
///
/// Items go through a lock-free ring. If the ring is full, a sender waits in a queue. If the ring
/// is empty, a receiver waits in another queue. The thread that makes room also moves in the item
/// of a waiting sender. The thread that adds an item also moves an item to a waiting receiver.
/// channel/ring.hpp has the ring. detail::basic_channel_core below has the protocol between the
/// ring and the queues, and its proof.

#include <bide/channel/detail/item_wait.hpp>
#include <bide/channel/ring.hpp>

#include <iterator>
#include <span>

namespace bide { inline namespace BIDE_ABI {

/// The operations that send. `Self` is the class of a channel or of a sending handle.
template <class Self, class T, class Platform> class send_operations {
    using sent = result<void, send_error<T>>;
    static constexpr bool is_copyable = std::is_copy_constructible_v<T>;

public:
    /// Appends an item to the channel; a priority_channel orders its items. If a send fails, its
    /// error contains the item. If a send throws, the caller's item is unchanged.
    /// Blocks: while the channel is full.
    /// Returns: errc::closed, with the item, if the channel is closed.
    /// Memory order: what happens before the call happens before the item's recv() returns.
    sent send(T&& value) { return send_by(value, deadline::never()); }
    /// Does the same with a copy of `value`.
    sent send(const T& value)
        requires is_copyable
    {
        return send(T(value));
    }

    /// Sends as send() does, unless a stop is requested first.
    /// Returns: as send(), or errc::stopped.
    sent send(typename Platform::stop_token token, T&& value) { return send_by(value, token); }
    /// Does the same with a copy of `value`.
    sent send(typename Platform::stop_token token, const T& value)
        requires is_copyable
    {
        return send(std::move(token), T(value));
    }

    /// Sends as send() does if there is room. Never blocks, except while another thread is in the
    /// middle of a receive.
    /// Returns: as send(), or errc::full.
    sent try_send(T&& value) noexcept(!allocates<Self>) {
        BIDE_SWITCH_AFTER();
        return detail::to_result(source().send(value), value);
    }
    /// Does the same with a copy of `value`.
    sent try_send(const T& value) noexcept(!allocates<Self> &&
                                           std::is_nothrow_copy_constructible_v<T>)
        requires is_copyable
    {
        return try_send(T(value));
    }

    /// Sends as send() does, but waits at most `rest`.
    /// Returns: as send(), or errc::timeout.
    sent try_send_for(T&& value, deadline::from_now rest) { return send_by(value, deadline(rest)); }
    /// Does the same with a copy of `value`.
    sent try_send_for(const T& value, deadline::from_now rest)
        requires is_copyable
    {
        return try_send_for(T(value), rest);
    }
    /// Sends as send() does, but waits at most until a point in time.
    /// Returns: as send(), or errc::timeout.
    sent try_send_until(T&& value, deadline when) { return send_by(value, when); }
    /// Does the same with a copy of `value`.
    sent try_send_until(const T& value, deadline when)
        requires is_copyable
    {
        return try_send_until(T(value), when);
    }

    /// Sends as send() does, for a coroutine.
    /// If an aggregate is made in braces inside the co_await expression, GCC before 13 destroys it
    /// twice. With that GCC, async_send({...}) does not compile, but async_send(item{...}) compiles
    /// and destroys the item twice. Use async_emplace(), or construct the item in a variable first.
    basic_async_op<sent, Platform> async_send(T value)
        requires(!detail::is_broken_in_braces<T>)
    {
        return async_emplace(std::move(value));
    }
    /// \overload
    template <class U>
        requires(detail::is_broken_in_braces<T> && std::is_convertible_v<U, T>)
    basic_async_op<sent, Platform> async_send(U&& value) {
        return async_emplace(std::forward<U>(value));
    }

    /// Makes the compiler report an error for an argument in braces. For such an argument, the
    /// overload above cannot deduce U. For every other argument, the overload above is the better
    /// match, because it is not const.
    basic_async_op<sent, Platform> async_send(T) const
        requires(detail::is_broken_in_braces<T>)
    {
        static_assert(!detail::is_broken_in_braces<T>,
                      "bide: before version 13, GCC destroys twice what braces make in a co_await "
                      "expression: write co_await c.async_emplace(...)");
    }

    /// Constructs an item as T(args...), or as T{args...} if T is an aggregate, and sends the item
    /// as async_send() does. This call constructs the item, before any co_await.
    /// Throws: what the constructor of T throws; nothing was sent then.
    template <class... Args>
        requires detail::element_of<T, Args...>
    basic_async_op<sent, Platform> async_emplace(Args&&... args) {
        auto& to = source();
        return {typename waits<decltype(to)>::sending{to},
                detail::send_payload<T>(detail::channel_access::keep(self()),
                                        std::forward<Args>(args)...)};
    }

    /// Sends as async_send() does, but moves from `value` only when the item is sent.
    /// Requires: `value` and the channel stay in place until the operation is over.
    basic_async_op<result<void>, Platform> async_send_from(T& value) noexcept {
        auto& to = source();
        return {typename waits<decltype(to)>::sending_from{to, value}};
    }

    /// Sends items from the front of `items` as long as there is room. Never blocks.
    /// Returns: the number of items that were sent. The other items are unchanged.
    std::size_t try_send_n(std::span<T> items) noexcept {
        BIDE_SWITCH_AFTER();
        return source().send_n([items](std::size_t i) noexcept -> T& { return items[i]; },
                               items.size());
    }

protected:
    send_operations() = default;                                  ///< For `Self`.
    send_operations(const send_operations&) = default;            ///< For `Self`.
    send_operations& operator=(const send_operations&) = default; ///< For `Self`.
    ~send_operations() = default;                                 ///< For `Self`.

private:
    template <class Of>
    static constexpr bool allocates = std::remove_reference_t<decltype(detail::channel_access::core(
        std::declval<Of&>()))>::send_allocates;
    template <class Source>
    using waits = detail::item_wait<T, Platform, std::remove_reference_t<Source>>;

    Self& self() noexcept { return static_cast<Self&>(*this); }
    auto& source() noexcept { return detail::channel_access::core(self()); }

    template <class Limit> sent send_by(T& value, const Limit& limit) {
        BIDE_SWITCH_AFTER();
        const wait_status now = source().send(value);
        return detail::to_result(now != wait_status::waiting ? now : wait_to_send(value, limit),
                                 value);
    }
    template <class Limit> BIDE_NOINLINE wait_status wait_to_send(T& value, const Limit& limit) {
        auto& to = source();
        const detail::keep_alive alive = detail::channel_access::keep(self());
        return waits<decltype(to)>::send(to, value, limit);
    }
};

/// The operations that receive. `Self` is the class of a channel or of a receiving handle.
template <class Self, class T, class Platform> class receive_operations {
public:
    /// The type of an item.
    using value_type = T;

    /// Receives the oldest item; from a priority_channel, the greatest.
    /// Blocks: while there is no item.
    /// Returns: the item; nothing if the channel is closed and every item was received.
    /// Memory order: what happens before the send happens before the return.
    [[nodiscard("it is the item")]] std::optional<T> recv() {
        std::optional<T> item;
        recv_to(item, deadline::never());
        return item;
    }

    /// Receives as recv() does, unless a stop is requested first.
    /// Returns: the item, errc::closed or errc::stopped.
    result<T> recv(typename Platform::stop_token token) { return recv_by(token); }

    /// Receives as recv() does, if there is an item. Never blocks, except while another thread is
    /// in the middle of a send.
    /// Returns: the item; errc::empty; errc::closed if no more items will come.
    result<T> try_recv() noexcept {
        BIDE_SWITCH_AFTER();
        std::optional<T> item;
        return detail::to_received(source().recv(detail::into(item)), item);
    }

    /// Receives as recv() does, but waits at most `rest`.
    /// Returns: the item, errc::timeout or errc::closed.
    result<T> try_recv_for(deadline::from_now rest) { return recv_by(deadline(rest)); }
    /// Receives as recv() does, but waits at most until a point in time.
    result<T> try_recv_until(deadline when) { return recv_by(when); }

    /// Receives as recv() does, for a coroutine.
    /// Returns: an operation for co_await; its value is what recv() returns.
    /// Cancellation: if the operation is destroyed after an item was granted to it, the item goes
    /// to the next waiting receiver. If none waits, the item goes back into the channel. If the
    /// channel is full or closed, the item is destroyed.
    basic_async_op<std::optional<T>, Platform> async_recv() {
        auto& from = source();
        return {typename waits<decltype(from)>::receiving{from},
                detail::recv_payload<T>(detail::channel_access::keep(self()))};
    }

    /// Receives up to `max` items without waiting, and appends them to `out`. Never blocks.
    /// Returns: the number of items.
    /// Throws: std::bad_alloc. Then the appended items stay in `out`, and the others in the
    /// channel.
    std::size_t try_recv_n(std::vector<T>& out, std::size_t max) {
        BIDE_SWITCH_AFTER();
        return detail::recv_more(source(), out, max);
    }

    /// Receives as try_recv_n() does, but waits for the first item.
    /// Blocks: while there is no item.
    /// Returns: the number of items; 0 if the channel is closed and empty, or if `max` is 0.
    /// Throws: std::bad_alloc, before the wait or after the first item was appended to `out`.
    std::size_t recv_n(std::vector<T>& out, std::size_t max) {
        if (max == 0) {
            return 0;
        }
        detail::make_room(out, 1);
        const bool any = recv_to(out, deadline::never()) != wait_status::closed;
        return any ? 1 + try_recv_n(out, max - 1) : 0;
    }

    /// Receives as recv_n() does, for a coroutine.
    /// Throws: std::bad_alloc if `out` cannot grow by one item.
    /// Requires: no other code accesses `out` from this call until the operation is over.
    /// Cancellation: as async_recv(), with one exception: if the channel is full or closed, the
    /// item is not destroyed but stays in `out`.
    basic_async_op<std::size_t, Platform> async_recv_n(std::vector<T>& out, std::size_t max) {
        auto& from = source();
        detail::make_room(out, 1);
        return {typename waits<decltype(from)>::receiving_n{from, out, max},
                detail::recv_n_payload(detail::channel_access::keep(self()))};
    }

    /// Receives until the channel is closed and empty: for (T v : channel). An iterator contains
    /// the item that it received last.
    class iterator;
    /// Receives the first item. Blocks: as recv() does.
    iterator begin() { return iterator(self()); }
    /// Returns the end of the range.
    std::default_sentinel_t end() noexcept { return {}; }

protected:
    receive_operations() = default;                                     ///< For `Self`.
    receive_operations(const receive_operations&) = default;            ///< For `Self`.
    receive_operations& operator=(const receive_operations&) = default; ///< For `Self`.
    ~receive_operations() = default;                                    ///< For `Self`.

private:
    template <class Source>
    using waits = detail::item_wait<T, Platform, std::remove_reference_t<Source>>;

    Self& self() noexcept { return static_cast<Self&>(*this); }
    auto& source() noexcept { return detail::channel_access::core(self()); }

    // Inlines the first attempt. Without inlining, the std::optional is returned through memory,
    // and the caller waits for that store.
    template <class Out, class Limit> wait_status recv_to(Out& out, const Limit& limit) {
        BIDE_SWITCH_AFTER();
        const wait_status now = source().recv(detail::into(out));
        return now != wait_status::waiting ? now : wait_to_recv(out, limit);
    }
    template <class Out, class Limit>
    BIDE_NOINLINE wait_status wait_to_recv(Out& out, const Limit& limit) {
        auto& from = source();
        const detail::keep_alive alive = detail::channel_access::keep(self());
        return waits<decltype(from)>::recv(from, out, limit);
    }
    template <class Limit> result<T> recv_by(const Limit& limit) {
        std::optional<T> item;
        return detail::to_received(recv_to(item, limit), item);
    }
};

/// Receives the items of a channel one after the other.
template <class Self, class T, class Platform>
class receive_operations<Self, T, Platform>::iterator {
public:
    /// This is an input iterator over items.
    using iterator_concept = std::input_iterator_tag;
    using value_type = T;                   ///< The type of an item.
    using difference_type = std::ptrdiff_t; ///< Counts items.

    /// Receives the first item.
    explicit iterator(Self& from) : from_(&from), item_(from.recv()) {}

    /// Returns the item, which the caller may move from.
    T&& operator*() const noexcept { return std::move(*item_); }
    /// Receives the next item.
    iterator& operator++() {
        item_.reset();
        if (std::optional<T> next = from_->recv()) {
            item_.emplace(std::move(*next));
        }
        return *this;
    }
    void operator++(int) { ++*this; } ///< \overload
    /// Returns true if the channel is closed and every item was received.
    friend bool operator==(const iterator& i, std::default_sentinel_t) noexcept {
        return !i.item_.has_value();
    }

private:
    Self* from_;
    mutable std::optional<T> item_;
};

/// The operations on the state of a channel. `Self` is the class of a channel or of a handle.
template <class Self> class state_operations {
public:
    /// Closes the channel, for both sides and all handles. Later sends fail, and waiting senders
    /// get their items back. Receivers get the items in the channel, and then learn of the close.
    /// Returns: true if this call closed it; false if it was closed already.
    bool close() noexcept {
        BIDE_SWITCH_AFTER();
        return detail::channel_access::core(self()).close();
    }
    /// Returns true if the channel is closed.
    bool is_closed() const noexcept {
        BIDE_SWITCH_AFTER();
        return detail::channel_access::core(self()).is_closed();
    }

    /// The capacity of an unbounded channel: the largest std::size_t.
    static constexpr std::size_t unbounded = static_cast<std::size_t>(-1);
    /// Returns the capacity.
    std::size_t capacity() const noexcept {
        return detail::channel_access::core(self()).capacity();
    }
    /// Returns how many items were in the channel at one instant; never more than capacity().
    std::size_t size() const noexcept {
        BIDE_SWITCH_AFTER();
        return detail::channel_access::core(self()).size();
    }
    /// Returns true if no item was in the channel at one instant.
    bool empty() const noexcept { return size() == 0; }
    /// Returns true if, at one instant of the call, there was no room for an item. With a capacity
    /// of 0, always returns true. An unbounded or a sliding channel always returns false.
    bool is_full() const noexcept {
        BIDE_SWITCH_AFTER();
        return detail::channel_access::core(self()).is_full();
    }

protected:
    state_operations() = default;                                   ///< For `Self`.
    state_operations(const state_operations&) = default;            ///< For `Self`.
    state_operations& operator=(const state_operations&) = default; ///< For `Self`.
    ~state_operations() = default;                                  ///< For `Self`.

private:
    Self& self() noexcept { return static_cast<Self&>(*this); }
    const Self& self() const noexcept { return static_cast<const Self&>(*this); }
};

/// The common base of all kinds of channels. `Self` is the class of the channel. `Core` is the
/// class of its items and waiters.
template <class Self, class T, class Platform, class Core>
class channel_operations : public send_operations<Self, T, Platform>,
                           public receive_operations<Self, T, Platform>,
                           public state_operations<Self> {
public:
    channel_operations& operator=(channel_operations&&) = delete;

protected:
    /// Constructs an empty channel, whose Core is made from `args`.
    template <class... Args>
    explicit channel_operations(std::in_place_t, Args&&... args)
        : core_(std::forward<Args>(args)...) {}
    /// Destroys the items in the channel.
    /// Requires: there are no waiters; terminates otherwise.
    ~channel_operations() = default;

    Core core_; ///< The items and the waiters.

private:
    friend detail::channel_access;
    Core& core() noexcept { return core_; }
    const Core& core() const noexcept { return core_; }
};

namespace detail {

// A channel without its public operations: a ring, and the two queues of its waiters.
//
// Items go through the ring without any lock. A sender that finds the ring full enters the senders'
// queue. A receiver that finds the ring empty enters the receivers' queue. One lock guards both
// queues. Two flags in the word of the lock say which queues have waiters. The positions are the
// head and the tail of the ring. An operation that has moved a position reads the flags. If the
// other side has waiters, the operation settles: under the lock, it moves items from the ring to
// waiting receivers, and from waiting senders into the ring, until neither is possible. So a wait
// either ends with its item moved, or has no effect. No waiter is woken only to look again, and no
// other thread can take a waiter's item. A time-out or a stop ends a wait under the lock.
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
// If the flag was raised first, the sender sees the flag and settles after its item is published.
// This holds for each of many senders, independently of the other senders. The receivers' flag is
// raised before a receiver finds the ring empty, and stays raised until no receiver waits. So each
// sender that moves the tail in that time settles, one at a time under the lock. The last of these
// senders to publish finds all their items published. It would not be enough if each sender only
// woke one receiver. Suppose that the first of two senders publishes last. The receiver that the
// second sender wakes finds the first slot unpublished and sleeps again. The first sender then
// wakes one receiver, and the second item stays in the ring.
//
// A slot that is claimed and not published is neither full nor empty. A thread that finds such a
// slot (attempt::busy) does not wait in a queue, but soon tries again without the lock. The
// operation of a coroutine does the same and does not suspend. The reason is that the claimer
// publishes within a few instructions.
//
// Last access. The flags are read between the claim and the publication of a slot. If the other
// side's flag is down, the publication is the operation's last access to the channel. If that flag
// is raised, the operation publishes under the lock, and the release of the lock is its last
// access. So a receiver that has its item may destroy the channel: no sender of a received item
// accesses the channel after the destructor has acquired the lock.
//
// Closing sets a bit in the tail. If a send moved the tail before that, its item is received or
// stays in the channel. A receiver is told "closed" if the ring is empty and the bit is set.
//
// Items that do not go through the ring. A sender that finds the receivers' flag raised acquires
// the lock before it claims a slot. If the ring is empty, the sender gives its item to the first
// waiting receiver. It moves no position, so it does not settle. If the ring is not empty, the
// sender puts its item into the ring, behind the older items. (Receivers may wait although the ring
// is not empty, if the first slot is claimed and not published yet.) A receiver never takes an item
// directly from a waiting sender, because the items in the ring are older.
//
// A waiter that enters its queue does not settle either. It has read the positions after it raised
// its flag. If a thread moves a position later, that thread reads the flag and settles.
//
// With a capacity of 0, the ring is always full and always empty. So all items go directly from
// senders to receivers, and each waiter that enters its queue settles. To settle then means to
// match waiting senders with waiting receivers.
template <class T, class Platform, class Stamp> class basic_channel_core {
    static_assert(is_element<T>);

public:
    static constexpr const char* waited_for = "channel";

    // The node of a wait carries the T to send, or the destination of the item to receive.
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

    // Moves `value` in and returns granted. If that is impossible, leaves `value` unchanged and
    // returns waiting (full) or closed.
    wait_status send(T& value) noexcept {
        std::size_t sent = 0;
        auto make = [&value]() noexcept -> T& { return value; };
        return !any(side::receiving) && transfer<side::sending>(make, one(), sent) == attempt::done
                   ? wait_status::granted
                   : send_again(value);
    }

    // If there is an item, calls put(T&), which moves it out, and returns granted. If there is
    // none, returns waiting (empty) or closed.
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

    // If the send or receive of `w` can end now, completes `w` and returns its status. If not,
    // queues `w` and returns waiting.
    wait_status enqueue(node& w, side which) noexcept {
        while (!lock_to_wait(which)) {
            if (const auto what = attempt_for(w, which)) {
                return *what;
            }
            // Spins with loads only, so that the cache lines stay shared.
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

    // Cancels the wait of `w`. If another thread has ended the wait before, returns false. If `w`
    // is not queued yet, also returns false, and a later enqueue() completes `w` with `why`.
    bool cancel(node& w, side which, wait_status why) noexcept {
        lock::acquire(word_);
        const bool ended = queue_of(which).withdraw(w, why);
        unlock();
        return ended;
    }

    // Passes on the item of a receiver that was destroyed. The item goes to the next waiting
    // receiver. If none waits, it goes behind all items. If the channel is full or closed, returns
    // false and leaves the item unchanged.
    bool pass_on(T& item) noexcept {
        // Waiting receivers come first. A receiver may wait although the ring is full, if the items
        // in the ring are not published yet.
        auto give = [&item](node& receiver) noexcept { detail::deliver(item, receiver); };
        return meet(side::receiving, give) || send(item) == wait_status::granted;
    }

    // Makes later sends fail. Returns true if this call closed the channel. Closes and settles in
    // one critical section, because a waiter that learns of the close may destroy the channel.
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

    // With a small capacity, a thread waits often and for a short time. So the thread spins.
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

    // The waits that were ended under the lock. Their waiters are woken after the lock is released.
    // Exception: `self` is the node of the enqueue() that is running. Its status is stored in
    // `self_status`.
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

    // Makes one attempt to move up to `most` items into or out of the ring. For each item, calls
    // move() without the lock. For a sender, move() makes an item; for a receiver, move(T&) takes
    // an item. If Count is not `one`, sets `moved` to the number of items.
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

    // Repeats an attempt until the ring is not busy. `last` is the outcome of the previous attempt.
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

    // Attempts to move the item of `w` into or out of the ring. Returns nothing if `w` has to wait.
    std::optional<wait_status> attempt_for(node& w, side which) noexcept {
        if (!w.claim()) {
            return wait_status::waiting; // its select has chosen another case: not queued
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
    // [brief_lock.release]: before a thread lowers the flag, it moves the items of the waiters into
    // or out of the ring, under the lock. A caller that finds the flag lowered sees these moves.
    // pass_on() needs that, because it finds no waiter and then uses the ring.
    bool any(side which) const noexcept {
        return (word_.load(std::memory_order_seq_cst) & flag_of(which)) != 0;
    }

    // If the other side has a waiter, moves an item directly to or from that waiter by move(node&),
    // and returns true. If `behind_ring` is true and the ring is not empty, returns false, because
    // the items in the ring go first.
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
    // the ring then has room or an item for that waiter, releases the lock and returns false; the
    // caller must try the ring again.
    bool lock_to_wait(side which) noexcept {
        // Order: seq_cst [ring.position]; raises the flag before the caller reads the positions.
        lock::acquire_with(word_, flag_of(which));
        // If other waiters are queued, the flag was already raised when the ring had nothing for
        // them. So the ring is not checked again.
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
    // Moves an item between the ring and the first waiter `w`. Returns false if `w` has to wait.
    bool serve(node& w, side which, outcomes& out) noexcept {
        if (!w.claim()) { // its select has chosen another case
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
    // select that has chosen another case, takes that waiter out of its queue instead. Returns true
    // if the sender is still in its queue.
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
    // The flags and the lock. Every operation reads this word. Without waiters, it does not change.
    alignas(cache_line_pair) typename lock::atomic word_{0};
    wait_queue senders_;   // under the lock
    wait_queue receivers_; // under the lock
};

} // namespace detail

/// A bounded first-in-first-out channel for threads and coroutines. The channel never contains more
/// than `capacity` items. With a capacity of 0, a send lasts until a receiver takes the item. The
/// waiters of one side are served in the order in which they came. If a send or a receive can
/// complete immediately, it does so, even if other callers of its side wait.
///
/// \code
/// bide::channel<int> numbers(64); // contains at most 64 items
/// std::jthread producer([&] {
///     for (int i = 1; i <= 1000; ++i)
///         if (!numbers.send(i)) return; // blocks while the channel is full; fails if it is closed
///     numbers.close();
/// });
/// int sum = 0;
/// for (int n : numbers) sum += n; // until the channel is closed and empty; or: numbers.recv()
/// \endcode
///
/// With a time-out: `numbers.try_recv_for(50ms)`. In a coroutine: `co_await numbers.async_recv()`,
/// and with a time-out `co_await numbers.async_recv().with_timeout(50ms)`.
///
/// If a send succeeded, its item is received or stays in the channel, also after close(). If the
/// item was granted to a coroutine that is destroyed before it resumes, the next waiting receiver
/// gets the item. If no receiver waits, the item goes back into the channel, behind all items in
/// it. If the channel is full or closed, the item is destroyed. core/async_op.hpp says when a
/// coroutine may be destroyed.
///
/// T is moved into the channel, inside it, and out of it. Another thread than the sender or the
/// receiver of an item may move it. The move constructor of T and the destructor of a moved-from T
/// must not use the channel; the destructor of an item may. No default constructor, copy or
/// assignment of T is used. If the move constructor of T is explicit, call send(T(...)).
///
/// An over-aligned T is aligned inside the channel. But g++ and clang allocate the frame of a
/// coroutine with an alignment of only `__STDCPP_DEFAULT_NEW_ALIGNMENT__`. If a coroutine waits for a
/// T with a greater alignment, give the promise type of the coroutine an operator new that aligns,
/// or send a std::unique_ptr<T>. bide::task has no such operator.
///
/// Destroys: a receiver that has an item, or has learned that the channel is closed, may destroy
/// the channel. The send or close() need not have returned. A sender that knows that its item was
/// received may destroy the channel, even if that receive has not returned. Both are forbidden if
/// the other side does one of the following: it sends or receives several items in one call; it has
/// several cases of this channel in one select; a time-out or a stop ends its wait at that moment;
/// it is a coroutine that is destroyed before it resumes.
template <class T, class Platform, class Stamp>
class basic_channel : public channel_operations<basic_channel<T, Platform, Stamp>, T, Platform,
                                                detail::basic_channel_core<T, Platform, Stamp>> {
    using base = typename basic_channel::channel_operations;

public:
    /// Constructs an empty channel, and allocates all its memory.
    /// Throws: std::length_error if no memory can hold `capacity` items, std::bad_alloc.
    explicit basic_channel(std::size_t capacity) : basic_channel(capacity, nullptr) {}

    /// Constructs an empty channel with a name for reports (core/deadlock_check.hpp). The name is
    /// copied if BIDE_DEADLOCK_CHECK is defined, and ignored otherwise.
    basic_channel(std::size_t capacity, [[maybe_unused]] const char* its_name)
        : base(std::in_place, capacity) {
        BIDE_CHECKED(detail::note_made<Platform>(this, "channel", its_name);)
    }

#if defined(BIDE_DEADLOCK_CHECK)
    ~basic_channel() { detail::note_gone<Platform>(this); }
#endif
};

}} // namespace bide::BIDE_ABI

#endif
