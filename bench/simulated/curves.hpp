#ifndef BIDE_BENCH_SIMULATED_CURVES_HPP
#define BIDE_BENCH_SIMULATED_CURVES_HPP

#include "simulated/workloads.hpp"
#include "support/bench.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

namespace simulated {

// A machine of P processors, on a number of sockets.
struct shape {
    const char* name;
    unsigned processors;
    machine_numbers numbers;
};

// A short run has each row, but not each point.
inline bool is_left_out(unsigned processors) {
    return bench::is_short() && processors > 2 && processors != 64;
}

// A table for the workload on one machine: WORKLOAD/MACHINE/P=n. A round is a run with another seed.
class curves {
public:
    curves(const std::string& workload, const shape& of, std::string note)
        : of_(of), table_(workload + '/' + of.name + "/P=" + std::to_string(of.processors),
                          std::move(note)) {}

    // measure(team, threads, operations of each thread) returns nanoseconds an operation.
    template <class Measure> void add(const std::string& row, Measure measure) {
        const auto round = [of = of_, row, measure, seed = std::uint64_t{0}]() mutable {
            team all(of.numbers, ++seed);
            const double ns =
                measure(all, of.processors,
                        static_cast<unsigned>(bench::scaled(10'000) / of.processors + 20));
            const machine& m = all.of();
            if (std::getenv("BIDE_BENCH_LINES") != nullptr) {
                for (const auto& l : m.hottest(5)) {
                    std::fprintf(stderr,
                                 "%s: %s, %u processors, %llu accesses, %llu moves, %.0f us\n",
                                 row.c_str(), l.name.c_str(), l.processors,
                                 static_cast<unsigned long long>(l.accesses),
                                 static_cast<unsigned long long>(l.moves), l.waited_ns / 1e3);
                }
            }
            return bench::measured{ns, {{"used", m.used_ns() / m.elapsed_ns() / of.processors}}};
        };
        table_.add(row, round, bench::placement::simulated);
    }

private:
    shape of_;
    bench::table table_;
};

} // namespace simulated

#endif
