// Benchmarks of the locks and semaphores: one table for each workload, with ratios to std.

#include "support/harness.hpp"
#include "support/program.hpp"
#include "sync/targets.hpp"
#include "sync/workloads.hpp"

namespace bench {
namespace {

void add_all(harness& h) {
    add_uncontended(h);
    add_coroutine(h);
    add_notify(h);
    add_handoff(h);
    add_readers(h);
    add_meetings(h);
    add_order(h);
    add_contended(h);
    add_sizes(h);
}

} // namespace
} // namespace bench

int main(int argc, char** argv) {
    const bench::program sync{"Locks and semaphores",
                              "targets (median of rounds; overtakes: the worst round)",
                              bench::add_all, bench::judge_all};
    return bench::run_program(sync, argc, argv);
}
