// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_MACHINE_HPP
#define BIDE_MODEL_MACHINE_HPP

/// \file
/// Simulates, in one thread, a machine of up to 256 processors. Shows what threads that share
/// memory would cost each other on a machine that the user does not have.
///
/// Each simulated thread is a fiber with a clock of its own. The thread whose clock is earliest
/// runs, so the steps of all threads happen in the order of their times. Memory consists of lines
/// of 64 bytes. A line that another processor has changed must move to the processor that wants it.
/// The requests for one line are served one after the other. This makes contention expensive. A
/// read of a line that another processor has changed takes the line away from that processor, as
/// was measured on an Intel Xeon.
///
/// \code
/// bide::model::machine m(bide::model::two_socket_server(32));
/// bide::basic_mutex<bide::model::simulated_platform> lock;
/// for (int i = 0; i < 64; ++i) {
///     m.start([&] {
///         for (int k = 0; k < 1'000; ++k) {
///             lock.lock();
///             bide::model::machine::here()->compute(100); // nanoseconds
///             lock.unlock();
///         }
///     });
/// }
/// m.run();
/// std::printf("%.0f ns an operation\n", m.elapsed_ns() / 64'000);
/// \endcode
///
/// Simplifications: a cache has no size, so a processor loses a line only to a writer. A thread
/// executes one step after the other, except that a store does not wait for its line. Memory orders
/// have the effect and the cost that they have on x86-64. What happens between two accesses takes
/// no time, unless the thread calls compute(). README.md in this folder says how exact the results
/// are.

#include <bide/core/config.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace model {

/// Describes a machine: its processors, and what a step costs in nanoseconds.
struct machine_numbers {
    unsigned sockets = 1; ///< The number of sockets.
    unsigned cores = 2;   ///< The number of processors in each socket.
    double hit = 0.4;     ///< An access to a line that the processor has.
    double locked = 6.2;  ///< In addition, for a read-modify-write or a fence.
    double within = 63;   ///< A line moves between two processors of a socket.
    double between = 63;  ///< A line moves between two sockets.
    double shared = 5;    ///< How long a read occupies a line that other processors only read, too.
    double sharer = 10;   ///< A write takes the line away from one processor that only reads.
    double pause = 11;    ///< The instruction with which a thread spins.
    double clock = 18;    ///< A read of the clock.
    double call = 105;    ///< A futex call that neither sleeps nor wakes.
    double wake = 13'000; ///< In addition, for each thread that the caller wakes.
    double wake_delay = 15'500; ///< From the end of that call until the woken thread runs.
    double yield = 530;         ///< sched_yield(), or a switch between two threads of a processor.
    double barrier = 1'500;     ///< membarrier(2).
    double slice = 3'000'000;   ///< After this time, the next thread of the processor runs.
};

/// Returns the numbers of the virtual machine on which bide's benchmarks run: two processors of an
/// AMD EPYC. Its wakes are slow, which is typical of virtual machines.
constexpr machine_numbers two_core_virtual() noexcept { return {}; }

/// Returns the numbers of a server of bare metal with one socket. The times of moving lines are
/// those of an Intel Xeon Platinum 8375C (github.com/nviennot/core-to-core-latency).
constexpr machine_numbers one_socket_server(unsigned cores) noexcept {
    machine_numbers n;
    n.cores = cores;
    n.within = 51;
    n.between = 106;
    n.sharer = 5;
    n.pause = 44;
    n.wake = 1'500;
    n.wake_delay = 3'000;
    n.barrier = 4'000;
    return n;
}

/// Returns the numbers of the same server, but with two sockets of `cores` processors each.
constexpr machine_numbers two_socket_server(unsigned cores) noexcept {
    machine_numbers n = one_socket_server(cores);
    n.sockets = 2;
    return n;
}

/// Runs simulated threads.
/// Thread safety: one thread of the program and the threads that it simulates may use a machine.
class machine {
public:
    /// Constructs a machine without threads. Each step takes the time in `numbers`, changed by a
    /// random fraction of at most `jitter`. The same seed gives the same run.
    /// Throws: std::invalid_argument if the machine has no processor or more than 256.
    explicit machine(const machine_numbers& numbers, std::uint64_t seed = 1, double jitter = 0.05);
    /// Destroys the machine.
    /// Requires: run() has returned, or was never called.
    ~machine();
    machine& operator=(machine&&) = delete;

    /// Adds a thread that calls run(). If `pinned` is given, the thread runs only on that
    /// processor. A simulated thread may call this function, too.
    void start(std::function<void()> run, std::optional<unsigned> pinned = {});

    /// Runs all threads until they have returned.
    /// Throws: std::runtime_error if the remaining threads would sleep for ever.
    void run();

    // ---- Results

    /// Returns the time at which the last thread returned.
    double elapsed_ns() const noexcept;
    /// Returns the time that all processors together were in use.
    double used_ns() const noexcept;
    /// Returns the number of simulated steps.
    std::uint64_t steps() const noexcept;

    /// Says what the accesses to one line of memory have cost.
    struct line {
        std::string name;       ///< The name of an object and an offset in it, or an address.
        std::uint64_t accesses; ///< The number of accesses.
        std::uint64_t moves;    ///< How often the line moved to another processor.
        double waited_ns;       ///< How long all threads together waited for the line.
        unsigned processors;    ///< The number of processors that have accessed it.
    };
    /// Returns the lines for which threads have waited longest, at most `most`.
    std::vector<line> hottest(std::size_t most) const;
    /// Names the lines of an object for hottest().
    void name(const void* object, std::size_t size, std::string name);

    // ---- For the simulated threads

    /// Returns the machine of the calling simulated thread; nullptr outside of run().
    static machine* here() noexcept;
    /// Lets the calling thread compute for a time.
    void compute(double ns) noexcept;
    /// Returns the processor of the calling thread.
    unsigned processor() const noexcept;
    /// Returns the number of processors.
    unsigned processors() const noexcept;

    /// The ways to access memory.
    enum class access {
        load,   ///< Waits for the line.
        store,  ///< Needs the line alone, but the thread does not wait for it.
        modify, ///< Waits for earlier stores and for the line, and then has the line alone.
    };
    /// Lets the time of an access to the line of `address` pass. Other threads may run in this
    /// call. The caller makes the access after the return.
    void touch(const void* address, access how) noexcept;

    /// Waits until the stores of the calling thread are done.
    void fence() noexcept;
    /// Is a fence with the cost of membarrier(2).
    void barrier() noexcept;
    /// Is one pause of a thread that spins.
    void pause() noexcept;
    /// Lets the next thread of the processor run.
    void yield() noexcept;
    /// Reads the clock. Returns the time since the start of the machine.
    std::int64_t now_ns() noexcept;
    /// Sleeps until a wake of `word`. If has_changed() returns true, does not sleep. Returns false
    /// if the time `until_ns` comes first.
    bool sleep(const void* word, const std::function<bool()>& has_changed, std::int64_t until_ns);
    /// Wakes at most `count` threads that sleep on `word`, in the order in which they fell asleep.
    void wake(const void* word, int count) noexcept;
    /// Returns the calling thread's object for `key`. The first call makes it by make(). The
    /// destructor of the machine destroys it by drop().
    void* local(const void* key, void* (*make)(), void (*drop)(void*));

private:
    struct state;
    std::unique_ptr<state> state_;
};

}}} // namespace bide::BIDE_ABI::model

#endif
