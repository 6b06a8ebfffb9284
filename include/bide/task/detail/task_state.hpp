// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TASK_DETAIL_TASK_STATE_HPP
#define BIDE_TASK_DETAIL_TASK_STATE_HPP

// The state of a task, the requests to it and its references, in one word:
//
//   bits    name        set while
//   0       active      the task is queued or runs; clear while it waits. A cancelled task that
//                       waits for its children stays active, because no interruption can follow.
//   1       claimed     a canceller interrupts the wait, so the wait's node must stay where it is
//   2       notified    the wait was decided while claimed, so the canceller wakes the task
//   3       complete    the task has ended; its outcome does not change any more
//   4       cancelled   cancel() was called; never cleared
//   5       kept        a join handle may still ask for the outcome
//   8..15   reason      the cancel_reason, if `cancelled` is set; set with it, and never changed
//   16..31  shields     the number of shields that keep a cancellation from taking effect
//   32..63  references  the number of owners that may still access the task
//
//   active claimed notified complete
//     1       0       0        0      queued or running
//     0       0       0        0      waiting
//     0       1       0        0      waiting, being interrupted
//     0       1       1        0      woken, still being interrupted
//     1       0       0        1      ended
//   (all other rows are illegal)
//
// The decider of a wait is the thread that grants it, times it out or stops it.
//
// Each suspension has one wake, by the decider of its wait, so a wake never meets a queued task. A
// wake may meet a task that is still entering its wait. The task is marked as waiting before its
// node is queued. So it is posted like any other task, and another worker may run it before the old
// worker has left it.
//
// A cancellation must end a wait without a race for the node of that wait [task.claim]. If the
// canceller finds the task waiting, it sets `cancelled` and `claimed` in one step. A claimed task
// is not resumed: a wake only sets `notified`. So the node outlives the interruption. When the
// interruption is over, the canceller posts the task if its wait was decided meanwhile, by the
// canceller or by another thread. If the node of a claimed task is refused or granted at once, the
// task need not wait for the node. It then waits until the claim has ended. A task that is
// cancelled while it is active or shielded learns of the cancellation when it begins its next wait.

#include <bide/core/backoff.hpp>
#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>
#include <bide/task/cancel_reason.hpp>

