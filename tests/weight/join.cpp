// The outermost join() of a thread that is no worker.

#include "entered.hpp"

#include <bide/parallel/fork_join.hpp>
#include <bide/sched/scheduler.hpp>

#include <chrono>
#include <thread>

int main() {
    bide::scheduler workers;
    int first = 0;
    int second = 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(200)); // until the workers sleep
    weight::begin();
    bide::join(workers, [&] { first = 1; }, [&] { second = 1; });
    weight::end();
    return first + second == 2 ? 0 : 1;
}
