#ifndef BIDE_SCHED_FORK_DEQUE_HPP
#define BIDE_SCHED_FORK_DEQUE_HPP

// The forks of one thread that have not been joined yet: a stack of jobs, the younger half of which
// is nobody's business but its owner's. (A split deque: Dinan, Larkins, Sadayappan, Krishnamoorthy,
// Nieplocha, "Scalable Work Stealing", SC 2009; van Dijk, van de Pol, "Lace", MuCoCoS 2014. Here a
// push or pop of the owner's own half is one relaxed load and a compare, with no fence.)
//
// The job of the fork at depth i is in slot i:
//
//   0            top              split              bottom
//   |   stolen    |  public: to be had |  private: the owner's |  free
//
//   top     the next job to be had. A thief moves it up by one, by CAS.
//   split   where the private jobs begin. The owner alone moves it: up to publish, down to take back.
//   (top above split, split above bottom: never)
//
// `range_` is top and split in one word, `bottom_` is the owner's alone. Slot i is written again
// only after its job has ended, so a thief reads it after its CAS [O1]; what it read of top and
// split before may be as old as it likes.
//
// What tells the owner to look at `range_` is `limit_`: jobs from there on are private, and pushes
// to there and pops from there need no look. It is one of
//
//   max(split, top + 2) or more   calm. Never below split, so that what the owner does without a
//                                 look is its own; and the two oldest jobs are looked at, and
//                                 become public at once.
//   asked                         above all depths: the owner's next push or pop looks.
//
// Only the owner writes the first kind, whoever else writes at all writes `asked`: the thief that
// takes the last public job. So there is work to be had again before the next thief comes: the
// owner's next push or pop publishes half of what is private.
//
// No request is lost: at any time some job is public, none is private, or `limit_` is `asked` or
// going to be, by the thief that has taken the last.
//   The owner overwrites `asked` in two places. Where it publishes, something is public after that,
//   and who takes the last of it asks after the write. Where it has found nothing to publish, it
//   does so by an exchange: if that returns `asked`, it looks again, and sees what the thief that
//   asked has taken [O3].
//   A push without a look makes no first private job while nothing is public: bottom is top then,
//   and `limit_` is at least two above that. For the owner has seen this top by the CAS with which
//   it took back the last job, or has set it (down: reset()), or the thief that took the last has
//   asked since.
// A request may come late, on top of another's: that is why it is made by an exchange. What the
// owner finds is then the end of a chain of them, and it sees what all of these have taken.
//
// A published job is seen by a worker that announced before that it sleeps, or the one who published
// sees its announcement: the pair [I1] in idle.hpp.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace bide::inline BIDE_ABI {

enum class fork_pop : std::uint8_t {
    mine,
    mine_published, // and others were published: wake somebody
    stolen,         // and so are all older ones
};

