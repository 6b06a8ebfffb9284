// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_IDLE_HPP
#define BIDE_SCHED_IDLE_HPP

// basic_idle knows which workers sleep and how many search. It ensures, without time-outs, that no
// job waits unseen while a worker sleeps. A thread that makes a job visible asks here which worker
// to wake. A worker that finds nothing announces here that it will sleep, checks every queue once
// more, and sleeps.
//
// The state is one word:
//
//   blocked   20 bits  workers that are blocked in a task
//   searching 20 bits  workers that are awake and have no job: each of them will announce its
//                      sleep, or find a job and end its search
//   sleeping  20 bits  workers in the set of sleepers
//   timed      1 bit   one of the sleepers sleeps with a time-out
//   deferred   1 bit   a job may be queued for which no worker was woken, because a worker
//                      searched or there was a timed sleeper. The last worker to end its search
//                      wakes another
//   lock       2 bits  lock_bits, for the set, `sleeping` and `timed`
//
// The set is an array of bits. The set changes only with the lock held. The step that releases the
// lock also writes the new `sleeping` and `timed`. The other fields change at any time. Each step
// is a read-modify-write. So a thread that decides on a new value of the word knows the value that
// it replaces.
//
// The pair [idle.announce]: the pusher makes its job visible and then reads the word. The worker
// announces its sleep in the word and then looks at the queues. All four steps are seq_cst:
//
//   pusher: job visible   read the word          worker: announce   look at every queue
//
// Case 1: the pusher's read precedes an announcement in the order of these steps. Then the job
// became visible before that worker's look, and the look sees the job. So a worker that announces
// after the pusher's read does not sleep while the job is queued.
//
// Case 2: the announcement precedes the pusher's read. Then the pusher reads that a worker sleeps.
// If a worker searches, the pusher sets `deferred` and leaves the job to the searching worker. If
// no worker searches, the pusher wakes a worker. If the announcing worker sees the job in its look,
// it retracts its announcement. If a waker has already removed the worker from the set, that waker
// has counted the worker as searching and is about to give it a token.
//
// One wake and the bit `deferred` suffice. Invariant: while a worker sleeps, `deferred` is set, or
// the number of searching workers is at least the number of queues that have jobs. Four rules keep
// the invariant:
//
//   - A push into an empty queue adds a searcher or sets the bit.
//   - A searcher that takes the last job of a queue ends its search. So there is one searcher less
//     and one queue with jobs less.
//   - If a searcher leaves jobs in the queue from which it took its own, or has moved jobs to
//     another queue, it ends its search with `more`, which sets the bit.
//   - A worker sleeps only if its look finds no job. So another worker has taken each job that was
//     queued before the announcement.
//
// If the last searcher finds a job while the bit is set, it wakes the next worker. Such wakes
// continue until the last searcher finds nothing and announces its sleep. `searching` is then 0,
// and the announcement clears the bit. That is safe: every push that has set the bit comes before
// the look of this worker. If that look finds a job, retract() sets the bit again.
//
// A worker that has found a job and sees many more may wake a second worker (wake_another()). That
// worker counts as a searcher. One more searcher does not affect the invariant.
//
// A worker that is awake may move a job between two queues. During the move, the job is in neither
// queue, and a look may miss it. After the move, the worker reads the word as a pusher does, or
// ends its search with `more`. So a worker that announces later sees the job [idle.handed_over]. If
// a worker slept before, the moving worker wakes a worker or sets the bit.
//
// A job that only one thread may run is pinned to that thread. Other workers do not look for it.
// Its pusher wakes the worker of that thread. The woken worker counts as a searcher, too. If a
// worker was woken for another job and takes a pinned one, it ends its search with `more`.
//
// The timed sleeper is a sleeper that sleeps with a time-out while other workers run. From time to
// time, it looks for jobs in LIFO slots. A push into a LIFO slot wakes no worker, because the
// worker that owns the slot usually takes the job at once. Such a push relies on the timed sleeper,
// and sets `deferred`. While there is a timed sleeper, no announcement clears this bit. If the
// timed sleeper is woken for another job, the end of its search wakes another worker, which becomes
// the timed sleeper.

#include <bide/core/detail/fatal.hpp>
#include <bide/core/lock_bits.hpp>

#include <bit>
#include <memory>

