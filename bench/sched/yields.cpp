// Tasks that go to the end of the queue. yield_many is of Tokio's benches/rt_multi_threaded.rs.

#include "sched/job.hpp"
#include "sched/pools.hpp"
#include "sched/workloads.hpp"

#include <bide/sched/scheduler.hpp>
#include <bide/sync/latch.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace bench {
namespace {

constexpr std::uint64_t yields_of_many = 1000;

bide::task<> yield(std::uint64_t times, bide::latch& left) {
    for (std::uint64_t i = 0; i < times; ++i) {
        co_await bide::this_task::yield();
    }
    left.count_down();
}

// By a thread outside, which then only waits.
void yield_many(bide::scheduler& s, std::uint64_t count) {
    bide::latch left(static_cast<std::ptrdiff_t>(count));
    for (std::uint64_t i = 0; i < count; ++i) {
        s.spawn(yield(yields_of_many, left)).detach();
    }
    left.wait();
}

bide::task<> yield_alone(bide::scheduler&, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
        co_await bide::this_task::yield();
    }
}

bide::task<> spawn_yielding(bide::scheduler& s, std::uint64_t count) {
    bide::latch left(static_cast<std::ptrdiff_t>(count));
    for (std::uint64_t i = 0; i < count; ++i) {
        s.spawn(yield(1, left)).detach();
    }
    co_await left.async_wait();
}

#if defined(BIDE_BENCH_HAS_BOOST_FIBER)

void yield_fibers(std::uint64_t times) {
    for (std::uint64_t i = 0; i < times; ++i) {
        boost::this_fiber::yield();
    }
}

void yield_many_fibers(fiber_pool& pool, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
        pool.post([&] {
            yield_fibers(yields_of_many);
            pool.done.cross();
        });
    }
    pool.done.wait(count);
}

void yield_alone_fiber(fiber_pool& pool, std::uint64_t count) {
    pool.run([=] { yield_fibers(count); });
}

#endif

} // namespace

void add_yield_many(harness& h) {
    constexpr std::uint64_t count = 200;
    run_table t(h, "tasks/yield_many", "two hundred tasks, a thousand times each", count,
                us_a_run());
    t.add(tokio_peer, "yield_many");
    t.add(go_peer, "yield_many");
    t.add(tmc_peer, "yield_many");
    t.add(bide_row, repeat_on_bide(yield_many));
#if defined(BIDE_BENCH_HAS_BOOST_FIBER)
    t.add(fiber_row, repeat_on<fiber_pool>(yield_many_fibers));
#endif
    t.finish();
}

void add_single_yield(harness& h) {
    constexpr std::uint64_t count = 10'000;
    run_table t(h, "step/single_yield", "one task, alone", count, ns_each("each", count));
    t.add(tokio_peer, "single_yield");
    t.add(go_peer, "single_yield");
    t.add(tmc_peer, "single_yield");
    add_bide_roots(t, yield_alone);
#if defined(BIDE_BENCH_HAS_BOOST_FIBER)
    t.add(fiber_row, repeat_on<fiber_pool>(yield_alone_fiber));
#endif
    t.finish();
}

void add_scaling(harness& h) {
    for (const std::uint64_t count : {100u, 1'000u, 10'000u, 100'000u, 1'000'000u}) {
        run_table t(h, "scaling/" + std::to_string(count),
                    "so many tasks, spawned by one, that yield once", count,
                    ns_each("task", count));
        t.add(tokio_peer, "scaling");
        t.add(go_peer, "scaling");
        t.add(tmc_peer, "scaling");
        t.add(bide_row, repeat_on_bide([](bide::scheduler& s, std::uint64_t n) {
                  bide::sync_wait(s, spawn_yielding(s, n));
              }));
        t.finish();
    }
}

} // namespace bench
