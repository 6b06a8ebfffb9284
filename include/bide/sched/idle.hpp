#ifndef BIDE_SCHED_IDLE_HPP
#define BIDE_SCHED_IDLE_HPP

// Who sleeps and who searches: no job stays unseen while a worker sleeps, and no time-out is needed
// for that. Whoever makes a job visible asks here whom to wake; a worker that finds nothing says so
// here, looks at every queue once, and sleeps.
//
// One word:
//
//   away      20 bits  workers that are blocked in somebody's code
//   searching 20 bits  workers that are awake and have no job: each is going to announce, or to find
//                      one and end its search
//   sleeping  20 bits  workers in the set of sleepers
//   watched    1 bit   one of them is the watcher
//   owed       1 bit   a job may be there for which nobody was woken since somebody searched (or
//                      watched): the last one to end its search wakes another
//   lock       2 bits  lock_bits, for the set and whatever changes with it
//
// The set, an array of bits, and `sleeping`, `watched` change only with the lock held, and in the
// one step that lets go of it; the other fields change at any time. What a step decides, it decides
// by the value that it replaces.
//
// The pair [I1]. The pusher makes its job visible and reads the word, the worker announces in the
// word and looks at the queues, all four seq_cst:
//
//   pusher: job visible   read the word          worker: announce   look at every queue
//
//   The pusher first: its read comes before the announcement in their single order, so the job
//   comes before the look, which sees it. That holds for every announcement later than the value
//   read, also of a worker that was awake when it was read: whoever announces later does not sleep
//   while the job is there.
//   The worker first: the pusher reads that somebody sleeps, and wakes a worker, or reads that
//   somebody searches, and leaves it to that one by `owed`. If the worker looks after all and sees
//   the job, it retracts: either it is still in the set, or somebody has taken it out and counted
//   it as searching, and then a token is on its way to it.
//
// Why one wake and a bit are enough: while somebody sleeps, there are no more queues with jobs in
// them than searchers, or `owed` is set. A push into an empty queue makes a searcher, or sets it. A
// searcher that takes the last job of a queue ends its search: one less of each. One that leaves
// jobs where it took its own, or has moved some elsewhere, says `more`, which sets it. And who
// sleeps has looked: jobs that were there before it announced have gone, or it would have retracted
// to search. While `owed` is set the last searcher that finds a job wakes the next, until one finds
// nothing and announces: searching is 0 then, and it takes `owed` with it, since all that has set
// it comes before its look. If that look finds anything, retract() puts `owed` back.
// Jobs between two queues are in the hands of somebody awake, and a look may miss them. Whoever has
// put them down reads the word like a pusher, or says `more`: who announces after that sees them
// [I2], and who slept before is woken, or owed.
//
// The watcher is a sleeper that naps while others run: it looks from time to time for jobs that
// wake nobody, those pushed into a LIFO slot, whose worker is expected to take them at once. A push
// that relies on the watcher leaves `owed`, and no announcement takes that away while there is a
// watcher: if it is taken out for another job, the end of its search wakes the next, who watches.

#include <bide/core/config.hpp>
#include <bide/core/detail/fatal.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/platform.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace bide::inline BIDE_ABI {

