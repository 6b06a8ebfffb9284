// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TEST_SCHEDULER_HPP
#define BIDE_TEST_SCHEDULER_HPP

/// \file
/// Runs tasks in a simulation: on one thread, in an order that a seed chooses, and in simulated
/// time. Runs with the same seed are equal. README.md in this folder lists what this requires of
/// the tasks.

#include <bide/sched/task_runner.hpp>
#include <bide/test/detail/simulation.hpp>

namespace bide { inline namespace BIDE_ABI { namespace test {

/// Runs tasks on the thread that constructed the scheduler. The tasks run inside of calls of the
/// scheduler's functions. The scheduler starts no thread and never sleeps. While it exists, bide's
/// clock on that thread is simulated: the clock stands still while tasks run, and jumps to the next
/// timer when no task is runnable.
///
/// Other threads must not spawn or wake tasks of the scheduler. Otherwise the run ends with
/// simulation_error. If a task blocks the thread, the program terminates with a message that names
/// the seed and the task.
///
/// \code
/// bide::test::scheduler s({.seed = 7});
/// auto client = s.spawn(call(server, 5s).named("client"));
/// s.spawn(serve(server).named("server")).detach();
/// const bide::test::simulation_report end = s.run();
/// REQUIRE(end.all_ended());
/// \endcode
class scheduler : public task_runner {
public:
    /// Constructs a scheduler without tasks.
    /// Throws: std::bad_alloc.
    explicit scheduler(simulation_options how = {})
        : scheduler(std::make_unique<detail::simulation>(std::move(how))) {}

    /// Cancels all tasks, and runs them until they have ended. Terminates with a message in these
    /// cases: a task waits for ever; a task whose handle was dropped throws; another thread calls
    /// the destructor; this thread has constructed a later scheduler and has not destroyed it.
    /// Requires: no other thread spawns or wakes tasks of this scheduler.
    ~scheduler() = default;

    // ---- Running
    //
    // Each function of this section throws
    //   simulation_error   if a limit of the options is reached, or another thread has woken a task
    //   the exception of a task, if the handle of the task was dropped
    // Each function terminates with a message if the caller is a task, or a thread other than the
    // one that made the scheduler.

    /// Runs until no task is runnable and no timer is armed. A task that has not ended by then
    /// waits for ever. The report names these tasks.
    simulation_report run() { return run_to(detail::simulation::never_ns); }

    /// Runs as run() does, but at most until the simulated time `rest` has passed. If the tasks
    /// stop earlier, the clock still advances by `rest` in total.
    template <class R, class P> simulation_report run_for(const std::chrono::duration<R, P>& rest) {
        return run_to(core_->time_after(deadline::saturated_ns(rest)));
    }

    /// Runs what is runnable now, until every task waits. The clock does not move.
    simulation_report run_ready() { return run_to(core_->time_after(0)); }

    /// Runs the scheduler with the task `t` until `t` has ended.
    /// Returns: the value of `t`.
    /// Throws: what the task throws; stuck_error if the task waits for ever; std::bad_alloc.
    template <class T> T run_until(task<T> t) {
        join_handle<T> handle = spawn(std::move(t));
        core_->set_main();
        if (!core_->run(detail::simulation::never_ns, [&]() noexcept { return handle.done(); })) {
            core_->template fail<stuck_error>("the task of run_until() waits for ever");
        }
        return std::move(handle).join();
    }

    // ---- Time

    /// Returns the simulated time since the scheduler was made.
    std::chrono::nanoseconds now() const noexcept {
        return std::chrono::nanoseconds(core_->elapsed_ns());
    }

    /// Advances the clock by `by`, to simulate a computation of that length. Runs no task.
    /// Terminates with a message if `by` is negative.
    template <class R, class P> void advance(const std::chrono::duration<R, P>& by) {
        core_->advance(deadline::saturated_ns(by));
    }

    // ---- What happened

