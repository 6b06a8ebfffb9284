// Benchmarks of the scheduler: one table for each workload, with ratios to its first row.

#include "sched/programs.hpp"
#include "sched/targets.hpp"
#include "sched/workloads.hpp"
#include "support/harness.hpp"
#include "support/program.hpp"
#include "support/workers.hpp"

#include <cstdio>

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
    add_forks(h);
    add_single_yield(h);
    add_generators(h);
    add_round_trip(h);
    add_mpsc(h);
    add_locks(h);
    add_scaling(h);
    add_parked(h);
    add_timers(h);
    add_wake(h);
    add_idle(h);
    add_contended(h);
    add_bounded(h);
    add_strands(h);
    add_priorities(h);
    add_bursts(h);
}

void print_peers() {
    constexpr const char* without = BIDE_BENCH_SCHED_WITHOUT;
    std::printf("peers     %s; %s; %s; %s%s%s\n", describe(tokio_peer).c_str(),
                describe(go_peer).c_str(), describe(tmc_peer).c_str(),
                describe(libfork_peer).c_str(), *without != '\0' ? "; left out, not found: " : "",
                without);
    std::printf("pools     %u workers each (--workers N)\n", workers());
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
    return bench::run_program_with_workers(scheduler, argc, argv);
}
