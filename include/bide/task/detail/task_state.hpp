#ifndef BIDE_TASK_DETAIL_TASK_STATE_HPP
#define BIDE_TASK_DETAIL_TASK_STATE_HPP

// What a spawned task is doing, who wants what of it, and how long it lives, in one word:
//
//   bits    name        set while
//   0       active      it is queued or runs; clear: it waits (but not where it waits for children
//                       though it is cancelled: no interruption is to come then)
//   1       claimed     somebody who cancels it is at its wait, which stays where it is
//   2       notified    its wait was decided while claimed: who claimed it wakes it
//   3       complete    it has ended; its outcome stands
//   4       cancelled   cancel() was called; never cleared
//   5       kept        somebody may still ask for the outcome: a join handle
//   16..31  shields     how many keep a cancellation from taking effect
//   32..63  references  who may still touch the header
//
//   active claimed notified complete
//     1       0       0        0      queued or running
//     0       0       0        0      waiting
//     0       1       0        0      waiting, being interrupted
//     0       1       1        0      woken, still being interrupted
//     1       0       0        1      ended
//   (anything else: never)
//
// One suspension has one wake, by whoever decided the wait, so a wake never meets a queued task. It
// may meet one that is on its way into its wait: the task has been made `waiting` before its node
// was queued, so it is scheduled like any other and may run elsewhere before its old worker has
// left it.
//
// A cancellation [K1] must end a wait without a race for its node. Who sets `cancelled` and finds
// the task waiting claims it in the same step. While claimed it is not resumed: the wake that a
// decided wait brings is noted only. So the node outlives the interruption, and the interruption's
// end schedules the task if it was decided by then, by itself or by others. A task that finds that
// it need not wait (its node was refused or granted on the way into the queue) waits for the end of
// a claim. Whoever is cancelled while active, or shielded, sees it when it begins its next wait.

#include <bide/core/backoff.hpp>
#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>

