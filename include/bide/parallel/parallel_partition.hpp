// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_PARTITION_HPP
#define BIDE_PARALLEL_PARALLEL_PARTITION_HPP

/// \file
/// Moves the elements that match before the unmatched ones. parallel_partition() swaps elements,
/// parallel_stable_partition() keeps their order.

#include <bide/core/config.hpp>
#include <bide/parallel/detail/ordered_loop.hpp>
#include <bide/parallel/detail/parallel_loop.hpp>
#include <bide/parallel/detail/quick_sort.hpp>
#include <bide/parallel/detail/sort_parts.hpp>
#include <bide/parallel/fork_join.hpp>
#include <bide/parallel/fork_policy.hpp>
#include <bide/parallel/parallel_range.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <iterator>
#include <type_traits>
#include <utility>
#include <vector>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// The least number of elements of a chunk, if no grain is given. They take some microseconds.
inline constexpr std::uint64_t partition_chunk = 4'096;

template <class On, class It, class Predicate, class Projection>
It partition(const On& on, const elements<It>& all, Predicate& predicate, Projection& projection) {
    using forker_type = decltype(on.forks());
    const auto begin = detail::unwrap(all.first);
    using place = std::remove_const_t<decltype(begin)>;
    const place end = detail::unwrap(all.end());
    const std::uint64_t least = on.options().grain != 0 ? on.options().grain : partition_chunk;
    const auto goes_left = [&](auto&& element) -> bool {
        return std::invoke(predicate,
                           std::invoke(projection, std::forward<decltype(element)>(element)));
    };
    basic_loop_state<typename forker_type::platform> state(on.options(), all.size);
    const auto divide_chunk = [&](place first, place last) {
        division<place> chunk{first, false};
        const auto at = static_cast<std::uint64_t>(first - begin);
        if (!state.leaves_out(at)) {
            state.run(at, static_cast<std::uint64_t>(last - first),
                      [&] { chunk = detail::divide(first, last, goes_left); });
        }
        return chunk;
    };
    place middle = begin;
    const auto run = [&] {
        middle = detail::divide_by_chunks(on.forks(), begin, end, least, divide_chunk).middle;
    };
    if (all.size / 2 >= least) {
        on.forks().enter(run);
    } else if (all.size != 0) {
        run();
    }
    state.finish();
    return all.first + static_cast<std::iter_difference_t<It>>(middle - begin);
}

// Moves the matching elements of a part before the unmatched ones. Unmatched elements are kept in
// vectors until the predicate was called for all elements. If a call throws, or if there is no
// memory for the vectors, the unmatched elements are put back in any order.
template <class It, class Keeps> class partition_front {
    using value = std::iter_value_t<It>;

public:
    using part = partition_front;

    partition_front(const elements<It>& in, Keeps& keeps) : in_(in), keeps_(keeps) {}
    partition_front(const partition_front& of, loop_range<std::uint64_t> own)
        : in_(of.in_), keeps_(of.keeps_), begin_(own.first) {}
    partition_front(const partition_front&) = delete;
    partition_front& operator=(const partition_front&) = delete;
    ~partition_front() {
        ignore_exceptions([this] { put_back(); });
    }

    std::uint64_t kept() const noexcept { return kept_; }

    void run(std::uint64_t from, std::uint64_t to) {
        if (others_.empty()) {
            others_.emplace_back();
        }
        std::vector<value>& others = others_.back();
        struct reached {
            partition_front& front;
            It it;
            It out;
            ~reached() {
                front.kept_ = static_cast<std::uint64_t>(out - front.in_.first) - front.begin_;
            }
        } here{*this, in_.at(from), in_.at(begin_ + kept_)};
        for (const It end = in_.at(to); here.it != end; ++here.it) {
            if (!keeps_(here.it)) {
                others.push_back(std::ranges::iter_move(here.it));
                continue;
            }
            if (here.it != here.out) {
                *here.out = std::ranges::iter_move(here.it);
            }
            ++here.out;
        }
    }

    template <class Loop> void join(Loop& loop, partition_front&& next) {
        others_.reserve(others_.size() + next.others_.size());
        detail::move_left(loop, in_, next.begin_, next.kept_, begin_ + kept_);
        kept_ += next.kept_;
        std::ranges::move(next.others_, std::back_inserter(others_));
        next.others_.clear();
    }

    // Puts the unmatched elements behind the kept ones.
    void put_back() {
        It to = in_.at(begin_ + kept_);
        for (std::vector<value>& some : others_) {
            to = std::ranges::move(some, std::move(to)).out;
        }
        others_.clear();
    }

private:
    const elements<It> in_;
    Keeps& keeps_;
    const std::uint64_t begin_ = 0;
    std::uint64_t kept_ = 0;
    std::vector<std::vector<value>> others_;
};

