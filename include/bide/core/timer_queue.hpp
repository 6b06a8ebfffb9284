// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_TIMER_QUEUE_HPP
#define BIDE_CORE_TIMER_QUEUE_HPP

/// \file
/// Queues timers until they are due. The queue has no thread of its own: any thread adds, cancels
/// and fires timers, several threads at once.
//
// A sleeper that serves the queue sleeps until next_ns(), and the queue wakes it for an earlier
// timer. Let `t` be the time of the new timer, and `u` the time until which the sleeper is about to
// sleep. The pair [timer_queue.next]:
//
//   add():   next := t (seq_cst)                sleeper:   until := u (seq_cst)
//            `earlier` reads `until`                       read next_ns() (seq_cst)
//            t < until: wake the sleeper                   next < u: do not sleep until u
//
// At least one of the two threads sees the write of the other. If both do, the sleeper stays awake
// and is woken needlessly. next_ns() may be earlier than the earliest timer, but never later by
// more than one tick of the wheel. So next_ns() need not change when the earliest timer is
// cancelled. A timer that is added with a later time than next_ns() needs no wake: the sleeper
// wakes at next_ns() and reads it again.
//
// The timers are in a wheel. A lock of two bits (core/lock_bits.hpp) guards the wheel. A timer
// fires outside the lock and is listed in `calls_` meanwhile. If a timer is firing, cancel() waits
// until the firing ends. Exception: on the thread that fires the timer, cancel() does not wait.
// After cancel() has returned, no thread accesses the timer.

#include <bide/core/futex.hpp>
#include <bide/core/lock_bits.hpp>

#include <bit>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// A hierarchical timing wheel (Varghese, Lauck, SOSP 1987, scheme 6) of intrusive nodes. Inserting
// and removing a node take constant time and no memory. No thread has to tick: a bitmap names the
// next occupied slot.
//
// A time is a number of ticks of 1024 ns, written in nine digits of six bits. `reached_` is the
// tick that the wheel has reached, never later than the present. To find the level of a node,
// compare its tick with `reached_`: the level is that of the highest digit in which the two differ.
// The slot is the value of that digit. So all nodes at a level come before all nodes at higher
// levels, and the first occupied slot of the lowest occupied level holds the next node. When the
// time of a slot above level 0 has come, its nodes move down: a few nodes move to their final level
// at once, many nodes move by one level at a time.
//
// If few nodes of one tick arrive out of order, these nodes stay in the order of their times. If
// many do, a node may wait for another node of its tick, for less than 1024 ns. No node is returned
// early.

struct wheel_link {
    wheel_link* next = nullptr; // nullptr: in no list
    wheel_link* back = nullptr;
};

struct wheel_node : wheel_link {
    std::int64_t at = 0; // nanoseconds, not negative

    bool is_queued() const noexcept { return next != nullptr; }
};

class timer_wheel {
public:
    static constexpr std::int64_t never_ns = (std::numeric_limits<std::int64_t>::max)();

    // Inserts `n`.
    // Requires: `n` is in no wheel; n.at is set.
    void push(wheel_node& n) noexcept {
        std::uint64_t tick = tick_of(n.at);
        tick = tick < reached_ ? reached_ : tick;
        const auto level = (static_cast<unsigned>(std::bit_width((tick ^ reached_) | 63)) - 1) / 6;
        wheel_link& end = open(level * 64 + digit(tick, level));
        wheel_link* after = end.back;
        if (level == 0) {
            for (int steps = 0; after != &end && at(after) > n.at && steps < 4; ++steps) {
                after = after->back;
            }
        }
        n.back = after;
        n.next = after->next;
        after->next->back = &n;
        after->next = &n;
    }

    // Removes `n`.
    // Requires: `n` is in this wheel.
    void remove(wheel_node& n) noexcept {
        wheel_link* const next = n.next;
        wheel_link* const back = n.back;
        back->next = next;
        next->back = back;
        n.next = nullptr;
        if (next == back) { // both are the end of the list, which is empty now
            close(static_cast<unsigned>(next - slots_));
        }
    }

