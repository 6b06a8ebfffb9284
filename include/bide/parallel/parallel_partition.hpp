// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_PARTITION_HPP
#define BIDE_PARALLEL_PARALLEL_PARTITION_HPP

/// \file
/// Moves the matching elements to the front. parallel_partition() swaps elements,
/// parallel_stable_partition() keeps their order.
//
// Partitions a range in place, by one thread or in parallel. If a predicate throws, every element
// is still in the range.
//
// In parallel, each chunk is partitioned separately. Then pairs of elements on the wrong sides of
// the border between the two groups are swapped. The chunks depend only on the size of the range,
// so the result is the same on any number of workers.

#include <bide/parallel/detail/sort_parts.hpp>

#include <vector>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// The end of the left part, and whether the elements were divided already.
template <class It> struct division {
    It middle;
    bool was_divided;
};

// Partitions elements that are cheap to copy, without branches that depend on the elements. One
// element is taken out, which leaves a gap. Each step handles the next element x. The step moves
// the first element of the right part into the gap, and x to the place of that element. The old
// place of x is the new gap. If x belongs to the left part, the end of the left part moves up by
// one. (Lomuto's scheme in a cycle; Peters, "Branchless Lomuto Partitioning", and Bergdoll,
// "ipnsort".)
template <class It, class Pred> It cyclic_partition(It first, It last, Pred goes_left) {
    struct gap {
        ~gap() { *at = element; }
        std::iter_value_t<It> element;
        It at;
    };
    if (first == last) {
        return first;
    }
    It left = first;
    gap out{*first, first};
    for (It at = first + 1; at != last; ++at) {
        const bool is_left = goes_left(*at);
        *out.at = *left;
        *left = *at;
        out.at = at;
        left += is_left ? 1 : 0;
    }
    const bool is_left = goes_left(out.element);
    *out.at = *left;
    out.at = left;
    return is_left ? left + 1 : left;
}

// Does the same with fewer moves, which is faster for larger elements. Examines blocks of elements
// from both ends, and stores the numbers of those that belong to the other side. Then these change
// places in a cycle. (Edelkamp, Weiss, "BlockQuicksort".)
template <class It, class Pred> It block_partition(It first, It last, Pred goes_left) {
    using difference = std::iter_difference_t<It>;
    constexpr difference block = 128;
    unsigned char lefts[block];  // numbers of elements, counted from `first`
    unsigned char rights[block]; // numbers of elements, counted back from `last`
    difference left = 0, left_end = 0, right = 0, right_end = 0;
    while (last - first >= 2 * block) {
        if (left == left_end) {
            left = left_end = 0;
            for (difference i = 0; i != block; ++i) {
                lefts[left_end] = static_cast<unsigned char>(i);
                left_end += goes_left(first[i]) ? 0 : 1;
            }
        }
        if (right == right_end) {
            right = right_end = 0;
            for (difference i = 0; i != block; ++i) {
                rights[right_end] = static_cast<unsigned char>(i);
                right_end += goes_left(last[-1 - i]) ? 1 : 0;
            }
        }
        if (auto n = (std::min)(left_end - left, right_end - right); n != 0) {
            It gap = first + lefts[left++];
            const std::iter_value_t<It> element = *gap;
            for (;;) {
                const It from_right = last - 1 - rights[right++];
                *gap = *from_right;
                gap = from_right;
                if (--n == 0) {
                    break;
                }
                const It from_left = first + lefts[left++];
                *gap = *from_left;
                gap = from_left;
            }
            *gap = element;
        }
        first += left == left_end ? block : 0;
        last -= right == right_end ? block : 0;
    }
    // At most one block has such elements left.
    It middle = detail::cyclic_partition(left == left_end ? first : first + block,
                                         right == right_end ? last : last - block, goes_left);
    while (left != left_end) {
        std::iter_swap(first + lefts[--left_end], --middle);
    }
    while (right != right_end) {
        std::iter_swap(last - 1 - rights[--right_end], middle++);
    }
    return middle;
}

// Moves to the front the elements for which goes_left is true.
template <class It, class Pred> division<It> divide(It first, It last, Pred goes_left) {
    for (bool was_divided = true;; was_divided = false) {
        while (first != last && goes_left(*first)) {
            ++first;
        }
        if (first == last) {
            return {first, was_divided};
        }
        do { // goes_left(*first) is not called again: the answer might differ
            if (--last == first) {
                return {first, was_divided};
            }
        } while (!goes_left(*last));
        std::ranges::iter_swap(first, last);
        ++first;
        if constexpr (moves_branchless<It, 16>) {
            return {detail::cyclic_partition(first, last, goes_left), false};
        } else if constexpr (moves_branchless<It>) {
            return {detail::block_partition(first, last, goes_left), false};
        }
    }
}

