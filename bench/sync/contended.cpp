// 2, 4 and 8 threads want one lock all the time. The rows "tasks" have as many tasks of a scheduler
// instead, on one worker for each processor.
//
// Each repetition measures twice, since reading clocks inside would distort the throughput:
//   throughput  threads count their sections and nothing else; the referee reads the counts every
//               10 ms, which costs a thread one cache miss. Jain is over the whole run, J10 the
//               mean over windows of 10 ms: unfairness that a whole run averages away shows there.
//   waits       every acquisition is timed, from before the call until inside the section. All rows
//               pay for the same two readings of the clock; percentiles are over acquisitions, so a
//               starved thread shows in the longest wait and in J10 rather than in p50.
// A wait that is under way when the time is up counts as far as it went, which is too short for a
// thread that was starving: the longest waits of unfair locks are underestimates.

#include "support/histogram.hpp"
#include "support/isolated.hpp"
#include "support/stats.hpp"
#include "support/team.hpp"
#include "support/work.hpp"
#include "sync/peers.hpp"
#include "sync/workloads.hpp"

#include <bide/sched/scheduler.hpp>
#include <bide/task/join_handle.hpp>
#include <bide/task/task.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace bench {
namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

struct scenario {
    unsigned threads;
    unsigned critical_ns; // work under the lock
    unsigned think_ns;    // work between unlock and lock
};

// Written by one thread; the referee reads it now and then.
class alignas(128) section_count {
public:
    void add_one() noexcept { count_.store(get() + 1, std::memory_order_relaxed); }
    std::uint64_t get() const noexcept { return count_.load(std::memory_order_relaxed); }

private:
    std::atomic<std::uint64_t> count_{0};
};

// A lock that tasks wait for.
template <class Mutex> class lock_of_tasks {
public:
    auto async_lock() { return mutex_.async_lock(); }

private:
    Mutex mutex_;
};
template <class Lock> constexpr bool is_for_tasks = requires(Lock& lock) { lock.async_lock(); };

// One lock, what it guards, and the threads or tasks that want it.
template <class Lock> class arena {
public:
    arena(const scenario& what, const setting& with)
        : with_(with), counts_(what.threads), waits_(what.threads),
          critical_steps_(steps_lasting(what.critical_ns)),
          think_steps_(steps_lasting(what.think_ns)) {}

    // Mega-operations a second, Jain, J10.
    sample measure_throughput() {
        progress snapshots;
        run(false, [&] {
            const auto began = clock::now() + warm_up;
            for (auto at = began; at <= began + with_.duration; at += window) {
                std::this_thread::sleep_until(at);
                times_.push_back(clock::now());
                snapshots.push_back(snapshot());
            }
        });
        const std::chrono::duration<double, std::micro> elapsed = times_.back() - times_.front();
        const auto shares = gained(snapshots.front(), snapshots.back());
        double total = 0;
        for (const std::uint64_t share : shares) {
            total += static_cast<double>(share);
        }
        return {total / elapsed.count(), jain_index(shares), mean_jain_of_windows(snapshots)};
    }

    // Microseconds: p50, p99, p99.9, longest.
    sample measure_waits() {
        ns_per_tick(); // calibrates before anything is measured
        run(true, [&] { std::this_thread::sleep_for(with_.duration); });
        histogram all;
        for (const auto& waits : waits_) {
            all.merge(waits.subject);
        }
        const auto us = [](std::uint64_t t) {
            return static_cast<double>(t) * ns_per_tick() / 1e3;
        };
        return {us(all.percentile(0.5)), us(all.percentile(0.99)), us(all.percentile(0.999)),
                us(all.largest())};
    }

private:
    static constexpr auto warm_up = 10ms;
    static constexpr auto window = 10ms;

    // Threads or tasks enter sections until the referee returns.
    template <class Referee> void run(bool is_timed, Referee referee) {
        const auto watch = [&] {
            referee();
            stop_.subject.store(true, std::memory_order_relaxed);
        };
        if constexpr (is_for_tasks<Lock>) {
            bide::scheduler workers({.num_workers = static_cast<unsigned>(with_.cpus.size())});
            std::vector<bide::join_handle<void>> tasks;
            for (std::size_t i = 0; i < counts_.size(); ++i) {
                tasks.push_back(workers.spawn(be_task(i, is_timed)));
            }
            watch();
            for (auto& each : tasks) {
                std::move(each).join();
            }
        } else {
            const auto be_thread = [&](std::size_t i) {
                while (!is_stopped()) {
                    is_timed ? enter_timed(i) : enter();
                    leave(i);
                }
            };
            run_team(counts_.size(), with_.cpus, be_thread, watch);
        }
        check_exclusion();
    }

    bide::task<void> be_task(std::size_t i, bool is_timed) {
        while (!is_stopped()) {
            const std::uint64_t before = is_timed ? ticks() : 0;
            std::uint64_t inside = 0;
            {
                const auto lock = co_await lock_.subject.async_lock();
                inside = is_timed ? ticks() : 0;
                section();
            }
            if (is_timed) {
                waits_[i].subject.add(inside - before);
            }
            leave(i);
        }
    }

    bool is_stopped() const noexcept { return stop_.subject.load(std::memory_order_relaxed); }

    void leave(std::size_t i) {
        counts_[i].add_one();
        compute(think_steps_);
    }

    void enter() {
        lock_.subject.locked([&] { section(); });
    }

    void enter_timed(std::size_t i) {
        const std::uint64_t before = ticks();
        std::uint64_t inside = 0;
        lock_.subject.locked([&] {
            inside = ticks();
            section();
        });
        waits_[i].subject.add(inside - before);
    }

    void section() {
        compute(critical_steps_);
        ++entries_.subject;
    }

    std::vector<std::uint64_t> snapshot() const {
        std::vector<std::uint64_t> now;
        for (const section_count& count : counts_) {
            now.push_back(count.get());
        }
        return now;
    }

    // A lock that lets two in is not worth measuring.
    void check_exclusion() const {
        std::uint64_t total = 0;
        for (const section_count& count : counts_) {
            total += count.get();
        }
        if (total != entries_.subject) {
            std::fprintf(stderr, "bench: mutual exclusion is broken: %llu entries, %llu counted\n",
                         static_cast<unsigned long long>(total),
                         static_cast<unsigned long long>(entries_.subject));
            std::abort();
        }
    }

    setting with_;
    isolated<Lock> lock_;
    isolated<std::uint64_t> entries_{0u}; // guarded by lock_
    isolated<std::atomic<bool>> stop_{false};
    std::vector<section_count> counts_;
    std::vector<isolated<histogram>> waits_;
    std::vector<clock::time_point> times_;
    std::uint64_t critical_steps_;
    std::uint64_t think_steps_;
};

