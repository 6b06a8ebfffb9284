// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_STATIC_PARTITION_HPP
#define BIDE_PARALLEL_STATIC_PARTITION_HPP

/// \file
/// Loops whose parts have fixed places: part w of W runs on the thread of worker w, in each loop.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/parallel/detail/element_range.hpp>
#include <bide/parallel/detail/loop_range.hpp>
#include <bide/parallel/detail/loop_state.hpp>
#include <bide/parallel/detail/plain_loops.hpp>
#include <bide/parallel/fork_progress.hpp>
#include <bide/parallel/parallel_for.hpp>
#include <bide/sched/for_each_worker.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/task/task.hpp>

#include <algorithm> // and the concepts of ranges
#include <concepts>
#include <cstdint>
#include <functional>
#include <iterator>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {

/// The first argument of loops, in the place of a fork_policy, that gives each worker a fixed part:
/// of n elements and W workers, worker w gets those from about w * n / W on. This is a placement,
/// not a hint: the elements of the part are visited in order, on the thread that was started for
/// that worker (spawn_options::worker). So repeated loops over the same data find it in the cache
/// of the same thread. On machines with several memory nodes, a page that a thread wrote first lies
/// in the thread's node.
///
/// Price: no thread helps another one. So the loop takes as long as its slowest part, and waits for
/// a worker whose thread is blocked or computes. Each loop wakes all workers. A caller that is no
/// worker only waits. If no placement is needed, use a fork_policy.
class static_partition {
public:
    /// Divides among the workers of `on`. A worker checks for a stop before each block of
    /// options.grain elements; 0 means 1,024, or for chunks the whole part.
    explicit static_partition(scheduler& on, fork_options options = {}) noexcept
        : scheduler_(&on), options_(std::move(options)) {}

    /// Returns the scheduler.
    scheduler& where() const noexcept { return *scheduler_; }
    /// Returns the options.
    const fork_options& options() const noexcept { return options_; }

private:
    scheduler* scheduler_;
    fork_options options_;
};

namespace detail {

// A loop over the numbers [0, size), whose part for a worker calls leaf(from, to).
template <class Leaf> class placed_loop {
public:
    placed_loop(const static_partition& on, std::uint64_t size, std::uint64_t step, Leaf& leaf)
        : size_(size), workers_(on.where().concurrency()), step_(step), leaf_(leaf),
          state_(on.options(), size) {}

    void operator()(unsigned worker) {
        const std::uint64_t last = begin_of(worker + 1);
        for (std::uint64_t from = begin_of(worker); from != last && !state_.leaves_out(from);) {
            const std::uint64_t n = (std::min)(step_, last - from);
            state_.run(from, n, [this, from, n] { leaf_(from, from + n); });
            from += n;
        }
    }
    void finish() { state_.finish(); }

private:
    std::uint64_t begin_of(std::uint64_t worker) const noexcept {
        return size_ / workers_ * worker + (std::min)(worker, size_ % workers_);
    }

    const std::uint64_t size_;
    const std::uint64_t workers_;
    const std::uint64_t step_;
    Leaf& leaf_;
    basic_loop_state<native_platform> state_;
};

inline std::uint64_t step_of(const static_partition& on, std::uint64_t usual) noexcept {
    return on.options().grain != 0 ? on.options().grain : usual;
}

inline constexpr std::uint64_t usual_step = 1'024;
inline constexpr std::uint64_t whole_part = ~std::uint64_t{0};

template <class Leaf>
void run_placed(const static_partition& on, std::uint64_t size, std::uint64_t step, Leaf leaf) {
    placed_loop<Leaf> loop(on, size, step, leaf);
    for_each_worker(on.where(), std::ref(loop));
    loop.finish();
}

template <class It, class Body> auto visit_placed(const elements<It>& all, Body& body) {
    return [&all, &body](std::uint64_t from, std::uint64_t to) {
        detail::each_element(all.at(from), all.at(to), [&body](auto&& element) {
            static_cast<void>(std::invoke(body, static_cast<decltype(element)>(element)));
        });
    };
}

} // namespace detail

