#ifndef BIDE_SCHED_DETAIL_DUMP_HPP
#define BIDE_SCHED_DETAIL_DUMP_HPP

// What a scheduler is doing, for people to read.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/sched/detail/quoted.hpp>
#include <bide/sched/detail/scheduler_core.hpp>
#include <bide/task/detail/task_cell.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string_view>
#include <vector>

namespace bide::inline BIDE_ABI {
namespace detail {

// Tasks that cannot go while it looks at them.
class held_tasks {
public:
    held_tasks() noexcept = default;
    held_tasks(const held_tasks&) = delete;
    held_tasks& operator=(const held_tasks&) = delete;
    ~held_tasks() {
        for (task_header* const t : all_) {
            t->drop_reference();
        }
    }

    // Throws: std::bad_alloc.
    void add(basic_task_registry<native_platform>& from) { from.snapshot(all_); }

    // The names of those that wait, sorted; "": it has none. Throws: std::bad_alloc.
    std::vector<std::string_view> waiting() const {
        std::vector<std::string_view> names;
        for (const task_header* const t : all_) {
            if (t->is_waiting()) {
                names.emplace_back(t->name() != nullptr ? t->name() : "");
            }
        }
        std::sort(names.begin(), names.end());
        return names;
    }

private:
    std::vector<task_header*> all_;
};

inline void dump_waiting(scheduler_core& core, std::FILE* to) {
    held_tasks held;
    for (auto& w : core.pool().workers()) {
        held.add(w.tasks);
    }
    const std::vector<std::string_view> names = held.waiting();
    std::fprintf(to, "waiting tasks: %zu\n", names.size());
    for (auto at = names.begin(); at != names.end();) {
        const auto others = std::upper_bound(at, names.end(), *at);
        std::fprintf(to, "  %8zu  ", static_cast<std::size_t>(others - at));
        if (at->empty()) {
            std::fputs("unnamed\n", to);
        } else {
            write_quoted(to, *at);
            std::fputc('\n', to);
        }
        at = others;
    }
}

inline void dump_worker(const scheduler_core::worker& w, std::FILE* to) noexcept {
    const char* const state = w.worker_ownership.is_blocked() ? "blocked"
                              : w.sleeper.is_asleep()         ? "asleep"
                                                              : "awake";
    // Order: relaxed; a snapshot.
    const bool lifo = w.lifo.load(std::memory_order_relaxed) != nullptr;
    const auto count = [to](int width, const auto& counter) noexcept {
        std::fprintf(to, " %*llu", width, static_cast<unsigned long long>(counter.read()));
    };
    std::fprintf(to, "%6u  %-7s %4u %4u", w.index, state, lifo ? 1U : 0U, w.ring.size());
    count(11, w.polled);
    count(9, w.injected);
    count(9, w.overflowed);
    count(9, w.stolen);
    count(8, w.parked);
    count(8, w.timers_fired);
    std::fputc('\n', to);
}

// Any thread, any time. Throws: std::bad_alloc.
inline void dump(scheduler_core& core, std::FILE* to) {
    const auto& pool = core.pool();
    const auto& blocking = core.threads().blocking();
    std::int64_t next = (std::numeric_limits<std::int64_t>::max)();
    std::uint64_t ended = core.outside().ended;
    for (const auto& w : pool.workers()) {
        next = (std::min)(next, w.timers.next_ns());
        ended += w.completed.read();
    }
    std::uint64_t spawned = core.outside().spawned; // read second: what has ended is among them
    for (const auto& w : pool.workers()) {
        spawned += w.spawned.read();
    }
    std::fprintf(to, "bide scheduler: %zu workers, %llu tasks of %llu left\n",
                 pool.workers().size(), static_cast<unsigned long long>(spawned - ended),
                 static_cast<unsigned long long>(spawned));
    std::fprintf(to, "%6s  %-7s %4s %4s %11s %9s %9s %9s %8s %8s\n", "worker", "state", "lifo",
                 "ring", "polled", "injected", "overflow", "stolen", "parked", "timers");
    for (const auto& w : pool.workers()) {
        dump_worker(w, to);
    }
    std::fprintf(to, "global queue: %zu; sleeping %u, searching %u\n", pool.queued(),
                 pool.idle().sleepers(), pool.idle().searching());
    std::fprintf(to, "threads for what blocks: %u, idle %u; queued for them %zu\n",
                 blocking.threads(), blocking.idle(), blocking.queued());
    if (next != (std::numeric_limits<std::int64_t>::max)()) {
        const auto rest = (std::max)(next - native_platform::now(), std::int64_t{0});
        std::fprintf(to, "next timer: in %.3f ms or later\n", static_cast<double>(rest) / 1e6);
    }
    dump_waiting(core, to);
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
