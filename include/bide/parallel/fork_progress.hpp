#ifndef BIDE_PARALLEL_FORK_PROGRESS_HPP
#define BIDE_PARALLEL_FORK_PROGRESS_HPP

// What the caller of a long parallel loop may want: to see how far it is, and to end it early.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>

#include <cstddef>
#include <cstdint>
#include <stop_token>

namespace bide::inline BIDE_ABI {

// How many iterations are done, of how many: of all loops that were given it, one after the other
// or at once. A loop counts once a leaf, which is many iterations where they are short.
// Destroy: not before those loops have returned.
template <class Platform> class basic_fork_progress {
public:
    basic_fork_progress() = default;
    basic_fork_progress(const basic_fork_progress&) = delete;
    basic_fork_progress& operator=(const basic_fork_progress&) = delete;

    // Any thread. Never falls. What the counted iterations wrote is seen by who reads their number.
    std::uint64_t done() const noexcept {
        // Order: acquire [F1]; what the iterations wrote that were counted before.
        return done_.load(std::memory_order_acquire);
    }

    // Grows when a loop begins. At least as many as were done when done() was read before.
    std::uint64_t total() const noexcept {
        // Order: relaxed; who read done() acquired the totals that were there before [F1].
        return total_.load(std::memory_order_relaxed);
    }

    // For loops: so many will be done, so many more are.
    void expect(std::uint64_t iterations) noexcept {
        // Order: relaxed; the loop's jobs are handed on after it, and its counts follow [F1].
        total_.fetch_add(iterations, std::memory_order_relaxed);
    }
    void count(std::uint64_t iterations) noexcept {
        // Order: release [F1]; what they wrote is seen by who sees the count.
        done_.fetch_add(iterations, std::memory_order_release);
    }

private:
    typename Platform::template atomic<std::uint64_t> done_{0};
    typename Platform::template atomic<std::uint64_t> total_{0};
};
using fork_progress = basic_fork_progress<native_platform>;

// What may be asked of a parallel loop.
struct fork_options {
    // The least number of iterations in a leaf, if there are as many; 0: the loop finds out.
    std::size_t grain = 0;

    // Asked before each leaf and each division. Where a leaf was left out for it, the loop throws
    // stopped_error (unless a call threw: that goes first), when all that had begun has ended. What
    // was done stays done.
    std::stop_token stop = {};

    // Is told of this loop, if there is one.
    fork_progress* progress = nullptr;
};

} // namespace bide::inline BIDE_ABI

#endif
