// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_INVOKE_HPP
#define BIDE_PARALLEL_PARALLEL_INVOKE_HPP

/// \file
/// Calls the functions of a range, whose number is known at run time.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/parallel/detail/element_range.hpp>
#include <bide/parallel/detail/fork_arms.hpp>
#include <bide/parallel/detail/fork_entry.hpp>
#include <bide/parallel/detail/loop_state.hpp>
#include <bide/parallel/fork_join.hpp>
#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/fork_progress.hpp>

#include <algorithm> // the concepts of ranges
#include <concepts>
#include <cstdint>
#include <functional>
#include <iterator>

namespace bide::inline BIDE_ABI {
namespace detail {

// The functions are the leaves of a tree of halves.
template <class It> class invocations {
public:
    invocations(const elements<It>& all, const fork_options& options) noexcept
        : all_(all), state_(options, all.size) {}

    void run(std::uint64_t first, std::uint64_t last) {
        if (last - first == 1) {
            return call(first);
        }
        const std::uint64_t middle = first + (last - first) / 2;
        detail::fork(
            fork_context::here().lane, [this, first, middle] { run(first, middle); },
            [this, middle, last] { run(middle, last); });
    }

    void finish() { state_.finish(); }

private:
    void call(std::uint64_t n) {
        if (!state_.leaves_out(n)) { // only after a stop: no function is left out for an exception
            static_cast<void>(std::invoke(*all_.at(n)));
            state_.count(1);
        }
    }

    const elements<It>& all_;
    basic_loop_state<native_platform> state_;
};

} // namespace detail

/// Calls each function of a range, in parallel if workers are free, and returns when all have
/// ended. Ignores their values. To keep them, use parallel_transform() with a function that calls
/// its argument.
/// Blocks: as join().
/// Throws: the exception of the first function, in the order of the range, that threw. All other
/// functions have run then. stopped_error after a stop, if none has thrown. Otherwise as join(); if memory
/// runs out in the middle, throws std::bad_alloc, and some functions have not run.
/// Requires: copies of the range's iterators may be used by several threads at once.
/// Cancellation: after a stop of the options, functions that have not begun are left out. The
/// options' grain has no effect. Progress counts functions.
template <parallel_range Range>
    requires std::invocable<std::ranges::range_reference_t<Range>>
void parallel_invoke(const fork_policy& on, Range&& functions) {
    const auto all = detail::elements_of(functions);
    if (all.size == 0) {
        return;
    }
    detail::invocations calls(all, on.options());
    on.forks().enter([&] { calls.run(0, all.size); });
    calls.finish();
}

} // namespace bide::inline BIDE_ABI

#endif
