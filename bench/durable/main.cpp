// Benchmarks of the durable locks: one table for each workload, with a row for each store.

#include "durable/crew.hpp"
#include "durable/directory.hpp"
#include "durable/job.hpp"
#include "durable/stores.hpp"
#include "durable/targets.hpp"
#include "durable/workloads.hpp"
#include "support/harness.hpp"
#include "support/program.hpp"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <vector>

// What CMake did not find.
#ifndef BIDE_BENCH_DURABLE_WITHOUT
#define BIDE_BENCH_DURABLE_WITHOUT ""
#endif

namespace bench {
namespace {

void add_all(harness& h) {
    if (h.opts().quick && !h.opts().filter_given) {
        use_few_stores();
    }
    add_slots(h);
    add_uncontended(h);
    add_handoff(h);
    add_contended(h);
    add_storms(h);
    add_herd(h);
    add_recovery(h);
    add_reducer(h);
}

void print_stores() {
    constexpr const char* without = BIDE_BENCH_DURABLE_WITHOUT;
    std::printf("stores    %s%s%s\n", describe_stores().c_str(),
                *without != '\0' ? "; left out, not found: " : "", without);
    std::printf("files     below %s, on %s; those of servers below /tmp, on %s\n",
                work_directory::below().c_str(), filesystem_of(work_directory::below()).c_str(),
                filesystem_of("/tmp").c_str());
}

} // namespace
} // namespace bench

int main(int argc, char** argv) {
    const bench::program durable{"Durable locks",
                                 "targets (median of rounds; overtaken, writes of one release: the "
                                 "worst round)",
                                 bench::add_all, bench::judge_all, bench::print_stores};
    bench::interruption::begin_to_notice();
    std::vector<char*> rest = bench::without_directory(argc, argv);
    int result = bench::run_program(durable, static_cast<int>(rest.size()), rest.data());
    if (bench::failures() != 0) {
        std::fprintf(stderr, "bench: measurements that failed: %zu\n", bench::failures());
        result = std::max(result, 1);
    }
    bench::stop_servers();
    bench::work_directory::remove_all();
    if (std::find(rest.begin(), rest.end(), std::string_view("--help")) != rest.end()) {
        std::printf("and of this program:\n"
                    "  --directory DIR    where the files of the slots are, on a disk (.)\n"
                    "A full run of this one takes about six minutes.\n");
    }
    return result;
}
