// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_FORK_DEQUE_HPP
#define BIDE_SCHED_FORK_DEQUE_HPP

// Holds the jobs that one thread, the owner, has forked and not joined yet, as a stack. The younger
// part of the stack is private to the owner. The older part is public: thieves (other threads)
// steal from it. To publish a job is to move it to the public part. (A split deque: Dinan, Larkins,
// Sadayappan, Krishnamoorthy, Nieplocha, "Scalable Work Stealing", SC 2009; van Dijk, van de Pol,
// "Lace", MuCoCoS 2014. Here a push or pop in the private part costs one relaxed load and one
// compare, and no fence instruction.)
//
// The job of the fork at depth i is in slot i:
//
//   0            top              split              bottom
//   |   stolen    |    public       |     private      |  free
//
//   top     the next job to steal. A thief moves it up by one, by CAS.
//   split   the first private job. The owner moves split up to publish jobs, and down to take jobs
//           back. A thief moves split up while the owner is busy with something else
//           (publish_all()).
//   (top is never above split, and split is never above bottom)
//
// `range_` contains top and split in one word. Only the owner writes `bottom_`. The owner reuses a
// slot only after the job in it has ended. After its CAS of `range_`, a thief has a job that has
// not ended, so the slot does not change while the thief reads it [fork_deque.publish]. This is
// also true if the slot was reused between the thief's read of `range_` and the CAS.
//
// `limit_` tells the owner when to read `range_`. Such a read is called a look. If the depth of a
// push or pop is at or above the limit, the owner does not look. There are two kinds of limit:
//
//   at least max(split, top + 2)  The owner sets it. It is never below split, so a job that the
//                                 owner pushes or pops without a look is private. It is also at
//                                 least top plus the wanted number of public jobs. So while there
//                                 are fewer jobs than wanted, each push looks, and publishes its
//                                 job at once.
//   requested                     A thief sets it. It is above all depths, so the owner's next push
//                                 or pop looks.
//
// The caller tells the deque how many public jobs are wanted: at least two, and more while workers
// sleep. The deque asks for this number only when the owner looks. If the number is too small or
// too large, jobs become public later or earlier than is best; nothing else changes.
//
// Only the owner writes a limit of the first kind. The thief that takes the last public job writes
// `requested`. So the owner's next push or pop publishes half of the private jobs.
//
// No request is lost. At any time, one of these holds: some job is public; no job is private;
// `limit_` is `requested`; or the thief that took the last public job is about to write
// `requested`. The owner overwrites `requested` in two cases. If the owner publishes jobs, some job
// is public, and the thief that takes the last public job writes `requested` after the owner's
// write. If the owner finds no job to publish, it writes the limit by an exchange. If the exchange
// returns `requested`, the owner looks again, and sees which job the requesting thief has taken
// [fork_deque.request].
//
// If the deque has neither public nor private jobs, the next push looks. Proof: bottom, which is
// the depth of that push, equals top. `limit_` is at least top + 2, and so above the depth, in each
// of three cases: (1) the owner took back the last job, saw this top, and set the limit; (2) the
// owner set this top in reset(), where the limit was high enough already; (3) a thief took the last
// job, and then wrote `requested`.
//
// A late request may replace another request. Each request is an exchange with release order. So an
// owner that acquires the last of several requests sees which jobs all these thieves have taken.
//
// An owner that runs a long job publishes nothing. So if a request stays unanswered, a thief
// publishes all private jobs instead of the owner. The thief sets the bit `publishing` in `range_`,
// writes `requested`, makes a heavy fence, and reads `bottom_`. Then one CAS of `range_` clears the
// bit and moves split up to that bottom. Each look of the owner clears the bit first. If the owner
// has cleared the bit, the CAS fails. If the owner does not look, these steps are ordered
// [fork_deque.busy]:
//
//   owner: writes bottom   light fence   reads the limit
//   thief: requests        heavy fence   reads bottom
//
// If the owner has read the limit before the request, the thief reads the bottom that the owner has
// written. If not, the owner sees the request and looks. A push has no fence and checks the limit
// before it writes bottom. That is correct because a push only adds a job: the thief may publish
// that job or not. A light fence costs nothing, because the heavy fence of the thief also acts on
// the owner (core/platform.hpp). On a system without a heavy fence, thieves do not publish, and the
// owner keeps more jobs public.
//
// The owner may also replace the request of a thief that has set the bit `publishing`. After each
// write of the limit that replaces a request, the owner changes `range_` or looks at it. If the
// thief has set the bit before, the owner clears the bit. If the thief sets the bit later, it
// writes `requested` after the owner's write [fork_deque.publishing].
//
// [idle.announce] in idle.hpp: after the owner has published a job, it sees each worker that
// announced its sleep before. A worker that announces its sleep later sees the job.

