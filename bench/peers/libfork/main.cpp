// libfork under the workloads of bench/sched that fork.
//
//     libfork_bench WORKLOAD COUNT WORKERS MILLISECONDS
//
// runs one workload on so many workers, again and again for so many milliseconds, and prints the
// nanoseconds of the median run and of the fastest. COUNT is that of the workload.
//
//     libfork_bench --version

#include "sched/job.hpp"

#include <libfork/core.hpp>
#include <libfork/schedule.hpp>

#include <array>
#include <charconv>
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

template <class Number> bool parse(std::string_view text, Number& to) {
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, to);
    return error == std::errc() && rest == end;
}

} // namespace

int main(int argc, char** argv) {
    if (argc == 2 && std::string_view(argv[1]) == "--version") {
        std::printf("libfork %d.%d.%d, without hwloc\n", LF_VERSION_MAJOR, LF_VERSION_MINOR,
                    LF_VERSION_PATCH);
        return 0;
    }
    std::uint64_t ms = 0;
    bench::job j{};
    if (argc == 5 && parse(argv[2], j.count) && parse(argv[3], j.workers) && parse(argv[4], ms)) {
        j.duration = std::chrono::milliseconds(ms);
        for (const workload& each : workloads) {
            if (each.name != argv[1]) {
                continue;
            }
            lf::lazy_pool pool(j.workers);
            bench::run_timer timer(j);
            while (timer.next()) {
                each.run(pool, j.count);
            }
            for (const double number : timer.result()) {
                std::printf("%.6f\n", number);
            }
            return 0;
        }
    }
    std::fprintf(stderr, "usage: libfork_bench WORKLOAD COUNT WORKERS MILLISECONDS\n");
    return 2;
}
