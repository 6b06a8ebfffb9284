// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CHANNEL_UNBOUNDED_CHANNEL_HPP
#define BIDE_CHANNEL_UNBOUNDED_CHANNEL_HPP

/// \file
/// A channel that can contain any number of items.
//
// The items are in two queues. A send appends its item to the senders' queue. A receive takes the
// first item of the receivers' queue. If the receivers' queue is empty, the receive first moves all
// items there from the senders' queue. Each queue has its own lock and its own cache lines, so a
// sender and a receiver seldom access the same line. A thread that needs both locks acquires the
// receivers' lock first.
//
// The senders count the items that they append, and the receivers count the items that they take.
// An item that a send gives to a waiting receiver is in neither count. If the counts are equal,
// there is no item. So a try_recv() on an empty channel reads the senders' count and does not
// acquire the senders' lock.
//
// The counts [unbounded.counts]. An item is counted as sent before it is counted as received. So if
// a thread reads the count of receives and then the count of sends, the count of sends is not
// lower. size() reads the count of sends, the count of receives, and the count of sends again. If
// the count of sends is the same both times, the size at one instant was the difference of the two
// counts.
//
// A send acquires the senders' lock. If a receiver waits, the send gives its item to the first
// waiting receiver. If none waits, the send appends the item. A receive acquires the receivers'
// lock and takes the first item. If there is no item, a receiver that may wait acquires both locks,
// checks both queues again, and enters the queue of waiters before it releases the locks. So,
// whenever the senders' lock is free, a receiver waits only if neither queue has an item. (The node
// of a select that has chosen another case may still be queued; it does not count as a waiter.)
//
// A thread ends a wait under a lock, and wakes the waiter after it has released the lock. Memory is
// allocated before a lock is acquired and freed after it is released. The release of a lock is the
// last access of each operation to the channel, and the destructor acquires both locks first. So a
// caller that got the item, or saw the channel closed, may destroy the channel at once.