template <class On, class It, class Predicate, class Projection>
It stable_partition(const On& on, const elements<It>& in, Predicate& predicate,
                    Projection& projection) {
    auto keeps = [&](const It& it) -> bool {
        return std::invoke(predicate, std::invoke(projection, *it));
    };
    partition_front front(in, keeps);
    detail::run_in_order(on, in.size, front);
    front.put_back();
    return in.at(front.kept());
}

} // namespace detail

/// Moves the elements for which predicate(projection(element)) is true before the unmatched
/// elements. Returns an iterator to the first unmatched element. The order within both groups
/// depends only on the range and the grain, and not on the number of workers.
/// parallel_stable_partition() keeps the order.
/// Blocks: until all calls have ended. Meanwhile the caller makes some of them. If the range has
/// less than 8,192 elements, or less than twice the grain, the calling thread partitions it alone.
/// Throws: what a call of the predicate threw. If several calls threw, the exception of the first
/// part of the range in which a call threw. The range then has the same elements as before, in some
/// order. If a move or a swap throws, all elements are alive, but their values are unspecified.
/// stopped_error after a stop. Other exceptions are those of join().
/// Requires: predicate and projection may be called by several threads at once.
/// Cancellation: a stop takes effect between parts. If a part is skipped, throws stopped_error,
/// and the range has the same elements as before, in some order. fork_options::grain is the least
/// number of elements of a part; there are at most 64 parts. fork_options::progress counts the
/// calls of the predicate.
/// Complexity: n calls of the predicate, and at most n swaps. It allocates no memory.
template <parallel_range Range, class Predicate, class Projection = std::identity>
    requires std::permutable<std::ranges::iterator_t<Range>> &&
             detail::finds_in<Predicate, std::ranges::iterator_t<Range>, Projection>
std::ranges::borrowed_iterator_t<Range> parallel_partition(const fork_policy& on, Range&& range,
                                                           Predicate predicate,
                                                           Projection projection = {}) {
    return detail::partition(on, detail::elements_of(range), predicate, projection);
}

/// Partitions [first, last) in the same way.
template <class It, detail::parallel_end<It> End, class... Args>
auto parallel_partition(const fork_policy& on, It first, End last, Args&&... args) {
    return bide::parallel_partition(on, detail::elements_of(first, last),
                                    std::forward<Args>(args)...);
}

/// Moves the elements for which predicate(projection(element)) is true before the unmatched
/// elements. Within both groups, elements keep their order. Returns an iterator to the first
/// unmatched element. Allocates memory for the unmatched elements.
/// Throws: as parallel_partition(), and std::bad_alloc if there is no memory. If no move has
/// thrown, each element is still in the range.
/// Blocks, requires, cancellation: as parallel_partition().
template <parallel_range Range, class Predicate, class Projection = std::identity>
    requires std::permutable<std::ranges::iterator_t<Range>> &&
             detail::finds_in<Predicate, std::ranges::iterator_t<Range>, Projection>
std::ranges::borrowed_iterator_t<Range>
parallel_stable_partition(const fork_policy& on, Range&& range, Predicate predicate,
                          Projection projection = {}) {
    return detail::stable_partition(on, detail::elements_of(range), predicate, projection);
}

/// Partitions [first, last) in the same way.
template <class It, detail::parallel_end<It> End, class... Args>
auto parallel_stable_partition(const fork_policy& on, It first, End last, Args&&... args) {
    return bide::parallel_stable_partition(on, detail::elements_of(first, last),
                                           std::forward<Args>(args)...);
}

}} // namespace bide::BIDE_ABI

#endif
