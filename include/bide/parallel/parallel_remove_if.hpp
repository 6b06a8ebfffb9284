// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_REMOVE_IF_HPP
#define BIDE_PARALLEL_PARALLEL_REMOVE_IF_HPP

/// \file
/// Removes elements. parallel_remove_if() removes those that match, parallel_unique() removes equal
/// neighbours. The remaining elements are moved to the beginning of the range, in their order.
///
/// The results are those of std's algorithms, on any number of workers. The predicate is called
/// once for each element. The owner of the loop (parallel_for.hpp) moves an element at most once.
/// Each thread that takes a part with this element does so, too.

#include <bide/parallel/detail/sort_parts.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// Moves the elements that are kept to the beginning of their range, in their order.
//
// The owner of the loop moves each kept element to the place behind the earlier kept elements. A
// thief, that is, a thread that has taken a part of the loop, does the same within its part.
// compact_front::join() moves the kept elements of the thief's part to the place behind those of
// the owner, in steps. Each step moves, in parallel, as many elements as fit into the free places.
// So no memory is needed.
//
// keeps(it, last) returns true if the element at `it` is kept. `last` points to an iterator to the
// previous kept element of the part. If no element of the part was kept before, `last` is nullptr.
template <class It, class Keeps> class compact_front {
public:
    using part = compact_front;

    compact_front(const elements<It>& in, Keeps& keeps) : in_(in), keeps_(keeps) {}
    compact_front(const compact_front& of, loop_range<std::uint64_t> own)
        : in_(of.in_), keeps_(of.keeps_), begin_(own.first) {}

    std::uint64_t kept() const noexcept { return kept_; }

    void run(std::uint64_t from, std::uint64_t to) {
        const It end = in_.at(to);
        const It begin = in_.at(begin_);
        It it = in_.at(from);
        It out = in_.at(begin_ + kept_);
        for (; it != end && out == begin; ++it) {
            if (keeps_(it, static_cast<const It*>(nullptr))) {
                take(it, out);
            }
        }
        for (; it != end; ++it) {
            if constexpr (copies_bytes<const std::iter_value_t<It>*, It>) {
                // The previous element is still in its old place. If it was kept, it is the last
                // kept element. If it was removed, it equals the last kept element. So the
                // predicate gets the previous element in both cases.
                It last = it;
                --last;
                const bool is_kept = keeps_(it, std::addressof(std::as_const(last)));
                const std::iter_value_t<It> value = *it;
                *out = value;
                out += is_kept ? 1 : 0;
            } else {
                It last = out;
                --last;
                if (keeps_(it, std::addressof(std::as_const(last)))) {
                    take(it, out);
                }
            }
        }
        kept_ = static_cast<std::uint64_t>(out - begin);
    }

    template <class Loop> void join(Loop& loop, compact_front&& next) {
        std::uint64_t from = next.begin_;
        std::uint64_t size = next.kept_;
        if (kept_ != 0 && size != 0 && Keeps::asks_last) {
            const It last = in_.at(begin_ + kept_ - 1);
            if (!keeps_(in_.at(from), std::addressof(last))) {
                ++from;
                --size;
            }
        }
        detail::move_left(loop, in_, from, size, begin_ + kept_);
        kept_ += size;
    }

private:
    static void take(const It& it, It& out) {
        if (it != out) {
            *out = std::ranges::iter_move(it);
        }
        ++out;
    }

    const elements<It> in_;
    Keeps& keeps_;
    const std::uint64_t begin_ = 0;
    std::uint64_t kept_ = 0;
};

template <class Predicate, class Projection> struct keeps_unmatched {
    static constexpr bool asks_last = false;
    Predicate& predicate;
    Projection& projection;
    template <class It> bool operator()(const It& it, const It*) const {
        return !std::invoke(predicate, std::invoke(projection, *it));
    }
};

template <class Equal, class Projection> struct keeps_first {
    static constexpr bool asks_last = true;
    Equal& equal;
    Projection& projection;
    template <class It> bool operator()(const It& it, const It* last) const {
        return last == nullptr ||
               !std::invoke(equal, std::invoke(projection, **last), std::invoke(projection, *it));
    }
};

// Returns the end of the elements that are kept.
template <class On, class It, class Keeps>
It compact(const On& on, const elements<It>& in, Keeps keeps) {
    compact_front front(in, keeps);
    detail::run_in_order(on, in.size, front);
    return in.at(front.kept());
}

} // namespace detail

/// Removes the elements for which predicate(projection(element)) is true, and moves the remaining
/// elements to the beginning, in their order. Returns the iterator behind them. The elements behind
/// that iterator are valid but unspecified.
/// Blocks: until all calls have ended. Meanwhile the caller makes some of them.
/// Throws: of the calls that threw, the exception of the first call in the order of the range.
/// stopped_error after a stop. Other exceptions are those of join(). After an exception, all
/// elements are valid but unspecified.
/// Requires: predicate and projection may be called by several threads at once.
/// Cancellation: see fork_options::stop.
/// Complexity: n calls of the predicate. It allocates no memory.
template <parallel_range Range, class Predicate, class Projection = std::identity>
    requires std::permutable<std::ranges::iterator_t<Range>> &&
             detail::finds_in<Predicate, std::ranges::iterator_t<Range>, Projection>
std::ranges::borrowed_iterator_t<Range> parallel_remove_if(const fork_policy& on, Range&& range,
                                                           Predicate predicate,
                                                           Projection projection = {}) {
    return detail::compact(on, detail::elements_of(range),
                           detail::keeps_unmatched<Predicate, Projection>{predicate, projection});
}

/// Removes elements of [first, last) in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_remove_if);

/// Removes all but the first of each group of neighbours that are equal by equal(projection(a),
/// projection(b)). Everything else is as in parallel_remove_if().
/// Requires: equal is an equivalence relation.
template <parallel_range Range, class Equal = std::ranges::equal_to,
          class Projection = std::identity>
    requires std::permutable<std::ranges::iterator_t<Range>> &&
             detail::compares_in<Equal, std::ranges::iterator_t<Range>, Projection>
std::ranges::borrowed_iterator_t<Range> parallel_unique(const fork_policy& on, Range&& range,
                                                        Equal equal = {},
                                                        Projection projection = {}) {
    return detail::compact(on, detail::elements_of(range),
                           detail::keeps_first<Equal, Projection>{equal, projection});
}

/// Removes elements of [first, last) in the same way.
BIDE_DETAIL_TAKES_ITERATORS(parallel_unique);

}} // namespace bide::BIDE_ABI

#endif
