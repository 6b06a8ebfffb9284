// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_FORK_LANE_HPP
#define BIDE_SCHED_DETAIL_FORK_LANE_HPP

// Each thread that forks has a lane: a deque of jobs and a parker. The lane belongs to the thread
// and not to the thread's worker, because another thread can take over the worker. A job is one
// function of a fork-join; such a function is called an arm. A thief is a thread that takes a job
// from another thread's lane. All lanes of a pool are in one list. The list only grows, and any
// thread reads it without a lock. Lanes that no thread uses are also in a free list. A lane exists
// until the pool is destroyed, because a thief may still read a lane that is in the free list. If
// the workers do not steal, threads have no lanes and run the arms in turn. So does the thread of a
// single worker. A single worker takes arms from the lanes of other threads only, and only if the
// machine has a processor for both. Each such fork-join would cost a wake, because a single worker
// is never the timed sleeper. So a fork-join that is not worth a wake has no lane then.
//
// A thread of the pool keeps its lane until it leaves the pool. Any other thread has a lane for the
// time of its outermost fork-join in the pool. A thread of the pool may enter a fork-join of
// another pool, and inside of that a fork-join of its own pool. For the inner fork-join, it gets
// one more lane.
//
// The job. The second arm of a fork-join is a job in the stack frame of that fork-join. The owner
// of a job is the thread that forked it. If a thief takes the job, the owner waits until the thief
// has ended it. Owner and thief share one word:
//
//   0                     the owner has the job, or a thief has just taken it
//   a lane's address      a thief runs the job and forks on this lane
//   the address | sleeps  the same, and the owner sleeps or is about to
//   sleeps                a thief has just taken the job, and the owner sleeps or is about to
//   done                  the job ended with a value
//   failed                the job ended with an exception
//   returned              the thief gave the job back; the owner must run it
//   an outcome | sleeps   the outcome (done, failed or returned); the owner was about to sleep
//   (no other value is possible)
//
// Each change of the word is one read-modify-write. The thief first adds its lane, which keeps the
// bit `sleeps`, and at last writes the outcome. If the owner sets the bit before the outcome is
// written, the write of the outcome returns the bit, and the thief wakes the owner. If the owner
// sets the bit later, the owner sees the outcome and does not sleep. The write of the outcome is
// the thief's last access to the job, because the owner may then destroy the stack frame of the
// job.
//
// Waiting. An owner that waits for a stolen arm runs other arms meanwhile. It runs only arms that
// the thief has forked inside of the stolen arm (leapfrogging: Wagner, Calder, "Leapfrogging: A
// Portable Technique for Implementing Efficient Futures", PPoPP 1993). Without thieves, the owner
// would run these arms itself, on top of the same stack frames. If such an arm waits for a lock
// that these frames hold, it would also wait in a run on one thread. So leapfrogging adds no
// deadlock. The stack becomes no deeper than in a run on one thread.
//
// After the owner has read the word, the thief may end the stolen arm and begin another one. So
// after the owner has taken an arm from the thief's lane, it reads the word again. If the stolen
// arm has not ended, the thief forked the taken arm inside of it: an arm ends after all arms that
// it has forked [fork_job.end]. If the stolen arm has ended, the owner gives the taken arm back.
//
// Wakes. An idle worker could run a published arm (one that thieves may take), but a wake takes the
// caller longer than a whole small fork-join. So each place in the program that begins an outermost
// fork-join stores the average work of these fork-joins (basic_fork_call_site). The work is
// estimated as the time of the caller, without its wakes and waits, times n + 1. Here n is the
// number of arms that thieves ran and the caller waited for. If the waits counted, a preempted
// thief would make a small fork-join look large, and the next fork-join would wake too many
// workers.
//
// A fork-join may wake one worker for each 20 us of its expected work. If a wake takes its caller
// more than 3.3 us, the work must be six times as long as the wake, but at most 100 us: on some
// virtual machines a wake takes its caller 15 us, and the worker runs another 15 us later. If the
// fork-join has already taken longer than expected when a thief comes, the time that it has taken
// counts in place of the expected work.
// A worker that takes an arm wakes another one, if the lane has more arms. If its last arms took
// twice as long as a fork-join must take to be worth a wake, it wakes two. So the number of awake
// workers doubles, until all workers are awake. Where arms are short, more workers would only
// contend for them. (On 64 simulated processors, 64 leaves of 1 ms take 1.28 ms, without the second
// wake 1.52. With two wakes after each arm, they take 1.14 ms, but a recursion of 100 us takes 2.5
// times as long.)
//
// A fork-join wakes one worker even for less work, unless an idle worker sleeps with a time-out:
// the timed sleeper (pool.hpp) then finds the arms. While there is a timed sleeper, the fork-join wakes no
// worker either if at least as many callers own no worker as workers sleep
// (basic_pool::add_callers). A loop that is not worth a wake, but would cause one because there is
// no timed sleeper, begins without a fork-join (alone_ns() of basic_fork_call_site).
//
// If the fork-join is a loop, the place stores the work of one iteration, so that the estimate fits
// short and long runs. These numbers affect only the speed, because the owner runs each arm that no
// worker takes.
//
// The limit. A fork-join may have a maximum number of threads (fork_options::max_workers). The lane
// of its caller then counts the workers that run its arms. That lane, called the limit, is also
// known to the lanes on which these workers fork. A worker enters the limit before it takes an arm
// from such a lane, and leaves it when it has run the arm. It keeps a list of what it has entered:
// when the arm has ended, its owner may begin a fork-join with other limits. If the limit is full,
// the arms stay with their owners. A worker that goes to sleep does not see the arms of a full
// limit. No wake is lost: the worker that leaves looks for another arm before it sleeps, and the
// owner runs each arm that no worker takes. A thread that waits for a stolen arm is counted
// already, so it runs other arms without entering. If a fork-join with a limit is inside of another
// one, a worker enters both.
//
// A lane may begin another fork-join while a thief takes an arm. So each begin() changes the epoch
// of the lane. If the epoch has changed between the entry and the theft, the thief may have entered
// another limit. It then leaves that limit and enters the present one, or gives the arm back. While
// a thief has an arm, the lane begins no fork-join.
//
// Tasks. With fork_options::yield_to_tasks, a worker that runs a part of a loop (parallel_for.hpp)
// looks for tasks every 100 us. If it finds one, it ends its part after the present leaf, and the
// owner runs the rest. It does so only if its stack has no other arm, and if no other thread runs
// an arm that it has forked: else it would have to wait. Until the owner comes to the rest, no
// thread runs it, even if the owner is in a long iteration. So the program has to ask for this.

