// What the parts cost by themselves: nothing here waits, and nothing is contended. What needs threads and
// peers is in bench/sync.

#include "support/bench.hpp"

#include <bide/core/lock_bits.hpp>
#include <bide/core/parker.hpp>
#include <bide/core/ready_queue.hpp>
#include <bide/core/waiter.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/latch.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/task/task.hpp>

#include <benchmark/benchmark.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <semaphore>

namespace {

using platform = bide::native_platform;

// ---- A token to and from oneself

void binary_semaphore_token(benchmark::State& state) {
    std::binary_semaphore token(0);
    for (auto _ : state) {
        token.release();
        token.acquire();
    }
}
BENCHMARK(binary_semaphore_token);

void parker_token(benchmark::State& state) {
    bide::parker token;
    for (auto _ : state) {
        token.unpark();
        token.park();
    }
}
BENCHMARK(parker_token);

// ---- A notification without a waiter

void condition_variable_notify(benchmark::State& state) {
    std::mutex mutex;
    std::condition_variable changed;
    bool flag = false;
    for (auto _ : state) {
        {
            const std::lock_guard lock(mutex);
            flag = !flag;
        }
        changed.notify_one();
    }
}
BENCHMARK(condition_variable_notify);

void event_count_notify(benchmark::State& state) {
    bide::event_count changed;
    for (auto _ : state) {
        changed.notify_one();
    }
}
BENCHMARK(event_count_notify);

void event_set_and_reset(benchmark::State& state) {
    bide::event e;
    for (auto _ : state) {
        e.set();
        e.reset();
    }
}
BENCHMARK(event_set_and_reset);

// ---- Under a lock

void mutex_lock_unlock(benchmark::State& state) {
    std::mutex mutex;
    for (auto _ : state) {
        mutex.lock();
        mutex.unlock();
    }
}
BENCHMARK(mutex_lock_unlock);

void lock_bits_acquire_release(benchmark::State& state) {
    platform::atomic<std::uint64_t> word{0};
    using lock = bide::lock_bits<platform, std::uint64_t>;
    for (auto _ : state) {
        lock::acquire(word);
        lock::release(word);
    }
}
BENCHMARK(lock_bits_acquire_release);

void waiter_queue_push_pop(benchmark::State& state) {
    bide::basic_waiter_queue<platform> queue;
    std::array<bide::basic_waiter<platform>, 4> nodes;
    for (auto _ : state) {
        for (auto& node : nodes) {
            queue.push(node);
        }
        while (!queue.empty()) {
            benchmark::DoNotOptimize(&queue.pop());
        }
    }
    state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(nodes.size()));
}
BENCHMARK(waiter_queue_push_pop);

void semaphore_queue_and_cancel(benchmark::State& state) {
    bide::semaphore s(0);
    bide::semaphore::waiter w(1, bide::waker());
    for (auto _ : state) {
        s.acquire_wait(w);
        s.cancel_acquire(w);
    }
}
BENCHMARK(semaphore_queue_and_cancel);

void ready_queue_post_pop(benchmark::State& state) {
    bide::basic_ready_queue<platform> queue;
    bide::runnable r;
    for (auto _ : state) {
        queue.post(r);
        benchmark::DoNotOptimize(queue.pop(bide::deadline::poll()));
    }
}
BENCHMARK(ready_queue_post_pop);

// ---- Coroutines

bide::task<int> one() { co_return 1; }

bide::task<std::int64_t> await_many(std::int64_t n) {
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        sum += co_await one();
    }
    co_return sum;
}

void task_await_ready_child(benchmark::State& state) {
    constexpr std::int64_t batch = 1'000;
    for (auto _ : state) {
        benchmark::DoNotOptimize(bide::sync_wait(await_many(batch)));
    }
    state.SetItemsProcessed(state.iterations() * batch);
}
BENCHMARK(task_await_ready_child);

void task_sync_wait(benchmark::State& state) {
    for (auto _ : state) {
        benchmark::DoNotOptimize(bide::sync_wait(one()));
    }
}
BENCHMARK(task_sync_wait);

} // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [] {});
}