template <class Platform> class basic_idle {
public:
    static constexpr unsigned none = ~0U;
    static constexpr unsigned max_workers = (1U << 20) - 1;

    // Throws: std::bad_alloc; nothing else here allocates.
    // Requires: 0 < workers <= max_workers, more terminates with a message.
    explicit basic_idle(unsigned workers);
    basic_idle(const basic_idle&) = delete;
    basic_idle& operator=(const basic_idle&) = delete;

    // ---- Whoever has made a job visible, by a seq_cst step

    // The worker to unpark, which was asleep and counts as searching now. none: nobody sleeps, or
    // somebody searches.
    [[nodiscard]] unsigned wake_one() noexcept { return wake(searching_); }

    // As wake_one(), for a push into a LIFO slot: none also while there is a watcher.
    [[nodiscard]] unsigned wake_unless_watched() noexcept { return wake(searching_ | watched); }

    // ---- A worker, each with a number of its own below `workers`

    // True: it counts as searching. False: half of the workers do already.
    [[nodiscard]] bool start_search() noexcept;

    // It counts as searching and has a job now. `more`: there are others where it took that, or it
    // has moved some to another queue, or its job comes from no queue at all (a timer, say): what
    // it was woken for is there still. Returns the worker to unpark, which counts as searching, or
    // none.
    [[nodiscard]] unsigned end_search(bool more) noexcept;

    // Puts itself among the sleepers, and no longer counts as searching if it did. It must look at
    // every queue once and then sleep until it is unparked, or retract. True: it is the watcher,
    // which needs `may_watch`, that there is none, and that some worker neither sleeps nor is away.
    bool announce(unsigned self, bool searching, bool may_watch) noexcept;

    // Takes itself out of the sleepers again: it counts as searching. False: somebody else has
    // taken it out, it counts as searching, and its token is there or on its way.
    [[nodiscard]] bool retract(unsigned self) noexcept;

    // So many more workers, or less, are blocked in somebody's code. Returns how many sleep: if none
    // does then, nobody is there who would see what comes.
    unsigned away(int by) noexcept {
        // Order: release [I3]; who finds out that the last sleeper has gone finds who is blocked.
        return count(word_.fetch_add(static_cast<word>(static_cast<std::int64_t>(by)) << away_shift,
                                     std::memory_order_release),
                     sleeping_);
    }

    // Some worker is blocked, and none sleeps. Asked by each that has come out of its sleep: it sees
    // at least its own step out of the sleepers, and whoever was blocked before that.
    bool is_short() const noexcept {
        // Order: acquire [I3]; see away().
        const word now = word_.load(std::memory_order_acquire);
        return count(now, sleeping_) == 0 && count(now, away_) != 0;
    }

    // ---- Snapshots

    unsigned sleepers() const noexcept {
        // Order: relaxed; a snapshot.
        return count(word_.load(std::memory_order_relaxed), sleeping_);
    }
    unsigned searching() const noexcept {
        // Order: relaxed; a snapshot.
        return count(word_.load(std::memory_order_relaxed), searching_);
    }

private:
    using word = std::uint64_t;
    using lock = lock_bits<Platform, word>;
    using bits = typename Platform::template var<std::uint64_t>;

    static constexpr word owed = 4;
    static constexpr word watched = 8;
    static constexpr unsigned sleeping_shift = 4;
    static constexpr unsigned searching_shift = 24;
    static constexpr unsigned away_shift = 44;
    static constexpr word sleeping_ = word{max_workers} << sleeping_shift; // the fields
    static constexpr word searching_ = word{max_workers} << searching_shift;
    static constexpr word away_ = word{max_workers} << away_shift;
    static constexpr word sleeper = word{1} << sleeping_shift; // one of each
    static constexpr word searcher = word{1} << searching_shift;

    static constexpr unsigned count(word in, word field) noexcept {
        return static_cast<unsigned>((in & field) / (field & (~field + 1)));
    }

    // Whether somebody is to be woken at `seen`, and what the word becomes; `woken`, who has just
    // gone from sleeping to searching, is counted already.
    struct push_rule {
        word relied_on; // whoever of these there is will look
        bool wakes(word seen) const noexcept {
            return (seen & sleeping_) != 0 && (seen & relied_on) == 0;
        }
        word next(word seen, bool woken) const noexcept {
            return !woken && (seen & sleeping_) != 0 ? seen | owed : seen;
        }
    };
    struct end_rule {
        bool more;
        bool wakes(word seen) const noexcept {
            return (seen & sleeping_) != 0 && (seen & searching_) == searcher &&
                   (more || (seen & owed) != 0);
        }
        word next(word seen, bool woken) const noexcept {
            const word rest = seen - searcher;
            return !woken && (seen & sleeping_) == 0 ? rest & ~owed : more ? rest | owed : rest;
        }
    };

    unsigned wake(word relied_on) noexcept;
    template <class Rule> unsigned decide(word seen, Rule rule) noexcept;
    unsigned take_first(unsigned but) noexcept;
    bool let_go(word& seen, word next) noexcept;

    static constexpr unsigned width = 64;
    bits& bits_of(unsigned who) noexcept { return set_[who / width]; }
    static constexpr std::uint64_t bit_of(unsigned who) noexcept {
        return std::uint64_t{1} << who % width;
    }

    alignas(cache_line_pair) typename Platform::template atomic<word> word_{0};
    alignas(cache_line_pair) const unsigned workers_;
    const std::unique_ptr<bits[]> set_;                       // under the lock: a bit for each
    typename Platform::template var<unsigned> watcher_{none}; // under the lock: while watched
    const std::unique_ptr<bool[]> took_owed_; // each its own worker's: at announce()
};

template <class Platform>
basic_idle<Platform>::basic_idle(unsigned workers)
    : workers_(workers), set_(std::make_unique<bits[]>(workers / width + 1)),
      took_owed_(std::make_unique<bool[]>(workers)) {
    if (workers == 0 || workers > max_workers) {
        detail::fatal("a scheduler has 1 to 1048575 workers");
    }
}

