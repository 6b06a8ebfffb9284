// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_REPORT_HPP
#define BIDE_SCHED_REPORT_HPP

/// \file
/// Reports what a scheduler has done, and what a scheduler or a run_loop does now.

#include <bide/sched/run_loop.hpp>
#include <bide/sched/scheduler.hpp>

namespace bide { inline namespace BIDE_ABI {

/// The counts of a scheduler since its start. Each count is a snapshot. The counts need not be
/// consistent with each other.
struct scheduler_stats {
    std::uint64_t spawned = 0;       ///< tasks, and fork-joins of external threads
    std::uint64_t completed = 0;     ///< those of them that have ended
    std::uint64_t polled = 0;        ///< runs of a runnable: a task runs once each time it resumes
    std::uint64_t stolen = 0;        ///< runnables taken from other workers
    std::uint64_t steal_batches = 0; ///< successful steals, of one or more runnables each
    std::uint64_t overflowed = 0;    ///< moved to the global queue, because a ring could not grow
    std::uint64_t parked = 0;        ///< sleeps of workers
    std::uint64_t woken = 0;         ///< sleeps that a wake has ended
    std::uint64_t injected = 0;      ///< runnables taken from the global queue
    std::uint64_t timers_fired = 0;  ///< expired timers, each counted before it wakes its task
};

/// Returns the counts of one worker, without the tasks that other threads have spawned or ended.
/// Requires: worker < of.concurrency().
scheduler_stats stats_of(const scheduler& of, unsigned worker) noexcept;
/// Returns the sums over all workers and all other threads.
scheduler_stats stats_of(const scheduler& of) noexcept;

/// Writes the state of the workers, the lengths of the queues, and the names of the tasks that
/// wait, as text. Each number is a snapshot.
/// Throws: std::bad_alloc.
/// Thread safety: any thread may call it at any time.
void dump(const scheduler& of, std::FILE* to);
/// Writes, as text, the number of tasks, the state of the loop, the number of runnables that other
/// threads have queued, and the names of the tasks that wait. Each number is a snapshot.
/// Throws: std::bad_alloc.
/// Thread safety: any thread may call it at any time.
void dump(const run_loop& of, std::FILE* to);

}} // namespace bide::BIDE_ABI

#if BIDE_DEFINITIONS

#include <bide/sched/detail/loop.hpp>
#include <bide/sched/detail/quoted.hpp>
#include <bide/sched/detail/scheduler_core.hpp>

#include <initializer_list>
#include <map>
#include <vector>

