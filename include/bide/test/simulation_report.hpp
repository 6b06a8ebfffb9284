// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TEST_SIMULATION_REPORT_HPP
#define BIDE_TEST_SIMULATION_REPORT_HPP

#include <bide/core/config.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace test {

/// A task that has not ended.
struct unfinished_task {
    /// Counts the tasks of the scheduler from 1 on, in the order in which they were spawned.
    std::uint64_t number = 0;

    /// The name of the task (task::named(), this_task::set_name()); "" if it has none.
    std::string name{};

    /// What the task waits for, such as "mutex 'accounts', held by task 'writer'". This text is "",
    /// unless the program is built with BIDE_DEADLOCK_CHECK (core/deadlock_check.hpp) and that
    /// check has a note of the wait.
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
