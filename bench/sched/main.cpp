// Benchmarks of the scheduler: one table for each workload, with ratios to Tokio.

#include "sched/targets.hpp"
#include "sched/tokio.hpp"
#include "sched/workers.hpp"
#include "sched/workloads.hpp"
#include "support/harness.hpp"
#include "support/program.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <vector>

// Which peers CMake did not find.
#ifndef BIDE_BENCH_SCHED_WITHOUT
#define BIDE_BENCH_SCHED_WITHOUT ""
#endif

namespace bench {
namespace {

void add_all(harness& h) {
    add_spawn_many(h);
    add_chained_spawn(h);
    add_yield_many(h);
    add_ping_pong(h);
    add_request_reply(h);
    add_spawn_await(h);
    add_single_yield(h);
    add_round_trip(h);
    add_mpsc(h);
    add_locks(h);
    add_scaling(h);
    add_parked(h);
    add_timers(h);
    add_wake(h);
    add_idle(h);
}

void print_peers() {
    constexpr const char* without = BIDE_BENCH_SCHED_WITHOUT;
    std::printf("peers     %s%s%s\n", describe_tokio().c_str(),
                *without != '\0' ? "; left out, not found: " : "", without);
    std::printf("pools     %u workers each (--workers N)\n", workers());
}

constexpr const char* help_text = "  --workers N        of every pool, 1 to 256 (2)\n";

// Takes `--workers N` out, and puts N where workers() finds it.
std::vector<char*> without_workers(int argc, char** argv) {
    std::vector<char*> rest(argv, argv + argc);
    const auto option = std::find(rest.begin(), rest.end(), std::string_view("--workers"));
    if (option != rest.end()) {
        const auto value = option + 1;
        ::setenv(workers_variable, value == rest.end() ? "nothing" : *value, 1);
        rest.erase(option, value == rest.end() ? value : value + 1);
    }
    return rest;
}

} // namespace
} // namespace bench

int main(int argc, char** argv) {
    const bench::program scheduler{
        "Scheduler",
        "targets (of ratios: the median of the rounds', and of these the geometric mean)",
        bench::add_all,
        bench::judge_all,
        bench::print_peers,
        bench::print_summary};
    std::vector<char*> rest = bench::without_workers(argc, argv);
    const int result = bench::run_program(scheduler, static_cast<int>(rest.size()), rest.data());
    if (std::find(rest.begin(), rest.end(), std::string_view("--help")) != rest.end()) {
        std::printf("and of this program:\n%s", bench::help_text);
    }
    return result;
}
