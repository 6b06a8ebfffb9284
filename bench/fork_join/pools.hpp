#ifndef BIDE_BENCH_FORK_JOIN_POOLS_HPP
#define BIDE_BENCH_FORK_JOIN_POOLS_HPP

// The pools that are compiled in, with one face, so that every workload is written once. (Rayon is a program of
// its own, ../peers/rust.) Each forks in the way that it is best at, and no workload cuts its recursion off:
//     run(body)           body(), with the pool around it: on a worker, or as one of the workers
//     join(f, g)          both; a pair of what they return
//     many<N>(body)       body(0) to body(N - 1)
//     some(count, body)   body(0) to body(count - 1), where count is small and at least 1
//     scope(body)         body(spawn), and all that spawn(f) was given; f(spawn), too, may spawn
// No thread is pinned to one of them.

#include "sched/programs.hpp"

#include <bide/parallel/fork_join.hpp>
#include <bide/parallel/fork_scope.hpp>
#include <bide/sched/scheduler.hpp>

#if defined(BIDE_BENCH_HAS_TBB)
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_invoke.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_group.h>
#endif

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <type_traits>
#include <utility>

namespace bench {

inline constexpr const char* serial_row = "serial";
inline constexpr const char* inlined_row = "serial, inlined";
inline constexpr const char* bide_row = "bide";
inline constexpr const char* bide_one_row = "bide, one worker";
inline constexpr const char* rayon_row = "rayon";
inline constexpr const char* tbb_row = "tbb";
inline constexpr const char* std_row = "std::execution::par";
inline constexpr const char* openmp_row = "openmp";

template <class F, class G>
using results_of = std::pair<std::invoke_result_t<F>, std::invoke_result_t<G>>;

// Where a fork would be is a call, which is not inlined.
class serial_pool {
public:
    explicit serial_pool(unsigned) {}

    template <class Body> void run(Body body) { body(); }

    template <class F, class G> results_of<F, G> join(F f, G g) { return {call(f), call(g)}; }

    template <std::size_t N, class Body> void many(Body body) { some(N, body); }

    template <class Body> void some(std::size_t count, Body body) {
        for (std::size_t i = 0; i < count; ++i) {
            auto one = [&body, i] { body(i); };
            call(one);
        }
    }

    template <class Body> void scope(Body body) {
        spawner here;
        body(here);
    }

    // Calls at once.
    struct spawner {
        template <class F> void spawn(F f) {
            auto one = [this, &f] {
                f(*this);
                return 0;
            };
            call(one);
        }
    };

private:
    // Without its asm, two calls that compute the same would be one.
    template <class F> [[gnu::noinline]] static auto call(F& f) {
        asm volatile("");
        return f();
    }
};

// As the compiler likes it.
class inlined_pool {
public:
    explicit inlined_pool(unsigned) {}

    template <class Body> void run(Body body) { body(); }

    template <class F, class G> results_of<F, G> join(F f, G g) { return {f(), g()}; }

    template <std::size_t N, class Body> void many(Body body) { some(N, body); }

    template <class Body> void some(std::size_t count, Body body) {
        for (std::size_t i = 0; i < count; ++i) {
            body(i);
        }
    }

    template <class Body> void scope(Body body) {
        spawner here;
        body(here);
    }

    struct spawner {
        template <class F> void spawn(F f) { f(*this); }
    };
};

class bide_pool {
public:
    explicit bide_pool(unsigned workers) : scheduler_(options_with(workers)) {}

    template <class Body> void run(Body body) {
        scheduler_.spawn([&] { body(); }).join();
    }

    template <class F, class G> auto join(F f, G g) { return bide::join(scheduler_, f, g); }

    template <std::size_t N, class Body> void many(Body body) {
        invoke_all(body, std::make_index_sequence<N>());
    }

    template <class Body> void some(std::size_t count, Body body) { halve(0, count, body); }

    template <class Body> void scope(Body body) { bide::fork_scope(scheduler_, body); }

    // body() on the calling thread, which is none of the pool.
    template <class Body> void loop_from_outside(Body body) { body(); }

    bide::scheduler& scheduler() { return scheduler_; }

private:
    static bide::scheduler_options options_with(unsigned workers) {
        bide::scheduler_options options;
        options.num_workers = workers;
        return options;
    }

    template <class Body, std::size_t... I> void invoke_all(Body& body, std::index_sequence<I...>) {
        bide::parallel_invoke(scheduler_, [&body] { body(I); }...);
    }

    template <class Body> void halve(std::size_t first, std::size_t last, Body& body) {
        if (last - first == 1) {
            body(first);
            return;
        }
        const std::size_t middle = first + (last - first) / 2;
        bide::join(
            scheduler_, [this, &body, first, middle] { halve(first, middle, body); },
            [this, &body, middle, last] { halve(middle, last, body); });
    }

