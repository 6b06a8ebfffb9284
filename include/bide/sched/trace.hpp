// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_TRACE_HPP
#define BIDE_SCHED_TRACE_HPP

#include <bide/core/config.hpp>
#include <bide/task/task_tag.hpp>

#include <cstdint>

namespace bide { inline namespace BIDE_ABI {

/// Receives the events of the workers of a scheduler (scheduler_options::trace) or of a run_loop
/// (run_loop_options::trace). A run_loop counts as worker 0. Times are nanoseconds of the steady
/// clock.
/// Requires: it outlives the scheduler or the loop.
/// Thread safety: calls for several workers come at the same time. Calls for one worker come one
/// after the other, with one exception: if a thread blocked in a task and lost its worker
/// meanwhile, its call for the end of that task may come at the same time as another call.
class trace_sink {
public:
    trace_sink(const trace_sink&) = delete;
    trace_sink& operator=(const trace_sink&) = delete;
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

}} // namespace bide::BIDE_ABI

#endif
