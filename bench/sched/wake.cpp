// A pool whose workers sleep: how soon a task from outside starts, and what the caller pays. Beside
// it a thread that sleeps on a raw futex.

#include "sched/job.hpp"
#include "sched/pools.hpp"
#include "sched/workloads.hpp"

#include <bide/core/waker.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/task/join_handle.hpp>
#include <bide/task/task.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
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

double percentile(std::vector<double>& numbers, double share) {
    const double last = static_cast<double>(numbers.size() - 1);
    const auto place = numbers.begin() + static_cast<std::ptrdiff_t>(last * share + 0.5);
    std::nth_element(numbers.begin(), place, numbers.end());
    return *place;
}

// call() makes a worker start. Microseconds until then, median and 99 %; and until call() returned,
// median.
template <class Call> sample measure_wakes(std::uint64_t count, start_line& line, Call call) {
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
    return {percentile(starts, 0.5), percentile(starts, 0.99), percentile(calls, 0.5)};
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

sample wake_futex(const job& j) {
    start_line line;
    futex_thread sleeper;
    const std::jthread thread([&] { sleeper.run(line, j.count); });
    return measure_wakes(j.count, line, [&] { sleeper.wake(); });
}

bide::task<> start_task(start_line& line) {
    line.start();
    co_return;
}

sample wake_by_spawn(const job& j) {
    start_line line;
    bide::scheduler s(scheduler_options_of(j));
    return measure_wakes(j.count, line, [&] { s.spawn(start_task(line)).detach(); });
}

sample wake_by_post(const job& j) {
    start_line line;
    bide::scheduler s(scheduler_options_of(j));
    const bide::waker start([](void* to) noexcept { static_cast<start_line*>(to)->start(); },
                            &line);
    return measure_wakes(j.count, line, [&] { s.post(start); });
}

#if defined(BIDE_BENCH_HAS_TBB)

sample wake_tbb(const job& j) {
    start_line line;
    tbb_pool pool(j.workers);
    return measure_wakes(j.count, line, [&] { pool.post([&] { line.start(); }); });
}

#endif

} // namespace

void add_wake(harness& h) {
    const job j{h.opts().quick ? 50u : 500u, workers(), {}};
    table t{"wake/from_outside",
            "all workers sleep; a task every 2 ms",
            {{"start, median", "us", 1, true}, {"99 %", "us", 1}, {"caller", "us", 1, true}},
            {}};
    const auto add = [&](const char* name, sample (*measure)(const job&)) {
        t.rows.push_back({name, [=] { return measure(j); }, placement::own_process});
    };
    add_program(t, tokio_peer, "wake", j, h.opts().cpus);
    add(futex_row, wake_futex);
    add(bide_row, wake_by_spawn);
    add(bide_post_row, wake_by_post);
#if defined(BIDE_BENCH_HAS_TBB)
    add(tbb_row, wake_tbb);
#endif
    h.add(std::move(t));
}

} // namespace bench
