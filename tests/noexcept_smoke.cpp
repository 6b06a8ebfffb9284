// Compiled with -fno-exceptions -fno-rtti, and run: threads and coroutines wait for each other.

#include <bide/bide.hpp>
#include <bide/io.hpp>
#include <bide/parallel.hpp>
#include <bide/sched/chrome_trace.hpp>
#include <bide/sched/join_map.hpp>
#include <bide/sched/single_flight.hpp>
#include <bide/stream.hpp>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace {

int failures = 0;

void check(bool good, const char* what) {
    if (!good) {
        std::printf("not so: %s\n", what);
        ++failures;
    }
}

bide::task<int> acquire_both(bide::semaphore& semaphore, bide::mutex& mutex) {
    auto permit = co_await semaphore.async_acquire(2);
    auto lock = co_await mutex.async_lock();
    const auto late = co_await semaphore.async_acquire().with_timeout(std::chrono::milliseconds(1));
    co_return lock.owns_lock() && !late ? static_cast<int>(permit.count()) : -1;
}

bide::task<bool> wait_until_ready(bide::mutex& mutex, bide::condition_variable& changed,
                                  bool& ready) {
    auto lock = co_await mutex.async_lock();
    const auto is_ready = [&ready] { return ready; };
    const auto got =
        co_await changed.async_wait(lock, is_ready).with_timeout(std::chrono::hours(1));
    co_return got.has_value() && lock.owns_lock() && ready;
}

bide::task<int> one_late() {
    co_await bide::this_task::sleep_for(std::chrono::milliseconds(1));
    co_return 1;
}

bide::task<int> sum_of_three(bide::scheduler& s) {
    auto first = s.spawn([] { return 1; });
    auto others = co_await bide::when_all(one_late(), one_late());
    const int mine = co_await std::move(first).async_join();
    co_return mine + std::get<0>(others) + std::get<1>(others);
}

bide::task<bool> waits_for_ever(bide::semaphore& never) {
    co_return (co_await never.async_acquire().as_result()).has_value();
}

bide::task<int> joins_by_key(bide::scheduler& s, bide::semaphore& never) {
    bide::join_map<int, int> map(s);
    map.spawn(1, one_late());
    const auto waits = [&never]() -> bide::task<int> {
        const auto got = co_await never.async_acquire().as_result();
        co_return got ? 1 : 10;
    };
    map.spawn(2, waits);
    while (never.waiters() == 0) {
        co_await bide::this_task::yield();
    }
    map.cancel(2);
    int sum = 0;
    for (int i = 0; i < 2; ++i) {
        const auto next = co_await map.async_join_next();
        sum += next->second.value_or(100);
    }
    bide::single_flight<int, int> flights(s);
    const auto outcome = co_await bide::as_outcome(flights.async_run(1, one_late()));
    co_return sum + outcome.value_or(100);
}

bide::async_generator<int> numbers(bide::semaphore& one, int last) {
    for (int i = 1; i <= last; ++i) {
        const auto permit = co_await one.async_acquire();
        co_yield i;
    }
}
bide::task<int> sum_of_streams(bide::scheduler& s, bide::semaphore& one) {
    auto doubled = bide::map(numbers(one, 10), [](int n) -> bide::task<int> { co_return 2 * n; });
    auto merged = bide::merge(s, bide::buffered(s, std::move(doubled), 2), numbers(one, 5));
    auto chunks = bide::chunks(std::move(merged), 4, std::chrono::milliseconds(1));
    int sum = 0;
    while (auto chunk = co_await chunks.next()) {
        for (const int n : *chunk) {
            sum += n;
        }
    }
    co_return sum;
}

int fib(bide::scheduler& s, int n) {
    if (n < 2) {
        return n;
    }
    const auto [a, b] =
        bide::join(s, [&s, n] { return fib(s, n - 1); }, [&s, n] { return fib(s, n - 2); });
    return a + b;
}

bool sorts(bide::scheduler& s) {
    std::vector<int> numbers(10'000);
    bide::parallel_for(
        s, 0, 10'000, [&numbers](int i) { numbers[static_cast<std::size_t>(i)] = i * 7 % 10'000; });
    bide::parallel_sort(s, numbers.begin(), numbers.end());
    return bide::parallel_reduce(
        s, std::size_t{0}, numbers.size(), true,
        [&numbers](std::size_t i) { return numbers[i] == static_cast<int>(i); },
        [](bool a, bool b) { return a && b; });
}

bool runs_graph(bide::scheduler& s) {
    int calls = 0;
    bide::task_graph graph;
    const auto first = graph.add("first", [&calls] { ++calls; });
    const auto second = graph.add("second", [&calls]() -> bide::task<> {
        ++calls;
        co_return;
    });
    const auto again = graph.add_condition([&calls] { return calls < 5 ? 0 : 1; });
    const auto below = graph.add([&calls](bide::task_graph& g) { g.add([&calls] { ++calls; }); });
    first.precede(second);
    second.precede(again);
    again.precede(second, below);
    graph.run(s, {.limit = 2});
    sync_wait(s, graph.async_run(s));
    return calls == 9 && !graph.to_dot().empty();
}

} // namespace

int main() {
    bide::semaphore semaphore(0);
    bide::mutex mutex;
    std::thread releaser([&] {
        semaphore.release();
        const std::lock_guard held(mutex);
        semaphore.release();
    });
    check(bide::sync_wait(acquire_both(semaphore, mutex)) == 2, "a coroutine gets two permits");
    releaser.join();
    check(semaphore.available() == 2, "the permits come back");

    bide::shared_mutex shared;
    const std::shared_lock reader(shared, std::try_to_lock);
    const std::unique_lock writer(shared, std::try_to_lock);
    check(reader && !writer, "a reader keeps a writer out");

    bide::synchronized_value<int> guarded(1);
    check(guarded.with([](int& number) { return ++number; }) == 2,
          "a value is reached under its lock");

    bide::condition_variable changed;
    bool ready = false;
    std::thread notifier([&] {
        const std::lock_guard held(mutex);
        ready = true;
        changed.notify_all();
    });
    check(bide::sync_wait(wait_until_ready(mutex, changed, ready)), "a coroutine is notified");
    {
        std::unique_lock held(mutex);
        changed.wait(held, [&] { return ready; });
        check(!changed.wait_for(held, std::chrono::microseconds(1)), "a condition is waited for");
    }
    notifier.join();

    bide::notify notify;
    bide::notify::listener listener(notify);
    notify.notify_all();
    check(listener.wait_for(std::chrono::seconds(0)) && !notify.try_wait(), "a listener listens");

    bide::semaphore never(0);
    bide::scheduler scheduler({.num_workers = 2});
    check(sync_wait(scheduler, sum_of_three(scheduler)) == 3, "tasks are joined");
    bide::semaphore one(1);
    check(sync_wait(scheduler, sum_of_streams(scheduler, one)) == 125, "streams end");
    check(fib(scheduler, 15) == 610, "arms are joined");
    check(sorts(scheduler), "loops and sorts do what they say");
    check(runs_graph(scheduler), "a graph runs twice");
    check(sync_wait(scheduler, joins_by_key(scheduler, never)) == 12, "a child is cancelled alone");
    auto waiting = scheduler.spawn(waits_for_ever(never));
    while (never.waiters() == 0) {
        std::this_thread::yield();
    }
    waiting.cancel();
    check(!std::move(waiting).join(), "a cancelled wait says so");
    scheduler.shutdown();

    check(semaphore.close(), "closing is done once");
    check(!semaphore.try_acquire(), "nothing is acquired after closing");
    return failures == 0 ? 0 : 1;
}
