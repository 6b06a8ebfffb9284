// Trees that are not known before they are searched.

#include "fork_join/job.hpp"
#include "fork_join/pools.hpp"
#include "fork_join/sha1.hpp"
#include "fork_join/workloads.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>

namespace bench {
namespace {

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

template <std::size_t N> void add_board(harness& h, double nodes, std::uint64_t ways, bool slow) {
    fork_table t(h, {.name = "nqueens/" + std::to_string(N),
                     .note = "a child for each place in the next column",
                     .size = N,
                     .count = nodes - 1,
                     .counted = "child",
                     .rayon = "nqueens",
                     .with_slow = slow});
    t.add_all([ways](auto& pool, run_timer& timer, std::uint64_t) {
        timer.time([&] { return queens<N>(pool, 0, board<N>{}); }, ways);
    });
    t.finish();
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

} // namespace

void add_nqueens(harness& h) {
    add_board<10>(h, 35'539, 724, true);
    if (!h.opts().quick) {
        add_board<14>(h, 27'358'553, 365'596, false);
    }
}

void add_uts(harness& h) {
    const bool quick = h.opts().quick;
    const tree_shape shape = quick ? small : t1;
    const tree_size expected = quick ? size_of_small : size_of_t1;
    fork_table t(h, {.name = quick ? "uts/small" : "uts/T1",
                     .note = "unbalanced tree search: geometric, fixed; 4 children on average, "
                             "depth " +
                             std::to_string(shape.depth) + ", root 19",
                     .size = static_cast<std::uint64_t>(shape.depth),
                     .count = static_cast<double>(expected.nodes - 1),
                     .counted = "child",
                     .rayon = "uts"});
    t.add_all([shape, expected](auto& pool, run_timer& timer, std::uint64_t) {
        timer.time([&] { return search(pool, shape, sha1_root(shape.root), 0); }, expected);
    });
    t.finish();
}

} // namespace bench
