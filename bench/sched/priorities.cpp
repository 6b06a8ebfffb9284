// The classes of tasks (task_priority): what a spawn costs in each of them, how soon a task runs
// while others keep all workers busy, and which share each class has then.
//
// Tokio, Go and Boost.Asio have no classes of tasks. TBB has arenas of three priorities, whose
// workers move to the arena of the higher priority: it takes part where a thread outside gives a
// task to a busy pool. In its arena of low priority such a task does not run at all (TBB 2021.8), so
// that row is left out.

#include "sched/pools.hpp"

#include <bide/sched/scheduler.hpp>
#include <bide/sched/scheduler_options.hpp>
#include <bide/sync/latch.hpp>
#include <bide/task/join_handle.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#if defined(BIDE_BENCH_HAS_TBB)
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_arena.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace bench {
namespace {

using bide::task_priority;

// ---- The cost of a spawn

bide::task<> count_down(bide::latch& left) {
    left.count_down();
    co_return;
}

using maybe_options = std::optional<bide::spawn_options>;

bide::task<> spawn_all(bide::scheduler& s, maybe_options how, std::uint64_t count) {
    bide::latch left(static_cast<std::ptrdiff_t>(count));
    for (std::uint64_t i = 0; i < count; ++i) {
        (how ? s.spawn(count_down(left), *how) : s.spawn(count_down(left))).detach();
    }
    co_await left.async_wait();
}

auto spawn_in(maybe_options how) {
    return repeat_on_bide([how](bide::scheduler& s, std::uint64_t count) {
        s.spawn(spawn_all(s, how, count)).join();
    });
}

// ---- Under load: four tasks of each class for each worker, which yield after each 10 us of work

constexpr std::chrono::microseconds work(10);

void compute() {
    const auto end = steady::now() + work;
    while (steady::now() < end) {
    }
}

struct load {
    std::atomic<bool> over{false};
    std::array<std::atomic<std::uint64_t>, 3> runs{}; // of each class
};

bide::task<> compute_and_yield(load& of, std::size_t kind) {
    while (!of.over.load(std::memory_order_relaxed)) {
        compute();
        of.runs[kind].fetch_add(1, std::memory_order_relaxed);
        co_await bide::this_task::yield();
    }
}

// Starts the tasks of these classes, runs body(scheduler, load) and ends them.
template <class Body>
void under_load(const job& j, const std::vector<task_priority>& classes, Body body) {
    load all;
    bide::scheduler s(scheduler_options_of(j));
    std::vector<bide::join_handle<>> handles;
    for (const task_priority each : classes) {
        for (unsigned i = 0; i < 4 * j.workers; ++i) {
            handles.push_back(s.spawn(compute_and_yield(all, static_cast<std::size_t>(each)),
                                      {.priority = each}));
        }
    }
    body(s, all);
    all.over.store(true, std::memory_order_relaxed);
    for (auto& handle : handles) {
        std::move(handle).join();
    }
}

// Until a task runs that a thread outside spawns: the median, and in microseconds 99 %.
template <class Call> measured measure_starts(const job& j, Call call) {
    std::vector<double> starts;
    for (std::uint64_t i = 0; i < j.count; ++i) {
        std::this_thread::sleep_for(std::chrono::microseconds(300));
        const auto before = steady::now();
        const std::chrono::duration<double, std::micro> start = call() - before;
        starts.push_back(start.count());
    }
    return {percentile(starts, 0.5) * 1e3, {{"p99", percentile(starts, 0.99)}}};
}

auto start_in(task_priority priority) {
    return [priority](const job& j) {
        measured found;
        under_load(j, {task_priority::normal}, [&](bide::scheduler& s, load&) {
            found = measure_starts(j, [&] {
                return s.spawn([] { return steady::now(); }, {.priority = priority}).join();
            });
        });
        return found;
    };
}

// Per cent of the runs that each class has.
measured shares(const job& j) {
    measured found;
    under_load(j, {task_priority::high, task_priority::normal, task_priority::low},
               [&](bide::scheduler&, load& all) {
                   std::array<double, 3> before{};
                   std::array<double, 3> ran{};
                   const auto read = [&all](std::array<double, 3>& to) {
                       for (std::size_t i = 0; i < 3; ++i) {
                           to[i] = static_cast<double>(all.runs[i].load(std::memory_order_relaxed));
                       }
                   };
                   std::this_thread::sleep_for(j.duration / 4);
                   read(before);
                   std::this_thread::sleep_for(j.duration);
                   read(ran);
                   double sum = 0;
                   for (std::size_t i = 0; i < 3; ++i) {
                       ran[i] -= before[i];
                       sum += ran[i];
                   }
                   const char* const names[] = {"high %", "normal %", "low %"};
                   for (std::size_t i = 0; i < 3; ++i) {
                       found.counters[names[i]] = 100 * ran[i] / sum;
                   }
               });
    return found;
}

// ---- TBB

#if defined(BIDE_BENCH_HAS_TBB)

struct busy_arena {
    tbb::task_arena& arena;
    finish_line& done;
    std::atomic<bool> over{false};

    void go_on() {
        if (over.load(std::memory_order_relaxed)) {
            done.cross();
        } else {
            compute();
            arena.enqueue([this] { go_on(); });
        }
    }
};

auto start_in_tbb(tbb::task_arena::priority priority) {
    return [priority](const job& j) {
        const tbb::global_control limit(tbb::global_control::max_allowed_parallelism,
                                        j.workers + 1);
        finish_line done; // outlives the arenas
        finish_line ran;
        tbb::task_arena busy(static_cast<int>(j.workers), 0);
        tbb::task_arena other(static_cast<int>(j.workers), 0, priority);
        busy.initialize();
        other.initialize();
        busy_arena background{busy, done};
        const unsigned count = 4 * j.workers;
        for (unsigned i = 0; i < count; ++i) {
            busy.enqueue([&] { background.go_on(); });
        }
        const measured found = measure_starts(j, [&] {
            steady::time_point at;
            other.enqueue([&] {
                at = steady::now();
                ran.cross();
            });
            ran.wait();
            return at;
        });
        background.over.store(true, std::memory_order_relaxed);
        done.wait(count);
        return found;
    };
}

#endif

} // namespace

void add_priorities() {
    constexpr std::uint64_t count = 10'000;
    run_table spawns("priority/spawn", "a task spawns 10,000 tasks", count,
                     static_cast<double>(count));
    spawns.add("bide, spawn(task)", spawn_in({}));
    spawns.add("bide, normal", spawn_in(bide::spawn_options{}));
    spawns.add("bide, high", spawn_in(bide::spawn_options{.priority = task_priority::high}));
    spawns.add("bide, low", spawn_in(bide::spawn_options{.priority = task_priority::low}));
    spawns.add("bide, one worker's", spawn_in(bide::spawn_options{.worker = 0}));

    const job starts{scaled(1'000)};
    table start("priority/start",
                "until a task from outside runs, beside four normal tasks for each "
                "worker that yield every 10 us");
    const auto add = [&](const char* name, auto measure) {
        start.add(name, [=] { return measure(starts); }, placement::own_process);
    };
    add("bide, normal", start_in(task_priority::normal));
    add("bide, high", start_in(task_priority::high));
    add("bide, low", start_in(task_priority::low));
#if defined(BIDE_BENCH_HAS_TBB)
    add("tbb, an arena of normal priority", start_in_tbb(tbb::task_arena::priority::normal));
    add("tbb, an arena of high priority", start_in_tbb(tbb::task_arena::priority::high));
#endif
    table share("priority/share", "of the runs, while each class has four tasks for each worker "
                                  "(promised: 75, 18.75, 6.25)");
    const job loaded{0, workers(), a_round(10)};
    share.add(bide_row, [=] { return shares(loaded); }, placement::own_process);
}

} // namespace bench