template <class Platform> unsigned basic_idle<Platform>::wake(word relied_on) noexcept {
    // Order: seq_cst [I1]; after the job was made visible. No sleeper seen here means that who
    // announces later sees the job. What follows may go by newer values of the word.
    return decide(word_.load(std::memory_order_seq_cst), push_rule{relied_on});
}

template <class Platform> bool basic_idle<Platform>::start_search() noexcept {
    // Order: relaxed; the CAS decides.
    word seen = word_.load(std::memory_order_relaxed);
    do {
        if (2 * count(seen, searching_) >= workers_) {
            return false;
        }
        // Order: relaxed; it counts, and publishes nothing. Failure: look again.
    } while (!word_.compare_exchange_weak(seen, seen + searcher, std::memory_order_relaxed,
                                          std::memory_order_relaxed));
    return true;
}

template <class Platform> unsigned basic_idle<Platform>::end_search(bool more) noexcept {
    // Order: relaxed; the CAS decides.
    return decide(word_.load(std::memory_order_relaxed), end_rule{more});
}

template <class Platform>
template <class Rule>
unsigned basic_idle<Platform>::decide(word seen, Rule rule) noexcept {
    while (!rule.wakes(seen)) {
        const word next = rule.next(seen, false);
        // Order: release [I2]; whoever announces later sees what a searcher has put down. Failure
        // relaxed: look again.
        if (next == seen || word_.compare_exchange_weak(seen, next, std::memory_order_release,
                                                        std::memory_order_relaxed)) {
            return none;
        }
    }
    unsigned who = none;
    seen = lock::acquire(word_);
    for (;;) {
        if (who == none && rule.wakes(seen)) {
            who = take_first((seen & watched) != 0 ? static_cast<unsigned>(watcher_) : none);
        }
        word next = rule.next(seen, who != none);
        if (who != none) {
            next += searcher - sleeper;
            if ((seen & watched) != 0 && watcher_ == who) {
                next &= ~watched;
            }
        }
        if (let_go(seen, next)) {
            return who;
        }
    }
}

// Takes the first out of the set, `but` only if it is alone.
template <class Platform> unsigned basic_idle<Platform>::take_first(unsigned but) noexcept {
    unsigned who = but;
    for (unsigned first = 0; first < workers_; first += width) {
        std::uint64_t some = bits_of(first);
        if (but / width == first / width) {
            some &= ~bit_of(but);
        }
        if (some != 0) {
            who = first + static_cast<unsigned>(std::countr_zero(some));
            break;
        }
    }
    bits_of(who) = bits_of(who) & ~bit_of(who);
    return who;
}

// With the lock held: from `seen` to `next`, and lets go. False: the word has changed, `seen` is
// what it is now.
template <class Platform> bool basic_idle<Platform>::let_go(word& seen, word next) noexcept {
    const auto* const at = &word_;
    // Order: seq_cst; an announcement, before the look at the queues [I1]; sees what searchers have
    // put down [I2]; the set, for the next to hold the lock [lock_bits.release]. Failure relaxed: look again.
    if (!word_.compare_exchange_weak(seen, next & ~lock::both, std::memory_order_seq_cst,
                                     std::memory_order_relaxed)) {
        return false;
    }
    lock::wake_after(at, seen);
    return true;
}

template <class Platform>
bool basic_idle<Platform>::announce(unsigned self, bool searching, bool may_watch) noexcept {
    word seen = lock::acquire(word_);
    bits_of(self) = bits_of(self) | bit_of(self);
    for (;;) {
        word next = seen + sleeper - (searching ? searcher : 0);
        const bool watches = may_watch && (seen & watched) == 0 &&
                             count(next, sleeping_) + count(next, away_) < workers_;
        if (watches) {
            watcher_ = self;
            next |= watched;
        }
        const bool takes_owed = (next & (searching_ | watched)) == 0 && (seen & owed) != 0;
        if (takes_owed) {
            next &= ~owed;
        }
        if (let_go(seen, next)) {
            took_owed_[self] = takes_owed;
            return watches;
        }
    }
}

template <class Platform> bool basic_idle<Platform>::retract(unsigned self) noexcept {
    word seen = lock::acquire(word_);
    const bool asleep = (bits_of(self) & bit_of(self)) != 0;
    bits_of(self) = bits_of(self) & ~bit_of(self);
    for (;;) {
        word next = seen;
        if (asleep) {
            next += searcher - sleeper;
            if ((seen & watched) != 0 && watcher_ == self) {
                next &= ~watched;
            }
        }
        if (took_owed_[self] && (next & sleeping_) != 0) {
            next |= owed;
        }
        if (let_go(seen, next)) {
            return asleep;
        }
    }
}

} // namespace bide::inline BIDE_ABI

#endif
