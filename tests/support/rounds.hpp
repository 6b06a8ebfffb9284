#ifndef BIDE_TESTS_SUPPORT_ROUNDS_HPP
#define BIDE_TESTS_SUPPORT_ROUNDS_HPP

// What stress tests that run in rounds have in common.

#include <bide/core/errc.hpp>
#include <bide/task/join_handle.hpp>
#include <support/jitter.hpp>
#include <support/stress.hpp>
#include <support/test.hpp>

namespace test {

// A seed that differs from `what` to `what` and from run to run.
inline std::uint32_t seed_of(std::uint64_t what) {
    return run_seed() + static_cast<std::uint32_t>(what);
}

// Runs f(0), f(1) and so on until the time is over, f(0) in any case.
template <class F> void rounds(F f) {
    const stress_time time;
    for (std::uint32_t round = 0; time.is_left(); ++round) {
        f(round);
    }
}

// Waits until a task has ended, which may have been cancelled. True: it ended by stopped_error.
template <class T> bool ended_by_stop(bide::join_handle<T> of) {
    try {
        static_cast<void>(std::move(of).join());
        return false;
    } catch (const bide::stopped_error&) {
        return true;
    }
}

} // namespace test

#endif
