// parallel_for() of a thread that is no worker, long enough to be divided.

#include "entered.hpp"

#include <bide/parallel/parallel_for.hpp>
#include <bide/sched/scheduler.hpp>

#include <chrono>
#include <thread>
#include <vector>

int main() {
    bide::scheduler workers;
    std::vector<char> marks(1000000);
    std::this_thread::sleep_for(std::chrono::milliseconds(200)); // until the workers sleep
    weight::begin();
    bide::parallel_for(workers, 0, 1000000, [mark = marks.data()](int i) { mark[i] = 1; });
    weight::end();
    return marks.back() == 1 ? 0 : 1;
}
