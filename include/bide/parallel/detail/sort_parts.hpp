// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_SORT_PARTS_HPP
#define BIDE_PARALLEL_DETAIL_SORT_PARTS_HPP

// Functions that all sorts use. If a comparison throws, every element is still in the range. If a
// move throws, the values are unspecified, but all objects are still constructed. Even if
// comparisons return random results, no object outside the range is accessed.
//
// All calls are qualified, because the namespace of the elements may have functions of the same
// names.

#include <bide/parallel/parallel_for.hpp>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// ---- How a sort begins and ends

inline constexpr std::ptrdiff_t sort_fork_size = 1'024;

// The state that the parts of a sort share.
template <class Forker> using sort_state = basic_loop_state<typename Forker::platform>;

// Calls sort(state) in one fork-join, so that a shutdown of the scheduler waits for the whole sort.
// If there are fewer than sort_fork_size elements, calls sort(state) without a fork-join. If there
// are no elements, does not call sort(state). `steps` is the total that is reported as progress.
// Throws: stopped_error if a part was skipped because of a stop.
template <class On, class Sort>
void in_one_fork(const On& on, std::uint64_t elements, std::uint64_t steps, const Sort& sort) {
    sort_state<decltype(on.forks())> state(on.options(), steps);
    if (elements != 0 && !state.leaves_out(0)) {
        if (elements < static_cast<std::uint64_t>(sort_fork_size)) {
            sort(state);
        } else {
            on.forks().enter([&] { sort(state); });
        }
    }
    state.finish();
}

// ---- Elements and their moves

// True for elements that are copied as bytes. Two kinds of trivially copyable types are excluded:
// those that can only be moved, and those whose constructor template would be chosen in place of
// the copy constructor.
template <class T>
inline constexpr bool is_trivial_to_copy =
    std::is_trivially_copyable_v<T> && std::is_trivially_constructible_v<T, T&> &&
    std::is_trivially_constructible_v<T, const T&> && std::is_trivially_assignable_v<T&, T&> &&
    std::is_trivially_assignable_v<T&, const T&>;

// True if the iterator refers to such elements, of up to `Most` bytes. Algorithms copy them without
// branches, even if the copy is not needed, because a mispredicted branch costs more. An iterator
// whose reference is a proxy is excluded, because such an iterator has its own functions to move
// and swap.
template <class It, std::size_t Most = largest_plain_copy>
inline constexpr bool moves_branchless =
    is_trivial_to_copy<std::iter_value_t<It>> && sizeof(std::iter_value_t<It>) <= Most &&
    std::is_same_v<std::iter_reference_t<It>, std::iter_value_t<It>&> &&
    std::is_same_v<std::iter_rvalue_reference_t<It>, std::iter_value_t<It>&&>;

// True if a few elements are sorted by selecting among their values. Few larger elements are sorted
// by insertion.
template <class It> inline constexpr bool sorts_branchless = moves_branchless<It, 16>;

// Moves elements as std::ranges::move() does.
template <class From, class To> To move_elements(From first, From last, To to) {
    if constexpr (std::is_pointer_v<From> && std::is_pointer_v<To>) {
        return std::move(first, last, to); // may become memmove()
    } else {
        for (; first != last; ++first, ++to) {
            *to = std::ranges::iter_move(first);
        }
        return to;
    }
}

// True if a sort takes these iterators, with the arguments that follow them in the call.
template <class It, class Compare = std::less<>, class Projection = std::identity>
inline constexpr bool sortable_by = std::sortable<It, Compare, Projection>;

// Returns a function that compares by less(projection(a), projection(b)).
template <class Compare, class Projection>
decltype(auto) callable(Compare& less, Projection& projection) noexcept {
    if constexpr (std::is_same_v<Projection, std::identity> && !std::is_member_pointer_v<Compare>) {
        return static_cast<Compare&>(less);
    } else {
        return [&less, &projection](auto&& a, auto&& b) -> bool {
            return std::invoke(less, std::invoke(projection, static_cast<decltype(a)>(a)),
                               std::invoke(projection, static_cast<decltype(b)>(b)));
        };
    }
}

