#ifndef BIDE_SCHED_DETAIL_POOL_HPP
#define BIDE_SCHED_DETAIL_POOL_HPP

// The workers of a scheduler together: who runs what, and who sleeps. The threads are the
// scheduler's; each calls run() with a worker of its own.
//
// What a worker runs next:
//
//   every interval  what is due of the timers and files, and one from the injector
//                   (global_queue_interval.hpp)
//   its LIFO slot   what was made runnable last, at most three in a row
//   its ring        in order; half of it is moved to the injector where it overflows
//   the injector    what came from outside or overflowed: a fair share at a time, into its ring
//   the others      half of somebody's ring; half of the workers may search at a time
//   forks           the oldest arm of somebody's fork-join (fork_lane.hpp)
//   sleep           after an arm, another look at all that for as long as a wake would take;
//                   idle.hpp: announce, look at everything once more, sleep without a time-out; but
//                   see maintenance.hpp

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/executor.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/spin.hpp>
#include <bide/sched/detail/fork_lane.hpp>
#include <bide/sched/detail/fork_place.hpp>
#include <bide/sched/detail/maintenance.hpp>
#include <bide/sched/detail/pool_owner.hpp>
#include <bide/sched/detail/work_queues.hpp>
#include <bide/sched/detail/worker.hpp>
#include <bide/sched/driver.hpp>
#include <bide/sched/trace.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_pool {
public:
    using worker = basic_worker<Platform>;
    using lane = basic_fork_lane<Platform>;
    using owner = basic_pool_owner<Platform>;
    using options = pool_options;

    basic_pool(owner& whose, const options& wanted)
        : owner_(whose), trace_(wanted.trace),
          queues_(*this, wanted.workers, wanted.steal, wanted.longest_nap_ns != 0, wanted.io),
          maintenance_(queues_, wanted.io, wanted.trace, wanted.longest_nap_ns) {}
    basic_pool(const basic_pool&) = delete;
    basic_pool& operator=(const basic_pool&) = delete;

    // The life of a thread as a worker, until stop(). Sooner where it blocked and was replaced.
    void run(worker& w) noexcept;

    // `r` will run on a worker; on a thread that is one, and on any thread.
    void push_local(worker& w, runnable& r) noexcept { queues_.push_local(w, r); }
    void push(runnable& r) noexcept { queues_.push(r); }

    // A worker that sleeps comes to find nothing; if none does, all will anyway.
    void nudge() noexcept { queues_.unpark(queues_.idle().wake_one()); }

    // All workers return from run() when they have nothing to run.
    void stop() noexcept;

    // Some worker is blocked and nobody sleeps: has it run by another thread, if there is one.
    void relieve() noexcept {
        if_short([this, none = false](worker& w) mutable noexcept { return pass_on(w, none); });
    }

    // The same for a thread that will run it itself; nullptr: no need.
    worker* take_blocked() noexcept {
        return if_short([this](worker& w) noexcept {
            return w.worker_ownership.pass_on([this]() noexcept {
                queues_.idle().away(-1);
                return true;
            });
        });
    }

    // What nobody has run. After the last run() has returned.
    runnable* left_over() noexcept { return queues_.pop(); }

    // What this thread is of this pool's: a worker, and which (nullptr: one that has none).
    struct place {
        basic_pool* pool = nullptr;
        worker* mine = nullptr;
        static place& here() noexcept { return Platform::template local<place>(); }
    };
    worker* mine() const noexcept {
        const place& here = place::here();
        return here.pool == this ? here.mine : nullptr;
    }

    std::deque<worker>& workers() noexcept { return queues_.workers(); }
    const std::deque<worker>& workers() const noexcept { return queues_.workers(); }
    std::size_t queued() const noexcept { return queues_.queued(); }
    bool steals() const noexcept { return queues_.steals(); } // workers do, from each other
    executor_ref executor() noexcept { return owner_.executor(); }
    const basic_idle<Platform>& idle() const noexcept { return queues_.idle(); }

    // What this thread, one of the scheduler's, forks with until it leaves. nullptr: no memory.
    lane* lane_here() noexcept { return basic_fork_place<Platform>::here().keep(*this); }
    void leave_lane() noexcept { basic_fork_place<Platform>::here().leave(*this); }

    // What any thread forks with until it puts it back. nullptr: no memory.
    lane* take_lane() noexcept { return queues_.lanes().take(*this, owner_.face()); }
    void put_lane(lane& mine) noexcept { queues_.lanes().put(mine); }

    // Something was forked where others find it. `brief`: it is worth no wake. Returns how long the
    // wake took, if there was one.
    std::int64_t fork_published(bool brief) noexcept;

    // Runs an arm that a worker has taken.
    void run_arm(basic_posted_fork<Platform>& arm) noexcept;

    // The workers'. See worker_host.
    void yield(worker& w, runnable& r) noexcept {
        if (runnable* const older = std::exchange(w.gave_way, &r)) {
            queues_.push_behind(w, *older);
        }
    }
    bool blocks(worker& w) noexcept;
    void unblocks(worker& w) noexcept;
    void earlier_timer(worker& of) noexcept { maintenance_.earlier_timer(of, mine() == &of); }

