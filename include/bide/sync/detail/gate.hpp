// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_DETAIL_GATE_HPP
#define BIDE_SYNC_DETAIL_GATE_HPP

// The wait of an event and of a latch: a gate that opens when a count reaches zero, and then lets
// every waiter through. Its state is one word:
//
//   bit 0, 1   the lock of the queue (core/lock_bits.hpp)
//   queued     there are waiters
//   count      the number of missing arrivals; the gate is open at zero
//
//   queued count
//     0      0    open
//     0      n    closed, no waiter
//     1      n    closed, waiters; while the lock is free, all are linked
//     1      0    never: one step sets both to zero
//
// A waiter decides to wait by one CAS under the lock (pass_or_queue). The CAS sets `queued` if the
// count is not zero, and fails if the gate has opened meanwhile. An arrival changes the same word:
// by a CAS if there are no waiters, under the lock if there are waiters. In both cases the step
// that makes the count zero is the arrival's last access to the gate. So a waiter that was let
// through may destroy the gate, if no other thread is about to enter the queue.
//
// An arrival at an open gate changes no bit. But the arrival is a read-modify-write of the word
// [gate.arrive], so a later shut() sees what came before the arrival. Suppose that a thread stores
// data and then arrives. Another thread shuts the gate, then looks for the data, and waits if it
// finds none:
//
//   arrive, then shut    the thread finds what was done before the arrival
//   shut, then arrive    the arrival finds the gate shut and opens it

