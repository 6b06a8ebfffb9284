// A pool that has nothing to do, once all of its workers have done something: what it costs.

#include "sched/job.hpp"
#include "sched/pools.hpp"
#include "sched/usage.hpp"
#include "sched/workloads.hpp"

#include <bide/sched/scheduler.hpp>
#include <bide/task/join_handle.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace bench {
namespace {

constexpr int tasks_before = 1000;

// This thread sleeps, once, and is counted, too.
sample measure_idle(const job& j) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const usage before = usage_so_far();
    std::this_thread::sleep_for(j.duration);
    const usage after = usage_so_far();
    return {after.cpu_us - before.cpu_us, after.voluntary_switches - before.voluntary_switches};
}

bide::task<> yield_once() { co_await bide::this_task::yield(); }

sample idle_bide(const job& j) {
    bide::scheduler s(scheduler_options_of(j));
    std::vector<bide::join_handle<>> handles;
    for (int i = 0; i < tasks_before; ++i) {
        handles.push_back(s.spawn(yield_once()));
    }
    for (bide::join_handle<>& handle : handles) {
        std::move(handle).join();
    }
    return measure_idle(j);
}

#if defined(BIDE_BENCH_HAS_TBB)

sample idle_tbb(const job& j) {
    tbb_pool pool(j.workers);
    for (int i = 0; i < tasks_before; ++i) {
        pool.post([&] { pool.done.cross(); });
    }
    pool.done.wait(tasks_before);
    return measure_idle(j);
}

#endif

} // namespace

void add_idle(harness& h) {
    const job j{1, workers(), h.make_setting(5000, 500).duration};
    table t{"idle/nothing_to_do",
            std::to_string(j.duration.count()) + " ms; with the thread outside, which sleeps once",
            {{"CPU", "us", 0, true}, {"voluntary switches", "", 0}},
            {}};
    const auto add = [&](const char* name, sample (*measure)(const job&)) {
        t.rows.push_back({name, [=] { return measure(j); }, placement::own_process});
    };
    add_program(t, tokio_peer, "idle", j, h.opts().cpus);
    add("no pool", measure_idle);
    add(bide_row, idle_bide);
#if defined(BIDE_BENCH_HAS_TBB)
    add(tbb_row, idle_tbb);
#endif
    h.add(std::move(t));
}

} // namespace bench
