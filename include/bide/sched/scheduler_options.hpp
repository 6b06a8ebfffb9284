// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_SCHEDULER_OPTIONS_HPP
#define BIDE_SCHED_SCHEDULER_OPTIONS_HPP

/// \file
/// The options of a scheduler and of a task, and the interface that receives the events of workers.

#include <bide/core/deadline.hpp>
#include <bide/task/task_tag.hpp>

#include <functional>
#include <optional>
#include <string_view>

namespace bide { inline namespace BIDE_ABI {

class driver;
class trace_sink;

/// The options of a scheduler. The defaults suit most programs.
struct scheduler_options {
    /// The number of workers. 0 means the number of processors that the process may use, at least
    /// 1. That number is limited by the affinity mask of the process and by the CPU quota of its
    /// control group. If num_workers is above 1,048,575, the constructor of the scheduler throws
    /// std::invalid_argument.
    unsigned num_workers = 0;

    /// True if workers steal tasks from each other. If false, a worker runs only the tasks that its
    /// own tasks make runnable, and tasks of the queue that all workers share.
    bool enable_stealing = true;

    /// The maximum number of threads for blocking tasks (spawn_blocking()). These threads also run
    /// workers whose own threads are blocked. The greatest value means no limit.
    unsigned max_blocking_threads = 512;
    /// How long a thread for blocking tasks stays when it has nothing to do.
    std::chrono::milliseconds blocking_keep_alive{10'000};

    /// The name of the threads: "<name>-<index>" for workers, "<name>-b<index>" for blocking tasks.
    std::string_view name = "bide";

    /// The size of the stack of each thread of the scheduler, in bytes, for workers and for
    /// blocking tasks. It is rounded up to whole pages. 0 means the default of the system; on Linux
    /// it is that of `ulimit -s`, usually 8 MiB. Tasks and functions of fork-joins need more if
    /// they recurse deeply. Up to nine tasks are on a stack: one, and eight that run inside of it
    /// (join_handle::async_join()). The system commits memory only for the used part of a stack. On
    /// Windows, the option has no effect.
    std::size_t stack_size = 0;

    /// Called with an exception that has left a task whose handle was dropped. The caller is a
    /// worker, a thread for blocking tasks, or the thread that drops the handle. Several threads
    /// may call it at once. If this function is empty or throws, the exception's type and text are
    /// written to stderr. Then std::terminate is called, with the exception as
    /// std::current_exception().
    std::function<void(std::exception_ptr)> on_unhandled{};

    /// Called on each thread that becomes a worker, before its first task. If the thread of a
    /// worker is blocked, the thread that runs the worker meanwhile also calls this function. If
    /// the function throws, the program terminates, as if on_unhandled had thrown.
    std::function<void(unsigned worker)> on_worker_start{};

    /// Called on each thread that was a worker, after its last task. If it throws, the program
    /// terminates, as if on_unhandled had thrown.
    std::function<void(unsigned worker)> on_worker_stop{};

    /// The driver in which an idle worker waits for files (io/epoll_driver.hpp). It must outlive
    /// the scheduler. It serves one scheduler at a time: until the first scheduler has shut down,
    /// the constructor of a second one throws device_or_resource_busy.
    driver* io = nullptr;

    /// Receives the events of the workers (trace_sink). It must outlive the scheduler.
    /// nullptr: no trace.
    trace_sink* trace = nullptr;

    /// The maximum time that the timed sleeper sleeps. The timed sleeper is one idle worker that
    /// sleeps with a time-out. A worker that makes a task runnable wakes no other worker, because
    /// it usually runs the task next itself. If that worker stays busy, the timed sleeper takes the
    /// task within twice this time. Values above 1 s count as 1 s. If the option is zero, no worker
    /// sleeps with a time-out, and a worker that makes a task runnable wakes an idle worker.
    std::chrono::microseconds max_timed_sleep{4'000};

    /// How much later than requested a sleep or a time-out of a task may end. The times of sleeps
    /// and time-outs are rounded up to multiples of this value. So one wake ends all sleeps and
    /// time-outs of the same interval. If there are many sleepers, 1 ms saves most of their
    /// processor time. Values above 1 s count as 1 s. If it is zero or less, the times are not
    /// rounded.
    std::chrono::microseconds timer_slack{0};
};

/// The priority class of a task. While all three classes have runnable tasks, each worker takes 12
/// high, 3 normal and 1 low task of any 16 in a row. If a class has no runnable task, its share
/// goes to the highest class that has one. So no class starves, and no worker is idle while any
/// class has runnable tasks.
///
/// Each worker has its own queue of normal tasks. For the share of this class, a worker takes no
/// task from another worker's queue. So if only a few of many workers have normal tasks in their
/// queues, the class gets less than its share.
///
/// A share counts the runs of tasks, and does not measure their time: a task runs until it waits,
/// yields or ends, and no other task interrupts it. There is no priority inheritance: a low task
/// does not run earlier if a high task waits for it.
enum class task_priority : unsigned char { high, normal, low };

/// The options of scheduler::spawn(). The defaults are those of spawn() without options.
struct spawn_options {
    /// The priority class of the task, also after its waits. Coroutines that the task awaits, and
    /// children of when_all() and when_any(), run in its class. Tasks that it spawns do not.
    ///
    /// All workers share one queue of high tasks and one of low tasks, even if
    /// scheduler_options::enable_stealing is false.
    task_priority priority = task_priority::normal;

    /// If it is set, the task is pinned: it runs on one thread only, also after its waits. The
    /// scheduler has started that thread for the worker with this number, and the thread calls
    /// on_worker_start with this number. Coroutines that the task awaits, and children of
    /// when_all() and when_any(), run on that thread, too. Two tasks that are pinned to one thread
    /// never overlap. The task leaves that thread only if it names another executor, by
    /// scheduler::schedule(), resume_on() or a strand. `{.worker = s.this_worker()}` pins a task to
    /// the calling thread, if that is the thread of a worker.
    ///
    /// While that thread blocks or computes, the task waits, even if another thread runs the worker
    /// meanwhile. If the thread has lost its worker to another thread, it runs its pinned tasks
    /// without a worker. The priority must be normal. If the worker also has normal tasks that are
    /// not pinned, every second normal task that it runs is a pinned one.
    std::optional<unsigned> worker{};

    /// The tag of the task in dumps and traces. If it is empty, the task keeps the tag of
    /// task::tagged(). A spawned function may have a tag, too.
    task_tag tag{};
};

/// Receives the events of the workers of a scheduler (scheduler_options::trace) or of a run_loop
/// (run_loop_options::trace). A run_loop counts as worker 0. Times are nanoseconds of the steady
/// clock.
/// Requires: it outlives the scheduler or the loop.
/// Thread safety: calls for several workers come at the same time. Calls for one worker come one
/// after the other, with one exception. If a task blocked its thread, another thread may have run
/// the worker meanwhile. The call for the blocked task may then come at the same time as another
/// call.
class trace_sink {
public:
    trace_sink& operator=(trace_sink&&) = delete;
    virtual ~trace_sink() = default;

    /// Called when the worker has run a job. `task` is the name of the task; nullptr if the task
    /// has no name or if the job is not a task. `tag` is the tag of the task, or an empty one.
    virtual void ran(unsigned worker, const char* task, task_tag tag, std::int64_t begin,
                     std::int64_t end) noexcept = 0;
    /// Called when the worker has slept.
    virtual void parked(unsigned worker, std::int64_t begin, std::int64_t end) noexcept = 0;
    /// Called when the worker has taken `count` runnables from another worker.
    virtual void stole(unsigned worker, unsigned count, std::int64_t at) noexcept = 0;

protected:
    /// Constructs a sink.
    trace_sink() noexcept = default;
};

namespace detail {

// Converts a duration to nanoseconds, at least 0 and at most 1 s.
inline std::int64_t option_ns(std::chrono::microseconds wanted) noexcept {
    constexpr std::int64_t most = 1'000'000'000;
    const std::int64_t ns = deadline::saturated_ns(wanted);
    return ns < 0 ? 0 : ns < most ? ns : most;
}

} // namespace detail

}} // namespace bide::BIDE_ABI

#endif
