// Recursion: what a fork costs that does next to nothing; functions that are spawned into a scope; trees that are
// not known before they are searched; matrices, multiplied by quarters.

#include "fork_join/pools.hpp"
#include "fork_join/sha1.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

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

// ---- Functions that are spawned into a scope

// All by the body. Each has a place of its own for its result.
template <class Pool> std::uint64_t flat(Pool& pool, std::uint64_t n) {
    std::atomic<std::uint64_t> last{0};
    pool.scope([&last, n](auto& scope) {
        for (std::uint64_t i = 1; i <= n; ++i) {
            scope.spawn([&last, i, n](auto&) {
                if (i == n) {
                    last.store(i, std::memory_order_relaxed);
                }
            });
        }
    });
    return last.load(std::memory_order_relaxed);
}

// A full binary tree: each function spawns two into the same scope.
template <class Scope>
void grow(Scope& scope, std::atomic<std::uint64_t>& deep, std::uint64_t depth) {
    if (depth == 0) {
        deep.store(1, std::memory_order_relaxed);
        return;
    }
    scope.spawn([&deep, depth](auto& same) { grow(same, deep, depth - 1); });
    scope.spawn([&deep, depth](auto& same) { grow(same, deep, depth - 1); });
}

// A scope for each inner node, which spawns one child and computes the other one itself.
template <class Pool> std::uint64_t nested(Pool& pool, std::uint64_t depth) {
    if (depth == 0) {
        return 1;
    }
    std::uint64_t a = 0;
    std::uint64_t b = 0;
    pool.scope([&](auto& scope) {
        scope.spawn([&pool, &a, depth](auto&) { a = nested(pool, depth - 1); });
        b = nested(pool, depth - 1);
    });
    return a + b;
}

// ---- All ways to place queens on a board: of the runtime-benchmarks suite, as is the test of each
// place.

template <std::size_t N> using board = std::array<char, N>;

// Whether one may stand in column `column`, in that row.
template <std::size_t N> bool is_free(const board<N>& rows, int column, int row) {
    for (int x = 0; x < column; ++x) {
        const int other = rows[static_cast<std::size_t>(x)];
        if (row == other || row == other - (column - x) || row == other + (column - x)) {
            return false;
        }
    }
    return true;
}

template <std::size_t N, class Pool>
std::uint64_t queens(Pool& pool, int column, const board<N>& rows) {
    if (column == static_cast<int>(N)) {
        return 1;
    }
    board<N> places;
    std::size_t count = 0;
    for (int row = 0; row < static_cast<int>(N); ++row) {
        if (is_free(rows, column, row)) {
            places[count++] = static_cast<char>(row);
        }
    }
    if (count == 0) {
        return 0;
    }
    std::array<std::uint64_t, N> ways;
    pool.some(count, [&pool, &rows, &places, &ways, column](std::size_t i) {
        board<N> next = rows;
        next[static_cast<std::size_t>(column)] = places[i];
        ways[i] = queens<N>(pool, column + 1, next);
    });
    return std::accumulate(ways.begin(), ways.begin() + static_cast<std::ptrdiff_t>(count),
                           std::uint64_t{0});
}

template <std::size_t N> void add_board(double nodes, std::uint64_t ways, bool slow) {
    fork_table t({.name = "nqueens/" + std::to_string(N),
                  .note = "a child for each place in the next column",
                  .size = N,
                  .count = nodes - 1,
                  .rayon = "nqueens",
                  .with_slow = slow});
    t.add_all([ways](auto& pool, run_timer& timer, std::uint64_t) {
        timer.time([&] { return queens<N>(pool, 0, board<N>{}); }, ways);
    });
}

// ---- Unbalanced tree search (Olivier and others 2006, "UTS: An Unbalanced Tree Search
// Benchmark"): geometric trees of fixed shape, drawn by SHA-1 as there.

struct tree_shape {
    double branching; // on average
    int depth;
    std::uint32_t root;
};

struct tree_size {
    std::uint64_t nodes;
    std::uint64_t leaves;
    bool operator==(const tree_size&) const = default;
};

// The sample tree T1 of the paper, whose size is published there, and a smaller one.
constexpr tree_shape t1{4, 10, 19};
constexpr tree_size size_of_t1{4'130'071, 3'305'118};
constexpr tree_shape small{4, 7, 19};
constexpr tree_size size_of_small{63'914, 51'124};

constexpr std::size_t most_children = 100;

std::size_t children(const tree_shape& shape, const sha1_digest& node, int depth) {
    if (depth >= shape.depth) {
        return 0;
    }
    const double draw = static_cast<double>(node[4] & 0x7fffffffu) / 2147483648.0;
    const double p = 1 / (1 + shape.branching);
    const auto count = static_cast<std::size_t>(std::floor(std::log(1 - draw) / std::log(1 - p)));
    return std::min(count, most_children);
}