#include <bide/core/detail/process_wide.hpp>

#include <algorithm>
#include <memory>

namespace bide { inline namespace BIDE_ABI {

/// What basic_fork_deque::pop() did.
enum class fork_pop : std::uint8_t {
    popped,               ///< The job was taken back.
    popped_and_published, ///< As popped; jobs were published, so the caller wakes a worker.
    stolen,               ///< The job and all older jobs were stolen.
};

/// A deque of pointers to jobs. Its capacity is InitialCapacity at first, and doubles when it is
/// full.
template <class Platform, class Job, unsigned InitialCapacity = 256> class basic_fork_deque {
    static_assert(InitialCapacity >= 1 && InitialCapacity <= 1U << 16);

public:
    /// The depth of a fork: the number of older forks.
    using depth_type = std::uint32_t;

    /// Constructs an empty deque. The first push allocates.
    basic_fork_deque() noexcept = default;
    basic_fork_deque& operator=(basic_fork_deque&&) = delete;

    // ---- Functions for the owner, which is one thread. A fork at depth d calls push() and later
    // pop(d). If pop(d) reports that the job was stolen, the owner waits for the end of the job and
    // calls reset(d).

    /// Returns the number of jobs, including stolen jobs that were not reset yet. It is the depth
    /// of the next push.
    depth_type depth() const noexcept {
        // Order: relaxed; the owner has written it.
        return bottom_.load(std::memory_order_relaxed);
    }

    /// The minimum number of jobs that the owner keeps public, or all its jobs if it has fewer.
    static constexpr depth_type min_public = 2;

    /// Pushes a job. A push that reads `range_` (a look, see the head of this file) first calls
    /// wanted(), which returns how many jobs to keep public; at least min_public are kept public.
    /// Returns true if this push has published jobs; the caller then wakes a worker.
    /// Throws: std::bad_alloc, with nothing changed.
    template <class Wanted = depth_type (*)() noexcept>
    BIDE_INLINE bool push(Job& job, Wanted wanted = &least) {
        const depth_type at = depth();
        // Order: relaxed; the limit publishes no data: it is the owner's own value, or `requested`.
        // The owner may see a request late.
        if (limit_.load(std::memory_order_relaxed) > at || at == capacity_) [[unlikely]] {
            return push_slow(job, (std::max)(min_public, depth_type{wanted()}));
        }
        slots_[at] = &job;
        // Order: release [fork_deque.bottom]; a thief that publishes the job sees it and its slot.
        bottom_.store(at + 1, std::memory_order_release);
        return false;
    }

    /// Takes back the youngest job, at depth `at`, unless it was stolen. A stolen job stays in its
    /// slot. The owner pushes later jobs above it while the stolen job runs. A pop that reads
    /// `range_` calls wanted() as push() does.
    /// Requires: at + 1 == depth().
    template <class Wanted = depth_type (*)() noexcept>
    BIDE_INLINE fork_pop pop(depth_type at, Wanted wanted = &least) noexcept {
        // Order: release [fork_deque.bottom]; publishes the older jobs, as in push().
        bottom_.store(at, std::memory_order_release);
        // Order: seq_cst [fork_deque.busy]; bottom is written before the limit is read.
        Platform::light_fence();
        // Order: relaxed; as in push().
        if (limit_.load(std::memory_order_relaxed) > at) [[unlikely]] {
            return pop_slow(at, (std::max)(min_public, depth_type{wanted()}));
        }
        return fork_pop::popped;
    }

    /// Removes the youngest job, which is at depth `at` and was stolen.
    /// Requires: the end of the job happens before this call. at + 1 == depth().
    void reset(depth_type at) noexcept {
        // Order: relaxed; all older jobs were stolen, so this bottom publishes none.
        bottom_.store(at, std::memory_order_relaxed);
        // The present limit is still valid, because it is at least two above this depth. Either a
        // thief took the last public job and wrote `requested`, or the owner took back the last
        // public job and set the limit.
        // Order: release [fork_deque.publishing]; if a thief sets the bit `publishing` after this
        // step, the thief reads the bottom that was written above. If a thief has set the bit
        // before, this step clears the bit.
        range_.exchange(pack(at, at), std::memory_order_release);
    }

    /// Returns true if no job is public, or if fewer than `wanted` jobs are left. The caller then
    /// divides its loop, if possible.
    bool wants_work(depth_type wanted = 1) const noexcept {
        // Order: relaxed; a hint.
        const word seen = range_.load(std::memory_order_relaxed);
        return has_no_public(seen) || depth() - top_of(seen) < wanted;
    }

    // ---- Any thread

    /// Takes the oldest public job. Returns nullptr if there is none.
    Job* steal() noexcept {
        // Order: relaxed; the CAS checks this value.
        word seen = range_.load(std::memory_order_relaxed);
        while (!has_no_public(seen)) {
            const depth_type at = top_of(seen);
            // Order: acquire [fork_deque.publish]; sees the slot and the job. Failure relaxed: the
            // loop reads again.
            if (!range_.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire,
                                              std::memory_order_relaxed)) {
                continue;
            }
            if (at + 1 == split_of(seen)) {
                // Order: release [fork_deque.request]. If the owner reads this request, or a later
                // one that has replaced it, the owner sees which job was taken.
                limit_.exchange(requested, std::memory_order_release);
            }
            // Order: acquire [fork_deque.grow]; sees the buffer in which the slot was published, or
            // a later copy of that buffer.
            return shared_slots_.load(std::memory_order_acquire)[at];
        }
        return nullptr;
    }

