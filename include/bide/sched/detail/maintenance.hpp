#ifndef BIDE_SCHED_DETAIL_MAINTENANCE_HPP
#define BIDE_SCHED_DETAIL_MAINTENANCE_HPP

// What the workers of a pool (pool.hpp) look after besides their queues: timers, files by way of a
// driver, and, one of them, what others are slow to run. Busy workers do it now and then, idle ones
// in their sleep: one sleeps until the earliest timer of all (timer_leader.hpp), one in the driver,
// and while others run one naps, 100 us at first, then twice as long, up to 4 ms: the watcher
// (work_queues.hpp). Who was that and comes to run something wakes another, where it is needed.

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>
#include <bide/core/platform.hpp>
#include <bide/core/resume.hpp>
#include <bide/core/timer.hpp>
#include <bide/sched/detail/driver_lock.hpp>
#include <bide/sched/detail/timer_leader.hpp>
#include <bide/sched/detail/work_queues.hpp>
#include <bide/sched/detail/worker.hpp>
#include <bide/sched/driver.hpp>
#include <bide/sched/trace.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Platform> class basic_maintenance {
public:
    using worker = basic_worker<Platform>;

    basic_maintenance(basic_work_queues<Platform>& queues, driver* io, trace_sink* trace,
                      std::int64_t longest_nap_ns) noexcept
        : queues_(queues), trace_(trace),
          longest_nap_ns_((std::min)(longest_nap_ns, std::int64_t{1'000'000'000})), seat_(io) {}
    basic_maintenance(const basic_maintenance&) = delete;
    basic_maintenance& operator=(const basic_maintenance&) = delete;

    // A busy worker: fires what is due, hands over what the driver has.
    void look(worker& w, std::int64_t now) noexcept {
        fire_timers(w, now);
        if (driver* const io = seat_.enter()) {
            wake_scope<Platform> later(&service_executor<Platform>); // run as tasks are
            io->wait(deadline::poll());
            leave(w);
        }
    }

    // Fires what is due of all workers' timers; how many.
    unsigned fire_timers(worker& w, std::int64_t now) noexcept;

    // An idle one, before the first of its sleeps.
    void begin_naps(worker& w) noexcept { w.nap_ns = (std::min)(first_nap_ns, longest_nap_ns_); }

    // Sleeps until it is woken (true), or it has to look.
    bool sleep(worker& w, bool watches) noexcept;

    // `w` is going to run something, or to block: others take over what it looked after.
    void hand_over(worker& w) noexcept;

    // A timer of `of` has become its earliest. `own`: it was added on the worker's thread, which
    // comes to hand_over() before it runs anything else, or sleeps itself.
    void earlier_timer(worker& of, bool own) noexcept {
        if (own) {
            of.timer_unseen = true;
        } else if (timer_leader_.misses(of.timers.next_ns())) {
            queues_.unpark(queues_.idle().wake_one());
        }
    }

private:
    static constexpr std::int64_t never = worker::never;
    static constexpr std::int64_t first_nap_ns = 100'000;

    std::int64_t next_timer() const noexcept;

    void leave(worker& w) noexcept {
        seat_.leave();
        w.left_driver = true;
    }

    basic_work_queues<Platform>& queues_;
    trace_sink* const trace_;
    const std::int64_t longest_nap_ns_;
    basic_driver_lock<Platform> seat_;
    alignas(cache_line_pair) basic_timer_leader<Platform> timer_leader_;
};

template <class Platform>
unsigned basic_maintenance<Platform>::fire_timers(worker& w, std::int64_t now) noexcept {
    unsigned fired = 0;
    for (worker& other : queues_.workers()) {
        if (other.timers.next_ns() <= now) {
            fired += other.timers.fire_due(now);
        }
    }
    w.timers_fired.add(fired);
    return fired;
}

template <class Platform> std::int64_t basic_maintenance<Platform>::next_timer() const noexcept {
    std::int64_t next = never;
    for (const worker& other : queues_.workers()) {
        next = (std::min)(next, other.timers.next_ns());
    }
    return next;
}

template <class Platform>
bool basic_maintenance<Platform>::sleep(worker& w, bool watches) noexcept {
    std::int64_t until = never;
    timer_leader_.keep(w.keeps, [this]() noexcept { return next_timer(); });
    if (watches) {
        queues_.note_progress();
        until = Platform::now() + w.nap_ns;
        w.nap_ns = (std::min)(2 * w.nap_ns, longest_nap_ns_);
    }
    until = (std::min)(until, w.keeps);
    driver* const io = seat_.enter();
    w.parked.add(1);
    const std::int64_t begin = trace_ == nullptr ? 0 : Platform::now();
    std::optional<wake_scope<Platform>> later; // what the driver brings runs as tasks do
    if (io != nullptr) {
        later.emplace(&service_executor<Platform>);
    }
    const bool woken = w.sleeper.park(deadline::at_ns(until), io);
    later.reset();
    if (trace_ != nullptr) {
        trace_->parked(w.index, begin, Platform::now());
    }
    if (io != nullptr) {
        leave(w);
    }
    if (timer_leader_.resign(w.keeps)) {
        w.timer_unseen = true;
    }
    w.woken.add(woken ? 1 : 0);
    return woken;
}

template <class Platform> void basic_maintenance<Platform>::hand_over(worker& w) noexcept {
    if (w.timer_unseen) {
        w.timer_unseen = false;
        if (timer_leader_.misses(next_timer())) {
            queues_.unpark(queues_.idle().wake_one());
        }
    }
    if (w.left_driver) {
        w.left_driver = false;
        if (seat_.is_free()) {
            queues_.unpark(queues_.idle().wake_unless_watched());
        }
    }
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
