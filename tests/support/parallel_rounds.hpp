#ifndef BIDE_TESTS_SUPPORT_PARALLEL_ROUNDS_HPP
#define BIDE_TESTS_SUPPORT_PARALLEL_ROUNDS_HPP

// The rounds in which tests compare parallel algorithms with serial ones.

#include <bide/parallel/fork_policy.hpp>
#include <bide/sched/scheduler.hpp>
#include <support/forking.hpp>
#include <support/jitter.hpp>
#include <support/scheduling.hpp>
#include <support/test.hpp>

namespace test {

// Calls f(policy, n) in 30 rounds each on 1, 2, 4 and 16 workers, with a grain or without: first for
// each n below `small`, then for n of less than 2^(bits - 1), small ones as often as large ones.
template <class F> void on_all_workers(jitter& chance, int small, std::uint32_t bits, const F& f) {
    for (const unsigned workers : {1u, 2u, 4u, 16u}) {
        bide::scheduler s(with(workers, true));
        for (int round = 0; round < 30; ++round) {
            const std::size_t n = round < small ? static_cast<std::size_t>(round)
                                                : chance.below(1u << chance.below(bits));
            const bide::fork_policy on(
                s, {.grain = chance.below(2) == 0 ? 0 : std::size_t{chance.below(200)}});
            INFO(workers << " workers, " << n << " elements, grain " << on.options().grain);
            f(on, n);
        }
    }
}

// One run over n elements on forks by chance, in which the calls for the elements `first` and `second`
// throw, if there are that many elements.
struct chance_run {
    chance_run(jitter& chance, int round)
        : n(static_cast<int>(chance.below(1u << chance.below(12)))),
          script(run_seed() + static_cast<unsigned>(round)),
          options{.grain = std::size_t{chance.below(40)}, .yield_to_tasks = true},
          first(static_cast<int>(chance.below(2 * static_cast<unsigned>(n) + 1))),
          second(first + static_cast<int>(chance.below(100))) {
        script.thieves = chance.below(5);
        script.hunger = chance.below(5);
    }
    // Of eight runs, one has memory for a few forks only.
    void may_lack_memory(jitter& chance) {
        is_out_of_memory = chance.below(8) == 0;
        script.last_fork = is_out_of_memory ? static_cast<int>(chance.below(20)) : 1 << 30;
    }

    forks_policy<chance_forks> policy() { return by_chance(script, options); }

    int n;
    chance_forks::script script;
    bide::fork_options options;
    int first;
    int second;
    bool is_out_of_memory = false;
};

} // namespace test

#endif
