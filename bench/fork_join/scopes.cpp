// Functions that are spawned into a scope and do next to nothing: what a spawn costs.

#include "fork_join/job.hpp"
#include "fork_join/pools.hpp"
#include "fork_join/workloads.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace bench {
namespace {

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

} // namespace

void add_scopes(harness& h) {
    for (const std::uint64_t n : {1'000u, 100'000u}) {
        fork_table t(h, {.name = "scope/flat_" + std::to_string(n),
                         .note = "so many empty functions, all spawned by the body",
                         .size = n,
                         .count = static_cast<double>(n),
                         .counted = "spawn",
                         .rayon = "scope_flat",
                         .in_us = true});
        t.add_all([](auto& pool, run_timer& timer, std::uint64_t size) {
            timer.time([&] { return flat(pool, size); }, size);
        });
        t.finish();
    }

    fork_table tree(h, {.name = "scope/tree_18",
                        .note = "one scope, in which each function spawns two",
                        .size = 18,
                        .count = (1 << 19) - 2,
                        .counted = "spawn",
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
    tree.finish();

    fork_table scopes(h, {.name = "scope/nested_18",
                          .note = "a scope for each inner node, which spawns one child",
                          .size = 18,
                          .count = (1 << 18) - 1,
                          .counted = "scope",
                          .rayon = "scope_nested"});
    scopes.add_all([](auto& pool, run_timer& timer, std::uint64_t size) {
        timer.time([&] { return nested(pool, size); }, std::uint64_t{1} << size);
    });
    scopes.finish();
}

} // namespace bench