    bide::scheduler scheduler_;
};

#if defined(BIDE_BENCH_HAS_TBB)

// The thread outside is one of the workers.
class tbb_pool {
public:
    explicit tbb_pool(unsigned workers)
        : limit_(tbb::global_control::max_allowed_parallelism, workers),
          arena_(static_cast<int>(workers)) {}

    template <class Body> void run(Body body) { arena_.execute(body); }
    template <class Body> void loop_from_outside(Body body) { arena_.execute(body); }
    template <class F> void enqueue(F f) { arena_.enqueue(f); }

    template <class F, class G> results_of<F, G> join(F f, G g) {
        results_of<F, G> both;
        tbb::parallel_invoke([&] { both.first = f(); }, [&] { both.second = g(); });
        return both;
    }

    template <std::size_t N, class Body> void many(Body body) { some(N, body); }

    template <class Body> void some(std::size_t count, Body body) {
        tbb::task_group group;
        for (std::size_t i = 0; i + 1 < count; ++i) {
            group.run([&body, i] { body(i); });
        }
        group.run_and_wait([&body, count] { body(count - 1); });
    }

    template <class Body> void scope(Body body) {
        spawner here;
        body(here);
        here.group.wait();
    }

    struct spawner {
        template <class F> void spawn(F f) {
            group.run([this, f] { f(*this); });
        }
        tbb::task_group group;
    };

private:
    tbb::global_control limit_;
    tbb::task_arena arena_;
};

#endif

#if defined(BIDE_BENCH_HAS_OPENMP)

// The thread outside is one of the workers.
class openmp_pool {
public:
    explicit openmp_pool(unsigned workers) : workers_(static_cast<int>(workers)) {}

    template <class Body> void run(Body body) {
#pragma omp parallel num_threads(workers_) shared(body)
#pragma omp single
        body();
    }

    template <class F, class G> results_of<F, G> join(F f, G g) {
        results_of<F, G> both;
#pragma omp task shared(both, f)
        both.first = f();
        both.second = g();
#pragma omp taskwait
        return both;
    }

    template <std::size_t N, class Body> void many(Body body) { some(N, body); }

    template <class Body> void some(std::size_t count, Body body) {
        for (std::size_t i = 0; i + 1 < count; ++i) {
#pragma omp task shared(body) firstprivate(i)
            body(i);
        }
        body(count - 1);
#pragma omp taskwait
    }

    template <class Body> void scope(Body body) {
#pragma omp taskgroup
        {
            spawner here;
            body(here);
        }
    }

    struct spawner {
        template <class F> void spawn(F f) {
#pragma omp task firstprivate(f)
            {
                spawner same;
                f(same);
            }
        }
    };

private:
    int workers_;
};

#endif

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

// What a table measures.
struct workload {
    std::string name;
    std::string note;
    std::uint64_t size;     // as the workload understands it
    double count;           // of what is forked (or done) in a run
    std::string rayon = {}; // what its program calls it
    bool with_slow = true;
};

// The time of a run; the time that all workers together spend for one of what is counted; memory.
class fork_table {
public:
    explicit fork_table(workload w)
        : workload_(std::move(w)), table_(workload_.name, workload_.note) {}

    // measure(job): as run_timer::result() has it.
    template <class Measure>
    void add(const char* row, unsigned count, Measure measure,
             placement where = placement::own_process) {
        const job j{workload_.size, count};
        const auto once = [=, of = workload_.count] {
            measured found = measure(j);
            found.counters["core ns"] = found.ns * j.workers / of;
            found.counters.try_emplace("bytes", peak_resident_bytes());
            return found;
        };
        table_.add(row, once, where);
    }

    // work(pool, timer, size), on a worker of such a pool.
    template <class Pool, class Work> void add_work(const char* row, unsigned count, Work work) {
        add(row, count, [=](const job& j) {
            Pool pool(j.workers);
            run_timer timer(j);
            pool.run([&] { work(pool, timer, j.count); });
            return timer.result();
        });
    }

    // On all workers, and on one.
    template <class Work> void add_bide(Work work) {
        add_work<bide_pool>(bide_row, workers(), work);
        if (workers() > 1) {
            add_work<bide_pool>(bide_one_row, 1, work);
        }
    }

    void add_rayon() {
#if defined(BIDE_BENCH_RAYON)
        const auto measure = [name = workload_.rayon](const job& j) {
            return run_peer(BIDE_BENCH_RAYON, name, j, {"fastest", "bytes"});
        };
        add(rayon_row, workers(), measure, placement::here);
#endif
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

private:
    workload workload_;
    table table_;
};

} // namespace bench

#endif
