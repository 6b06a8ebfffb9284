#ifndef BIDE_BENCH_CHANNEL_JOB_HPP
#define BIDE_BENCH_CHANNEL_JOB_HPP

// What every workload of channels is: a number of messages through channels of one capacity, by
// threads on given processors, counted and timed.

#include "support/cpus.hpp"
#include "support/table.hpp"
#include "support/team.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace bench {

// As crossbeam-channel's own benchmark has it: so many threads where there are several on a side,
// and so many channels to select from.
inline constexpr std::size_t channel_threads = 4;

struct job {
    std::size_t capacity;
    std::uint64_t messages; // channel_threads divides it
    cpu_list cpus;          // thread i runs on cpus[i mod n]
};

// Its messages are 0, 1, 2 and so on: a queue that loses or repeats one is not measured.
inline void check_sum(const job& j, std::uint64_t sum) {
    if (sum != j.messages * (j.messages - 1) / 2) {
        std::fprintf(stderr, "bench: messages were lost, or received twice\n");
        std::abort();
    }
}

// Runs part(i) for i in [0, threads), which returns the sum of what it received; nanoseconds for a
// message, from when the first thread begins until the last one ends.
template <class Part> double run_job(const job& j, std::size_t threads, Part part) {
    using clock = std::chrono::steady_clock;
    struct alignas(128) shift {
        clock::time_point began;
        clock::time_point ended;
        std::uint64_t sum = 0;
    };
    std::vector<shift> shifts(threads);
    const auto work = [&](std::size_t i) {
        const auto began = clock::now();
        const std::uint64_t sum = part(i);
        shifts[i] = {began, clock::now(), sum};
    };
    run_team(threads, j.cpus, work, [] {});
    std::uint64_t sum = 0;
    shift all = shifts.front();
    for (const shift& s : shifts) {
        sum += s.sum;
        all.began = std::min(all.began, s.began);
        all.ended = std::max(all.ended, s.ended);
    }
    check_sum(j, sum);
    const std::chrono::duration<double, std::nano> elapsed = all.ended - all.began;
    return elapsed.count() / static_cast<double>(j.messages);
}

// run(job), after a warm-up with a tenth of the messages.
template <class Run> sample after_warm_up(const job& j, Run run) {
    job warm_up = j;
    warm_up.messages = std::max<std::uint64_t>(j.messages / 10, channel_threads);
    warm_up.messages -= warm_up.messages % channel_threads;
    run(warm_up);
    return {run(j)};
}

} // namespace bench

#endif
