#include <bide/sched/scheduler.hpp>
#include <bide/task/task.hpp>

namespace {

bide::task<> run() { co_return; }

} // namespace

int main() {
    bide::scheduler workers;
    workers.spawn(run()).join();
}
