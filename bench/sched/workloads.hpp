#ifndef BIDE_BENCH_SCHED_WORKLOADS_HPP
#define BIDE_BENCH_SCHED_WORKLOADS_HPP

// The workloads; each adds its tables.

#include "sched/job.hpp"
#include "sched/pools.hpp"
#include "sched/programs.hpp"
#include "support/harness.hpp"
#include "support/workers.hpp"

#include <bide/sched/scheduler.hpp>
#include <bide/task/task.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace bench {

void add_spawn_many(harness&); // local, remote_idle, remote_busy1, remote_busy2
void add_chained_spawn(harness&);
void add_yield_many(harness&);
void add_ping_pong(harness&);
void add_request_reply(harness&);
void add_spawn_await(harness&);
void add_forks(harness&); // fib, skynet by coroutines
void add_single_yield(harness&);
void add_generators(harness&); // map and filter too
void add_round_trip(harness&);
void add_mpsc(harness&);
void add_locks(harness&);   // semaphore, shared_mutex
void add_scaling(harness&); // ten times the tasks
void add_parked(harness&);  // a million that wait: what each takes, in time and memory
void add_timers(harness&);  // that fire
void add_wake(harness&);    // from outside, of a pool that sleeps
void add_idle(harness&);
void add_contended(harness&);  // by workers
void add_bounded(harness&);    // at most 64 tasks at a time
void add_strands(harness&);    // posts that must not overlap
void add_priorities(harness&); // classes of tasks
void add_bursts(harness&);     // waits under overload

// Of the time of a run; or of that divided among what is counted.
struct unit {
    const char* column;
    const char* name;
    double ns;
    int digits;
};

inline unit us_a_run() { return {"a run", "us", 1e3, 1}; }
inline unit ns_each(const char* of, std::uint64_t count) {
    return {of, "ns", static_cast<double>(count), 1};
}

// A table of the time that runs take: the median and the fastest.
class run_table {
public:
    run_table(harness& h, std::string name, std::string note, std::uint64_t count, unit u)
        : harness_(h), job_{count, workers(), h.make_setting(300, 60).duration}, divisor_(u.ns),
          table_{std::move(name),
                 std::move(note),
                 {{u.column, u.name, u.digits, true}, {"fastest", u.name, u.digits, true}},
                 {}} {}

    // Before the first row.
    void set_workers(unsigned count) { job_.workers = count; }

    void add(const peer_program& program, const char* workload) {
        add_program(table_, program, workload, job_, harness_.opts().cpus, divisor_);
    }

    // measure(job): nanoseconds of a run, as run_timer has them.
    void add(const char* row_name, std::function<sample(const job&)> measure) {
        const auto scaled = [j = job_, divisor = divisor_, measure = std::move(measure)] {
            sample numbers = measure(j);
            for (double& number : numbers) {
                number /= divisor;
            }
            return numbers;
        };
        table_.rows.push_back({row_name, scaled, placement::own_process});
    }

    void finish() { harness_.add(std::move(table_)); }

private:
    harness& harness_;
    job job_;
    double divisor_;
    table table_;
};

// A measurement: run(pool, count) again and again.
template <class Pool, class Run> auto repeat_on(Run run) {
    return [run](const job& j) {
        Pool pool(j.workers);
        run_timer timer(j);
        while (timer.next()) {
            run(pool, j.count);
        }
        return timer.result();
    };
}

template <class Run> auto repeat_on_bide(Run run) {
    return [run](const job& j) {
        bide::scheduler s(scheduler_options_of(j));
        run_timer timer(j);
        while (timer.next()) {
            run(s, j.count);
        }
        return timer.result();
    };
}

using bide_root = bide::task<> (*)(bide::scheduler&, std::uint64_t);

// The root task, given to the scheduler from outside: by a thread that may work while it waits, and
// by one that only waits.
inline void add_bide_roots(run_table& t, bide_root root) {
    t.add(bide_row, repeat_on_bide([=](bide::scheduler& s, std::uint64_t count) {
              bide::sync_wait(s, root(s, count));
          }));
    t.add(bide_join_row, repeat_on_bide([=](bide::scheduler& s, std::uint64_t count) {
              s.spawn(root(s, count)).join();
          }));
}

} // namespace bench

#endif