    /// Returns true if no job is public. A worker calls it for its last check before it sleeps.
    bool is_empty_to_thieves() const noexcept {
        // Order: seq_cst [idle.announce]; this read comes after the worker's announcement.
        return has_no_public(range_.load(std::memory_order_seq_cst));
    }

    /// Returns how many jobs there are, public or private.
    depth_type jobs() const noexcept {
        // Order: relaxed, both; a hint.
        const depth_type top = top_of(range_.load(std::memory_order_relaxed));
        return (std::max)(bottom_.load(std::memory_order_relaxed), top) - top;
    }

    /// Returns false if thieves cannot publish, because the system has no heavy fence.
    bool thieves_publish() const noexcept {
        // Order: relaxed; a hint.
        return publisher_.load(std::memory_order_relaxed) != publisher::impossible;
    }

    /// Returns true if no job is public, some jobs are private, and the owner has not answered a
    /// request for them. Returns false while a thief publishes the jobs, and if thieves cannot
    /// publish. If the result is still true a short time later, the owner is busy with other work.
    bool hides_jobs() const noexcept {
        // Order: relaxed, all four; a hint.
        const word seen = range_.load(std::memory_order_relaxed);
        return has_no_public(seen) && limit_.load(std::memory_order_relaxed) == requested &&
               bottom_.load(std::memory_order_relaxed) > split_of(seen) &&
               publisher_.load(std::memory_order_relaxed) == publisher::none;
    }

    /// Called by the owner. Returns true if a thief may have a job of this deque: no reset() has
    /// followed its theft.
    bool has_stolen() const noexcept {
        // Order: relaxed; a hint. A pop decides.
        return top_of(range_.load(std::memory_order_relaxed)) != 0;
    }