// Advances an iterator by a distance between other iterators, whose difference type may be wider.
template <class It> It ahead(It it, std::ptrdiff_t n) {
    return it + static_cast<std::iter_difference_t<It>>(n);
}

// Returns 0 or 1. This form keeps compilers from making a branch for the condition. With a branch, a
// merge of random numbers takes twice as long.
inline std::ptrdiff_t as_number(bool condition) noexcept {
    std::ptrdiff_t number = condition ? 1 : 0;
#if defined(__GNUC__)
    asm("" : "+r"(number));
#endif
    return number;
}

// Returns `zero` if the number is 0, and `one` if it is 1. Both iterators point into one sequence.
template <class It> It choose(std::ptrdiff_t number, It zero, It one) noexcept {
    return zero + ((one - zero) & -static_cast<std::iter_difference_t<It>>(number));
}

// Calls f() and ignores its exception, because another exception is being handled.
template <class F> void ignore_exceptions(F&& f) noexcept {
    detail::call_or(f, [] {});
}

// Runs f and g one after the other. If f throws, g is still called.
template <class F, class G> void call_both(const F& f, const G& g) {
    struct second {
        ~second() {
            if (!has_begun) {
                ignore_exceptions(g);
            }
        }
        const G& g;
        bool has_begun = false;
    } other{g};
    f();
    other.has_begun = true;
    g();
}

// The number of elements that one call of for_all_parts() moves.
inline constexpr std::size_t moved_part = 4'096;

// Calls f(first, last) in parallel for parts that together are [0, size). `size` is not 0. All
// calls are made, even if there is no memory to fork.
template <class Forker, class F>
void for_all_parts(const Forker& forks, std::size_t size, const F& f) {
    detail::fork_each<true>(forks, 0, (size - 1) / moved_part + 1, [&](std::size_t part) {
        f(part * moved_part, (std::min)((part + 1) * moved_part, size));
    });
}

// Moves `size` elements from the places that begin at number `from` to the places that begin at
// number `to`. `to` is at most `from`. Moves all of the elements, even if there is no memory to
// fork.
template <class Loop, class It>
void move_left(Loop& loop, const elements<It>& in, std::uint64_t from, std::uint64_t size,
               std::uint64_t to) {
    const std::uint64_t room = from - to;
    if (room == 0) {
        return;
    }
    constexpr std::uint64_t least = 4 * moved_part; // fewer elements are moved serially
    while (size != 0) {
        const std::uint64_t now = room < least ? size : (std::min)(room, size);
        const auto move = [&](std::uint64_t first, std::uint64_t last) {
            std::ranges::move(in.at(from + first), in.at(from + last), in.at(to + first));
        };
        if (now > room || now < least) {
            move(0, now);
        } else {
            detail::for_all_parts(loop.forks(), static_cast<std::size_t>(now), move);
        }
        from += now;
        to += now;
        size -= now;
    }
}

// ---- Serial sorts

// An element that was taken out, and the free place in the range. The destructor puts the element
// back.
template <class It> class hole {
public:
    explicit hole(It at) : element_(std::ranges::iter_move(at)), at_(at) {}
    hole(const hole&) = delete;
    hole& operator=(const hole&) = delete;
    ~hole() {
        if (!filled_) {
            ignore_exceptions([this] { *at_ = std::move(element_); });
        }
    }

    std::iter_value_t<It>& element() noexcept { return element_; }

    // Moves *from into the free place. The free place is then `from`.
    void move_here(It from) {
        *at_ = std::ranges::iter_move(from);
        at_ = from;
    }

    void fill() {
        filled_ = true;
        *at_ = std::move(element_);
    }

private:
    using value = std::iter_value_t<It>;
    value element_;
    It at_;
    bool filled_ = false;
};

// Moves *at to its place in the sorted range [begin, at). *at is less than the element before it.
// Returns the distance of the move.
template <class It, class Compare>
std::iter_difference_t<It> insert(It begin, It at, Compare& less) {
    It before = at - 1;
    hole<It> h(at);
    for (;;) {
        h.move_here(before);
        if (before == begin || !less(h.element(), *(before - 1))) {
            break;
        }
        --before;
    }
    h.fill();
    return at - before;
}

