#ifndef BIDE_BENCH_SCHED_JOB_HPP
#define BIDE_BENCH_SCHED_JOB_HPP

// What every workload of schedulers is: a number of tasks (or rounds, or messages) for so many
// workers, run again and again.

#include "support/stats.hpp"
#include "support/table.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

namespace bench {

struct job {
    std::uint64_t count; // of tasks, rounds or messages in a run
    unsigned workers;
    std::chrono::milliseconds duration;
};

using steady = std::chrono::steady_clock;

inline double ns_since(steady::time_point began) {
    return std::chrono::duration<double, std::nano>(steady::now() - began).count();
}

// A pool that loses a task, or runs one twice, is not worth measuring.
inline void check(bool as_it_must_be) {
    if (!as_it_must_be) {
        std::fprintf(stderr, "bench: tasks were lost, or ran twice\n");
        std::abort();
    }
}

// Times runs for the job's duration, after a warm-up for a tenth of it:
//     run_timer timer(j);
//     while (timer.next()) {
//         ... // one run
//     }
class run_timer {
public:
    explicit run_timer(const job& j) : duration_(j.duration) { runs_.reserve(100'000); }

    // True: a run begins.
    bool next() {
        const auto now = steady::now();
        if (measuring_) {
            runs_.push_back(std::chrono::duration<double, std::nano>(now - last_).count());
            if (runs_.size() >= least_runs && now - began_ >= duration_) {
                return false;
            }
        } else if (ran_once_ && now - began_ >= duration_ / 10) {
            measuring_ = true;
            began_ = now;
        }
        ran_once_ = true;
        last_ = steady::now();
        return true;
    }

    // Nanoseconds of the median run and of the fastest.
    sample result() const { return {median(runs_), smallest(runs_)}; }

private:
    static constexpr std::size_t least_runs = 5;

    std::chrono::nanoseconds duration_;
    steady::time_point began_ = steady::now();
    steady::time_point last_;
    std::vector<double> runs_;
    bool ran_once_ = false;
    bool measuring_ = false;
};

// What a thread outside waits for, where a pool has nothing of its own. Outlives each thread that crosses.
class finish_line {
public:
    void cross() {
        {
            const std::lock_guard lock(mutex_);
            ++crossed_;
        }
        changed_.notify_one();
    }

    // So many times; then it is as new.
    void wait(std::uint64_t times = 1) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return crossed_ >= times; });
        crossed_ -= times;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::uint64_t crossed_ = 0;
};

} // namespace bench

#endif
