// One thread, inside a coroutine: what co_await adds to a lock that is free.

#include "support/batch_timer.hpp"
#include "support/cpus.hpp"
#include "support/isolated.hpp"
#include "sync/peers.hpp"
#include "sync/workloads.hpp"

#include <bide/task/task.hpp>

#include <chrono>
#include <mutex>
#include <utility>

namespace bench {
namespace {

// All batches in one coroutine: neither its frame nor its start is measured.
bide::task<double> lock_and_unlock(bide::mutex& mutex, std::chrono::nanoseconds duration) {
    batch_timer timer(duration);
    do {
        for (int i = 0; i < calls_per_batch; ++i) {
            const auto lock = co_await mutex.async_lock();
        }
    } while (timer.batch_done());
    co_return timer.ns_per_call();
}

bide::task<double> acquire_and_release(bide::semaphore& semaphore,
                                       std::chrono::nanoseconds duration) {
    batch_timer timer(duration);
    do {
        for (int i = 0; i < calls_per_batch; ++i) {
            const auto permit = co_await semaphore.async_acquire();
        }
    } while (timer.batch_done());
    co_return timer.ns_per_call();
}

sample in_coroutine(const setting& with, bide::mutex& mutex) {
    const scoped_affinity pinned({with.cpus.front()});
    return {bide::sync_wait(lock_and_unlock(mutex, with.duration))};
}

sample in_coroutine(const setting& with, bide::semaphore& semaphore) {
    const scoped_affinity pinned({with.cpus.front()});
    return {bide::sync_wait(acquire_and_release(semaphore, with.duration))};
}

template <class Mutex> sample in_thread(const setting& with) {
    const scoped_affinity pinned({with.cpus.front()});
    isolated<lock_of<Mutex>> lock;
    return {ns_per_call(with.duration, [&] { lock.subject.locked([] {}); })};
}

} // namespace

void add_coroutine(harness& h) {
    const setting with = h.make_setting(50, 15);
    table t{"uncontended/coroutine",
            "lock and unlock, one thread; the last two inside a coroutine",
            {{"pair", "ns", 2, true}},
            {}};
    t.add("std::mutex", [with] { return in_thread<std::mutex>(with); });
    t.add("bide::mutex", [with] { return in_thread<bide::mutex>(with); });
    t.add("bide::mutex, async_lock", [with] {
        isolated<bide::mutex> mutex;
        return in_coroutine(with, mutex.subject);
    });
    t.add("bide::semaphore, async_acquire", [with] {
        isolated<bide::semaphore> semaphore(1u);
        return in_coroutine(with, semaphore.subject);
    });
    h.add(std::move(t));
}

} // namespace bench
