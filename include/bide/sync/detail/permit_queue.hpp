// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_DETAIL_PERMIT_QUEUE_HPP
#define BIDE_SYNC_DETAIL_PERMIT_QUEUE_HPP

// A count of permits and the queue of the waiters for permits. It implements a semaphore, a mutex
// and a shared_mutex. A mutex has one permit. A reader of a shared_mutex takes one permit, and a
// writer takes all. If there are waiters, released permits go to the head of the queue and never
// appear in the count. (The design is the batch semaphore of blitz-io and Tokio. Here one word
// decides whether a caller waits.)
//
// The word:
//
//   bit 0, 1   the lock of the queue (core/lock_bits.hpp)
//   queued     there are waiters
//   closed     every acquire fails
//   count      queued clear: the free permits; queued set: the number of waiters
//
//   queued closed count
//     0      0      n    n permits are free, no waiter
//     1      0      n    no permit is free, n > 0 waiters; while the lock is free, all are linked
//     0      1      n    closed; n permits were given back, no waiter
//     1      1           never: close() fails every waiter, and later no waiter is queued
//
// Why no wakeup is lost: suppose that a waiter read the count in one step and entered the queue in
// a second step. A release between the two steps would see no waiter, and the waiter would miss the
// released permits. Here one CAS does both: it takes the free permits and, if these are too few,
// sets `queued`. The waiter acquires the lock of the queue by that CAS, or holds it already. A
// release changes the same word:
//
//   release, then the waiter's CAS    the CAS takes the permits, or fails and is retried
//   the waiter's CAS, then release    the release finds `queued` and acquires the lock. Then it
//                                     finds the waiter, which held the lock until it was linked
//
// One word holds the whole state, so acquire and release order suffice and no step needs seq_cst.
// An uncontended acquire or release is one CAS that takes no lock.
//
// Last access. If there are no waiters, a release ends with its CAS. If there are waiters, it
// releases the lock and stores the surplus permits by one step. Then it publishes the grants, each
// by one exchange on the waiter's own word (core/waiter.hpp), and wakes sleepers by address. So a
// caller whose acquire succeeds may destroy the semaphore, even if releasers have not returned. (If
// a release were a fetch_add, it would have to look for waiters afterwards. Another thread could
// already have taken the permits and destroyed the semaphore.)

#include <bide/core/waiter.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

