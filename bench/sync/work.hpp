#ifndef BIDE_BENCH_SYNC_WORK_HPP
#define BIDE_BENCH_SYNC_WORK_HPP

// A cheap clock, and computation that lasts for a given time without touching memory.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

namespace bench {

// The processor's own counter where reading it costs less than the system's clock; counts at a
// constant rate.
inline std::uint64_t ticks() noexcept {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(std::chrono::nanoseconds(since).count());
#endif
}

// Measured at the first call, which takes 20 ms.
inline double ns_per_tick() {
    static const double rate = [] {
        using clock = std::chrono::steady_clock;
        const auto began = clock::now();
        const std::uint64_t first = ticks();
        while (clock::now() - began < std::chrono::milliseconds(20)) {
        }
        const std::chrono::duration<double, std::nano> elapsed = clock::now() - began;
        return elapsed.count() / static_cast<double>(ticks() - first);
    }();
    return rate;
}

// Multiplications that each need the one before.
inline void compute(std::uint64_t steps) noexcept {
    std::uint64_t x = steps;
    for (; steps != 0; --steps) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        asm volatile("" : "+r"(x));
    }
}

// How many of them last for `ns`. Calibrated at the first call: the fastest of many trials, since
// whatever disturbs one makes it slower.
inline std::uint64_t steps_lasting(unsigned ns) {
    static const double ns_per_step = [] {
        constexpr std::uint64_t steps = 20'000;
        double fastest = std::numeric_limits<double>::max();
        for (int trial = 0; trial < 100; ++trial) {
            const auto began = std::chrono::steady_clock::now();
            compute(steps);
            const std::chrono::duration<double, std::nano> elapsed =
                std::chrono::steady_clock::now() - began;
            fastest = std::min(fastest, elapsed.count());
        }
        return fastest / static_cast<double>(steps);
    }();
    return static_cast<std::uint64_t>(ns / ns_per_step);
}

} // namespace bench

#endif