#include <bide/core/result.hpp>
#include <bide/core/waiter.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// What the waits of a gate, a barrier and a notify have in common. In all three words, bits 0 and 1
// are the lock of the queue, and bit 2 is `queued`. The bits above are the state that a waiter
// waits for.
//
// A waiter decides to wait by one CAS, which also acquires the lock if no thread holds it.
// Otherwise the waiter acquires the lock first. If the word lets the waiter pass, the CAS releases
// the lock and the waiter is never queued. Otherwise the CAS sets `queued`. The CAS fails if the
// word has changed. Another thread may change the word without the lock, so that waiters may pass.
// If that change comes before the CAS, the CAS fails. If it comes after the CAS, that thread finds
// `queued`.
template <class Platform, class Word> struct pass_or_queue {
    using lock = lock_bits<Platform, Word>;
    using atomic = typename lock::atomic;
    using node = basic_waiter<Platform>;

    static constexpr Word queued = 4; // there are waiters

    // If `w` has to wait, enqueues `w` and returns waiting. If `w` may pass or was cancelled
    // before, stores the outcome in `w` and returns it. The call passes(seen) returns true if the
    // word `seen` lets `w` pass. A waiter that passes clears the bits of `taken` in the word.
    template <class Passes>
    static wait_status enqueue(node& w, atomic& at, basic_waiter_queue<Platform>& queue,
                               Passes passes, Word taken = 0) noexcept {
        // Order: relaxed; the CAS decides.
        Word seen = at.load(std::memory_order_relaxed);
        // If `w` has to wait and no thread holds the lock, one CAS acquires the lock and sets
        // `queued`.
        // Order: acquire; as lock_bits::acquire(), and as the CAS below. Failure: acquires the lock
        // first.
        if ((seen & lock::both) == 0 && !passes(seen) &&
            at.compare_exchange_strong(seen, static_cast<Word>(seen | lock::held | queued),
                                       std::memory_order_acquire, std::memory_order_relaxed)) {
            return push(w, at, queue);
        }
        seen = lock::acquire(at);
        for (;;) {
            const bool passed = passes(seen);
            if (passed && !w.claim()) {
                // `w` is a case of a select that has chosen another case. So `w` is not queued.
                lock::release(at);
                return wait_status::waiting;
            }
            const Word next = passed ? seen & ~(taken | lock::both) : seen | queued;
            // Order: acquire [gate.arrive], [barrier.phase] and [notify.notify]; the waiter sees
            // what was done before the earlier arrivals or notifications. No release order is
            // needed for the lock, because this call has accessed nothing under it. Failure: look
            // again.
            if (!at.compare_exchange_weak(seen, next, std::memory_order_acquire,
                                          std::memory_order_relaxed)) {
                if (passed) {
                    w.abandon();
                }
                continue;
            }
            if (passed) {
                w.commit();
                lock::wake_after(&at, seen);
                return settle_if_over(w, wait_status::granted);
            }
            return push(w, at, queue);
        }
    }

    // Takes `w` out of the queue and returns true. If the wait is decided, returns false. If `w` is
    // not queued yet, returns false, and a later enqueue() completes `w` with `why`.
    static bool cancel(node& w, wait_status why, atomic& at,
                       basic_waiter_queue<Platform>& queue) noexcept {
        lock::acquire(at);
        const bool decided = queue.withdraw(w, why);
        unlock(at, queue);
        return decided;
    }

    // If `queued` is clear, changes the word from `seen` to next(seen). If `queued` is set, only
    // acquires the lock, which the caller then holds. Returns `seen`, whose bit `queued` tells
    // these cases apart. Requires: next() does not change the bits of the lock.
    template <class Next> static Word change_or_lock(atomic& at, Next next) noexcept {
        // Order: relaxed; the CAS decides.
        Word seen = at.load(std::memory_order_relaxed);
        while ((seen & queued) == 0) {
            // Order: release [gate.arrive], [barrier.phase] and [notify.notify]; each waiter that
            // this step lets through, and each thread that changes the word later, sees what was
            // done before. This step may come while another thread holds the lock: the holder
            // queues a waiter by a CAS, which fails if this step came first. Failure: look again.
            if (at.compare_exchange_weak(seen, next(seen), std::memory_order_release,
                                         std::memory_order_relaxed)) {
                return seen;
            }
        }
        return lock_or_change(at, next);
    }

    static void require_no_waiters(atomic& at, basic_waiter_queue<Platform>& queue,
                                   const char* name, const void* object) noexcept {
        // Order: relaxed; this only checks a precondition.
        if ((at.load(std::memory_order_relaxed) & queued) != 0) {
            lock::acquire(at);
            queue.fatal_destroyed(name, object);
        }
    }

private:
    // Enqueues `w`, unless it was cancelled before. The caller holds the lock and has set `queued`.
    // Releases the lock.
    static wait_status push(node& w, atomic& at, basic_waiter_queue<Platform>& queue) noexcept {
        const wait_status what = queue.push_unless_forbidden(w);
        unlock(at, queue);
        return settle_if_over(w, what);
    }

    // Releases the lock, and clears `queued` if the queue is empty. Other threads may change the
    // bits of the state meanwhile.
    static void unlock(atomic& at, const basic_waiter_queue<Platform>& queue) noexcept {
        const Word cleared = lock::both | (queue.empty() ? queued : Word{0});
        // Order: release [lock_bits.release]; pairs with the next acquisition of the lock.
        lock::wake_after(&at, at.fetch_and(static_cast<Word>(~cleared), std::memory_order_release));
    }

    template <class Next> BIDE_NOINLINE static Word lock_or_change(atomic& at, Next next) noexcept {
        Word seen = lock::acquire(at);
        while ((seen & queued) == 0) { // the waiters have left meanwhile
            const Word unlocked = next(seen) & ~lock::both;
            // Order: release [gate.arrive], [barrier.phase], [notify.notify] and
            // [lock_bits.release]; each waiter that is let through sees what was done before. The
            // step also releases the lock.
            if (at.compare_exchange_weak(seen, unlocked, std::memory_order_release,
                                         std::memory_order_relaxed)) {
                lock::wake_after(&at, seen);
                break;
            }
        }
        return seen;
    }
};

