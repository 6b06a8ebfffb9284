// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_TIMER_HPP
#define BIDE_CORE_TIMER_HPP

/// \file
/// Provides timers: the timer queue of a scheduler or a service, and the timer service.
///
/// If no scheduler fires the time-out of a coroutine, the service does. It also resumes coroutines
/// that have no executor, after a stop or a time-out. A process has one service. The first use
/// starts it, and it never ends. A child of fork() starts its own. The service consists of two
/// parts:
///
/// \code
///   timer thread   Decides time-outs and runs no coroutine.
///   resumers       Run the posted coroutines: one thread, and more while these threads block or
///                  compute, at most 256.
/// \endcode
///
/// So a coroutine that blocks delays no time-out and no stop. It delays other coroutines by a few
/// milliseconds, until another resumer starts. If many coroutines block at once outside of bide,
/// the number of resumers doubles about every 5 ms, up to 256.
///
/// A program may wait by a waker of its own. If a time-out ends such a wait, the waker runs on the
/// timer thread. The service fires no other time-out until the waker returns, so the waker should
/// only make its waiter runnable (core/executor.hpp).
///
/// If the threads cannot be started, an operation that asks for a time-out or a stop throws
/// std::system_error. Three operations cannot throw, so they report the error and terminate: a stop
/// that resumes coroutines; a wait with a time-out that begins on a thread of no scheduler, if a
/// worker has constructed its operation; a post to a scheduler that has ended.
//
// The timer thread sleeps in a parker until the earliest time-out. A thread that adds the earliest
// timer unparks the timer thread. So does a thread that posts a runnable for which another resumer
// is needed. Because of this, the service has only one sleep protocol.

#include <bide/core/detail/os_thread.hpp>
#include <bide/core/detail/process_wide.hpp>
#include <bide/core/detail/task_context.hpp>
#include <bide/core/parker.hpp>

#include <bit>

namespace bide { inline namespace BIDE_ABI {

// ---- The queue
//
// Queues timers until they are due. The queue has no thread of its own: any thread adds, cancels
// and fires timers, several threads at once.
//
// A thread that fires the timers of the queue is called a sleeper. It sleeps until next_ns(). If an
// earlier timer is added, add() wakes it by the waker `earlier`. Let `t` be the time of the new
// timer, and `u` the time until which the sleeper is about to sleep. The pair [timer_queue.next]:
//
//   add():   next := t (seq_cst)                sleeper:   until := u (seq_cst)
//            `earlier` reads `until`                       read next_ns() (seq_cst)
//            t < until: wake the sleeper                   next < u: do not sleep until u
//
// At least one of the two threads sees the write of the other. If both do, the sleeper stays awake
// and is woken needlessly.
//
// next_ns() may be earlier than the earliest timer: it need not change when that timer is
// cancelled. It may also be later, but at most by one tick of the wheel. A timer that is added with
// a later time than next_ns() needs no wake: the sleeper wakes at next_ns() and reads it again.
//
// The timers are in a wheel. A lock of two bits (core/lock_bits.hpp) guards the wheel. A thread
// fires a timer without the lock. Meanwhile the list `calls_` names the timer. If a timer is
// firing, cancel() waits until the firing ends. On the thread that fires the timer, cancel() does
// not wait. After cancel() has returned, no other thread accesses the timer.

namespace detail {

// A hierarchical timing wheel (Varghese, Lauck, SOSP 1987, scheme 6) of intrusive nodes. Inserting
// and removing a node take constant time and no memory. No thread has to tick: a bitmap names the
// next occupied slot.
//
// A time is a number of ticks of 1024 ns, written in nine digits of six bits. `reached_` is the
// tick that the wheel has reached, never later than the present. The level of a node is the
// position of the highest digit in which the tick of the node differs from `reached_`. The slot is
// the value of that digit. So all nodes at a level are due before all nodes at higher levels. The
// first occupied slot of the lowest occupied level holds the next node. When the time of a slot
// above level 0 has come, the nodes of the slot move down. If the slot has at most 16 nodes,
// `reached_` first advances to the tick of the earliest node, but not beyond the present. So if
// this node is due, it moves to level 0 at once.
//
// At level 0, the nodes of one tick are in one list. If few of them are pushed out of order, the
// list is sorted by time. If many are, a due node may be behind a later node of the same tick. It
// is then late by less than 1024 ns. No node is returned before its time.

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

