// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TEST_DETAIL_STEP_ORDER_HPP
#define BIDE_TEST_DETAIL_STEP_ORDER_HPP

// Chooses among what is runnable (test/simulation_options.hpp), and where a task is interrupted.
//
// A task yields after some operations that need not wait: as if its budget was spent
// (core/detail/worker_host.hpp), but much earlier. So another task may run between any two operations.
//
// Priorities, as in PCT: each task has a random priority from its spawn on, and the runnable task with
// the highest one runs. Each change point has a step and a priority below those of all tasks: at that
// step, the task that is about to run gets that priority, and the next task is chosen anew. The steps
// are drawn independently of the order of these priorities. So of two tasks that were lowered, either
// one may go on first. A task that yields again and again gets a priority below all others: a loop that
// waits for another task by yielding would run for ever otherwise. How often it may is drawn for each
// run, so that a switch may come after any number of yields. What belongs to no task has a new
// random priority at each step: the timer, a child of when_all(), a coroutine that stands alone.

#include <bide/core/config.hpp>
#include <bide/core/detail/worker_host.hpp>
#include <bide/core/platform.hpp>
#include <bide/test/detail/seeded_random.hpp>
#include <bide/test/simulation_options.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace bide::inline BIDE_ABI {
namespace test::detail {

class step_order {
public:
    step_order(const simulation_options& how, seeded_random& random)
        : kind_(how.order), random_(random) {
        if (kind_ == task_order::priorities) {
            lowest_ -= how.change_points;
            for (unsigned i = 0; i < how.change_points; ++i) {
                const std::uint64_t steps = std::max<std::uint64_t>(how.expected_steps, 1);
                changes_.push_back({1 + random_.below(steps), lowest_ + i});
            }
            most_yields_ <<= std::countr_zero(random_.bits() | 64);
        }
    }

    // Returns the priority of a new task.
    std::uint64_t first_priority() noexcept {
        return kind_ == task_order::priorities ? random_priority() : 0;
    }

    // Returns a priority below all others.
    std::uint64_t lowest_priority() noexcept { return --lowest_; }

    // Return whether a task waits for another one, if it has run so many times in a row and yields. One
    // that is made to yield may only have much to do.
    bool is_polling(std::uint64_t runs) const noexcept { return runs >= most_yields_; }
    bool is_endless(std::uint64_t runs) const noexcept { return runs >= 8 * most_yields_; }

    // Returns the budget of the next step (worker_local::budget).
    unsigned budget() noexcept {
        switch (kind_) {
        case task_order::random: // half of the operations yield first
            return 1 + static_cast<unsigned>(std::countr_zero(random_.bits() | longest_run));
        case task_order::priorities: return 1; // each operation is a step
        case task_order::fifo: break;
        }
        return worker_local<native_platform>::whole_budget;
    }

    // Returns how many of the timers that are due the next one passes over at most. Half of the time it
    // is the first one, else half of the time the second one, and so on.
    unsigned skipped_timers() noexcept {
        return kind_ == task_order::fifo
                   ? 0
                   : static_cast<unsigned>(std::countr_zero(random_.bits() | longest_run));
    }

    // Chooses one of the first `count` places. priority(i) points to the priority of a place, which the
    // order may lower; nullptr: the place has none.
    template <class Priority>
    std::size_t choose(std::uint64_t step, std::size_t count, Priority&& priority) {
        if (kind_ == task_order::random) {
            return count > 1 ? static_cast<std::size_t>(random_.below(count)) : 0;
        }
        if (kind_ == task_order::fifo) {
            return 0;
        }
        std::size_t best = highest(count, priority);
        for (const change_point& change : changes_) {
            if (change.step == step) {
                if (std::uint64_t* const of = priority(best)) {
                    *of = change.priority;
                }
                best = highest(count, priority);
            }
        }
        return best;
    }

private:
    struct change_point {
        std::uint64_t step;
        std::uint64_t priority;
    };

    static constexpr std::uint64_t least_random = std::uint64_t{1} << 63;
    static constexpr std::uint64_t longest_run = std::uint64_t{1} << 16; // limits a count of zeros

    std::uint64_t random_priority() noexcept { return least_random + (random_.bits() >> 1); }

    template <class Priority> std::size_t highest(std::size_t count, Priority&& priority) {
        std::size_t best = 0;
        std::uint64_t most = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const std::uint64_t* const of = priority(i);
            const std::uint64_t mine = of != nullptr ? *of : random_priority();
            if (mine > most) {
                most = mine;
                best = i;
            }
        }
        return best;
    }

    const task_order kind_;
    seeded_random& random_;
    std::vector<change_point> changes_;
    std::uint64_t lowest_ = least_random;
    std::uint64_t most_yields_ = 16;
};

} // namespace test::detail
} // namespace bide::inline BIDE_ABI

#endif