#include <bide/sched/detail/pool.hpp>
#include <bide/sched/fork_deque.hpp>

namespace bide { inline namespace BIDE_ABI { namespace detail {

template <class Platform> class basic_fork_lane;
template <class Platform> class basic_fork_lanes;
template <class Platform> class basic_fork_scope;
template <class Platform> class basic_spawn_frame; // parallel/fork_scope.hpp

template <class Platform> class basic_fork_job {
    using lane = basic_fork_lane<Platform>;
    using word = std::uintptr_t;

public:
    // Runs the arm and stores its value or its exception. Returns true if the arm threw.
    using function = bool (*)(basic_fork_job&) noexcept;

    explicit basic_fork_job(function call) noexcept : run_(call) {}

    enum class end : std::uint8_t { none, done, failed, returned };

    // ---- The thief

    // Runs the job, which forks on the lane `on`. Returns true if the owner sleeps.
    [[nodiscard]] bool run(lane& on) noexcept {
        // Order: release [fork_job.thief]; the owner sees the construction of the lane.
        state_.fetch_or(reinterpret_cast<word>(&on), std::memory_order_release);
        return finish(run_(*this) ? failed : done);
    }

    // Gives the job back to its owner. Returns true if the owner sleeps.
    [[nodiscard]] bool give_back() noexcept { return finish(returned); }

    // ---- The owner

    // Returns how the job ended. If the job has not ended, returns none and sets `thief` to the
    // lane of the thief. If that lane is not known yet, sets `thief` to nullptr.
    end look(lane*& thief) const noexcept {
        // Order: acquire [fork_job.end] [fork_job.thief]; sees what the thief did, and its lane.
        const word seen = state_.load(std::memory_order_acquire);
        thief = seen > highest_end ? reinterpret_cast<lane*>(seen & ~sleeps) : nullptr;
        return end_of(seen);
    }

    // Called when the owner is about to sleep. Returns false if the job has ended.
    [[nodiscard]] bool sleep() noexcept {
        // Order: relaxed; afterwards the owner calls look(), which acquires.
        return end_of(state_.fetch_or(sleeps, std::memory_order_relaxed)) == end::none;
    }

private:
    // Addresses of lanes are larger than these values, and multiples of a larger number.
    static constexpr word sleeps = 1;
    static constexpr word done = 2;
    static constexpr word failed = 4;
    static constexpr word returned = 6;
    static constexpr word highest_end = returned | sleeps;

    static end end_of(word seen) noexcept {
        return seen <= highest_end ? static_cast<end>(seen / done) : end::none;
    }

    bool finish(word how) noexcept {
        // Order: release [fork_job.end]; the owner sees what the thief did.
        return (state_.exchange(how, std::memory_order_release) & sleeps) != 0;
    }

    const function run_;
    typename Platform::template atomic<word> state_{0};
};

template <class Platform> class alignas(cache_line_pair) basic_fork_lane {
public:
    using job = basic_fork_job<Platform>;
    using limits = basic_fork_limits<Platform>;
    using depth_type = std::uint32_t;

    // The number of workers that may take part in a fork-join without a limit.
    static constexpr std::uint32_t no_limit = ~std::uint32_t{0};

    basic_fork_lane(basic_pool<Platform>& of, const void* id) noexcept
        : scheduler_id(id), pool_(of) {}

    const void* const scheduler_id; // the scheduler's address; also in basic_fork_context

    // ---- The owner: the thread that the lane belongs to

    // Pushes a job. `is_brief` means that the job takes less time than a wake. Such a job wakes no
    // worker while an idle worker is the timed sleeper (pool.hpp).
    // Throws: std::bad_alloc, with nothing changed.
    BIDE_INLINE void push(job& j, bool is_brief = false) {
        if (deque_.push(j, [this]() noexcept { return wanted(); })) [[unlikely]] {
            wake(is_brief);
        }
    }

    // Pushes a job and publishes all jobs of the lane. Called by an owner that is about to do other
    // work for a while. The owner then calls wake_for_public().
    // Throws: std::bad_alloc, with nothing changed.
    void push_public(job& j) {
        deque_.push(j, []() noexcept { return most_public; });
    }
    // Wakes a worker for the published jobs. Any thread may call it.
    void wake_for_public() noexcept { pool_.fork_published(!is_worth_a_wake()); }

    // Takes the youngest job back. If it was stolen, returns false; the caller then calls wait().
    BIDE_INLINE bool pop(depth_type at) noexcept {
        const fork_pop how = deque_.pop(at, [this]() noexcept { return wanted(); });
        if (how == fork_pop::popped) [[likely]] {
            return true;
        }
        if (how == fork_pop::popped_and_published) {
            wake(false);
        }
        return how != fork_pop::stolen;
    }

    // Waits until the stolen job has ended or was given back, and returns how it ended. If `helps`
    // is false, runs no other job meanwhile.
    BIDE_NOINLINE typename job::end wait(job& mine, depth_type at, bool helps = true) noexcept {
        basic_fork_lane* thief = nullptr;
        auto how = mine.look(thief);
        if (how == job::end::none) {
            how = wait_for(mine, *this, helps);
        } else {
            ++overhead_.waits;
        }
        deque_.reset(at);
        return how;
    }

    // Waits until the stolen job `mine` has ended or was given back. The job was stolen from the
    // lane `from`, which may be a lane of another thread. Runs no other job meanwhile, because this
    // lane may have jobs that are older than `mine`. If this thread ran a job J of another owner,
    // that owner would wait for J, and would take jobs from this lane (leapfrogging). It may take
    // only jobs that were forked inside of J, but could get an older one. (In wait(), this lane has
    // no older job: thieves have stolen all of them before `mine`.)
    typename job::end wait_idle(job& mine, basic_fork_lane& from) noexcept {
        return wait_for(mine, from, false);
    }

    // Removes all jobs. Requires: all of them were stolen and have ended.
    void clear() noexcept { deque_.reset(0); }

    void run(job& j, basic_fork_lane& from) noexcept {
        if (j.run(*this)) {
            from.parker_.unpark();
        }
    }

    depth_type depth() const noexcept { return deque_.depth(); }
    // Returns true if this lane has no job for thieves. Also returns true if it has fewer than
    // `most` jobs, and fewer jobs than the number of workers that its fork-join may wake.
    bool wants_work(std::uint64_t most) const noexcept {
        const std::uint64_t wakes = (std::min)(worth(), pool_.wakes_for_arms());
        return deque_.wants_work(static_cast<depth_type>((std::min)(wakes, most)));
    }

    // Called by the owner when it begins a fork-join or a part of one. The fork-join may wake
    // `wakes` workers, and began at the time `ns`, in nanoseconds of the steady clock. `limit` is
    // the lane that counts its workers, or nullptr.
    // Requires: the lane has no job.
    void begin(std::uint32_t wakes, std::int64_t ns, basic_fork_lane* limit = nullptr) noexcept {
        // Order: relaxed, both; hints.
        worth_.store(limit == nullptr ? wakes : (std::min)(wakes, limit->most()),
                     std::memory_order_relaxed);
        begin_ns_.store(ns, std::memory_order_relaxed);
        if (limit != this->limit()) {
            // Order: relaxed; the publication of a job publishes the limit.
            limit_.store(limit, std::memory_order_relaxed);
        }
        // Order: release [fork_lane.epoch]; a thief that reads this epoch sees the limit. Only the
        // owner writes it.
        epoch_.store(epoch_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }

    // Makes this lane the limit of a fork-join in which at most `most` workers take part besides
    // the caller. `outer` is the limit of the fork-join around it, or nullptr. The caller then
    // passes this lane to begin().
    void set_limit(std::uint32_t most, basic_fork_lane* outer) noexcept {
        // Order: relaxed, both; the publication of a job publishes them.
        most_.store(most, std::memory_order_relaxed);
        outer_.store(outer, std::memory_order_relaxed);
    }

    // `outside` is true if the owner of the lane owns no worker (basic_pool::add_callers).
    void set_outside(bool outside) noexcept {
        if (is_outside_ != outside) {
            is_outside_ = outside;
            pool_.add_callers(outside ? 1 : -1);
        }
    }

    // The overhead of the owner since the last call of take_overhead().
    struct overhead {
        std::int64_t ns = 0;    // the time that wakes and waits have taken
        std::int64_t waits = 0; // the jobs that it has waited for
    };
    overhead take_overhead() noexcept { return std::exchange(overhead_, {}); }

    // ---- Any thread

    job* steal() noexcept { return deque_.steal(); }

    // Takes a job for a worker that does not take part in the fork-join of this lane yet. If the
    // lane has a limit, enters it and those around it. The worker later calls leave(entered).
    // Returns nullptr if there is no job, or if a limit is full.
    // Requires: the worker has left the limits of its last job.
    job* enter_and_steal(limits& entered) noexcept {
        if (deque_.wants_work(0)) { // no job is public
            return nullptr;
        }
        // Order: acquire [fork_lane.epoch]; sees the limit.
        const std::uint32_t epoch = epoch_.load(std::memory_order_acquire);
        basic_fork_lane* const before = limit();
        if (!enter(before, entered)) {
            return nullptr;
        }
        job* const taken = steal();
        if (taken == nullptr) {
            leave(entered);
            return nullptr;
        }
        // Order: relaxed; the theft acquires what the owner did before it published the job.
        if (epoch_.load(std::memory_order_relaxed) == epoch ||
            (before == nullptr && limit() == nullptr)) [[likely]] {
            return taken;
        }
        leave(entered);
        if (enter(limit(), entered)) {
            return taken;
        }
        give_back(*taken);
        return nullptr;
    }
    // Leaves all limits.
    static void leave(limits& entered) noexcept {
        while (entered.count != 0) {
            // Order: release [fork_lane.limit]; the next worker that enters sees what this one did.
            // seq_cst [idle.announce]; comes before the worker announces its sleep.
            entered.entered[--entered.count]->inside_.fetch_sub(1, std::memory_order_seq_cst);
        }
    }
    // Returns true if another worker may take part in the fork-join of this lane.
    bool admits() const noexcept {
        unsigned count = 0;
        for (const basic_fork_lane* at = limit(); at != nullptr; at = at->outer()) {
            if (count++ == limits::most) {
                return false; // enter() never succeeds
            }
            // Order: seq_cst [idle.announce]; an owner reads it after it has published a job. If it
            // misses that a worker has left, that worker sees the job before it sleeps.
            if (at->inside_.load(std::memory_order_seq_cst) >= at->most()) {
                return false;
            }
        }
        return true;
    }
    // Returns the lane that counts the workers of this lane's fork-join, or nullptr.
    basic_fork_lane* limit() const noexcept {
        // Order: relaxed; the owner reads what it wrote. A thief has read the epoch, or has an arm
        // of this lane; then the lane begins no other fork-join.
        return limit_.load(std::memory_order_relaxed);
    }

    bool is_empty() const noexcept { return deque_.is_empty_to_thieves(); }
    depth_type jobs() const noexcept { return deque_.jobs(); }

    bool hides_jobs() const noexcept { return deque_.hides_jobs(); }
    // If all jobs of this lane are private and the owner is busy with another job, publishes them.
    // Returns true if this lane may have public jobs now.
    bool publish_hidden() noexcept {
        if (!hides_jobs()) {
            return false;
        }
        return basic_spin<Platform>::spin_once(
                   [this]() noexcept { return !deque_.hides_jobs(); }) ||
               deque_.publish_all();
    }

    // Gives a job that was taken from this lane back to the owner.
    void give_back(job& j) noexcept {
        if (j.give_back()) {
            parker_.unpark();
        }
    }

    // Returns the time that a fork-join must take to be worth one wake: six times what a wake takes
    // its caller, but between 20 and 100 us.
    static std::int64_t worth_a_wake_ns() noexcept {
        constexpr std::int64_t least = 20'000;
        if constexpr (Platform::model) {
            return least;
        } else {
            constexpr std::int64_t most = 100'000;
            // Order: relaxed; an estimate.
            return std::clamp(6 * wake_ns_.load(std::memory_order_relaxed), least, most);
        }
    }
    // Returns how many wakes a fork-join of this duration is worth.
    static std::uint32_t worth_of(std::int64_t ns) noexcept {
        constexpr std::int64_t most = 1 << 20;
        return static_cast<std::uint32_t>(
            std::clamp(ns / worth_a_wake_ns(), std::int64_t{0}, most));
    }
    std::uint32_t worth() const noexcept {
        // Order: relaxed; a hint.
        return worth_.load(std::memory_order_relaxed);
    }
    std::int64_t begin_ns() const noexcept {
        // Order: relaxed; a hint.
        return begin_ns_.load(std::memory_order_relaxed);
    }
    // Raises the number of wakes that the fork-join is worth, if it has taken longer than expected.
    // `now` is the current time.
    void note_time(std::int64_t now) noexcept {
        const basic_fork_lane* const its_limit = limit();
        const std::uint32_t most = its_limit == nullptr ? no_limit : its_limit->most();
        const std::uint32_t least = (std::min)(worth_of(now - begin_ns()), most);
        if (least > worth()) {
            // Order: relaxed; a hint.
            worth_.store(least, std::memory_order_relaxed);
        }
    }
    // Returns true if a worker may be woken for a job of this lane.
    bool is_worth_a_wake() const noexcept { return worth() != 0 && pool_.wakes_for_arms() != 0; }

    // ---- A thief, which is the owner of this lane

    // Returns true if the arm that the thief begins is the only one on its stack.
    bool may_leave() const noexcept { return depth() == 0 && pool_.current_worker() != nullptr; }

    // Requires: may_leave() was true when the arm began.
    bool leaves_for_task(std::int64_t now) noexcept {
        if (now - looked_ns_ < look_interval_ns) [[likely]] {
            return false;
        }
        looked_ns_ = now;
        basic_worker<Platform>* const mine = pool_.current_worker();
        return mine != nullptr && !deque_.has_stolen() && pool_.claim_task(*mine);
    }

private:
    friend basic_fork_lanes<Platform>;

    static constexpr std::int64_t look_interval_ns = 100'000;

    std::uint32_t most() const noexcept {
        // Order: relaxed; see limit().
        return most_.load(std::memory_order_relaxed);
    }
    basic_fork_lane* outer() const noexcept {
        // Order: relaxed; see limit().
        return outer_.load(std::memory_order_relaxed);
    }

    // Enters a limit and those around it. Returns false, and has entered none, if one is full, or
    // if there are more than a worker can enter: then the owners run the arms.
    static bool enter(basic_fork_lane* limit, limits& entered) noexcept {
        for (basic_fork_lane* at = limit; at != nullptr; at = at->outer()) {
            if (entered.count == limits::most) {
                leave(entered);
                return false;
            }
            // Order: relaxed; the CAS checks this value.
            std::uint32_t inside = at->inside_.load(std::memory_order_relaxed);
            do {
                if (inside >= at->most()) {
                    leave(entered);
                    return false;
                }
                // Order: acquire [fork_lane.limit]; sees what the workers did that have left.
                // Failure: the loop reads again.
            } while (!at->inside_.compare_exchange_weak(
                inside, inside + 1, std::memory_order_acquire, std::memory_order_relaxed));
            entered.entered[entered.count++] = at;
        }
        return true;
    }

    // Returns how many jobs the owner keeps public. If thieves can publish jobs, the number is as
    // small as possible. If not, it is one for each sleeping worker, but at least four.
    depth_type wanted() const noexcept {
        return deque_.thieves_publish() ? 0
                                        : (std::max)(depth_type{4}, pool_.idle().sleepers_hint());
    }

    static constexpr depth_type most_public = depth_type{1} << 30;

    // Learns from a wake that has taken its caller `ns` nanoseconds. A wake in which the caller was
    // preempted counts no more than a few microseconds.
    static void learn_wake(std::int64_t ns) noexcept {
        if constexpr (!Platform::model) {
            // Order: relaxed, both; an estimate, and a lost update does no harm.
            const std::int64_t old = wake_ns_.load(std::memory_order_relaxed);
            const std::int64_t counted = (std::min)(ns, 2 * old + 1'000);
            wake_ns_.store(old + (counted - old) / 8, std::memory_order_relaxed);
        }
    }

    BIDE_NOINLINE typename job::end wait_for(job& mine, basic_fork_lane& from,
                                             bool helps) noexcept {
        auto how = job::end::none;
        // The whole wait counts as overhead, with the jobs that the owner runs meanwhile. Waits
        // inside of these jobs do not count again.
        const std::int64_t before = overhead_.ns;
        const std::int64_t begin = Platform::now();
        for (;;) {
            basic_fork_lane* thief = nullptr;
            job* other = nullptr;
            basic_spin<Platform>::until(
                [&]() noexcept {
                    how = mine.look(thief);
                    if (helps && how == job::end::none && thief != nullptr) {
                        other = thief->steal(); // this thread is counted already
                    }
                    return how != job::end::none || other != nullptr;
                },
                helps ? pool_.least_spin_ns() : 0);
            if (other != nullptr) {
                basic_fork_lane* now = nullptr;
                how = mine.look(now);
                if (how == job::end::none) {
                    run(*other, *thief);
                    continue;
                }
                thief->give_back(*other);
            }
            if (how != job::end::none) {
                break;
            }
            if (helps && thief != nullptr && thief->publish_hidden()) {
                pool_.fork_published(false);
                continue;
            }
            if (mine.sleep()) {
                sleep(from);
            }
        }
        overhead_.ns = before + (Platform::now() - begin);
        ++overhead_.waits;
        return how;
    }

    BIDE_COLD void wake(bool is_brief) noexcept {
        if (!admits()) {
            return; // a worker that leaves the limit finds the arm
        }
        const std::int64_t ns = pool_.fork_published(is_brief || !is_worth_a_wake());
        overhead_.ns += ns;
        if (ns != 0) {
            learn_wake(ns);
        }
    }
    // Sleeps on the parker of the lane that the job was stolen from.
    void sleep(basic_fork_lane& from) noexcept {
        const bool was_outside = is_outside_;
        set_outside(false); // the thread uses no processor while it sleeps
        from.parker_.park();
        set_outside(was_outside);
    }

    // How long a wake takes its caller, on average.
    inline static typename Platform::template atomic<std::int64_t> wake_ns_{0};

    basic_fork_deque<Platform, job> deque_;
    basic_pool<Platform>& pool_;
    overhead overhead_; // only the owner uses it
    typename Platform::template atomic<std::uint32_t> worth_{0};
    typename Platform::template atomic<std::int64_t> begin_ns_{0};
    typename Platform::template atomic<basic_fork_lane*> limit_{nullptr};
    typename Platform::template atomic<std::uint32_t> epoch_{0}; // changes with each begin()
    // Of a lane that is a limit:
    typename Platform::template atomic<std::uint32_t> most_{0};
    typename Platform::template atomic<std::uint32_t> inside_{0}; // workers, at most `most_`
    typename Platform::template atomic<basic_fork_lane*> outer_{nullptr};
    basic_parker<Platform> parker_;

    // Under the lock of basic_fork_lanes:
    typename Platform::template var<basic_fork_lane*> next_free_{nullptr};
    // Set once, before other threads find the lane:
    typename Platform::template var<basic_fork_lane*> older_{nullptr};
    // Only the owner uses these:
    bool is_outside_ = false;
    std::int64_t looked_ns_ = 0; // when it last looked for tasks in the course of an arm
};

// ---- The threads of a pool, and their lanes

// The present fork-join of a thread. Each thread has one such object.
template <class Platform> struct BIDE_SHARED basic_fork_context {
    const void* scheduler_id = nullptr;        // set while the thread is in a fork-join
    basic_fork_lane<Platform>* lane = nullptr; // the lane of the fork-join, or else of the thread
    basic_spawn_frame<Platform>* frame = nullptr; // the innermost scope that spawns on this lane

    static basic_fork_context& here() noexcept {
        return Platform::template near_local<basic_fork_context>();
    }
};

// The fork lanes of a pool. The first fork-join of the pool makes this object.
template <class Platform> class basic_fork_lanes final : public basic_arm_source<Platform> {
public:
    using lane = basic_fork_lane<Platform>;
    using job = basic_fork_job<Platform>;

    // Returns the lanes of a pool. Returns nullptr if there is no memory.
    static basic_fork_lanes* of(basic_pool<Platform>& pool) noexcept {
        basic_arm_source<Platform>* all = pool.arms();
        if (all == nullptr) {
            all = pool.set_arms(new (std::nothrow) basic_fork_lanes(pool));
        }
        return static_cast<basic_fork_lanes*>(all);
    }
    explicit basic_fork_lanes(basic_pool<Platform>& of) noexcept : pool_(of) {}
    ~basic_fork_lanes() override {
        // Order: relaxed; no thread forks any more.
        for (lane* at = newest_.load(std::memory_order_relaxed); at != nullptr;) {
            lane* const older = at->older_;
            delete at;
            at = older;
        }
    }

    // Returns a free lane or a new one. Returns nullptr if there is no memory.
    lane* take() noexcept {
        {
            const guard section(lock_);
            if (lane* const kept = free_) {
                free_ = static_cast<lane*>(kept->next_free_);
                return kept;
            }
        }
        lane* const mine = new (std::nothrow) lane(pool_, pool_.scheduler_id());
        if (mine == nullptr) {
            return nullptr;
        }
        const guard section(lock_);
        // Order: relaxed; it changes only under the lock.
        mine->older_ = newest_.load(std::memory_order_relaxed);
        // Order: seq_cst [idle.announce]; the lane is in the list before a job is published on it.
        // Release [fork_lane.list]; a thread that finds the lane sees its construction.
        newest_.store(mine, std::memory_order_seq_cst);
        // Order: relaxed; nothing depends on it.
        count_.fetch_add(1, std::memory_order_relaxed);
        return mine;
    }

    // Puts a lane into the free list.
    // Requires: the lane holds no job.
    void put(lane& mine) noexcept {
        const guard section(lock_);
        mine.next_free_ = static_cast<lane*>(free_);
        free_ = &mine;
    }

    // Returns the lane of the calling thread, which is a thread of the pool. The thread keeps this
    // lane. Returns nullptr if there is no memory.
    // Requires: the thread is in no fork-join of another pool.
    lane* thread_lane() noexcept {
        lane*& kept = basic_fork_context<Platform>::here().lane;
        if (kept == nullptr) {
            kept = take();
        }
        return kept;
    }
    void drop_thread_lane() noexcept override {
        if (lane* const kept = std::exchange(basic_fork_context<Platform>::here().lane, nullptr)) {
            put(*kept);
        }
    }

    // Takes the oldest public job of a lane, and sets `from` to that lane. Returns nullptr if no
    // lane has a public job. `chance` selects the lane that is searched first. The worker enters
    // the limits of the lane, as by enter_and_steal().
    job* steal(std::uint64_t chance, lane*& from, basic_fork_limits<Platform>& entered) noexcept {
        lane* const newest = this->newest();
        if (newest == nullptr) {
            return nullptr;
        }
        // Order: relaxed; see take().
        const std::uint32_t count = count_.load(std::memory_order_relaxed);
        lane* first = newest;
        for (std::uint64_t skip = count == 0 ? 0 : chance % count; skip > 0; --skip) {
            lane* const older = first->older_;
            first = older != nullptr ? older : newest;
        }
        lane* at = first;
        do {
            if (job* const taken = at->enter_and_steal(entered)) {
                from = at;
                return taken;
            }
            lane* const older = at->older_;
            at = older != nullptr ? older : newest;
        } while (at != first);
        return nullptr;
    }

    // Looks for a lane whose owner is busy with another job, and publishes the jobs of that lane.
    // Returns true if a lane may have public jobs now.
    bool publish_hidden() noexcept {
        for (lane* at = newest(); at != nullptr; at = at->older_) {
            if (at->hides_jobs() && at->admits() && at->publish_hidden()) {
                return true;
            }
        }
        return false;
    }

    bool has_work() const noexcept override {
        for (const lane* at = newest(); at != nullptr; at = at->older_) {
            if ((!at->is_empty() || at->hides_jobs()) && at->admits()) {
                return true;
            }
        }
        return false;
    }

    bool take_arm(basic_worker<Platform>& w, bool& left) noexcept override {
        basic_posted_fork<Platform>& arm = w.arm;
        arm.what = steal(w.next_random(), arm.from, arm.limits);
        if (arm.what == nullptr && publish_hidden()) {
            arm.what = steal(w.next_random(), arm.from, arm.limits);
        }
        if (arm.what == nullptr) {
            return false;
        }
        arm.run = waker(&run_arm, &arm);
        w.arm_begin_ns = Platform::now();
        arm.from->note_time(w.arm_begin_ns);
        const unsigned jobs = arm.from->admits() ? arm.from->jobs() : 0;
        left = jobs != 0 && (arm.from->is_worth_a_wake() || !pool_.idle().has_timed_sleeper());
        arm.more_wakes = w.arm_ns < 2 * lane::worth_a_wake_ns()
                             ? 0
                             : (std::min)({jobs, arm.from->worth(), pool_.wakes_for_arms()});
        return true;
    }
    bool take_next_arm(basic_worker<Platform>& w, std::int64_t now) noexcept override {
        w.arm.what = w.arm.from->enter_and_steal(w.arm.limits);
        if (w.arm.what == nullptr) {
            return false;
        }
        w.arm.from->note_time(now);
        return true;
    }

private:
    using guard = typename lock_bits<Platform, std::uint32_t>::guard;

    // Runs the stolen job that `posted` describes; `posted` is the member `arm` of the worker. If
    // there is no memory for a lane of this thread, gives the job back. Reads the members of
    // `posted` before the job runs, because another thread may take over the worker meanwhile and
    // overwrite `arm`.
    static void run_arm(void* posted) noexcept {
        auto& arm = *static_cast<basic_posted_fork<Platform>*>(posted);
        auto& job = *arm.what;
        lane& from = *arm.from;
        basic_fork_limits<Platform> limits = arm.limits;
        arm.limits.count = 0;
        if (lane* const mine = static_cast<basic_fork_lanes*>(from.pool_.arms())->thread_lane()) {
            const basic_fork_scope<Platform> scope(*mine, from);
            mine->run(job, from);
        } else {
            from.give_back(job);
        }
        lane::leave(limits);
    }

    lane* newest() const noexcept {
        // Order: seq_cst [idle.announce]; if this load misses a lane, no job was published on that
        // lane before this worker's announcement. Acquire [fork_lane.list]; sees the construction
        // of each lane in the list.
        return newest_.load(std::memory_order_seq_cst);
    }

    basic_pool<Platform>& pool_;
    typename Platform::template atomic<std::uint32_t> lock_{0};
    typename Platform::template atomic<lane*> newest_{nullptr};
    // Under the lock:
    typename Platform::template var<lane*> free_{nullptr};
    // Order: relaxed; how many lanes there are, approximately.
    typename Platform::template atomic<std::uint32_t> count_{0};
};

// ---- Fork-joins

// The lane of a thread for one outermost fork-join. It is the lane that the thread keeps, or a lane
// that the destructor puts back.
template <class Platform> class basic_scoped_lane {
    using lane = basic_fork_lane<Platform>;

public:
    // `kept` is true if the thread belongs to the pool and is in no fork-join. `is_inner` is true
    // if the thread is in a fork-join of the pool.
    basic_scoped_lane(basic_pool<Platform>& its_pool, bool kept, bool is_inner = false) noexcept
        : all_(basic_fork_lanes<Platform>::of(its_pool)), kept_(kept),
          lane_(all_ == nullptr ? nullptr
                : kept          ? all_->thread_lane()
                                : all_->take()) {
        if (lane_ != nullptr) {
            lane_->set_outside(!is_inner && its_pool.current_worker() == nullptr);
        }
    }
    basic_scoped_lane& operator=(basic_scoped_lane&&) = delete;
    ~basic_scoped_lane() {
        if (lane_ == nullptr) {
            return;
        }
        lane_->set_outside(false);
        if (!kept_) {
            all_->put(*lane_);
        }
    }

    // Returns nullptr if there was no memory.
    lane* get() const noexcept { return lane_; }

private:
    basic_fork_lanes<Platform>* const all_;
    const bool kept_;
    lane* const lane_;
};

// The average work of the outermost fork-joins that one place in the program begins. If the
// fork-join is a loop, the work is that of one iteration.
template <class Platform> class basic_fork_call_site {
public:
    // Returns the expected time of `iterations` iterations on one thread, in nanoseconds. Returns
    // the largest number if no fork-join has been measured yet.
    std::int64_t expected_ns(std::uint64_t iterations = 1) const noexcept {
        // Order: relaxed; an estimate.
        const std::int64_t average = average_.load(std::memory_order_relaxed);
        const double ns = static_cast<double>(average) * static_cast<double>(iterations) / scale;
        return average == unknown || ns >= most_ns ? unknown : static_cast<std::int64_t>(ns);
    }

    // Returns for how many nanoseconds a loop runs on the calling thread alone before it becomes a
    // fork-join. Returns 0 if it begins as a fork-join. A loop begins alone if it is expected to
    // take at most `longest_ns`, or if the fork-join would cost a wake that it is not worth.
    std::int64_t alone_ns(basic_pool<Platform>& in, std::int64_t longest_ns,
                          std::uint64_t iterations) const noexcept {
        constexpr std::int64_t least = 4'000;
        const std::int64_t expected = expected_ns(iterations);
        if (expected <= longest_ns) {
            return least;
        }
        const bool is_vain = expected < basic_fork_lane<Platform>::worth_a_wake_ns() &&
                             in.idle().wakes_for_brief_arm();
        return is_vain ? (std::max)(least, 2 * expected) : 0;
    }

    // Returns how many wakes the fork-join is worth.
    std::uint32_t worth(std::uint64_t iterations = 1) const noexcept {
        return basic_fork_lane<Platform>::worth_of(expected_ns(iterations));
    }

    void learn(std::int64_t ns, std::uint64_t iterations = 1) noexcept {
        const double one = static_cast<double>(ns) * scale / static_cast<double>(iterations);
        const auto now = static_cast<std::int64_t>(std::clamp(one, 0.0, most_ns));
        // Order: relaxed; an estimate. A lost update does no harm.
        const std::int64_t old = average_.load(std::memory_order_relaxed);
        const std::int64_t next = old == unknown ? now : old + (now - old) / 4;
        // Order: relaxed; an estimate. An unchanged number is not stored, so that the cache line
        // stays shared among the callers that read it.
        if (next != old) {
            average_.store(next, std::memory_order_relaxed);
        }
    }

private:
    static constexpr std::int64_t unknown = (std::numeric_limits<std::int64_t>::max)();
    static constexpr double scale = 1'024;
    static constexpr double most_ns = 1e18;

    // The average time of an iteration, in 1/1024 ns.
    typename Platform::template atomic<std::int64_t> average_{unknown};
};

// While this object lives, the calling thread is in a fork-join. The destructor restores the
// previous state: a fork-join of another pool, or none.
template <class Platform> class basic_fork_scope {
    using context = basic_fork_context<Platform>;
    using lane = basic_fork_lane<Platform>;

public:
    // Begins an outermost fork-join of `iterations` iterations, or one that has a limit. A
    // fork-join that is not a loop has one iteration. If `since` is not 0, it is the time at which
    // the fork-join began. At most `max_workers` threads take part, and the calling thread is one.
    basic_fork_scope(lane& on, basic_fork_call_site<Platform>& site, std::uint64_t iterations = 1,
                     std::int64_t since = 0, std::uint32_t max_workers = lane::no_limit) noexcept
        : site_(&site), iterations_(iterations), begin_ns_(Platform::now()) {
        const bool has_limit = max_workers != lane::no_limit;
        if (has_limit) {
            const bool is_inner =
                before_.lane != nullptr && before_.scheduler_id == on.scheduler_id;
            on.set_limit(max_workers - 1, is_inner ? before_.lane->limit() : nullptr);
        }
        on.begin(site.worth(iterations), since != 0 ? since : begin_ns_, has_limit ? &on : nullptr);
        if (since != 0) {
            on.note_time(begin_ns_);
        }
        on.take_overhead();
        context::here() = {on.scheduler_id, &on};
    }
    // Begins an outermost fork-join without a lane, whose arms the calling thread runs. If `site`
    // is not nullptr, it learns the time.
    explicit basic_fork_scope(const void* scheduler_id,
                              basic_fork_call_site<Platform>* site = nullptr,
                              std::uint64_t iterations = 1) noexcept
        : site_(site), iterations_(iterations), begin_ns_(site != nullptr ? Platform::now() : 0) {
        context::here() = {scheduler_id, nullptr};
    }
    // Begins an arm that was stolen from `from`.
    basic_fork_scope(lane& on, const lane& from) noexcept {
        on.begin(from.worth(), from.begin_ns(), from.limit());
        context::here() = {on.scheduler_id, &on};
    }
    basic_fork_scope& operator=(basic_fork_scope&&) = delete;
    ~basic_fork_scope() {
        context& here = context::here();
        if (site_ != nullptr) {
            const auto besides =
                here.lane != nullptr ? here.lane->take_overhead() : typename lane::overhead();
            const std::int64_t own = Platform::now() - begin_ns_ - besides.ns;
            site_->learn(own * (1 + (std::min)(besides.waits, most_waits)), iterations_);
        }
        here = before_;
    }

private:
    static constexpr std::int64_t most_waits = 1'000;

    const context before_ = context::here();
    basic_fork_call_site<Platform>* const site_ = nullptr;
    const std::uint64_t iterations_ = 1;
    const std::int64_t begin_ns_ = 0;
};

}}} // namespace bide::BIDE_ABI::detail

#endif
