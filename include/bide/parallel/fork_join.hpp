// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_FORK_JOIN_HPP
#define BIDE_PARALLEL_FORK_JOIN_HPP

/// \file
/// Fork-join: functions that run in parallel if workers are idle. This header also includes the
/// loops, reductions and sorts that are made of joins.
///
/// The caller takes part. An external thread runs arms beside the workers: with W workers that
/// steal and C external callers, up to W + C arms run at a time.

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/parallel/detail/fork_arms.hpp>
#include <bide/parallel/detail/fork_entry.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/task/detail/nonvoid.hpp>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

// join() is not inlined, and the arms are inlined into it. If join() were inlined, its caller would
// save registers even on the path that does not fork. In a recursion, half of the calls take that
// path.
namespace bide::inline BIDE_ABI {

/// Runs f() and g(), in parallel if a worker is free to take g. Returns both values, with
/// std::monostate for void, when both functions have ended. A fork costs a few nanoseconds and no
/// allocation, so a recursion may fork at every level. If there is one worker or enable_stealing is
/// false, g is called after f.
///
/// f runs on the calling thread, which may be any thread; g runs there or on a worker. Several
/// threads may call at the same time. No call waits for a worker to become free: the caller runs an
/// arm that no worker has taken.
///
/// While a thread waits for an arm, it runs arms that were forked in the course of that arm, and
/// sleeps if there are none. If the sleeping thread owns a worker, another thread may run the
/// worker meanwhile. An arm runs on top of the caller's frame only if it would also do so in a
/// serial program. So a lock that the caller holds causes a deadlock only if it would cause one in
/// a serial program, too.
///
/// Arms are functions, not tasks: if an arm blocks, its thread blocks. On the calling thread,
/// this_task refers to the task that has called join(); on other threads it refers to no task. So
/// get the stop token before the call. A worker that runs an arm is as busy as with a task that
/// computes; it looks for tasks before it takes another arm. If the tasks of the scheduler must not
/// wait that long, use a separate scheduler for fork-joins.
///
/// scheduler::current() is the scheduler `s` in each arm. The shutdown of `s` waits for the callers
/// that are in a join.
/// Blocks: until both have ended.
/// Throws: what f threw, else what g threw, when both have ended. stopped_error if the calling
/// thread is external and the scheduler is shutting down. std::bad_alloc if more threads fork than
/// before, or deeper than before, and there is no memory. In the last two cases, no arm has run.
template <class F, class G>
BIDE_NOINLINE auto join(scheduler& s, F&& f, G&& g)
    -> std::pair<nonvoid_t<std::invoke_result_t<F>>, nonvoid_t<std::invoke_result_t<G>>> {
    if (detail::forks_here(s)) [[likely]] {
        return detail::fork_here(std::forward<F>(f), std::forward<G>(g));
    }
    return detail::in_fork(
        s, [&] { return detail::fork_here(static_cast<F&&>(f), static_cast<G&&>(g)); });
}

namespace detail {

// Runs the first `Count` arms on the lane, if there is one: ((first, second), third), ...
template <std::size_t Count, class Arms>
BIDE_INLINE auto fork_all(basic_fork_lane<native_platform>* lane, Arms& arms) {
    using last = std::tuple_element_t<Count - 1, Arms>;
    if constexpr (Count == 1) {
        return std::tuple<nonvoid_t<std::invoke_result_t<last>>>(
            detail::call_arm<last>(static_cast<last>(std::get<0>(arms))));
    } else {
        return detail::fork(
            lane, [&] { return detail::fork_all<Count - 1>(lane, arms); },
            static_cast<last>(std::get<Count - 1>(arms)));
    }
}

// Returns the value of the arm at `Index` of `Count`.
template <std::size_t Index, std::size_t Count, class Values>
constexpr auto&& value_of(Values&& values) noexcept {
    if constexpr (Count == 1) {
        return std::get<0>(std::forward<Values>(values));
    } else if constexpr (Index == Count - 1) {
        return std::get<1>(std::forward<Values>(values));
    } else {
        return detail::value_of<Index, Count - 1>(std::get<0>(std::forward<Values>(values)));
    }
}

template <class Arms, std::size_t... Is>
BIDE_INLINE auto invoke_all(Arms& arms, std::index_sequence<Is...>)
    -> std::tuple<nonvoid_t<std::invoke_result_t<std::tuple_element_t<Is, Arms>>>...> {
    auto values = detail::fork_all<sizeof...(Is)>(fork_context::here().lane, arms);
    return {detail::value_of<Is, sizeof...(Is)>(std::move(values))...};
}

} // namespace detail

/// Runs any number of functions, at least one, as join() runs two. Returns the values, in order,
/// when all have ended.
/// Throws: the exception of the first function, in argument order, that threw; otherwise as join().
/// If memory runs out in the middle, throws std::bad_alloc: then the last functions have run, and
/// the first ones have not.
template <class... Fs>
    requires(sizeof...(Fs) != 0)
BIDE_NOINLINE auto parallel_invoke(scheduler& s, Fs&&... fs)
    -> std::tuple<nonvoid_t<std::invoke_result_t<Fs>>...> {
    std::tuple<Fs&&...> arms(std::forward<Fs>(fs)...);
    const std::index_sequence_for<Fs...> each;
    if (detail::forks_here(s)) [[likely]] {
        return detail::invoke_all(arms, each);
    }
    return detail::in_fork(s, [&] { return detail::invoke_all(arms, each); });
}

} // namespace bide::inline BIDE_ABI

#include <bide/parallel/parallel_for.hpp>
#include <bide/parallel/parallel_reduce.hpp>
#include <bide/parallel/parallel_sort.hpp>

#endif