namespace bide { inline namespace BIDE_ABI {

BIDE_COMPILED_INLINE scheduler_stats stats_of(const scheduler& of, unsigned worker) noexcept {
    const auto& w = detail::scheduler_access::core(of).pool().workers()[worker];
    return {w.spawned.read(),       w.completed.read(),   w.polled.read(), w.stolen.read(),
            w.steal_batches.read(), w.overflowed.read(),  w.parked.read(), w.woken.read(),
            w.injected.read(),      w.timers_fired.read()};
}

BIDE_COMPILED_INLINE scheduler_stats stats_of(const scheduler& of) noexcept {
    const auto external = detail::scheduler_access::core(of).count_external();
    scheduler_stats sum{.spawned = external.spawned, .completed = external.ended};
    for (unsigned i = 0; i < of.concurrency(); ++i) {
        const scheduler_stats one = bide::stats_of(of, i);
        using all = scheduler_stats;
        for (const auto field :
             {&all::spawned, &all::completed, &all::polled, &all::stolen, &all::steal_batches,
              &all::overflowed, &all::parked, &all::woken, &all::injected, &all::timers_fired}) {
            sum.*field += one.*field;
        }
    }
    return sum;
}

namespace detail {

// Writes the time of the next timer, and how many tasks wait, in all and for each name and tag.
// `workers` is a range of workers, each with a registry `tasks`.
// Throws: std::bad_alloc.
template <class Workers> void dump_tasks(Workers& workers, std::int64_t timer, std::FILE* to) {
    if (timer != (std::numeric_limits<std::int64_t>::max)()) {
        const std::int64_t left = timer - native_platform::now();
        std::fprintf(to, "next timer: in %.3f ms or later\n",
                     static_cast<double>(left > 0 ? left : 0) / 1e6);
    }
    struct references {
        ~references() {
            for (basic_task_header<native_platform>* const t : all) {
                t->drop_reference();
            }
        }
        std::vector<basic_task_header<native_platform>*> all; // they keep the tasks alive
    } tasks;
    for (auto& w : workers) {
        w.tasks.snapshot(tasks.all);
    }
    const auto view = [](const char* text) noexcept {
        return text != nullptr ? std::string_view(text) : std::string_view();
    };
    std::size_t waiting = 0;
    std::map<std::pair<std::string_view, std::string_view>, std::size_t> found; // names and tags
    for (const auto* const t : tasks.all) {
        if (t->is_waiting()) {
            ++found[{view(t->name()), view(tag_access::of(t->tag()).text())}];
            ++waiting;
        }
    }
    std::fprintf(to, "waiting tasks: %zu\n", waiting);
    for (const auto& [labels, count] : found) {
        std::fprintf(to, "  %8zu  ", count);
        if (labels.first.empty()) {
            std::fputs("unnamed", to);
        } else {
            detail::write_quoted(to, labels.first);
        }
        if (!labels.second.empty()) {
            std::fputs(", tag ", to);
            detail::write_quoted(to, labels.second);
        }
        std::fputc('\n', to);
    }
}

} // namespace detail

BIDE_COMPILED_INLINE void dump(const scheduler& of, std::FILE* to) {
    auto& core = detail::scheduler_access::core(of);
    auto& pool = core.pool();
    auto& blocking = core.blocking();
    const auto tasks = core.count_all();
    std::fprintf(to, "bide scheduler: %zu workers, %llu tasks of %llu left\n",
                 pool.workers().size(),
                 detail::integer_cast<unsigned long long>(tasks.spawned - tasks.ended),
                 detail::integer_cast<unsigned long long>(tasks.spawned));
    std::fprintf(to, "%6s  %-7s %4s %4s %8s %11s %9s %9s %9s %8s %8s\n", "worker", "state", "lifo",
                 "ring", "children", "polled", "injected", "overflow", "stolen", "parked",
                 "timers");
    auto next = pool.workers()[0].never;
    for (const auto& w : pool.workers()) {
        next = w.timers.next_ns() < next ? w.timers.next_ns() : next;
        const char* const state = w.ownership.is_blocked() ? "blocked"
                                  : w.sleeper.is_asleep()  ? "asleep"
                                                           : "awake";
        // Order: relaxed; a snapshot.
        const bool lifo = w.lifo.load(std::memory_order_relaxed) != nullptr;
        const auto count = [](const auto& counter) noexcept {
            return static_cast<unsigned long long>(counter.read());
        };
        std::fprintf(to, "%6u  %-7s %4u %4u %8u %11llu %9llu %9llu %9llu %8llu %8llu\n", w.index,
                     state, lifo ? 1U : 0U, w.ring.size(), w.children.size(), count(w.polled),
                     count(w.injected), count(w.overflowed), count(w.stolen), count(w.parked),
                     count(w.timers_fired));
    }
    std::fprintf(to, "global queue: %zu; sleeping %u, searching %u\n", pool.queued(),
                 pool.idle().sleepers(), pool.idle().searching());
    std::fprintf(to, "blocking threads: %u, idle %u; queued for them %zu\n", blocking.threads(),
                 blocking.idle(), blocking.queued());
    detail::dump_tasks(pool.workers(), next, to);
}

BIDE_COMPILED_INLINE void dump(const run_loop& of, std::FILE* to) {
    auto& core = detail::run_loop_access::core(of);
    auto& loop = core.loop();
    const auto counts = core.count_all();
    std::fprintf(to, "bide run_loop: %llu tasks of %llu left\n",
                 detail::integer_cast<unsigned long long>(counts.spawned - counts.ended),
                 detail::integer_cast<unsigned long long>(counts.spawned));
    const char* const state = loop.is_asleep()    ? "asleep"
                              : loop.is_running() ? "awake"
                                                  : "not run by any thread";
    std::fprintf(to, "state: %s; queued by other threads: %zu\n", state, loop.queued());
    detail::dump_tasks(loop.workers(), loop.next_timer_ns(), to);
}

}} // namespace bide::BIDE_ABI

#endif

#endif
