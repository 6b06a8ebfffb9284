// A pool that has nothing to do: what that costs, how soon a task from outside starts then, and what the caller
// pays. Beside it a thread that sleeps on a raw futex.

#include "sched/pools.hpp"
#include "sched/usage.hpp"
#include <bide/core/executor.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/task/join_handle.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace bench {
namespace {

// When the task started; the thread outside waits for that. Outlives the pool.
class start_line {
public:
    void start() noexcept {
        at_ = steady::now();
        done_.cross();
    }
    steady::time_point wait() {
        done_.wait();
        return at_;
    }

private:
    steady::time_point at_;
    finish_line done_;
};

// call() makes a worker start. The median until then, and in microseconds 99 %, and the median until call() returned.
template <class Call> measured measure_wakes(std::uint64_t count, start_line& line, Call call) {
    std::vector<double> starts;
    std::vector<double> calls;
    for (std::uint64_t i = 0; i < count; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2)); // all are asleep
        const auto before = steady::now();
        call();
        calls.push_back(ns_since(before) / 1e3);
        const std::chrono::duration<double, std::micro> start = line.wait() - before;
        starts.push_back(start.count());
    }
    return {percentile(starts, 0.5) * 1e3,
            {{"p99", percentile(starts, 0.99)}, {"caller", percentile(calls, 0.5)}}};
}

class futex_thread {
public:
    void wake() {
        turn_.fetch_add(1, std::memory_order_release);
        futex(FUTEX_WAKE_PRIVATE, 1);
    }

    // line.start() after each wake().
    void run(start_line& line, std::uint64_t count) {
        for (std::uint32_t seen = 0; seen < count; ++seen) {
            while (turn_.load(std::memory_order_acquire) == seen) {
                futex(FUTEX_WAIT_PRIVATE, seen);
            }
            line.start();
        }
    }

private:
    void futex(int operation, std::uint32_t value) {
        ::syscall(SYS_futex, &turn_, operation, value, nullptr, nullptr, 0);
    }

    std::atomic<std::uint32_t> turn_{0};
};

measured wake_futex(const job& j) {
    start_line line;
    futex_thread sleeper;
    const std::jthread thread([&] { sleeper.run(line, j.count); });
    return measure_wakes(j.count, line, [&] { sleeper.wake(); });
}

bide::task<> start_task(start_line& line) {
    line.start();
    co_return;
}

measured wake_by_spawn(const job& j) {
    start_line line;
    bide::scheduler s(scheduler_options_of(j));
    return measure_wakes(j.count, line, [&] { s.spawn(start_task(line)).detach(); });
}

measured wake_by_post(const job& j) {
    start_line line;
    bide::scheduler s(scheduler_options_of(j));
    const bide::waker start([](void* to) noexcept { static_cast<start_line*>(to)->start(); },
                            &line);
    return measure_wakes(j.count, line, [&] { s.post(start); });
}

#if defined(BIDE_BENCH_HAS_TBB)

measured wake_tbb(const job& j) {
    start_line line;
    tbb_pool pool(j.workers);
    return measure_wakes(j.count, line, [&] { pool.post([&] { line.start(); }); });
}

#endif

// ---- Nothing to do, once all workers have done something

constexpr int tasks_before = 1000;

// This thread sleeps, once, and is counted, too.
measured measure_idle(const job& j) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const usage before = usage_so_far();
    std::this_thread::sleep_for(j.duration);
    const usage after = usage_so_far();
    return {1e3 * (after.cpu_us - before.cpu_us),
            {{"switches", after.voluntary_switches - before.voluntary_switches}}};
}

bide::task<> yield_once() { co_await bide::this_task::yield(); }

measured idle_bide(const job& j) {
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

measured idle_tbb(const job& j) {
    tbb_pool pool(j.workers);
    for (int i = 0; i < tasks_before; ++i) {
        pool.post([&] { pool.done.cross(); });
    }
    pool.done.wait(tasks_before);
    return measure_idle(j);
}

#endif

} // namespace

void add_wake() {
    const job j{scaled(500)};
    table t("wake/from_outside", "all workers sleep; a task every 2 ms");
    const auto add = [&](const char* name, measured (*measure)(const job&)) {
        t.add(name, [=] { return measure(j); }, placement::own_process);
    };
    add_peer(t, tokio_peer, "wake", j, {"p99", "caller"}, 1e3);
    add(futex_row, wake_futex);
    add(bide_row, wake_by_spawn);
    add(bide_post_row, wake_by_post);
#if defined(BIDE_BENCH_HAS_TBB)
    add(tbb_row, wake_tbb);
#endif
}

void add_idle() {
    const job j{1, workers(), a_round(50)};
    table t("idle/nothing_to_do",
            "processor time of 5 s; with the thread outside, which sleeps once");
    const auto add = [&](const char* name, measured (*measure)(const job&)) {
        t.add(name, [=] { return measure(j); }, placement::own_process);
    };
    add_peer(t, tokio_peer, "idle", j, {"switches"}, 1e3);
    add("no pool", measure_idle);
    add(bide_row, idle_bide);
#if defined(BIDE_BENCH_HAS_TBB)
    add(tbb_row, idle_tbb);
#endif
}

} // namespace bench
