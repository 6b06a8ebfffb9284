#ifndef BIDE_BENCH_SCHED_PROGRAMS_HPP
#define BIDE_BENCH_SCHED_PROGRAMS_HPP

// Tokio, Go, TooManyCooks and libfork run the same workloads in programs of their own (../peers), once
// for each round.

#include "peers/run.hpp"
#include "sched/job.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#ifndef BIDE_BENCH_TOKIO
#define BIDE_BENCH_TOKIO nullptr
#endif
#ifndef BIDE_BENCH_GO
#define BIDE_BENCH_GO nullptr
#endif
#ifndef BIDE_BENCH_TMC
#define BIDE_BENCH_TMC nullptr
#endif
#ifndef BIDE_BENCH_LIBFORK
#define BIDE_BENCH_LIBFORK nullptr
#endif

namespace bench {

struct peer_program {
    const char* row;
    const char* path; // nullptr: it was not built
};

inline constexpr peer_program tokio_peer{"tokio", BIDE_BENCH_TOKIO};
inline constexpr peer_program go_peer{"go", BIDE_BENCH_GO};
inline constexpr peer_program tmc_peer{"TooManyCooks", BIDE_BENCH_TMC};
inline constexpr peer_program libfork_peer{"libfork", BIDE_BENCH_LIBFORK};

// Of the numbers that it prints, the first one is a time, in this unit of nanoseconds; each later number has a name.
inline measured run_peer(const char* path, const std::string& workload, const job& j,
                         const std::vector<const char*>& names = {"fastest"}, double unit = 1) {
    using std::chrono::milliseconds;
    const auto ms = std::chrono::duration_cast<milliseconds>(j.duration).count();
    const std::vector<double> numbers =
        numbers_of({path, workload, std::to_string(j.count), std::to_string(j.workers),
                    std::to_string(std::max<long long>(ms, 1))},
                   allowed_cpus());
    measured found{numbers.at(0) * unit};
    for (std::size_t i = 0; i < names.size() && i + 1 < numbers.size(); ++i) {
        found.counters[names[i]] = numbers[i + 1];
    }
    return found;
}

// Adds a row for a workload of the program, unless the program was not built.
inline void add_peer(table& t, const peer_program& peer, const char* workload, const job& j,
                     const std::vector<const char*>& names, double unit) {
    if (peer.path != nullptr) {
        t.add(peer.row, [=] { return run_peer(peer.path, workload, j, names, unit); });
    }
}

} // namespace bench

#endif
