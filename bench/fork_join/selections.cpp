// What sorts in part, or not by comparisons: merges, selections, radix sorts, sorts by cached keys.

#include "fork_join/job.hpp"
#include "fork_join/order_rows.hpp"
#include "fork_join/orders.hpp"
#include "fork_join/pools.hpp"
#include "fork_join/workloads.hpp"

#include <bide/parallel/parallel_inplace_merge.hpp>
#include <bide/parallel/parallel_merge.hpp>
#include <bide/parallel/parallel_nth_element.hpp>
#include <bide/parallel/parallel_radix_sort.hpp>
#include <bide/parallel/parallel_sort_by_cached_key.hpp>

#if defined(BIDE_BENCH_HAS_TBB)
#include <execution>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

// clang has it that libstdc++ 12's algorithms with buffers use what is deprecated.
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wdeprecated-declarations"
#endif

namespace bench {
namespace {

workload selection(const std::string& name, std::uint64_t count, std::string rayon = {}) {
    return {.name = name + (count < 1'000'000    ? "_100k"
                            : count < 10'000'000 ? "_1M"
                                                 : "_10M"),
            .note = "random numbers of 64 bits",
            .size = count,
            .count = static_cast<double>(count),
            .counted = "number",
            .rayon = std::move(rayon)};
}

const order& random_order() { return orders[0]; }

void add_radix(harness& h, std::uint64_t count) {
    fork_table t(h, selection("radix_sort", count, "sort_random"));
    add_row<serial_pool>(
        t, random_order(), serial_row, 1,
        [](serial_pool&, number_list& all) { std::sort(all.begin(), all.end()); }, is_sorted);
    add_bide_rows(
        t, random_order(),
        [](bide_pool& pool, number_list& all) { bide::parallel_radix_sort(pool.scheduler(), all); },
        is_sorted);
    t.add_rayon();
    t.finish();
}

std::uint64_t costly_key(std::uint64_t number) {
    for (int i = 0; i != 32; ++i) {
        number = random_number(number);
    }
    return number;
}

void add_cached_key(harness& h, std::uint64_t count) {
    fork_table t(h, selection("cached_key", count, "cached_random"));
    const auto is_sorted_by_key = [](const number_list& all) {
        return std::is_sorted(all.begin(), all.end(), [](std::uint64_t a, std::uint64_t b) {
            return costly_key(a) < costly_key(b);
        });
    };
    add_row<serial_pool>(
        t, random_order(), serial_row, 1,
        [](serial_pool&, number_list& all) {
            std::vector<std::pair<std::uint64_t, std::uint64_t>> keyed(all.size());
            std::transform(all.begin(), all.end(), keyed.begin(), [](std::uint64_t number) {
                return std::pair(costly_key(number), number);
            });
            std::sort(keyed.begin(), keyed.end());
            std::transform(keyed.begin(), keyed.end(), all.begin(),
                           [](const auto& pair) { return pair.second; });
        },
        is_sorted_by_key);
    add_bide_rows(
        t, random_order(),
        [](bide_pool& pool, number_list& all) {
            bide::parallel_sort_by_cached_key(pool.scheduler(), all, costly_key);
        },
        is_sorted_by_key);
    t.add_rayon();
    t.finish();
}

void add_merge(harness& h, std::uint64_t count) {
    fork_table t(h, selection("merge", count));
    const auto add = [&]<class Pool>(const char* row, unsigned threads, Pool*, auto merge) {
        t.add_work<Pool>(row, threads, [=](Pool& pool, run_timer& timer, std::uint64_t size) {
            number_list given = make_numbers(random_order(), size);
            const auto middle = given.begin() + static_cast<std::ptrdiff_t>(size / 2);
            std::sort(given.begin(), middle);
            std::sort(middle, given.end());
            const fingerprint expected(given);
            number_list merged(size);
            timer.time([&] { std::fill(merged.begin(), merged.end(), 0); },
                       [&] {
                           merge(pool, given.begin(), middle, given.end(), merged.begin());
                           return true;
                       },
                       [&](bool) { return is_sorted(merged) && fingerprint(merged) == expected; });
        });
    };
    add(serial_row, 1, static_cast<serial_pool*>(nullptr),
        [](serial_pool&, auto a, auto b, auto c, auto to) { std::merge(a, b, b, c, to); });
    const auto by_bide = [](bide_pool& pool, auto a, auto b, auto c, auto to) {
        bide::parallel_merge(pool.scheduler(), a, b, b, c, to);
    };
    add(bide_row, workers(), static_cast<bide_pool*>(nullptr), by_bide);
    if (workers() > 1) {
        add(bide_one_row, 1, static_cast<bide_pool*>(nullptr), by_bide);
    }
#if defined(BIDE_BENCH_HAS_TBB)
    add(std_row, workers(), static_cast<tbb_pool*>(nullptr),
        [](tbb_pool&, auto a, auto b, auto c, auto to) {
            std::merge(std::execution::par, a, b, b, c, to);
        });
#endif
    t.finish();
}

void add_nth_element(harness& h, std::uint64_t count) {
    fork_table t(h, selection("nth_element", count));
    const auto middle_of = [](number_list& all) {
        return all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
    };
    const auto is_divided = [](const number_list& all) {
        const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
        return std::all_of(all.begin(), middle, [=](auto e) { return e <= *middle; }) &&
               std::all_of(middle, all.end(), [=](auto e) { return e >= *middle; });
    };
    add_row<serial_pool>(
        t, random_order(), serial_row, 1,
        [=](serial_pool&, number_list& all) {
            std::nth_element(all.begin(), middle_of(all), all.end());
        },
        is_divided);
    add_bide_rows(
        t, random_order(),
        [=](bide_pool& pool, number_list& all) {
            bide::parallel_nth_element(pool.scheduler(), all, middle_of(all));
        },
        is_divided);
#if defined(BIDE_BENCH_HAS_TBB)
    add_row<tbb_pool>(
        t, random_order(), std_row, workers(),
        [=](tbb_pool&, number_list& all) {
            std::nth_element(std::execution::par, all.begin(), middle_of(all), all.end());
        },
        is_divided);
#endif
    t.finish();
}

void add_partial_sort(harness& h, std::uint64_t count) {
    fork_table t(h, selection("partial_sort", count));
    const auto tenth_of = [](number_list& all) {
        return all.begin() + static_cast<std::ptrdiff_t>(all.size() / 10);
    };
    const auto is_sorted_in_part = [](const number_list& all) {
        const auto tenth = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 10);
        return std::is_sorted(all.begin(), tenth) &&
               std::all_of(tenth, all.end(), [=](auto e) { return e >= *(tenth - 1); });
    };
    add_row<serial_pool>(
        t, random_order(), serial_row, 1,
        [=](serial_pool&, number_list& all) {
            std::partial_sort(all.begin(), tenth_of(all), all.end());
        },
        is_sorted_in_part);
    add_bide_rows(
        t, random_order(),
        [=](bide_pool& pool, number_list& all) {
            bide::parallel_partial_sort(pool.scheduler(), all, tenth_of(all));
        },
        is_sorted_in_part);
#if defined(BIDE_BENCH_HAS_TBB)
    add_row<tbb_pool>(
        t, random_order(), std_row, workers(),
        [=](tbb_pool&, number_list& all) {
            std::partial_sort(std::execution::par, all.begin(), tenth_of(all), all.end());
        },
        is_sorted_in_part);
#endif
    t.finish();
}

} // namespace

void add_selections(harness& h) {
    const std::uint64_t count = h.opts().quick ? 100'000 : 1'000'000;
    add_radix(h, count);
    add_cached_key(h, count);
    add_merge(h, count);
    add_nth_element(h, count);
    add_partial_sort(h, count);
}

} // namespace bench
