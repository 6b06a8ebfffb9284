// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_REDUCE_HPP
#define BIDE_PARALLEL_PARALLEL_REDUCE_HPP

/// \file
/// Reduces a range to one value: parallel_reduce(), and parallel_reduce_chunks(), whose function
/// gets consecutive elements at once. The result does not depend on the number of threads.
///
/// The range is divided into a tree. A range of n indices is halved as long as both halves have at
/// least `grain` indices. If n is odd, the second half gets one index more. Halves are combined in
/// index order. A leaf is folded from left to right: it begins with its first index, and then
/// combines groups of four, ((a b) (c d)). So the processor can begin a sum before the previous one
/// is complete. The last one to three indices are combined one by one. If no grain is given, the
/// grain is n / 256, at least 1 and at most 2,048. So the same range gives the same tree, and a
/// floating-point sum has the same bits on one worker and on a hundred. A sum of integers by
/// std::plus has the same result in any order, so it has no tree.
//
// A reduction that is expected to take at most 8 us starts without a fork-join, as a short loop
// does (parallel_for.hpp): one thread computes the tree from the left. That thread reads the clock
// each time the number of iterations has doubled. If it finds that 4 us have passed, the remaining
// part of the same tree becomes a fork-join. As with a loop, more time may pass if a fork-join
// would cause a wake that the reduction is not worth.

#include <bide/parallel/parallel_for.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// True if a T can be constructed from a From without loss. If T is a number, a narrowing conversion
// is rejected, as in list-initialisation. There is one exception: a conversion from an integer type
// to a floating-point type is allowed if it is exact for all values. If T is a class, its
// constructors decide.
template <class From, class T>
concept reduces_to =
    std::constructible_from<T, From> &&
    (!std::is_arithmetic_v<T> || requires { std::type_identity_t<T[]>{std::declval<From>()}; } ||
     (std::integral<std::remove_cvref_t<From>> && std::floating_point<T> &&
      std::numeric_limits<std::remove_cvref_t<From>>::digits <= std::numeric_limits<T>::digits));

// The leaf of a reduction of elements: returns the fold of map(i) for the indices of the part.
template <class Index, class T, class Map, class Combine> class element_fold {
public:
    element_fold(Map& map, Combine& combine) noexcept : map_(map), combine_(combine) {}

    T operator()(loop_range<Index> part) const {
        Index i = part.first;
        const auto next = [this, &i] { return static_cast<T>(map_(i++)); };
        const auto two = [this, &next] {
            T left = next();
            return combine(std::move(left), next());
        };
        T folded = next();
        std::uint64_t rest = part.size() - 1;
        for (; rest >= 4; rest -= 4) {
            T left = two();
            folded = combine(std::move(folded), combine(std::move(left), two()));
        }
        for (; rest != 0; --rest) {
            folded = combine(std::move(folded), next());
        }
        return folded;
    }

private:
    T combine(T&& left, T&& right) const {
        return static_cast<T>(combine_(std::move(left), std::move(right)));
    }

    Map& map_;
    Combine& combine_;
};

