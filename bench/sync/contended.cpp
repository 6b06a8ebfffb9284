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

#include "support/bench.hpp"
#include "support/stats.hpp"
#include "sync/peers.hpp"
#include "sync/work.hpp"

#include <bide/sched/scheduler.hpp>
#include <bide/sync/scoped_lock.hpp>
#include <bide/task/join_handle.hpp>
#include <bide/task/task.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace bench {
namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

// How equal the shares are: 1 for equal ones, 1/n when one thread gets everything. (Jain, Chiu,
// Hawe 1984, DEC-TR-301.) Not a number if no thread got anything.
double jain_index(std::span<const std::uint64_t> shares) {
    double sum = 0;
    double squares = 0;
    for (const std::uint64_t share : shares) {
        const auto x = static_cast<double>(share);
        sum += x;
        squares += x * x;
    }
    return squares > 0 ? sum * sum / (static_cast<double>(shares.size()) * squares) : not_measured;
}

// What each thread had done by the end of each window, and before the first one.
using progress = std::vector<std::vector<std::uint64_t>>;

std::vector<std::uint64_t> gained(const std::vector<std::uint64_t>& before,
                                  const std::vector<std::uint64_t>& after) {
    std::vector<std::uint64_t> difference(after.size());
    std::transform(after.begin(), after.end(), before.begin(), difference.begin(), std::minus<>());
    return difference;
}

// Over windows short enough, unfairness shows that a long run averages away. Windows in which
// no thread moved say nothing and are left out.
double mean_jain_of_windows(const progress& snapshots) {
    double sum = 0;
    double windows = 0;
    for (std::size_t i = 1; i < snapshots.size(); ++i) {
        const double index = jain_index(gained(snapshots[i - 1], snapshots[i]));
        if (index == index) {
            sum += index;
            windows += 1;
        }
    }
    return windows > 0 ? sum / windows : not_measured;
}

// ---- One lock, all the time

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
    explicit arena(const scenario& what)
        : cpus_(allowed_cpus()), counts_(what.threads), waits_(what.threads),
          critical_steps_(steps_lasting(what.critical_ns)),
          think_steps_(steps_lasting(what.think_ns)) {}

    measured measure_throughput() {
        progress snapshots;
        run(false, [&] {
            const auto began = clock::now() + warm_up;
            for (auto at = began; at <= began + a_round(3); at += window) {
                std::this_thread::sleep_until(at);
                times_.push_back(clock::now());
                snapshots.push_back(snapshot());
            }
        });
        const std::chrono::duration<double, std::nano> elapsed = times_.back() - times_.front();
        const auto shares = gained(snapshots.front(), snapshots.back());
        const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
        return {elapsed.count() / total,
                {{"Mop/s", 1e3 * total / elapsed.count()},
                 {"Jain", jain_index(shares)},
                 {"J10", mean_jain_of_windows(snapshots)}}};
    }

    // Adds microseconds.
    void measure_waits(measured& to) {
        ns_per_tick(); // calibrates before anything is measured
        run(true, [&] { std::this_thread::sleep_for(a_round(3)); });
        histogram all;
        for (const auto& waits : waits_) {
            all.merge(waits.subject);
        }
        for (const auto& [name, share] :
             {std::pair("p50", 0.5), {"p99", 0.99}, {"p99.9", 0.999}, {"longest", 1.0}}) {
            to.counters[name] = all.percentile(share) * ns_per_tick() / 1e3;
        }
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
            bide::scheduler workers({.num_workers = static_cast<unsigned>(cpus_.size())});
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
            run_team(counts_.size(), cpus_, be_thread, watch);
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

    cpu_list cpus_;
    isolated<Lock> lock_;
    isolated<std::uint64_t> entries_{0u}; // guarded by lock_
    isolated<std::atomic<bool>> stop_{false};
    std::vector<section_count> counts_;
    std::vector<isolated<histogram>> waits_;
    std::vector<clock::time_point> times_;
    std::uint64_t critical_steps_;
    std::uint64_t think_steps_;
};

template <class Lock> measured contend(const scenario& what) {
    measured all = arena<Lock>(what).measure_throughput();
    arena<Lock>(what).measure_waits(all);
    return all;
}

void add_scenario(const scenario& what) {
    const std::string critical = std::to_string(what.critical_ns);
    table t("contended/T=" + std::to_string(what.threads) + ",cs=" + critical + "ns" +
                (what.think_ns > 0 ? ",think" : ""),
            std::to_string(what.threads) + " threads, " + critical + " ns inside, " +
                std::to_string(what.think_ns) + " ns between");
    const auto add = [&]<class Lock>(std::type_identity<Lock>, const char* name) {
        t.add(name, [what] { return contend<Lock>(what); });
    };
    for_each_lock(add);
    add(std::type_identity<lock_of_tasks<bide::mutex>>(), "bide::mutex, tasks");
    add(std::type_identity<lock_of_tasks<bide::adaptive_mutex>>(), "bide::adaptive_mutex, tasks");
}

