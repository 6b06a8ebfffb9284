// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TEST_DETAIL_STEP_ORDER_HPP
#define BIDE_TEST_DETAIL_STEP_ORDER_HPP

// Chooses among what is runnable (test/simulation_options.hpp).
//
// Priorities, as in PCT: each task has a random priority from its spawn on, and the runnable task with
// the highest one runs. At each change point, the task that is about to run gets a priority below all
// others, and the next task is chosen anew. A task that yields 16 times in a row also gets the lowest
// priority: a loop that waits for another task by yielding would run for ever otherwise. What belongs to
// no task has a new random priority at each step: the timer, a child of when_all(), a coroutine that
// stands alone.

#include <bide/core/config.hpp>
#include <bide/test/detail/seeded_random.hpp>
#include <bide/test/simulation_options.hpp>

#include <algorithm>
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
            for (unsigned i = 0; i < how.change_points; ++i) {
                changes_.push_back(1 +
                                   random_.below(std::max<std::uint64_t>(how.expected_steps, 1)));
            }
        }
    }

    // Returns the priority of a new task.
    std::uint64_t first_priority() noexcept {
        return kind_ == task_order::priorities ? random_priority() : 0;
    }

    // Returns a priority below all others.
    std::uint64_t lowest_priority() noexcept { return --lowest_; }

    // Chooses one of the first `count` places. priority(i) returns a reference to the priority of a place,
    // which the order may lower, or nullptr.
    template <class Priority>
    std::size_t choose(std::uint64_t step, std::size_t count, Priority&& priority) {
        if (kind_ == task_order::random) {
            return count > 1 ? static_cast<std::size_t>(random_.below(count)) : 0;
        }
        if (kind_ == task_order::fifo) {
            return 0;
        }
        std::size_t best = highest(count, priority);
        for (auto at = std::find(changes_.begin(), changes_.end(), step); at != changes_.end();
             at = std::find(changes_.begin(), changes_.end(), step)) {
            changes_.erase(at);
            if (std::uint64_t* const of = priority(best)) {
                *of = lowest_priority();
            }
            best = highest(count, priority);
        }
        return best;
    }

private:
    static constexpr std::uint64_t least_random = std::uint64_t{1} << 32;

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
    std::vector<std::uint64_t> changes_; // the steps of the change points
    std::uint64_t lowest_ = least_random;
};

} // namespace test::detail
} // namespace bide::inline BIDE_ABI

#endif