namespace bide { inline namespace BIDE_ABI {

/// The sleep protocol of a set of workers.
template <class Platform> class basic_idle {
public:
    /// No worker.
    static constexpr unsigned none = ~0U;
    /// The largest number of workers.
    static constexpr unsigned max_workers = (1U << 20) - 1;

    /// Constructs the state for `workers` workers, which are all awake.
    /// Throws: std::bad_alloc. No other function here allocates.
    /// Requires: 0 < workers <= max_workers; otherwise terminates with a message.
    explicit basic_idle(unsigned workers)
        : workers_(workers), set_(std::make_unique<bits[]>(workers / width + 1)),
          took_deferred_(std::make_unique<bool[]>(workers)) {
        if (workers == 0 || workers > max_workers) {
            detail::fatal("a scheduler must have 1 to 1048575 workers");
        }
    }

    basic_idle& operator=(basic_idle&&) = delete;

    // ---- Functions for a thread that has made a job visible by a seq_cst step

    /// Returns a sleeping worker that the caller must unpark. That worker then counts as searching.
    /// Returns `none` if no worker sleeps or a worker searches.
    [[nodiscard]] unsigned wake_one() noexcept { return wake(searching_); }

    /// Called after a push into a LIFO slot. If there is a timed sleeper, returns `none`. If not,
    /// returns what wake_one() returns.
    [[nodiscard]] unsigned wake_unless_timed() noexcept { return wake(searching_ | is_timed); }

    /// Called after an arm (a function) of a short fork-join was published. Returns a sleeping
    /// worker that the caller must unpark. Returns `none` if no worker sleeps, a worker searches,
    /// or there is a timed sleeper. While there is a timed sleeper, does not set `deferred`, so the
    /// end of a search wakes no worker for the arm either. If no worker takes the arm, the thread
    /// that forked it runs it.
    [[nodiscard]] unsigned wake_for_brief_arm() noexcept {
        return wake(searching_ | is_timed, is_timed);
    }

    /// Returns true if wake_for_brief_arm() would wake a worker now.
    bool wakes_for_brief_arm() const noexcept {
        // Order: relaxed; a hint.
        return push_policy{searching_ | is_timed, 0}.wakes(word_.load(std::memory_order_relaxed));
    }

    /// Wakes the worker `which` for a pinned job. If that worker sleeps, counts it as searching and
    /// returns true. The caller must then unpark it.
    [[nodiscard]] bool wake_worker(unsigned which) noexcept {
        // Order: seq_cst [idle.announce]; after the job was made visible.
        return count(word_.load(std::memory_order_seq_cst), sleeping_) != 0 && remove(which, false);
    }

    // ---- Functions for a worker. Each worker has its own number below `workers`.

    /// Counts the caller as searching. If at least half of the workers search already, does not
    /// count the caller and returns false.
    [[nodiscard]] bool start_search() noexcept {
        // Order: relaxed; the CAS checks this value.
        word seen = word_.load(std::memory_order_relaxed);
        do {
            if (2 * count(seen, searching_) >= workers_) {
                return false;
            }
            // Order: relaxed; the count publishes nothing. Failure: the loop reads again.
        } while (!word_.compare_exchange_weak(seen, seen + searcher, std::memory_order_relaxed,
                                              std::memory_order_relaxed));
        return true;
    }

    /// Ends the search of the caller, which counts as searching and has found a job. `more` is true
    /// if another worker should be woken, for one of three reasons: (1) the queue from which the
    /// caller took its job may have further jobs; (2) the caller may have moved jobs to another
    /// queue; (3) the caller's job came from no queue (but from a timer, for example), so the job
    /// for which the caller was woken is still queued. Returns the worker that the caller must
    /// unpark, or `none`.
    [[nodiscard]] unsigned end_search(bool more) noexcept {
        // Order: relaxed; the CAS checks this value.
        return decide(word_.load(std::memory_order_relaxed), search_end_policy{more});
    }

    /// Called by a worker that has ended its search and sees `jobs` further jobs. Returns a
    /// sleeping worker that the caller must unpark. Returns `none` if no worker sleeps, or if the
    /// workers that search are enough: at least 2 * jobs + 2. So the number of awake workers
    /// doubles with each wake, where end_search() alone wakes one worker after the other.
    [[nodiscard]] unsigned wake_another(unsigned jobs) noexcept {
        // Order: relaxed; the CAS checks this value.
        return jobs == 0
                   ? none
                   : decide(word_.load(std::memory_order_relaxed), spread_policy{2 * jobs + 2});
    }

    /// Adds the caller to the sleepers. If `searching` is true, the caller counts as searching, and
    /// this call ends its search. The caller must then check every queue once. After the check, the
    /// caller sleeps until it is unparked, or calls retract(). Returns true if the caller becomes
    /// the timed sleeper: `may_time` is true, there is no other timed sleeper, and some worker
    /// neither sleeps nor is blocked.
    bool announce(unsigned self, bool searching, bool may_time) noexcept {
        word seen = lock::acquire(word_);
        bits_of(self) = bits_of(self) | bit_of(self);
        for (;;) {
            word next = seen + sleeper - (searching ? searcher : 0);
            const bool becomes_timed = may_time && (seen & is_timed) == 0 &&
                                       count(next, sleeping_) + count(next, blocked_) < workers_;
            if (becomes_timed) {
                timed_sleeper_ = self;
                next |= is_timed;
            }
            const bool takes_deferred =
                (next & (searching_ | is_timed)) == 0 && (seen & deferred) != 0;
            if (takes_deferred) {
                next &= ~deferred;
            }
            if (unlock_as(seen, next)) {
                took_deferred_[self] = takes_deferred;
                return becomes_timed;
            }
        }
    }

    /// Removes the caller from the sleepers and returns true. If a waker has already removed the
    /// caller, returns false; that waker gives the caller a token. In both cases the caller then
    /// counts as searching.
    [[nodiscard]] bool retract(unsigned self) noexcept {
        return remove(self, took_deferred_[self]);
    }

    /// Adds `by` to the number of blocked workers. Returns how many workers sleep. If the result is
    /// 0, a new job may stay unseen, because there is no sleeper to wake for it.
    unsigned add_blocked(int by) noexcept {
        // Order: release [idle.blocked]; if the last sleeper leaves the set after this step, it
        // sees that this worker is blocked.
        return count(
            word_.fetch_add(static_cast<word>(static_cast<std::int64_t>(by)) << blocked_shift,
                            std::memory_order_release),
            sleeping_);
    }

    /// Returns true if some worker is blocked and no worker sleeps. A worker that has left the set
    /// of sleepers calls this function. The result takes into account each worker that was blocked
    /// before the caller left the set.
    bool needs_replacement() const noexcept {
        // Order: acquire [idle.blocked]; see add_blocked().
        const word now = word_.load(std::memory_order_acquire);
        return count(now, sleeping_) == 0 && count(now, blocked_) != 0;
    }

    // ---- Snapshots. Order: relaxed.

    /// Returns how many workers sleep.
    unsigned sleepers() const noexcept {
        return count(word_.load(std::memory_order_relaxed), sleeping_);
    }
    /// Returns sleepers(), from a cache line that changes only with that number.
    unsigned sleepers_hint() const noexcept {
        // Order: relaxed; a hint.
        return sleepers_.load(std::memory_order_relaxed);
    }
    /// Returns how many workers search.
    unsigned searching() const noexcept {
        // Order: relaxed, both; snapshots.
        return count(word_.load(std::memory_order_relaxed), searching_);
    }
    /// Returns true if there is a timed sleeper.
    bool has_timed_sleeper() const noexcept {
        return (word_.load(std::memory_order_relaxed) & is_timed) != 0;
    }

private:
    using word = std::uint64_t;
    using lock = lock_bits<Platform, word>;
    using bits = typename Platform::template var<std::uint64_t>;

    static constexpr word deferred = 4;
    static constexpr word is_timed = 8;
    static constexpr unsigned sleeping_shift = 4;
    static constexpr unsigned searching_shift = 24;
    static constexpr unsigned blocked_shift = 44;
    static constexpr word sleeping_ = word{max_workers} << sleeping_shift; // the fields
    static constexpr word searching_ = word{max_workers} << searching_shift;
    static constexpr word blocked_ = word{max_workers} << blocked_shift;
    static constexpr word sleeper = word{1} << sleeping_shift; // one of each
    static constexpr word searcher = word{1} << searching_shift;

    static constexpr unsigned count(word in, word field) noexcept {
        return static_cast<unsigned>((in & field) / (field & (~field + 1)));
    }

    // Each policy has two functions. wakes() tells whether to wake a worker if the value of the
    // word is `seen`. next() computes the new value. If a worker is woken, without() then counts
    // that worker as searching and no longer as sleeping.
    struct push_policy {
        word relied_on; // fields: if one of them is not 0, no wake is needed
        word leaves_it; // fields: if one of them is not 0, `deferred` is not set
        bool wakes(word seen) const noexcept {
            return (seen & sleeping_) != 0 && (seen & relied_on) == 0;
        }
        word next(word seen, bool woken) const noexcept {
            return !woken && (seen & sleeping_) != 0 && (seen & leaves_it) == 0 ? seen | deferred
                                                                                : seen;
        }
    };
    struct spread_policy {
        unsigned searchers; // so many are enough
        bool wakes(word seen) const noexcept {
            return (seen & sleeping_) != 0 && count(seen, searching_) < searchers;
        }
        word next(word seen, bool) const noexcept { return seen; }
    };
    struct search_end_policy {
        bool more;
        bool wakes(word seen) const noexcept {
            return (seen & sleeping_) != 0 && (seen & searching_) == searcher &&
                   (more || (seen & deferred) != 0);
        }
        word next(word seen, bool woken) const noexcept {
            const word remaining = seen - searcher;
            return !woken && (seen & sleeping_) == 0 ? remaining & ~deferred
                   : more                            ? remaining | deferred
                                                     : remaining;
        }
    };

    unsigned wake(word relied_on, word leaves_it = 0) noexcept {
        // Order: seq_cst [idle.announce]; after the job was made visible. If this load sees no
        // sleeper, a worker that announces later sees the job. The CAS in decide() may use a newer
        // value.
        return decide(word_.load(std::memory_order_seq_cst), push_policy{relied_on, leaves_it});
    }

    template <class Rule> unsigned decide(word seen, Rule rule) noexcept {
        while (!rule.wakes(seen)) {
            const word next = rule.next(seen, false);
            // Order: release [idle.handed_over]; a worker that announces later sees the jobs that a
            // searcher has moved. Failure relaxed: the loop reads again.
            if (next == seen || word_.compare_exchange_weak(seen, next, std::memory_order_release,
                                                            std::memory_order_relaxed)) {
                return none;
            }
        }
        unsigned chosen = none;
        seen = lock::acquire(word_);
        for (;;) {
            if (chosen == none && rule.wakes(seen)) {
                chosen = take_first((seen & is_timed) != 0 ? static_cast<unsigned>(timed_sleeper_)
                                                           : none);
            }
            const word next = rule.next(seen, chosen != none);
            if (unlock_as(seen, chosen != none ? without(next, chosen) : next)) {
                return chosen;
            }
        }
    }

    // Called with the lock. Returns the word in which the sleeper `which` has become a searcher.
    word without(word seen, unsigned which) const noexcept {
        const bool was_timed = (seen & is_timed) != 0 && timed_sleeper_ == which;
        return (seen + searcher - sleeper) & ~(was_timed ? is_timed : word{0});
    }

    // Removes the first worker other than `last_choice` from the set. If there is no such worker,
    // removes `last_choice`. Returns the removed worker.
    unsigned take_first(unsigned last_choice) noexcept {
        unsigned chosen = last_choice;
        for (unsigned first = 0; first < workers_; first += width) {
            std::uint64_t some = bits_of(first);
            if (last_choice / width == first / width) {
                some &= ~bit_of(last_choice);
            }
            if (some != 0) {
                chosen = first + static_cast<unsigned>(std::countr_zero(some));
                break;
            }
        }
        bits_of(chosen) = bits_of(chosen) & ~bit_of(chosen);
        return chosen;
    }

    // If the worker `which` sleeps, removes it from the sleepers, counts it as searching, and
    // returns true. If `restores_deferred` is true and a worker still sleeps, sets `deferred`.
    bool remove(unsigned which, bool restores_deferred) noexcept {
        word seen = lock::acquire(word_);
        const bool asleep = (bits_of(which) & bit_of(which)) != 0;
        bits_of(which) = bits_of(which) & ~bit_of(which);
        for (;;) {
            word next = asleep ? without(seen, which) : seen;
            if (restores_deferred && (next & sleeping_) != 0) {
                next |= deferred;
            }
            if (unlock_as(seen, next)) {
                return asleep;
            }
        }
    }

    // Called with the lock. Changes the word from `seen` to `next` and releases the lock, in one
    // step. If the value of the word is no longer `seen`, stores the value in `seen` and returns
    // false.
    bool unlock_as(word& seen, word next) noexcept {
        const auto* const at = &word_;
        if (count(next, sleeping_) != count(seen, sleeping_)) {
            // Order: relaxed; a hint.
            sleepers_.store(count(next, sleeping_), std::memory_order_relaxed);
        }
        // Order: seq_cst; an announcement comes before the look at the queues [idle.announce], and
        // sees the jobs that searchers have moved [idle.handed_over]. The next holder of the lock
        // sees the set [lock_bits.release]. Failure relaxed: the caller reads again.
        if (!word_.compare_exchange_weak(seen, next & ~lock::both, std::memory_order_seq_cst,
                                         std::memory_order_relaxed)) {
            return false;
        }
        lock::wake_after(at, seen);
        return true;
    }

    static constexpr unsigned width = 64;
    bits& bits_of(unsigned worker) noexcept { return set_[worker / width]; }
    static constexpr std::uint64_t bit_of(unsigned worker) noexcept {
        return std::uint64_t{1} << worker % width;
    }

    alignas(cache_line_pair) typename Platform::template atomic<word> word_{0};
    // The number of workers in the set. It is written under the lock, before the field `sleeping`.
    alignas(cache_line_pair) typename Platform::template atomic<unsigned> sleepers_{0};
    alignas(cache_line_pair) const unsigned workers_;
    const std::unique_ptr<bits[]> set_; // under the lock: a bit for each sleeper
    typename Platform::template var<unsigned> timed_sleeper_{
        none};                                    // under the lock: valid while `is_timed` is set
    const std::unique_ptr<bool[]> took_deferred_; // each worker uses its own
};

}} // namespace bide::BIDE_ABI

#endif