#include <bide/channel/handles.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// A queue of any number of items. A lock of the channel guards it. The items are in segments
// (blocks of places), which are linked from the oldest to the youngest.
//
// No operation of the queue allocates or frees. The caller has `loose` segments, which it allocates
// before it acquires the lock. The queue takes segments from `loose`, and puts segments that it no
// longer needs into `loose`. The caller frees them after it has released the lock. The queue keeps
// one empty segment as a spare. So if pushes and pops are equally fast, nothing is allocated.
//
//   each segment     [0, begin) were popped, [begin, end) are items, [end, size) are free
//   many segments    all but the last have end == size; those in the middle have begin == 0
//   an empty queue   has no segment, or one with begin == end == 0
template <class T, class Platform> class basic_segment_queue {
    static_assert(is_element<T>);

    template <class U> using var = typename Platform::template var<U>;
    using index = std::uint32_t;
    struct segment;

public:
    // The number of items in a segment: one if they are large.
    static constexpr std::size_t segment_size = Platform::model     ? 2
                                                : sizeof(T) <= 64   ? 64
                                                : sizeof(T) <= 4096 ? 4096 / sizeof(T)
                                                                    : 1;

    // Segments that belong to the caller, and to no queue.
    class segments {
    public:
        segments() noexcept = default;
        segments& operator=(segments&&) = delete;
        ~segments() {
            while (first_ != nullptr) {
                delete pop();
            }
        }

        std::size_t size() const noexcept { return size_; }

        // Adds a segment. Returns false if there is no memory.
        bool allocate() noexcept {
            segment* const more = new (std::nothrow) segment;
            if (more != nullptr) {
                push(*more);
            }
            return more != nullptr;
        }

    private:
        friend class basic_segment_queue;

        void push(segment& s) noexcept {
            s.next = first_;
            first_ = &s;
            ++size_;
        }
        // Returns nullptr if there is no segment.
        segment* pop() noexcept {
            segment* const s = first_;
            if (s != nullptr) {
                first_ = s->next;
                --size_;
            }
            return s;
        }

        segment* first_ = nullptr;
        std::size_t size_ = 0;
    };

    basic_segment_queue() noexcept = default;
    basic_segment_queue& operator=(basic_segment_queue&&) = delete;

    // Destroys the items.
    ~basic_segment_queue() {
        segments emptied;
        while (!empty()) {
            segment* const first = first_;
            const index at = first->begin;
            first->item(at).~T();
            first->begin = at + 1;
            if (first->begin == first->end && first != last_) {
                first_ = first->next;
                emptied.push(*first);
            }
        }
        for (segment* const left : {static_cast<segment*>(first_), static_cast<segment*>(spare_)}) {
            if (left != nullptr) {
                emptied.push(*left);
            }
        }
    }

    void swap(basic_segment_queue& other) noexcept {
        std::swap(first_, other.first_);
        std::swap(last_, other.last_);
        std::swap(spare_, other.spare_);
    }

    // Takes all items of `from`, and gives the empty segments of this queue to `from`.
    // Requires: this queue is empty.
    void take_all(basic_segment_queue& from) noexcept {
        std::swap(first_, from.first_);
        std::swap(last_, from.last_);
        if (from.spare_ == nullptr) {
            std::swap(spare_, from.spare_);
        }
    }

    bool empty() const noexcept {
        segment* const first = first_;
        return first == nullptr || first->begin == first->end;
    }

    // Returns true if push_back() needs no loose segment.
    bool has_room() const noexcept {
        segment* const last = last_;
        return (last != nullptr && last->end != segment_size) || spare_ != nullptr;
    }

    // Returns how many loose segments a push of n items needs.
    std::size_t lacking(std::size_t n) const noexcept {
        segment* const last = last_;
        const std::size_t room = (last == nullptr ? 0 : segment_size - last->end) +
                                 (spare_ == nullptr ? 0 : segment_size);
        return n <= room ? 0 : (n - room - 1) / segment_size + 1;
    }

    // push_back() moves `item` in as the last one, push_front() as the first one. If the item needs
    // another segment and no unused one is left, they return false.
    bool push_back(T& item, segments& loose) noexcept {
        segment* last = last_;
        if (last == nullptr || last->end == segment_size) {
            segment* const more = take(loose);
            if (more == nullptr) {
                return false;
            }
            (last == nullptr ? first_ : last->next) = more;
            last_ = last = more;
        }
        const index at = last->end;
        ::new (last->place(at)) T(std::move(item));
        last->end = at + 1;
        return true;
    }
    bool push_front(T& item, segments& loose) noexcept {
        if (empty()) {
            return push_back(item, loose);
        }
        segment* first = first_;
        if (first->begin == 0) {
            segment* const more = take(loose);
            if (more == nullptr) {
                return false;
            }
            more->begin = more->end = static_cast<index>(segment_size);
            more->next = first;
            first_ = first = more;
        }
        const index at = first->begin - 1;
        ::new (first->place(at)) T(std::move(item));
        first->begin = at;
        return true;
    }

    // Calls put(T&), which moves the first item out.
    // Requires: not empty.
    template <class Put> void pop_front(Put& put, segments& loose) noexcept {
        segment* const first = first_;
        const index at = first->begin;
        T& item = first->item(at);
        put(item);
        item.~T();
        if (at + 1 != first->end) {
            first->begin = at + 1;
            return;
        }
        first->begin = first->end = 0;
        if (first == last_) {
            return;
        }
        first_ = first->next;
        if (spare_ == nullptr) {
            spare_ = first;
        } else {
            loose.push(*first);
        }
    }

private:
    struct segment {
        var<segment*> next{nullptr};
        var<index> begin{0};
        var<index> end{0};
        alignas(T) std::byte places[segment_size * sizeof(T)];

        void* place(index i) noexcept { return places + i * sizeof(T); }
        T& item(index i) noexcept { return *std::launder(static_cast<T*>(place(i))); }
    };

    // Returns an unused segment, or nullptr.
    segment* take(segments& loose) noexcept {
        segment* more = spare_;
        if (more != nullptr) {
            spare_ = nullptr;
        } else {
            more = loose.pop();
        }
        if (more != nullptr) {
            more->next = nullptr;
        }
        return more;
    }

    var<segment*> first_{nullptr};
    var<segment*> last_{nullptr};
    var<segment*> spare_{nullptr};
};