private:
    runnable* find(worker& w) noexcept;
    void execute(worker& w, runnable& r) noexcept;
    runnable* look_up(worker& w) noexcept;
    runnable* search(worker& w, bool napped, bool& more) noexcept;
    runnable* search_or_sleep(worker& w) noexcept;
    bool pass_on(worker& w, bool& in_vain) noexcept;

    // Some worker is blocked and nobody sleeps: the first worker that `take` takes over.
    template <class Take> worker* if_short(Take&& take) noexcept {
        if (idle().is_short()) {
            for (worker& w : workers()) {
                if (take(w)) {
                    return &w;
                }
            }
        }
        return nullptr;
    }

    owner& owner_;
    trace_sink* const trace_;
    basic_work_queues<Platform> queues_;
    basic_maintenance<Platform> maintenance_;
    typename Platform::template atomic<bool> stopped_{false};
};

// ---- Running

template <class Platform> void basic_pool<Platform>::run(worker& w) noexcept {
    place& here = place::here();
    auto& resumed = Platform::template local<resume_state>();
    here = {this, &w};
    w.worker_ownership.begin(&here);
    resumed.worker = owner_.executor();
    while (here.mine == &w) {
        runnable* const r = find(w);
        if (r == nullptr) {
            break;
        }
        maintenance_.hand_over(w);
        execute(w, *r);
    }
    leave_lane();
    here = {};
    resumed.worker = {};
}

template <class Platform> void basic_pool<Platform>::execute(worker& w, runnable& r) noexcept {
    w.polled.add(1);
    auto& local = worker_local<Platform>::get();
    local.host = &w;
    const worker_turn<Platform> turn(local);
    w.forked = &r == &w.arm;
    if (trace_ == nullptr) {
        r.run.wake();
    } else {
        const unsigned index = w.index; // it may be somebody else's afterwards
        const std::int64_t begin = Platform::now();
        local.traced = true;
        local.name = nullptr;
        r.run.wake();
        trace_->ran(index, local.name, begin, Platform::now());
    }
    local.host = nullptr;
}

// Another thread may have the worker, and what is in `arm`, before it has ended.
template <class Platform>
void basic_pool<Platform>::run_arm(basic_posted_fork<Platform>& arm) noexcept {
    auto& job = *arm.what;
    auto& from = *arm.from;
    if (auto* const mine = lane_here()) {
        const basic_fork_session<Platform> session(*mine, from);
        mine->run(job, from);
    } else {
        from.give_back(job);
    }
}

template <class Platform> std::int64_t basic_pool<Platform>::fork_published(bool brief) noexcept {
    auto& idle = queues_.idle();
    const unsigned who = brief ? idle.wake_unless_watched() : idle.wake_one();
    if (who == idle.none) {
        return 0;
    }
    const std::int64_t begin = Platform::now();
    queues_.unpark(who);
    return Platform::now() - begin;
}

template <class Platform> runnable* basic_pool<Platform>::find(worker& w) noexcept {
    runnable* r = nullptr;
    if (w.global_interval.tick(&Platform::now)) {
        r = look_up(w);
    }
    if (runnable* const behind = w.gave_way) {
        w.gave_way = nullptr;
        if (r == nullptr && queues_.has_nothing(w)) {
            return behind;
        }
        queues_.push_behind(w, *behind);
    }
    if (r == nullptr) {
        r = queues_.local_work(w);
    }
    if (r == nullptr) {
        r = queues_.fetch(w);
    }
    return r != nullptr ? r : search_or_sleep(w);
}

// What a worker that has enough to do leaves undone for a while.
template <class Platform> runnable* basic_pool<Platform>::look_up(worker& w) noexcept {
    const std::int64_t now = Platform::now();
    w.global_interval.restart(now);
    maintenance_.look(w, now);
    return queues_.take_injected(w);
}

// ---- Searching and sleeping

