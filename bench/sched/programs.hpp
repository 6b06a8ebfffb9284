#ifndef BIDE_BENCH_SCHED_PROGRAMS_HPP
#define BIDE_BENCH_SCHED_PROGRAMS_HPP

// Tokio, Go and TooManyCooks run the same workloads in programs of their own, ../peers/rust,
// ../peers/go and ../peers/tmc, once for each round.

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

inline constexpr const char* tokio_row = "tokio";
inline constexpr const char* go_row = "go";
inline constexpr const char* tmc_row = "TooManyCooks";

#if defined(BIDE_BENCH_TOKIO)
inline constexpr const char* tokio_program = BIDE_BENCH_TOKIO;
#else
inline constexpr const char* tokio_program = nullptr;
#endif
#if defined(BIDE_BENCH_GO)
inline constexpr const char* go_program = BIDE_BENCH_GO;
#else
inline constexpr const char* go_program = nullptr;
#endif

#if defined(BIDE_BENCH_TMC)
inline constexpr const char* tmc_program = BIDE_BENCH_TMC;
#else
inline constexpr const char* tmc_program = nullptr;
#endif

// Adds a row for a workload of the program, unless the program was not built. The columns that it
// does not print are not measured.
inline void add_program(table& t, const char* row, const char* program, const char* workload,
                        const job& j, const cpu_list& allowed, double divisor = 1) {
    if (program == nullptr) {
        return;
    }
    const std::size_t columns = t.columns.size();
    t.add(row, [=] {
        std::vector<std::string> arguments{row, workload, std::to_string(j.count),
                                           std::to_string(j.workers),
                                           std::to_string(j.duration.count())};
        child_process child(program, std::move(arguments), allowed);
        sample numbers = parse_sample(child.wait_for_output());
        for (double& number : numbers) {
            number /= divisor;
        }
        numbers.resize(columns, not_measured);
        return numbers;
    });
}

inline void add_tokio(table& t, const char* workload, const job& j, const cpu_list& allowed,
                      double divisor = 1) {
    add_program(t, tokio_row, tokio_program, workload, j, allowed, divisor);
}
inline void add_go(table& t, const char* workload, const job& j, const cpu_list& allowed,
                   double divisor = 1) {
    add_program(t, go_row, go_program, workload, j, allowed, divisor);
}
inline void add_tmc(table& t, const char* workload, const job& j, const cpu_list& allowed,
                    double divisor = 1) {
    add_program(t, tmc_row, tmc_program, workload, j, allowed, divisor);
}

// Which version it is, and what it was compiled with.
inline std::string describe(const char* row, const char* program) {
    if (program == nullptr) {
        return std::string(row) + " left out";
    }
    child_process child(program, {row, "--version"}, allowed_cpus());
    const std::string text = child.wait_for_output();
    return text.substr(0, text.find('\n'));
}

} // namespace bench

#endif
