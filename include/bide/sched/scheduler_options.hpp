// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_SCHEDULER_OPTIONS_HPP
#define BIDE_SCHED_SCHEDULER_OPTIONS_HPP

#include <bide/core/config.hpp>
#include <bide/core/deadline.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string_view>

namespace bide { inline namespace BIDE_ABI {

class driver;
class trace_sink;

/// How a scheduler works. The defaults suit most programs.
struct scheduler_options {
    /// The number of workers. 0 means the number of processors that the process may use, at least
    /// 1. The affinity mask of the process and the CPU quota of its control group limit it. The
    /// most is 1,048,575; for more, the constructor of the scheduler throws std::invalid_argument.
    unsigned num_workers = 0;

    /// True if workers steal tasks from each other. If it is false, a worker runs only the tasks
    /// that its own tasks make runnable, and tasks of the global queue.
    bool enable_stealing = true;

    /// The maximum number of threads for spawn_blocking(), which also run workers whose own threads
    /// are blocked. The greatest value means no limit.
    unsigned max_blocking_threads = 512;
    /// How long a thread for blocking tasks stays when it has nothing to do.
    std::chrono::milliseconds blocking_keep_alive{10'000};

    /// Whether each worker is bound to one of the processors that the process may use, in turn.
    bool pin_workers = false;

    /// The name of the threads: "<name>-<index>" for workers, "<name>-b<index>" for blocking tasks.
    std::string_view name = "bide";

    /// The size of the stack of each thread of the scheduler, in bytes: both of the workers and of
    /// the threads for blocking tasks. It is rounded up to whole pages. 0 means the default of the
    /// system; on Linux it is that of `ulimit -s`, usually 8 MiB. Tasks or arms with a deep
    /// recursion need more. The system commits memory only for the used part of a stack. On
    /// Windows, the option has no effect.
    std::size_t stack_size = 0;

    /// Called with an exception that has left a task whose handle was dropped. The caller is a
    /// worker, a thread for blocking tasks, or the thread that drops the handle. Several threads
    /// may call it at once. If this function is empty or throws, the exception's type and text are
    /// written to stderr. Then std::terminate is called, with the exception as
    /// std::current_exception().
    std::function<void(std::exception_ptr)> on_unhandled{};

    /// Called on each thread that becomes a worker, before its first task. Another thread that runs
    /// a worker while the worker's own thread is blocked calls it, too. If it throws, the program
    /// ends as with on_unhandled.
    std::function<void(unsigned worker)> on_worker_start{};

    /// Called on each thread that was a worker, after its last task; otherwise as on_worker_start.
    std::function<void(unsigned worker)> on_worker_stop{};

    /// The driver in which an idle worker waits for files (io/epoll_driver.hpp). It must outlive
    /// the scheduler. It serves one scheduler at a time: until the first scheduler has shut down,
    /// the constructor of a second one throws device_or_resource_busy.
    driver* io = nullptr;

    /// Receives the events of the workers (sched/trace.hpp). It must outlive the scheduler.
    /// nullptr: no trace.
    trace_sink* trace = nullptr;

    /// How long the timed sleeper sleeps at most. A worker that makes a task runnable usually runs
    /// that task next, so no other worker is woken for it. The timed sleeper is an idle worker that
    /// sleeps with a time-out. If the first worker is busy for too long, the timed sleeper takes
    /// the task over, within twice this time. Values above 1 s count as 1 s. If the option is zero,
    /// no worker sleeps with a time-out, and an idle worker is woken for each such task.
    std::chrono::microseconds max_timed_sleep{4'000};

    /// How much later than necessary a sleep or a time-out of a task may end. The times of sleeps
    /// and time-outs are rounded up to multiples of this value, so that one wake ends all sleeps
    /// and time-outs of one interval. If there are many sleepers, 1 ms saves most of their
    /// processor time. Values above 1 s count as 1 s. If it is zero or less, each sleep ends at its
    /// own time.
    std::chrono::microseconds timer_slack{0};
};

namespace detail {

// The timer slack of the options, as the timer queue expects it.
inline std::int64_t timer_slack_ns(std::chrono::microseconds wanted) noexcept {
    constexpr std::int64_t most = 1'000'000'000;
    const std::int64_t ns = deadline::saturated_ns(wanted);
    return ns < 0 ? 0 : ns < most ? ns : most;
}

} // namespace detail

}} // namespace bide::BIDE_ABI

#endif
