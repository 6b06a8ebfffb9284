// Benchmarks of the channel: one table for each workload, with ratios to crossbeam-channel.

#include "channel/crossbeam.hpp"
#include "channel/targets.hpp"
#include "channel/workloads.hpp"
#include "support/harness.hpp"
#include "support/program.hpp"

#include <cstdio>

// Which peers CMake did not find.
#ifndef BIDE_BENCH_CHANNEL_WITHOUT
#define BIDE_BENCH_CHANNEL_WITHOUT ""
#endif

namespace bench {
namespace {

void add_all(harness& h) {
    add_streams(h);
    add_selects(h);
    add_ping_pong(h);
    add_batches(h);
    add_coroutines(h);
    add_priorities(h);
}

void print_peers() {
    constexpr const char* without = BIDE_BENCH_CHANNEL_WITHOUT;
    std::printf("peers     %s%s%s\n", describe_crossbeam().c_str(),
                *without != '\0' ? "; left out, not found: " : "", without);
}

} // namespace
} // namespace bench

int main(int argc, char** argv) {
    const bench::program channels{
        "Channels",
        "targets (geometric mean over the tables of the median of their rounds' ratios)",
        bench::add_all,
        bench::judge_all,
        bench::print_peers,
        bench::print_summary};
    return bench::run_program(channels, argc, argv);
}
