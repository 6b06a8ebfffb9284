// Tasks that wait for a time: timers that fire; and very many tasks that wait, for a time or for a permit, with a
// deadline or without: what each costs until it waits and from when it need not wait any more, and its memory.

#include "sched/frame_probe.hpp"
#include "sched/pools.hpp"
#include "sched/usage.hpp"
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
#include <functional>
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

bide::task<> spawn_sleepers(bide::scheduler& s, night& n, sleeper make) {
    for (std::uint64_t i = 0; i < n.late_ns.size(); ++i) {
        s.spawn(make(n, i)).detach();
    }
    co_return;
}

// The first is due after the job's duration, in which all are spawned. The processor
// time of each from then on; and microseconds that they are late, median and 99 %.
measured fire(const job& j, sleeper make, std::chrono::milliseconds slack) {
    night n(steady::now() + j.duration, j.count);
    bide::scheduler_options options = scheduler_options_of(j);
    options.timer_slack = slack;
    bide::scheduler s(std::move(options));
    s.spawn(spawn_sleepers(s, n, make)).join();
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
    return {cpu_ns / static_cast<double>(j.count),
            {{"late", late.percentile(0.5) / 1e3}, {"late p99", late.percentile(0.99) / 1e3}}};
}

void add_fire(const char* name, const char* tokio, sleeper make, std::uint64_t count) {
    // Tokio takes up to 10 us to set one.
    const job j{count, workers(), std::chrono::milliseconds(100 + count / 100)};
    table t(name,
            std::to_string(count) + " tasks that wake within the same second; processor time");
    add_peer(t, tokio_peer, tokio, j, {"late", "late p99"}, 1);
    for (const auto& [row, slack] : {std::pair(bide_row, 0), std::pair(bide_slack_row, 1)}) {
        const std::chrono::milliseconds ms(slack);
        t.add(row, [=] { return fire(j, make, ms); }, placement::own_process);
    }
}

// ---- Very many that wait

constexpr std::chrono::hours long_time(1);

// The tasks that have come, and those that have gone again.
struct counts {
    explicit counts(std::uint64_t count)
        : come(static_cast<std::ptrdiff_t>(count)), gone(static_cast<std::ptrdiff_t>(count)) {}
    bide::latch come;
    bide::latch gone;
};

// Until it is cancelled.
template <class Task> Task sleep_long(counts& c) {
    c.come.count_down();
    const bide::result<void> slept = co_await bide::this_task::sleep_for(long_time).as_result();
    check(!slept.has_value());
    c.gone.count_down();
}

template <class Task> Task wait_for_permit(counts& c, bide::semaphore& permits) {
    c.come.count_down();
    bide::permit mine = co_await permits.async_acquire();
    mine.forget();
    c.gone.count_down();
}

template <class Task> Task wait_with_timeout(counts& c, bide::semaphore& permits) {
    c.come.count_down();
    bide::result<bide::permit> mine = co_await permits.async_acquire().with_timeout(long_time);
    check(mine.has_value());
    mine->forget();
    c.gone.count_down();
}

template <class Make>
bide::task<> spawn_all(bide::scheduler& s, std::vector<bide::join_handle<>>& handles,
                       std::uint64_t count, Make make) {
    for (std::uint64_t i = 0; i < count; ++i) {
        handles.push_back(s.spawn(make()));
    }
    co_return;
}

// The time of each to wait, and in nanoseconds from end() on; bytes of each (without its handle), and of these
// what is not the frame of its coroutine.
template <class Make, class End>
measured measure_parked(const job& j, counts& c, double frame_size, Make make, End end) {
    bide::scheduler s(scheduler_options_of(j));
    const auto count = static_cast<double>(j.count);
    std::vector<bide::join_handle<>> handles;
    handles.reserve(j.count);
    const double before = resident_bytes();
    const auto began = steady::now();
    s.spawn(spawn_all(s, handles, j.count, make)).join();
    c.come.wait();
    const double insert = ns_since(began) / count;
    std::this_thread::sleep_for(std::chrono::milliseconds(100)); // the last ones wait
    const double bytes = (resident_bytes() - before) / count - sizeof(bide::join_handle<>);
    const auto ended = steady::now();
    end(handles);
    c.gone.wait();
    return {insert,
            {{"end", ns_since(ended) / count},
             {"bytes", bytes},
             {"beside the frame", bytes - frame_size}}};
}

using all_handles = std::vector<bide::join_handle<>>;

measured sleepers(const job& j) {
    counts c(j.count);
    const double frame_size = sleep_long<frame_probe>(c).size();
    return measure_parked(
        j, c, frame_size, [&c] { return sleep_long<bide::task<>>(c); },
        [](all_handles& handles) {
            for (bide::join_handle<>& handle : handles) {
                handle.cancel();
            }
        });
}

measured waiters(const job& j) {
    counts c(j.count);
    bide::semaphore permits(0);
    const double frame_size = wait_for_permit<frame_probe>(c, permits).size();
    return measure_parked(
        j, c, frame_size, [&] { return wait_for_permit<bide::task<>>(c, permits); },
        [&](all_handles&) { permits.release(static_cast<std::ptrdiff_t>(j.count)); });
}

measured timeouts(const job& j) {
    counts c(j.count);
    bide::semaphore permits(0);
    const double frame_size = wait_with_timeout<frame_probe>(c, permits).size();
    return measure_parked(
        j, c, frame_size, [&] { return wait_with_timeout<bide::task<>>(c, permits); },
        [&](all_handles&) { permits.release(static_cast<std::ptrdiff_t>(j.count)); });
}

} // namespace

void add_timers() {
    const std::uint64_t count = scaled(100'000);
    add_fire("fire/sleeps", "fire_sleeps", sleep_till_due, count);
    add_fire("fire/sleeps_x10", "fire_sleeps", sleep_till_due, 10 * count);
    add_fire("fire/timeouts", "fire_timeouts", wait_in_vain, count);
}

void add_parked() {
    struct shape {
        const char* table;
        const char* note;
        const char* tokio;
        measured (*measure)(const job&);
    };
    const job j{scaled(1'000'000)};
    for (const shape& each : {
             shape{"parked/for_a_permit", "tasks that wait; then all get a permit", "waiters",
                   waiters},
             shape{"parked/asleep", "tasks that sleep for an hour; then all are cancelled",
                   "sleepers", sleepers},
             shape{"parked/with_timeout",
                   "tasks that wait for an hour at most; then all get a permit", "timeouts",
                   timeouts},
         }) {
        table t(each.table, std::to_string(j.count) + ' ' + each.note);
        add_peer(t, tokio_peer, each.tokio, j, {"end", "bytes"}, 1);
        const auto measure = [=, measure = each.measure] { return measure(j); };
        t.add(bide_row, measure, placement::own_process);
    }
}

} // namespace bench