    // Removes and returns a node that is due at `now`; nullptr if no node is due. If `skipped` is
    // zero, takes the first due node. Otherwise passes over up to `skipped` nodes of the same tick,
    // as long as the next node is due, too. Before that, moves nodes to lower levels if their time
    // has come. Each move of a node decrements `moves`. If `moves` is zero and a node still has to
    // move, returns nullptr. In this case is_moving() is true, and the caller must call again.
    wheel_node* take(std::int64_t now, unsigned& moves, unsigned skipped = 0) noexcept {
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

    // Returns true if the nodes of a slot still have to move down.
    bool is_moving() const noexcept { return (used_ & 1u << levels) != 0; }

    // Returns the time of the earliest node. If the search for that node would take long, returns
    // an earlier time. If the wheel is empty, returns never_ns.
    // Requires: !is_moving().
    std::int64_t next_ns() const noexcept {
        if (used_ == 0) {
            return never_ns;
        }
        const unsigned slot = first_slot();
        if (slot < 64) {
            return at(slots_[slot].next);
        }
        return earliest(slots_[slot], static_cast<std::int64_t>(start_of(slot) << 10));
    }

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

    // Moves the nodes of the first slot, whose time has come, to the list `moving`.
    void descend(unsigned slot, std::uint64_t start, std::uint64_t now) noexcept {
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

    std::uint64_t reached_ = 0;
    std::uint32_t used_ = 0;                  // a bit for each level with nodes
    std::uint64_t occupied_[levels + 1] = {}; // a bit for each slot with nodes
    wheel_link slots_[moving + 1] = {};       // the ends of circular lists
};

} // namespace detail

/// A time-out. The owner stores the timer in its own frame and adds it to a queue. A thread that
/// fires the timers of the queue then runs `fire` once, at the time `when` or later. `fire` may add
/// the timer again or destroy it.
struct timer : detail::wheel_node {
    waker fire;                        ///< Runs when the timer is due.
    deadline when = deadline::never(); ///< States when the timer is due.
    /// The queue to which the timer was added.
    /// Requires: the timer is not cancelled while it moves to another queue.
    void* queue = nullptr;
};

/// Queues timers by their times.
/// Thread safety: any thread calls any function.
/// Requires: at its destruction, the queue holds no timer, and no call is under way.
template <class Platform> class basic_timer_queue {
public:
    /// Makes an empty queue. Each add() of a timer that is earlier than next_ns() calls the waker
    /// `earlier`, outside the lock. The times of timers are rounded up to multiples of `slack_ns`,
    /// so that the timers of one interval fire together.
    explicit constexpr basic_timer_queue(waker earlier = {}, std::int64_t slack_ns = 1) noexcept
        : earlier_(earlier), slack_ns_(slack_ns > 1 ? slack_ns : 1) {}
    basic_timer_queue& operator=(basic_timer_queue&&) = delete;

    /// Arms `t`.
    /// Requires: `t` lives until it has fired or was cancelled.
    BIDE_NOINLINE void add(timer& t) noexcept {
        const waker earlier = earlier_;
        const std::int64_t at = rounded_up(t.when.next_check_ns());
        // Another thread may cancel `t`, and read `queue`, while the firing adds `t` again here.
        if (t.queue != this) {
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
            // Calls the platform's futex_wait() and not that of core/futex.hpp: the sleep is too
            // short for another thread to take over this thread's work.
            Platform::futex_wait(ended_, seen, deadline::never().steady_ns());
            lock();
            cancelling_ = cancelling_ - 1;
        }
        unlock();
        return in_time;
    }

    /// Fires at most `most` of the timers that are due at `now`, in the order of their times. If
    /// more timers are due, next_ns() is not later than `now`. Coroutines that become runnable on
    /// this thread run at the end of the call. Calls the waker `each` before each timer fires. If
    /// `skipped` is not zero, timers of about the same time fire in another order: each firing
    /// passes over up to `skipped` due timers, which fire later.
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
        // Order: seq_cst [timer_queue.next]; a sleeper stores its own time before this load.
        return next_.load(std::memory_order_seq_cst);
    }

