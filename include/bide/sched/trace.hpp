#ifndef BIDE_SCHED_TRACE_HPP
#define BIDE_SCHED_TRACE_HPP

#include <bide/core/config.hpp>

#include <cstdint>

namespace bide::inline BIDE_ABI {

// Is told what the workers of a scheduler do (scheduler_options::trace). Calls for several workers
// come at once; those for one come one after the other, but for the last one of a thread that
// blocked in a task and found its worker run by another: it may come at any time. Times are steady
// nanoseconds. It outlives the scheduler.
class trace_sink {
public:
    trace_sink(const trace_sink&) = delete;
    trace_sink& operator=(const trace_sink&) = delete;
    virtual ~trace_sink() = default;

    // Ran something: a task, by its name (nullptr: it has none, or it was no task).
    virtual void ran(unsigned worker, const char* task, std::int64_t begin,
                     std::int64_t end) noexcept = 0;
    // Slept.
    virtual void parked(unsigned worker, std::int64_t begin, std::int64_t end) noexcept = 0;
    // Took so many runnables from another worker.
    virtual void stole(unsigned worker, unsigned count, std::int64_t at) noexcept = 0;

protected:
    trace_sink() noexcept = default;
};

} // namespace bide::inline BIDE_ABI

#endif
