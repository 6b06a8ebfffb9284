#ifndef BIDE_TESTS_SUPPORT_SIMULATED_HPP
#define BIDE_TESTS_SUPPORT_SIMULATED_HPP

// Simulated time for tests of times: a wait ends at its exact time, and takes none.

#include <bide/test/scheduler.hpp>

namespace test {

// Runs tasks in the order in which they become runnable. While it exists, the clock of this thread is
// simulated, also for sync_wait().
class simulated : public bide::test::scheduler {
public:
    simulated() : scheduler(in_order()) {}

private:
    static bide::test::simulation_options in_order() {
        bide::test::simulation_options how;
        how.order = bide::test::task_order::fifo;
        return how;
    }
};

} // namespace test

#endif
