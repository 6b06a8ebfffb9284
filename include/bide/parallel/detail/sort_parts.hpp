// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_SORT_PARTS_HPP
#define BIDE_PARALLEL_DETAIL_SORT_PARTS_HPP

// The parts that all sorts use. If a comparison throws, every element is still in the range. If a
// move throws, values are unspecified, but all objects are alive. Even if comparisons return random
// results, no object outside the range is accessed.
//
// Calls are qualified, because the namespaces of elements may have functions of the same names.

#include <bide/core/config.hpp>
#include <bide/parallel/detail/element_range.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <type_traits>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// The least size of a part that is forked.
inline constexpr std::ptrdiff_t sort_fork_size = 1'024;

// True for elements that are cheap to copy: up to 16 bytes. They are copied without branches, even
// if that is not needed, because a mispredicted branch costs more. Two kinds of trivially copyable
// types are excluded: those that can only be moved, and those whose constructor template would be
// chosen in place of the copy constructor.
template <class T>
inline constexpr bool is_cheap_to_copy =
    std::is_trivially_copyable_v<T> && std::is_trivially_constructible_v<T, T&> &&
    std::is_trivially_constructible_v<T, const T&> && std::is_trivially_assignable_v<T&, T&> &&
    std::is_trivially_assignable_v<T&, const T&> && sizeof(T) <= 16;

// True if the iterator refers to elements that are cheap to copy. An iterator whose reference is a
// proxy is excluded, because it has its own functions to move and swap.
template <class It>
inline constexpr bool sorts_branchless =
    is_cheap_to_copy<std::iter_value_t<It>> &&
    std::is_same_v<std::iter_reference_t<It>, std::iter_value_t<It>&> &&
    std::is_same_v<std::iter_rvalue_reference_t<It>, std::iter_value_t<It>&&>;

// True if an element moves from one place to the other without an exception.
template <class From, class To>
inline constexpr bool is_nothrow_element_move =
    noexcept(*std::declval<To&>() = std::ranges::iter_move(std::declval<From&>()));

// As std::ranges::move().
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

// Returns what can be called as less(a, b), also if `less` is a pointer to a member.
template <class Compare> decltype(auto) callable(Compare& less) noexcept {
    if constexpr (std::is_member_pointer_v<Compare>) {
        return std::mem_fn(less);
    } else {
        return static_cast<Compare&>(less);
    }
}

// Moves an iterator by a distance between other iterators, which may have a wider type.
template <class It> It ahead(It it, std::ptrdiff_t n) {
    return it + static_cast<std::iter_difference_t<It>>(n);
}

// Returns 0 or 1 in a way that keeps clang from making a branch of it. With a branch, merging
// random numbers takes twice as long. g++ makes no branch in any case.
inline std::ptrdiff_t as_number(bool condition) noexcept {
    std::ptrdiff_t number = condition ? 1 : 0;
#if defined(__clang__)
    asm("" : "+r"(number));
#endif
    return number;
}

// Returns `zero` or `one`, two places of one sequence, by such a number.
template <class It> It choose(std::ptrdiff_t number, It zero, It one) noexcept {
    return zero + ((one - zero) & -static_cast<std::iter_difference_t<It>>(number));
}

// Calls f() and ignores its exception, because another exception is on its way.
template <class F> void ignore_exceptions(F&& f) noexcept {
#if BIDE_EXCEPTIONS
    if constexpr (noexcept(f())) {
        f();
    } else {
        try {
            f();
        } catch (...) {
        }
    }
#else
    f();
#endif
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

// An element that was taken out, and the free place in the range. The destructor puts it back.
template <class It> class hole {
public:
    explicit hole(It at) : element_(std::ranges::iter_move(at)), at_(at) {}
    hole(const hole&) = delete;
    hole& operator=(const hole&) = delete;
    ~hole() {
        if (!filled_) {
            ignore_exceptions([this]() noexcept(noexcept(*at_ = std::move(element_))) {
                *at_ = std::move(element_);
            });
        }
    }

    std::iter_value_t<It>& element() noexcept { return element_; }

    // Moves `from` into the free place, which is then where `from` was.
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

// Moves *at, which is less than the element before it, to its place in the sorted [begin, at).
// Returns the distance.
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

// Sorts stably.
template <class It, class Compare> void insertion_sort(It begin, It end, Compare& less) {
    if (begin == end) {
        return;
    }
    for (It at = begin + 1; at != end; ++at) {
        if (less(*at, *(at - 1))) {
            detail::insert(begin, at, less);
        }
    }
}

// Sorts a range that needs few moves. Returns false if it needs more and is not sorted.
template <class It, class Compare> bool sort_if_nearly(It begin, It end, Compare& less) {
    if (begin == end) {
        return true;
    }
    std::iter_difference_t<It> moved = 0;
    for (It at = begin + 1; at != end; ++at) {
        if (less(*at, *(at - 1))) {
            if (moved > 8) {
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
        while (at < among / 2) { // or else it has no children
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

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
