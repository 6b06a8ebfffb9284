#ifndef BIDE_SYNC_DETAIL_PERMIT_QUEUE_HPP
#define BIDE_SYNC_DETAIL_PERMIT_QUEUE_HPP

// A count of permits and the queue of those who wait for some: what a semaphore is, and what a
// mutex (one permit) and a shared mutex (a reader takes one, a writer all) are made of. Permits
// that are given while somebody waits go to the head of the queue and never show up in the count.
// (The batch semaphore of blitz-io and Tokio, with the decision to wait moved into one word.)
//
// That word:
//
//   bit 0, 1   the lock of the queue (core/lock_bits.hpp)
//   queued     somebody waits
//   closed     no more acquires
//   count      queued clear: free permits; queued set: how many wait
//
//   queued closed count
//     0      0      n    n permits are free, nobody waits
//     1      0      n    no permit is free, n > 0 wait, linked whenever the lock is free
//     0      1      n    closed; n permits were given back, nobody waits
//     1      1           never: closing fails everybody, and nobody queues afterwards
//
// "A permit is free while somebody waits" cannot be written down in it. That is also why no wakeup
// is lost. The trap is the window between finding too few permits and being in the queue: a release
// that falls into it sees no waiter and puts its permits where the waiter has already looked. Here
// one CAS of the waiter's takes what is free and, where that is not enough, sets `queued` in the
// same step, with the queue's lock taken in it or held before. A release is a change of the same
// word:
//
//   release, then the waiter's CAS    the CAS takes the permits, or fails and is made again
//   the waiter's CAS, then release    it finds `queued`, goes for the lock, and by the time it gets
//                                     it the waiter is linked, for the lock was held until it was
//
// There is no second variable to be read too early, hence no pair and no seq_cst: acquire and
// release on one word are enough, and an uncontended acquire or release is one CAS that takes no
// lock.
//
// Last touches. A release without waiters ends with its CAS, one with waiters lets go of the lock
// by the step that also leaves the surplus; only then are the grants published, each by one
// exchange on the waiter's own word (core/waiter.hpp), and sleepers woken by address. So whoever
// sees its acquire succeed may destroy the semaphore, whatever the releasers are still doing. (A
// fetch_add would let others spend the permits before the releaser had finished.)

#include <bide/core/async_op.hpp>
#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/waiter.hpp>
#include <bide/core/waiter_queue.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_permit_queue {
public:
    using node = basic_waiter<Platform>; // its amount: the permits asked for, at most max()
    using word = std::uint64_t;

    static constexpr std::ptrdiff_t(max)() noexcept {
        return (std::numeric_limits<std::ptrdiff_t>::max)() / static_cast<std::ptrdiff_t>(one);
    }

    constexpr explicit basic_permit_queue(std::ptrdiff_t permits) noexcept
        : word_(static_cast<word>(permits) * one) {}
    basic_permit_queue(const basic_permit_queue&) = delete;
    basic_permit_queue& operator=(const basic_permit_queue&) = delete;

    // For destructors: terminates with the primitive's name where somebody waits.
    void require_no_waiters(const char* name, const void* object) const noexcept {
        if (const auto waiting = count_if(queued); waiting != 0) {
            fatal_destroyed(name, object, waiting);
        }
    }

    // Snapshots.
    std::ptrdiff_t available() const noexcept { return static_cast<std::ptrdiff_t>(count_if(0)); }
    std::size_t waiters() const noexcept { return static_cast<std::size_t>(count_if(queued)); }
    bool is_closed() const noexcept { return (snapshot() & closed) != 0; }

    // Takes n if they are free, nobody waits and it is not closed.
    bool try_take(word n) noexcept;

    // Gives n. False: more than `limit` would be free, nothing was done.
    bool give(word n, word limit = (max)()) noexcept;

    // Gives n, or as many of them as fit below max().
    void give_fitting(word n) noexcept;

    // As give() where the count is most likely `free` and the queue empty: a CAS from there saves the
    // load.
    // False: it is not, or somebody waits; nothing was done.
    bool take_known(word free, word n) noexcept;
    bool give_known(word free, word n) noexcept;

    // Queues `w` (answers waiting), or completes it at once (answers and settles its outcome).
    wait_status enqueue(node& w) noexcept;

    // Ends the wait of `w`; what it had in part goes to those behind. False: it is decided already,
    // or not queued yet, and queueing it will be refused with `why`.
    bool cancel(node& w, wait_status why) noexcept;

    // Fails who waits and who comes. True the first time.
    bool close() noexcept;

    // Takes up to n free ones away; says how many.
    word forget(word n) noexcept;

    // For wait_ops; target.queue is the permit_queue.
    static wait_status try_now(const wait_target& t) noexcept {
        auto& q = self(t);
        return q.try_take(static_cast<word>(t.amount)) ? wait_status::granted
               : q.is_closed()                         ? wait_status::closed
                                                       : wait_status::waiting;
    }
    static bool enqueue_op(const wait_target& t, node& w) noexcept {
        return self(t).enqueue(w) != wait_status::waiting;
    }
    static bool cancel_op(const wait_target& t, node& w, wait_status why) noexcept {
        return self(t).cancel(w, why);
    }

