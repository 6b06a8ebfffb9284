#ifndef BIDE_TESTS_SUPPORT_ON_TIME_HPP
#define BIDE_TESTS_SUPPORT_ON_TIME_HPP

// Whether a call of this thread returned in time. Other programs may keep the machine busy, and the
// machine itself may stand still. Two times are therefore not the call's, and are taken off:
//   - the time that its thread was ready to run and had no processor;
//   - the time that a second thread, which wakes each millisecond, could not wake: the process was
//     stopped, or its machine was.
// On a machine that has the time, nothing is taken off. Linux.

#include <support/standard.hpp>

namespace test {

// How long this thread has waited for a processor so far; below zero: the system does not tell.
inline std::chrono::nanoseconds waited_for_processor() {
    long long ran = 0;
    long long waited = -1;
    if (std::FILE* const file = std::fopen("/proc/thread-self/schedstat", "re")) {
        if (std::fscanf(file, "%lld %lld", &ran, &waited) != 2) {
            waited = -1;
        }
        std::fclose(file);
    }
    return std::chrono::nanoseconds(waited);
}

// Watches, from its construction on, whether time passes in which the process does not run.
class stalls {
public:
    using clock = std::chrono::steady_clock;

    stalls() : thread_([this] { run(); }) {
        while (!has_begun_.load()) {
            std::this_thread::yield();
        }
    }
    stalls(const stalls&) = delete;
    stalls& operator=(const stalls&) = delete;
    ~stalls() { end(); }

    // How much there was of it between these two times, both in the past. Once.
    std::chrono::nanoseconds between(clock::time_point from, clock::time_point to) {
        end();
        std::chrono::nanoseconds sum{0};
        for (const auto& [slept, woke] : all_) {
            const auto begin = slept < from ? from : slept;
            const auto end = woke < to ? woke : to;
            sum += begin < end ? end - begin : clock::duration(0);
        }
        return sum;
    }

private:
    void run() {
        for (auto last = clock::now(); !is_over_.load();) {
            has_begun_.store(true);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            const auto now = clock::now();
            if (now - last > std::chrono::milliseconds(6)) { // less is a usual delay
                all_.emplace_back(last + std::chrono::milliseconds(1), now);
            }
            last = now;
        }
    }
    void end() {
        is_over_.store(true);
        if (thread_.joinable()) {
            thread_.join();
        }
    }

    std::atomic<bool> has_begun_{false};
    std::atomic<bool> is_over_{false};
    // The thread's, until it ends.
    std::vector<std::pair<clock::time_point, clock::time_point>> all_;
    std::thread thread_;
};

// What a call took of its own.
template <class Call> std::chrono::nanoseconds time_of(Call call) {
    stalls machine;
    const auto waited = waited_for_processor();
    if (waited.count() < 0) {
        std::fputs("skipped: the system does not tell how long a thread waits to run\n", stderr);
    }
    const auto start = std::chrono::steady_clock::now();
    call();
    const auto end = std::chrono::steady_clock::now();
    const auto waited_then = waited_for_processor() - waited;
    return waited.count() < 0 ? std::chrono::nanoseconds(0)
                              : end - start - waited_then - machine.between(start, end);
}

} // namespace test

#endif
