// A store of which one lock guards the lists, as LevelDB has it: many threads, short sections, a
// condition, and a long holder now and then.
//   read    locks for a moment, looks up 1 us without the lock, and locks for a moment again
//   write   queues the writer, which waits on a condition of its own until it is the first. The first
//           writer writes 5 us without the lock for all that are queued by then, and notifies them
// Meanwhile another thread holds the lock for 50 us in each millisecond.

#include "support/bench.hpp"
#include "sync/peers.hpp"
#include "sync/work.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace bench {
namespace {

using namespace std::chrono_literals;

template <class Mutex, class Condition> class store {
public:
    void read() {
        section();
        compute(lookup_);
        section();
    }

    void write() {
        writer mine;
        std::unique_lock lock(mutex_.subject);
        writers_.push_back(&mine);
        mine.changed.wait(lock, [&] { return mine.is_done || writers_.front() == &mine; });
        if (mine.is_done) {
            return;
        }
        const std::size_t group = writers_.size();
        lock.unlock();
        compute(append_);
        lock.lock();
        for (std::size_t i = 0; i < group; ++i) {
            writer& one = *writers_.front();
            writers_.pop_front();
            if (&one != &mine) {
                one.is_done = true;
                one.changed.notify_one();
            }
        }
        if (!writers_.empty()) {
            writers_.front()->changed.notify_one();
        }
    }

    void hold() {
        const std::lock_guard lock(mutex_.subject);
        compute(install_);
    }

private:
    struct writer {
        Condition changed;
        bool is_done = false;
    };

    void section() {
        const std::lock_guard lock(mutex_.subject);
        compute(moment_);
    }

    const std::uint64_t moment_ = steps_lasting(30), lookup_ = steps_lasting(1'000),
                        append_ = steps_lasting(5'000), install_ = steps_lasting(50'000);
    isolated<Mutex> mutex_;
    std::deque<writer*> writers_; // guarded by mutex_
};

template <class Store> measured run_store(std::size_t threads, bool writes) {
    isolated<Store> of;
    isolated<std::atomic<bool>> over{false};
    const auto is_over = [&] { return over.subject.load(std::memory_order_relaxed); };
    std::vector<std::uint64_t> done(threads);
    std::chrono::duration<double, std::nano> elapsed{};
    const auto work = [&](std::size_t i) {
        std::uint64_t count = 0;
        for (; !is_over(); ++count) {
            writes ? of.subject.write() : of.subject.read();
        }
        done[i] = count;
    };
    const auto referee = [&] {
        const auto began = std::chrono::steady_clock::now();
        const auto end = began + a_round(3);
        for (auto at = began; at < end; at += 1ms) {
            std::this_thread::sleep_until(at);
            of.subject.hold();
        }
        over.subject.store(true, std::memory_order_relaxed);
        elapsed = std::chrono::steady_clock::now() - began;
    };
    run_team(threads, {}, work, referee);
    const auto total = static_cast<double>(std::accumulate(done.begin(), done.end(), 0ull));
    return {elapsed.count() / total, {{"Mop/s", 1e3 * total / elapsed.count()}}};
}

} // namespace

void add_stores() {
    for (const bool writes : {false, true}) {
        for (const std::size_t threads : {1u, 8u}) {
            table t(std::string("store/") + (writes ? "write" : "read") +
                        "/T=" + std::to_string(threads),
                    "threads that use a store under one lock, one long holder now and then");
            const auto add = [&]<class M, class C>(std::type_identity<store<M, C>>,
                                                   const char* name) {
                t.add(name, [=] { return run_store<store<M, C>>(threads, writes); });
            };
            add(std::type_identity<store<std::mutex, std::condition_variable>>(), "std::mutex");
            using bide_condition = bide::condition_variable;
            add(std::type_identity<store<bide::mutex, bide_condition>>(), "bide::mutex");
            add(std::type_identity<store<bide::adaptive_mutex, bide_condition>>(),
                "bide::adaptive_mutex");
#if defined(BIDE_BENCH_HAS_TBB)
            add(std::type_identity<store<tbb::mutex, std::condition_variable_any>>(), "tbb::mutex");
#endif
        }
    }
}

} // namespace bench
