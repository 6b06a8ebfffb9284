// Sorting numbers in many orders.

#include "fork_join/job.hpp"
#include "fork_join/order_rows.hpp"
#include "fork_join/orders.hpp"
#include "fork_join/pools.hpp"
#include "fork_join/workloads.hpp"

#include <bide/parallel/parallel_sort.hpp>

#if defined(BIDE_BENCH_HAS_TBB)
#include <oneapi/tbb/parallel_sort.h>

#include <execution>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// clang has it that libstdc++ 12's std::stable_sort uses what is deprecated.
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wdeprecated-declarations"
#endif

namespace bench {
namespace {

workload sort_workload(const char* prefix, const order& o, std::uint64_t count) {
    const bool tens = count >= 10'000'000;
    return {.name = prefix +
                    std::string(tens                ? "_10M/"
                                : count < 1'000'000 ? "_100k/"
                                                    : "_1M/") +
                    o.name,
            .note = "numbers of 64 bits",
            .size = count,
            .count = static_cast<double>(count),
            .counted = "number",
            .rayon = prefix + std::string("_") + o.name};
}

void add_unstable(harness& h, const order& o, std::uint64_t count) {
    fork_table t(h, sort_workload("sort", o, count));
    add_row<serial_pool>(
        t, o, serial_row, 1,
        [](serial_pool&, number_list& all) { std::sort(all.begin(), all.end()); }, is_sorted);
    add_bide_rows(
        t, o,
        [](bide_pool& pool, number_list& all) {
            bide::parallel_sort(pool.scheduler(), all.begin(), all.end());
        },
        is_sorted);
    t.add_rayon();
#if defined(BIDE_BENCH_HAS_TBB)
    add_row<tbb_pool>(
        t, o, tbb_row, workers(),
        [](tbb_pool&, number_list& all) { tbb::parallel_sort(all.begin(), all.end()); }, is_sorted);
    add_row<tbb_pool>(
        t, o, std_row, workers(),
        [](tbb_pool&, number_list& all) { std::sort(std::execution::par, all.begin(), all.end()); },
        is_sorted);
#endif
    t.finish();
}

void add_stable(harness& h, const order& o, std::uint64_t count) {
    fork_table t(h, sort_workload("stable", o, count));
    add_row<serial_pool>(
        t, o, serial_row, 1,
        [](serial_pool&, number_list& all) { std::stable_sort(all.begin(), all.end()); },
        is_sorted);
    add_bide_rows(
        t, o,
        [](bide_pool& pool, number_list& all) {
            bide::parallel_stable_sort(pool.scheduler(), all.begin(), all.end());
        },
        is_sorted);
    t.add_rayon();
#if defined(BIDE_BENCH_HAS_TBB)
    add_row<tbb_pool>(
        t, o, std_row, workers(),
        [](tbb_pool&, number_list& all) {
            std::stable_sort(std::execution::par, all.begin(), all.end());
        },
        is_sorted);
#endif
    t.finish();
}

} // namespace

void add_sorts(harness& h) {
    const bool quick = h.opts().quick;
    for (const order& o : orders) {
        add_unstable(h, o, quick ? 100'000 : 1'000'000);
    }
    if (!quick) {
        for (const order& o : orders) {
            add_unstable(h, o, 10'000'000);
        }
    }
    for (const order& o : orders) {
        add_stable(h, o, quick ? 100'000 : 1'000'000);
    }
}

} // namespace bench