// Sorts stably. If `IfNearly` is true, gives up and returns false when it has moved elements by
// more than 8 places in total.
template <bool IfNearly = false, class It, class Compare>
bool insertion_sort(It begin, It end, Compare& less) {
    if (begin == end) {
        return true;
    }
    std::iter_difference_t<It> moved = 0;
    for (It at = begin + 1; at != end; ++at) {
        if (less(*at, *(at - 1))) {
            if (IfNearly && moved > 8) {
                return false;
            }
            moved += detail::insert(begin, at, less);
        }
    }
    return true;
}

template <class It, class Compare> void sort_two(It a, It b, Compare& less) {
    if (less(*b, *a)) {
        std::ranges::iter_swap(a, b);
    }
}

template <class It, class Compare> void sort_three(It a, It b, It c, Compare& less) {
    detail::sort_two(a, b, less);
    detail::sort_two(b, c, less);
    detail::sort_two(a, b, less);
}

// Sorts by swaps only.
template <class It, class Compare> void heap_sort(It begin, It end, Compare& less) {
    using difference = std::iter_difference_t<It>;
    const auto sink = [&](difference at, difference among) {
        while (at < among / 2) { // while it has children
            difference child = 2 * at + 1;
            if (child + 1 < among && less(begin[child], begin[child + 1])) {
                ++child;
            }
            if (!less(begin[at], begin[child])) {
                return;
            }
            std::ranges::iter_swap(begin + at, begin + child);
            at = child;
        }
    };
    const difference size = end - begin;
    for (difference at = size / 2; at-- > 0;) {
        sink(at, size);
    }
    for (difference last = size; --last > 0;) {
        std::ranges::iter_swap(begin, begin + last);
        sink(0, last);
    }
}

// ---- Few elements

// A stable sort of a few elements that are cheap to copy, without branches that depend on the
// elements. Groups of four are sorted first (sort_four()). Then the groups are merged from both
// ends at once, which gives the processor two independent chains of loads (van den Hoven,
// "fluxsort"; Bergdoll, Peters, "driftsort").
inline constexpr std::ptrdiff_t small_sort_size = 32;

// Makes one step of a merge from the front: of equal elements, the left one goes first.
template <class From, class To, class Compare>
void merge_first(From& left, From& right, To& to, Compare& less) {
    const std::ptrdiff_t second = detail::as_number(less(*right, *left));
    *to = *detail::choose(second, left, right);
    ++to;
    right = detail::ahead(right, second);
    left = detail::ahead(left, 1 - second);
}

// Makes one step of a merge from the back: of equal elements, the right one goes last.
template <class From, class To, class Compare>
void merge_last(From& left, From& right, To& to, Compare& less) {
    const std::ptrdiff_t first = detail::as_number(less(*right, *left));
    *to = *detail::choose(first, right, left);
    --to;
    left = detail::ahead(left, -first);
    right = detail::ahead(right, first - 1);
}

// Merges the two sorted halves of n elements. If n is odd, the first half has one element less. If
// comparisons contradict each other, the elements are copied in any order.
template <class From, class To, class Compare>
void merge_halves(From from, std::iter_difference_t<From> n, To to, Compare& less) {
    const std::iter_difference_t<From> half = n / 2;
    From left = from;
    From right = from + half;
    From left_back = right - 1;
    From right_back = from + n - 1;
    To front = to;
    To back = detail::ahead(to, n - 1);
    for (auto i = half; i != 0; --i) {
        detail::merge_first(left, right, front, less);
        detail::merge_last(left_back, right_back, back, less);
    }
    if (n % 2 != 0) {
        const bool is_left = left <= left_back;
        *front = is_left ? *left : *right;
        left += is_left ? 1 : 0;
        right += is_left ? 0 : 1;
    }
    if (left != left_back + 1 || right != right_back + 1) {
        std::copy(from, from + n, to);
    }
}

