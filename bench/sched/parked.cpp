// Very many tasks that wait, for a time or for a permit, with a deadline or without: what each
// costs until it waits and from when it need not wait any more, and how much memory it takes.

#include "sched/frame_probe.hpp"
#include "sched/job.hpp"
#include "sched/pools.hpp"
#include "sched/usage.hpp"
#include "sched/workloads.hpp"

#include <bide/core/result.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sync/latch.hpp>
#include <bide/sync/permit.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/join_handle.hpp>
#include <bide/task/task.hpp>
#include <bide/task/this_task.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace bench {
namespace {

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

// Nanoseconds for each to wait, and from end() on; bytes of each (without its handle), and of these
// what is not the frame of its coroutine.
template <class Make, class End>
sample measure_parked(const job& j, counts& c, double frame_size, Make make, End end) {
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
    return {insert, ns_since(ended) / count, bytes, bytes - frame_size};
}

using all_handles = std::vector<bide::join_handle<>>;

sample sleepers(const job& j) {
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

sample waiters(const job& j) {
    counts c(j.count);
    bide::semaphore permits(0);
    const double frame_size = wait_for_permit<frame_probe>(c, permits).size();
    return measure_parked(
        j, c, frame_size, [&] { return wait_for_permit<bide::task<>>(c, permits); },
        [&](all_handles&) { permits.release(static_cast<std::ptrdiff_t>(j.count)); });
}

sample timeouts(const job& j) {
    counts c(j.count);
    bide::semaphore permits(0);
    const double frame_size = wait_with_timeout<frame_probe>(c, permits).size();
    return measure_parked(
        j, c, frame_size, [&] { return wait_with_timeout<bide::task<>>(c, permits); },
        [&](all_handles&) { permits.release(static_cast<std::ptrdiff_t>(j.count)); });
}

} // namespace

void add_parked(harness& h) {
    struct shape {
        const char* table;
        const char* note;
        const char* tokio;
        sample (*measure)(const job&);
    };
    const job j{h.opts().quick ? 100'000u : 1'000'000u, workers(), {}};
    for (const shape& each : {
             shape{"parked/for_a_permit", "tasks that wait; then all get a permit", "waiters",
                   waiters},
             shape{"parked/asleep", "tasks that sleep for an hour; then all are cancelled",
                   "sleepers", sleepers},
             shape{"parked/with_timeout",
                   "tasks that wait for an hour at most; then all get a permit", "timeouts",
                   timeouts},
         }) {
        table t{each.table,
                std::to_string(j.count) + ' ' + each.note,
                {{"insert", "ns", 0, true},
                 {"end", "ns", 0, true},
                 {"memory", "bytes", 0, true},
                 {"beside the frame", "bytes", 0}},
                {}};
        add_program(t, tokio_peer, each.tokio, j, h.opts().cpus);
        t.rows.push_back(
            {bide_row, [=, measure = each.measure] { return measure(j); }, placement::own_process});
        h.add(std::move(t));
    }
}

} // namespace bench
