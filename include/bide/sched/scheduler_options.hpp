#ifndef BIDE_SCHED_SCHEDULER_OPTIONS_HPP
#define BIDE_SCHED_SCHEDULER_OPTIONS_HPP

#include <bide/core/config.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string_view>

namespace bide::inline BIDE_ABI {

class driver;
class trace_sink;

struct scheduler_options {
    // 0: as many as the process may use processors, by its affinity mask and the quota of its
    // control group. Others as they are, 1 at least.
    unsigned num_workers = 0;

    // Without effect here: the global queue is a list of what is queued, which needs no memory of
    // its own, grows with it, and refuses nothing.
    std::size_t global_queue_capacity = 65536;

    // false: a worker runs what its own tasks make runnable, and what comes from outside.
    bool enable_stealing = true;

    // Threads for spawn_blocking() and for workers whose own thread sleeps in a task.
    unsigned max_blocking_threads = 512;
    std::chrono::milliseconds blocking_keep_alive{10'000};

    // Each worker stays on one of the processors that the process may use, in turn.
    bool pin_workers = false;

    // Worker threads are "<name>-<index>", blocking ones "<name>-b<index>".
    std::string_view name = "bide";

    // Called with an exception that left a task and that nobody asked for: on a worker, on a thread
    // for what blocks, or on the one that drops the handle; on several at once. If it is
    // empty or throws, the exception's type and text go to stderr, and std::terminate is called
    // with the exception as std::current_exception().
    std::function<void(std::exception_ptr)> on_unhandled{};

    // Called on each thread that becomes a worker, first and last. Another thread that runs a worker
    // while its own is blocked calls them too. Where one throws, the program ends as above.
    std::function<void(unsigned worker)> on_worker_start{}, on_worker_stop{};

    // Where an idle worker waits for files (sched/epoll_driver.hpp); outlives the scheduler. One
    // scheduler at a time: the constructor of a second one throws device_or_resource_busy until the
    // first one's shutdown.
    driver* io = nullptr;

    // Is told what the workers do (sched/trace.hpp); outlives the scheduler. nullptr: nobody is.
    trace_sink* trace = nullptr;

    // An idle worker looks after what the others have just made runnable, and at most so long later
    // takes over what they do not come to. Zero: it is woken each time instead.
    std::chrono::microseconds longest_nap{4'000};
};

// Since the start. Each is a snapshot; between them they need not add up.
struct scheduler_stats {
    std::uint64_t spawned = 0;       // tasks, and fork-joins of threads from elsewhere
    std::uint64_t completed = 0;     // of them
    std::uint64_t polled = 0;        // runs of something runnable
    std::uint64_t stolen = 0;        // runnables taken from other workers
    std::uint64_t steal_batches = 0; // in so many goes
    std::uint64_t overflowed = 0;    // moved from a full ring to the global queue
    std::uint64_t parked = 0;        // sleeps
    std::uint64_t woken = 0;         // of these ended by a wake
    std::uint64_t injected = 0;      // runnables taken from the global queue
    std::uint64_t timers_fired = 0;

    scheduler_stats& operator+=(const scheduler_stats& other) noexcept {
        spawned += other.spawned;
        completed += other.completed;
        polled += other.polled;
        stolen += other.stolen;
        steal_batches += other.steal_batches;
        overflowed += other.overflowed;
        parked += other.parked;
        woken += other.woken;
        injected += other.injected;
        timers_fired += other.timers_fired;
        return *this;
    }
};

} // namespace bide::inline BIDE_ABI

#endif