// The channel without its public operations. It is a Source (item_wait.hpp).
template <class T, class Platform> class basic_unbounded_core : public yielding_source<Platform> {
public:
    static constexpr const char* waited_for = "unbounded_channel";

    // The node of a wait carries the T to send, or the destination of the item to receive.
    using node = basic_waiter<Platform>;

    basic_unbounded_core() noexcept = default;
    ~basic_unbounded_core() {
        lock::acquire(receiving_.word); // every operation has released it
        lock::acquire(sending_.word);
        if (!sending_.receivers.empty()) {
            sending_.receivers.fatal_destroyed("unbounded_channel", this);
        }
        // The destructor of an item may use the channel. So the queues are emptied before the items
        // are destroyed. `older` is declared last, so its items are destroyed first.
        queue younger;
        queue older;
        younger.swap(sending_.items);
        older.swap(receiving_.items);
        // Order: relaxed; no other thread uses the channel.
        receiving_.count.store(sending_.count.load(std::memory_order_relaxed),
                               std::memory_order_relaxed);
        lock::release(sending_.word, closed);
        lock::release(receiving_.word, 0);
    }

    basic_unbounded_core& operator=(basic_unbounded_core&&) = delete;

    // A send may fail because there is no memory.
    static constexpr bool send_allocates = true;

    // Moves `value` in and returns granted. If the channel is closed or there is no memory, leaves
    // `value` unchanged and returns closed or no_memory.
    wait_status send(T& value) noexcept {
        const lock_word seen = lock::acquire(sending_.word);
        if (seen != closed && sending_.receivers.empty() && sending_.items.has_room()) {
            segments none;
            sending_.items.push_back(value, none);
            count(sending_.count, 1);
            lock::release(sending_.word, seen);
            return wait_status::granted;
        }
        lock::release(sending_.word, seen);
        return send_one(value, nullptr);
    }

    // If there is an item, calls put(T&), which moves it out, and returns granted. If there is
    // none, returns waiting (empty) or closed.
    template <class Put> wait_status recv(Put&& put) noexcept {
        segments emptied;
        lock::acquire(receiving_.word);
        const wait_status what = look();
        if (what == wait_status::granted) {
            take(put, emptied);
        }
        lock::release(receiving_.word, 0);
        return what;
    }

    // send_n() and recv_n() transfer up to `most` items at once, and return the number of items.
    // make(i) makes item i. send_n() stops early if the channel is closed or memory has run out.
    template <class Make> std::size_t send_n(Make&& make, std::size_t most) noexcept {
        std::size_t sent = 0;
        if (most != 0) {
            insert(make, most, sent, nullptr);
        }
        return sent;
    }
    template <class Put> std::size_t recv_n(Put&& put, std::size_t most) noexcept {
        segments emptied;
        std::size_t received = 0;
        lock::acquire(receiving_.word);
        for (; received < most && look() == wait_status::granted; ++received) {
            take(put, emptied);
        }
        lock::release(receiving_.word, 0);
        return received;
    }

    // If the send or receive of `w` can end now, completes `w` and returns its status. If `w` is a
    // receive that must wait, queues `w` and returns waiting.
    wait_status enqueue(node& w, side which) noexcept {
        if (which == side::sending) {
            const wait_status what = send_one(detail::item_of<T>(w), &w);
            if (what != wait_status::waiting) {
                w.settle(what);
            }
            return what;
        }
        segments emptied;
        lock::acquire(receiving_.word);
        const lock_word seen = lock::acquire(sending_.word);
        if (receiving_.items.empty() && !sending_.items.empty()) {
            receiving_.items.take_all(sending_.items);
        }
        const bool any = !receiving_.items.empty();
        const bool decided = any || seen == closed;
        wait_status what = any       ? wait_status::granted
                           : decided ? wait_status::closed
                                     : w.forbidden();
        if (what == wait_status::waiting) {
            sending_.receivers.push(w);
        }
        lock::release(sending_.word, seen);
        if (decided) {
            if (w.claim()) {
                if (any) {
                    auto put = [&w](T& item) noexcept { detail::deliver(item, w); };
                    take(put, emptied);
                }
                w.commit();
            } else {
                what = wait_status::waiting; // its select has chosen another case
            }
        }
        lock::release(receiving_.word, 0);
        if (what != wait_status::waiting) {
            w.settle(what);
        }
        return what;
    }

    // Cancels the wait of `w`. If another thread has ended the wait before, returns false. If `w`
    // is not queued yet, also returns false, and a later enqueue() completes `w` with `why`.
    bool cancel(node& w, side, wait_status why) noexcept {
        const lock_word seen = lock::acquire(sending_.word);
        const bool ended = sending_.receivers.withdraw(w, why);
        lock::release(sending_.word, seen);
        return ended;
    }

    // Passes on the item of a receiver that was destroyed. The item goes to the next waiting
    // receiver. If no receiver waits, the item goes to the front of the receivers' queue. If there
    // is no memory for that, the item goes to the back of the senders' queue, which may have room.
    // If neither has room or the channel is closed, returns false and leaves the item unchanged.
    bool pass_on(T& item) noexcept {
        segments loose;
        wake_list granted;
        for (bool memory = true;; memory = loose.allocate()) {
            lock::acquire(receiving_.word);
            const lock_word seen = lock::acquire(sending_.word);
            const bool open = seen != closed;
            const bool handed = detail::hand_over(item, sending_.receivers, granted);
            bool put_back = !handed && open && receiving_.items.push_front(item, loose);
            if (put_back) {
                count(receiving_.count, static_cast<std::size_t>(-1));
            } else if (!handed && open && !memory && sending_.items.push_back(item, loose)) {
                count(sending_.count, 1);
                put_back = true;
            }
            lock::release(sending_.word, seen);
            lock::release(receiving_.word, 0);
            if (handed || put_back || !open || !memory) {
                granted.publish(wait_status::granted);
                return handed || put_back;
            }
        }
    }

    // Makes later sends fail, and ends all waits. Returns true if this call closed the channel.
    bool close() noexcept {
        wake_list failed;
        const bool first = lock::acquire(sending_.word) != closed;
        sending_.receivers.pop_all(failed);
        lock::release(sending_.word, closed);
        failed.publish(wait_status::closed);
        return first;
    }
    // Order: relaxed; a snapshot.
    bool is_closed() const noexcept {
        return (sending_.word.load(std::memory_order_relaxed) & closed) != 0;
    }

    static constexpr std::size_t capacity() noexcept { return static_cast<std::size_t>(-1); }

    std::size_t size() const noexcept {
        // Order: acquire [unbounded.counts]; sees each receive that the last sender saw.
        std::size_t sent = sending_.count.load(std::memory_order_acquire);
        for (;;) {
            // Order: acquire [unbounded.counts]; sees each send that the last receiver saw.
            const std::size_t received = receiving_.count.load(std::memory_order_acquire);
            // Order: acquire [unbounded.counts]; sees each receive that the last sender saw.
            const std::size_t now = sending_.count.load(std::memory_order_acquire);
            if (now == sent) {
                return sent - received;
            }
            sent = now;
        }
    }
    static constexpr bool is_full() noexcept { return false; }

private:
    using lock = brief_lock<Platform>;
    using lock_word = typename lock::word;
    using counter = typename Platform::template atomic<std::size_t>;
    using queue = basic_segment_queue<T, Platform>;
    using segments = typename queue::segments;
    using wake_list = basic_wake_list<Platform>;

    // A bit of sending_.word: the channel is closed. It is set once, under the lock.
    static constexpr lock_word closed = 2;

    // Sends one item. `w` is the node of the send, or nullptr. If `w` belongs to a select that has
    // chosen another case, returns waiting.
    BIDE_NOINLINE wait_status send_one(T& value, const node* w) noexcept {
        std::size_t sent = 0;
        auto make = [&value](std::size_t) noexcept -> T& { return value; };
        const wait_status what = insert(make, 1, sent, w);
        return what == wait_status::granted && sent == 0 ? wait_status::no_memory : what;
    }
    template <class Make>
    wait_status insert(Make& make, std::size_t most, std::size_t& sent, const node* w) noexcept {
        segments loose;
        wake_list granted;
        const lock_word seen = acquire_with(loose, most);
        if (w != nullptr && !w->claim()) {
            lock::release(sending_.word, seen);
            return wait_status::waiting;
        }
        if (w != nullptr) {
            w->commit(); // first, because hand_over() may claim another select
        }
        if (seen == closed) {
            lock::release(sending_.word, seen);
            return wait_status::closed;
        }
        while (sent < most && detail::hand_over(make(sent), sending_.receivers, granted)) {
            ++sent;
        }
        const std::size_t handed = sent;
        while (sent < most && sending_.items.push_back(make(sent), loose)) {
            ++sent;
        }
        count(sending_.count, sent - handed);
        lock::release(sending_.word, seen);
        granted.publish(wait_status::granted);
        return wait_status::granted;
    }

    // Allocates segments until `loose` has enough of them to push `most` items, or until memory has
    // run out. Then acquires the lock of the senders and returns its word.
    auto acquire_with(segments& loose, std::size_t most) noexcept -> lock_word {
        for (bool memory = true;;) {
            const lock_word seen = lock::acquire(sending_.word);
            if (seen == closed || !memory) {
                return seen;
            }
            const std::size_t needed = sending_.items.lacking(most);
            if (needed <= loose.size()) {
                return seen;
            }
            lock::release(sending_.word, seen);
            while (memory && loose.size() < needed) {
                memory = loose.allocate();
            }
        }
    }

    // Requires: the caller holds the lock of the side that `c` belongs to.
    static void count(counter& c, std::size_t more) noexcept {
        // Order: relaxed; the count changes only under the lock of its side. Release
        // [unbounded.counts]; a thread that reads the count sees the counts that the caller saw.
        c.store(c.load(std::memory_order_relaxed) + more, std::memory_order_release);
    }

    // If the receivers' queue is empty, moves all items there from the senders' queue. Returns
    // granted if there is an item, and waiting or closed if there is none.
    // Requires: the lock of the receivers.
    wait_status look() noexcept {
        if (!receiving_.items.empty()) {
            return wait_status::granted;
        }
        // Order: acquire [brief_lock.release]; a thread that sees the channel closed sees what was
        // sent before, and what was done before the close.
        const lock_word seen = sending_.word.load(std::memory_order_acquire);
        // Order: relaxed; if a send happens before this receive, this load sees the count of that
        // send. The count of receives changes only under the lock that the caller holds.
        if (sending_.count.load(std::memory_order_relaxed) ==
            receiving_.count.load(std::memory_order_relaxed)) {
            return (seen & closed) != 0 ? wait_status::closed : wait_status::waiting;
        }
        const lock_word now = lock::acquire(sending_.word);
        receiving_.items.take_all(sending_.items);
        lock::release(sending_.word, now);
        return wait_status::granted;
    }

    // Takes the first item out by put(T&).
    // Requires: the caller holds the lock of the receivers, and look() has returned granted.
    template <class Put> void take(Put& put, segments& emptied) noexcept {
        receiving_.items.pop_front(put, emptied);
        count(receiving_.count, 1);
    }

    struct alignas(cache_line_pair) {
        typename lock::atomic word{0};
        queue items;                            // under the lock
        basic_waiter_queue<Platform> receivers; // under the lock
        counter count{0};                       // of sent items, without those handed over
    } sending_;
    struct alignas(cache_line_pair) {
        typename lock::atomic word{0};
        queue items;      // under the lock
        counter count{0}; // of items that were taken out, less those that were put back
    } receiving_;
};

} // namespace detail

