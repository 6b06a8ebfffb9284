// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_FOR_HPP
#define BIDE_PARALLEL_PARALLEL_FOR_HPP

/// \file
/// Loops that run their iterations in parallel: over indices, over the elements of a range, and
/// over chunks of either. detail/parallel_loop.hpp tells how a loop divides itself.

#include <bide/core/config.hpp>
#include <bide/parallel/detail/element_range.hpp>
#include <bide/parallel/detail/fork_entry.hpp>
#include <bide/parallel/detail/loop_range.hpp>
#include <bide/parallel/detail/parallel_loop.hpp>
#include <bide/parallel/detail/plain_loops.hpp>
#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/fork_progress.hpp>
#include <bide/sched/scheduler.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <type_traits>

namespace bide::inline BIDE_ABI {

/// Consecutive elements of a range: what parallel_for_chunks() gives to its body. It is a range
/// that borrows the elements. If they are contiguous, it converts to a std::span.
template <std::random_access_iterator It> class parallel_chunk {
public:
    /// The number of an element within the chunk.
    using size_type = std::size_t;

    /// Refers to `size` elements from `first` on, of which the first one has the number `index`.
    parallel_chunk(It first, std::size_t size, std::size_t index)
        : first_(first), size_(size), index_(index) {}

    /// Returns an iterator to the first element.
    It begin() const { return first_; }
    /// Returns the iterator behind the last element.
    It end() const { return first_ + static_cast<std::iter_difference_t<It>>(size_); }
    /// Returns the number of elements, which is at least 1.
    std::size_t size() const noexcept { return size_; }
    /// Returns the element at `n`. Requires: n < size().
    std::iter_reference_t<It> operator[](std::size_t n) const {
        return first_[static_cast<std::iter_difference_t<It>>(n)];
    }
    /// Returns the number that the chunk's first element has in the whole range.
    std::size_t index() const noexcept { return index_; }

private:
    It first_;
    std::size_t size_;
    std::size_t index_;
};

namespace detail {

// Calls run(callee) for a plain loop of calls callee(arg). If `body` is small and can be called as
// const, the callee is a copy of it. No other code knows the address of the copy, so the compiler
// keeps the captures in registers.
template <class Arg, class Body, class Run> void run_with_callee(Body& body, const Run& run) {
    using plain = std::decay_t<Body>; // a function becomes a pointer to it
    if constexpr (std::is_trivially_copyable_v<plain> && sizeof(plain) <= 64 &&
                  std::is_constructible_v<const plain, Body&> &&
                  std::is_invocable_v<const plain&, Arg>) {
        const plain mine(body);
        run(mine);
    } else {
        run(body);
    }
}

template <class Forker, class Index, class Leaf>
void loop_on(Forker forks, loop_range<Index> all, const fork_options& options, Leaf leaf) {
    if (!all.empty()) {
        parallel_loop<Forker, Index, Leaf>(forks, all, options, leaf).run(all);
    }
}

template <class Forker, class First, class Last, class Body>
void parallel_for_on(Forker forks, First first, Last last, const fork_options& options,
                     Body& body) {
    using index = std::common_type_t<First, Last>;
    detail::loop_on(forks, range_of(first, last), options, [&body](index begin, index end) {
        detail::run_with_callee<index>(body, [begin, end](auto& callee) {
            detail::each_index(begin, end, [&callee](index at) { static_cast<void>(callee(at)); });
        });
    });
}

template <class Forker, class It, class Body>
void for_elements_on(Forker forks, const elements<It>& all, const fork_options& options,
                     Body& body) {
    using reference = std::iter_reference_t<It>;
    detail::loop_on(forks, all.numbers(), options, [&](std::uint64_t from, std::uint64_t to) {
        detail::run_with_callee<reference>(body, [&](auto& callee) {
            detail::each_element(all.at(from), all.at(to), [&callee](auto&& element) {
                static_cast<void>(std::invoke(callee, static_cast<decltype(element)>(element)));
            });
        });
    });
}

template <class Forker, class It, class Body>
void for_chunks_on(Forker forks, const elements<It>& all, const fork_options& options, Body& body) {
    detail::loop_on(forks, all.numbers(), options, [&](std::uint64_t from, std::uint64_t to) {
        static_cast<void>(std::invoke(body, parallel_chunk<It>(all.at(from), to - from, from)));
    });
}

} // namespace detail

/// Calls body(i) for each index i of [first, last), in any order, on the calling thread and on idle
/// workers of `s`. The type of i is std::common_type_t<First, Last>. The bounds are compared as
/// numbers; if first >= last, the function does nothing. The return value of body is ignored.
/// Blocks: until all calls have ended. Meanwhile the caller runs parts of the loop.
/// Throws: of the calls that threw, the exception of the call with the lowest index. All calls with
/// lower indices have run then, unless there was a stop. Calls with higher indices may have run.
/// stopped_error after a stop. std::invalid_argument if the first index is negative and the type of
/// the index is unsigned. Otherwise as join().
/// Requires: body may be called by several threads at once. If it is trivially copyable, has at
/// most 64 bytes and can be called as const, it is called through copies.
/// Cancellation: see fork_options::stop.
template <class First, class Last, class Body>
    requires detail::loop_index<First> && detail::loop_index<Last>
void parallel_for(scheduler& s, First first, Last last, const fork_options& options, Body&& body) {
    detail::parallel_for_on(detail::forker(s), first, last, options, body);
}

/// Runs the loop as above, with the options of the policy.
template <class First, class Last, class Body>
    requires detail::loop_index<First> && detail::loop_index<Last>
void parallel_for(const fork_policy& on, First first, Last last, Body&& body) {
    detail::parallel_for_on(on.forks(), first, last, on.options(), body);
}

/// Runs the loop as above, with a grain: a leaf has at least `grain` iterations, unless the loop
/// has fewer, and less than twice that number. 0 is the default.
/// Throws: also std::invalid_argument if the grain is negative.
template <class First, class Last, class Grain, class Body>
    requires detail::loop_index<First> && detail::loop_index<Last> && detail::loop_index<Grain>
void parallel_for(scheduler& s, First first, Last last, Grain grain, Body&& body) {
    fork_options options;
    options.grain = detail::grain_of(grain);
    detail::parallel_for_on(detail::forker(s), first, last, options, body);
}

/// Calls body(element) for each element of the range, in any order, on the calling thread and on
/// idle workers. body gets what the iterator's operator* returns, so it may change the elements of a
/// range that is not const; its return value is ignored. To loop over every third index, or over
/// several ranges at once, give a view.
/// Blocks, throws, cancellation: as above; the number of an element is its index.
/// Requires: body may be called by several threads at once, for different elements. If it is
/// trivially copyable, has at most 64 bytes and can be called as const, it is called through
/// copies. Copies of the range's iterators may be used by several threads at once.
template <parallel_range Range, class Body>
    requires std::invocable<Body&, std::ranges::range_reference_t<Range>>
void parallel_for(const fork_policy& on, Range&& range, Body&& body) {
    detail::for_elements_on(on.forks(), detail::elements_of(range), on.options(), body);
}

/// Runs the loop over the elements of [first, last). If `last` is before `first`, does nothing.
template <class It, class End, class Body>
    requires parallel_bounds<It, End> && std::invocable<Body&, std::iter_reference_t<It>>
void parallel_for(const fork_policy& on, It first, End last, Body&& body) {
    detail::for_elements_on(on.forks(), detail::elements_of(first, last), on.options(), body);
}

/// Calls body(chunk) for parallel_chunks that together are the range, in any order. The loop decides
/// how many elements a chunk has, as far as options.grain allows. Use it where an iteration needs
/// something that is costly to make, such as a buffer, or where a body over many elements is faster
/// than many calls.
/// Blocks, throws, cancellation: as parallel_for(); a stop and an exception take effect between
/// chunks. Progress counts the elements of a chunk when it has ended.
template <parallel_range Range, class Body>
    requires std::invocable<Body&, parallel_chunk<std::ranges::iterator_t<Range>>>
void parallel_for_chunks(const fork_policy& on, Range&& range, Body&& body) {
    detail::for_chunks_on(on.forks(), detail::elements_of(range), on.options(), body);
}

/// Runs the loop over chunks of [first, last).
template <class It, class End, class Body>
    requires parallel_bounds<It, End> && std::invocable<Body&, parallel_chunk<It>>
void parallel_for_chunks(const fork_policy& on, It first, End last, Body&& body) {
    detail::for_chunks_on(on.forks(), detail::elements_of(first, last), on.options(), body);
}

} // namespace bide::inline BIDE_ABI

// A chunk's iterators stay valid without it.
/// \cond
template <class It>
inline constexpr bool std::ranges::enable_borrowed_range<bide::parallel_chunk<It>> = true;
/// \endcond

#endif
