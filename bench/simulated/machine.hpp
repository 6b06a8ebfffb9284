// A machine of any number of processors, simulated on one: what threads that share memory cost each
// other.
//
// Each simulated thread is a fiber with a clock of its own. The thread whose clock is earliest runs,
// so the steps of all threads happen in the order of their times. Memory consists of lines of 64
// bytes. A line that another processor has changed must move, and the requests for one line are
// served one after the other. This is what makes contention expensive.
//
// Left out: a cache has no size, so a processor loses a line only to a writer. A plain store does not
// wait for its line (a store buffer of any length). Executions are sequentially consistent, and an
// order costs what the instruction of x86-64 costs. What happens between two accesses takes no time,
// unless the thread says so by compute().
#ifndef BIDE_BENCH_SIMULATED_MACHINE_HPP
#define BIDE_BENCH_SIMULATED_MACHINE_HPP

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace simulated {

// A machine: its processors, and what a step costs in nanoseconds.
struct numbers {
    const char* name;
    unsigned sockets;
    unsigned cores;    // in each socket
    double hit;        // an access to a line that the processor has
    double locked;     // more, for a read-modify-write or a fence
    double within;     // a line moves between two processors of a socket
    double between;    // a line moves between sockets
    double shared;     // for so long, a request to read a shared line keeps the others waiting
    double sharer;     // a writer takes the line from one more processor that has read it
    double pause;
    double clock;      // a look at the clock
    double call;       // a futex call that neither sleeps nor wakes
    double wake;       // more, for the caller that wakes a thread
    double wake_delay; // from the end of that call until the thread runs
    double yield;      // sched_yield(), or a switch between two threads of a processor
    double barrier;    // membarrier(2)
    double slice;      // after so long, the next thread of the processor runs

    unsigned processors() const { return sockets * cores; }
};

// The two-core guest of bench/README.md: its single steps as measured there, and `sharer`, `shared`
// and `hit`, which are fitted.
inline constexpr numbers guest{.name = "two-core guest", .sockets = 1, .cores = 2, .hit = 0.8,
    .locked = 4.5, .within = 63, .between = 63, .shared = 5, .sharer = 10, .pause = 11,
    .clock = 18, .call = 105, .wake = 13'000, .wake_delay = 15'500, .yield = 530,
    .barrier = 1'500, .slice = 3'000'000};

// A server of bare metal with `sockets` sockets of `cores` cores.
constexpr numbers server(unsigned sockets, unsigned cores) {
    return {.name = "server", .sockets = sockets, .cores = cores, .hit = 0.8, .locked = 4.5,
            .within = 60, .between = 140, .shared = 5, .sharer = 5, .pause = 40, .clock = 20,
            .call = 100, .wake = 1'500, .wake_delay = 3'000, .yield = 500, .barrier = 4'000,
            .slice = 3'000'000};
}

enum class access { load, store, modify };

// What the accesses to one line have cost.
struct line_report {
    std::string name;
    std::uint64_t accesses, moves;
    double waited_ns;    // by all threads that wanted the line
    unsigned processors; // that have accessed it
};

class machine {
public:
    explicit machine(const numbers& of, std::uint64_t seed = 1, double jitter = 0.05);
    machine(const machine&) = delete;
    machine& operator=(const machine&) = delete;
    ~machine();

    // Adds a thread, which runs on the processor `on` only, or where there is room. Also called by
    // simulated threads.
    void start(std::function<void()> body, std::optional<unsigned> on = {});
    // Runs the threads until all have returned, or until stop_daemons() was called and only daemons
    // are left. Throws std::logic_error if the threads that are left sleep for ever.
    void run();

    void name(const void* at, std::size_t size, std::string as); // for the report
    std::vector<line_report> lines(std::size_t most) const; // those that were waited for longest
    double elapsed_ns() const; // when the last thread returned
    double used_ns() const;    // by all processors
    std::uint64_t steps() const;

    // ---- For simulated threads

    static machine* here() noexcept; // nullptr outside
    void touch(const void* at, access how) noexcept;
    void fence() noexcept;
    void barrier() noexcept;
    void pause() noexcept;
    void compute(double ns) noexcept;
    void yield() noexcept;
    std::int64_t now_ns() noexcept;
    unsigned processor() const noexcept;
    // Sleeps unless is_changed() returns true. Returns false if the time is over.
    bool sleep(const void* word, const std::function<bool()>& is_changed, std::int64_t until_ns);
    void wake(const void* word, int count) noexcept;
    void* local(const void* key, void* (*make)(), void (*drop)(void*));

private:
    struct state;
    std::unique_ptr<state> state_;
};

} // namespace simulated

#endif
