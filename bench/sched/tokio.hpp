#ifndef BIDE_BENCH_SCHED_TOKIO_HPP
#define BIDE_BENCH_SCHED_TOKIO_HPP

// Tokio runs the same workloads in a program of its own, ../peers/rust, once for each round.

#include "sched/job.hpp"
#include "support/child.hpp"
#include "support/cpus.hpp"
#include "support/stats.hpp"
#include "support/table.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace bench {

inline constexpr const char* tokio_row = "tokio";

// Adds a row for its `workload`. The columns that its program does not print are not measured.
inline void add_tokio([[maybe_unused]] table& t, [[maybe_unused]] const char* workload,
                      [[maybe_unused]] const job& j, [[maybe_unused]] const cpu_list& allowed,
                      [[maybe_unused]] double divisor = 1) {
#if defined(BIDE_BENCH_TOKIO)
    const std::size_t columns = t.columns.size();
    t.add(tokio_row, [=] {
        std::vector<std::string> arguments{tokio_row, workload, std::to_string(j.count),
                                           std::to_string(j.workers),
                                           std::to_string(j.duration.count())};
        child_process child(BIDE_BENCH_TOKIO, std::move(arguments), allowed);
        sample numbers = parse_sample(child.wait_for_output());
        for (double& number : numbers) {
            number /= divisor;
        }
        numbers.resize(columns, not_measured);
        return numbers;
    });
#endif
}

// Which version it is, and what it was compiled with.
inline std::string describe_tokio() {
#if defined(BIDE_BENCH_TOKIO)
    child_process child(BIDE_BENCH_TOKIO, {tokio_row, "--version"}, allowed_cpus());
    const std::string text = child.wait_for_output();
    return text.substr(0, text.find('\n'));
#else
    return "tokio left out";
#endif
}

} // namespace bench

#endif
