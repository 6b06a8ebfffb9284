#ifndef BIDE_BENCH_FORK_JOIN_JOB_HPP
#define BIDE_BENCH_FORK_JOIN_JOB_HPP

// What every workload of fork-join is: something of a size for so many workers, computed again and
// again, the result checked each time.

#include "support/stats.hpp"
#include "support/table.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace bench {

struct job {
    std::uint64_t size; // as the workload understands it
    unsigned workers;
    std::chrono::milliseconds duration;
};

// A pool that computes something else is not worth measuring.
inline void check(bool as_it_must_be) {
    if (!as_it_must_be) {
        std::fprintf(stderr, "bench: a wrong result\n");
        std::abort();
    }
}

// The most memory that this process has had in use. What the process that started it had does not
// count, as it does for getrusage.
inline double peak_resident_bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
        if (word == "VmHWM:") {
            double kilobytes = 0;
            status >> kilobytes;
            return kilobytes * 1024;
        }
    }
    return not_measured;
}

// Times runs for the job's duration, after a warm-up for a tenth of it.
class run_timer {
public:
    explicit run_timer(const job& j) : duration_(j.duration) { runs_.reserve(most_runs); }

    // run() is timed; prepare() before it, and is_right(what run() returned) after it, are not.
    template <class Prepare, class Run, class IsRight>
    void time(Prepare prepare, Run run, IsRight is_right) {
        const auto once = [&] {
            prepare();
            const auto began = clock::now();
            const auto result = run();
            const std::chrono::duration<double, std::nano> elapsed = clock::now() - began;
            check(is_right(result));
            return elapsed.count();
        };
        const auto warm_up_ends = clock::now() + duration_ / 10;
        do {
            once();
        } while (clock::now() < warm_up_ends);
        const auto ends = clock::now() + duration_;
        do {
            runs_.push_back(once());
        } while (runs_.size() < most_runs && clock::now() < ends);
    }

    template <class Run, class Result> void time(Run run, const Result& expected) {
        time([] {}, run, [&](const Result& result) { return result == expected; });
    }

    // Nanoseconds of the median run and of the fastest, and bytes.
    sample result() const { return {median(runs_), smallest(runs_), peak_resident_bytes()}; }

private:
    using clock = std::chrono::steady_clock;

    static constexpr std::size_t most_runs = 10'000;

    std::chrono::nanoseconds duration_;
    std::vector<double> runs_;
};

} // namespace bench

#endif
