#ifndef BIDE_BENCH_SUPPORT_BENCH_HPP
#define BIDE_BENCH_SUPPORT_BENCH_HPP

// What these programs add to Google Benchmark. A benchmark is called TABLE/ROW: a table is one workload, its rows
// are the peers that are compared, and its first row is the baseline. A round measures a row once: it is one
// repetition of Google Benchmark.

#include <benchmark/benchmark.h>

#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sched.h>

namespace bench {

using cpu_list = std::vector<int>;

// Those of the calling thread; `taskset` chooses them for a program.
inline cpu_list allowed_cpus() {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    ::sched_getaffinity(0, sizeof mask, &mask);
    cpu_list cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(static_cast<unsigned>(cpu), &mask)) {
            cpus.push_back(cpu);
        }
    }
    return cpus;
}

// Restricts the calling thread, and what it starts from now on, to these.
inline void run_on(const cpu_list& cpus) {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    for (const int cpu : cpus) {
        CPU_SET(static_cast<unsigned>(cpu), &mask);
    }
    ::sched_setaffinity(0, sizeof mask, &mask);
}

// The calling thread runs on `cpus` while this lives.
class scoped_affinity {
public:
    explicit scoped_affinity(const cpu_list& cpus) : before_(allowed_cpus()) { run_on(cpus); }
    scoped_affinity(const scoped_affinity&) = delete;
    scoped_affinity& operator=(const scoped_affinity&) = delete;
    ~scoped_affinity() { run_on(before_); }

private:
    cpu_list before_;
};

// Has two cache lines of its own (prefetchers fetch pairs), so no neighbour is measured with it.
template <class Subject> struct alignas(128) isolated {
    template <class... Args> explicit isolated(Args... args) : subject(args...) {}
    Subject subject;
};

// Runs body(i) for i in [0, size), thread i on cpus[i mod n] (without cpus: where the system puts it), and
// meanwhile referee() on the calling thread. Returns when all have returned.
template <class Body, class Referee>
void run_team(std::size_t size, const cpu_list& cpus, Body body, Referee referee) {
    std::barrier gate(static_cast<std::ptrdiff_t>(size + 1));
    std::vector<std::jthread> team;
    team.reserve(size);
    for (std::size_t i = 0; i < size; ++i) {
        team.emplace_back([&gate, &cpus, &body, i] {
            if (!cpus.empty()) {
                run_on({cpus[i % cpus.size()]});
            }
            gate.arrive_and_wait();
            body(i);
        });
    }
    gate.arrive_and_wait();
    referee();
}

// What a row found in a round: the time that is compared, and what it counted besides. Without a time, the
// counters are compared.
struct measured {
    double ns = 0;
    std::map<std::string, double> counters = {};
};

// Some libraries decide once in a process, by the processors that it may use, whether to spin. A row of such
// a library gets a fresh process for each round.
enum class placement {
    here,
    own_process,   // which may use all processors
    one_processor, // which may use the first one only
    simulated,     // here, on a simulated machine: other programs do not matter
};

class table {
public:
    table(std::string name, std::string note) : name_(std::move(name)), note_(std::move(note)) {}

    // measure() is one round, which is measured once more if other programs disturbed it.
    void add(const std::string& row, std::function<measured()> measure,
             placement where = placement::here);

    // A loop over the state, by one thread on the first processor.
    void add_loop(const std::string& row, std::function<void(benchmark::State&)> loop);

    // call(subject) in such a loop, a new subject each time.
    template <class Subject, class Call, class... Args>
    void add_calls(const std::string& row, Call call, Args... args) {
        add_loop(row, [=](benchmark::State& state) {
            isolated<Subject> it(args...);
            auto mine = call;
            for (auto _ : state) {
                mine(it.subject);
            }
        });
    }

private:
    std::string name_;
    std::string note_;
};

// How long a round measures, or a multiple of that: --benchmark_min_time, 0.1 s.
std::chrono::nanoseconds a_round(double times = 1);
// How much a round does: in a shorter round, less. A multiple of `of`.
std::uint64_t scaled(std::uint64_t count, std::uint64_t of = 1);
// In a shorter round, which is for checks, large workloads are left out.
inline bool is_short() { return scaled(100) < 100; }

// What a program prints that may use these processors. Throws std::runtime_error if it fails.
std::string output_of(const std::vector<std::string>& command, const cpu_list& cpus);

// The main() of each program: add() adds the tables. Takes the options of Google Benchmark, of which some have
// other defaults.
int run(int argc, char** argv, void (*add)());

} // namespace bench

#endif
