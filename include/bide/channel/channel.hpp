// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_CHANNEL_HPP
#define BIDE_CHANNEL_CHANNEL_HPP

/// \file
/// A bounded queue that can be closed. Many threads and coroutines send to it and receive from it.
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
/// In a coroutine: `co_await numbers.async_send(i)` and `co_await numbers.async_recv()`, with a
/// header of `task`, or core/async_op.hpp.
///
/// Items go through a lock-free ring. If the ring is full, a sender waits in a queue. If the ring
/// is empty, a receiver waits in another queue. The thread that makes room, or adds an item, also
/// moves the item of the waiter. channel/ring.hpp has the ring. channel/detail/channel_core.hpp has
/// the protocol between the ring and the queues, and its proof.

#include <bide/channel/detail/channel_core.hpp>

#include <iterator>
#include <optional>
#include <span>
#include <vector>

namespace bide { inline namespace BIDE_ABI {

/// The operations that send, for a channel or a sending handle. `Self` is the class of that object.
template <class Self, class T, class Platform> class send_operations {
    using sent = result<void, send_error<T>>;
    static constexpr bool is_copyable = std::is_copy_constructible_v<T>;

public:
    /// Appends an item to the channel; a priority_channel orders its items. Each form of send
    /// returns an item that it did not send in the error. If a form of send throws, the caller's
    /// item is unchanged.
    /// Blocks: while the channel is full.
    /// Returns: errc::closed, with the item, if the channel is closed.
    /// Memory order: what happens before the call happens before the return of the recv() that
    /// takes the item.
    sent send(T&& value) { return send_by(value, deadline::never()); }
    /// Sends a copy of `value`. Otherwise the same as the function above.
    sent send(const T& value)
        requires is_copyable
    {
        return send(T(value));
    }

    /// Sends as send() does, unless a stop is requested first.
    /// Returns: as send(), or errc::stopped.
    sent send(typename Platform::stop_token token, T&& value) { return send_by(value, token); }
    /// Sends a copy of `value`. Otherwise the same as the function above.
    sent send(typename Platform::stop_token token, const T& value)
        requires is_copyable
    {
        return send(std::move(token), T(value));
    }

    /// Sends as send() does if there is room. Never blocks, except while another thread is between
    /// two steps of its own receive.
    /// Returns: as send(), or errc::full.
    sent try_send(T&& value) noexcept(!allocates<Self>) {
        return detail::to_result(source().send(value), value);
    }
    /// Sends a copy of `value`. Otherwise the same as the function above.
    sent try_send(const T& value) noexcept(!allocates<Self> &&
                                           std::is_nothrow_copy_constructible_v<T>)
        requires is_copyable
    {
        return try_send(T(value));
    }

    /// Sends as send() does, but waits at most `rest`.
    /// Returns: as send(), or errc::timeout.
    template <class R, class P>
    sent try_send_for(T&& value, const std::chrono::duration<R, P>& rest) {
        return send_by(value, deadline::after(rest));
    }
    /// Sends a copy of `value`. Otherwise the same as the function above.
    template <class R, class P>
        requires is_copyable
    sent try_send_for(const T& value, const std::chrono::duration<R, P>& rest) {
        return try_send_for(T(value), rest);
    }
    /// Sends as send() does, but waits until a point in time.
    /// Returns: as send(), or errc::timeout.
    template <class C, class D>
    sent try_send_until(T&& value, const std::chrono::time_point<C, D>& when) {
        return send_by(value, deadline::at(when));
    }
    /// Sends a copy of `value`. Otherwise the same as the function above.
    template <class C, class D>
        requires is_copyable
    sent try_send_until(const T& value, const std::chrono::time_point<C, D>& when) {
        return try_send_until(T(value), when);
    }

    /// Sends as send() does, for a coroutine.
    /// GCC before 13 destroys an aggregate twice that is written inside the co_await expression.
    /// With that GCC, async_send({...}) does not compile. async_send(item{...}) compiles and is
    /// wrong: use async_emplace(), or give the item a name first.
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

    /// The compiler chooses this overload only for an argument in braces, and then reports an
    /// error. (The overload above cannot deduce U from braces. For every other argument it is the
    /// better match, because it is not const.)
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

    /// Sends as async_send() does, but `value` belongs to the caller until it is sent.
    /// Requires: `value` and the channel stay in place until the operation is over.
    basic_async_op<result<void>, Platform> async_send_from(T& value) noexcept {
        auto& to = source();
        return {typename waits<decltype(to)>::sending_from{to, value}};
    }

    /// Sends items from the front of `items` as long as there is room. Never blocks.
    /// Returns: the number of items that were moved into the channel. The other items are
    /// unchanged.
    std::size_t try_send_n(std::span<T> items) noexcept {
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

/// The operations that receive, for a channel or a receiving handle. `Self` is the class of that
/// object.
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
    /// between two steps of its own send.
    /// Returns: the item; errc::empty; errc::closed if no more items will come.
    result<T> try_recv() noexcept {
        std::optional<T> item;
        return detail::to_received(source().recv(detail::into(item)), item);
    }

    /// Receives as recv() does, but waits at most `rest`.
    /// Returns: the item, errc::timeout or errc::closed.
    template <class R, class P> result<T> try_recv_for(const std::chrono::duration<R, P>& rest) {
        return recv_by(deadline::after(rest));
    }
    /// Receives as recv() does, but waits at most until a point in time.
    template <class C, class D>
    result<T> try_recv_until(const std::chrono::time_point<C, D>& when) {
        return recv_by(deadline::at(when));
    }

    /// Receives as recv() does, for a coroutine.
    /// Returns: an operation for co_await; its value is what recv() returns.
    /// Cancellation: if the operation is destroyed after an item was granted to it, the item goes
    /// to the next waiting receiver, or else back into the channel. If the channel is full or
    /// closed, the item is destroyed.
    basic_async_op<std::optional<T>, Platform> async_recv() {
        auto& from = source();
        return {typename waits<decltype(from)>::receiving{from},
                detail::recv_payload<T>(detail::channel_access::keep(self()))};
    }

    /// Receives up to `max` items without waiting, and appends them to `out`. Never blocks.
    /// Returns: the number of items.
    /// Throws: std::bad_alloc; the items already appended stay in `out`, and the others in the
    /// channel.
    std::size_t try_recv_n(std::vector<T>& out, std::size_t max) {
        return detail::recv_more(source(), out, max);
    }

    /// Receives as try_recv_n() does, but waits for the first item.
    /// Blocks: while there is no item.
    /// Returns: the number of items; 0 if the channel is closed and empty, or if `max` is 0.
    /// Throws: std::bad_alloc, either before the wait, or after the first item was appended to
    /// `out`.
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
    /// Cancellation: as async_recv(), but if the channel is full or closed, the item stays in
    /// `out`.
    basic_async_op<std::size_t, Platform> async_recv_n(std::vector<T>& out, std::size_t max) {
        auto& from = source();
        detail::make_room(out, 1);
        return {typename waits<decltype(from)>::receiving_n{from, out, max},
                detail::recv_n_payload(detail::channel_access::keep(self()))};
    }

    /// Receives until the channel is closed and empty: for (T v : channel). An iterator has
    /// received the item that it refers to.
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

    // The first attempt is inlined. A call that is not inlined would return the std::optional
    // through memory, and the caller would wait for that store.
    template <class Out, class Limit> wait_status recv_to(Out& out, const Limit& limit) {
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

/// The operations on the state of a channel, for a channel or a handle. `Self` is the class of that
/// object.
template <class Self> class state_operations {
public:
    /// Closes the channel, for both sides and all handles. Later sends fail, and waiting senders
    /// get their items back. Receivers receive the items in the channel, and then learn that it is
    /// closed.
    /// Returns: true if this call closed it; false if it was closed already.
    bool close() noexcept { return detail::channel_access::core(self()).close(); }
    /// Returns true if the channel is closed.
    bool is_closed() const noexcept { return detail::channel_access::core(self()).is_closed(); }

    /// The capacity of an unbounded channel: the largest std::size_t.
    static constexpr std::size_t unbounded = static_cast<std::size_t>(-1);
    /// Returns the capacity.
    std::size_t capacity() const noexcept {
        return detail::channel_access::core(self()).capacity();
    }
    /// Returns how many items were in the channel at one instant; never more than capacity().
    std::size_t size() const noexcept { return detail::channel_access::core(self()).size(); }
    /// Returns true if no item was in the channel at one instant.
    bool empty() const noexcept { return size() == 0; }
    /// Returns true if, at one instant of the call, a send would have waited or failed. With a
    /// capacity of 0, always returns true. An unbounded or a sliding channel always returns false.
    bool is_full() const noexcept { return detail::channel_access::core(self()).is_full(); }

protected:
    state_operations() = default;                                   ///< For `Self`.
    state_operations(const state_operations&) = default;            ///< For `Self`.
    state_operations& operator=(const state_operations&) = default; ///< For `Self`.
    ~state_operations() = default;                                  ///< For `Self`.

private:
    Self& self() noexcept { return static_cast<Self&>(*this); }
    const Self& self() const noexcept { return static_cast<const Self&>(*this); }
};

/// The common base of all kinds of channels. `Self` is the class of the channel, and `Core` is its
/// protocol.
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

/// A bounded first-in-first-out channel for threads and coroutines. The channel never contains more
/// than `capacity` items. With a capacity of 0, a send lasts until a receiver takes the item. The
/// waiters of one side are served in the order in which they came. If a send or a receive can
/// complete immediately, it does so, even if other callers of its side wait.
///
/// If a send succeeded, its item is received or stays in the channel, also after close(). If the
/// item was granted to a coroutine that is destroyed before it resumes, the next waiting receiver
/// gets the item. If no receiver waits, the item goes back into the channel, behind all items in
/// it. If that is impossible, because the channel is full or closed, the item is destroyed.
/// core/async_op.hpp says when a coroutine may be destroyed.
///
/// T is moved into the channel, inside it, and out of it, also by other threads than those that
/// send or receive it. The move constructor of T and the destructor of a moved-from T must not use
/// the channel; the destructor of an item may. No default constructor, copy or assignment of T is
/// used. If the move constructor of T is explicit, send a temporary: send(T(...)).
///
/// An over-aligned T is aligned inside the channel. But g++ and clang allocate the frame of a
/// coroutine with an alignment of only __STDCPP_DEFAULT_NEW_ALIGNMENT__. If a coroutine waits for a
/// T that needs more, give its promise type an operator new that aligns, or send a
/// std::unique_ptr<T>. bide::task has no such operator.
///
/// Destroys: a receiver that has an item, or has learned that the channel is closed, may destroy
/// the channel, even if the send or close() has not returned. A sender that knows that its item was
/// received may destroy the channel, even if that receive has not returned. Both are forbidden if
/// the other side does one of the following: it sends or receives several items in one call; it has
/// several cases of this channel in one select; a time-out or a stop ends its wait at that moment;
/// it is a coroutine that is destroyed before it resumes.
template <class T, class Platform, class Stamp>
class basic_channel : public channel_operations<basic_channel<T, Platform, Stamp>, T, Platform,
                                                detail::basic_channel_core<T, Platform, Stamp>> {
    using base = typename basic_channel::channel_operations;

public:
    /// Constructs an empty channel. Allocates here and nowhere else.
    /// Throws: std::length_error if no memory can hold `capacity` items, std::bad_alloc.
    explicit basic_channel(std::size_t capacity) : basic_channel(capacity, nullptr) {}

    /// Constructs an empty channel, as above, with a name for reports (core/deadlock_check.hpp). If
    /// BIDE_DEADLOCK_CHECK is defined, the name is copied; otherwise it is ignored.
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