    /// Returns the report at this moment.
    /// Throws: std::bad_alloc.
    simulation_report report() const { return core_->report(); }

    /// Returns the journal: a text with a line for each decision so far. Equal runs have equal
    /// journals, byte for byte.
    const std::string& journal() const noexcept { return core_->notes().text(); }

private:
    explicit scheduler(std::unique_ptr<detail::simulation> core) noexcept
        : task_runner(*core), core_(std::move(core)) {}

    simulation_report run_to(std::int64_t until) {
        core_->run(until, []() noexcept { return false; });
        return core_->report();
    }

    const std::unique_ptr<detail::simulation> core_;
};

// ---- For the code under test, and for fakes

namespace detail {

// Returns the simulation of this thread, or nullptr. Only a simulation replaces a thread's machine.
inline simulation* here() noexcept {
    return static_cast<simulation*>(bide::detail::simulated_machine::here());
}

} // namespace detail

/// The clock that a scheduler simulates. On a thread with a test::scheduler, now() returns the
/// simulated time. On other threads, it returns the time of std::chrono::steady_clock. Code that
/// runs in a simulation must read this clock and never the clocks of std.
struct clock : std::chrono::steady_clock {
    /// Returns the time.
    static time_point now() noexcept {
        return time_point(
            std::chrono::duration_cast<duration>(std::chrono::nanoseconds(native_platform::now())));
    }
};

/// The calendar of a simulation. On a thread with a test::scheduler, now() returns the time of
/// `clock`, counted from 1970. On other threads, it returns the time of std::chrono::system_clock.
/// A simulation begins on 15 December 2039, which is later than any real time.
struct system_clock : std::chrono::system_clock {
    /// Returns the time.
    static time_point now() noexcept {
        return detail::here() == nullptr ? std::chrono::system_clock::now()
                                         : time_point(std::chrono::duration_cast<duration>(
                                               std::chrono::nanoseconds(native_platform::now())));
    }
};

/// Returns the simulated time since the scheduler of this thread was made. If the thread has no
/// scheduler, returns zero.
inline std::chrono::nanoseconds now() noexcept {
    auto* const s = detail::here();
    return std::chrono::nanoseconds(s != nullptr ? s->elapsed_ns() : 0);
}

/// Advances the clock of this thread's scheduler by `by`, to simulate a computation of that length.
/// Terminates with a message if `by` is negative. If the thread has no scheduler, does nothing.
template <class R, class P> void advance(const std::chrono::duration<R, P>& by) {
    if (auto* const s = detail::here()) {
        s->advance(deadline::saturated_ns(by));
    }
}

/// Decides whether a fault happens at this place of the code. Writes `what` and the decision to the
/// journal.
/// Returns: true with the given probability; false if the thread has no scheduler.
inline bool fault_point(std::string_view what, double probability) {
    auto* const s = detail::here();
    if (s == nullptr) {
        return false;
    }
    const bool fails = s->chance().chance(probability);
    s->notes().line(s->steps(), fails ? " fault " : " no fault ", what);
    return fails;
}

/// Chooses a number from 0 to `count` - 1, for a fake object that can act in several ways. Writes
/// `what` and the number to the journal.
/// Returns: the number; 0 if the thread has no scheduler.
/// Requires: `count` is not 0; otherwise a scheduler terminates with a message.
inline std::uint64_t choose(std::string_view what, std::uint64_t count) {
    auto* const s = detail::here();
    if (s == nullptr) {
        return 0;
    }
    if (count == 0) {
        s->die("choose() has nothing to choose from");
    }
    const std::uint64_t chosen = s->chance().below(count);
    s->notes().line(s->steps(), " choose ", chosen, "/", count, " ", what);
    return chosen;
}

/// Adds a line to the journal. Without a scheduler, does nothing.
inline void note(std::string_view text) {
    if (auto* const s = detail::here()) {
        s->notes().line(s->steps(), " note ", text);
    }
}

}}} // namespace bide::BIDE_ABI::test

#endif
