// Timers that fire: tasks that sleep, or wait in vain, until some time within the same second.

#include "sched/job.hpp"
#include "sched/pools.hpp"
#include "sched/usage.hpp"
#include "sched/workloads.hpp"
#include "support/histogram.hpp"

#include <bide/core/result.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sync/latch.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/join_handle.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace bench {
namespace {

// Of all sleepers: how late each was.
struct night {
    steady::time_point first_due;
    std::vector<std::int64_t> late_ns;
    bide::latch left;
    bide::semaphore never{0};

    night(steady::time_point first, std::uint64_t count)
        : first_due(first), late_ns(count), left(static_cast<std::ptrdiff_t>(count)) {}

    // Within a second, in no order.
    steady::time_point due(std::uint64_t i) const {
        const std::uint64_t place = (i * 0x9e37'79b9'7f4a'7c15u) >> 32;
        return first_due + std::chrono::microseconds((place * 1'000'000) >> 32);
    }

    void awake(std::uint64_t i) {
        const std::chrono::nanoseconds late = steady::now() - due(i);
        late_ns[i] = late.count();
        left.count_down();
    }
};

bide::task<> sleep_till_due(night& n, std::uint64_t i) {
    co_await bide::this_task::sleep_until(n.due(i));
    n.awake(i);
}

bide::task<> wait_in_vain(night& n, std::uint64_t i) {
    const auto got = co_await n.never.async_acquire().with_deadline(n.due(i));
    check(!got.has_value());
    n.awake(i);
}

using sleeper = bide::task<> (*)(night&, std::uint64_t);

bide::task<> spawn_all(bide::scheduler& s, night& n, sleeper make) {
    for (std::uint64_t i = 0; i < n.late_ns.size(); ++i) {
        s.spawn(make(n, i)).detach();
    }
    co_return;
}

// The first is due after the job's duration, in which all are spawned. Nanoseconds of processor
// time for each from then on; microseconds that they are late, median and 99 %.
sample fire(const job& j, sleeper make, std::chrono::milliseconds slack) {
    night n(steady::now() + j.duration, j.count);
    bide::scheduler_options options = scheduler_options_of(j);
    options.timer_slack = slack;
    bide::scheduler s(std::move(options));
    s.spawn(spawn_all(s, n, make)).join();
    std::this_thread::sleep_until(n.first_due);
    const double before = usage_so_far().cpu_us;
    n.left.wait();
    const double cpu_ns = (usage_so_far().cpu_us - before) * 1e3;
    histogram late;
    for (const std::int64_t ns : n.late_ns) {
        if (ns < 0) {
            std::fprintf(stderr, "bench: a timer fired early\n");
            std::abort();
        }
        late.add(static_cast<std::uint64_t>(ns));
    }
    const auto late_us = [&](double share) {
        return static_cast<double>(late.percentile(share)) / 1e3;
    };
    return {cpu_ns / static_cast<double>(j.count), late_us(0.5), late_us(0.99)};
}

void add_fire(harness& h, const char* name, const char* tokio, sleeper make, std::uint64_t count) {
    // Tokio takes up to 10 us to set one.
    const job j{count, workers(), std::chrono::milliseconds(100 + count / 100)};
    table t{name,
            std::to_string(count) + " tasks that wake within the same second",
            {{"CPU each", "ns", 0, true}, {"late, median", "us", 0}, {"99 %", "us", 0}},
            {}};
    add_program(t, tokio_peer, tokio, j, h.opts().cpus);
    for (const auto& [row, slack] : {std::pair(bide_row, 0), std::pair(bide_slack_row, 1)}) {
        const std::chrono::milliseconds ms(slack);
        t.rows.push_back({row, [=] { return fire(j, make, ms); }, placement::own_process});
    }
    h.add(std::move(t));
}

} // namespace

void add_timers(harness& h) {
    const std::uint64_t count = h.opts().quick ? 10'000 : 100'000;
    add_fire(h, "fire/sleeps", "fire_sleeps", sleep_till_due, count);
    add_fire(h, "fire/sleeps_x10", "fire_sleeps", sleep_till_due, 10 * count);
    add_fire(h, "fire/timeouts", "fire_timeouts", wait_in_vain, count);
}

} // namespace bench
