// Tasks that do nothing, and how they come to be; and tasks that go to the end of the queue. spawn_many,
// chained_spawn, yield_many and their sizes are those of Tokio's benches/rt_multi_threaded.rs; but there a thread
// outside spawns in "local", too.

#include "sched/pools.hpp"

#include <bide/sched/join_map.hpp>
#include <bide/sched/join_set.hpp>
#include <bide/sched/run_loop.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/latch.hpp>
#include <bide/task/join_handle.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#if defined(BIDE_BENCH_HAS_TBB)
#include <oneapi/tbb/task_group.h>
#endif

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace bench {
namespace {

// Has the processor for 10 us.
void stall() {
    const auto end = steady::now() + std::chrono::microseconds(10);
    while (steady::now() < end) {
        std::this_thread::yield();
    }
}

// ---- bide

bide::task<> nothing() { co_return; }

bide::task<> count_down(bide::latch& left) {
    left.count_down();
    co_return;
}

bide::task<> spawn_local(bide::scheduler& s, std::uint64_t count) {
    bide::latch left(static_cast<std::ptrdiff_t>(count));
    for (std::uint64_t i = 0; i < count; ++i) {
        s.spawn(count_down(left)).detach();
    }
    co_await left.async_wait();
}

bide::task<> join_all(std::vector<bide::join_handle<>>& handles) {
    for (bide::join_handle<>& handle : handles) {
        co_await std::move(handle).async_join();
    }
}

void spawn_remote(bide::scheduler& s, std::uint64_t count) {
    std::vector<bide::join_handle<>> handles;
    handles.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
        handles.push_back(s.spawn(nothing()));
    }
    bide::sync_wait(s, join_all(handles));
}

bide::task<> link(bide::scheduler& s, bide::event& done, std::uint64_t left) {
    if (left == 0) {
        done.set();
    } else {
        s.spawn(link(s, done, left - 1)).detach();
    }
    co_return;
}

bide::task<> chain(bide::scheduler& s, std::uint64_t count) {
    bide::event done;
    s.spawn(link(s, done, count)).detach();
    co_await done.async_wait();
}

bide::task<> spawn_and_await(bide::scheduler& s, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
        co_await s.spawn(nothing()).async_join();
    }
}

template <class Set> bide::task<> join_all_of(Set& set) {
    for (bool more = true; more;) {
        const auto next = co_await set.async_join_next();
        more = static_cast<bool>(next);
    }
}

bide::task<> spawn_into_set(bide::scheduler& s, std::uint64_t count) {
    bide::join_set<> set(s);
    for (std::uint64_t i = 0; i < count; ++i) {
        set.spawn(nothing());
    }
    co_await join_all_of(set);
}

// As Tokio's, whose spawn() returns an AbortHandle.
bide::task<> spawn_with_handles(bide::scheduler& s, std::uint64_t count) {
    bide::join_set<> set(s);
    for (std::uint64_t i = 0; i < count; ++i) {
        static_cast<void>(set.spawn_with_handle(nothing()));
    }
    co_await join_all_of(set);
}

bide::task<> spawn_into_map(bide::scheduler& s, std::uint64_t count) {
    bide::join_map<std::uint64_t> map(s);
    for (std::uint64_t i = 0; i < count; ++i) {
        map.spawn(i, nothing());
    }
    co_await join_all_of(map);
}

bide::task<> stall_and_yield(const std::atomic<bool>& busy) {
    while (busy.load(std::memory_order_relaxed)) {
        co_await bide::this_task::yield();
        stall();
    }
}

bide::task<> spawn_and_await_here(bide::run_loop& loop, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
        co_await loop.spawn(nothing()).async_join();
    }
}

measured spawn_await_one_thread(const job& j) {
    bide::run_loop loop;
    run_timer timer(j);
    while (timer.next()) {
        loop.run_until(spawn_and_await_here(loop, j.count));
    }
    return timer.result();
}

// The last link counts down.
bide::task<> stalling_link(bide::scheduler& s, const std::atomic<bool>& busy, bide::latch& left) {
    if (busy.load(std::memory_order_relaxed)) {
        s.spawn(stalling_link(s, busy, left)).detach();
        stall();
    } else {
        left.count_down();
    }
    co_return;
}

measured spawn_while_yielding(const job& j) {
    std::atomic<bool> busy{true};
    bide::scheduler s(scheduler_options_of(j));
    std::vector<bide::join_handle<>> background;
    for (unsigned i = 0; i < 2 * j.workers; ++i) {
        background.push_back(s.spawn(stall_and_yield(busy)));
    }
    run_timer timer(j);
    while (timer.next()) {
        spawn_remote(s, j.count);
    }
    busy.store(false, std::memory_order_relaxed);
    for (bide::join_handle<>& handle : background) {
        std::move(handle).join();
    }
    return timer.result();
}

