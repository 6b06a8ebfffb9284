#ifndef BIDE_PARALLEL_FORK_JOIN_HPP
#define BIDE_PARALLEL_FORK_JOIN_HPP

// Fork-join: functions that call each other, in parallel where workers are free. With it come the
// loops, reductions and sorts that are made of joins.
//
// The caller takes part. A thread that is not the scheduler's runs arms beside the workers: with W
// workers that steal and one such caller, up to W + 1 arms run at a time, and with C of them W + C.
//
// A join is a call, into which the arms are inlined. Were it inlined in its turn, a function that
// calls it would save the registers for it even where it does not fork, as half of a recursion does.

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

namespace bide::inline BIDE_ABI {

// Runs f() and g(), in parallel where a worker is free to take g; returns when both have ended, with
// both values (std::monostate for void). To fork costs a few nanoseconds and no allocation, so it
// may be done all the way down a recursion. Where nobody could take g, since there is one worker or
// enable_stealing is false, it is a call after a call.
//
// f runs on the calling thread, whichever that is; g runs there, or on a worker. Any number of threads
// may call at once. No call waits for a worker to become free: an arm that no worker has taken is run
// by the caller. A thread that waits for an arm runs what that has forked in its turn, and sleeps when
// there is nothing; if it has a worker, another thread may run that then. On top of the caller's frame
// runs only what might have run there anyway, so what deadlocks with a lock that the caller holds
// deadlocks in a serial run, too.
//
// Arms are functions, not tasks: what they block on blocks their thread. On the calling thread
// this_task speaks of the task that called, elsewhere of none: take its stop token before. A
// worker that has one is busy with it as with a task that computes; it looks for tasks
// before it takes another arm. Where tasks must not wait for so long, give what forks for long a
// scheduler of its own.
//
// The scheduler's shutdown() waits for the callers that are in a join. scheduler::current() is the
// scheduler in each arm.
// Throws: when both have ended, what f threw, else what g threw. stopped_error on a thread that is not
// the scheduler's where the scheduler is shutting down; std::bad_alloc where more threads fork than
// before, or deeper than before, and there is no memory. Of these two, neither arm has run.
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

// The first `Count` of them, on this thread's lane, if it has one: ((first, second), third), ...
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

// The one at `Index` of so many.
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
    auto values = detail::fork_all<sizeof...(Is)>(fork_place::here().lane, arms);
    return {detail::value_of<Is, sizeof...(Is)>(std::move(values))...};
}

} // namespace detail

// join() of any number, but one at least: all run to their ends; the values in order.
// Throws: what the first in argument order threw, of those that did; otherwise as join().
// std::bad_alloc may come in the middle: then the last of them have run, and the first have not.
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