#include <cstdint>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_task_state {
public:
    using word = std::uint64_t;

    // Makes an active task.
    constexpr basic_task_state(word references, bool keep) noexcept
        : word_(references * reference | active | (keep ? kept : 0)) {}
    basic_task_state(const basic_task_state&) = delete;
    basic_task_state& operator=(const basic_task_state&) = delete;

    // --- Called by the task

    // Marks the task as waiting. Returns false, and leaves it active, if it is cancelled and not
    // shielded.
    bool begin_wait() noexcept {
        // Order: acquire [task.claim]; the writes before the cancellation, if there is one.
        word seen = word_.load(std::memory_order_acquire);
        do {
            if (is_cancelled(seen)) {
                return false;
            }
            // Order: release [task.claim]; the canceller that claims the task sees how to interrupt
            // it. Failure: as above.
        } while (!word_.compare_exchange_weak(seen, seen & ~active, std::memory_order_release,
                                              std::memory_order_acquire));
        return true;
    }

    // Marks the task as active again, without a wake. Waits until no canceller claims it.
    void end_wait() noexcept {
        basic_backoff<Platform> backoff;
        // Order: relaxed; the CAS acquires.
        word seen = word_.load(std::memory_order_relaxed);
        for (;;) {
            if ((seen & claimed) != 0) {
                backoff();
                // Order: relaxed; as above.
                seen = word_.load(std::memory_order_relaxed);
                // Order: acquire [task.claim]; the interruption is over. Failure: look again.
            } else if (word_.compare_exchange_weak(seen, seen | active, std::memory_order_acquire,
                                                   std::memory_order_relaxed)) {
                return;
            }
        }
    }

    // Adds a shield. Returns false if there are max_shields.
    bool shield() noexcept {
        // Order: relaxed; only the task changes this field.
        const word seen = word_.load(std::memory_order_relaxed);
        if ((seen & shields) == shields) {
            return false;
        }
        // Order: relaxed; the canceller sees the shield, or the next wait sees the cancellation.
        word_.fetch_add(one_shield, std::memory_order_relaxed);
        return true;
    }

    // Removes a shield. Returns true if it was the last one and a cancellation takes effect.
    bool unshield() noexcept {
        // Order: acquire [task.claim]; the writes before the cancellation.
        return is_cancelled(word_.fetch_sub(one_shield, std::memory_order_acquire) - one_shield);
    }

    // Marks the task as complete. Returns true if a join handle may ask for the outcome.
    bool finish() noexcept {
        // Order: acq_rel [task.outcome]; the outcome is visible to each thread that sees
        // `complete`. The writes of the handle's owner before forgo() are visible here.
        return (word_.fetch_or(complete, std::memory_order_acq_rel) & kept) != 0;
    }

    // --- Called by the decider of the wait

    // Returns true if the decider must post the task; false if the canceller will.
    [[nodiscard]] bool wake() noexcept {
        // Order: relaxed; the CAS acquires.
        word seen = word_.load(std::memory_order_relaxed);
        word next;
        do {
            next = seen | ((seen & claimed) != 0 ? notified : active);
            // Order: acq_rel [task.claim]; the decider's writes are visible to the task, also if
            // the canceller posts it. An interruption without effect is over for the task.
            // Failure: look again.
        } while (!word_.compare_exchange_weak(seen, next, std::memory_order_acq_rel,
                                              std::memory_order_relaxed));
        return (seen & claimed) == 0;
    }

    // --- Called by the canceller

    enum class cancelling { too_late, noted, claimed };

    // Requests cancellation. If this returns `claimed`, the caller interrupts the wait and then
    // calls end_claim().
    // Requires: `why` is not none.
    cancelling cancel(cancel_reason why = cancel_reason::requested) noexcept {
        // Order: acquire [task.outcome]; the outcome, if `complete` is set.
        word seen = word_.load(std::memory_order_acquire);
        word next;
        do {
            if ((seen & complete) != 0) {
                return cancelling::too_late;
            }
            if ((seen & cancelled) != 0) {
                return cancelling::noted;
            }
            next = seen | cancelled | static_cast<word>(why) * one_reason;
            if ((seen & (active | shields)) == 0) {
                next |= claimed;
            }
            // Order: acq_rel [task.claim]; the canceller sees how to interrupt the wait. The
            // writes before the cancellation are visible to the task. Failure: as above.
        } while (!word_.compare_exchange_weak(seen, next, std::memory_order_acq_rel,
                                              std::memory_order_acquire));
        return (next & claimed) != 0 ? cancelling::claimed : cancelling::noted;
    }

    // Ends the claim. Returns true if the wait was decided meanwhile, so that the caller must post
    // the task.
    [[nodiscard]] bool end_claim() noexcept {
        // Order: relaxed; the CAS acquires.
        word seen = word_.load(std::memory_order_relaxed);
        word next;
        do {
            next = seen & ~(claimed | notified);
            next |= (seen & notified) != 0 ? active : 0;
            // Order: acq_rel [task.claim]; the decider's writes. The canceller's accesses to the
            // node are over for the task. Failure: look again.
        } while (!word_.compare_exchange_weak(seen, next, std::memory_order_acq_rel,
                                              std::memory_order_relaxed));
        return (seen & notified) != 0;
    }

    // --- Called by the owner of a reference

    // Gives up the right to ask for the outcome. Returns true if the call has dropped the caller's
    // reference; the task has another one. Returns false if the task is complete. Then the caller
    // still has its reference, and must discard the outcome.
    bool forgo() noexcept {
        // Order: acquire [task.outcome]; the outcome, if the task is complete. Then `kept` means
        // nothing any more.
        word seen = word_.load(std::memory_order_acquire);
        do {
            if ((seen & complete) != 0) {
                return false;
            }
            // Order: release [task.outcome]; the writes of the handle's owner are visible to the
            // task. Failure: as above.
        } while (!word_.compare_exchange_weak(seen, (seen & ~kept) - reference,
                                              std::memory_order_release,
                                              std::memory_order_acquire));
        return true;
    }

    // Returns true if the caller has the only reference, and no handle may ask for the outcome.
    bool is_alone() const noexcept {
        // Order: acquire [task.outcome] [task.references]; the writes of the last handle's owner.
        const word seen = word_.load(std::memory_order_acquire);
        return (seen & kept) == 0 && seen / reference == 1;
    }

    void add_reference() noexcept {
        // Order: relaxed; the caller has a reference.
        word_.fetch_add(reference, std::memory_order_relaxed);
    }

    // Drops a reference. Returns true if it was the last one, so that the caller destroys the task.
    bool drop_reference() noexcept {
        // Order: acquire [task.references]; the last owner sees the accesses of all other owners as
        // finished.
        if (word_.load(std::memory_order_acquire) / reference == 1) {
            return true; // no other owner can add a reference
        }
        // Order: acq_rel [task.references]; as above. The last owner sees the caller's accesses as
        // finished.
        return word_.fetch_sub(reference, std::memory_order_acq_rel) / reference == 1;
    }

    bool is_complete() const noexcept {
        // Order: acquire [task.outcome]; the outcome, if this returns true.
        return (word_.load(std::memory_order_acquire) & complete) != 0;
    }

    // Returns true if the task is cancelled and not shielded.
    bool is_cancelled() const noexcept {
        // Order: seq_cst [task.claim]; the writes before the cancellation. seq_cst for
        // [task.stop_token]: the task asks after it has set its stop source, and the canceller
        // looks for the stop source after it has set `cancelled`.
        return is_cancelled(word_.load(std::memory_order_seq_cst));
    }

    // Returns true if cancel() was called; the task may be shielded.
    bool was_cancelled() const noexcept {
        // Order: relaxed; for reports, and for the owner of the outcome.
        return (word_.load(std::memory_order_relaxed) & cancelled) != 0;
    }

    // Returns why the task was cancelled; none if it was not. The task may be shielded.
    cancel_reason reason() const noexcept {
        // Order: relaxed; the caller has seen that the task is cancelled, or that it has ended.
        return static_cast<cancel_reason>(word_.load(std::memory_order_relaxed) / one_reason &
                                          0xff);
    }

    // Returns true if the task waits. If the calling thread does not run the task, the answer may
    // be outdated.
    bool is_waiting() const noexcept {
        // Order: relaxed; for reports, and for the task, which sees its own changes.
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
    static constexpr word one_reason = word{1} << 8;
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
