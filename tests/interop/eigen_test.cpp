#include <support/test.hpp>

#include <latch>

#define EIGEN_USE_THREADS
#include <bide/interop/eigen.hpp>

#include <unsupported/Eigen/CXX11/Tensor>

namespace {

using matrix = Eigen::Tensor<float, 2>;

matrix counted(int rows, int columns) {
    matrix made(rows, columns);
    for (int i = 0; i != rows * columns; ++i) {
        made.data()[i] = static_cast<float>(i % 7 - 3);
    }
    return made;
}

// Whether a product that is computed on the device equals the one that this thread computes.
bool multiplies(Eigen::ThreadPoolDevice& device) {
    const matrix a = counted(120, 90);
    const matrix b = counted(90, 140);
    const Eigen::array<Eigen::IndexPair<int>, 1> inner{Eigen::IndexPair<int>(1, 0)};
    matrix parallel(120, 140);
    parallel.device(device) = a.contract(b, inner) + 1.0f;
    const matrix serial = a.contract(b, inner) + 1.0f;
    return std::equal(serial.data(), serial.data() + serial.size(), parallel.data());
}

} // namespace

TEST_CASE("eigen_pool: tensors are computed by the workers of a scheduler") {
    bide::scheduler workers(3);
    bide::eigen_pool pool(workers);
    CHECK(pool.NumThreads() == 3);
    CHECK(pool.CurrentThreadId() == -1);
    Eigen::ThreadPoolDevice device(&pool, pool.NumThreads());
    CHECK(multiplies(device));

    // Each part waits for all others, so three workers run them.
    std::latch all(3);
    std::array<int, 3> ids{-1, -1, -1};
    Eigen::Barrier over(3);
    for (int& id : ids) {
        device.enqueue_with_barrier(&over, [&] {
            id = pool.CurrentThreadId();
            all.arrive_and_wait();
        });
    }
    over.Wait();
    std::sort(ids.begin(), ids.end());
    CHECK(ids == std::array{0, 1, 2});

    // On a thread of the scheduler that is no worker.
    CHECK(workers.spawn_blocking([&] { return multiplies(device); }).join());
}

TEST_CASE("eigen_pool: an expression is computed after the shutdown of its scheduler, too") {
    bide::scheduler workers(2);
    bide::eigen_pool pool(workers);
    Eigen::ThreadPoolDevice device(&pool, pool.NumThreads());
    workers.shutdown();
    CHECK(multiplies(device));
}
