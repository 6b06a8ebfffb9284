// Matrices, multiplied by quarters: of the runtime-benchmarks suite, which has those of 2048 x 2048.
// There the time to fill them counts as well; the tiles at the bottom are of 32 x 32, too.

#include "fork_join/job.hpp"
#include "fork_join/pools.hpp"
#include "fork_join/workloads.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace bench {
namespace {

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

void add_matmul(harness& h) {
    for (const std::size_t n : {256u, 1024u, 2048u}) {
        if (h.opts().quick != (n == 256)) {
            continue;
        }
        const auto tiles = static_cast<double>(n / tile);
        fork_table t(h, {.name = "matmul/" + std::to_string(n),
                         .note = "quarters of quarters, down to 32 x 32",
                         .size = n,
                         .count = tiles * tiles * tiles,
                         .counted = "tile",
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
        t.finish();
    }
}

} // namespace bench
