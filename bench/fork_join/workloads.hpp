#ifndef BIDE_BENCH_FORK_JOIN_WORKLOADS_HPP
#define BIDE_BENCH_FORK_JOIN_WORKLOADS_HPP

// The workloads; each adds its tables.

#include "fork_join/job.hpp"
#include "fork_join/pools.hpp"
#include "fork_join/rayon.hpp"
#include "support/cpus.hpp"
#include "support/harness.hpp"
#include "support/workers.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace bench {

void add_fib(harness&);
void add_skynet(harness&);
void add_nqueens(harness&);
void add_matmul(harness&);
void add_tree(harness&); // and from outside
void add_spine(harness&);
void add_scopes(harness&);
void add_uts(harness&);
void add_loops(harness&);
void add_sum(harness&);
void add_packs(harness&);
void add_sorts(harness&);
void add_pipelines(harness&);
void add_selections(harness&);
void add_spread(harness&);
void add_algorithms(harness&); // those of std

// What a table measures.
struct workload {
    std::string name;
    std::string note;
    std::uint64_t size;  // as the workload understands it
    double count;        // of what is forked (or done) in a run
    const char* counted; // one of these
    std::string rayon;   // what its program calls it
    bool in_us = false;  // instead of ms
    bool with_slow = true;
};

// The time of a run; the time that all workers together spend for one of what is counted; memory.
class fork_table {
public:
    fork_table(harness& h, workload w)
        : harness_(h), workload_(std::move(w)), duration_(h.make_setting(300, 30).duration) {
        const char* unit = workload_.in_us ? "us" : "ms";
        const int digits = workload_.in_us ? 1 : 2;
        table_ = {workload_.name,
                  workload_.note,
                  {{"a run", unit, digits, true},
                   {"fastest", unit, digits, false},
                   {std::string("core time a ") + workload_.counted, "ns", 2, false},
                   {"RSS", "MiB", 1, false}},
                  {}};
    }

    // measure(job): as run_timer::result() has it.
    template <class Measure> void add(const char* row_name, unsigned workers, Measure measure) {
        const job j{workload_.size, workers, duration_};
        const auto scaled = [=, time = workload_.in_us ? 1e3 : 1e6, count = workload_.count] {
            const sample numbers = measure(j);
            return sample{numbers[0] / time, numbers[1] / time, numbers[0] * j.workers / count,
                          numbers[2] / (1024 * 1024)};
        };
        table_.rows.push_back({row_name, scaled, placement::own_process});
    }

    // work(pool, timer, size), on a worker of such a pool.
    template <class Pool, class Work>
    void add_work(const char* row_name, unsigned workers, Work work) {
        add(row_name, workers, [=](const job& j) {
            Pool pool(j.workers);
            run_timer timer(j);
            pool.run([&] { work(pool, timer, j.size); });
            return timer.result();
        });
    }

    template <class Work> void add_bide(Work work) {
        add_work<bide_pool>(bide_row, workers(), work);
        if (workers() > 1) {
            add_work<bide_pool>(bide_one_row, 1, work);
        }
    }

    void add_rayon() {
        if (has_rayon) {
            const auto measure = [name = workload_.rayon, cpus = harness_.opts().cpus](
                                     const job& j) { return measure_rayon(name, j, cpus); };
            add(rayon_row, workers(), measure);
            table_.rows.back().where = placement::here; // it has one of its own
        }
    }

    // All that fork: serial first. Those that are a hundred times as slow only where that does not
    // take minutes.
    template <class Work> void add_all(Work work, bool with_inlined = false) {
        add_work<serial_pool>(serial_row, 1, work);
        if (with_inlined) {
            add_work<inlined_pool>(inlined_row, 1, work);
        }
        add_bide(work);
        add_rayon();
#if defined(BIDE_BENCH_HAS_TBB)
        add_work<tbb_pool>(tbb_row, workers(), work);
#endif
#if defined(BIDE_BENCH_HAS_OPENMP)
        if (workload_.with_slow) {
            add_work<openmp_pool>(openmp_row, workers(), work);
        }
#endif
    }

    void finish() { harness_.add(std::move(table_)); }

private:
    harness& harness_;
    workload workload_;
    std::chrono::milliseconds duration_;
    table table_;
};

} // namespace bench

#endif