measured spawn_while_spawning(const job& j) {
    std::atomic<bool> busy{true};
    bide::scheduler s(scheduler_options_of(j));
    bide::latch left(static_cast<std::ptrdiff_t>(j.workers));
    for (unsigned i = 0; i < j.workers; ++i) {
        s.spawn(stalling_link(s, busy, left)).detach();
    }
    run_timer timer(j);
    while (timer.next()) {
        spawn_remote(s, j.count);
    }
    busy.store(false, std::memory_order_relaxed);
    left.wait();
    return timer.result();
}

// ---- Peers

// From outside, into a peer's pool.
template <class Pool> void spawn_into_peer(Pool& pool, std::uint64_t count) {
    std::atomic<std::uint64_t> left{count};
    for (std::uint64_t i = 0; i < count; ++i) {
        pool.post([&] {
            if (left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
                pool.done.cross();
            }
        });
    }
    pool.done.wait();
}

// ---- TBB

#if defined(BIDE_BENCH_HAS_TBB)

void spawn_local_tbb(tbb_pool& pool, std::uint64_t count) {
    std::atomic<std::uint64_t> ran{0};
    pool.run([&] {
        tbb::task_group group;
        for (std::uint64_t i = 0; i < count; ++i) {
            group.run([&] { ran.fetch_add(1, std::memory_order_relaxed); });
        }
        group.wait();
    });
    check(ran.load() == count);
}

void link_tbb(tbb::task_group& group, std::uint64_t left) {
    if (left != 0) {
        group.run([&group, left] { link_tbb(group, left - 1); });
    }
}

void chain_tbb(tbb_pool& pool, std::uint64_t count) {
    pool.run([&] {
        tbb::task_group group;
        link_tbb(group, count);
        group.wait();
    });
}

struct busy_tbb {
    tbb_pool& pool;
    std::atomic<bool> busy{true};

    void go_on() {
        if (busy.load(std::memory_order_relaxed)) {
            stall();
            pool.post([this] { go_on(); });
        } else {
            pool.done.cross();
        }
    }
};

measured spawn_while_yielding_tbb(const job& j) {
    tbb_pool pool(j.workers);
    busy_tbb background{pool};
    for (unsigned i = 0; i < 2 * j.workers; ++i) {
        pool.post([&] { background.go_on(); });
    }
    run_timer timer(j);
    while (timer.next()) {
        spawn_into_peer(pool, j.count);
    }
    background.busy.store(false, std::memory_order_relaxed);
    pool.done.wait(std::uint64_t{2} * j.workers);
    return timer.result();
}

#endif

// ---- Boost.Fiber

#if defined(BIDE_BENCH_HAS_BOOST_FIBER)

void spawn_local_fibers(fiber_pool& pool, std::uint64_t count) {
    std::atomic<std::uint64_t> left{count};
    pool.post([&] {
        for (std::uint64_t i = 0; i < count; ++i) {
            make_fiber([&] {
                if (left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
                    pool.done.cross();
                }
            }).detach();
        }
    });
    pool.done.wait();
}

void link_fibers(finish_line& done, std::uint64_t left) {
    if (left == 0) {
        done.cross();
    } else {
        make_fiber([&done, left] { link_fibers(done, left - 1); }).detach();
    }
}

void chain_fibers(fiber_pool& pool, std::uint64_t count) {
    pool.post([&] { link_fibers(pool.done, count); });
    pool.done.wait();
}

void spawn_and_await_fibers(fiber_pool& pool, std::uint64_t count) {
    pool.run([&] {
        for (std::uint64_t i = 0; i < count; ++i) {
            make_fiber([] {}).join();
        }
    });
}

#endif

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

