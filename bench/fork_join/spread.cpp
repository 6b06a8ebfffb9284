// How work spreads: W workers and W leaves that sleep, which takes no processor, so any machine shows what
// one with W processors would. The ideal is the time of one leaf. And one leaf that takes as long as all
// others together: a worker that becomes free while another one is in it has to find the rest. And a task
// that is spawned while all workers are in a loop: the time until it starts.

#include "fork_join/pools.hpp"

#include <bide/parallel/parallel_for.hpp>

#if defined(BIDE_BENCH_HAS_TBB)
#include <oneapi/tbb/parallel_for.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace bench {
namespace {

void loop(bide_pool& on, std::size_t count, auto body) {
    bide::parallel_for(on.scheduler(), std::size_t{0}, count, body);
}
#if defined(BIDE_BENCH_HAS_TBB)
void loop(tbb_pool&, std::size_t count, auto body) {
    tbb::parallel_for(std::size_t{0}, count, body);
}
#endif
#if defined(BIDE_BENCH_HAS_OPENMP)
void loop(openmp_pool&, std::size_t count, auto body) {
#pragma omp taskloop shared(body)
    for (std::size_t i = 0; i < count; ++i) {
        body(i);
    }
}
#endif

void tree(auto& on, std::size_t first, std::size_t last, auto& leaf) {
    if (last - first == 1) {
        leaf(first);
        return;
    }
    const std::size_t middle = first + (last - first) / 2;
    on.join([&] { return tree(on, first, middle, leaf), 0; },
            [&] { return tree(on, middle, last, leaf), 0; });
}

using leaf_time = std::chrono::microseconds;

// Each leaf sleeps for `each`. If `is_uneven`, leaf 0 of `all` leaves sleeps as long as the rest together.
auto sleeping(leaf_time each, std::size_t all, bool is_uneven) {
    return [=](std::size_t i) {
        std::this_thread::sleep_for(is_uneven && i == 0 ? each * static_cast<int>(all - 1) : each);
    };
}

// Adds, in ideal times: a tree of joins, a fork of all at once, a loop. The ideal time of the long leaf is
// its own. Returns the time of the tree.
template <class Pool, std::size_t Leaves>
double measure(unsigned count, leaf_time each, bool is_uneven, measured& to) {
    Pool pool(count);
    const auto leaf = sleeping(each, Leaves, is_uneven);
    const double ideal = std::chrono::duration<double, std::nano>(each).count() *
                         static_cast<double>(is_uneven ? Leaves - 1 : 1);
    const auto add = [&](std::string name, auto run) {
        run_timer timer({Leaves, count, std::chrono::milliseconds(1)});
        pool.run([&] { timer.time([&] { return run(), 0; }, 0); });
        to.counters[name + (is_uneven ? ", a long leaf" : "")] = timer.result().ns / ideal;
    };
    add("tree", [&] { tree(pool, 0, Leaves, leaf); });
    add("all at once", [&] { pool.template many<Leaves>(leaf); });
    add("loop", [&] { loop(pool, Leaves, leaf); });
    return ideal * to.counters["tree"];
}

template <unsigned Count> void add(leaf_time each) {
    const std::string count = std::to_string(Count);
    table t("spread/" + count + "/" + std::to_string(each.count()) + "us",
            count + " workers, as many leaves that sleep; the tree, and counters in ideal times");
    const auto add_row = [&]<class Pool>(const char* name, std::type_identity<Pool>) {
        const auto both = [=] {
            measured all;
            all.ns = measure<Pool, Count>(Count, each, false, all);
            measure<Pool, Count + 1>(Count, each, true, all);
            return all;
        };
        t.add(name, both, placement::own_process);
    };
    add_row(bide_row, std::type_identity<bide_pool>());
#if defined(BIDE_BENCH_HAS_TBB)
    add_row(tbb_row, std::type_identity<tbb_pool>());
#endif
#if defined(BIDE_BENCH_HAS_OPENMP)
    add_row(openmp_row, std::type_identity<openmp_pool>());
#endif
}

// ---- A task behind a loop

void yielding_loop(bide_pool& on, std::size_t count, auto body) {
    bide::parallel_for({on.scheduler(), {.yield_to_tasks = true}}, std::size_t{0}, count, body);
}
void yielding_loop(auto& on, std::size_t count, auto body) { loop(on, count, body); }
void spawn_and_wait(bide_pool& on, auto task) { on.scheduler().spawn(task).join(); }
#if defined(BIDE_BENCH_HAS_TBB)
void spawn_and_wait(tbb_pool& on, auto task) {
    std::atomic<bool> has_run{false};
    on.enqueue([&] {
        task();
        has_run = true;
        has_run.notify_one();
    });
    has_run.wait(false);
}
#endif

// The mean time until a task starts, which a thread outside spawns every 2 ms while another thread outside runs
// loops of about 20 ms. And the longest and the median time, and the time of a loop.
template <class Pool> measured start_behind_loop(unsigned count) {
    using clock = std::chrono::steady_clock;
    Pool pool(count);
    std::atomic<bool> is_over{false};
    std::atomic<std::size_t> loops{0};
    const auto began = clock::now();
    std::thread caller([&] {
        while (!is_over) {
            pool.loop_from_outside([&] {
                yielding_loop(pool, std::size_t{1} << 22, [](std::size_t i) {
                    for (int step = 0; step < 16; ++step) {
                        asm volatile("" : "+r"(i));
                    }
                });
            });
            ++loops;
        }
    });
    std::vector<double> waits;
    for (int i = 0; i < (is_short() ? 20 : 400); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        const auto spawned = clock::now();
        auto started = spawned;
        spawn_and_wait(pool, [&] { started = clock::now(); });
        waits.push_back(std::chrono::duration<double, std::nano>(started - spawned).count());
    }
    is_over = true;
    caller.join();
    const double all = std::chrono::duration<double, std::nano>(clock::now() - began).count();
    measured found;
    std::ranges::sort(waits);
    for (const double ns : waits) {
        found.ns += ns / static_cast<double>(waits.size());
    }
    found.counters["longest"] = waits.back();
    found.counters["median"] = waits[waits.size() / 2];
    found.counters["loop"] = all / static_cast<double>(loops.load());
    return found;
}

template <unsigned Count> void add_task_behind_loop() {
    table t("task_behind_loop/" + std::to_string(Count),
            std::to_string(Count) + " workers in loops of a thread outside: until a task starts");
    t.add(bide_row, [] { return start_behind_loop<bide_pool>(Count); }, placement::own_process);
#if defined(BIDE_BENCH_HAS_TBB)
    t.add(tbb_row, [] { return start_behind_loop<tbb_pool>(Count); }, placement::own_process);
#endif
}

} // namespace

void add_spread() {
    for (const leaf_time each : {leaf_time(20'000), leaf_time(1'000)}) {
        add<2>(each);
        add<4>(each);
        add<8>(each);
        add<16>(each);
        add<64>(each);
    }
    add_task_behind_loop<2>();
    add_task_behind_loop<4>();
    add_task_behind_loop<16>();
    add_task_behind_loop<64>();
}

} // namespace bench