// `more`: there is more than it takes, or may be.
template <class Platform>
runnable* basic_pool<Platform>::search(worker& w, bool napped, bool& more) noexcept {
    maintenance_.fire_timers(w, Platform::now());
    if (runnable* const own = queues_.local_work(w)) { // from timers and files
        more = more || !queues_.has_nothing(w);
        return own; // what it was woken for, if it was, is still there
    }
    more = false;
    runnable* r = queues_.fetch(w);
    if (r == nullptr && queues_.steals()) {
        unsigned taken = 1;
        r = queues_.steal(w, taken, more);
        if (r == nullptr && napped) {
            taken = 1;
            r = queues_.take_stale(w);
        }
        if (r != nullptr && trace_ != nullptr) {
            trace_->stole(w.index, taken, Platform::now());
        }
    }
    if (r == nullptr) {
        r = queues_.take_arm(w, more);
    }
    more = more || !queues_.has_nothing(w);
    return r;
}

template <class Platform> runnable* basic_pool<Platform>::search_or_sleep(worker& w) noexcept {
    auto& idle = queues_.idle();
    bool searching = idle.start_search();
    bool watches = false;
    bool called = false; // somebody woke it
    maintenance_.begin_naps(w);
    w.searches = true;
    for (;;) {
        if (searching) {
            bool more = called;
            runnable* r = search(w, watches, more);
            if (r == nullptr && std::exchange(w.forked, false)) { // others fork as fast
                basic_spin<Platform>::until(
                    [&]() noexcept { return (r = search(w, false, more)) != nullptr; });
            }
            if (r != nullptr) {
                w.searches = false;
                queues_.unpark(idle.end_search(more));
                relieve();
                w.global_interval.wake(Platform::now());
                return r;
            }
        }
        // Order: acquire [S3]; what came before stop().
        if (stopped_.load(std::memory_order_acquire)) {
            w.searches = false;
            if (searching) {
                queues_.unpark(idle.end_search(false));
            }
            return nullptr;
        }
        if (owner_.stands_in()) {
            w.searches = false;
            if (std::exchange(searching, false)) {
                queues_.unpark(idle.end_search(false));
            }
            if (owner_.give_back(w)) {
                place::here().mine = nullptr;
                return nullptr;
            }
            w.searches = true;
        }
        watches = idle.announce(w.index, searching, queues_.watched());
        owner_.found_nothing();
        called = !queues_.sees_work(w) && maintenance_.sleep(w, watches);
        // Order: relaxed; at the end all are woken, and may be among the sleepers still; the token
        // brought it.
        if (!called || stopped_.load(std::memory_order_relaxed)) {
            if (!idle.retract(w.index) && !called) {
                w.sleeper.park(deadline::never());
                called = true;
            }
        }
        searching = true;
    }
}

template <class Platform> void basic_pool<Platform>::stop() noexcept {
    // Order: release [S3]; what came before is seen by a worker that leaves.
    stopped_.store(true, std::memory_order_release);
    for (worker& w : workers()) {
        queues_.unpark(w);
    }
}

// ---- Blocking
//
// A thread that sleeps in a task keeps its worker as long as some other worker sleeps, who would be
// woken for what comes. Where none does, another thread takes the worker over: when the thread
// blocks, or when the last sleeper comes to run something [I3].

template <class Platform> bool basic_pool<Platform>::blocks(worker& w) noexcept {
    bool in_vain = false;
    worker_local<Platform>::get().host = nullptr;
    queues_.hand_over(w);
    maintenance_.hand_over(w);
    w.worker_ownership.block(&place::here());
    if (queues_.idle().away(1) == 0 && pass_on(w, in_vain)) {
        place::here().mine = nullptr;
    }
    return !in_vain;
}

template <class Platform> void basic_pool<Platform>::unblocks(worker& w) noexcept {
    place& here = place::here();
    if (here.mine != &w) {
        return;
    }
    if (w.worker_ownership.unblock(&here)) {
        queues_.idle().away(-1);
        worker_local<Platform>::get().host = &w;
    } else {
        here.mine = nullptr;
    }
}

// Has another thread run `w`, if its own is blocked. False: it is not, or there is no thread now: then
// the one that is free first does it; in vain, if there will be none, either.
template <class Platform> bool basic_pool<Platform>::pass_on(worker& w, bool& in_vain) noexcept {
    in_vain = false;
    const bool passed = w.worker_ownership.pass_on([this, &w, &in_vain]() noexcept {
        queues_.idle().away(-1);
        in_vain = !owner_.replace(w);
        if (in_vain) {
            queues_.idle().away(1);
        }
        return !in_vain;
    });
    if (in_vain) {
        in_vain = !owner_.call_for_help(); // not before, or it comes while the worker is neither's
    }
    return passed;
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
