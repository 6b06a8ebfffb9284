// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_DETAIL_BIASED_PERMITS_HPP
#define BIDE_SYNC_DETAIL_BIASED_PERMITS_HPP

// The permits of a reader-writer mutex that is biased to readers. A reader takes one permit, a writer
// takes all, as in a shared_mutex. While the mutex is biased, half of the permits are lent to slots,
// and a reader takes its permit from the slot of its thread: one CAS on a cache line that no other
// thread writes. A writer recalls the loan: it closes every slot, and gives back what is left of it.
// The readers inside keep their permits and give these to the queue. So a writer waits in the queue
// of the permits, as any writer does, until they have left.
//
// (The bias and its revocation are from Dice and Kogan, "BRAVO - Biased Locking for Reader-Writer
// Locks", USENIX ATC 2019; a slot for each reader of one lock is the big-reader lock of Linux 2.4.
// There, a reader writes its slot and reads the bias, the writer does it the other way round, and
// both pay a fence. Here the bias is a bit of each slot, and the permits that were taken are handed
// from the slot to the queue, so that no writer polls.)
//
// The word of a slot:
//
//   open count
//     1     n    biased; readers took n permits here that were not given back here
//     0     0    not biased; readers go to the queue
//     0     n    never: one step closes the slot and takes its count
//
// Enter: a CAS that adds one if the slot is open. Leave: a CAS that subtracts one if the slot is open
// and its count is not zero; otherwise the reader gives a permit to the queue. Recall: an exchange of
// each slot for zero. One word decides each race [biased.slot]:
//
//   enter, then recall    the recall counts the reader, whose permit stays taken
//   recall, then enter    the CAS fails, and the reader goes to the queue, behind the writer
//   leave, then recall    the permit is in the loan again, and comes back with it
//   recall, then leave    the CAS fails, and the reader gives its permit to the queue
//
// A reader may leave by another slot than it entered by: a coroutine that goes on elsewhere, a
// std::shared_lock that another thread destroys. Permits are alike, so it gives back another reader's
// permit, and that reader gives back this one's, or gives one to the queue. At each instant
//
//   free in the queue + readers inside = all - loan + sum of the counts      (loan: zero or `lent`)
//
// holds for every way to leave, and a recall adds the loan less that sum. So all permits are free
// after a recall if and only if no reader is inside. (Without writers the counts may grow, by one for
// each reader that leaves elsewhere. They have 63 bits, and the loan has 2^58 permits.)
//
// The loan begins and ends under the lock of the queue (detail/permit_loan.hpp), and never while there
// are waiters. After a recall, readers go to the queue. A recall and the next loan write every slot, so
// the mutex is biased again when as many readers as there are slots have found it free since. (BRAVO
// waits for a time in proportion to the cost of the last revocation.)

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/wait_status.hpp>
#include <bide/core/waiter.hpp>
#include <bide/sync/detail/permit_loan.hpp>
#include <bide/sync/detail/permit_queue.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace bide::inline BIDE_ABI {
namespace detail {

// The number of the calling thread, from 1 on, in the order in which threads first read. A coroutine
// uses the reference only before its next suspension point.
struct BIDE_SHARED reader_number {
    std::uint32_t value = 0; // 0: not assigned
};
template <class Platform> struct BIDE_SHARED reader_numbers {
    static std::uint32_t of_this_thread() noexcept {
        reader_number& mine = Platform::template near_local<reader_number>();
        if (mine.value == 0 && !Platform::model) { // in a model, the test assigns it
            // Order: relaxed; only the number counts.
            mine.value = last.fetch_add(1, std::memory_order_relaxed) + 1;
        }
        return mine.value;
    }

private:
    inline static constinit typename Platform::template atomic<std::uint32_t> last{0};
};

template <class Platform, unsigned Slots> class basic_biased_permits {
    static_assert(std::has_single_bit(Slots), "bide: the number of slots is a power of two");

public:
    using queue = basic_permit_queue<Platform>;
    using node = typename queue::node;

    static constexpr std::ptrdiff_t all = (queue::max)();

    constexpr basic_biased_permits() noexcept : permits_(all - lent) {}
    basic_biased_permits(const basic_biased_permits&) = delete;
    basic_biased_permits& operator=(const basic_biased_permits&) = delete;

    // Where a reader waits, and where a writer and a downgrade give permits back.
    queue& in_queue() noexcept { return permits_; }

    // Takes all permits if it is neither locked nor biased.
    bool try_take_known() noexcept { return permits_.take_known(all, all); }

    // Takes a permit of a reader. Returns false if a writer has the mutex, or waits for it.
    bool try_take_one() noexcept { return enter(slot_of_this_thread()) || try_take_slowly(); }

    // Gives it back, on any thread. Returns false if it can tell that it was not taken.
    bool give_one() noexcept {
        return leave(slot_of_this_thread()) || permits_.give_known(all - 1, 1) ||
               permits_.give(1, all);
    }

    // Takes all permits if they are free and there are no waiters. Ends the bias.
    bool try_take_all() noexcept {
        if (try_take_known()) {
            return true;
        }
        if (permits_.available() == 0) { // as when a writer has the mutex; it is not biased then
            return false;
        }
        permits_.recall([this]() noexcept { return close_slots(); });
        return permits_.try_take(all);
    }

    // The queue as a writer sees it, for thread_wait. enqueue() ends the bias.
    wait_status enqueue(node& w) noexcept {
        return permits_.recall_and_enqueue(w, [this]() noexcept { return close_slots(); });
    }
    bool cancel(node& w, wait_status why) noexcept { return permits_.cancel(w, why); }

    // The steps of an operation that waits for a permit, or for all (core/wait_ops.hpp).
    struct reading {
        basic_biased_permits& from;
        static constexpr std::ptrdiff_t amount = 1;

        const auto& primitive() const noexcept { return from; }
        wait_status try_now() const noexcept {
            return from.try_take_one() ? wait_status::granted : wait_status::waiting;
        }
        wait_status enqueue(node& w) const noexcept {
            w.ask(1);
            return from.permits_.enqueue(w);
        }
        bool cancel(node& w, wait_status why) const noexcept { return from.cancel(w, why); }
    };
    struct writing {
        basic_biased_permits& from;
        static constexpr std::ptrdiff_t amount = all;

        const auto& primitive() const noexcept { return from; }
        wait_status try_now() const noexcept {
            return from.try_take_all() ? wait_status::granted : wait_status::waiting;
        }
        wait_status enqueue(node& w) const noexcept {
            w.ask(all);
            return from.enqueue(w);
        }
        bool cancel(node& w, wait_status why) const noexcept { return from.cancel(w, why); }
    };

private:
    using word = typename queue::word;
    using atomic = typename Platform::template atomic<word>;

    static constexpr word open = 1;
    static constexpr word one = 2; // in the count of a slot
    static constexpr std::ptrdiff_t lent = all / 2;

    struct alignas(cache_line_pair) slot {
        atomic readers{open};
    };

    slot& slot_of_this_thread() noexcept {
        return slots_[reader_numbers<Platform>::of_this_thread() % Slots];
    }

    static bool enter(slot& at) noexcept {
        word seen = open; // most often; it saves a load
        do {
            // Order: acquire [biased.slot]; what was done before the slot was opened. Failure:
            // look again.
            if (at.readers.compare_exchange_strong(seen, seen + one, std::memory_order_acquire,
                                                   std::memory_order_relaxed)) {
                return true;
            }
        } while ((seen & open) != 0);
        return false;
    }

    static bool leave(slot& at) noexcept {
        word seen = open + one;
        do {
            // Order: release [biased.slot]; the recall sees what the reader did. Failure: look
            // again.
            if (at.readers.compare_exchange_strong(seen, seen - one, std::memory_order_release,
                                                   std::memory_order_relaxed)) {
                return true;
            }
        } while (seen > open && (seen & open) != 0);
        return false;
    }

    BIDE_NOINLINE bool try_take_slowly() noexcept {
        if (!permits_.take_known(all, 1) && !permits_.try_take(1)) {
            return false;
        }
        // Order: relaxed; if a count is lost, the bias comes later.
        const word reads = reads_.load(std::memory_order_relaxed) + 1;
        // Order: relaxed; as for the load.
        reads_.store(reads, std::memory_order_relaxed);
        if (reads >= Slots) {
            permits_.lend(
                lent, [this]() noexcept { return !biased_; }, [this]() noexcept { open_slots(); });
        }
        return true;
    }

    // Under the lock of the queue, with the permits of the loan.
    void open_slots() noexcept {
        for (slot& s : slots_) {
            // Order: release [biased.slot]; a reader sees what was done before the permits of the
            // loan were given to the queue. No other thread writes a slot that is not open.
            s.readers.store(open, std::memory_order_release);
        }
        biased_ = true;
    }

    // Under the lock of the queue. Returns what is left of the loan; zero if there is none.
    word close_slots() noexcept {
        if (!biased_) {
            return 0;
        }
        biased_ = false;
        // Order: relaxed; a reader that counts meanwhile only changes when the bias comes back.
        reads_.store(0, std::memory_order_relaxed);
        for (slot& s : slots_) {
            Platform::prefetch(&s); // all lines are on their way while it waits for the first one
        }
        word left = static_cast<word>(lent);
        for (slot& s : slots_) {
            // Order: acquire [biased.slot]; what the readers did that have left by this slot.
            left -= s.readers.exchange(0, std::memory_order_acquire) / one;
        }
        return left;
    }

    alignas(cache_line_pair) queue permits_;
    atomic reads_{0}; // that found it free since it was biased
    typename Platform::template var<bool> biased_{true};
    slot slots_[Slots];
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