// ---- One thread or two that read most of the time, nothing but a number behind the lock

template <class Lock> class library {
public:
    // One operation in `write_every` is a write; 0: none is.
    library(std::size_t threads, unsigned write_every)
        : threads_(threads), write_every_(write_every) {}

    measured measure() {
        std::vector<std::uint64_t> done(threads_);
        std::chrono::duration<double, std::nano> elapsed{};
        const auto referee = [&] {
            const auto began = clock::now();
            std::this_thread::sleep_for(a_round(2));
            stop_.subject.store(true, std::memory_order_relaxed);
            elapsed = clock::now() - began;
        };
        run_team(threads_, allowed_cpus(), [&](std::size_t i) { done[i] = visit(i); }, referee);
        const double total = std::accumulate(done.begin(), done.end(), 0.0);
        return {elapsed.count() / total, {{"Mop/s", 1e3 * total / elapsed.count()}}};
    }

private:
    std::uint64_t visit(std::size_t i) {
        // The threads write at different times: the second starts half a period later.
        std::uint64_t until_write = write_every_ > 0 ? write_every_ * (i + 1) / threads_ : ~0ull;
        std::uint64_t visits = 0;
        for (; !stop_.subject.load(std::memory_order_relaxed); ++visits) {
            if (--until_write == 0) {
                until_write = write_every_;
                lock_.subject.locked([&] { ++book_.subject; });
            } else {
                lock_.subject.shared([&] { read(book_.subject); });
            }
        }
        return visits;
    }

    // Keeps the compiler from leaving it out.
    static void read(std::uint64_t value) { asm volatile("" : : "r"(value)); }

    std::size_t threads_;
    unsigned write_every_;
    isolated<Lock> lock_;
    isolated<std::uint64_t> book_{0u}; // guarded by lock_
    isolated<std::atomic<bool>> stop_{false};
};

// ---- One thread locks two mutexes together, while three other threads each want one of them all the time

struct by_std {
    template <class M> static auto lock(M& a, M& b) { return std::scoped_lock(a, b); }
};
struct by_bide {
    template <class M> static auto lock(M& a, M& b) { return bide::scoped_lock(a, b); }
};

template <class Mutex, class How> measured lock_both() {
    isolated<Mutex> m[2];
    isolated<std::atomic<bool>> over{false};
    isolated<std::uint64_t> both{0u};
    const std::uint64_t inside = steps_lasting(100);
    std::chrono::duration<double, std::nano> elapsed{};
    run_team(
        7, allowed_cpus(),
        [&](std::size_t i) {
            while (!over.subject.load(std::memory_order_relaxed)) {
                if (i == 0) {
                    [[maybe_unused]] const auto held = How::lock(m[0].subject, m[1].subject);
                    compute(inside);
                    ++both.subject;
                } else {
                    const std::lock_guard held(m[i % 2].subject);
                    compute(inside);
                }
            }
        },
        [&] {
            const auto began = clock::now();
            std::this_thread::sleep_for(a_round(5));
            over.subject.store(true, std::memory_order_relaxed);
            elapsed = clock::now() - began;
        });
    return {elapsed.count() / static_cast<double>(both.subject)};
}

} // namespace

void add_readers() {
    struct mix {
        std::size_t threads;
        const char* writes;
        unsigned write_every;
    };
    for (const mix m : {mix{1, "0", 0}, mix{2, "0", 0}, mix{2, "0.1%", 1000}, mix{2, "1%", 100},
                        mix{2, "10%", 10}}) {
        table t("readers/T=" + std::to_string(m.threads) + ",writes=" + m.writes,
                "threads that read one number behind the lock");
        for_each_shared_lock([&]<class Lock>(std::type_identity<Lock>, const char* name) {
            t.add(name, [m] { return library<Lock>(m.threads, m.write_every).measure(); });
        });
    }
}

void add_both() {
    table t("all/saturated", "a thread that wants both mutexes, beside three for each of them");
    const auto add = [&]<class Mutex>(std::type_identity<Mutex>, const std::string& name) {
        t.add(name + ", std::scoped_lock", lock_both<Mutex, by_std>);
        t.add(name + ", bide::scoped_lock", lock_both<Mutex, by_bide>);
    };
    add(std::type_identity<std::mutex>(), "std::mutex");
    add(std::type_identity<bide::mutex>(), "bide::mutex");
    add(std::type_identity<bide::adaptive_mutex>(), "bide::adaptive_mutex");
}

void add_contended() {
    for (const unsigned threads : {2u, 4u, 8u}) {
        for (const unsigned critical_ns : {0u, 100u, 1000u}) {
            add_scenario({threads, critical_ns, 0});
            if (critical_ns > 0) {
                add_scenario({threads, critical_ns, critical_ns});
            }
        }
    }
}

} // namespace bench
