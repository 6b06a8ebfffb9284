#ifndef BIDE_BENCH_CHANNEL_JOB_HPP
#define BIDE_BENCH_CHANNEL_JOB_HPP

// What every workload of channels is: a number of messages through channels of one capacity, by
// threads on given processors, counted and timed.

#include "peers/run.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace bench {

// As crossbeam-channel's own benchmark has it: so many threads where there are several on a side,
// and so many channels to select from.
inline constexpr std::size_t channel_threads = 4;
inline constexpr std::size_t messages_multiple = 16; // of the threads, and of a batch

struct job {
    std::size_t capacity;
    std::uint64_t messages; // a multiple of messages_multiple
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
template <class Run> measured after_warm_up(const job& j, Run run) {
    job warm_up = j;
    warm_up.messages = std::max<std::uint64_t>(j.messages / 10, messages_multiple);
    warm_up.messages -= warm_up.messages % messages_multiple;
    run(warm_up);
    return {run(j)};
}

// Where every message is waited for, there are fewer.
inline std::uint64_t messages_at(std::size_t capacity) {
    return scaled(capacity <= 1     ? 50'000
                  : capacity <= 128 ? 500'000
                                    : 1'000'000,
                  messages_multiple);
}

inline constexpr std::size_t room_for_all = ~std::size_t{0};

// The name of a table, and its job.
inline std::string table_name(const std::string& shape, std::size_t capacity) {
    return shape + "/capacity=" + (capacity == room_for_all ? "N" : std::to_string(capacity));
}
inline job job_of(std::size_t capacity) {
    const std::uint64_t messages = messages_at(capacity);
    return {std::min<std::size_t>(capacity, messages), messages, allowed_cpus()};
}

// Adds a row that measures run(job).
template <class Run>
void add_run(table& t, const char* row, const job& j, Run run,
             placement where = placement::own_process) {
    t.add(row, [=] { return after_warm_up(j, run); }, where);
}

// crossbeam-channel runs the same workloads in a program of its own, ../peers/rust, which may use these processors.
inline void add_crossbeam([[maybe_unused]] table& t, [[maybe_unused]] const char* workload,
                          [[maybe_unused]] const job& j, [[maybe_unused]] const cpu_list& allowed) {
#if defined(BIDE_BENCH_CROSSBEAM)
    std::string cpus;
    for (const int cpu : j.cpus) {
        cpus += (cpus.empty() ? "" : ",") + std::to_string(cpu);
    }
    const std::vector<std::string> command{BIDE_BENCH_CROSSBEAM, workload,
                                           std::to_string(j.capacity), std::to_string(j.messages),
                                           cpus};
    t.add("crossbeam-channel", [=] { return measured{numbers_of(command, allowed).at(0)}; });
#endif
}

} // namespace bench

#endif
