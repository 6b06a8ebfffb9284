#ifndef BIDE_BENCH_FORK_JOIN_RAYON_HPP
#define BIDE_BENCH_FORK_JOIN_RAYON_HPP

// Rayon runs the same workloads in a program of its own, ../peers/rust, once for each round.

#include "fork_join/job.hpp"
#include "support/child.hpp"
#include "support/cpus.hpp"
#include "support/table.hpp"

#include <string>
#include <vector>

namespace bench {

inline constexpr const char* rayon_row = "rayon";

#if defined(BIDE_BENCH_RAYON)

inline constexpr bool has_rayon = true;

// As run_timer::result().
inline sample measure_rayon(const std::string& workload, const job& j, const cpu_list& allowed) {
    std::vector<std::string> arguments{rayon_row, workload, std::to_string(j.size),
                                       std::to_string(j.workers),
                                       std::to_string(j.duration.count())};
    child_process child(BIDE_BENCH_RAYON, std::move(arguments), allowed);
    return parse_sample(child.wait_for_output());
}

// Which version it is, and what it was compiled with.
inline std::string describe_rayon() {
    child_process child(BIDE_BENCH_RAYON, {rayon_row, "--version"}, allowed_cpus());
    const std::string text = child.wait_for_output();
    return text.substr(0, text.find('\n'));
}

#else

inline constexpr bool has_rayon = false;

inline sample measure_rayon(const std::string&, const job&, const cpu_list&) { return {}; }
inline std::string describe_rayon() { return "rayon left out"; }

#endif

} // namespace bench

#endif
