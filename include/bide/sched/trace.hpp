// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_SCHED_TRACE_HPP
#define BIDE_SCHED_TRACE_HPP

#include <bide/core/config.hpp>

#include <cstdint>

namespace bide::inline BIDE_ABI {

/// Receives what the workers of a scheduler do (scheduler_options::trace). Times are nanoseconds of
/// the steady clock.
/// Requires: it outlives the scheduler.
/// Thread safety: calls for several workers come at the same time. Calls for one worker come one
/// after the other, with one exception: if a thread blocked in a task and lost its worker
/// meanwhile, the call that ends that task comes at any time.
class trace_sink {
public:
    trace_sink(const trace_sink&) = delete;
    trace_sink& operator=(const trace_sink&) = delete;
    virtual ~trace_sink() = default;

    /// The worker ran something. `task` is the task's name, or nullptr if it has none or if this
    /// was no task.
    virtual void ran(unsigned worker, const char* task, std::int64_t begin,
                     std::int64_t end) noexcept = 0;
    /// The worker slept.
    virtual void parked(unsigned worker, std::int64_t begin, std::int64_t end) noexcept = 0;
    /// The worker took `count` runnables from another worker.
    virtual void stole(unsigned worker, unsigned count, std::int64_t at) noexcept = 0;

protected:
    /// Constructs a sink.
    trace_sink() noexcept = default;
};

} // namespace bide::inline BIDE_ABI

#endif