template <class Platform> class basic_gate {
    using node = basic_waiter<Platform>;
    using waits = thread_wait<basic_gate, Platform>;

public:
    using word = std::uint64_t;

    static constexpr const char* waited_for = "event or latch";

    static constexpr std::ptrdiff_t(max)() noexcept {
        return (std::numeric_limits<std::ptrdiff_t>::max)() / static_cast<std::ptrdiff_t>(one);
    }

    constexpr explicit basic_gate(std::ptrdiff_t count) noexcept
        : word_(static_cast<word>(count) * one) {}
    basic_gate& operator=(basic_gate&&) = delete;

    void require_no_waiters(const char* name, const void* object) noexcept {
        entry::require_no_waiters(word_, queue_, name, object);
    }

    // Order: acquire [gate.arrive]; if the gate is open, the caller sees what was done before it
    // opened.
    bool is_open() const noexcept { return word_.load(std::memory_order_acquire) / one == 0; }

    // Lowers the count by n. If the count is less than n, leaves it unchanged and returns false. In
    // both cases the arrival happens before the next shut().
    bool arrive(word n) noexcept {
        // Even if this step changes no bit, a later shut() synchronizes with it.
        const auto lowered = [n](word from) noexcept {
            return from / one >= n ? from - n * one : from;
        };
        const word seen = entry::change_or_lock(word_, lowered);
        if ((seen & queued) != 0) {
            word next = lowered(seen) & ~lock::both;
            basic_wake_list<Platform> passed;
            if (next / one == 0) {
                queue_.pop_all(passed);
                next = 0;
            }
            lock::release_as(word_, next);
            passed.publish(wait_status::granted);
        }
        return seen / one >= n;
    }

    // If the gate is open, sets the count to one. If it is closed, changes nothing.
    // Requires: the count was never more than one.
    // Order: acquire [gate.arrive]; every earlier arrival happens before this shut(), even if
    // another shut() came in between.
    void shut() noexcept { word_.fetch_or(one, std::memory_order_acquire); }

    void wait() noexcept { wait_until(deadline::never()); }
    // Waits as wait() does, without a spin: for many threads that wait for a long time.
    void sleep_until_open() noexcept {
        if (!is_open()) {
            static_cast<void>(waits::until(*this, 1, deadline::never()));
        }
    }
    bool wait_until(deadline end) noexcept {
        return is_open() || (!end.is_poll() && spin()) ||
               waits::until(*this, 1, end) == wait_status::granted;
    }
    result<void> wait(const typename Platform::stop_token& token) noexcept {
        return result_of(is_open() || (!token.stop_requested() && spin())
                             ? wait_status::granted
                             : waits::until(*this, 1, token));
    }
    basic_async_op<void, Platform> async_wait() noexcept { return {passing{*this}}; }

    // The operation of async_wait() (core/wait_ops.hpp).
    struct passing {
        basic_gate& at;

        const auto& primitive() const noexcept { return at; }
        wait_status try_now() const noexcept {
            return at.is_open() ? wait_status::granted : wait_status::waiting;
        }
        wait_status enqueue(node& w) const noexcept { return at.enqueue(w); }
        bool cancel(node& w, wait_status why) const noexcept { return at.cancel(w, why); }
        result<void> collect(wait_status what) const noexcept { return result_of(what); }
    };

    // Called by waits. Enqueues `w` and returns waiting, or completes `w` and returns its status.
    wait_status enqueue(node& w) noexcept {
        const auto is_open = [](word seen) noexcept { return seen / one == 0; };
        // Order: acquire [gate.arrive]; a waiter that passes sees what was done before the gate
        // opened.
        return entry::enqueue(w, word_, queue_, is_open);
    }
    // Cancels the wait of `w`. Returns true if this call decided the wait.
    bool cancel(node& w, wait_status why) noexcept { return entry::cancel(w, why, word_, queue_); }
    // The thread does not spin here, because it has spun before it was queued.
    bool await(node& w, deadline end) noexcept { return w.sleep_through(end); }

private:
    using lock = lock_bits<Platform, word>;
    using entry = pass_or_queue<Platform, word>;

    static constexpr word queued = entry::queued;
    static constexpr word one = 8; // in the count

    // Spins on the word. A thread spins before it is queued, because threads enter the queue one
    // after the other, and the last arrival wakes them one after the other.
    bool spin() const noexcept {
        return basic_spin<Platform>::until([this]() noexcept { return is_open(); });
    }

    typename Platform::template atomic<word> word_;
    basic_waiter_queue<Platform> queue_;
};

} // namespace detail

BIDE_COMPILED_TEMPLATE(class detail::basic_gate<native_platform>)
BIDE_COMPILED_TEMPLATE(struct thread_wait<detail::basic_gate<native_platform>, native_platform>)

}} // namespace bide::BIDE_ABI

#endif
