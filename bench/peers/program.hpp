#ifndef BIDE_BENCH_PEERS_PROGRAM_HPP
#define BIDE_BENCH_PEERS_PROGRAM_HPP

// The program of a C++ peer that has a program of its own:
//
//     PROGRAM WORKLOAD COUNT WORKERS MILLISECONDS
//
// runs one workload on so many workers, again and again for so many milliseconds, and prints the
// nanoseconds of the median run and of the fastest.
//
//     PROGRAM --version

#include "sched/job.hpp"

#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <system_error>

namespace bench {

template <class Number> bool parse(std::string_view text, Number& to) {
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, to);
    return error == std::errc() && rest == end;
}

// Calls run() for the duration of the job, and prints the times.
template <class Run> void print_times(const job& j, Run run) {
    run_timer timer(j);
    while (timer.next()) {
        run();
    }
    const measured found = timer.result();
    std::printf("%.6f\n%.6f\n", found.ns, found.counters.at("fastest"));
}

// The main() of the program. A workload has a `name`. print_version() prints a line. measure(workload, j)
// makes the workers and calls print_times().
template <class Workload, std::size_t N, class Version, class Measure>
int run_program(int argc, char** argv, const char* program, const Workload (&workloads)[N],
                Version print_version, Measure measure) {
    if (argc == 2 && std::string_view(argv[1]) == "--version") {
        print_version();
        return 0;
    }
    std::uint64_t ms = 0;
    job j{};
    if (argc == 5 && parse(argv[2], j.count) && parse(argv[3], j.workers) && parse(argv[4], ms)) {
        j.duration = std::chrono::milliseconds(ms);
        for (const Workload& each : workloads) {
            if (each.name == argv[1]) {
                measure(each, j);
                return 0;
            }
        }
    }
    std::fprintf(stderr, "usage: %s WORKLOAD COUNT WORKERS MILLISECONDS\n", program);
    return 2;
}

} // namespace bench

#endif
