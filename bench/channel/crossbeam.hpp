#ifndef BIDE_BENCH_CHANNEL_CROSSBEAM_HPP
#define BIDE_BENCH_CHANNEL_CROSSBEAM_HPP

// crossbeam-channel runs the same workloads in a program of its own, ../peers/rust, once for each
// round.

#include "channel/job.hpp"
#include "support/child.hpp"
#include "support/cpus.hpp"
#include "support/table.hpp"

#include <string>
#include <vector>

namespace bench {

inline constexpr const char* crossbeam_row = "crossbeam-channel";

// Adds a row for its `workload`, by a process that may use these processors.
inline void add_crossbeam([[maybe_unused]] table& t, [[maybe_unused]] const char* workload,
                          [[maybe_unused]] const job& j, [[maybe_unused]] const cpu_list& allowed) {
#if defined(BIDE_BENCH_CROSSBEAM)
    t.add(crossbeam_row, [=] {
        std::vector<std::string> arguments{crossbeam_row, workload, std::to_string(j.capacity),
                                           std::to_string(j.messages), to_string(j.cpus)};
        child_process child(BIDE_BENCH_CROSSBEAM, std::move(arguments), allowed);
        return parse_sample(child.wait_for_output());
    });
#endif
}

// Which version it is, and what it was compiled with.
inline std::string describe_crossbeam() {
#if defined(BIDE_BENCH_CROSSBEAM)
    child_process child(BIDE_BENCH_CROSSBEAM, {crossbeam_row, "--version"}, allowed_cpus());
    std::string text = child.wait_for_output();
    return text.substr(0, text.find('\n'));
#else
    return "crossbeam-channel left out";
#endif
}

} // namespace bench

#endif
