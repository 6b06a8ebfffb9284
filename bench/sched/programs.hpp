#ifndef BIDE_BENCH_SCHED_PROGRAMS_HPP
#define BIDE_BENCH_SCHED_PROGRAMS_HPP

// Tokio, Go, TooManyCooks and libfork run the same workloads in programs of their own (../peers), once
// for each round.

#include "sched/job.hpp"
#include "support/child.hpp"
#include "support/cpus.hpp"
#include "support/stats.hpp"
#include "support/table.hpp"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace bench {

struct peer_program {
    const char* row;
    const char* path; // nullptr: it was not built
};

#if defined(BIDE_BENCH_TOKIO)
inline constexpr peer_program tokio_peer{"tokio", BIDE_BENCH_TOKIO};
#else
inline constexpr peer_program tokio_peer{"tokio", nullptr};
#endif
#if defined(BIDE_BENCH_GO)
inline constexpr peer_program go_peer{"go", BIDE_BENCH_GO};
#else
inline constexpr peer_program go_peer{"go", nullptr};
#endif
#if defined(BIDE_BENCH_TMC)
inline constexpr peer_program tmc_peer{"TooManyCooks", BIDE_BENCH_TMC};
#else
inline constexpr peer_program tmc_peer{"TooManyCooks", nullptr};
#endif
#if defined(BIDE_BENCH_LIBFORK)
inline constexpr peer_program libfork_peer{"libfork", BIDE_BENCH_LIBFORK};
#else
inline constexpr peer_program libfork_peer{"libfork", nullptr};
#endif

// Adds a row for a workload of the program, unless the program was not built. The columns that it
// does not print are not measured.
inline void add_program(table& t, const peer_program& program, const char* workload, const job& j,
                        const cpu_list& allowed, double divisor = 1) {
    if (program.path == nullptr) {
        return;
    }
    const std::size_t columns = t.columns.size();
    t.add(program.row, [=] {
        std::vector<std::string> arguments{program.row, workload, std::to_string(j.count),
                                           std::to_string(j.workers),
                                           std::to_string(j.duration.count())};
        child_process child(program.path, std::move(arguments), allowed);
        sample numbers = parse_sample(child.wait_for_output());
        for (double& number : numbers) {
            number /= divisor;
        }
        numbers.resize(columns, not_measured);
        return numbers;
    });
}

// Which version it is, and what it was compiled with.
inline std::string describe(const peer_program& program) {
    if (program.path == nullptr) {
        return std::string(program.row) + " left out";
    }
    child_process child(program.path, {program.row, "--version"}, allowed_cpus());
    const std::string text = child.wait_for_output();
    return text.substr(0, text.find('\n'));
}

} // namespace bench

#endif
