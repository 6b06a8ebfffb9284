// Half of a program whose halves use two versions of the library. It is compiled twice: SIDE is the name
// of its function, VERSION the version that its headers must have.

#include <bide/channel/channel.hpp>
#include <bide/channel/select.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/task.hpp>
#include <bide/version.hpp>

#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

static_assert(BIDE_VERSION_MINOR == VERSION, "these are the headers of the other version");

using namespace std::chrono_literals;

namespace SIDE {

constexpr int rounds = 100;

bide::task<int> count(bide::semaphore& permits, bide::mutex& lock, int& total, int (*inside)()) {
    for (int i = 0; i < rounds; ++i) {
        const bide::permit one = co_await permits.async_acquire();
        const std::unique_lock held = co_await lock.async_lock();
        ++total;
    }
    co_return inside == nullptr ? 0 : inside(); // the other half, on a worker of this one
}

int run(int (*inside)()) {
    bide::semaphore permits(2);
    bide::mutex lock;
    int total = 0;
    bide::scheduler_options options;
    options.num_workers = 2;
    bide::scheduler workers(options);
    auto task = workers.spawn(count(permits, lock, total, nullptr));
    auto other = workers.spawn(count(permits, lock, total, inside));

    bide::channel<int> items(1);
    std::thread sender([&items] {
        for (int i = 0; i < rounds; ++i) {
            if (!items.send(i))
                return;
        }
        items.close();
    });
    int received = 0;
    while (items.recv()) {
        ++received;
    }
    sender.join();

    bide::semaphore none(0);
    const bool timed_out = !none.try_acquire_for(1ms);
    const bool selected = bide::select(bide::on_recv(items), bide::on_timeout(10s)).index() == 0;

    const int failed = std::move(task).join() + std::move(other).join();
    const std::lock_guard held(lock);
    return total == 2 * rounds && received == rounds && timed_out && selected ? failed : 1;
}

} // namespace SIDE

int SIDE_NAME(int (*inside)()) { return SIDE::run(inside); }