/// A first-in-first-out channel without a capacity, for threads and coroutines. A send never waits,
/// and never returns errc::full, errc::timeout or errc::stopped. If senders are faster than
/// receivers, the channel fills the memory.
///
/// \code
/// bide::unbounded_channel<std::string> log;
/// if (!log.send("started")) return; // never waits; fails if the channel is closed
/// auto line = log.recv();           // in a coroutine: co_await log.async_recv()
/// log.close();
/// \endcode
///
/// Receivers are served in the order in which they came. If a send succeeded, its item is received
/// or stays in the channel, also after close(). If the item was granted to a coroutine that is
/// destroyed before it resumes, the next waiting receiver gets the item. If no receiver waits, the
/// item goes back into the channel, before all items in it. So if several such coroutines are
/// destroyed, the item of the last one comes first. If there is no memory for a place in front,
/// the item takes a free place behind all items. If no place is free, or if the channel is closed,
/// the item is destroyed. core/async_op.hpp says when a coroutine may be destroyed.
///
/// T is moved into the channel and out of it under a lock of the channel. A thread that neither
/// sends nor receives an item may move the item. The move constructor of T and the destructor of a
/// moved-from T must not use the channel; the destructor of an item may.
///
/// Throws: if there is no memory for an item, its send throws std::bad_alloc, and so does a select
/// that chooses the send. Nothing changes then, and the caller keeps the item. But async_send()
/// owns the item, which is destroyed with the operation. try_send_n() does not throw, but sends
/// fewer items.
/// Destroys: a receiver that has an item may destroy the channel before the send returns.
template <class T, class Platform>
class basic_unbounded_channel
    : public channel_operations<basic_unbounded_channel<T, Platform>, T, Platform,
                                detail::basic_unbounded_core<T, Platform>> {
public:
    /// Constructs an empty channel. The first send allocates.
    basic_unbounded_channel() noexcept
        : basic_unbounded_channel::channel_operations(std::in_place) {}
};

/// Makes an unbounded channel.
/// Returns: its first sender and its first receiver.
/// Throws: std::bad_alloc.
template <class T, class Platform = native_platform>
[[nodiscard]] std::pair<basic_unbounded_sender<T, Platform>, basic_unbounded_receiver<T, Platform>>
make_unbounded_channel() {
    return detail::handle_maker<basic_unbounded_sender<T, Platform>,
                                basic_unbounded_receiver<T, Platform>>::make();
}

}} // namespace bide::BIDE_ABI

#endif
