// libfork under the workloads of bench/sched that fork. COUNT is that of the workload.

#include "peers/program.hpp"

#include <libfork/core.hpp>
#include <libfork/schedule.hpp>

#include <array>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <string_view>

namespace {

inline constexpr auto fib = [](auto self, std::uint64_t n) -> lf::task<std::uint64_t> {
    if (n < 2) {
        co_return n;
    }
    std::uint64_t a = 0;
    std::uint64_t b = 0;
    co_await lf::fork(&a, self)(n - 1);
    co_await lf::call(&b, self)(n - 2);
    co_await lf::join;
    co_return a + b;
};

inline constexpr auto skynet = [](auto self, std::uint64_t first,
                                  std::uint64_t leaves) -> lf::task<std::uint64_t> {
    if (leaves == 1) {
        co_return first;
    }
    std::array<std::uint64_t, 10> sums{};
    for (std::uint64_t i = 0; i < 9; ++i) {
        co_await lf::fork(&sums[i], self)(first + i * (leaves / 10), leaves / 10);
    }
    co_await lf::call(&sums[9], self)(first + 9 * (leaves / 10), leaves / 10);
    co_await lf::join;
    co_return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
};

void run_fib(lf::lazy_pool& pool, std::uint64_t n) {
    static_cast<void>(lf::sync_wait(pool, fib, n));
}
void run_skynet(lf::lazy_pool& pool, std::uint64_t leaves) {
    bench::check(lf::sync_wait(pool, skynet, std::uint64_t{0}, leaves) ==
                 leaves * (leaves - 1) / 2);
}

struct workload {
    std::string_view name;
    void (*run)(lf::lazy_pool& pool, std::uint64_t count);
};
constexpr workload workloads[] = {{"forks/fib", run_fib}, {"forks/skynet", run_skynet}};

} // namespace

int main(int argc, char** argv) {
    return bench::run_program(
        argc, argv, "libfork_bench", workloads,
        [] {
            std::printf("libfork %d.%d.%d, without hwloc\n", LF_VERSION_MAJOR, LF_VERSION_MINOR,
                        LF_VERSION_PATCH);
        },
        [](const workload& each, const bench::job& j) {
            lf::lazy_pool pool(j.workers);
            bench::print_times(j, [&] { each.run(pool, j.count); });
        });
}