// `First`: jobs that it has room for before it first grows; it doubles each time.
template <class Platform, class Job, unsigned First = 256> class basic_fork_deque {
    static_assert(First >= 1 && First <= 1U << 16);

public:
    using depth_type = std::uint32_t;

    basic_fork_deque() noexcept = default; // the first push allocates
    basic_fork_deque(const basic_fork_deque&) = delete;
    basic_fork_deque& operator=(const basic_fork_deque&) = delete;

    // ---- The owner: one thread. A fork at depth d is push(), pop(d), and where that says that the
    // job was stolen, reset(d) after it has ended.

    // How many jobs are there, with those that were stolen and not reset yet. The next is pushed at
    // that depth.
    depth_type depth() const noexcept { return bottom_; }

    // True: something was published, wake somebody.
    // Throws: std::bad_alloc, with nothing changed.
    bool push(Job& job);

    // The job at depth `at`, the youngest: takes it back, unless it was stolen. Then it stays where
    // it is, and what is pushed while it runs goes on top.
    // Requires: at + 1 == depth().
    fork_pop pop(depth_type at) noexcept;

    // Forgets the job at depth `at`, the youngest, which was stolen.
    // Requires: it has ended, and that happens before this. at + 1 == depth().
    void reset(depth_type at) noexcept;

    // Nothing of what is here is to be had: whoever has a loop to split splits it. For the owner.
    bool wants_work() const noexcept {
        // Order: relaxed; a hint.
        return is_bare(range_.load(std::memory_order_relaxed));
    }

    // ---- Any thread

    // The oldest job, or nullptr: none is public.
    Job* steal() noexcept;

    // None is public. The last look of a worker before it sleeps.
    bool is_empty_to_thieves() const noexcept {
        // Order: seq_cst [I1]; after the announcement.
        return is_bare(range_.load(std::memory_order_seq_cst));
    }

private:
    using word = std::uint64_t;
    using slot = typename Platform::template var<Job*>;

    static constexpr depth_type asked = ~depth_type{0};
    static constexpr depth_type open = 2; // so many of the oldest are public
    static constexpr word one_split = word{1} << 32;
    static constexpr unsigned most_buffers = 32;

    static constexpr word pack(depth_type top, depth_type split) noexcept {
        return word{split} << 32 | top;
    }
    static constexpr depth_type top_of(word range) noexcept {
        return static_cast<depth_type>(range);
    }
    static constexpr depth_type split_of(word range) noexcept {
        return static_cast<depth_type>(range >> 32);
    }
    static constexpr bool is_bare(word range) noexcept { return top_of(range) == split_of(range); }

    BIDE_NOINLINE bool push_slow(Job& job);
    BIDE_NOINLINE fork_pop pop_slow(depth_type at) noexcept;
    depth_type due(word seen) const noexcept;
    bool settle() noexcept;
    BIDE_NOINLINE void grow();

    // The owner's.
    alignas(cache_line_pair) depth_type bottom_ = 0;
    depth_type capacity_ = 0;
    slot* slots_ = nullptr; // from top to bottom: jobs
    unsigned grown_ = 0;
    std::unique_ptr<slot[]> buffers_[most_buffers]; // those too small now: a thief may look there

    // Everybody's.
    alignas(cache_line_pair) typename Platform::template atomic<word> range_{0};
    typename Platform::template atomic<depth_type> limit_{open};
    typename Platform::template atomic<slot*> shared_slots_{nullptr};
};

template <class Platform, class Job, unsigned First>
inline bool basic_fork_deque<Platform, Job, First>::push(Job& job) {
    const depth_type at = bottom_;
    // Order: relaxed; what is below split is the owner's own word, and `asked` can be seen later.
    if (limit_.load(std::memory_order_relaxed) > at || at == capacity_) [[unlikely]] {
        return push_slow(job);
    }
    slots_[at] = &job;
    bottom_ = at + 1;
    return false;
}

template <class Platform, class Job, unsigned First>
inline fork_pop basic_fork_deque<Platform, Job, First>::pop(depth_type at) noexcept {
    // Order: relaxed; as in push().
    if (limit_.load(std::memory_order_relaxed) > at) [[unlikely]] {
        return pop_slow(at);
    }
    bottom_ = at;
    return fork_pop::mine;
}

template <class Platform, class Job, unsigned First>
inline void basic_fork_deque<Platform, Job, First>::reset(depth_type at) noexcept {
    bottom_ = at;
    // Order: relaxed; while top == split no thief changes the word, and what is taken later was
    // published later. The limit is two above this depth already: the thief that took the last
    // public job has asked, or the owner took that back, and the limit has fitted the top since.
    range_.store(pack(at, at), std::memory_order_relaxed);
}