    // Removes and returns a node that is due at `now`. That is the first such node, unless
    // `skipped` is not zero: then take() passes over up to `skipped` nodes of the same tick. It
    // passes over a node only if the node behind it is due, too. Moves nodes between levels at most
    // `moves` times, and decrements `moves` for each. Returns nullptr if no node is due. Also
    // returns nullptr if `moves` has reached zero; then is_moving() is true, and the caller calls
    // again.
    wheel_node* take(std::int64_t now, unsigned& moves, unsigned skipped = 0) noexcept;

    // Returns true if the nodes of a slot still have to move down.
    bool is_moving() const noexcept { return (used_ & 1u << levels) != 0; }

    // Returns the time of the earliest node. If the search for that node would take long, returns
    // an earlier time. If the wheel is empty, returns never_ns.
    // Requires: !is_moving().
    std::int64_t next_ns() const noexcept;

private:
    static constexpr unsigned levels = 9;
    static constexpr unsigned moving = levels * 64; // the list of nodes that are to move down
    static constexpr int few = 16;                  // a list up to this length is searched

    static std::uint64_t tick_of(std::int64_t ns) noexcept {
        return ns < 0 ? 0 : static_cast<std::uint64_t>(ns) >> 10;
    }
    static unsigned digit(std::uint64_t tick, unsigned level) noexcept {
        return static_cast<unsigned>(tick >> (6 * level)) & 63;
    }
    static std::int64_t at(const wheel_link* l) noexcept {
        return static_cast<const wheel_node*>(l)->at;
    }

    // Returns the list of a slot. If the slot's bit is not set, makes the list empty and sets the
    // bit.
    wheel_link& open(unsigned slot) noexcept {
        wheel_link& end = slots_[slot];
        const std::uint64_t bit = std::uint64_t{1} << (slot % 64);
        if ((occupied_[slot / 64] & bit) == 0) {
            occupied_[slot / 64] |= bit;
            used_ |= 1u << (slot / 64);
            end.next = end.back = &end;
        }
        return end;
    }
    void close(unsigned slot) noexcept {
        occupied_[slot / 64] &= ~(std::uint64_t{1} << (slot % 64));
        if (occupied_[slot / 64] == 0) {
            used_ &= ~(1u << (slot / 64));
        }
    }

    // Requires: the wheel is not empty, and !is_moving().
    unsigned first_slot() const noexcept {
        const auto level = static_cast<unsigned>(std::countr_zero(used_));
        return level * 64 + static_cast<unsigned>(std::countr_zero(occupied_[level]));
    }
    std::uint64_t start_of(unsigned slot) const noexcept {
        const unsigned shift = slot / 64 * 6;
        return (reached_ >> (shift + 6) << (shift + 6)) | std::uint64_t{slot % 64} << shift;
    }

    // Returns the earliest time in a list of at most `few` nodes; `many` if the list is longer.
    std::int64_t earliest(const wheel_link& end, std::int64_t many) const noexcept {
        std::int64_t least = never_ns;
        int count = 0;
        for (const wheel_link* l = end.next; l != &end; l = l->next) {
            if (++count > few) {
                return many;
            }
            least = at(l) < least ? at(l) : least;
        }
        return least;
    }

    void descend(unsigned slot, std::uint64_t start, std::uint64_t now) noexcept;

    std::uint64_t reached_ = 0;
    std::uint32_t used_ = 0;                  // a bit for each level with nodes
    std::uint64_t occupied_[levels + 1] = {}; // a bit for each slot with nodes
    wheel_link slots_[moving + 1] = {};       // the ends of circular lists
};

