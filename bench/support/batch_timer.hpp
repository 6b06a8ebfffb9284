#ifndef BIDE_BENCH_SUPPORT_BATCH_TIMER_HPP
#define BIDE_BENCH_SUPPORT_BATCH_TIMER_HPP

// What one call costs, by one thread.

#include "support/stats.hpp"

#include <chrono>
#include <vector>

namespace bench {

// Calls are timed in batches, so that reading the clock is about a thousandth of what is read.
inline constexpr int calls_per_batch = 4000;

// Collects batches for a given time. The result is the median batch: one that an interrupt or
// another program lengthened does not count.
class batch_timer {
public:
    using clock = std::chrono::steady_clock;

    explicit batch_timer(std::chrono::nanoseconds duration)
        : last_(clock::now()), end_(last_ + duration) {
        batches_.reserve(100'000);
    }

    // After each batch; false: time is up.
    bool batch_done() {
        const auto now = clock::now();
        batches_.push_back(std::chrono::duration<double, std::nano>(now - last_).count());
        last_ = now;
        return now < end_;
    }

    double ns_per_call() const { return median(batches_) / calls_per_batch; }

private:
    clock::time_point last_;
    clock::time_point end_;
    std::vector<double> batches_;
};

template <class Call> double ns_per_call(std::chrono::nanoseconds duration, Call call) {
    batch_timer timer(duration);
    do {
        for (int i = 0; i < calls_per_batch; ++i) {
            call();
        }
    } while (timer.batch_done());
    return timer.ns_per_call();
}

} // namespace bench

#endif