// fold(part) returns the value of a leaf.
template <class Forker, class Index, class T, class Fold, class Combine> class reduction {
    using range = loop_range<Index>;

public:
    reduction(Forker forks, range all, const fork_options& options, const Fold& fold,
              Combine& combine) noexcept
        : forks_(forks), first_(all.first),
          grain_(options.grain != 0 ? options.grain
                                    : lesser_of(greater_of(all.size() / 256, 1), 2'048)),
          fold_(fold), combine_(combine), state_(options, all.size()) {}

    T run(range all, const fork_options& options, T&& identity) {
        std::optional<T> result;
        if (options.grain == 0 && all.size() <= most_brief && options.progress == nullptr &&
            !options.stop.stop_possible()) {
            forks_.template enter_loop<longest_brief_ns>(
                all.size(),
                [&](std::int64_t now, std::int64_t most_ns) {
                    begin_ = now;
                    most_ns_ = most_ns;
                    return begin(all, result) ? platform::now() : 0;
                },
                [&] { reduce(all, result); });
        } else {
            forks_.enter([&] { reduce(all, result); });
        }
        state_.finish();
        return combine(std::move(identity), std::move(*result));
    }

private:
    using platform = typename Forker::platform;

    // If a call is expected to take at most this time, it first runs on the calling thread, without
    // a fork-join. The expected time is the time that earlier calls took. The first call has no
    // expected time, and runs as a fork-join. A reduction forks at each inner node of its tree, so
    // the first call takes longer than a run without forks. Because the second call expects this
    // longer time, this limit is higher than that of a loop. (A loop forks only when threads want
    // work.)
    static constexpr std::int64_t longest_brief_ns = 8'000;
    static constexpr std::uint64_t most_brief = 1 << 18;

    bool is_leaf(std::uint64_t n) const noexcept { return n == 1 || n / 2 < grain_; }

    // Reduces the leftmost leaf and then the nodes above it. Gives up after `most_ns_` nanoseconds,
    // or if an iteration takes as long as a chunk. Returns true if all of `part` is reduced. Reads
    // the clock each time the number of iterations has doubled.
    bool begin(range part, std::optional<T>& result) {
        if (is_leaf(part.size())) {
            result.emplace(fold_(part));
        } else if (!begin({part.first, part.middle()}, result)) {
            return false;
        } else {
            if (done_ >= 2 * checked_) {
                checked_ = done_;
                const std::int64_t ns = platform::now() - begin_;
                if (ns >= most_ns_ || ns / chunk_time >= static_cast<std::int64_t>(done_)) {
                    return false;
                }
            }
            result.emplace(combine(std::move(*result), reduce_here({part.middle(), part.last})));
        }
        done_ = part.size();
        return true;
    }

    T reduce_here(range part) {
        if (is_leaf(part.size())) {
            return fold_(part);
        }
        T left = reduce_here({part.first, part.middle()});
        return combine(std::move(left), reduce_here({part.middle(), part.last}));
    }

    // Reduces `part` and stores the result in `result`. If a leaf was skipped, `result` is empty
    // afterwards. A part that is skipped is not divided. If begin() has already reduced the node
    // `part`, does nothing: `result` then already has the result of begin(), because the calls for
    // the nodes above have passed it on.
    void reduce(range part, std::optional<T>& result) {
        const std::uint64_t n = part.size();
        const std::uint64_t at = range{first_, part.first}.size();
        if (at == 0 && n == done_) {
            return;
        }
        if (state_.leaves_out(at)) {
            return result.reset();
        }
        if (is_leaf(n)) {
            return state_.run(at, n, [&] { result.emplace(fold_(part)); });
        }
        std::optional<T> right;
        forks_.both([&] { reduce({part.first, part.middle()}, result); },
                    [&] { reduce({part.middle(), part.last}, right); });
        if (!result || !right) {
            return result.reset();
        }
        state_.run(at, 0, [&] { result.emplace(combine(std::move(*result), std::move(*right))); });
    }

    T combine(T&& left, T&& right) {
        return static_cast<T>(combine_(std::move(left), std::move(right)));
    }

    const Forker forks_;
    const Index first_;
    const std::uint64_t grain_;
    const Fold& fold_;
    Combine& combine_;
    basic_loop_state<platform> state_;
    std::uint64_t done_ = 0;    // the iterations of the node that begin() has reduced
    std::uint64_t checked_ = 0; // the value of done_ when begin() last read the clock
    std::int64_t begin_ = 0;    // the time at which begin() was called
    std::int64_t most_ns_ = 0;  // how long begin() may run
};

// Reduces a range that is not empty. fold(part) returns the value of a leaf.
template <class On, class Index, class T, class Fold, class Combine>
T reduce_leaves(const On& on, loop_range<Index> all, T&& identity, const Fold& fold,
                Combine& combine) {
    return reduction<decltype(on.forks()), Index, T, Fold, Combine>(on.forks(), all, on.options(),
                                                                    fold, combine)
        .run(all, on.options(), std::move(identity));
}

// True if the grouping does not change the result: a sum of integers, which wraps around.
template <class T, class Combine>
concept sums_integers =
    std::integral<T> && !std::same_as<T, bool> && sizeof(T) <= sizeof(std::uint64_t) &&
    std::same_as<std::invoke_result_t<Combine&, T, T>, T> &&
    (std::same_as<std::remove_cv_t<Combine>, std::plus<>> ||
     std::same_as<std::remove_cv_t<Combine>, std::plus<T>>);

template <class On, class First, class Last, class T, class Map, class Combine>
T reduce(const On& on, First first, Last last, T&& identity, Map& map, Combine& combine) {
    const auto all = detail::range_of(first, last);
    if (all.empty()) {
        return std::move(identity);
    }
    using index = std::remove_cv_t<decltype(all.first)>;
    static_assert(reduces_to<std::invoke_result_t<Map&, index>, T>,
                  "bide: what map returns does not fit into the type of the identity: convert it, "
                  "or give an identity of its type");
    static_assert(reduces_to<std::invoke_result_t<Combine&, T, T>, T>,
                  "bide: what combine returns does not fit into the type of the identity: convert "
                  "it, or give an identity of its type");
    if constexpr (sums_integers<T, Combine>) {
        // The order of the additions does not matter. So this is a parallel loop and not a tree,
        // and the loop decides how large its leaves are.
        using wrapping = std::make_unsigned_t<T>;
        native_platform::atomic<std::uint64_t> sum{0};
        detail::loop_over(on, all, [&](index begin, index end) {
            wrapping here = 0;
            detail::run_with_callee<index>(map, [&here, begin, end](auto& callee) {
                wrapping mine = 0;
                detail::each_index(begin, end, [&](index i) {
                    mine = static_cast<wrapping>(mine +
                                                 static_cast<wrapping>(static_cast<T>(callee(i))));
                });
                here = mine;
            });
            // Order: relaxed; the loop's joins order this addition before the load below.
            sum.fetch_add(here, std::memory_order_relaxed);
        });
        // Order: relaxed; the loop's joins order this load after the additions.
        const auto total = static_cast<T>(sum.load(std::memory_order_relaxed));
        return combine(std::move(identity), T(total));
    } else {
        const element_fold<index, T, Map, Combine> leaf(map, combine);
        return detail::reduce_leaves(on, all, std::move(identity), leaf, combine);
    }
}

} // namespace detail

/// Returns combine(... combine(identity, map(first)) ..., map(last - 1)), grouped as the head of
/// this file describes. The identity is combined once, on the left. For an empty range, returns the
/// identity. The indices are as for parallel_for(). combine is called with two rvalues of T, the
/// left operand first. combine need not be commutative. T is move-constructed and move-assigned,
/// never copied, and needs no default constructor. The values of map and combine are converted to
/// T. If they are numbers, T must represent each value of their type.
/// Blocks: until all calls have ended. Meanwhile the caller makes some of them.
/// Throws: of the calls of map and combine that threw, the exception of the first call in index
/// order. stopped_error after a stop. std::invalid_argument as parallel_for(). Other exceptions are
/// those of join().
/// Requires: map and combine may be called by several threads at once.
/// Cancellation: see fork_options::stop.
template <class First, class Last, class T, class Map, class Combine>
    requires detail::loop_index<First> && detail::loop_index<Last>
T parallel_reduce(const fork_policy& on, First first, Last last, T identity, Map&& map,
                  Combine&& combine) {
    return detail::reduce(on, first, last, std::move(identity), map, combine);
}

/// Reduces map(element) for the elements of a range. Everything else is as for indices.
template <parallel_range Range, class T, class Map, class Combine>
    requires std::invocable<Map&, std::ranges::range_reference_t<Range>>
T parallel_reduce(const fork_policy& on, Range&& range, T identity, Map&& map, Combine&& combine) {
    const auto all = detail::elements_of(range);
    const auto of = [&all, &map](std::uint64_t n) -> decltype(auto) {
        return std::invoke(map, *all.at(n));
    };
    return detail::reduce(on, std::uint64_t{0}, all.size, std::move(identity), of, combine);
}

/// Reduces the elements themselves, for example to their sum. Unlike std::reduce(), keeps their
/// order.
template <parallel_range Range, class T, class Combine>
T parallel_reduce(const fork_policy& on, Range&& range, T identity, Combine&& combine) {
    return bide::parallel_reduce(on, range, std::move(identity), std::identity(), combine);
}

/// Reduces the elements of [first, last), or the results of a map. The map is the argument before
/// the combination. (In std::transform_reduce(), the map is the argument behind the combination.)
BIDE_DETAIL_TAKES_ITERATORS(parallel_reduce);

/// Reduces a range by a function that gets consecutive elements: body(chunk) returns the value of a
/// parallel_chunk (parallel_for.hpp). The chunks are the leaves of the tree that the head of this
/// file describes, so they depend on the number of elements and on the grain alone. Returns
/// combine(... combine(identity, body(first chunk)) ..., body(last chunk)), grouped as that tree.
/// For an empty range, returns the identity. Use this function if one call for many elements is
/// faster than many calls, or if it needs an object that is costly to make. For a loop over
/// indices, pass a std::views::iota.
///
/// \code
/// const auto length = [](auto chunk) { return longest_run(chunk.begin(), chunk.end()); };
/// const run all = bide::parallel_reduce_chunks(workers, bytes, run(), length, join_runs);
/// \endcode
///
/// Blocks, throws, cancellation: as parallel_reduce(). The index of a call of body is that of the
/// first element of its chunk.
/// Requires: body and combine may be called by several threads at once.
template <parallel_range Range, class T, class Body, class Combine>
    requires std::invocable<Body&, parallel_chunk<std::ranges::iterator_t<Range>>>
T parallel_reduce_chunks(const fork_policy& on, Range&& range, T identity, Body&& body,
                         Combine&& combine) {
    using chunk = parallel_chunk<std::ranges::iterator_t<Range>>;
    static_assert(detail::reduces_to<std::invoke_result_t<Body&, chunk>, T>,
                  "bide: what body returns does not fit into the type of the identity: convert it, "
                  "or give an identity of its type");
    static_assert(detail::reduces_to<std::invoke_result_t<Combine&, T, T>, T>,
                  "bide: what combine returns does not fit into the type of the identity: convert "
                  "it, or give an identity of its type");
    const auto all = detail::elements_of(range);
    if (all.size == 0) {
        return identity;
    }
    const auto leaf = [&all, &body](detail::loop_range<std::uint64_t> part) -> T {
        return static_cast<T>(
            std::invoke(body, chunk(all.at(part.first), part.size(), part.first)));
    };
    return detail::reduce_leaves(on, all.numbers(), std::move(identity), leaf, combine);
}

/// Reduces the chunks of [first, last) in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_reduce_chunks);

}} // namespace bide::BIDE_ABI

#endif