void add_spawn_many() {
    constexpr std::uint64_t count = 10'000;
    run_table local("spawn_many/local", "ten thousand, by a task, detached", count);
    local.add_peers("spawn_many_local", tokio_peer, go_peer, tmc_peer);
    add_bide_roots(local, spawn_local);
#if defined(BIDE_BENCH_HAS_TBB)
    local.add(tbb_row, repeat_on<tbb_pool>(spawn_local_tbb));
#endif
#if defined(BIDE_BENCH_HAS_BOOST_FIBER)
    local.add(fiber_row, repeat_on<fiber_pool>(spawn_local_fibers));
#endif

    run_table idle("spawn_many/remote_idle", "ten thousand, by a thread outside", count);
    idle.add(tokio_peer, "spawn_many_remote_idle");
    idle.add(bide_row, repeat_on_bide(spawn_remote));
#if defined(BIDE_BENCH_HAS_TBB)
    idle.add(tbb_row, repeat_on<tbb_pool>(spawn_into_peer<tbb_pool>));
#endif
#if defined(BIDE_BENCH_HAS_BOOST_FIBER)
    idle.add(fiber_row, repeat_on<fiber_pool>(spawn_into_peer<fiber_pool>));
#endif

    run_table yielding("spawn_many/remote_busy1",
                       "the same, while two tasks a worker compute for 10 us and yield", count);
    yielding.add(tokio_peer, "spawn_many_remote_busy1");
    yielding.add(bide_row, spawn_while_yielding);
#if defined(BIDE_BENCH_HAS_TBB)
    yielding.add(tbb_row, spawn_while_yielding_tbb);
#endif

    run_table spawning("spawn_many/remote_busy2",
                       "a tenth of them, while a task a worker spawns the next and computes",
                       count / 10);
    spawning.add(tokio_peer, "spawn_many_remote_busy2");
    spawning.add(bide_row, spawn_while_spawning);
}

void add_chained_spawn() {
    constexpr std::uint64_t count = 1'000;
    run_table t("tasks/chained_spawn", "a thousand tasks, each spawns the next", count);
    t.add_peers("chained_spawn", tokio_peer, go_peer);
    add_bide_roots(t, chain);
#if defined(BIDE_BENCH_HAS_TBB)
    t.add(tbb_row, repeat_on<tbb_pool>(chain_tbb));
#endif
#if defined(BIDE_BENCH_HAS_BOOST_FIBER)
    t.add(fiber_row, repeat_on<fiber_pool>(chain_fibers));
#endif
}

void add_spawn_await() {
    constexpr std::uint64_t count = 10'000;
    run_table t("step/spawn_await", "a task spawns one and awaits it", count,
                static_cast<double>(count));
    t.add_peers("spawn_await", tokio_peer, go_peer, tmc_peer);
    add_bide_roots(t, spawn_and_await);
#if defined(BIDE_BENCH_HAS_BOOST_FIBER)
    t.add(fiber_row, repeat_on<fiber_pool>(spawn_and_await_fibers));
#endif

    run_table one("step/spawn_await_one_thread", "the same on the caller's own thread", count,
                  static_cast<double>(count));
    one.add(tokio_peer, "spawn_await_one_thread");
    one.add("bide::run_loop", spawn_await_one_thread);
}

void add_join_set() {
    constexpr std::uint64_t count = 10'000;
    run_table t("tasks/join_set", "ten thousand in a set, by a task that joins each as it ends",
                count);
    t.add(tokio_peer, "join_set");
    const auto add = [&t](const char* row, bide_root root) {
        t.add(row, repeat_on_bide(
                       [=](bide::scheduler& s, std::uint64_t n) { s.spawn(root(s, n)).join(); }));
    };
    add("bide::join_set", spawn_into_set);
    add("bide::join_set, with handles", spawn_with_handles);
    add("bide::join_map", spawn_into_map);
}

void add_yield_many() {
    constexpr std::uint64_t count = 200;
    run_table t("tasks/yield_many", "two hundred tasks, a thousand times each", count);
    t.add_peers("yield_many", tokio_peer, go_peer, tmc_peer);
    t.add(bide_row, repeat_on_bide(yield_many));
#if defined(BIDE_BENCH_HAS_BOOST_FIBER)
    t.add(fiber_row, repeat_on<fiber_pool>(yield_many_fibers));
#endif
}

void add_single_yield() {
    constexpr std::uint64_t count = 10'000;
    run_table t("step/single_yield", "one task, alone", count, static_cast<double>(count));
    t.add_peers("single_yield", tokio_peer, go_peer, tmc_peer);
    add_bide_roots(t, yield_alone);
#if defined(BIDE_BENCH_HAS_BOOST_FIBER)
    t.add(fiber_row, repeat_on<fiber_pool>(yield_alone_fiber));
#endif
}

void add_scaling() {
    for (const std::uint64_t count : {100u, 1'000u, 10'000u, 100'000u, 1'000'000u}) {
        run_table t("scaling/" + std::to_string(count),
                    "so many tasks, spawned by one, that yield once", count,
                    static_cast<double>(count));
        t.add_peers("scaling", tokio_peer, go_peer, tmc_peer);
        t.add(bide_row, repeat_on_bide([](bide::scheduler& s, std::uint64_t n) {
                  bide::sync_wait(s, spawn_yielding(s, n));
              }));
    }
}

} // namespace bench
