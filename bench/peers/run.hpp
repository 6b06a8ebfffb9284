#ifndef BIDE_BENCH_PEERS_RUN_HPP
#define BIDE_BENCH_PEERS_RUN_HPP

// A peer that is a program of its own.

#include "support/bench.hpp"

#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace bench {

// The numbers that it prints, one a line.
inline std::vector<double> numbers_of(const std::vector<std::string>& command,
                                      const cpu_list& cpus) {
    std::istringstream lines(output_of(command, cpus));
    return {std::istream_iterator<double>(lines), {}};
}

// Puts its version into the JSON, beside the host.
inline void note_version(const std::string& peer, const std::string& program) {
    const std::string version = output_of({program, "--version"}, allowed_cpus());
    benchmark::AddCustomContext(peer, version.substr(0, version.find('\n')));
}

} // namespace bench

#endif
