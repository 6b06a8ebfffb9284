// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_FORK_POLICY_HPP
#define BIDE_PARALLEL_FORK_POLICY_HPP

/// \file
/// The argument that says on which scheduler a parallel algorithm runs, and with which options.

#include <bide/core/detail/fatal.hpp>
#include <bide/core/platform.hpp>

#include <limits>
#include <stdexcept>
#include <stop_token>

namespace bide { inline namespace BIDE_ABI {

class scheduler;

namespace detail {
class forker;
} // namespace detail

/// Counts the finished iterations of all loops to which this object was passed. The loops may run
/// one after the other or at the same time. A loop updates the count after each leaf. A leaf is a
/// part of a loop that is not divided. If iterations are short, a leaf has many of them.
/// Requires: the object outlives these loops.
template <class Platform> class basic_fork_progress {
public:
    /// Constructs it with 0 of 0 iterations.
    basic_fork_progress() = default;
    basic_fork_progress(const basic_fork_progress&) = delete;
    basic_fork_progress& operator=(const basic_fork_progress&) = delete;

    /// Returns the number of iterations that are done. It never decreases.
    /// Memory order: what the counted iterations wrote is visible to the caller.
    /// Thread safety: any thread may call it.
    std::uint64_t done() const noexcept {
        // Order: acquire [fork_progress.done]; sees what the counted iterations wrote.
        return done_.load(std::memory_order_acquire);
    }

    /// Returns the number of iterations, finished or not, of all loops that have begun. It is at
    /// least the number that an earlier call of done() returned.
    std::uint64_t total() const noexcept {
        // Order: relaxed. A loop adds its total before it counts any iteration, and done() acquires
        // the counts that it returns. So after done(), this load sees the totals of all loops in
        // that count [fork_progress.done].
        return total_.load(std::memory_order_relaxed);
    }

    /// Adds iterations that a loop will do. Only loops call it.
    void expect(std::uint64_t iterations) noexcept {
        // Order: relaxed; each count() of the loop comes later and is a release. So a thread that
        // reads such a count also reads this total [fork_progress.done].
        total_.fetch_add(iterations, std::memory_order_relaxed);
    }
    /// Adds iterations that a loop has done. Only loops call it.
    void count(std::uint64_t iterations) noexcept {
        // Order: release [fork_progress.done]; a thread that reads the count sees what the
        // iterations wrote.
        done_.fetch_add(iterations, std::memory_order_release);
    }

private:
    typename Platform::template atomic<std::uint64_t> done_{0};
    typename Platform::template atomic<std::uint64_t> total_{0};
};
/// The progress of loops.
using fork_progress = basic_fork_progress<native_platform>;

/// The options of a parallel loop.
struct fork_options {
    /// The least number of iterations of a leaf. A loop with fewer iterations is one leaf. If the
    /// grain is 0, the loop measures the time of its iterations and chooses the size of its leaves.
    std::size_t grain = 0;

    /// The loop checks this token before each leaf and each division. If a leaf was skipped because
    /// of a stop, the loop throws stopped_error after all leaves that had begun have ended. If a
    /// call of the body threw, the loop throws that exception instead. The effects of finished
    /// iterations stay.
    std::stop_token stop = {};

    /// Counts the iterations of the loop. If it is nullptr, they are not counted.
    fork_progress* progress = nullptr;

    /// The maximum number of threads that run parts of the call at the same time. The calling
    /// thread is one of them, even if it is no worker. With 1, the calling thread runs all parts.
    /// The limit also holds for calls inside of the call, together; such a call may have a lower
    /// limit of its own. In more than four limits, one inside of the other, the calling thread runs
    /// all parts. By default, there is no limit. If it is 0, the constructor of fork_policy
    /// throws std::invalid_argument.
    unsigned max_workers = no_limit;

    /// If it is true, a worker that runs a part of a loop looks for tasks every 100 us, between two
    /// leaves. If a task waits, the worker runs it, and leaves the rest of its part to the thread
    /// that has forked it. So a task waits for about 100 us and not for the loop. Requires: no
    /// iteration waits for another one. (The thread to which the rest is left could be in the
    /// iteration that waits.) If it is false, a worker looks for tasks when its part has ended.
    /// Reductions, sorts, and scans and filters that copy ignore this option.
    bool yield_to_tasks = false;

    /// The value of max_workers that means no limit.
    static constexpr unsigned no_limit = (std::numeric_limits<unsigned>::max)();
};

/// The scheduler on which a parallel algorithm runs, and the options of the algorithm. It is the
/// first argument of each algorithm, as the execution policy is in std. A scheduler converts to a
/// fork_policy. To pass options, write the policy in braces:
/// `parallel_for({workers, {.grain = 64}}, items, body)`.
class fork_policy {
public:
    /// Runs on `workers` and the calling thread, with default options.
    fork_policy(scheduler& workers) noexcept : scheduler_(&workers) {}
    /// Runs on `workers` and the calling thread, with the given options.
    /// Throws: std::invalid_argument if max_workers is 0.
    fork_policy(scheduler& workers, fork_options options)
        : scheduler_(&workers), options_(std::move(options)) {
        if (options_.max_workers == 0) {
            BIDE_THROW(std::invalid_argument("bide::fork_options: max_workers is 0"));
        }
    }

    /// Returns the options.
    const fork_options& options() const noexcept { return options_; }

    /// Returns the scheduler.
    scheduler& where() const noexcept { return *scheduler_; }

    /// Returns the interface by which the algorithms fork. Only the algorithms call it.
    detail::forker forks() const noexcept; // in fork_join.hpp

private:
    scheduler* scheduler_;
    fork_options options_;
};

}} // namespace bide::BIDE_ABI

#endif