// A partition is a template parameter, so that braces, as in parallel_for({s, {.grain = 64}}, ...),
// always mean a fork_policy.

/// Calls body(element) for each element of the range, on the worker that has its part.
/// Blocks: until all calls have ended.
/// Throws: of the calls that threw, the exception of the call with the lowest index. stopped_error
/// after a stop, or if the scheduler is shutting down. Otherwise as for_each_worker(), which must
/// not be called on a thread of the scheduler's workers.
/// Requires: as parallel_for() over a range. body is never copied.
/// Cancellation: see fork_options::stop.
template <std::same_as<static_partition> Partition, parallel_range Range, class Body>
    requires std::invocable<Body&, std::ranges::range_reference_t<Range>>
void parallel_for(const Partition& on, Range&& range, Body&& body) {
    const auto all = detail::elements_of(range);
    detail::run_placed(on, all.size, detail::step_of(on, detail::usual_step),
                       detail::visit_placed(all, body));
}

/// Runs the loop over the elements of [first, last). If `last` is before `first`, does nothing.
template <std::same_as<static_partition> Partition, class It, class End, class Body>
    requires parallel_bounds<It, End> && std::invocable<Body&, std::iter_reference_t<It>>
void parallel_for(const Partition& on, It first, End last, Body&& body) {
    const auto all = detail::elements_of(first, last);
    detail::run_placed(on, all.size, detail::step_of(on, detail::usual_step),
                       detail::visit_placed(all, body));
}

/// Calls body(i) for each index i of [first, last) in the same way.
/// Throws: also std::invalid_argument, as parallel_for().
template <std::same_as<static_partition> Partition, class First, class Last, class Body>
    requires detail::loop_index<First> && detail::loop_index<Last>
void parallel_for(const Partition& on, First first, Last last, Body&& body) {
    using index = std::common_type_t<First, Last>;
    const auto all = detail::range_of(first, last);
    detail::run_placed(on, all.size(), detail::step_of(on, detail::usual_step),
                       [&](std::uint64_t from, std::uint64_t to) {
                           detail::each_index(all.at(from), all.at(to), [&body](index i) {
                               static_cast<void>(std::invoke(body, i));
                           });
                       });
}

/// Calls body(chunk) on each worker with its part as a parallel_chunk. If options.grain is not 0,
/// divides the part into chunks of that many elements. Does not call workers without elements.
/// Blocks, throws, cancellation: as above.
template <std::same_as<static_partition> Partition, parallel_range Range, class Body>
    requires std::invocable<Body&, parallel_chunk<std::ranges::iterator_t<Range>>>
void parallel_for_chunks(const Partition& on, Range&& range, Body&& body) {
    const auto all = detail::elements_of(range);
    using chunk = parallel_chunk<std::ranges::iterator_t<Range>>;
    detail::run_placed(on, all.size, detail::step_of(on, detail::whole_part),
                       [&](std::uint64_t from, std::uint64_t to) {
                           static_cast<void>(
                               std::invoke(body, chunk(all.at(from), to - from, from)));
                       });
}

/// Calls body(element) for each element of the range, as above, while a coroutine awaits it. The
/// coroutine may run on one of the workers. The loop starts when it is awaited. The range must
/// exist until its end.
/// Blocks, throws: as async_for_each_worker() and the loop above.
/// Cancellation: a cancelled task waits for the loop. To end it early, give a stop token.
template <std::same_as<static_partition> Partition, parallel_range Range, class Body>
    requires std::invocable<Body&, std::ranges::range_reference_t<Range&>>
task<> async_parallel_for(Partition on, Range& range, Body body) {
    const auto all = detail::elements_of(range);
    auto leaf = detail::visit_placed(all, body);
    detail::placed_loop<decltype(leaf)> loop(on, all.size, detail::step_of(on, detail::usual_step),
                                             leaf);
    co_await async_for_each_worker(on.where(), std::ref(loop));
    loop.finish();
}

} // namespace bide::inline BIDE_ABI

#endif