private:
    using lock = lock_bits<Platform, word>;
    using wake_list = basic_wake_list<Platform>;

    static constexpr word queued = 4;
    static constexpr word closed = 8;
    static constexpr word one = 16; // in the count

    static basic_permit_queue& self(const wait_target& t) noexcept {
        return *static_cast<basic_permit_queue*>(t.queue);
    }

    // Order: relaxed; a number that may be old by the time it is looked at.
    word snapshot() const noexcept { return word_.load(std::memory_order_relaxed); }
    word count_if(word which) const noexcept {
        const word seen = snapshot();
        return (seen & queued) == which ? seen / one : 0;
    }

    bool give_slow(word n, word limit) noexcept;
    word serve(word free, word waiting, wake_list& granted) noexcept;
    void withdraw(node& w, word waiting) noexcept;

    typename Platform::template atomic<word> word_;
    basic_waiter_queue<Platform> queue_;
};

template <class Platform> bool basic_permit_queue<Platform>::try_take(word n) noexcept {
    // Order: relaxed; the CAS decides.
    word seen = word_.load(std::memory_order_relaxed);
    while ((seen & closed) == 0 && (n == 0 || ((seen & queued) == 0 && seen / one >= n))) {
        // Order: acquire [S1]; what was done before the permits were released. Failure: look again.
        if (n == 0 || word_.compare_exchange_weak(seen, seen - n * one, std::memory_order_acquire,
                                                  std::memory_order_relaxed)) {
            return true;
        }
    }
    return false;
}

template <class Platform>
bool basic_permit_queue<Platform>::take_known(word free, word n) noexcept {
    word expected = free * one;
    // Order: acquire [S1]; as in try_take.
    return word_.compare_exchange_strong(expected, expected - n * one, std::memory_order_acquire,
                                         std::memory_order_relaxed);
}

template <class Platform>
bool basic_permit_queue<Platform>::give_known(word free, word n) noexcept {
    word expected = free * one;
    // Order: release [S1]; as in give.
    return word_.compare_exchange_strong(expected, expected + n * one, std::memory_order_release,
                                         std::memory_order_relaxed);
}

template <class Platform> bool basic_permit_queue<Platform>::give(word n, word limit) noexcept {
    // Order: relaxed; the CAS decides.
    word seen = word_.load(std::memory_order_relaxed);
    while ((seen & queued) == 0) {
        if (seen / one > limit - n) {
            return false;
        }
        // Order: release [S1]; what was done before is seen by who takes the permits. It ignores
        // the lock: a waiter that holds it has not decided yet, and its CAS will see this one.
        if (word_.compare_exchange_weak(seen, seen + n * one, std::memory_order_release,
                                        std::memory_order_relaxed)) {
            return true;
        }
    }
    return give_slow(n, limit);
}