template <class Platform> class basic_permit_queue {
public:
    static constexpr const char* waited_for = "semaphore or lock";
    using node = basic_waiter<Platform>; // its amount: the permits that it asks for, at most max()
    using word = std::uint64_t;

    static constexpr std::ptrdiff_t(max)() noexcept {
        constexpr auto most = static_cast<word>((std::numeric_limits<std::ptrdiff_t>::max)() / 2);
        constexpr word that_fit = (std::numeric_limits<std::int64_t>::max)() / one;
        return static_cast<std::ptrdiff_t>(most < that_fit ? most : that_fit);
    }

    constexpr explicit basic_permit_queue(std::ptrdiff_t permits) noexcept
        : word_(static_cast<word>(permits) * one) {}
    basic_permit_queue& operator=(basic_permit_queue&&) = delete;

    void require_no_waiters(const char* name, const void* object) const noexcept {
        if (const auto waiting = count_if(queued); waiting != 0) {
            fatal_destroyed(name, object, waiting);
        }
    }

    // Snapshots: each may be outdated when the caller reads it.
    std::ptrdiff_t available() const noexcept { return static_cast<std::ptrdiff_t>(count_if(0)); }
    std::size_t waiters() const noexcept { return static_cast<std::size_t>(count_if(queued)); }

    // Order: acquire [permit.release]; if the result is true, the caller sees what came before
    // close().
    bool is_closed() const noexcept {
        return (word_.load(std::memory_order_acquire) & closed) != 0;
    }

    // Takes n permits. Returns false if the queue is closed. For n > 0, also returns false if there
    // are waiters or if fewer than n permits are free.
    bool try_take(word n) noexcept {
        // Order: relaxed; the CAS decides.
        word seen = word_.load(std::memory_order_relaxed);
        while ((seen & closed) == 0 && (n == 0 || ((seen & queued) == 0 && seen / one >= n))) {
            // Order: acquire [permit.release]; the caller sees what came before the release.
            // Failure: look again.
            if (n == 0 ||
                word_.compare_exchange_weak(seen, seen - n * one, std::memory_order_acquire,
                                            std::memory_order_relaxed)) {
                return true;
            }
        }
        return false;
    }
    // Gives n permits. If more than `limit` would then be free, does nothing and returns false.
    bool give(word n, word limit = static_cast<word>((max)())) noexcept {
        // Order: relaxed; the CAS decides.
        word seen = word_.load(std::memory_order_relaxed);
        while ((seen & queued) == 0) {
            if (seen / one > limit - n) {
                return false;
            }
            // Order: release [permit.release]; the caller that takes the permits sees what was done
            // before. Another thread may hold the lock. That thread changes the word by a CAS,
            // which fails if this step came first.
            if (word_.compare_exchange_weak(seen, seen + n * one, std::memory_order_release,
                                            std::memory_order_relaxed)) {
                return true;
            }
        }
        return give_slow(n, limit);
    }
    // Gives n permits, or as many of them as fit below max().
    BIDE_NOINLINE void give_fitting(word n) noexcept {
        while (n != 0 && !give(n)) {
            const word free = static_cast<word>(available());
            constexpr auto most = static_cast<word>((max)());
            const word room = free < most ? most - free : 0;
            n = n < room ? n : room;
        }
    }

    // take_known() and give_known() are try_take() and give() without the load. Their CAS expects a
    // count of `free` and no waiters. If the word differs, they do nothing and return false.
    bool take_known(word free, word n) noexcept {
        word expected = free * one;
        // Order: acquire [permit.release]; the caller sees what came before the release.
        return word_.compare_exchange_strong(expected, expected - n * one,
                                             std::memory_order_acquire, std::memory_order_relaxed);
    }
    bool give_known(word free, word n) noexcept {
        word expected = free * one;
        // Order: release [permit.release]; the caller that takes the permits sees what was done
        // before.
        return word_.compare_exchange_strong(expected, expected + n * one,
                                             std::memory_order_release, std::memory_order_relaxed);
    }

    // If `w` has to wait, enqueues it and returns waiting. If not, completes it and returns its
    // status.
    wait_status enqueue(node& w) noexcept { return settle_if_over(w, link(w)); }

    // Does the same, but does not complete `w`: the caller completes it with the returned status.
    wait_status link(node& w) noexcept { return link(w, snapshot(), false); }

    // Enqueues `w` in front of all waiters, because the caller holds permits that these waiters
    // wait for. If the first waiter was granted a part of its permits, `w` gets that part.
    // shared_mutex.hpp defines this function.
    wait_status enqueue_first(node& w) noexcept;

    // The functions of a loan. A loan is a number of permits. A biased_shared_mutex holds them
    // while there are no waiters, and gives them back before the first writer waits.
    // biased_shared_mutex.hpp defines these three functions.
    //
    // If n permits are free, there are no waiters and wanted() returns true, takes n permits and
    // calls open(), under the lock of the queue. Requires: the caller has a permit.
    template <class Wanted, class Open> void lend(word n, Wanted&& wanted, Open&& open) noexcept;
    // Calls the argument `recall` under the lock of the queue. The argument returns the number of
    // permits that come back, zero if there was no loan. These permits become free.
    template <class Recall> void recall(Recall&& recall) noexcept;
    // Does recall() and then enqueue(), and holds the lock in between.
    template <class Recall> wait_status recall_and_enqueue(node& w, Recall&& recall) noexcept;

    // Cancels the wait of `w`. If `w` was granted a part of its permits, that part goes to the
    // waiters behind `w`. Returns true if this call decided the wait. If the wait was decided
    // before, returns false. If `w` is not queued yet, returns false, and a later enqueue()
    // completes `w` with `why`.
    bool cancel(node& w, wait_status why) noexcept {
        const word seen = lock::acquire(word_);
        if (!w.is_queued()) {
            w.forbid(why);
            lock::release(word_);
            return false;
        }
        withdraw(w, seen / one);
        return true;
    }

    // Fails every present and later waiter. Returns true if this call closed the queue.
    BIDE_NOINLINE bool close() noexcept {
        word seen = lock::acquire(word_);
        while ((seen & queued) == 0) {
            // Order: release [permit.release]; every acquire that fails sees what was done before
            // close(). Failure: look again.
            if (word_.compare_exchange_weak(seen, (seen | closed) & ~lock::both,
                                            std::memory_order_release, std::memory_order_relaxed)) {
                lock::wake_after(&word_, seen);
                return (seen & closed) == 0;
            }
        }
        const node& head = queue_.front();
        const word had = static_cast<word>(head.amount() - head.missing);
        wake_list failed;
        queue_.pop_all(failed);
        lock::release_as(word_, closed | had * one);
        failed.publish(wait_status::closed);
        return true;
    }

    // Removes at most n free permits. Returns the number of removed permits.
    BIDE_NOINLINE auto forget(word n) noexcept -> word {
        // Order: relaxed; the CAS decides.
        word seen = word_.load(std::memory_order_relaxed);
        while ((seen & queued) == 0) {
            const word free = seen / one;
            const word taken = free < n ? free : n;
            // Order: acquire [permit.release]; the caller sees what came before the release.
            // Failure: look again.
            if (word_.compare_exchange_weak(seen, seen - taken * one, std::memory_order_acquire,
                                            std::memory_order_relaxed)) {
                return taken;
            }
        }
        return 0;
    }

    // The functions by which an operation waits for permits (core/wait_ops.hpp), except collect().
    struct taking {
        basic_permit_queue& from;
        std::ptrdiff_t amount;

        const auto& primitive() const noexcept { return from; }
        wait_status try_now() const noexcept {
            return from.try_take(static_cast<word>(amount)) ? wait_status::granted
                   : from.is_closed()                       ? wait_status::closed
                                                            : wait_status::waiting;
        }
        wait_status enqueue(node& w) const noexcept {
            w.ask(amount);
            return from.enqueue(w);
        }
        bool cancel(node& w, wait_status why) const noexcept { return from.cancel(w, why); }
    };

private:
    using lock = lock_bits<Platform, word>;
    using wake_list = basic_wake_list<Platform>;

    static constexpr word queued = 4;
    static constexpr word closed = 8;
    static constexpr word one = 16; // in the count

    // Order: relaxed; the number may be outdated when the caller reads it.
    word snapshot() const noexcept { return word_.load(std::memory_order_relaxed); }
    word count_if(word which) const noexcept {
        const word seen = snapshot();
        return (seen & queued) == which ? seen / one : 0;
    }

    // Decides by one CAS whether `w` has to wait. If it has to, enqueues `w` and returns waiting.
    // If not, returns the outcome of `w`. `seen` is the word as the caller has read it. If `locked`
    // is true, the caller holds the lock. On return the caller does not hold the lock.
    BIDE_NOINLINE wait_status link(node& w, word seen, bool locked) noexcept {
        const word need = static_cast<word>(w.amount());
        for (;;) {
            if (!locked && (seen & lock::held) != 0) {
                seen = lock::acquire(word_);
                locked = true;
            }
            const bool none = (seen & queued) != 0;
            const word free = none ? 0 : seen / one;
            const bool refused = (seen & closed) != 0;
            const bool enough = refused || free >= need;
            const word locks = seen & lock::both;
            word next = none ? (seen | lock::held) + one : queued | one | lock::held | locks;
            if (enough) {
                next = (refused ? seen : seen - need * one) & ~(locked ? lock::both : word{0});
            }
            if (enough && !w.claim()) { // the select has chosen another case: not queued
                if (locked) {
                    lock::release(word_);
                }
                return wait_status::waiting;
            }
            // Order: acquire [permit.release], for the permits that are taken, and
            // [lock_bits.release], for the queue under the lock. No release order is needed where
            // the CAS releases the lock: before the CAS, only recalled() may have accessed data
            // under the lock, and it has a release of its own. Failure: look again.
            if (!word_.compare_exchange_weak(seen, next, std::memory_order_acquire,
                                             std::memory_order_relaxed)) {
                if (enough) {
                    w.abandon();
                }
                continue;
            }
            if (enough) {
                w.commit();
                if (locked) {
                    lock::wake_after(&word_, seen);
                }
                return refused ? wait_status::closed : wait_status::granted;
            }
            w.missing = static_cast<std::ptrdiff_t>(need - free);
            queue_.push(w);
            if (const wait_status forbidden = w.forbidden(); forbidden != wait_status::waiting) {
                withdraw(w, next / one);
                return forbidden;
            }
            lock::release_as(word_, next & ~lock::both);
            return wait_status::waiting;
        }
    }
    template <class Recall> word recalled(Recall& recall) noexcept;
    BIDE_NOINLINE bool give_slow(word n, word limit) noexcept {
        word seen = lock::acquire(word_);
        while ((seen & queued) == 0) {
            const bool overflow = seen / one > limit - n;
            const word next = (overflow ? seen : seen + n * one) & ~lock::both;
            // Order: release [permit.release] and [lock_bits.release]; the caller that takes the
            // permits sees what was done before, and the step releases the lock.
            if (word_.compare_exchange_weak(seen, next, std::memory_order_release,
                                            std::memory_order_relaxed)) {
                lock::wake_after(&word_, seen);
                return !overflow;
            }
        }
        queue_.prefetch_front();
        wake_list granted;
        lock::release_as(word_, serve(n, seen / one, granted));
        granted.publish(wait_status::granted);
        return true;
    }
    // Grants `free` permits to the waiters, in the order of the queue. The last waiter that gets
    // permits may get only a part of those that it asked for. Returns the word that the caller
    // stores next. Requires: the lock is held, and `waiting` waiters are queued.
    BIDE_NOINLINE auto serve(word free, word waiting, wake_list& granted) noexcept -> word {
        while (waiting != 0) {
            node& head = queue_.front();
            const word missing = static_cast<word>(head.missing);
            if (missing > free && !head.is_lost()) {
                head.missing = static_cast<std::ptrdiff_t>(missing - free);
                return queued | waiting * one;
            }
            queue_.remove(head);
            --waiting;
            if (missing <= free && head.claim()) {
                head.commit();
                free -= missing;
                granted.push(head);
                BIDE_PROBE(hand_over, this, &head, head.amount());
            } else { // the select has chosen another case: its permits go to the next waiter
                free += static_cast<word>(head.amount()) - missing;
            }
        }
        return free * one;
    }
    // Takes `w` out of the queue. If `w` was granted a part of its permits, grants that part to the
    // waiters behind `w`. Releases the lock.
    // Requires: the lock is held, and `waiting` waiters are queued.
    BIDE_COLD void withdraw(node& w, word waiting) noexcept {
        queue_.remove(w);
        w.withdrawn();
        wake_list granted;
        const word had = static_cast<word>(w.amount() - w.missing);
        lock::release_as(word_, serve(had, waiting - 1, granted));
        granted.publish(wait_status::granted);
    }

    typename Platform::template atomic<word> word_;
    basic_waiter_queue<Platform> queue_;
};

} // namespace detail

BIDE_COMPILED_TEMPLATE(class detail::basic_permit_queue<native_platform>)
BIDE_COMPILED_TEMPLATE(
    struct thread_wait<detail::basic_permit_queue<native_platform>, native_platform>)

}} // namespace bide::BIDE_ABI

#endif