template <class Lock> sample contend(const scenario& what, const setting& with) {
    const sample throughput = arena<Lock>(what, with).measure_throughput();
    sample all = arena<Lock>(what, with).measure_waits();
    all.insert(all.begin(), throughput.front());
    all.insert(all.end(), throughput.begin() + 1, throughput.end());
    return all;
}

table contended_table(const scenario& what) {
    const std::string name = "contended/T=" + std::to_string(what.threads) +
                             ",cs=" + std::to_string(what.critical_ns) + "ns" +
                             (what.think_ns > 0 ? ",think" : "");
    return {name,
            std::to_string(what.threads) + " threads, " + std::to_string(what.critical_ns) +
                " ns inside, " + std::to_string(what.think_ns) + " ns between",
            {{"throughput", "Mop/s", 3, true},
             {"p50", "us", 2},
             {"p99", "us", 1},
             {"p99.9", "us", 1, true},
             {"longest", "us", 0, true},
             {"Jain", "", 3},
             {"J10", "", 3}},
            {}};
}

void add_scenario(harness& h, const scenario& what) {
    const setting with = h.make_setting(300, 100);
    table t = contended_table(what);
    for_each_lock([&]<class Lock>(std::type_identity<Lock>, const char* name) {
        t.add(name, [what, with] { return contend<Lock>(what, with); });
    });
    t.add("bide::mutex, tasks",
          [what, with] { return contend<lock_of_tasks<bide::mutex>>(what, with); });
    t.add("bide::adaptive_mutex, tasks",
          [what, with] { return contend<lock_of_tasks<bide::adaptive_mutex>>(what, with); });
    h.add(std::move(t));
}

} // namespace

void add_contended(harness& h) {
    for (const unsigned threads : {2u, 4u, 8u}) {
        for (const unsigned critical_ns : {0u, 100u, 1000u}) {
            add_scenario(h, {threads, critical_ns, 0});
            if (critical_ns > 0 && !h.opts().quick) {
                add_scenario(h, {threads, critical_ns, critical_ns});
            }
        }
    }
}

} // namespace bench
