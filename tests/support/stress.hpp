#ifndef BIDE_TESTS_SUPPORT_STRESS_HPP
#define BIDE_TESTS_SUPPORT_STRESS_HPP

#include <support/gate.hpp>
#include <support/jitter.hpp>
#include <support/standard.hpp>

#if defined(__linux__)
#include <sched.h>
#endif

namespace test {

// How long a stress test goes on: BIDE_STRESS_MS milliseconds, 500 where it is not set. The first look
// finds time left: a test goes on once at least, however late its threads begin.
class stress_time {
public:
    stress_time() : end_(std::chrono::steady_clock::now() + length()) {}
    bool is_left() const {
        return !asked_.exchange(true) || std::chrono::steady_clock::now() < end_;
    }

    static std::chrono::milliseconds length() {
        const char* const given = std::getenv("BIDE_STRESS_MS");
        return std::chrono::milliseconds(given != nullptr ? std::strtol(given, nullptr, 10) : 500);
    }

private:
    std::chrono::steady_clock::time_point end_;
    mutable std::atomic<bool> asked_{false};
};

// Whether tests that enumerate do so in full, or in the largest scopes.
inline bool is_long_run() { return stress_time::length().count() >= 5'000; }

// run_threads() for threads that go on until the time is over.
template <class F> void stress_threads(int n, F f, where at = where()) {
    run_threads(n, std::move(f), patience + stress_time::length(), at);
}

// The same for f(i, chance), with a chance for each thread that differs from round to round.
template <class F> void players(int n, F f, std::uint32_t round = 0, where at = where()) {
    const std::uint32_t seed = run_seed() + round * 104'729u;
    stress_threads(
        n,
        [&f, seed](int i) {
            jitter chance(seed + static_cast<std::uint32_t>(i) * 7'919u);
            f(i, chance);
        },
        at);
}

// While one lives, the threads that this one starts share one processor, where that can be had.
class on_one_processor {
public:
    on_one_processor() noexcept {
#if defined(__linux__)
        ::sched_getaffinity(0, sizeof before_, &before_);
        cpu_set_t one;
        CPU_ZERO(&one);
        for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i) {
            if (CPU_ISSET(i, &before_)) {
                CPU_SET(i, &one);
            }
        }
        ::sched_setaffinity(0, sizeof one, &one);
#endif
    }
    on_one_processor(const on_one_processor&) = delete;
    on_one_processor& operator=(const on_one_processor&) = delete;
    ~on_one_processor() {
#if defined(__linux__)
        ::sched_setaffinity(0, sizeof before_, &before_);
#endif
    }

private:
#if defined(__linux__)
    cpu_set_t before_;
#endif
};

} // namespace test

#endif