#include <cstdint>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_task_state {
public:
    using word = std::uint64_t;

    // Active; with so many references, and kept or not.
    constexpr basic_task_state(word references, bool keep) noexcept
        : word_(references * reference | active | (keep ? kept : 0)) {}
    basic_task_state(const basic_task_state&) = delete;
    basic_task_state& operator=(const basic_task_state&) = delete;

    // --- the task

    // It is going to wait. False: it is cancelled and not shielded; it stays active.
    bool begin_wait() noexcept {
        // Order: acquire [K1]; a cancellation that is seen brings what came before it.
        word seen = word_.load(std::memory_order_acquire);
        do {
            if (is_cancelled(seen)) {
                return false;
            }
            // Order: release [K1]; who claims it finds how to interrupt it. Failure: as above.
        } while (!word_.compare_exchange_weak(seen, seen & ~active, std::memory_order_release,
                                              std::memory_order_acquire));
        return true;
    }

    // It need not wait after all. Waits for who claimed it.
    void end_wait() noexcept {
        basic_backoff<Platform> backoff;
        // Order: relaxed; the CAS acquires.
        word seen = word_.load(std::memory_order_relaxed);
        for (;;) {
            if ((seen & claimed) != 0) {
                backoff();
                // Order: relaxed; as above.
                seen = word_.load(std::memory_order_relaxed);
                // Order: acquire [K1]; the interruption is over. Failure: look again.
            } else if (word_.compare_exchange_weak(seen, seen | active, std::memory_order_acquire,
                                                   std::memory_order_relaxed)) {
                return;
            }
        }
    }

    // False: too many.
    bool shield() noexcept {
        // Order: relaxed; the task alone changes this field, and reads it back.
        const word seen = word_.load(std::memory_order_relaxed);
        if ((seen & shields) == shields) {
            return false;
        }
        // Order: relaxed; who cancels either sees the shield or is seen at the next wait.
        word_.fetch_add(one_shield, std::memory_order_relaxed);
        return true;
    }

    // True: it was the last one, and a cancellation takes effect now.
    bool unshield() noexcept {
        // Order: acquire [K1]; what came before the cancellation.
        return is_cancelled(word_.fetch_sub(one_shield, std::memory_order_acquire) - one_shield);
    }

    // It has ended. True: somebody may ask for the outcome.
    bool finish() noexcept {
        // Order: acq_rel [K2]; the outcome is seen by whoever sees `complete`; what the last handle
        // did before it let go is seen here.
        return (word_.fetch_or(complete, std::memory_order_acq_rel) & kept) != 0;
    }

    // --- whoever decided its wait

    // True: schedule it. False: who claimed it will.
    [[nodiscard]] bool wake() noexcept {
        // Order: relaxed; the CAS acquires.
        word seen = word_.load(std::memory_order_relaxed);
        word next;
        do {
            next = seen | ((seen & claimed) != 0 ? notified : active);
            // Order: acq_rel [K1]; what the decider did is seen by the task, also where another
            // wakes it; an interruption that ended without effect is over for it. Failure: again.
        } while (!word_.compare_exchange_weak(seen, next, std::memory_order_acq_rel,
                                              std::memory_order_relaxed));
        return (seen & claimed) == 0;
    }

    // --- whoever cancels

    enum class cancelling { too_late, noted, claimed };

    // `claimed`: interrupt its wait, then call end_claim().
    cancelling cancel() noexcept {
        // Order: acquire [K2]; a `complete` that is seen brings the outcome.
        word seen = word_.load(std::memory_order_acquire);
        word next;
        do {
            if ((seen & complete) != 0) {
                return cancelling::too_late;
            }
            if ((seen & cancelled) != 0) {
                return cancelling::noted;
            }
            next = seen | cancelled;
            if ((seen & (active | shields)) == 0) {
                next |= claimed;
            }
            // Order: acq_rel [K1]; how to interrupt its wait; what came before the cancellation is
            // seen by the task. Failure: as above.
        } while (!word_.compare_exchange_weak(seen, next, std::memory_order_acq_rel,
                                              std::memory_order_acquire));
        return (next & claimed) != 0 ? cancelling::claimed : cancelling::noted;
    }

    // The interruption is over. True: the wait was decided meanwhile, schedule it.
    [[nodiscard]] bool end_claim() noexcept {
        // Order: relaxed; the CAS acquires.
        word seen = word_.load(std::memory_order_relaxed);
        word next;
        do {
            next = seen & ~(claimed | notified);
            next |= (seen & notified) != 0 ? active : 0;
            // Order: acq_rel [K1]; what the decider did; the interruption's touches of the node are
            // over for the task. Failure: look again.
        } while (!word_.compare_exchange_weak(seen, next, std::memory_order_acq_rel,
                                              std::memory_order_relaxed));
        return (seen & notified) != 0;
    }

    // --- whoever has a reference

    // Nobody will ask for the outcome any more. True: the reference is dropped, others have one.
    // False: it is not; the outcome stands and is the caller's to discard.
    bool forgo() noexcept {
        // Order: relaxed; the CAS acquires.
        word seen = word_.load(std::memory_order_relaxed);
        word next;
        do {
            next = seen & ~kept;
            if ((seen & complete) == 0) {
                next -= reference;
            }
            // Order: acq_rel [K2]; the outcome, where it stands; what the handle did, to the task.
        } while (!word_.compare_exchange_weak(seen, next, std::memory_order_acq_rel,
                                              std::memory_order_relaxed));
        return (seen & complete) == 0;
    }

    // Nobody else has a reference, or will ask for the outcome.
    bool is_alone() const noexcept {
        // Order: acquire [K2] [K3]; what the last handle did before it let go.
        const word seen = word_.load(std::memory_order_acquire);
        return (seen & kept) == 0 && seen / reference == 1;
    }

    void add_reference() noexcept {
        // Order: relaxed; the caller has one.
        word_.fetch_add(reference, std::memory_order_relaxed);
    }

    // True: it was the last one.
    bool drop_reference() noexcept {
        // Order: acquire [K3]; what all others did is over for the last one, which destroys.
        if (word_.load(std::memory_order_acquire) / reference == 1) {
            return true; // nobody is left who could add one
        }
        // Order: acq_rel [K3]; as above; and what this one did is over for the last.
        return word_.fetch_sub(reference, std::memory_order_acq_rel) / reference == 1;
    }

    // Order: acquire [K2]; the outcome, where true.
    bool is_complete() const noexcept {
        return (word_.load(std::memory_order_acquire) & complete) != 0;
    }

    // And not shielded.
    bool is_cancelled() const noexcept {
        // Order: seq_cst [K1]; what came before the cancellation. seq_cst for [K4]: the task asks after
        // it has set its stop source, who cancels before it looks for that.
        return is_cancelled(word_.load(std::memory_order_seq_cst));
    }

    // Though it may be shielded.
    bool was_cancelled() const noexcept {
        // Order: relaxed; for reports, and for who has the outcome.
        return (word_.load(std::memory_order_relaxed) & cancelled) != 0;
    }

    // A snapshot for reports.
    bool is_waiting() const noexcept {
        // Order: relaxed; it is old when it is read.
        return (word_.load(std::memory_order_relaxed) & (active | complete)) == 0;
    }

    static constexpr unsigned max_shields = 0xffff;

private:
    static constexpr word active = 1;
    static constexpr word claimed = 2;
    static constexpr word notified = 4;
    static constexpr word complete = 8;
    static constexpr word cancelled = 16;
    static constexpr word kept = 32;
    static constexpr word one_shield = word{1} << 16;
    static constexpr word shields = one_shield * max_shields;
    static constexpr word reference = word{1} << 32;

    static bool is_cancelled(word seen) noexcept {
        return (seen & (cancelled | shields)) == cancelled;
    }

    typename Platform::template atomic<word> word_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
