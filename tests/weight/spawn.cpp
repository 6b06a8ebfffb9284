// A scheduler's spawn(), on a thread that is no worker, until the task runs.

#include "entered.hpp"

#include <bide/sched/scheduler.hpp>
#include <bide/task/task.hpp>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

namespace {

bide::task<> run(std::atomic<bool>& runs) {
    weight::end();
    runs.store(true);
    runs.notify_one();
    co_return;
}

} // namespace

int main() {
    bide::scheduler workers;
    std::atomic<bool> runs{false};
    std::this_thread::sleep_for(std::chrono::milliseconds(200)); // until the workers sleep
    weight::begin();
    auto handle = workers.spawn(run(runs));
    runs.wait(false);
    std::move(handle).join();
}