template <class Pool>
tree_size search(Pool& pool, const tree_shape& shape, const sha1_digest& node, int depth) {
    const std::size_t count = children(shape, node, depth);
    if (count == 0) {
        return {1, 1};
    }
    std::array<tree_size, most_children> below;
    pool.some(count, [&pool, &shape, &node, &below, depth](std::size_t i) {
        below[i] = search(pool, shape, sha1_child(node, static_cast<std::uint32_t>(i)), depth + 1);
    });
    tree_size all{1, 0};
    for (std::size_t i = 0; i < count; ++i) {
        all.nodes += below[i].nodes;
        all.leaves += below[i].leaves;
    }
    return all;
}

// ---- Matrices: of the runtime-benchmarks suite, which has those of 2048 x 2048. There the time to fill them counts
// as well; the tiles at the bottom are of 32 x 32, too.

constexpr std::size_t tile = 32;

// One function for all. Of constant size and without overlap, so that g++ has vectors for it at -O2.
[[gnu::noinline]] void multiply_tile(const int* a, const int* b, int* __restrict c,
                                     std::size_t stride) {
    for (std::size_t i = 0; i < tile; ++i) {
        for (std::size_t k = 0; k < tile; ++k) {
            const int factor = a[i * stride + k];
            for (std::size_t j = 0; j < tile; ++j) {
                c[i * stride + j] += factor * b[k * stride + j];
            }
        }
    }
}

// c += a * b, of n x n numbers in rows that are `stride` apart.
template <class Pool>
void multiply(Pool& pool, const int* a, const int* b, int* c, std::size_t n, std::size_t stride) {
    if (n == tile) {
        multiply_tile(a, b, c, stride);
        return;
    }
    // One product for each quarter of c, then the other one.
    const std::size_t half = n / 2;
    const std::size_t down = half * stride;
    for (std::size_t k = 0; k < 2; ++k) {
        pool.template many<4>(
            [&pool, half, down, stride, a = a + k * half, b = b + k * down, c](std::size_t i) {
                const std::size_t row = i / 2;
                const std::size_t column = i % 2;
                multiply(pool, a + row * down, b + column * half, c + row * down + column * half,
                         half, stride);
            });
    }
}

} // namespace

void add_fib() {
    for (const std::uint64_t n : {30u, 37u, 39u}) {
        if (is_short() && n > 30) {
            continue;
        }
        fork_table t({.name = "fib/" + std::to_string(n),
                      .note = "fib(n - 1) and fib(n - 2), down to fib(1) and fib(0)",
                      .size = n,
                      .count = static_cast<double>(fib_of(n + 1) - 1),
                      .rayon = "fib",
                      .with_slow = n < 37});
        t.add_all(
            [](auto& pool, run_timer& timer, std::uint64_t size) {
                timer.time([&] { return fib(pool, size); }, fib_of(size));
            },
            true);
    }
}

void add_skynet() {
    for (const std::uint64_t leaves : {1'000'000u, 100'000'000u}) {
        if (is_short() && leaves > 1'000'000) {
            continue;
        }
        fork_table t({.name = std::string("skynet/") + (leaves > 1'000'000 ? "1e8" : "1e6"),
                      .note = "so many leaves, ten children each",
                      .size = leaves,
                      .count = static_cast<double>((leaves - 1) / 9 * 10), // all but the root
                      .rayon = "skynet",
                      .with_slow = leaves == 1'000'000});
        t.add_all(
            [](auto& pool, run_timer& timer, std::uint64_t size) {
                timer.time([&] { return skynet(pool, 0, size); }, size * (size - 1) / 2);
            },
            true);
    }
}

