// Benchmarks of fork-join: one table for each workload, with ratios to the same work without forks.

#include "fork_join/rayon.hpp"
#include "fork_join/targets.hpp"
#include "fork_join/workloads.hpp"
#include "support/harness.hpp"
#include "support/program.hpp"
#include "support/workers.hpp"

#include <cstdio>

// Which peers CMake did not find.
#ifndef BIDE_BENCH_FORK_JOIN_WITHOUT
#define BIDE_BENCH_FORK_JOIN_WITHOUT ""
#endif

namespace bench {
namespace {

void add_all(harness& h) {
    add_spread(h);
    add_fib(h);
    add_tree(h);
    add_spine(h);
    add_scopes(h);
    add_skynet(h);
    add_nqueens(h);
    add_uts(h);
    add_matmul(h);
    add_loops(h);
    add_sum(h);
    add_algorithms(h);
    add_packs(h);
    add_sorts(h);
    add_pipelines(h);
    add_selections(h);
}

void print_peers() {
    constexpr const char* without = BIDE_BENCH_FORK_JOIN_WITHOUT;
    std::printf("peers     %s%s%s\n", describe_rayon().c_str(),
                *without != '\0' ? "; left out, not found: " : "", without);
    std::printf("pools     %u workers each (--workers N); serial rows: one thread, and a plain\n"
                "          call, not inlined, where the others fork\n",
                workers());
}

} // namespace
} // namespace bench

int main(int argc, char** argv) {
    const bench::program fork_join{
        "Fork-join",        "targets (of ratios: the median of the rounds')",
        bench::add_all,     bench::judge_all,
        bench::print_peers, bench::print_summary};
    return bench::run_program_with_workers(fork_join, argc, argv);
}
