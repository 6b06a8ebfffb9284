// Pipelines: a source, a stage that runs in parallel, and a stage that takes the items in order. With cheap
// stages the pipeline itself is measured, with costly ones how well its threads are busy.

#include "fork_join/pools.hpp"

#include <bide/channel/handles.hpp>
#include <bide/parallel/parallel_pipeline.hpp>
#include <bide/task/task.hpp>

#if defined(BIDE_BENCH_HAS_TBB)
#include <oneapi/tbb/parallel_pipeline.h>
#endif

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace bench {
namespace {

constexpr const char* channels_row = "bide, tasks and channels";
constexpr std::size_t tokens = 16;

struct shape {
    const char* name;
    const char* note;
    std::uint64_t items;
    // How long each takes, in steps of about half a nanosecond:
    unsigned source;
    unsigned stage;
    unsigned last;
};

constexpr shape shapes[] = {
    {"pipeline/cheap", "no work in any stage", 200'000, 0, 0, 0},
    {"pipeline/1us", "1 us in the parallel stage", 100'000, 0, 2'000, 0},
    {"pipeline/20us", "20 us in the parallel stage", 5'000, 0, 40'000, 0},
    {"pipeline/source", "20 us in the source, 10 us and 10 us in the stages", 5'000, 40'000, 20'000,
     20'000},
};

std::uint64_t steps(std::uint64_t x, unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
        x ^= x << 13;
        asm volatile("" : "+r"(x)); // no step may be left out
    }
    return x;
}

// What the stages do. The result depends on the order.
struct stages {
    const shape& of;
    std::uint64_t next = 0;
    std::uint64_t result = 0;

    std::optional<std::uint64_t> read() {
        return next == of.items ? std::nullopt : std::optional(steps(++next, of.source));
    }
    std::uint64_t compute(std::uint64_t x) const { return steps(x, of.stage); }
    void end(std::uint64_t x) { result = result * 31 + steps(x, of.last); }
};

std::uint64_t run(serial_pool&, const shape& of) {
    stages all{of};
    while (const auto item = all.read()) {
        all.end(all.compute(*item));
    }
    return all.result;
}

std::uint64_t run(bide_pool& on, const shape& of) {
    stages all{of};
    bide::parallel_pipeline(
        on.scheduler(), tokens, [&] { return all.read(); },
        bide::parallel_stage([&](std::uint64_t x) { return all.compute(x); }),
        bide::serial_stage([&](std::uint64_t x) { all.end(x); }));
    return all.result;
}

// The same by tasks: one reads, as many as workers compute, and the caller puts the results in order.
struct channel_pool : bide_pool {
    using bide_pool::bide_pool;
};

struct numbered {
    std::uint64_t number;
    std::uint64_t value;
};

bide::task<> read_all(stages& all, bide::sender<numbered> to) {
    std::uint64_t number = 0;
    while (const auto item = all.read()) {
        const numbered next{number++, *item};
        co_await to.async_send(next);
    }
}

bide::task<> compute_all(const stages& all, bide::receiver<numbered> from,
                         bide::sender<numbered> to) {
    while (const auto item = co_await from.async_recv()) {
        numbered next{item->number, all.compute(item->value)};
        co_await to.async_send(next);
    }
}

std::uint64_t run(channel_pool& on, const shape& of) {
    stages all{of};
    auto [read_in, read_out] = bide::make_channel<numbered>(tokens);
    auto [done_in, done_out] = bide::make_channel<numbered>(tokens);
    std::vector<bide::join_handle<>> tasks;
    tasks.push_back(on.scheduler().spawn(read_all(all, std::move(read_in))));
    for (unsigned i = on.scheduler().concurrency(); i > 1; --i) {
        tasks.push_back(on.scheduler().spawn(compute_all(all, read_out, done_in)));
    }
    tasks.push_back(
        on.scheduler().spawn(compute_all(all, std::move(read_out), std::move(done_in))));
    std::map<std::uint64_t, std::uint64_t> early;
    std::uint64_t number = 0;
    while (const auto item = done_out.recv()) {
        early.emplace(item->number, item->value);
        for (; !early.empty() && early.begin()->first == number; ++number) {
            all.end(early.begin()->second);
            early.erase(early.begin());
        }
    }
    for (auto& t : tasks) {
        std::move(t).join();
    }
    return all.result;
}

#if defined(BIDE_BENCH_HAS_TBB)
std::uint64_t run(tbb_pool&, const shape& of) {
    stages all{of};
    using item = std::uint64_t;
    const auto read = [&](tbb::flow_control& flow) -> item {
        const auto next = all.read();
        if (!next) {
            flow.stop();
        }
        return next.value_or(0);
    };
    tbb::parallel_pipeline(
        tokens, tbb::make_filter<void, item>(tbb::filter_mode::serial_in_order, read) &
                    tbb::make_filter<item, item>(tbb::filter_mode::parallel,
                                                 [&](item x) { return all.compute(x); }) &
                    tbb::make_filter<item, void>(tbb::filter_mode::serial_in_order,
                                                 [&](item x) { all.end(x); }));
    return all.result;
}
#endif

} // namespace

void add_pipelines() {
    for (const shape& s : shapes) {
        fork_table t({.name = s.name,
                      .note = s.note,
                      .size = s.items,
                      .count = static_cast<double>(s.items)});
        const auto add = [&]<class Pool>(const char* row, unsigned count,
                                         std::type_identity<Pool>) {
            t.add_work<Pool>(row, count, [&s](Pool& pool, run_timer& timer, std::uint64_t) {
                serial_pool alone(1);
                const std::uint64_t expected = run(alone, s);
                timer.time([&] { return run(pool, s); }, expected);
            });
        };
        add(serial_row, 1, std::type_identity<serial_pool>());
        add(bide_row, workers(), std::type_identity<bide_pool>());
        if (workers() > 1) {
            add(bide_one_row, 1, std::type_identity<bide_pool>());
        }
        add(channels_row, workers(), std::type_identity<channel_pool>());
#if defined(BIDE_BENCH_HAS_TBB)
        add(tbb_row, workers(), std::type_identity<tbb_pool>());
#endif
    }
}

} // namespace bench