// Sorts up to four elements from one place to another.
template <class From, class T, class Compare>
void sort_four(From from, std::iter_difference_t<From> n, T* to, Compare& less) {
    if (n < 4) {
        if (n == 0) {
            return;
        }
        to[0] = from[0];
        if (n == 1) {
            return;
        }
        const bool swapped = less(from[1], from[0]);
        to[0] = from[swapped ? 1 : 0];
        to[1] = from[swapped ? 0 : 1];
        if (n == 3) {
            T third = from[2];
            const bool before_second = less(third, to[1]);
            const bool before_first = before_second && less(third, to[0]);
            to[2] = before_second ? to[1] : third;
            to[1] = before_first ? to[0] : before_second ? third : to[1];
            to[0] = before_first ? third : to[0];
        }
        return;
    }
    // Puts the elements of each pair in order. Then finds the least and the greatest of the four
    // elements, and then the order of the other two.
    const auto one = less(from[1], from[0]) ? 1 : 0;
    const auto two = less(from[3], from[2]) ? 1 : 0;
    T a = from[one];
    T b = from[1 - one];
    T c = from[2 + two];
    T d = from[3 - two];
    const bool c_first = less(c, a);
    const bool b_last = less(d, b);
    T rest_1 = c_first ? a : b_last ? c : b;
    T rest_2 = b_last ? d : c_first ? b : c;
    const bool swapped = less(rest_2, rest_1);
    to[0] = c_first ? c : a;
    to[1] = swapped ? rest_2 : rest_1;
    to[2] = swapped ? rest_1 : rest_2;
    to[3] = b_last ? b : d;
}

// Sorts n elements, at most 4 << levels, from one place to another. `spare` has room for as many.
template <int levels, class From, class T, class Compare>
void sort_few(From from, std::iter_difference_t<From> n, T* to, T* spare, Compare& less) {
    if constexpr (levels == 0) {
        detail::sort_four(from, n, to, less);
    } else {
        const auto half = n / 2;
        detail::sort_few<levels - 1>(from, half, spare, to, less);
        detail::sort_few<levels - 1>(from + half, n - half, spare + half, to + half, less);
        detail::merge_halves(spare, n, to, less);
    }
}

// Sorts at most small_sort_size elements in place. Stable.
template <class It, class Compare> void small_sort(It begin, It end, Compare& less) {
    using value = std::iter_value_t<It>;
    static_assert(sorts_branchless<It>);
    alignas(value) std::byte memory[2 * small_sort_size * sizeof(value)];
    value* const sorted = reinterpret_cast<value*>(memory);
    value* const spare = sorted + small_sort_size;
    const auto n = end - begin;
    const auto half = n / 2;
    const auto sort_both = [&]<int levels>(std::integral_constant<int, levels>) {
        detail::sort_few<levels>(begin, half, sorted, spare, less);
        detail::sort_few<levels>(begin + half, n - half, sorted + half, spare + half, less);
    };
    It at = begin;
    for (auto left = n; left > 1 && !less(at[1], *at); --left) {
        ++at;
    }
    if (end - at < 2) {
        return;
    }
    if (n > 16) {
        sort_both(std::integral_constant<int, 2>());
    } else if (n > 8) {
        sort_both(std::integral_constant<int, 1>());
    } else {
        sort_both(std::integral_constant<int, 0>());
    }
    // Up to here the range is unchanged. From here on its elements are in `sorted`.
    struct copy_back {
        ~copy_back() {
            if (!is_merged) {
                std::copy(from, from + n, to);
            }
        }
        const value* from;
        std::iter_difference_t<It> n;
        It to;
        bool is_merged;
    } guard{sorted, n, begin, false};
    detail::merge_halves(sorted, n, begin, less);
    guard.is_merged = true;
}

// Sorts a few elements, stably.
template <class It, class Compare> void sort_small(It begin, It end, Compare& less) {
    if constexpr (sorts_branchless<It>) {
        detail::small_sort(begin, end, less);
    } else {
        detail::insertion_sort(begin, end, less);
    }
}

}}} // namespace bide::BIDE_ABI::detail

#endif
