// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_FORK_POLICY_HPP
#define BIDE_PARALLEL_FORK_POLICY_HPP

#include <bide/core/config.hpp>
#include <bide/parallel/detail/fork_entry.hpp>
#include <bide/parallel/fork_progress.hpp>
#include <bide/sched/scheduler.hpp>

#include <utility>

namespace bide::inline BIDE_ABI {

/// Where a parallel algorithm runs, and its options: the first argument of each, in the place of
/// std's execution policy. A scheduler converts to it; with options it is written in braces:
/// `parallel_for({workers, {.grain = 64}}, items, body)`.
class fork_policy {
public:
    /// Runs on `workers` and the calling thread, with default options.
    fork_policy(scheduler& workers) noexcept : scheduler_(&workers) {}
    /// Runs there with the given options.
    fork_policy(scheduler& workers, fork_options options) noexcept
        : scheduler_(&workers), options_(std::move(options)) {}

    /// Returns the options.
    const fork_options& options() const noexcept { return options_; }

    /// Returns the scheduler.
    scheduler& where() const noexcept { return *scheduler_; }

    /// Returns what the algorithms fork with. Only they call it.
    detail::forker forks() const noexcept { return detail::forker(*scheduler_); }

private:
    scheduler* scheduler_;
    fork_options options_;
};

} // namespace bide::inline BIDE_ABI

#endif
