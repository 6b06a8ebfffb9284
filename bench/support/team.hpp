#ifndef BIDE_BENCH_SUPPORT_TEAM_HPP
#define BIDE_BENCH_SUPPORT_TEAM_HPP

// Threads that start together, each on its processor, and a referee that watches them.

#include "support/cpus.hpp"

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

namespace bench {

// Opens when all threads have come.
class start_gate {
public:
    explicit start_gate(std::size_t expected) : missing_(expected) {}

    void arrive_and_wait() {
        std::unique_lock lock(mutex_);
        if (--missing_ == 0) {
            changed_.notify_all();
        }
        changed_.wait(lock, [this] { return missing_ == 0; });
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::size_t missing_;
};

// Runs body(i) for i in [0, size), thread i on cpus[i mod n] (no cpus: wherever it likes), and
// meanwhile referee() on this thread; returns when all have returned.
template <class Body, class Referee>
void run_team(std::size_t size, const cpu_list& cpus, Body body, Referee referee) {
    start_gate gate(size + 1);
    std::vector<std::jthread> team;
    team.reserve(size);
    for (std::size_t i = 0; i < size; ++i) {
        team.emplace_back([&gate, &cpus, &body, i] {
            if (!cpus.empty()) {
                run_on({cpus[i % cpus.size()]});
            }
            gate.arrive_and_wait();
            body(i);
        });
    }
    gate.arrive_and_wait();
    referee();
}

} // namespace bench

#endif
