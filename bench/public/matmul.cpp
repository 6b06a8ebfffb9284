// The product of two matrices, by quarters of quarters: matmul SIZE [THREADS]. SIZE is a power of two.

#include "program.hpp"

#include <bide/parallel/fork_join.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace {

// c += a * b, of n x n numbers whose rows are `stride` apart.
void multiply_small(const int* a, const int* b, int* c, std::size_t n, std::size_t stride) {
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t k = 0; k < n; ++k) {
            for (std::size_t j = 0; j < n; ++j) {
                c[i * stride + j] += a[i * stride + k] * b[k * stride + j];
            }
        }
    }
}

void multiply(bide::scheduler& on, const int* a, const int* b, int* c, std::size_t n,
              std::size_t stride) {
    if (n <= 32) {
        return multiply_small(a, b, c, n, stride);
    }
    const std::size_t half = n / 2;
    const std::size_t down = half * stride;
    // One product for each quarter of c, then the other one.
    for (int k = 0; k < 2; ++k) {
        bide::parallel_invoke(
            on, [=, &on] { multiply(on, a, b, c, half, stride); },
            [=, &on] { multiply(on, a, b + half, c + half, half, stride); },
            [=, &on] { multiply(on, a + down, b, c + down, half, stride); },
            [=, &on] { multiply(on, a + down, b + half, c + down + half, half, stride); });
        a += half;
        b += down;
    }
}

std::vector<int> product(bide::scheduler& on, std::size_t n) {
    const std::vector<int> a(n * n, 1);
    const std::vector<int> b(n * n, 1);
    std::vector<int> c(n * n, 0);
    on.spawn([&] { multiply(on, a.data(), b.data(), c.data(), n, n); }).join();
    return c;
}

} // namespace

int main(int argc, char** argv) {
    const arguments args{argc, argv};
    if (argc < 2) {
        std::printf("Usage: matmul SIZE [THREADS]\n");
        return 0;
    }
    const std::size_t n = args.number(1, 0);
    bide::scheduler workers({.num_workers = args.threads(2)});
    product(workers, n); // warmup
    std::vector<int> c;
    const std::size_t us = microseconds([&] { c = product(workers, n); });
    check(std::count(c.begin(), c.end(), static_cast<int>(n)), static_cast<std::ptrdiff_t>(n * n));
    print_run(us, ("matrix_size: " + std::to_string(n)).c_str());
}
