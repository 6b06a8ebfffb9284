// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TEST_DETAIL_STEP_ORDER_HPP
#define BIDE_TEST_DETAIL_STEP_ORDER_HPP

// Chooses which runnable runs next (test/detail/simulation.hpp), and where a task is interrupted.
//
// A task yields when its budget of operations is spent (core/wake_scope.hpp), even after an
// operation that completes at once. The budgets here are much smaller than usual. So another task
// may run between any two operations.
//
// task_order::priorities works as in PCT (test/simulation.hpp cites the paper). Each task gets a
// random priority when it is spawned. The runnable task with the highest priority runs. A change
// point has the number of a step, and a priority below those of all tasks. At that step, the task
// that is about to run gets the priority of the change point, and the next task is chosen again.
// The step numbers are drawn independently of the order of these priorities. So if change points
// have lowered two tasks, either of them may run first.
//
// A task that yields again and again gets a priority below all others. Otherwise a loop that waits
// for another task by yielding would run for ever. Each run draws the number of yields after which
// a task gets that priority: 16, 32, 64 and so on up to 1,024.
//
// With switch_places::operations, a task also has switch points between its operations. With
// task_order::random, each run draws the chance that a task is interrupted there: 1/2, 1/4, 1/8 or
// 1/16. So some runs interleave closely, and others let a task run for a while. With
// task_order::priorities, a switch point has the number of a step, so a change point may lie there.
// A task that passes many switch points in a row gets a priority below all others, as one that
// yields.
//
// Some runnables belong to no task: the timer, a child of when_all(), and a coroutine that runs
// outside of all tasks. They get a new random priority at each step.

#include <bide/task/retry.hpp>
#include <bide/test/simulation.hpp>

namespace bide { inline namespace BIDE_ABI { namespace test::detail {

class step_order {
public:
    step_order(const simulation_options& how, bide::detail::seeded_random& random)
        : kind_(how.order), random_(random) {
        if (kind_ == task_order::priorities) {
            lowest_ -= how.change_points;
            for (unsigned i = 0; i < how.change_points; ++i) {
                const std::uint64_t steps = std::max<std::uint64_t>(how.expected_steps, 1);
                changes_.push_back({1 + random_.below(steps), lowest_ + i});
            }
            most_yields_ <<= std::countr_zero(random_.bits() | 64);
        }
        if (kind_ == task_order::random && how.switches == switch_places::operations) {
            rarity_ = (std::uint64_t{2} << random_.below(4)) - 1;
        }
    }

    std::uint64_t first_priority() noexcept {
        return kind_ == task_order::priorities ? random_priority() : 0;
    }

    std::uint64_t lowest_priority() noexcept { return --lowest_; }

    // Called when a task yields after it has run `runs` times in a row. Each of the two functions
    // returns true if the task probably waits for another task. The task must then get a priority
    // below all others. is_polling() is for a task that calls yield(). is_endless() is for a task
    // whose budget is spent. Such a task may just have much work, so is_endless() has the higher
    // limit.
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

    // Decides at a switch point whether the task that runs is interrupted. `step` is the number of
    // the switch point, and `points` counts the points since the task was last chosen. `mine` points
    // to the priority of the task, or is nullptr. The other parameters are those of choose(), for
    // the other runnables and the timer.
    template <class Priority>
    bool interrupts(std::uint64_t step, std::uint64_t points, std::uint64_t* mine,
                    std::size_t count, Priority&& priority) {
        switch (kind_) {
        case task_order::random: return count != 0 && (random_.bits() & rarity_) == 0;
        case task_order::priorities: break;
        case task_order::fifo: return false;
        }
        for (const change_point& change : changes_) {
            if (change.step == step && mine != nullptr) {
                *mine = change.priority;
            }
        }
        if (is_endless(points) && mine != nullptr) {
            *mine = lowest_priority();
            return true;
        }
        const std::uint64_t my_priority = mine != nullptr ? *mine : random_priority();
        std::uint64_t most = 0;
        static_cast<void>(highest(count, priority, most));
        return most > my_priority;
    }

    // Returns the maximum number of due timers that are skipped before a timer fires. With
    // task_order::fifo, this is 0. Otherwise it is 0 with the probability 1/2, 1 with the
    // probability 1/4, and so on.
    unsigned skipped_timers() noexcept {
        return kind_ == task_order::fifo
                   ? 0
                   : static_cast<unsigned>(std::countr_zero(random_.bits() | longest_run));
    }

    // Chooses one of `count` runnables and timers, and returns its index. priority(i) returns a
    // pointer to the priority at index i, which this function may lower. If that pointer is
    // nullptr, there is no priority at index i.
    template <class Priority>
    std::size_t choose(std::uint64_t step, std::size_t count, Priority&& priority) {
        if (kind_ == task_order::random) {
            return count > 1 ? static_cast<std::size_t>(random_.below(count)) : 0;
        }
        if (kind_ == task_order::fifo) {
            return 0;
        }
        std::uint64_t most = 0;
        std::size_t best = highest(count, priority, most);
        for (const change_point& change : changes_) {
            if (change.step == step) {
                if (std::uint64_t* const of = priority(best)) {
                    *of = change.priority;
                }
                best = highest(count, priority, most);
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

    // Returns the index of the highest priority, and sets `most` to that priority.
    template <class Priority>
    std::size_t highest(std::size_t count, Priority&& priority, std::uint64_t& most) {
        std::size_t best = 0;
        most = 0;
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
    bide::detail::seeded_random& random_;
    std::vector<change_point> changes_;
    std::uint64_t lowest_ = least_random;
    std::uint64_t most_yields_ = 16;
    // For task_order::random: a task is interrupted at one of `rarity_ + 1` switch points. The
    // number is a power of two.
    std::uint64_t rarity_ = 0;
};

}}} // namespace bide::BIDE_ABI::test::detail

#endif
