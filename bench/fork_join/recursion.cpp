// Recursion that does next to nothing: what a fork costs.

#include "fork_join/job.hpp"
#include "fork_join/pools.hpp"
#include "fork_join/workloads.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>

namespace bench {
namespace {

// ---- fib and skynet are those of the runtime-benchmarks suite, which has fib(39) and 1e8 leaves.

template <class Pool> std::uint64_t fib(Pool& pool, std::uint64_t n) {
    if (n < 2) {
        return n;
    }
    const auto [a, b] =
        pool.join([&pool, n] { return fib(pool, n - 1); }, [&pool, n] { return fib(pool, n - 2); });
    return a + b;
}

constexpr std::uint64_t fib_of(std::uint64_t n) {
    std::uint64_t a = 0;
    std::uint64_t b = 1;
    for (; n != 0; --n) {
        b += a;
        a = b - a;
    }
    return a;
}

// The sum of the numbers from `first` on, as many as `leaves`, a power of ten.
template <class Pool> std::uint64_t skynet(Pool& pool, std::uint64_t first, std::uint64_t leaves) {
    if (leaves == 1) {
        return first;
    }
    std::array<std::uint64_t, 10> sums;
    pool.template many<10>([&pool, &sums, first, part = leaves / 10](std::size_t i) {
        sums[i] = skynet(pool, first + part * i, part);
    });
    return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
}

// ---- A full binary tree, and one that has only left children.

// Its own value each time: two of the same need two calls.
inline std::uint64_t one() {
    std::uint64_t value = 1;
    asm volatile("" : "+r"(value));
    return value;
}

// The leaves below.
template <class Pool> std::uint64_t tree(Pool& pool, std::uint64_t depth) {
    if (depth == 0) {
        return one();
    }
    const auto [a, b] = pool.join([&pool, depth] { return tree(pool, depth - 1); },
                                  [&pool, depth] { return tree(pool, depth - 1); });
    return a + b;
}

template <class Pool> std::uint64_t spine(Pool& pool, std::uint64_t depth) {
    if (depth == 0) {
        return one();
    }
    const auto [a, b] =
        pool.join([&pool, depth] { return spine(pool, depth - 1); }, [] { return one(); });
    return a + b;
}

} // namespace

void add_fib(harness& h) {
    for (const std::uint64_t n : {30u, 37u, 39u}) {
        if (h.opts().quick && n > 30) {
            continue;
        }
        fork_table t(h, {.name = "fib/" + std::to_string(n),
                         .note = "fib(n - 1) and fib(n - 2), down to fib(1) and fib(0)",
                         .size = n,
                         .count = static_cast<double>(fib_of(n + 1) - 1),
                         .counted = "fork",
                         .rayon = "fib",
                         .with_slow = n < 37});
        t.add_all(
            [](auto& pool, run_timer& timer, std::uint64_t size) {
                timer.time([&] { return fib(pool, size); }, fib_of(size));
            },
            true);
        t.finish();
    }
}

void add_skynet(harness& h) {
    for (const std::uint64_t leaves : {1'000'000u, 100'000'000u}) {
        if (h.opts().quick && leaves > 1'000'000) {
            continue;
        }
        fork_table t(h, {.name = std::string("skynet/") + (leaves > 1'000'000 ? "1e8" : "1e6"),
                         .note = "so many leaves, ten children each",
                         .size = leaves,
                         .count = static_cast<double>((leaves - 1) / 9 * 10), // all but the root
                         .counted = "child",
                         .rayon = "skynet",
                         .with_slow = leaves == 1'000'000});
        t.add_all(
            [](auto& pool, run_timer& timer, std::uint64_t size) {
                timer.time([&] { return skynet(pool, 0, size); }, size * (size - 1) / 2);
            },
            true);
        t.finish();
    }
}

void add_tree(harness& h) {
    for (const std::uint64_t depth : {10u, 15u, 20u}) {
        fork_table t(h, {.name = "tree/" + std::to_string(depth),
                         .note = "a full binary tree of that depth",
                         .size = depth,
                         .count = static_cast<double>((std::uint64_t{1} << depth) - 1),
                         .counted = "fork",
                         .rayon = "tree",
                         .in_us = true});
        t.add_all(
            [](auto& pool, run_timer& timer, std::uint64_t size) {
                timer.time([&] { return tree(pool, size); }, std::uint64_t{1} << size);
            },
            true);
        t.finish();
    }

    fork_table t(h, {.name = "outside/tree_10",
                     .note = "the same tree, every time from a thread outside the pool",
                     .size = 10,
                     .count = (1 << 10) - 1,
                     .counted = "fork",
                     .rayon = "outside",
                     .in_us = true});
    const auto add = [&]<class Pool>(const char* row, unsigned count, Pool*) {
        t.add(row, count, [](const job& j) {
            Pool pool(j.workers);
            run_timer timer(j);
            timer.time(
                [&] {
                    std::uint64_t leaves = 0;
                    pool.run([&] { leaves = tree(pool, j.size); });
                    return leaves;
                },
                std::uint64_t{1} << j.size);
            return timer.result();
        });
    };
    add(serial_row, 1, static_cast<serial_pool*>(nullptr));
    t.add(bide_row, workers(), [](const job& j) {
        bide_pool pool(j.workers);
        run_timer timer(j);
        timer.time([&] { return tree(pool, j.size); }, std::uint64_t{1} << j.size);
        return timer.result();
    });
    t.add_rayon();
#if defined(BIDE_BENCH_HAS_TBB)
    add(tbb_row, workers(), static_cast<tbb_pool*>(nullptr));
#endif
#if defined(BIDE_BENCH_HAS_OPENMP)
    add(openmp_row, workers(), static_cast<openmp_pool*>(nullptr));
#endif
    t.finish();
}

void add_spine(harness& h) {
    fork_table t(h, {.name = "spine/5000",
                     .note = "a left child each, so deep; to the right, leaves",
                     .size = 5000,
                     .count = 5000,
                     .counted = "fork",
                     .rayon = "spine",
                     .in_us = true});
    t.add_all([](auto& pool, run_timer& timer, std::uint64_t size) {
        timer.time([&] { return spine(pool, size); }, size + 1);
    });
    t.finish();
}

} // namespace bench
