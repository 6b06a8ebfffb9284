// Fibonacci numbers by recursion: fib N [THREADS]

#include "program.hpp"

#include <bide/parallel/fork_join.hpp>

namespace {

std::size_t fib(bide::scheduler& on, std::size_t n) {
    if (n < 2) {
        return n;
    }
    const auto [x, y] =
        bide::join(on, [&on, n] { return fib(on, n - 1); }, [&on, n] { return fib(on, n - 2); });
    return x + y;
}

} // namespace

int main(int argc, char** argv) {
    const arguments args{argc, argv};
    if (argc < 2) {
        std::printf("Usage: fib N [THREADS]\n");
        return 0;
    }
    const std::size_t n = args.number(1, 0);
    bide::scheduler workers({.num_workers = args.threads(2)});
    const auto run = [&workers](std::size_t of) {
        return workers.spawn([&workers, of] { return fib(workers, of); }).join();
    };
    run(n < 30 ? n : 30); // warmup
    print_run(microseconds([&] { std::printf("output: %zu\n", run(n)); }));
}
