// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_DETAIL_DUMP_HPP
#define BIDE_SCHED_DETAIL_DUMP_HPP

// Writes the state of a scheduler as text: its pool, its threads for blocking tasks, and what its
// lifecycle has counted.

#include <bide/core/config.hpp>
#include <bide/core/detail/integer_cast.hpp>
#include <bide/core/platform.hpp>
#include <bide/sched/blocking_pool.hpp>
#include <bide/sched/detail/lifecycle.hpp>
#include <bide/sched/detail/pool.hpp>
#include <bide/sched/detail/quoted.hpp>
#include <bide/task/detail/task_header.hpp>
#include <bide/task/detail/task_registry.hpp>
#include <bide/task/task_tag.hpp>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string_view>
#include <vector>

namespace bide::inline BIDE_ABI {
namespace detail {

using native_pool = basic_pool<native_platform>;
using native_lifecycle = basic_lifecycle<native_platform, native_pool>;

// References to tasks, which keep them alive.
class task_snapshot {
    using header = basic_task_header<native_platform>;

public:
    task_snapshot() noexcept = default;
    task_snapshot(const task_snapshot&) = delete;
    task_snapshot& operator=(const task_snapshot&) = delete;
    ~task_snapshot() {
        for (header* const t : all_) {
            t->drop_reference();
        }
    }

    // Adds the tasks of a registry. Throws: std::bad_alloc.
    void add(basic_task_registry<native_platform>& from) { from.snapshot(all_); }

    // The name and the tag of a task; "" if it has none.
    struct labels {
        std::string_view name;
        std::string_view tag;
        friend auto operator<=>(const labels&, const labels&) noexcept = default;
    };

    // Returns the labels of the tasks that wait, sorted. Throws: std::bad_alloc.
    std::vector<labels> waiting() const {
        const auto view = [](const char* text) noexcept {
            return text != nullptr ? std::string_view(text) : std::string_view();
        };
        std::vector<labels> found;
        for (const header* const t : all_) {
            if (t->is_waiting()) {
                found.push_back({view(t->name()), view(tag_access::of(t->tag()).text())});
            }
        }
        std::sort(found.begin(), found.end());
        return found;
    }

private:
    std::vector<header*> all_;
};

// Workers is a range of workers, each with a registry `tasks`.
template <class Workers> void dump_waiting(Workers& workers, std::FILE* to) {
    task_snapshot tasks;
    for (auto& w : workers) {
        tasks.add(w.tasks);
    }
    const std::vector<task_snapshot::labels> found = tasks.waiting();
    std::fprintf(to, "waiting tasks: %zu\n", found.size());
    for (auto at = found.begin(); at != found.end();) {
        const auto others = std::upper_bound(at, found.end(), *at);
        std::fprintf(to, "  %8zu  ", static_cast<std::size_t>(others - at));
        if (at->name.empty()) {
            std::fputs("unnamed", to);
        } else {
            write_quoted(to, at->name);
        }
        if (!at->tag.empty()) {
            std::fputs(", tag ", to);
            write_quoted(to, at->tag);
        }
        std::fputc('\n', to);
        at = others;
    }
}

inline void dump_worker(const native_pool::worker& w, std::FILE* to) noexcept {
    const char* const state = w.ownership.is_blocked() ? "blocked"
                              : w.sleeper.is_asleep()  ? "asleep"
                                                       : "awake";
    // Order: relaxed; a snapshot.
    const bool lifo = w.lifo.load(std::memory_order_relaxed) != nullptr;
    const auto count = [to](int width, const auto& counter) noexcept {
        std::fprintf(to, " %*llu", width, static_cast<unsigned long long>(counter.read()));
    };
    std::fprintf(to, "%6u  %-7s %4u %4u %8u", w.index, state, lifo ? 1U : 0U, w.ring.size(),
                 w.children.size());
    count(11, w.polled);
    count(9, w.injected);
    count(9, w.overflowed);
    count(9, w.stolen);
    count(8, w.parked);
    count(8, w.timers_fired);
    std::fputc('\n', to);
}

// `next` is the time of the earliest timer.
inline void dump_timer(std::int64_t next, std::FILE* to) noexcept {
    if (next != (std::numeric_limits<std::int64_t>::max)()) {
        const auto rest = (std::max)(next - native_platform::now(), std::int64_t{0});
        std::fprintf(to, "next timer: in %.3f ms or later\n", static_cast<double>(rest) / 1e6);
    }
}

// Any thread may call this at any time. Throws: std::bad_alloc.
inline void dump(native_pool& pool, const basic_blocking_pool<native_platform>& blocking,
                 const native_lifecycle& life, std::FILE* to) {
    std::int64_t next = (std::numeric_limits<std::int64_t>::max)();
    for (const auto& w : pool.workers()) {
        next = (std::min)(next, w.timers.next_ns());
    }
    const auto tasks = life.all();
    std::fprintf(to, "bide scheduler: %zu workers, %llu tasks of %llu left\n",
                 pool.workers().size(),
                 integer_cast<unsigned long long>(tasks.spawned - tasks.ended),
                 integer_cast<unsigned long long>(tasks.spawned));
    std::fprintf(to, "%6s  %-7s %4s %4s %8s %11s %9s %9s %9s %8s %8s\n", "worker", "state", "lifo",
                 "ring", "children", "polled", "injected", "overflow", "stolen", "parked",
                 "timers");
    for (const auto& w : pool.workers()) {
        dump_worker(w, to);
    }
    std::fprintf(to, "global queue: %zu; sleeping %u, searching %u\n", pool.queued(),
                 pool.idle().sleepers(), pool.idle().searching());
    std::fprintf(to, "blocking threads: %u, idle %u; queued for them %zu\n", blocking.threads(),
                 blocking.idle(), blocking.queued());
    dump_timer(next, to);
    dump_waiting(pool.workers(), to);
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
