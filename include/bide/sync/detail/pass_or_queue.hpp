// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_DETAIL_PASS_OR_QUEUE_HPP
#define BIDE_SYNC_DETAIL_PASS_OR_QUEUE_HPP

// The steps of a wait that the gates and the notify queue share. Their words have the lock of the
// queue in bits 0 and 1, `queued` in bit 2, and above it the state that a waiter waits for.
//
// The decision is one CAS under the lock. If the word lets the waiter pass, the CAS releases the
// lock and the waiter is never queued. Otherwise the CAS sets `queued`. The CAS fails if the word
// has changed. So a step that lets waiters pass without the lock either comes first, or finds
// `queued`.

#include <bide/core/config.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/wait_status.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waiter_queue.hpp>

namespace bide { inline namespace BIDE_ABI { namespace detail {

template <class Platform, class Word> struct pass_or_queue {
    using lock = lock_bits<Platform, Word>;
    using atomic = typename lock::atomic;
    using node = basic_waiter<Platform>;

    static constexpr Word queued = 4; // there are waiters

    // Enqueues `w` and returns waiting. If `w` may pass, or was cancelled before, settles `w`
    // instead and returns its status. passes(seen) returns true if the word `seen` lets `w` pass. A
    // waiter that passes clears the bits of `taken`. If `w` does not pass, unlock(next) releases
    // the lock; `next` is the word that the CAS stored.
    template <class Passes, class Unlock>
    static wait_status enqueue(node& w, atomic& at, basic_waiter_queue<Platform>& queue,
                               Passes passes, Word taken, Unlock unlock) noexcept {
        Word seen = lock::acquire(at);
        for (;;) {
            const bool passed = passes(seen);
            if (passed && !w.claim()) {
                // Its choice selected another wait, so this one need not queue.
                lock::release(at);
                return wait_status::waiting;
            }
            const Word next = passed ? seen & ~(taken | lock::both) : seen | queued;
            // Order: acquire [gate.arrive], [barrier.phase] and [notify.notify]; the waiter sees what
            // was done before the arrivals or notifications so far. If the step releases the lock,
            // nothing was read or written under it. Failure: look again.
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
            const wait_status what = queue.push_unless_forbidden(w);
            unlock(next);
            return settle_if_over(w, what);
        }
    }

    // Takes `w` out of the queue. Returns false if the wait is decided, or is not queued yet. If it
    // is not queued yet, a later enqueue() refuses it with `why`. If `w` was queued, unlock(seen)
    // releases the lock; `seen` is the word that the acquisition of the lock returned.
    template <class Unlock>
    static bool cancel(node& w, wait_status why, atomic& at, basic_waiter_queue<Platform>& queue,
                       Unlock unlock) noexcept {
        const Word seen = lock::acquire(at);
        const bool decided = queue.withdraw(w, why);
        if (decided) {
            unlock(seen);
        } else {
            lock::release(at);
        }
        return decided;
    }

    static void require_no_waiters(atomic& at, basic_waiter_queue<Platform>& queue,
                                   const char* name, const void* object) noexcept {
        // Order: relaxed; a check of a precondition, nothing is read behind it.
        if ((at.load(std::memory_order_relaxed) & queued) != 0) {
            lock::acquire(at);
            queue.fatal_destroyed(name, object);
        }
    }
};

}}} // namespace bide::BIDE_ABI::detail

#endif