inline constexpr std::size_t most_divide_chunks = 64;

// Partitions as divide() does, in parallel. Calls divide_chunk(begin, end) for each chunk. A chunk
// has at least `least_chunk` elements. divide_chunk() partitions the chunk by divide() and returns
// the result of divide(). If divide_chunk() skips a chunk, the result of this function is an
// arbitrary place of the range.
template <class Forker, class It, class DivideChunk>
division<It> divide_by_chunks(const Forker& forks, It first, It last, std::uint64_t least_chunk,
                              const DivideChunk& divide_chunk) {
    using difference = std::iter_difference_t<It>;
    const auto size = static_cast<std::uint64_t>(last - first);
    const auto chunks = static_cast<std::size_t>(
        std::clamp<std::uint64_t>(size / least_chunk, 1, most_divide_chunks));
    const auto begin_of = [=](std::size_t chunk) {
        return first + static_cast<difference>(size * chunk / chunks);
    };
    std::array<division<It>, most_divide_chunks> parts{};
    detail::fork_each(forks, 0, chunks, [&](std::size_t chunk) {
        parts[chunk] = divide_chunk(begin_of(chunk), begin_of(chunk + 1));
    });
    division<It> all{first, true};
    for (std::size_t chunk = 0; chunk != chunks; ++chunk) {
        all.middle += parts[chunk].middle - begin_of(chunk);
        all.was_divided = all.was_divided && parts[chunk].was_divided;
    }
    // The border is the place between the two parts of the whole range. Each chunk has at most one
    // piece on the wrong side of the border. The loop below pairs the pieces before the border with
    // pieces of the same size behind it, in their order.
    struct pair_of_pieces {
        It left;
        It right;
        difference size;
    };
    std::array<pair_of_pieces, 2 * most_divide_chunks> swaps{};
    std::size_t count = 0;
    pair_of_pieces at{first, first, 0};
    It left_end = first;
    It right_end = first;
    for (std::size_t left = 0, right = 0;; at.left += at.size, at.right += at.size) {
        for (; at.left == left_end && left != chunks; ++left) {
            at.left = parts[left].middle;
            left_end = (std::max)(at.left, (std::min)(begin_of(left + 1), all.middle));
        }
        for (; at.right == right_end && right != chunks; ++right) {
            right_end = parts[right].middle;
            at.right = (std::min)(right_end, (std::max)(begin_of(right), all.middle));
        }
        at.size = (std::min)(left_end - at.left, right_end - at.right);
        if (at.size == 0) {
            break;
        }
        swaps[count++] = at;
    }
    if (count == 0) {
        return all;
    }
    detail::fork_each<true>(forks, 0, count, [&](std::size_t index) {
        const pair_of_pieces& one = swaps[index];
        std::ranges::swap_ranges(one.left, one.left + one.size, one.right, one.right + one.size);
    });
    all.was_divided = false;
    return all;
}

// ---- Partitions

// Partitions by the pivot *begin. Calls divide(first, last, goes_left), and then moves the pivot
// between the two parts. `middle` in the result is the place of the pivot. The elements of [begin,
// middle) are less than the pivot; the elements of (middle, end) are not. If `WithEqual` is true,
// the left part gets the elements that are equal to the pivot. Requires, in that case: no element
// is less than the pivot.
template <bool WithEqual, class It, class Compare, class Divide>
division<It> partition_by(It begin, It end, Compare& less, const Divide& divide) {
    const auto goes_left = [&less](auto&& element, auto&& pivot) -> bool {
        if constexpr (WithEqual) {
            return !less(std::forward<decltype(pivot)>(pivot),
                         std::forward<decltype(element)>(element));
        } else {
            return less(std::forward<decltype(element)>(element),
                        std::forward<decltype(pivot)>(pivot));
        }
    };
    division<It> parts{};
    if constexpr (moves_branchless<It>) {
        // Passes the pivot by value. Stores to the range do not change the copy, so it can stay in
        // a register.
        parts = divide(begin + 1, end,
                       [goes_left, pivot = std::iter_value_t<It>(*begin)](
                           auto&& element) mutable -> bool { return goes_left(element, pivot); });
    } else {
        parts = divide(begin + 1, end, [&](auto&& element) -> bool {
            return goes_left(std::forward<decltype(element)>(element), *begin);
        });
    }
    if (--parts.middle != begin) {
        std::ranges::iter_swap(begin, parts.middle);
    }
    return parts;
}

// In parts with more elements than this, the pivot is a median of medians.
inline constexpr std::ptrdiff_t many_for_pivot = 128;

