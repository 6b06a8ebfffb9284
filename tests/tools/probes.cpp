// Reaches each probe of BIDE_USDT: probes_test.sh.

#define BIDE_USDT 1

#include "../support/standard.hpp"

#include <bide/bide.hpp>
#include <bide/core/callback_wait.hpp>
#include <bide/sched/report.hpp>

bide::semaphore permits(0);
bide::adaptive_mutex adaptive;
bide::event never_set;
bide::condition_variable changed;
bide::notify told;
bide::once_flag once;
bide::keyed_mutex<int> keys;
bide::object_pool<int> lent_objects({.limit = 1}, [] { return 1; });

bide::task<int> probed() {
    const bide::permit one = co_await permits.async_acquire();
    co_return 1;
}
bide::task<> stopped() { static_cast<void>(co_await never_set.async_wait().as_result()); }
bide::task<> await_change() {
    bide::mutex m;
    auto held = co_await m.async_lock();
    const auto is_true = [of = &m] { return of == nullptr; };
    static_cast<void>(co_await changed.async_wait(held, is_true).as_result());
}
// A wait by a callback.
template <class T> void wait_in_vain(bide::async_op<T> op) {
    bide::callback_wait<T> wait(bide::waker{});
    wait.begin(std::move(op));
    wait.cancel();
}
bide::task<> lock() { const auto held = co_await adaptive.async_lock(); }

// Returns true if the thread that runs the loop sleeps, or is about to.
bool is_asleep(bide::run_loop& loop) {
    char* text = nullptr;
    std::size_t size = 0;
    std::FILE* const memory = ::open_memstream(&text, &size);
    dump(loop, memory);
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

    // Each wait names its primitive.
    auto condition = loop.spawn(await_change());
    loop.poll();
    condition.cancel();
    loop.run();
    static_cast<void>(bide::notify::listener(told).wait_for(std::chrono::milliseconds(1)));
    wait_in_vain(told.async_wait());
    const auto turn = once.begin();
    wait_in_vain(once.async_begin());
    const auto key = keys.lock(1);
    wait_in_vain(keys.async_lock(1));
    const auto borrowed = lent_objects.acquire();
    wait_in_vain(lent_objects.async_acquire());

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