    /// Called by a thief. Publishes all private jobs on behalf of the owner. Returns false if there
    /// are no private jobs, or if the owner or another thief publishes them first.
    bool publish_all() noexcept {
        auto alone = publisher::none;
        // Order: acquire [fork_deque.publisher]; the previous thief has cleared its bit. Failure
        // relaxed: another thief publishes, and this call does nothing.
        if (!publisher_.compare_exchange_strong(
                alone, publisher::present, std::memory_order_acquire, std::memory_order_relaxed)) {
            return false;
        }
        // Order: acquire [fork_deque.publishing]; the owner may have written the limit and then
        // changed the range. This thief sees those writes, so its request below comes after them.
        word seen = range_.fetch_or(publishing, std::memory_order_acquire) | publishing;
        // Order: release [fork_deque.request]; an owner that reads this request sees the bit.
        limit_.exchange(requested, std::memory_order_release);
        // Order: seq_cst [fork_deque.busy]; the limit is written before bottom is read.
        const bool is_ordered = detail::heavy_fence<Platform>();
        // Order: acquire [fork_deque.bottom]; sees the slots and the jobs below.
        const depth_type bottom = is_ordered ? bottom_.load(std::memory_order_acquire) : 0;
        bool published = false;
        while ((seen & publishing) != 0) {
            const depth_type split = split_of(seen);
            // Order: seq_cst; publishes the jobs, as the CAS in rebalance() does. Failure: the loop
            // reads again.
            if (range_.compare_exchange_weak(seen, pack(top_of(seen), (std::max)(split, bottom)),
                                             std::memory_order_seq_cst,
                                             std::memory_order_relaxed)) {
                published = bottom > split;
                break;
            }
        }
        // Order: release [fork_deque.publisher].
        publisher_.store(is_ordered ? publisher::none : publisher::impossible,
                         std::memory_order_release);
        return published;
    }

private:
    using word = std::uint64_t;
    using slot = typename Platform::template var<Job*>;

    // Whether a thief is in publish_all().
    enum class publisher : std::uint8_t { none, present, impossible };

    static constexpr depth_type requested = ~depth_type{0};
    static constexpr word one_split = word{1} << 32;
    static constexpr word publishing = word{1} << 63; // above the split, which has 31 bits
    static constexpr unsigned max_buffers = 23;

    static constexpr word pack(depth_type top, depth_type split) noexcept {
        return word{split} << 32 | top;
    }
    static constexpr depth_type top_of(word range) noexcept {
        return static_cast<depth_type>(range);
    }
    static constexpr depth_type split_of(word range) noexcept {
        return static_cast<depth_type>((range & ~publishing) >> 32);
    }
    static constexpr bool has_no_public(word range) noexcept {
        return top_of(range) == split_of(range);
    }

    static depth_type least() noexcept { return min_public; }

    BIDE_NOINLINE bool push_slow(Job& job, depth_type wanted) {
        const depth_type at = depth();
        if (at == capacity_) {
            grow();
        }
        slots_[at] = &job;
        // Order: release [fork_deque.bottom]; as in push().
        bottom_.store(at + 1, std::memory_order_release);
        return rebalance(look(), wanted);
    }

    BIDE_NOINLINE fork_pop pop_slow(depth_type at, depth_type wanted) noexcept {
        // The top in `seen` may be outdated, but it is never above the current top. The CAS below
        // checks it. If a thief in publish_all() has read the bottom from before this pop, that
        // thief has set its bit before this look [fork_deque.busy].
        word seen = look();
        while (at < split_of(seen)) {
            const depth_type top = top_of(seen);
            const depth_type split = split_of(seen);
            if (top == split) {
                // Order: relaxed; as in reset().
                bottom_.store(at + 1, std::memory_order_relaxed);
                return fork_pop::stolen;
            }
            // Takes back half of the public jobs. If fewer than `wanted` jobs would stay public,
            // takes back fewer, because the owner would soon publish the same jobs again.
            const depth_type half = (split - top) / 2;
            const depth_type spare = split - top - (std::min)(split - top, wanted);
            const depth_type back =
                std::clamp<depth_type>(spare, 1, (std::max)(half, depth_type{1}));
            // Order: relaxed; the owner has pushed the jobs that it takes back. Failure: the loop
            // reads again.
            const word next = seen - back * one_split;
            if (range_.compare_exchange_weak(seen, next, std::memory_order_relaxed,
                                             std::memory_order_relaxed)) {
                seen = next;
                break;
            }
        }
        return rebalance(seen, wanted) ? fork_pop::popped_and_published : fork_pop::popped;
    }

