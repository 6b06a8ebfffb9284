// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SYNC_BIASED_SHARED_MUTEX_HPP
#define BIDE_SYNC_BIASED_SHARED_MUTEX_HPP

/// \file
/// A reader-writer mutex for data that is read far more often than it is written.
//
// A shared_mutex counts its readers in one word, so its readers contend for one cache line. Here
// the mutex may be biased to readers: each thread then counts its reads in a slot, and each slot
// has its own cache lines. A writer ends the bias. This is the biased locking of BRAVO (Dice and
// Kogan, USENIX ATC 2019).

#include <bide/sync/shared_mutex.hpp>

#include <bit>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// While the mutex is biased, it holds a number of permits of the queue, for readers that do not
// access the queue. These permits are the loan. A loan begins only if there are no waiters. The
// loan ends before the first waiter that needs the lent permits is queued. It begins and ends under
// the lock of the queue:
//
//   loan, then a waiter    the waiter acquires the lock after the loan began, and ends the loan
//   a waiter, then loan    the loan finds `queued`, and does not begin
//
// A waiter that ends the loan holds the lock until it is queued itself. If it released the lock
// before, another loan could begin. Then the waiter would wait for permits that no thread gives
// back.

template <class Platform>
template <class Wanted, class Open>
void basic_permit_queue<Platform>::lend(word n, Wanted&& wanted, Open&& open) noexcept {
    word seen = lock::acquire(word_);
    bool lent = false;
    while (!lent && (seen & queued) == 0 && seen / one >= n && wanted()) {
        // Order: relaxed; the caller has a permit, so it has synchronised with the last writer
        // already. This CAS does not release the lock: the call below does. Failure: look again.
        lent = word_.compare_exchange_weak(seen, seen - n * one, std::memory_order_relaxed,
                                           std::memory_order_relaxed);
    }
    if (lent) {
        open();
    }
    lock::release(word_);
}

// If there is a loan, ends it. The permits that come back become free. Returns the new word.
// Requires: the lock is held.
template <class Platform>
template <class Recall>
auto basic_permit_queue<Platform>::recalled(Recall& recall) noexcept -> word {
    const word back = recall() * one;
    // If `back` is not zero, there was a loan, and so no waiter: the word counts free permits.
    // Order: release, for two reasons. (1) [permit.release]; the caller that takes these permits
    // sees what was done before they came back. (2) [lock_bits.release]; recall() accessed data
    // under the lock. The next CAS of link() (detail/permit_queue.hpp) may release the lock, and
    // has no release order. Because of (2), this step is made even if `back` is zero.
    return word_.fetch_add(back, std::memory_order_release) + back;
}

template <class Platform>
template <class Recall>
void basic_permit_queue<Platform>::recall(Recall&& recall) noexcept {
    lock::acquire(word_);
    recalled(recall);
    lock::release(word_);
}

template <class Platform>
template <class Recall>
wait_status basic_permit_queue<Platform>::recall_and_enqueue(node& w, Recall&& recall) noexcept {
    lock::acquire(word_);
    const word seen = recalled(recall);
    return settle_if_over(w, link(w, seen, true));
}

// The permits of a reader-writer mutex that is biased to readers. A reader takes one permit, a
// writer takes all, as in a shared_mutex. While the mutex is biased, half of the permits are lent
// to slots, and a reader takes its permit from the slot of its thread. This is one CAS on a cache
// line that only the threads of the slot write. A writer recalls the loan: it closes every slot,
// and returns to the queue the permits that no reader has taken. The readers that hold the mutex
// keep their permits and later give them to the queue. Until then the writer waits in the queue of
// the permits, as a writer of a shared_mutex does.
//
// (The bias, and how a writer ends it, are from Dice and Kogan, "BRAVO - Biased Locking for
// Reader-Writer Locks", USENIX ATC 2019. A lock with a slot for each reader is the big-reader lock
// of Linux 2.4. In BRAVO, a reader writes its slot and then reads the bias. A writer writes the
// bias and then reads the slots. Both need a fence. Here the bias is a bit of each slot. The
// permits that readers took move from the slot to the queue, so that no writer polls.)
//
// The word of a slot:
//
//   open count
//     1     n    biased; n permits were taken from this slot and not given back to it
//     0     0    not biased; readers go to the queue
//     0     n    never: one step clears both
//
// To enter, a reader adds one by a CAS that succeeds only if the slot is open. To leave, it
// subtracts one by a CAS. If the slot is not open or its count is zero, the reader gives its permit
// to the queue. To recall the loan, a writer exchanges each slot for zero. One word decides each
// race [biased.slot]:
//
//   enter, then recall    the recall counts the reader, whose permit stays taken
//   recall, then enter    the CAS fails, and the reader goes to the queue, behind the writer
//   leave, then recall    the recall returns this permit to the queue, too
//   recall, then leave    the CAS fails, and the reader gives its permit to the queue
//
// If a coroutine resumes on another thread, or another thread destroys the std::shared_lock, a
// reader leaves by another slot than it entered by. All permits are alike. So this reader gives
// back the permit of another reader. That reader later gives back the permit of this one, or gives
// one to the queue. Whichever slot a reader leaves by, this equation holds at each instant:
//
//   free in the queue + readers inside = all - loan + sum of the counts      (loan: zero or `lent`)
//
// A recall adds to the queue the loan less the sum of the counts. So all permits are free after a
// recall if and only if no reader is inside. (Without writers a count may grow, by one for each
// reader that leaves by another slot. A count has 63 bits, and the loan has 2^58 permits.)
//
// The loan begins and ends under the lock of the queue, and never while there are waiters. After a
// recall, readers go to the queue. A recall and the next loan write every slot. To limit this cost,
// the next loan begins only after as many reads without a wait as there are slots. (BRAVO instead
// waits for a time in proportion to the cost of the last recall.)

