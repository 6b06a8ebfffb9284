// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_FOR_HPP
#define BIDE_PARALLEL_PARALLEL_FOR_HPP

/// \file
/// Loops that run their iterations in parallel: over indices, over the elements of a range, and
/// over chunks of a range. The other algorithms use the same loop.
///
/// \code
/// bide::scheduler workers;
/// bide::parallel_for(workers, 0, n, [&](int i) { squares[i] = i * i; });
/// bide::parallel_for(workers, names, [](std::string& name) { trim(name); });
/// \endcode
//
// detail/parallel_loop.hpp describes the loop.

#include <bide/core/config.hpp>
#include <bide/parallel/detail/parallel_loop.hpp>
#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/parallel_range.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// Calls run(callee). `run` is a plain loop of calls callee(args...). If `body` is small and can be
// called as const, the callee is a copy of `body`. No other code knows the address of the copy, so
// the compiler keeps the captures in registers.
template <class... Args, class Body, class Run> void run_with_callee(Body& body, const Run& run) {
    using plain = std::decay_t<Body>; // a function becomes a pointer to it
    if constexpr (std::is_trivially_copyable_v<plain> && sizeof(plain) <= 64 &&
                  std::is_constructible_v<const plain, Body&> &&
                  std::is_invocable_v<const plain&, Args...>) {
        const plain mine(body);
        run(mine);
    } else {
        run(body);
    }
}

// Calls body(element) for all elements.
template <class On, class It, class Body>
void for_elements(const On& on, const elements<It>& all, Body& body) {
    detail::loop_over(on, all.numbers(), [&](std::uint64_t from, std::uint64_t to) {
        detail::run_with_callee<std::iter_reference_t<It>>(body, [&](auto& callee) {
            detail::each_element(all.at(from), all.at(to), [&callee](auto&& element) {
                static_cast<void>(std::invoke(callee, static_cast<decltype(element)>(element)));
            });
        });
    });
}

} // namespace detail

/// Consecutive elements of a range. parallel_for_chunks() passes it to its body. It is a range that
/// borrows the elements. If they are contiguous, it converts to a std::span.
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

template <class On, class First, class Last, class Body>
void for_indices(const On& on, First first, Last last, Body& body) {
    using index = std::common_type_t<First, Last>;
    detail::loop_over(on, detail::range_of(first, last), [&body](index begin, index end) {
        detail::run_with_callee<index>(body, [begin, end](auto& callee) {
            detail::each_index(begin, end, [&callee](index at) { static_cast<void>(callee(at)); });
        });
    });
}

} // namespace detail

/// Calls body(i) for each index i of [first, last), in any order, on the calling thread and on idle
/// workers. The type of i is std::common_type_t<First, Last>. The bounds are compared as
/// numbers; if first >= last, the function does nothing. The return value of body is ignored.
/// Blocks: until all calls have ended. Meanwhile the caller runs parts of the loop.
/// Throws: of the calls that threw, the exception of the call with the lowest index. If there was
/// no stop, all calls with lower indices have run. Calls with higher indices may have run.
/// stopped_error after a stop. std::invalid_argument if the first index is negative and the type of
/// the index is unsigned. Other exceptions are those of join().
/// Requires: body may be called by several threads at once. If it is trivially copyable, has at
/// most 64 bytes and can be called as const, it is called through copies.
/// Cancellation: see fork_options::stop.
template <class First, class Last, class Body>
    requires detail::loop_index<First> && detail::loop_index<Last> &&
             std::invocable<Body&, std::common_type_t<First, Last>>
void parallel_for(const fork_policy& on, First first, Last last, Body&& body) {
    detail::for_indices(on, first, last, body);
}

/// Calls body(element) for each element of the range, in any order, on the calling thread and on
/// idle workers. The argument of body is the result of the iterator's operator*, so body may change
/// the elements of a range that is not const. The return value of body is ignored. To loop over
/// every third index, or over several ranges at once, pass a view.
/// Blocks, throws, cancellation: as above; the number of an element is its index.
/// Requires: body may be called by several threads at once, for different elements. If it is
/// trivially copyable, has at most 64 bytes and can be called as const, it is called through
/// copies. Copies of the range's iterators may be used by several threads at once.
template <parallel_range Range, class Body>
    requires std::invocable<Body&, std::ranges::range_reference_t<Range>>
void parallel_for(const fork_policy& on, Range&& range, Body&& body) {
    detail::for_elements(on, detail::elements_of(range), body);
}

/// Runs the loop over the elements of [first, last). If `last` is before `first`, does nothing.
BIDE_DETAIL_TAKES_ITERATORS(parallel_for,
                            requires(sizeof...(Args) == 1 &&
                                     (std::invocable<Args&, std::iter_reference_t<It>> && ...)));

/// Calls body(chunk) for parallel_chunks that together are the range, in any order. The loop
/// decides how many elements a chunk has, at least fork_options::grain. Use it if an iteration
/// needs an object that is costly to make, such as a buffer, or if one call for many elements is
/// faster than many calls.
/// Blocks, throws, cancellation: as parallel_for(); a stop and an exception take effect between
/// chunks. Progress counts the elements of a chunk when the chunk has ended.
/// Requires: body may be called by several threads at once, for different chunks.
template <parallel_range Range, class Body>
    requires std::invocable<Body&, parallel_chunk<std::ranges::iterator_t<Range>>>
void parallel_for_chunks(const fork_policy& on, Range&& range, Body&& body) {
    const auto all = detail::elements_of(range);
    using chunk = parallel_chunk<std::ranges::iterator_t<Range>>;
    detail::loop_over(on, all.numbers(), [&](std::uint64_t from, std::uint64_t to) {
        static_cast<void>(std::invoke(body, chunk(all.at(from), to - from, from)));
    });
}

}} // namespace bide::BIDE_ABI

// The iterators of a chunk stay valid after the chunk was destroyed.
/// \cond
template <class It>
inline constexpr bool std::ranges::enable_borrowed_range<bide::parallel_chunk<It>> = true;
/// \endcond

#endif