template <class Platform, class Job, unsigned First>
Job* basic_fork_deque<Platform, Job, First>::steal() noexcept {
    // Order: relaxed; the CAS decides.
    word seen = range_.load(std::memory_order_relaxed);
    while (!is_bare(seen)) {
        const depth_type at = top_of(seen);
        // Order: acquire [O1]; the slot, and the job. Failure relaxed: look again.
        if (!range_.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire,
                                          std::memory_order_relaxed)) {
            continue;
        }
        if (at + 1 == split_of(seen)) {
            // Order: release [O3]; the owner that finds this, or one on top of it, finds what was
            // taken.
            limit_.exchange(asked, std::memory_order_release);
        }
        // Order: acquire [O2]; at least as new as the slot, and perhaps a copy that was made since.
        return shared_slots_.load(std::memory_order_acquire)[at];
    }
    return nullptr;
}

template <class Platform, class Job, unsigned First>
bool basic_fork_deque<Platform, Job, First>::push_slow(Job& job) {
    if (bottom_ == capacity_) {
        grow();
    }
    slots_[bottom_] = &job;
    ++bottom_;
    return settle();
}

template <class Platform, class Job, unsigned First>
fork_pop basic_fork_deque<Platform, Job, First>::pop_slow(depth_type at) noexcept {
    // Order: relaxed; top may be old, but it is not above what is there: the CAS decides.
    word seen = range_.load(std::memory_order_relaxed);
    while (at < split_of(seen)) {
        const depth_type top = top_of(seen);
        const depth_type split = split_of(seen);
        if (top == split) {
            return fork_pop::stolen;
        }
        const depth_type back = std::max<depth_type>(1, (split - top) / 2);
        // Order: relaxed; what is taken back is the owner's own. Failure: look again.
        if (range_.compare_exchange_weak(seen, pack(top, split - back), std::memory_order_relaxed,
                                         std::memory_order_relaxed)) {
            break;
        }
    }
    bottom_ = at;
    return settle() ? fork_pop::mine_published : fork_pop::mine;
}

// How many of the private jobs are to be published: half of them if fewer than `open` are public,
// and what these lack.
template <class Platform, class Job, unsigned First>
auto basic_fork_deque<Platform, Job, First>::due(word seen) const noexcept -> depth_type {
    const depth_type mine = bottom_ - split_of(seen);
    const depth_type theirs = split_of(seen) - top_of(seen);
    return theirs >= open ? 0 : (std::max)((mine + 1) / 2, (std::min)(mine, open - theirs));
}

// Publishes what is due, and makes the limit fit. True: something was published.
template <class Platform, class Job, unsigned First>
bool basic_fork_deque<Platform, Job, First>::settle() noexcept {
    for (;;) {
        // Order: relaxed; split is the owner's own, and an old top makes less due: see [O3].
        const word seen = range_.load(std::memory_order_relaxed);
        const depth_type n = due(seen);
        const depth_type calm = (std::max)(split_of(seen) + n, top_of(seen) + open);
        if (n != 0) {
            // Order: relaxed; who asks for more than this has seen it.
            limit_.store(calm, std::memory_order_relaxed);
            // Order: seq_cst; publishes the slots and the jobs [O1], before the look for sleepers
            // [I1].
            range_.fetch_add(n * one_split, std::memory_order_seq_cst);
            return true;
        }
        // Order: relaxed; if it is calm already, nobody's request is overwritten.
        if (limit_.load(std::memory_order_relaxed) == calm) {
            return false;
        }
        // Order: acquire [O3]; sees what was taken by the thief that asked.
        if (limit_.exchange(calm, std::memory_order_acquire) != asked) {
            return false;
        }
    }
}

template <class Platform, class Job, unsigned First>
void basic_fork_deque<Platform, Job, First>::grow() {
    const depth_type larger = capacity_ == 0 ? First : 2 * capacity_;
    std::unique_ptr<slot[]>& made = buffers_[grown_];
    made = std::make_unique<slot[]>(larger);
    for (depth_type i = 0; i < bottom_; ++i) {
        made[i] = static_cast<Job*>(slots_[i]);
    }
    ++grown_;
    slots_ = made.get();
    capacity_ = larger;
    // Order: release [O2]; the copies of what is public already.
    shared_slots_.store(slots_, std::memory_order_release);
}

} // namespace bide::inline BIDE_ABI

#endif