    // Returns how many private jobs to publish. If at least `wanted` jobs are public, returns 0. If
    // not, returns half of the private jobs, rounded up, or the number of jobs that are missing,
    // whichever is larger. Never returns more than the number of private jobs.
    depth_type publish_count(word seen, depth_type wanted) const noexcept {
        const depth_type mine = depth() - split_of(seen);
        const depth_type theirs = split_of(seen) - top_of(seen);
        return theirs >= wanted ? 0 : (std::max)((mine + 1) / 2, (std::min)(mine, wanted - theirs));
    }

    // Keeps the thief that is in publish_all() from moving split. Returns the newest range.
    BIDE_COLD word take_over() noexcept {
        // Order: release [fork_deque.publishing]; if a thief sets its bit after this step, its
        // request comes after all earlier writes of the limit by the owner. No acquire: what the
        // owner needs of a thief that has moved split is the split, which is in this word.
        return range_.fetch_and(~publishing, std::memory_order_release) & ~publishing;
    }

    // Returns the range, for an owner that looks. Keeps a thief in publish_all() from moving split.
    word look() noexcept {
        // Order: relaxed; if top is outdated, the owner publishes fewer jobs, but misses no request
        // [fork_deque.request].
        const word seen = range_.load(std::memory_order_relaxed);
        return (seen & publishing) == 0 ? seen : take_over();
    }

    // Publishes publish_count() jobs and sets the limit. `seen` is the range that the caller has
    // read. Returns true if any job was published.
    bool rebalance(word seen, depth_type wanted) noexcept {
        for (;;) {
            const depth_type n = publish_count(seen, wanted);
            const depth_type next_limit = (std::max)(split_of(seen) + n, top_of(seen) + wanted);
            if (n != 0) {
                // Order: relaxed; the CAS below publishes jobs. If a thief takes one of these jobs,
                // or sets the bit `publishing` after that CAS, the write of `requested` by this
                // thief comes after this store.
                limit_.store(next_limit, std::memory_order_relaxed);
                // Order: seq_cst; publishes the slots and the jobs [fork_deque.publish], before the
                // look for sleepers [idle.announce]. Release [fork_deque.publishing]. Failure
                // relaxed: take_over() reads again.
                if (range_.compare_exchange_strong(seen, seen + n * one_split,
                                                   std::memory_order_seq_cst,
                                                   std::memory_order_relaxed)) {
                    return true;
                }
                seen = take_over();
                continue;
            }
            // Order: relaxed; if the limit has that value already, no request is pending.
            if (limit_.load(std::memory_order_relaxed) == next_limit) {
                return false;
            }
            // Order: acquire [fork_deque.request]; sees which job the requesting thief has taken,
            // and sees the bit of that thief.
            if (limit_.exchange(next_limit, std::memory_order_acquire) != requested) {
                return false;
            }
            seen = look();
        }
    }

    BIDE_NOINLINE void grow() {
        const depth_type larger = capacity_ == 0 ? InitialCapacity : 2 * capacity_;
        std::unique_ptr<slot[]>& made = buffers_[grown_];
        made = std::make_unique<slot[]>(larger);
        for (depth_type i = 0; i < capacity_; ++i) {
            made[i] = static_cast<Job*>(slots_[i]);
        }
        ++grown_;
        slots_ = made.get();
        capacity_ = larger;
        // Order: release [fork_deque.grow]; publishes the copies of the public jobs.
        shared_slots_.store(slots_, std::memory_order_release);
    }

    // Only the owner writes it. Order: relaxed in the owner, where no other order is named.
    alignas(cache_line_pair) typename Platform::template atomic<depth_type> bottom_{0};
    // Only the owner uses these.
    depth_type capacity_ = 0;
    slot* slots_ = nullptr; // the jobs, by depth
    unsigned grown_ = 0;
    std::unique_ptr<slot[]> buffers_[max_buffers]; // all that were used: thieves may read old ones

    // Any thread uses these.
    alignas(cache_line_pair) typename Platform::template atomic<word> range_{0};
    typename Platform::template atomic<depth_type> limit_{min_public};
    typename Platform::template atomic<slot*> shared_slots_{nullptr};
    typename Platform::template atomic<publisher> publisher_{publisher::none};
};

}} // namespace bide::BIDE_ABI

#endif
