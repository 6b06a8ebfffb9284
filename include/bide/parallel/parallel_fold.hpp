// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_FOLD_HPP
#define BIDE_PARALLEL_PARALLEL_FOLD_HPP

/// \file
/// Folds a range into accumulators, about one for each thread that takes part, and combines the
/// accumulators: parallel_fold(). Use it if an accumulator is large or costly to make, such as a
/// table of counts. For numbers, parallel_reduce() is faster, and its result has the same bits on
/// any number of workers.
///
/// \code
/// using counts = std::map<std::string, int>;
/// const auto add = [](counts& to, const std::string& word) { ++to[word]; };
/// const auto join = [](counts& to, counts&& from) {
///     for (auto& [word, n] : from) to[word] += n;
/// };
/// const counts all = bide::parallel_fold(workers, words, [] { return counts(); }, add, join);
/// \endcode
//
// The accumulators are objects of a fork_scratch, so two leaves of the loop that run on top of each
// other on one thread have different ones. A leaf borrows its accumulator once.

#include <bide/parallel/fork_scratch.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// True if f takes an accumulator of type T as an rvalue and returns the new one.
template <class F, class T, class... Args>
concept folds_by_value = std::movable<T> && std::invocable<F&, T, Args...> &&
                         std::same_as<std::invoke_result_t<F&, T, Args...>, T>;

// True if f changes an accumulator of type T in place, and returns nothing or a reference to it.
template <class F, class T, class... Args>
concept folds_in_place =
    std::invocable<F&, T&, Args...> && (std::is_void_v<std::invoke_result_t<F&, T&, Args...>> ||
                                        std::same_as<std::invoke_result_t<F&, T&, Args...>, T&>);

template <class F, class T, class... Args>
concept folds_into = folds_by_value<F, T, Args...> || folds_in_place<F, T, Args...>;

template <class F, class T, class... Args>
BIDE_INLINE void fold_into(F& f, T& accumulator, Args&&... args) {
    if constexpr (folds_by_value<F, T, Args...>) {
        accumulator = std::invoke(f, std::move(accumulator), std::forward<Args>(args)...);
    } else {
        static_cast<void>(std::invoke(f, accumulator, std::forward<Args>(args)...));
    }
}

template <class Make> using accumulator_t = std::remove_cvref_t<std::invoke_result_t<Make&>>;

// visit(from, to, step) calls step(element) for the elements of a leaf.
template <class On, class Index, class Make, class Combine, class Visit>
auto fold(const On& on, loop_range<Index> all, Make& make, Combine& combine, const Visit& visit)
    -> accumulator_t<Make> {
    using value = accumulator_t<Make>;
    const auto makes = [&make]() -> value { return std::invoke(make); };
    fork_scratch scratch(makes);
    detail::loop_over(on, all, [&](Index from, Index to) {
        const auto mine = scratch.borrow();
        if constexpr (is_small_copy<value> && std::is_copy_assignable_v<value>) {
            value here = *mine; // no other code has its address, so it may stay in registers
            visit(from, to, here);
            *mine = here;
        } else {
            visit(from, to, *mine);
        }
    });
    std::optional<value> total;
    scratch.for_each([&](value& part) {
        if (!total) {
            total.emplace(std::move(part));
        } else {
            detail::fold_into(combine, *total, std::move(part));
        }
    });
    return total ? *std::move(total) : makes();
}

} // namespace detail

/// Calls step(accumulator, element) for each element of the range, in any order. Then combines the
/// accumulators by combine(accumulator, std::move(other)), and returns the one that is left.
///
/// make() returns an accumulator that has no element yet. It is called about once for each thread
/// that takes part, by that thread. If the range is empty, the result is that of one make().
/// step and combine may take the accumulator by reference and change it, and then return nothing or
/// this reference. Or they take it by value and return the new one, as std::plus does. An
/// accumulator is movable and need not be copyable.
///
/// Which elements one accumulator gets, and the order of the combinations, change from run to run.
/// So the result is the same in each run only if these do not matter. For sums of floating-point
/// numbers and for concatenations they do: use parallel_reduce() or parallel_collect().
/// Blocks: until all calls have ended. Meanwhile the caller makes some of them.
/// Throws: as parallel_for(). An exception of make() is treated as an exception of the first step()
/// that needs the accumulator; one of combine() leaves at once.
/// Requires: make and step may be called by several threads at once. Only the calling thread calls
/// combine.
/// Cancellation: see fork_options::stop.
template <parallel_range Range, class Make, class Step, class Combine>
    requires std::invocable<Make&> &&
             detail::folds_into<Step, detail::accumulator_t<Make>,
                                std::ranges::range_reference_t<Range>> &&
             detail::folds_into<Combine, detail::accumulator_t<Make>, detail::accumulator_t<Make>>
auto parallel_fold(const fork_policy& on, Range&& range, Make&& make, Step&& step,
                   Combine&& combine) -> detail::accumulator_t<Make> {
    const auto all = detail::elements_of(range);
    return detail::fold(
        on, all.numbers(), make, combine, [&](std::uint64_t from, std::uint64_t to, auto& into) {
            detail::each_element(all.at(from), all.at(to), [&step, &into](auto&& element) {
                detail::fold_into(step, into, static_cast<decltype(element)>(element));
            });
        });
}

/// Folds the indices of [first, last), which are as those of parallel_for(). Everything else is as
/// for a range.
template <class First, class Last, class Make, class Step, class Combine>
    requires detail::loop_index<First> && detail::loop_index<Last> && std::invocable<Make&> &&
             detail::folds_into<Step, detail::accumulator_t<Make>,
                                std::common_type_t<First, Last>> &&
             detail::folds_into<Combine, detail::accumulator_t<Make>, detail::accumulator_t<Make>>
auto parallel_fold(const fork_policy& on, First first, Last last, Make&& make, Step&& step,
                   Combine&& combine) -> detail::accumulator_t<Make> {
    using index = std::common_type_t<First, Last>;
    return detail::fold(on, detail::range_of(first, last), make, combine,
                        [&step](index from, index to, auto& into) {
                            detail::each_index(from, to, [&step, &into](index at) {
                                detail::fold_into(step, into, index(at));
                            });
                        });
}

/// Folds the elements of [first, last).
BIDE_DETAIL_TAKES_ITERATORS(parallel_fold);

}} // namespace bide::BIDE_ABI

#endif