// Moves the pivot to the front: the median of three elements, or of three such medians.
template <class It, class Compare> void choose_pivot(It begin, It end, Compare& less) {
    const auto size = end - begin;
    const It middle = begin + size / 2;
    if (size > many_for_pivot) {
        detail::sort_three(begin, middle, end - 1, less);
        detail::sort_three(begin + 1, middle - 1, end - 2, less);
        detail::sort_three(begin + 2, middle + 1, end - 3, less);
        detail::sort_three(middle - 1, middle, middle + 1, less);
        std::ranges::iter_swap(begin, middle);
    } else {
        detail::sort_three(middle, begin, end - 1, less);
    }
}

// Swaps elements, so that other elements become candidates for the next pivots.
template <class It> void break_patterns(It begin, It end) {
    using difference = std::iter_difference_t<It>;
    const difference quarter = (end - begin) / 4;
    if (quarter < 6) {
        return;
    }
    for (difference i = 0; i != (end - begin > many_for_pivot ? 3 : 1); ++i) {
        std::ranges::iter_swap(begin + i, begin + quarter + i);
        std::ranges::iter_swap(end - 1 - i, end - quarter - i);
    }
}

// ---- The sort

// Pattern-defeating quicksort (Peters: "Pattern-defeating Quicksort", 2021). The two parts of a
// partition are sorted in parallel.
//
// If there are many equal elements, one pass separates the elements that equal the last pivot. If a
// partition moved nothing, the range may be sorted already. So an insertion sort is tried, which
// gives up early. If one part of a partition has less than an eighth of the elements, the partition
// counts as bad, and some elements are swapped. After log2(n) bad partitions, the rest is sorted by
// heap sort. So every input takes O(n log n) at most.

template <class Forker, class It, class Compare> class quick_sort {
    using difference = std::iter_difference_t<It>;

public:
    // Sorts parts of the range that begins at `origin`.
    quick_sort(Forker forks, It origin, Compare& less,
               basic_loop_state<typename Forker::platform>& shared) noexcept
        : forks_(forks), origin_(origin), less_(less), state_(shared) {}

    void run(It begin, It end) { sort<true>(begin, end, most_bad(begin, end), true); }

    // Puts at `nth` the element that a sort would put there. Afterwards no element before `nth` is
    // greater, and no element behind it is less. Divides only the parts that contain `nth`.
    // Requires: begin <= nth < end.
    void select(It begin, It nth, It end) {
        nth_ = nth;
        sort<true, true>(begin, end, most_bad(begin, end), true);
    }

private:
    static int most_bad(It begin, It end) {
        return static_cast<int>(std::bit_width(static_cast<std::size_t>(end - begin)));
    }

    // Parts up to `small_size` are not divided. A fork needs two parts of at least fork_size.
    static constexpr difference small_size = sorts_branchless<It> ? small_sort_size : 24;
    static constexpr difference fork_size = sort_fork_size;
    // The least number of elements that several threads partition.
    static constexpr std::ptrdiff_t least_in_parallel = 262'144;

    // Sorts [begin, end). If `leftmost` is false, *(begin - 1) exists and is not greater than any
    // element. If `large` is true, the part may be divided among threads, and the elements whose
    // place is final are counted. If `selects` is true, sorts only as far as select() needs.
    template <bool large, bool selects = false>
    void sort(It begin, It end, int bad_ones, bool leftmost) {
        for (;;) {
            const difference size = end - begin;
            if constexpr (large) {
                if (size < (selects ? small_size : fork_size)) {
                    sort<false>(begin, end, bad_ones, leftmost);
                    return settle<large>(size);
                }
                if (leaves_out(begin)) {
                    return;
                }
            } else if (size <= small_size) {
                return detail::sort_small(begin, end, less_);
            }
            detail::choose_pivot(begin, end, less_);
            if (!leftmost && !less_(*(begin - 1), *begin)) {
                const It next =
                    detail::partition_by<true>(begin, end, less_, how<large>()).middle + 1;
                if (large && leaves_out(begin)) {
                    return;
                }
                if (selects && nth_ < next) {
                    return settle<large>(size);
                }
                settle<large>(next - begin);
                begin = next;
                continue;
            }
            const division<It> parts = detail::partition_by<false>(begin, end, less_, how<large>());
            if (large && leaves_out(begin)) {
                return;
            }
            const It pivot = parts.middle;
            const It right = pivot + 1;
            const difference smaller = (std::min)(pivot - begin, end - right);
            if (smaller < size / 8) {
                if (--bad_ones == 0) {
                    detail::heap_sort(begin, end, less_);
                    return settle<large>(size);
                }
                if constexpr (!selects) {
                    detail::break_patterns(begin, pivot);
                    detail::break_patterns(right, end);
                }
            } else if (!selects && parts.was_divided &&
                       detail::insertion_sort<true>(begin, pivot, less_) &&
                       detail::insertion_sort<true>(right, end, less_)) {
                return settle<large>(size);
            }
            if constexpr (selects) {
                if (pivot == nth_) {
                    return settle<large>(size);
                }
                if (nth_ < pivot) {
                    settle<large>(end - pivot);
                    end = pivot;
                } else {
                    settle<large>(right - begin);
                    begin = right;
                    leftmost = false;
                }
                detail::break_patterns(begin, end);
                continue;
            } else if constexpr (large) {
                settle<large>(1);
                if (smaller >= fork_size) {
                    return forks_.both([=, this] { sort_arm(begin, pivot, bad_ones, leftmost); },
                                       [=, this] { sort_arm(right, end, bad_ones, false); });
                }
            }
            sort<large>(begin, pivot, bad_ones, leftmost);
            begin = right;
            leftmost = false;
        }
    }

    // Sorts a part, while another thread may sort the other part.
    void sort_arm(It begin, It end, int bad_ones, bool leftmost) {
        state_.run(number_of(begin), 0, [&] { sort<true>(begin, end, bad_ones, leftmost); });
    }

    // Returns the function by which partition_by() divides a part. After an exception or a stop,
    // that function may skip chunks. Its result is then an arbitrary place, which sort() does not
    // use.
    template <bool large> auto how() const {
        if constexpr (large) {
            return [this](It first, It last, const auto& pred) {
                if (last - first < least_in_parallel) {
                    return detail::divide(first, last, pred);
                }
                return detail::divide_by_chunks(forks_, first, last, 16'384, [&](It from, It to) {
                    return leaves_out(from) ? division<It>{from, false}
                                            : detail::divide(from, to, pred);
                });
            };
        } else {
            return [](It first, It last, const auto& pred) {
                return detail::divide(first, last, pred);
            };
        }
    }

    std::uint64_t number_of(It at) const { return static_cast<std::uint64_t>(at - origin_); }
    // Returns true if a part before `at` has thrown, or if a stop was requested.
    bool leaves_out(It at) const { return state_.leaves_out(number_of(at)); }
    template <bool large> void settle(difference elements) const {
        if constexpr (large) {
            state_.count(static_cast<std::uint64_t>(elements));
        }
    }

    const Forker forks_;
    const It origin_;
    It nth_{}; // of select()
    Compare& less_;
    basic_loop_state<typename Forker::platform>& state_;
};