// Moves the nodes of the first slot to the list `moving`, because the time of the slot has come.
inline void timer_wheel::descend(unsigned slot, std::uint64_t start, std::uint64_t now) noexcept {
    wheel_link& from = slots_[slot];
    // A short list moves to its final level at once: `reached_` advances to its earliest node.
    const std::uint64_t least = tick_of(earliest(from, 0));
    const std::uint64_t to = least < now ? least : now;
    reached_ = to < start ? start : to;
    wheel_link& end = open(moving);
    end.next = from.next;
    end.back = from.back;
    end.next->back = end.back->next = &end;
    close(slot);
}

inline wheel_node* timer_wheel::take(std::int64_t now, unsigned& moves, unsigned skipped) noexcept {
    const std::uint64_t tick = tick_of(now);
    for (;;) {
        if (is_moving()) {
            if (moves == 0) {
                return nullptr;
            }
            --moves;
            auto& n = static_cast<wheel_node&>(*slots_[moving].next);
            remove(n);
            push(n);
            continue;
        }
        if (used_ == 0) {
            break;
        }
        const unsigned slot = first_slot();
        const std::uint64_t start = start_of(slot);
        if (start > tick) {
            break;
        }
        if (slot >= 64) {
            descend(slot, start, tick);
            continue;
        }
        wheel_link* l = slots_[slot].next;
        if (at(l) > now) {
            break;
        }
        for (; skipped != 0 && l->next != &slots_[slot] && at(l->next) <= now; --skipped) {
            l = l->next;
        }
        auto& n = static_cast<wheel_node&>(*l);
        remove(n);
        return &n;
    }
    // No slot begins before the present, so every node keeps its slot.
    reached_ = tick > reached_ ? tick : reached_;
    return nullptr;
}

inline std::int64_t timer_wheel::next_ns() const noexcept {
    if (used_ == 0) {
        return never_ns;
    }
    const unsigned slot = first_slot();
    if (slot < 64) {
        return at(slots_[slot].next);
    }
    return earliest(slots_[slot], static_cast<std::int64_t>(start_of(slot) << 10));
}

} // namespace detail

/// A time-out, which its owner stores in its own frame. A thread that fires the queue's timers runs
/// `fire` once, not before `when`. `fire` may add the timer again or destroy it.
struct timer : detail::wheel_node {
    waker fire;                        ///< Runs when the timer is due.
    deadline when = deadline::never(); ///< States when the timer is due.
    /// The queue to which the timer was added. While a timer moves to another queue, it must not be
    /// cancelled.
    void* queue = nullptr;
};