void add_tree() {
    for (const std::uint64_t depth : {10u, 15u, 20u}) {
        fork_table t({.name = "tree/" + std::to_string(depth),
                      .note = "a full binary tree of that depth",
                      .size = depth,
                      .count = static_cast<double>((std::uint64_t{1} << depth) - 1),
                      .rayon = "tree"});
        t.add_all(
            [](auto& pool, run_timer& timer, std::uint64_t size) {
                timer.time([&] { return tree(pool, size); }, std::uint64_t{1} << size);
            },
            true);
    }

    fork_table t({.name = "outside/tree_10",
                  .note = "the same tree, every time from a thread outside the pool",
                  .size = 10,
                  .count = (1 << 10) - 1,
                  .rayon = "outside"});
    const auto add = [&]<class Pool>(const char* row, unsigned count, Pool*) {
        t.add(row, count, [](const job& j) {
            Pool pool(j.workers);
            run_timer timer(j);
            timer.time(
                [&] {
                    std::uint64_t leaves = 0;
                    pool.run([&] { leaves = tree(pool, j.count); });
                    return leaves;
                },
                std::uint64_t{1} << j.count);
            return timer.result();
        });
    };
    add(serial_row, 1, static_cast<serial_pool*>(nullptr));
    t.add(bide_row, workers(), [](const job& j) {
        bide_pool pool(j.workers);
        run_timer timer(j);
        timer.time([&] { return tree(pool, j.count); }, std::uint64_t{1} << j.count);
        return timer.result();
    });
    t.add_rayon();
#if defined(BIDE_BENCH_HAS_TBB)
    add(tbb_row, workers(), static_cast<tbb_pool*>(nullptr));
#endif
#if defined(BIDE_BENCH_HAS_OPENMP)
    add(openmp_row, workers(), static_cast<openmp_pool*>(nullptr));
#endif
}

void add_spine() {
    fork_table t({.name = "spine/5000",
                  .note = "a left child each, so deep; to the right, leaves",
                  .size = 5000,
                  .count = 5000,
                  .rayon = "spine"});
    t.add_all([](auto& pool, run_timer& timer, std::uint64_t size) {
        timer.time([&] { return spine(pool, size); }, size + 1);
    });
}

void add_scopes() {
    for (const std::uint64_t n : {1'000u, 100'000u}) {
        fork_table t({.name = "scope/flat_" + std::to_string(n),
                      .note = "so many empty functions, all spawned by the body",
                      .size = n,
                      .count = static_cast<double>(n),
                      .rayon = "scope_flat"});
        t.add_all([](auto& pool, run_timer& timer, std::uint64_t size) {
            timer.time([&] { return flat(pool, size); }, size);
        });
    }

    fork_table tree({.name = "scope/tree_18",
                     .note = "one scope, in which each function spawns two",
                     .size = 18,
                     .count = (1 << 19) - 2,
                     .rayon = "scope_tree"});
    tree.add_all([](auto& pool, run_timer& timer, std::uint64_t size) {
        timer.time(
            [&] {
                std::atomic<std::uint64_t> deep{0};
                pool.scope([&](auto& scope) { grow(scope, deep, size); });
                return deep.load(std::memory_order_relaxed);
            },
            std::uint64_t{1});
    });

    fork_table scopes({.name = "scope/nested_18",
                       .note = "a scope for each inner node, which spawns one child",
                       .size = 18,
                       .count = (1 << 18) - 1,
                       .rayon = "scope_nested"});
    scopes.add_all([](auto& pool, run_timer& timer, std::uint64_t size) {
        timer.time([&] { return nested(pool, size); }, std::uint64_t{1} << size);
    });
}

void add_nqueens() {
    add_board<10>(35'539, 724, true);
    if (!is_short()) {
        add_board<14>(27'358'553, 365'596, false);
    }
}

void add_uts() {
    const bool quick = is_short();
    const tree_shape shape = quick ? small : t1;
    const tree_size expected = quick ? size_of_small : size_of_t1;
    fork_table t({.name = quick ? "uts/small" : "uts/T1",
                  .note = "unbalanced tree search: geometric, fixed; 4 children on average, "
                          "depth " +
                          std::to_string(shape.depth) + ", root 19",
                  .size = static_cast<std::uint64_t>(shape.depth),
                  .count = static_cast<double>(expected.nodes - 1),
                  .rayon = "uts"});
    t.add_all([shape, expected](auto& pool, run_timer& timer, std::uint64_t) {
        timer.time([&] { return search(pool, shape, sha1_root(shape.root), 0); }, expected);
    });
}

void add_matmul() {
    for (const std::size_t n : {256u, 1024u, 2048u}) {
        if (is_short() != (n == 256)) {
            continue;
        }
        const auto tiles = static_cast<double>(n / tile);
        fork_table t({.name = "matmul/" + std::to_string(n),
                      .note = "quarters of quarters, down to 32 x 32",
                      .size = n,
                      .count = tiles * tiles * tiles,
                      .rayon = "matmul"});
        t.add_all([](auto& pool, run_timer& timer, std::uint64_t size) {
            const std::vector<int> a(size * size, 1);
            const std::vector<int> b(size * size, 1);
            std::vector<int> c(size * size);
            const auto is_size = [&](int x) { return x == static_cast<int>(size); };
            timer.time([&] { std::fill(c.begin(), c.end(), 0); },
                       [&] {
                           multiply(pool, a.data(), b.data(), c.data(), size, size);
                           return true;
                       },
                       [&](bool) { return std::all_of(c.begin(), c.end(), is_size); });
        });
    }
}

} // namespace bench
