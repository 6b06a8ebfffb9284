#ifndef BIDE_BENCH_PUBLIC_PROGRAM_HPP
#define BIDE_BENCH_PUBLIC_PROGRAM_HPP

// The arguments and the output lines that the programs of the suite have in common.

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <sys/resource.h>

struct arguments {
    int count;
    char** values;

    std::size_t number(int at, std::size_t otherwise) const {
        return at < count ? std::strtoull(values[at], nullptr, 10) : otherwise;
    }
    // The suite passes the number of threads. Its programs take half of the processors otherwise.
    unsigned threads(int at) const {
        const unsigned half = (std::thread::hardware_concurrency() + 1) / 2;
        const auto threads = static_cast<unsigned>(number(at, half));
        std::printf("threads: %u\n", threads);
        return threads;
    }
};

// Calls f() and returns the microseconds that it took.
template <class F> std::size_t microseconds(F&& f) {
    using clock = std::chrono::steady_clock;
    const auto begin = clock::now();
    f();
    return static_cast<std::size_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(clock::now() - begin).count());
}

// Prints a run. `first` is its first line. If there are `items`, prints their number and their rate.
inline void print_run(std::size_t us, const char* first = "iteration_count: 1",
                      const char* items = nullptr, std::size_t count = 0) {
    std::printf("runs:\n  - %s\n", first);
    if (items != nullptr) {
        std::printf("    %s: %zu\n", items, count);
    }
    std::printf("    duration: %zu us\n", us);
    if (items != nullptr) {
        std::printf("    %s/sec: %zu\n", items, count * 1'000'000 / us);
    }
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    std::printf("    max_rss: %ld KiB\n", usage.ru_maxrss);
}

// Ends the program if its result is wrong.
template <class T> void check(T result, T expected) {
    if (result != expected) {
        std::printf("FAIL: wrong result\n");
        std::exit(1);
    }
}

#endif