    /// If the earliest timers were cancelled, first raises next_ns(). Then returns next_ns().
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
    // Fires the timer. The caller holds the lock, and this function releases it during the firing.
    // The clock of the timer may have been set back, so that the time of the timer has not come
    // yet. In this case, puts the timer into the queue again and returns false.
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
        if (nearer) { // earlier than the time that another call has set
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
            // Order: relaxed; written under the lock. A canceller sleeps only while the count is
            // still the one that it has read. A canceller that has read the old count either does
            // not fall asleep, or is woken below. A canceller that reads the new count no longer
            // waits for this firing.
            ended_.fetch_add(1, std::memory_order_relaxed);
            unlock();
            futex_wake<Platform>(&ended_, 0x7fffffff);
            lock();
        }
    }
    void unlink(call& mine) noexcept {
        call* before = nullptr;
        for (call* c = calls_; c != &mine; c = c->next) {
            before = c;
        }
        if (before == nullptr) {
            calls_ = mine.next;
        } else {
            before->next = mine.next;
        }
    }
    // Sets next_ns() to the time of the earliest node, but only to a later time than before: a
    // sleeper may sleep until the old time, and this function wakes no sleeper. The caller holds
    // the lock.
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

namespace detail {

// ---- Resumers
//
// The threads that resume coroutines that have no executor. A resumer runs user code, which may
// block. So a blocked resumer is replaced: while a runnable is queued, some resumer is about to
// take it.
//
//   post     Wakes an idle resumer. If none is idle, an active resumer takes the runnable later.
//   blocks   The last active resumer sleeps in bide. If a runnable is queued, another one starts.
//   late     A runnable has waited for `late_ns`: all resumers compute, or block outside of bide
//            (read(), std::mutex, sleep_for). The number of active resumers is at most doubled.
//
// One lock guards all decisions. `active_` counts the resumers that run or are about to run,
// including those that are being woken or started. While a runnable is queued, no resumer is idle:
// a resumer becomes idle only if the queue is empty, and a post takes a resumer out of the idle
// list. So a queued runnable has an active resumer. Then one of three things happens: that resumer
// takes the runnable, the resumer blocks, or the runnable becomes late. If a function leaves the
// runnable without an active resumer, it calls the waker `attention`. The timer thread answers that
// call with start_needed(). Only start_needed() starts resumers after the first. If no resumer can
// be started, start_needed() asks to be called again after `late_ns`.

// Starts a thread that is never joined, by Platform::start_thread() if the platform has it.
template <class Platform>
std::error_code start_service_thread(os_thread::function body, void* argument) noexcept {
    if constexpr (requires { Platform::start_thread(body, argument); }) {
        return Platform::start_thread(body, argument);
    } else {
        return os_thread::start_detached(body, argument);
    }
}

// Owns the resumers, and is their host (core/wake_scope.hpp) while they run user code.
// Requires: this object is not destroyed while it has threads.
template <class Platform> class basic_resumers final : public basic_worker_host<Platform> {
public:
    static constexpr unsigned most_threads = Platform::model ? 2 : 256;

    // If a runnable is queued for longer than this time, it is late. The time is longer than a
    // coroutine usually runs between two waits, and longer than a computing thread keeps its
    // processor. It is shorter than usual time-outs.
    static constexpr std::int64_t late_ns = 5'000'000;

    // An idle resumer ends after this time, except the last one.
    static constexpr std::int64_t keep_alive_ns = 10'000'000'000;

    static constexpr std::int64_t never_ns = (std::numeric_limits<std::int64_t>::max)();

    // If start_needed() must be called, wakes `attention`, outside the lock.
    explicit constexpr basic_resumers(basic_timer_queue<Platform>& timers, waker attention) noexcept
        : timers_(timers), attention_(attention) {}
    basic_resumers& operator=(basic_resumers&&) = delete;

    // Starts the first resumer, if there is none. Returns an error if it cannot be started.
    std::error_code start() noexcept {
        lock();
        const bool first = threads_ == 0;
        if (first) {
            threads_ = 1;
            active_ = 1;
        }
        unlock();
        return first ? start_thread() : std::error_code();
    }

    // Runs `r` on a resumer. Any thread may call it.
    // Requires: `r` exists until it is run.
    void post(runnable& r) noexcept {
        lock();
        queue_.push(r);
        posted_ = posted_ + 1;
        resumer* const idle = idle_;
        bool call = false;
        if (idle != nullptr) {
            idle_ = idle->next;
            active_ = active_ + 1;
        } else {
            call = !scheduled_ || active_ == 0;
        }
        unlock();
        if (idle != nullptr) {
            idle->parker.unpark(); // the resumer lives until it has taken this token
        } else if (call) {
            attention_.wake();
        }
    }

    // Starts the resumers that are needed. Returns the steady time at which to call it again.
    // Called by one thread at a time.
    std::int64_t start_needed(std::int64_t now) noexcept {
        unsigned start = 0;
        std::int64_t next = never_ns;
        lock();
        if (queue_.first() == nullptr) {
            scheduled_ = false;
        } else {
            const bool due = scheduled_ && now >= due_;
            const bool late = due && static_cast<std::int32_t>(late_count_ - taken_) > 0;
            if (due || !scheduled_) {
                late_count_ = posted_;
                due_ = now + late_ns;
            }
            const bool full =
                threads_ == most_threads; // a resumer that unblocks takes the runnables
            const unsigned room = most_threads - threads_;
            const auto waiting = static_cast<std::uint32_t>(posted_ - taken_);
            start = active_ == 0 ? 1 : late ? static_cast<unsigned>(active_) : 0;
            start = start < waiting ? start : waiting;
            start = start < room ? start : room;
            threads_ = threads_ + start;
            active_ = active_ + start;
            scheduled_ = !full;
            next = full ? never_ns : static_cast<std::int64_t>(due_);
        }
        unlock();
        for (; start != 0; --start) {
            start_thread(); // if it fails, the next call tries again
        }
        return next;
    }

    // Returns whether no runnable is queued and no resumer runs one. A snapshot.
    bool is_idle() const noexcept {
        const typename lock_word::guard section(lock_);
        unsigned idle = 0;
        for (const resumer* r = idle_; r != nullptr; r = r->next) {
            ++idle;
        }
        return queue_.first() == nullptr && idle == threads_;
    }

    // The functions of the host of a resumer that runs user code.
    void yield(runnable& r) noexcept override { post(r); }
    void add_timer(timer& t) noexcept override { timers_.add(t); }
    bool blocks() noexcept override {
        lock();
        active_ = active_ - 1;
        const bool call = active_ == 0 && queue_.first() != nullptr;
        unlock();
        if (call) {
            attention_.wake();
        }
        return true; // start_needed() tries again if a start fails
    }
    void unblocks() noexcept override {
        const typename lock_word::guard section(lock_);
        active_ = active_ + 1;
    }
    executor_ref executor() noexcept override { return {}; }

private:
    using word = std::uint32_t;
    using lock_word = lock_bits<Platform, word>;
    template <class T> using var = typename Platform::template var<T>;

    // One resumer, in the frame of its thread.
    struct resumer {
        resumer* next = nullptr; // the next older idle resumer
        basic_parker<Platform> parker;
    };

    void lock() const noexcept { lock_word::acquire(lock_); }
    void unlock() const noexcept { lock_word::release_plain(lock_); }

    // Starts a resumer that is counted already. If the start fails, takes it out of the counts.
    std::error_code start_thread() noexcept {
        const std::error_code error = start_service_thread<Platform>(&body, this);
        if (error) {
            lock();
            threads_ = threads_ - 1;
            active_ = active_ - 1;
            unlock();
        }
        return error;
    }
    static void body(void* self) noexcept { static_cast<basic_resumers*>(self)->run(); }
    void run() noexcept {
        if constexpr (!Platform::model) {
            lock();
            const unsigned number = named_;
            named_ = number + 1;
            unlock();
            os_thread::name_this("bide", "-r", number);
        }
        resumer me;
        while (runnable* const r = next(me)) {
            worker_local<Platform>::get().host = this;
            {
                wake_scope<Platform> scope;
                r->run.wake();
            }
            worker_local<Platform>::get().host = nullptr;
        }
    }
    // Returns the next runnable. Returns nullptr if this thread was idle for too long; this thread
    // is then no longer counted as a resumer.
    runnable* next(resumer& me) noexcept {
        lock();
        for (;;) {
            if (runnable* const r = queue_.pop()) {
                taken_ = taken_ + 1;
                unlock();
                return r;
            }
            active_ = active_ - 1;
            resumer* const below = idle_;
            me.next = below;
            idle_ = &me;
            unlock();
            const bool woken = me.parker.park_until(
                below == nullptr ? deadline::never()
                                 : deadline::at_ns(Platform::now() + keep_alive_ns));
            lock();
            if (!woken && take_out(me)) {
                threads_ = threads_ - 1;
                unlock();
                return nullptr;
            }
            if (!woken) { // a post took it out of the idle list and is about to leave a token
                unlock();
                me.parker.park();
                lock();
            }
        }
    }
    // Called with the lock. Returns false if the resumer is not in the idle list.
    bool take_out(const resumer& me) noexcept {
        resumer* above = nullptr;
        for (resumer* r = idle_; r != nullptr; above = r, r = r->next) {
            if (r == &me) {
                if (above == nullptr) {
                    idle_ = me.next;
                } else {
                    above->next = me.next;
                }
                return true;
            }
        }
        return false;
    }

    basic_timer_queue<Platform>& timers_;
    const waker attention_;

    mutable typename Platform::template atomic<word> lock_{0};

    // Under the lock:
    run_list queue_;
    var<resumer*> idle_{nullptr};  // the newest idle resumer; its `next` leads to the older ones
    var<unsigned> threads_{0};     // threads that run or are being started
    var<unsigned> active_{0};      // of these: threads that are neither idle nor blocked
    var<unsigned> named_{0};       // threads that were given a name
    var<std::uint32_t> posted_{0}; // runnables that were posted
    var<std::uint32_t> taken_{0};  // runnables that were taken
    var<bool> scheduled_{false};   // start_needed() will be called again at its own request
    var<std::uint32_t> late_count_{0}; // `posted_` when `due_` was set
    var<std::int64_t> due_{0};         // when the first `late_count_` runnables are late
};

} // namespace detail

template <class Platform> class basic_timer_service;
template <class Platform> basic_timer_service<Platform>& timer_service();

/// Fires timers and runs runnables on its own threads.
/// Thread safety: any thread calls any function, except run().
template <class Platform> class BIDE_SHARED basic_timer_service {
public:
    /// Makes a service without threads.
    constexpr basic_timer_service() noexcept
        : timers_(waker(&wake_up, this)), resumers_(timers_, waker(&wake_up, this)) {}
    basic_timer_service& operator=(basic_timer_service&&) = delete;

    /// Starts the threads if they do not run.
    /// Returns: an error if one of them cannot be started.
    std::error_code start() noexcept {
        // Order: relaxed; the flag publishes no data. Shared data is accessed under locks.
        if (runs_.load(std::memory_order_relaxed)) {
            return {};
        }
        std::error_code error;
        const typename lock_word::guard section(lock_);
        // Order: relaxed; under the lock.
        if (!runs_.load(std::memory_order_relaxed)) {
            error = resumers_.start();
            if (!error) {
                error = detail::start_service_thread<Platform>(&body, this);
            }
            // Order: relaxed; under the lock.
            runs_.store(!error, std::memory_order_relaxed);
        }
        return error;
    }

    /// Arms `t` for the timer thread. Requires: `t` lives until it has fired or was cancelled.
    void add(timer& t) noexcept { timers_.add(t); }
    /// Cancels `t`. Blocks: while another thread fires `t`. Returns: true if `t` does not fire.
    bool cancel(timer& t) noexcept { return timers_.cancel(t); }

    /// Runs `r` on a resumer. Runnables begin in the order of the posts, and several run at once.
    void post(runnable& r) noexcept { resumers_.post(r); }

    /// Returns whether every posted runnable has ended. A snapshot.
    bool is_idle() const noexcept { return resumers_.is_idle(); }

    /// Is the body of the timer thread.
    [[noreturn]] void run() noexcept {
        for (;;) {
            const std::int64_t now = Platform::now();
            {
                wake_scope<Platform> away(
                    +[]() noexcept -> executor_ref { return timer_service<Platform>(); });
                timers_.fire_due(now);
            }
            const std::int64_t check = resumers_.start_needed(now);
            const std::int64_t timer = timers_.next_ns();
            const std::int64_t next = timer < check ? timer : check;
            thread_.park_until(next > now ? deadline::at_ns(next) : deadline::poll());
        }
    }

private:
    using word = std::uint32_t;
    using lock_word = lock_bits<Platform, word>;

    static void body(void* self) noexcept {
        if constexpr (!Platform::model) {
            detail::os_thread::name_this("bide", "-t", 0);
        }
        static_cast<basic_timer_service*>(self)->run();
    }
    // The timer thread checks the timers and the resumers after it has taken the token.
    static void wake_up(void* self) noexcept {
        static_cast<basic_timer_service*>(self)->thread_.unpark();
    }

    basic_timer_queue<Platform> timers_;
    detail::basic_resumers<Platform> resumers_;
    basic_parker<Platform> thread_; // the timer thread sleeps here
    typename Platform::template atomic<word> lock_{0};
    typename Platform::template atomic<bool> runs_{false}; // written under lock_
};

namespace detail {

// Starts the service of the process and returns it. Returns nullptr and sets `error` if it cannot
// be started.
template <class Platform>
basic_timer_service<Platform>* started_service(std::error_code& error) noexcept {
    if constexpr (Platform::model) {
        return Platform::timer_service();
    } else {
        using service = basic_timer_service<Platform>;
        service* const one = process_wide<service, Platform>::get(
            +[]() noexcept { return new (std::nothrow) service; });
        error = one != nullptr ? one->start() : std::make_error_code(std::errc::not_enough_memory);
        return error ? nullptr : one;
    }
}

// Starts the service of the process and returns it, for callers that cannot throw. Terminates with
// a message if the service cannot be started.
template <class Platform> basic_timer_service<Platform>& required_service() noexcept {
    std::error_code error;
    auto* const service = started_service<Platform>(error);
    if (service == nullptr) {
        fatal("the service threads cannot be started");
    }
    return *service;
}

} // namespace detail

/// Starts the service of the process and returns it.
/// Throws: std::system_error if its threads cannot be started.
template <class Platform> basic_timer_service<Platform>& timer_service() {
    std::error_code error;
    auto* const service = detail::started_service<Platform>(error);
    if (service == nullptr) {
        BIDE_THROW(std::system_error(error, "bide's service threads cannot be started"));
    }
    return *service;
}

// ---- What a wait needs of the service

namespace detail {

// Returns the executor for a coroutine that has no executor of its own and must not resume on this
// thread. If there is no other thread and none can be started, terminates.
template <class Platform> executor_ref service_executor() noexcept {
    const executor_ref worker = current_worker<Platform>();
    return worker ? worker : executor_ref(required_service<Platform>());
}

// Returns the executor for a coroutine that has no executor of its own and may also resume on this
// thread. If no thread can be started, the result refers to no executor.
template <class Platform> executor_ref spare_executor() noexcept {
    const executor_ref worker = current_worker<Platform>();
    if (worker) {
        return worker;
    }
    std::error_code error;
    auto* const service = started_service<Platform>(error);
    return service != nullptr ? executor_ref(*service) : executor_ref();
}

// Returns the simulation of this thread, which replaces the service.
template <class Platform> simulated_machine* simulation_here() noexcept {
    if constexpr (std::is_same_v<Platform, native_platform>) {
        return simulated_machine::here();
    } else {
        return nullptr;
    }
}

// Arms a time-out that no scheduler takes.
template <class Platform> void add_service_timer(timer& t) noexcept {
    if (auto* const simulated = simulation_here<Platform>()) [[unlikely]] {
        simulated->add_timer(t);
    } else {
        required_service<Platform>().add(t);
    }
}

// Arms the time-out of a wait that the running task is about to begin. If the task will resume on
// the scheduler of this worker, the timer goes to that scheduler. This is safe, because the task
// ends before its scheduler does. Every other timer goes to the service.
template <class Platform> void add_timer(timer& t) noexcept {
    const auto& here = worker_local<Platform>::get();
    if (here.host != nullptr && here.running != nullptr &&
        here.host->serves(here.running->goes_on_at())) {
        here.host->add_timer(t);
    } else {
        add_service_timer<Platform>(t);
    }
}

// Starts the service if it will take this thread's time-outs.
// Throws: std::system_error if the service cannot be started.
template <class Platform> void prepare_timers() {
    if (worker_local<Platform>::get().host == nullptr && simulation_here<Platform>() == nullptr) {
        timer_service<Platform>();
    }
}

} // namespace detail

BIDE_COMPILED_TEMPLATE(class basic_timer_queue<native_platform>)
BIDE_COMPILED_TEMPLATE(class basic_timer_service<native_platform>)
BIDE_COMPILED_TEMPLATE(class detail::basic_resumers<native_platform>)
BIDE_COMPILED_TEMPLATE(basic_timer_service<native_platform>& timer_service<native_platform>())
BIDE_COMPILED_TEMPLATE(executor_ref detail::service_executor<native_platform>() noexcept)
BIDE_COMPILED_TEMPLATE(executor_ref detail::spare_executor<native_platform>() noexcept)
BIDE_COMPILED_TEMPLATE(void detail::add_service_timer<native_platform>(timer&) noexcept)
BIDE_COMPILED_TEMPLATE(void detail::add_timer<native_platform>(timer&) noexcept)
BIDE_COMPILED_TEMPLATE(void detail::prepare_timers<native_platform>())

}} // namespace bide::BIDE_ABI

#endif
