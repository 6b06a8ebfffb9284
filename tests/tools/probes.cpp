// Reaches each probe of BIDE_USDT: probes_test.sh.

#define BIDE_USDT 1

#include "../support/standard.hpp"

#include <bide/bide.hpp>

bide::semaphore permits(0);
bide::adaptive_mutex adaptive;
bide::event never_set;

bide::task<int> probed() {
    const bide::permit one = co_await permits.async_acquire();
    co_return 1;
}
bide::task<> stopped() { static_cast<void>(co_await never_set.async_wait().as_result()); }
bide::task<> lock() { const auto held = co_await adaptive.async_lock(); }

// Returns true if the thread that runs the loop sleeps, or is about to.
bool is_asleep(bide::run_loop& loop) {
    char* text = nullptr;
    std::size_t size = 0;
    std::FILE* const memory = ::open_memstream(&text, &size);
    loop.dump(memory);
    std::fclose(memory);
    const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
    return std::strstr(text, "state: asleep") != nullptr;
}

int main() {
    // A thread waits, and is handed a permit.
    std::jthread waiter([] { permits.acquire(); });
    while (permits.waiters() != 1) {
        std::this_thread::yield();
    }
    permits.release();
    waiter.join();

    // A task waits, and the loop sleeps until another thread hands the task a permit.
    bide::run_loop loop;
    auto handle = loop.spawn(probed().named("probed"));
    std::jthread releaser([&] {
        while (!is_asleep(loop)) {
            std::this_thread::yield();
        }
        permits.release();
    });
    loop.run();
    releaser.join();

    // A cancelled wait.
    auto cancelled = loop.spawn(stopped());
    loop.poll();
    cancelled.cancel();
    loop.run();

    // A task that is handed a mutex.
    adaptive.lock();
    auto locks = loop.spawn(lock());
    loop.poll();
    adaptive.unlock();
    loop.run();

    // A thread that leaves the queue at its deadline.
    const bool timed_out = !permits.try_acquire_for(std::chrono::milliseconds(1), 2);
    return timed_out && std::move(handle).join() == 1 ? 0 : 1;
}