// The number of the calling thread. Threads are numbered from 1 on, in the order of their first
// reads. A coroutine does not use a reference to this object after a suspension, because it may
// resume on another thread.
struct BIDE_SHARED reader_number {
    std::uint32_t value = 0; // 0: not assigned
};
template <class Platform> struct BIDE_SHARED reader_numbers {
    static std::uint32_t of_this_thread() noexcept {
        reader_number& mine = Platform::template near_local<reader_number>();
        if (mine.value == 0 && !Platform::model) { // in a model, the test assigns it
            // Order: relaxed; the number publishes no other data.
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
    basic_biased_permits& operator=(basic_biased_permits&&) = delete;

    // The queue in which a reader waits, and to which a writer and a downgrade give permits back.
    queue& in_queue() noexcept { return permits_; }

    // Gives a permit back, on any thread. Returns false if it detects that the permit was not
    // taken.
    bool give_one() noexcept {
        return leave(slot_of_this_thread()) || permits_.give_known(all - 1, 1) ||
               permits_.give(1, all);
    }

    // Takes a permit of a reader. Returns false if a writer has the mutex, or waits for it.
    bool try_take_one() noexcept { return enter(slot_of_this_thread()) || try_take_slowly(); }

    // Takes all permits if they are free and there are no waiters. Ends the bias.
    bool try_take_all() noexcept { return permits_.take_known(all, all) || end_bias_and_take(); }

    // The queue as a writer sees it, for thread_wait. enqueue() ends the bias.
    wait_status enqueue(node& w) noexcept {
        return permits_.recall_and_enqueue(w, [this]() noexcept { return close_slots(); });
    }
    bool cancel(node& w, wait_status why) noexcept { return permits_.cancel(w, why); }

    // How a reader takes one permit, and how a writer takes all. This type also has the functions
    // by which an operation waits (core/wait_ops.hpp). A writer is queued by enqueue() above, which
    // ends the bias. A reader is queued in `permits_` directly.
    template <bool Writes> struct mode {
        basic_biased_permits& from;
        static constexpr std::ptrdiff_t amount = Writes ? all : 1;

        const auto& primitive() const noexcept { return from; }
        // Fails for a writer if the mutex is biased, and for a reader if it is not.
        bool take_free() const noexcept {
            if constexpr (Writes) {
                return from.permits_.take_known(all, all);
            } else {
                return enter(from.slot_of_this_thread());
            }
        }
        bool try_take() const noexcept {
            return Writes ? from.end_bias_and_take() : from.try_take_slowly();
        }
        template <class Limit> wait_status wait(const Limit& limit) const noexcept {
            auto& queue = waiters();
            return thread_wait<std::remove_reference_t<decltype(queue)>, Platform>::until(
                queue, amount, limit);
        }
        mode steps() const noexcept { return *this; }
        bool give() const noexcept {
            return Writes ? permit_mode<Platform>{from.permits_, all, all}.give() : from.give_one();
        }
        bool downgrade() const noexcept {
            return permit_mode<Platform>{from.permits_, all, all}.downgrade();
        }

        wait_status try_now() const noexcept {
            return take_free() || try_take() ? wait_status::granted : wait_status::waiting;
        }
        wait_status enqueue(node& w) const noexcept {
            w.ask(amount);
            return waiters().enqueue(w);
        }
        bool cancel(node& w, wait_status why) const noexcept { return from.cancel(w, why); }

    private:
        auto& waiters() const noexcept {
            if constexpr (Writes) {
                return from;
            } else {
                return from.permits_;
            }
        }
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
        word seen = open; // the usual value: this saves a load
        do {
            // Order: acquire [biased.slot]; the reader sees what was done before the slot was
            // opened. Failure: look again.
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

    bool end_bias_and_take() noexcept {
        if (permits_.available() == 0) { // no permit is free, so the mutex is not biased
            return false;
        }
        permits_.recall([this]() noexcept { return close_slots(); });
        return permits_.try_take(all);
    }

    BIDE_NOINLINE bool try_take_slowly() noexcept {
        if (!permits_.take_known(all, 1) && !permits_.try_take(1)) {
            return false;
        }
        // Order: relaxed, for both steps; if an increment is lost, the bias begins later.
        const word reads = reads_.load(std::memory_order_relaxed) + 1;
        reads_.store(reads, std::memory_order_relaxed);
        if (reads >= Slots) {
            permits_.lend(
                lent, [this]() noexcept { return !biased_; }, [this]() noexcept { open_slots(); });
        }
        return true;
    }

    // Opens the slots. Called under the lock of the queue, after the permits of the loan were
    // taken.
    void open_slots() noexcept {
        for (slot& s : slots_) {
            // Order: release [biased.slot]; a reader sees what earlier holders of these permits did
            // before they unlocked. No other thread writes a closed slot.
            s.readers.store(open, std::memory_order_release);
        }
        biased_ = true;
    }

    // Called under the lock of the queue. Closes the slots and ends the loan. Returns the number of
    // lent permits that no reader holds; zero if there is no loan.
    word close_slots() noexcept {
        if (!biased_) {
            return 0;
        }
        biased_ = false;
        // Order: relaxed; a concurrent increment only changes when the next bias begins.
        reads_.store(0, std::memory_order_relaxed);
        for (slot& s : slots_) {
            Platform::prefetch(&s); // so that the cache misses overlap
        }
        word left = static_cast<word>(lent);
        for (slot& s : slots_) {
            // Order: acquire [biased.slot]; this thread sees what readers did before they left by
            // this slot.
            left -= s.readers.exchange(0, std::memory_order_acquire) / one;
        }
        return left;
    }

    alignas(cache_line_pair) queue permits_;
    atomic reads_{0}; // reads without a wait after the bias has ended
    typename Platform::template var<bool> biased_{true};
    slot slots_[Slots];
};

} // namespace detail

/// A shared_mutex that is biased to readers. SharedTimedLockable. While it is biased, readers on
/// different threads share no cache line. A writer ends the bias. Then writers and readers wait in
/// one queue, first come, first served, so neither side starves. The mutex is biased at first. The
/// bias begins again after as many reads without a wait as there are slots.
///
/// \code
/// bide::biased_shared_mutex mutex;
/// {
///     std::shared_lock reader(mutex); // writes no cache line that another reader writes
/// }
/// std::unique_lock writer(mutex); // waits for the readers, and makes the next reads slower
/// \endcode
///
/// The price: a writer that ends the bias writes all slots. The mutex takes a pair of cache lines
/// for each slot and one more pair: 2,176 bytes with 16 slots.
///
/// Not recursive, not even for readers: if a reader locks again behind a waiting writer, both wait
/// for ever. Any thread may unlock it, so a coroutine may hold it across a suspension. If one
/// thread locks it and another thread unlocks it, the unlock may write a cache line that all
/// threads share. A condition_variable cannot wait with this mutex.
///
/// `Slots` is a power of two: the number of threads that can read without sharing a cache line.
/// Threads are assigned to the slots round-robin, in the order of their first reads.
///
/// shared_lock_operations and lock_operations have the functions that lock and unlock it: lock()
/// with a stop token or without, try_lock(), try_lock_for(), try_lock_until(), async_lock(),
/// unlock(), each of these also with _shared in the name, and unlock_and_lock_shared(). Each
/// function that locks it exclusively ends the bias; try_lock() does so even if it returns false.
/// While the mutex is biased, unlock_shared() may fail to detect that the mutex is not locked. Then
/// a later unlock() terminates.
template <class Platform, unsigned Slots>
class basic_biased_shared_mutex
    : public shared_lock_operations<basic_biased_shared_mutex<Platform, Slots>, Platform> {
    using permits = detail::basic_biased_permits<Platform, Slots>;

public:
    /// Constructs a mutex that is not locked, and is biased.
    constexpr basic_biased_shared_mutex() noexcept : basic_biased_shared_mutex(nullptr) {}

    /// Constructs a mutex that is not locked, with a name for reports (core/deadlock_check.hpp).
    /// The name is copied if BIDE_DEADLOCK_CHECK is defined, and ignored otherwise.
    constexpr explicit basic_biased_shared_mutex([[maybe_unused]] const char* called) noexcept {
        BIDE_CHECKED(detail::note_made<Platform>(this, name, called);)
    }

    /// Destroys the mutex.
    /// Requires: there are no waiters; terminates otherwise.
    ~basic_biased_shared_mutex() {
        permits_.in_queue().require_no_waiters(name, this);
        BIDE_CHECKED(detail::note_gone<Platform>(this);)
    }

    basic_biased_shared_mutex& operator=(basic_biased_shared_mutex&&) = delete;

private:
    friend lock_operations<basic_biased_shared_mutex, Platform>;
    friend shared_lock_operations<basic_biased_shared_mutex, Platform>;

    static constexpr const char* name = "biased_shared_mutex";

    typename permits::template mode<true> exclusive() noexcept { return {permits_}; }
    typename permits::template mode<false> shared() noexcept { return {permits_}; }

    permits permits_;
};

/// A reader-biased mutex for users.
using biased_shared_mutex = basic_biased_shared_mutex<native_platform>;
static_assert(sizeof(biased_shared_mutex) == 17 * cache_line_pair);

}} // namespace bide::BIDE_ABI

#endif