template <class On, class It, class Predicate, class Projection>
It partition(const On& on, const elements<It>& all, Predicate& predicate, Projection& projection) {
    using forker_type = decltype(on.forks());
    const auto begin = detail::unwrap(all.first);
    using place = std::remove_const_t<decltype(begin)>;
    const place end = detail::unwrap(all.end());
    // The least number of elements of a chunk. By default, a chunk takes some microseconds.
    const std::uint64_t least = on.options().grain != 0 ? on.options().grain : 4'096;
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

// Moves the matching elements of a part to its front. Unmatched elements are kept in vectors until
// the predicate was called for all elements. If a call throws, or if there is no memory for the
// vectors, the unmatched elements are put back in any order.
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

/// Moves to the front of the range the elements for which predicate(projection(element)) is true.
/// Returns an iterator to the first unmatched element. The order within both groups depends only on
/// the range and the grain, and not on the number of workers. parallel_stable_partition() keeps the
/// order.
/// Blocks: until all calls have ended. Meanwhile the caller makes some of them. If the range has
/// less than twice the grain, the calling thread partitions it alone.
/// Throws: what a call of the predicate threw. If calls in several parts of the range threw, the
/// exception of the first part. The range then has the same elements as before, in some order. If a
/// move or a swap throws, all elements are alive, but their values are unspecified. stopped_error
/// after a stop. Other exceptions are those of join().
/// Requires: predicate and projection may be called by several threads at once.
/// Cancellation: a stop takes effect between parts. If a part is skipped, throws stopped_error, and
/// the range has the same elements as before, in some order. fork_options::grain is the least
/// number of elements of a part, 4,096 if it is 0; there are at most 64 parts.
/// fork_options::progress counts the calls of the predicate.
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
BIDE_DETAIL_TAKES_ITERATORS(parallel_partition);

/// Moves to the front of the range the elements for which predicate(projection(element)) is true.
/// Within both groups, elements keep their order. Returns an iterator to the first unmatched
/// element. Allocates memory for the unmatched elements.
/// Throws: as parallel_partition(), and std::bad_alloc if there is no memory. After an exception,
/// each element is still in the range, unless a move has thrown.
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
BIDE_DETAIL_TAKES_ITERATORS(parallel_stable_partition);

}} // namespace bide::BIDE_ABI

#endif
