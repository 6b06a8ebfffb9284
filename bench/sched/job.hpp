#ifndef BIDE_BENCH_SCHED_JOB_HPP
#define BIDE_BENCH_SCHED_JOB_HPP

// What every workload of pools of workers is: a number of tasks (or rounds, or messages) for so many
// workers, run again and again. BIDE_BENCH_WORKERS says how many workers a pool has.

#include "support/bench.hpp"
#include "support/stats.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

namespace bench {

inline unsigned workers() {
    const char* const set = std::getenv("BIDE_BENCH_WORKERS");
    const unsigned long count = set == nullptr ? 2 : std::strtoul(set, nullptr, 10);
    return count >= 1 && count <= 256 ? static_cast<unsigned>(count) : 2;
}

struct job {
    std::uint64_t count; // of what a run has: tasks, rounds, messages, numbers
    unsigned workers = bench::workers();
    std::chrono::nanoseconds duration = a_round(3);
};

using steady = std::chrono::steady_clock;

inline double ns_since(steady::time_point began) {
    return std::chrono::duration<double, std::nano>(steady::now() - began).count();
}

// A pool that loses a task, or computes something else, is not worth measuring.
inline void check(bool as_it_must_be) {
    if (!as_it_must_be) {
        std::fprintf(stderr, "bench: a wrong result, or a task that was lost or ran twice\n");
        std::abort();
    }
}

// Times runs for the job's duration, after a warm-up for a tenth of it. Either
//     run_timer timer(j);
//     while (timer.next()) {
//         ... // one run
//     }
// or time().
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

    // run() is timed; prepare() before it, and is_right(what run() returned) after it, are not.
    template <class Prepare, class Run, class IsRight>
    void time(Prepare prepare, Run run, IsRight is_right) {
        const auto once = [&] {
            prepare();
            const auto began = steady::now();
            const auto result = run();
            const double elapsed = ns_since(began);
            check(is_right(result));
            return elapsed;
        };
        const auto warm_up_ends = steady::now() + duration_ / 10;
        do {
            once();
        } while (steady::now() < warm_up_ends);
        const auto ends = steady::now() + duration_;
        do {
            runs_.push_back(once());
        } while (runs_.size() < runs_.capacity() && steady::now() < ends);
    }
    template <class Run, class Result> void time(Run run, const Result& expected) {
        time([] {}, run, [&](const Result& result) { return result == expected; });
    }

    // The median run and the fastest.
    measured result() const {
        return {percentile(runs_, 0.5), {{"fastest", percentile(runs_, 0)}}};
    }

private:
    static constexpr std::size_t least_runs = 5;

    std::chrono::nanoseconds duration_;
    steady::time_point began_ = steady::now();
    steady::time_point last_;
    std::vector<double> runs_;
    bool ran_once_ = false;
    bool measuring_ = false;
};

// The time of a run, divided among what is counted in it.
inline measured each(measured run, double count) {
    run.ns /= count;
    run.counters.at("fastest") /= count;
    return run;
}

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