/// Queues timers by their times.
/// Thread safety: any thread calls any function.
/// Destroys: the queue must hold no timer, and no call may be under way.
template <class Platform> class basic_timer_queue {
public:
    /// Makes an empty queue. Each add() of a timer that is earlier than next_ns() wakes `earlier`,
    /// outside the lock. The times of timers are rounded up to multiples of `slack_ns`, so that the
    /// timers of one interval fire together.
    explicit constexpr basic_timer_queue(waker earlier = {}, std::int64_t slack_ns = 1) noexcept
        : earlier_(earlier), slack_ns_(slack_ns > 1 ? slack_ns : 1) {}
    basic_timer_queue& operator=(basic_timer_queue&&) = delete;

    /// Arms `t`.
    /// Requires: `t` lives until it has fired or was cancelled.
    BIDE_NOINLINE void add(timer& t) noexcept {
        const waker earlier = earlier_;
        const std::int64_t at = rounded_up(t.when.next_check_ns());
        if (t.queue != this) { // its own firing may add it again while another thread cancels it
            t.queue = this;
        }
        lock();
        const bool nearer = insert(t, at);
        unlock();
        if (nearer) {
            earlier.wake();
        }
    }

    /// Cancels `t`.
    /// Blocks: while another thread fires `t`. Inside the firing of `t`, it does not block.
    /// Returns: true if `t` does not fire; false if it has fired or was not armed.
    BIDE_NOINLINE bool cancel(timer& t) noexcept {
        bool in_time = false;
        lock();
        for (;;) {
            if (t.is_queued()) { // also if its firing has added it again
                wheel_.remove(t);
                in_time = true;
            }
            if (!fires_elsewhere(t)) {
                break;
            }
            cancelling_ = cancelling_ + 1;
            // Order: relaxed; written and read under the lock.
            const word seen = ended_.load(std::memory_order_relaxed);
            unlock();
            // The sleep is short, so no other thread takes over the work of this one: calls the
            // platform's futex_wait() and not that of core/futex.hpp.
            Platform::futex_wait(ended_, seen, deadline::never().steady_ns());
            lock();
            cancelling_ = cancelling_ - 1;
        }
        unlock();
        return in_time;
    }

    /// Fires at most `most` of the timers that are due at `now`, in the order of their times. If
    /// more timers are due, next_ns() is not later than `now`. Coroutines that become runnable on
    /// this thread run at the end of the call. Before each timer fires, wakes `each`. If `skipped`
    /// is not zero, timers of about the same time fire in another order: each firing passes over up
    /// to `skipped` due timers, which fire later.
    BIDE_NOINLINE unsigned fire_due(std::int64_t now, unsigned most = 256, unsigned skipped = 0,
                                    waker each = {}) noexcept {
        if (next_ns() > now) {
            return 0;
        }
        wake_scope<Platform> scope; // closes last: no canceller waits for a resumed coroutine
        call mine{this_thread()};
        mine.each = each;
        unsigned fired = 0;
        unsigned moves = moves_at_once;
        unsigned rounds = most_moves / moves_at_once;
        lock();
        mine.next = calls_;
        calls_ = &mine;
        for (unsigned left = most; left != 0 && rounds != 0;) {
            auto* const t = static_cast<timer*>(wheel_.take(now, moves, skipped));
            if (t != nullptr) {
                --left;
                fired += fire(mine, *t) ? 1U : 0U;
            } else if (wheel_.is_moving()) {
                --rounds;
                moves = moves_at_once;
                unlock();
                lock();
            } else {
                raise_next();
                break;
            }
        }
        unlink(mine);
        unlock();
        return fired;
    }

    /// Returns the steady time in nanoseconds at which fire_due() may have timers to fire; never_ns
    /// if there is no timer.
    std::int64_t next_ns() const noexcept {
        // Order: seq_cst [timer_queue.next]; a sleeper reads it after it announced its own time.
        return next_.load(std::memory_order_seq_cst);
    }

    /// Returns next_ns(), without timers that were cancelled.
    std::int64_t next_live_ns() noexcept {
        lock();
        if (!wheel_.is_moving()) {
            raise_next();
        }
        // Order: relaxed; written under the lock.
        const std::int64_t next = next_.load(std::memory_order_relaxed);
        unlock();
        return next;
    }

    /// Is the time that never comes.
    static constexpr std::int64_t never_ns = detail::timer_wheel::never_ns;

private:
    using word = std::uint32_t;
    using lock_word = lock_bits<Platform, word>;
    template <class T> using var = typename Platform::template var<T>;

    // A call of fire_due(). Other threads access its fields under the lock.
    struct call {
        const void* thread;
        call* next = nullptr;
        const timer* firing = nullptr;
        waker each{};
    };

    // The maximum number of moves of the wheel in one critical section, and in one call.
    static constexpr unsigned moves_at_once = 64;
    static constexpr unsigned most_moves = 512;

    void lock() noexcept { lock_word::acquire(lock_); }
    void unlock() noexcept { lock_word::release_plain(lock_); }

    static const void* this_thread() noexcept { return detail::thread_mark<Platform>(); }

    std::int64_t rounded_up(std::int64_t at) const noexcept {
        if (slack_ns_ == 1 || at > never_ns - slack_ns_) {
            return at;
        }
        const std::int64_t over = at % slack_ns_;
        return over > 0 ? at - over + slack_ns_ : at - over;
    }

    // Puts the timer into the wheel. The caller holds the lock. Returns true if the caller must
    // wake `earlier` after it has released the lock.
    bool insert(timer& t, std::int64_t at) noexcept {
        t.at = at;
        wheel_.push(t);
        // Order: relaxed; written under the lock.
        const bool nearer = at < next_.load(std::memory_order_relaxed);
        if (nearer) {
            // Order: seq_cst [timer_queue.next]; before `earlier` reads the sleeper's time.
            next_.store(at, std::memory_order_seq_cst);
        }
        return nearer;
    }
    bool fires_elsewhere(const timer& t) const noexcept {
        for (const call* c = calls_; c != nullptr; c = c->next) {
            if (c->firing == &t) {
                return c->thread != this_thread();
            }
        }
        return false;
    }
    // Fires the timer. The caller holds the lock, which is released meanwhile. The clock of the
    // timer may have been set back, so that the time of the timer has not come yet. In this case,
    // puts the timer into the queue again and returns false.
    bool fire(call& mine, timer& t) noexcept {
        mine.firing = &t;
        unlock();
        const bool early = t.when.is_early();
        const std::int64_t at = early ? t.when.next_check_ns() : 0;
        if (!early) {
            mine.each.wake();
            t.fire.wake(); // the last access to *t
        }
        lock();
        const bool nearer = early && insert(t, at);
        end_firing(mine);
        if (nearer) { // nearer than the time that another call left
            unlock();
            earlier_.wake();
            lock();
        }
        return !early;
    }
    // Called with the lock.
    void end_firing(call& mine) noexcept {
        mine.firing = nullptr;
        if (cancelling_ != 0) {
            // Order: relaxed; written under the lock. A canceller that has read the old count is
            // woken below. A canceller that reads the count later finds the new count and does not
            // sleep.
            ended_.fetch_add(1, std::memory_order_relaxed);
            unlock();
            futex_wake<Platform>(&ended_, 0x7fffffff);
            lock();
        }
    }
    void unlink(call& mine) noexcept {
        call* before = nullptr;
        call* c = calls_;
        for (; c != &mine; c = c->next) {
            before = c;
        }
        if (before == nullptr) {
            calls_ = mine.next;
        } else {
            before->next = mine.next;
        }
    }
    // Changes next_ns(), but only to a later time. The caller holds the lock. A sleeper may rely on
    // the present value: it is woken only for a timer that is earlier than this value.
    void raise_next() noexcept {
        const std::int64_t next = wheel_.next_ns();
        // Order: both relaxed; written under the lock. A sleeper that misses the later time only
        // wakes early.
        if (next > next_.load(std::memory_order_relaxed)) {
            next_.store(next, std::memory_order_relaxed);
        }
    }

    // Other threads read it often. It is written rarely, under the lock.
    alignas(cache_line_pair) typename Platform::template atomic<std::int64_t> next_{never_ns};
    const waker earlier_;
    const std::int64_t slack_ns_;

    alignas(cache_line_pair) typename Platform::template atomic<word> lock_{0};
    typename Platform::template atomic<word> ended_{
        0}; // counts ended firings; cancellers sleep on it

    // Under the lock:
    var<call*> calls_{nullptr};
    var<unsigned> cancelling_{0}; // callers of cancel() that wait for a firing to end
    detail::timer_wheel wheel_;
};

/// Cancels `t` in the queue that it was added to.
/// Returns: true if `t` does not fire; false if it has fired or was not armed.
template <class Platform> bool cancel_timer(timer& t) noexcept {
    auto* const in = static_cast<basic_timer_queue<Platform>*>(t.queue);
    return in != nullptr && in->cancel(t);
}

BIDE_COMPILED_TEMPLATE(class basic_timer_queue<native_platform>)

}} // namespace bide::BIDE_ABI

#endif