// Decides and queues, or completes at once.
template <class Platform> wait_status basic_permit_queue<Platform>::enqueue(node& w) noexcept {
    const word need = static_cast<word>(w.amount);
    bool locked = false;
    // Order: relaxed; the CAS decides.
    word seen = word_.load(std::memory_order_relaxed);
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
        if (enough && !w.claim()) { // its choice fell on another wait, so it need not even queue
            if (locked) {
                lock::release(word_);
            }
            return wait_status::waiting;
        }
        // Order: acquire [S1], for the permits that are taken, and [lock_bits.release], for the
        // queue behind the lock. Where it lets go of the lock, nothing was read or written behind
        // it. Failure: look again.
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
            const wait_status what = refused ? wait_status::closed : wait_status::granted;
            w.settle(what);
            return what;
        }
        w.missing = static_cast<std::ptrdiff_t>(need - free);
        queue_.push(w);
        if (const wait_status forbidden = w.forbidden(); forbidden != wait_status::waiting) {
            withdraw(w, next / one);
            w.settle(forbidden);
            return forbidden;
        }
        lock::release_as(word_, next & ~lock::both);
        return wait_status::waiting;
    }
}

// Hands `free` permits to the head of the queue and on, in part where need be. Under the lock, with
// `waiting` in the queue; returns the word to leave.
template <class Platform>
auto basic_permit_queue<Platform>::serve(word free, word waiting, wake_list& granted) noexcept
    -> word {
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
        } else { // its choice fell on another wait: what it had in part goes on
            free += static_cast<word>(head.amount) - missing;
        }
    }
    return free * one;
}

template <class Platform>
bool basic_permit_queue<Platform>::give_slow(word n, word limit) noexcept {
    word seen = lock::acquire(word_);
    while ((seen & queued) == 0) {
        const bool overflow = seen / one > limit - n;
        const word next = (overflow ? seen : seen + n * one) & ~lock::both;
        // Order: release [S1] and [lock_bits.release]; as in give, and it lets go of the lock.
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

template <class Platform> void basic_permit_queue<Platform>::give_fitting(word n) noexcept {
    while (n != 0 && !give(n)) {
        const word free = static_cast<word>(available());
        const word room = free < (max)() ? (max)() - free : 0;
        n = n < room ? n : room;
    }
}

// Takes `w` out, with the lock held and `waiting` in the queue, serves on with what it had, lets
// go.
template <class Platform>
void basic_permit_queue<Platform>::withdraw(node& w, word waiting) noexcept {
    queue_.remove(w);
    w.withdrawn();
    wake_list granted;
    const word had = static_cast<word>(w.amount - w.missing);
    lock::release_as(word_, serve(had, waiting - 1, granted));
    granted.publish(wait_status::granted);
}

// The end of a wait by its owner, a stop or a time-out. True: decided by this call.
template <class Platform>
bool basic_permit_queue<Platform>::cancel(node& w, wait_status why) noexcept {
    const word seen = lock::acquire(word_);
    if (!w.is_queued()) {
        w.forbid(why);
        lock::release(word_);
        return false;
    }
    withdraw(w, seen / one);
    return true;
}

template <class Platform> bool basic_permit_queue<Platform>::close() noexcept {
    word seen = lock::acquire(word_);
    while ((seen & queued) == 0) {
        // Order: release [S1]; what was done before is seen by whom it refuses. Of the queue
        // behind the lock nothing was read or written. Failure: look again.
        if (word_.compare_exchange_weak(seen, (seen | closed) & ~lock::both,
                                        std::memory_order_release, std::memory_order_relaxed)) {
            lock::wake_after(&word_, seen);
            return (seen & closed) == 0;
        }
    }
    const node& head = queue_.front();
    const word had = static_cast<word>(head.amount - head.missing);
    wake_list failed;
    queue_.pop_all(failed);
    lock::release_as(word_, closed | had * one);
    failed.publish(wait_status::closed);
    return true;
}

template <class Platform> auto basic_permit_queue<Platform>::forget(word n) noexcept -> word {
    // Order: relaxed; the CAS decides.
    word seen = word_.load(std::memory_order_relaxed);
    while ((seen & queued) == 0) {
        const word free = seen / one;
        const word taken = free < n ? free : n;
        // Order: acquire [S1]; it takes permits as an acquire does. Failure: look again.
        if (word_.compare_exchange_weak(seen, seen - taken * one, std::memory_order_acquire,
                                        std::memory_order_relaxed)) {
            return taken;
        }
    }
    return 0;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
