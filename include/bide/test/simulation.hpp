// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TEST_SIMULATION_HPP
#define BIDE_TEST_SIMULATION_HPP

/// \file
/// The options of a test::scheduler (test/scheduler.hpp), and what a run returns and throws.

#include <bide/core/config.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace test {

/// Selects how a scheduler chooses among the runnable tasks and the timer that is due.
enum class task_order : std::uint8_t {
    random,     ///< Each choice is uniform.
    priorities, ///< The runnable task with the highest priority. The priorities are random, and
                ///< fall at change points (PCT: Burckhardt, Kothari, Musuvathi, Nagarakatte, "A
                ///< Randomized Scheduler with Probabilistic Guarantees of Finding Bugs", ASPLOS
                ///< 2010). Finds bugs that need a few switches at exact places.
    fifo        ///< The task that became runnable first, as in a run_loop.
};

/// The faults that a scheduler makes. A chance is a number from 0 (never) to 1 (at each step).
struct fault_options {
    /// The chance that the clock jumps to the next timer although tasks are runnable. So, as on a
    /// slow machine, a time-out may fire after its wait was granted and before the granted task
    /// runs. No timer fires before its time.
    double stall = 0;

    /// The chance that a task is cancelled, as by join_handle::cancel().
    double cancel = 0;

    /// The largest number of tasks that are cancelled in this way.
    std::uint64_t most_cancels = UINT64_MAX;

    /// Returns true if `cancel` may cancel the task. `name` is the name of the task, or "" if it
    /// has none. If this function is empty, all tasks may be cancelled, except the task of
    /// run_until().
    std::function<bool(const char* name)> may_cancel{};
};

/// Says where other tasks may run in the middle of a task.
enum class switch_places : std::uint8_t {
    awaits,    ///< At each `co_await` of an operation.
    operations ///< Also after each operation of bide that does not wait, such as unlock(), set(),
               ///< try_send() and spawn(), after each access to a test::atomic, and in
               ///< test::switch_point(). So two tasks interleave as on two workers. A task may also
    ///< block its thread in bide, and use durable locks. Needs BIDE_SWITCH_POINTS and Linux or BSD.
};

/// The options of a scheduler. The same options, and the same program, make the same run.
struct simulation_options {
    /// The seed of all choices.
    std::uint64_t seed = 0;

    /// How the next task is chosen.
    task_order order = task_order::random;

    /// Where other tasks may run in the middle of a task.
    switch_places switches = switch_places::awaits;

    /// For task_order::priorities: the number of change points. At a change point, the task that is
    /// about to run gets a priority below those of all tasks that had no change point. A bug that
    /// needs d steps in a certain order needs d - 1 change points.
    unsigned change_points = 2;

    /// For task_order::priorities: the change points lie within the first `expected_steps` steps.
    /// The best value is the number of steps of a usual run.
    std::uint64_t expected_steps = 500;

    /// The largest number of steps: a limit for tasks that run for ever.
    std::uint64_t max_steps = 1'000'000;

    /// The longest simulated time: a limit for timers that are armed again for ever.
    std::chrono::nanoseconds max_time = std::chrono::hours(24 * 365);

    /// The faults that the scheduler makes.
    fault_options faults{};

    /// Called before each step, outside of all tasks. The argument is the number of the step,
    /// counted from 1. The function may cancel a task, and must not throw. If no step follows a
    /// call, the next call has the same number.
    std::function<void(std::uint64_t step)> before_step{};
};

/// A task that has not ended.
struct unfinished_task {
    /// Counts the tasks of the scheduler from 1 on, in the order in which they were spawned.
    std::uint64_t number = 0;

    /// The name of the task (task::named(), this_task::set_name()); "" if it has none.
    std::string name{};

    /// What the task waits for, such as "mutex 'accounts', held by task 'writer'". Without
    /// BIDE_DEADLOCK_CHECK (core/deadlock_check.hpp), this text is "". It is also "" if that check
    /// has no note of the wait.
    std::string waits_for{};

    /// False if the task is runnable.
    bool is_waiting = true;
};

/// The outcome of a run.
struct simulation_report {
    std::uint64_t seed = 0;               ///< The seed of the scheduler.
    std::uint64_t steps = 0;              ///< The number of steps since the scheduler was made.
    std::chrono::nanoseconds time{0};     ///< The simulated time since the scheduler was made.
    std::vector<unfinished_task> tasks{}; ///< The tasks that have not ended, the oldest first.

    /// Returns whether all tasks have ended.
    bool all_ended() const noexcept { return tasks.empty(); }

    /// Returns the report as text, with a line for each of the first 50 tasks.
    /// Throws: std::bad_alloc.
    std::string text() const {
        constexpr std::size_t most = 50;
        std::string out = "seed " + std::to_string(seed) + ", step " + std::to_string(steps) +
                          ", time " + std::to_string(time.count()) + " ns, " +
                          std::to_string(tasks.size()) +
                          (tasks.size() == 1 ? " task left" : " tasks left");
        for (std::size_t i = 0; i < std::min(most, tasks.size()); ++i) {
            const unfinished_task& t = tasks[i];
            out += "\n  task " + std::to_string(t.number);
            out += t.name.empty() ? "" : " '" + t.name + "'";
            out += !t.is_waiting         ? " is runnable"
                   : t.waits_for.empty() ? " waits"
                                         : " waits for " + t.waits_for;
        }
        if (tasks.size() > most) {
            out += "\n  and " + std::to_string(tasks.size() - most) + " more";
        }
        return out;
    }
};

/// Says that a run cannot continue. what() contains the reason, the seed, the number of steps, and
/// the tasks that have not ended.
class BIDE_SHARED simulation_error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Says that a task waits for ever: no task is runnable, and no timer is armed.
class stuck_error : public simulation_error {
public:
    using simulation_error::simulation_error;
};

}}} // namespace bide::BIDE_ABI::test

#endif
