// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_PARALLEL_MERGE_HPP
#define BIDE_PARALLEL_PARALLEL_MERGE_HPP

/// \file
/// Merges two sorted ranges: parallel_merge() into a third range, parallel_inplace_merge() within
/// one range. The loop of parallel_merge() runs over the places that are written. Each part of the
/// loop finds by a binary search which elements belong to its places. So the work of a part does
/// not depend on how the ranges interleave.
//
// This header also has the merge sort, and the search for sorted pieces of a range.

#include <bide/parallel/detail/sort_parts.hpp>

namespace bide { inline namespace BIDE_ABI {
namespace detail {

// ---- Runs

// Finds out whether a sequence consists of few long runs. A run is a part that ascends, or that
// descends strictly. The runs must cover at least half of the sequence. The remaining elements may
// be in any order, and only these are sorted. A random sequence is soon rejected.
//
// The search works in steps. If a run is long, the next step examines as many elements as all
// earlier steps together, in parallel. So the search costs at most two comparisons for each
// element.
template <class It> class long_runs {
    using difference = std::iter_difference_t<It>;

public:
    static constexpr int most = 8;

    // Finds the runs and changes nothing. Returns false if a run that begins in the first half is
    // shorter than an eighth of the sequence.
    template <class Forker, class Compare>
    bool find(Forker forks, It begin, It end, Compare& less) {
        const difference least = (end - begin) / most;
        ends_[0] = begin;
        for (It at = begin; at != end;) {
            const It first = at;
            bool descends = false;
            if (++at != end) {
                descends = less(*at, *first);
                at = descends ? end_of_run<true>(forks, at, end, less)
                              : end_of_run<false>(forks, at, end, less);
            }
            if (at - first < least && at != end) {
                at = end;
                is_last_sorted_ = false;
                if (first - begin < (end - begin) / 2) {
                    return false;
                }
            }
            descends_[size_] = descends && is_last_sorted_;
            ends_[++size_] = at;
        }
        return true;
    }

    // Takes two ascending runs, without checking them.
    void assign(It begin, It middle, It end) {
        ends_[0] = begin;
        ends_[1] = middle;
        ends_[2] = end;
        size_ = 2;
    }

    int size() const noexcept { return size_; }
    bool descends(int i) const noexcept { return descends_[i]; }
    bool is_sorted(int i) const noexcept { return is_last_sorted_ || i + 1 != size_; }
    It begin_of(int i) const noexcept { return ends_[i]; }
    It end_of(int i) const noexcept { return ends_[i + 1]; }

private:
    // Returns the end of the run that contains *at: the first later element that does not continue
    // the run, or `end`.
    template <bool descends, class Forker, class Compare>
    static It end_of_run(Forker forks, It at, It end, Compare& less) {
        if (end - at <= 2 * serial_size) {
            return look_through<descends>(at, end, less);
        }
        It seen = look_through<descends>(at, at + serial_size, less);
        if (seen == at + serial_size) {
            for (It next = seen; seen == next && seen != end;) {
                next = end - seen > seen - at ? seen + (seen - at) : end;
                seen = look_through_by_halves<descends>(forks, seen - 1, next, less);
            }
        }
        return seen;
    }

    template <bool descends, class Forker, class Compare>
    static It look_through_by_halves(Forker forks, It at, It end, Compare& less) {
        if (end - at <= serial_size) {
            return look_through<descends>(at, end, less);
        }
        const It middle = at + (end - at) / 2;
        It left{};
        It right{};
        forks.both([&] { left = look_through_by_halves<descends>(forks, at, middle + 1, less); },
                   [&] { right = look_through_by_halves<descends>(forks, middle, end, less); });
        return left == middle + 1 ? right : left;
    }

    template <bool descends, class Compare> static It look_through(It at, It end, Compare& less) {
        if constexpr (moves_branchless<It>) {
            while (end - at > block && goes_on<descends>(at, less)) {
                at += block;
            }
        }
        It next = at + 1;
        for (; next != end && static_cast<bool>(less(*next, *at)) == descends; ++next) {
            at = next;
        }
        return next;
    }

    // Returns true if the next `block` elements continue the run. The test is one expression
    // without a loop.
    template <bool descends, class Compare> static bool goes_on(It at, Compare& less) {
        return [&]<difference... is>(std::integer_sequence<difference, is...>) {
            return ((static_cast<bool>(less(at[is + 1], at[is])) == descends) && ...);
        }(std::make_integer_sequence<difference, block>());
    }

    // The least number of elements for one thread: these take some microseconds.
    static constexpr difference serial_size = 16'384;
    static constexpr difference block = 16;

    It ends_[most + 2]{}; // each run but the last is at least an eighth of the sequence
    bool descends_[most + 1]{};
    int size_ = 0;
    bool is_last_sorted_ = true;
};

// Reverses [begin, end), in parallel if it is large.
template <class Forker, class It> void reverse_in_parallel(const Forker& forks, It begin, It end) {
    using difference = std::iter_difference_t<It>;
    const difference pairs = (end - begin) / 2;
    if (pairs <= 16'384) {
        return static_cast<void>(std::ranges::reverse(begin, end));
    }
    detail::for_all_parts(forks, static_cast<std::size_t>(pairs), [=](auto first, auto last) {
        It right = end - static_cast<difference>(first);
        for (It left = begin + static_cast<difference>(first);
             left != begin + static_cast<difference>(last); ++left) {
            std::ranges::iter_swap(left, --right);
        }
    });
}

// ---- Two places

// A range and a buffer of the same size. If the elements are not trivially copyable, both always
// contain constructed objects. Each element is either in the range or in the buffer. The object at
// the same index in the other place has been moved from. A step of a sort moves the elements of a
// part from one place to the other, in order. If a comparison throws, the step still moves these
// elements, but in any order. So the caller of a step always knows where the elements are.
template <class It> class two_places {
    using value = std::iter_value_t<It>;
    using difference = std::iter_difference_t<It>;

public:
    enum class place { range, buffer };

    // True if the memory of the buffer contains valid objects without any constructor call.
    static constexpr bool is_plain = std::is_trivially_copyable_v<value>;
    // The place of the elements when the steps begin.
    static constexpr place start = is_plain ? place::range : place::buffer;

    two_places(It range, std::size_t elements) noexcept
        : range_(range), size_(elements), memory_(allocate(elements)) {}
    two_places(const two_places&) = delete;
    two_places& operator=(const two_places&) = delete;
    ~two_places() { std::destroy(buffer(), buffer() + filled_); }

    // Returns true if the buffer has memory. All other functions require that.
    explicit operator bool() const noexcept { return static_cast<bool>(memory_); }

    // Moves the elements to the place `start`. If a move throws, moves back the elements that were
    // moved.
    template <class Forker> void bring_to_start(const Forker& forks) {
        if constexpr (!is_plain && moves_surely) {
            detail::for_all_parts(forks, size_, [this](std::size_t first, std::size_t last) {
                It at = detail::ahead(range_, static_cast<std::ptrdiff_t>(first));
                for (; first != last; ++first, ++at) {
                    std::construct_at(buffer() + first, std::ranges::iter_move(at));
                }
            });
            filled_ = size_;
        } else if constexpr (!is_plain) {
            struct unfill {
                ~unfill() {
                    if (!is_filled) {
                        ignore_exceptions([this] {
                            detail::move_elements(places.buffer(), places.buffer() + places.filled_,
                                                  places.range_);
                        });
                    }
                }
                const two_places& places;
                bool is_filled = false;
            } otherwise{*this};
            for (It at = range_; filled_ != size_; ++filled_, ++at) {
                std::construct_at(buffer() + filled_, std::ranges::iter_move(at));
            }
            otherwise.is_filled = true;
        }
    }

    It range() const { return range_; }
    value* buffer() const noexcept { return memory_.get(); }
    static constexpr place other(place p) noexcept {
        return p == place::range ? place::buffer : place::range;
    }

    template <class F> decltype(auto) at(place p, const F& f) const {
        if (p == place::range) {
            return f(range_);
        }
        return f(buffer());
    }

    // In its destructor, moves the elements [first, last) to `target` if they are not there yet,
    // for example after an exception. So the elements always end up at `target`.
    class transfer {
    public:
        transfer(const two_places& in, difference first, difference last, place from,
                 place target) noexcept
            : places_(in), first_(first), last_(last), from_(from), target_(target) {}
        transfer(const transfer&) = delete;
        transfer& operator=(const transfer&) = delete;
        ~transfer() {
            if (from_ != target_) {
                ignore_exceptions([this] { finish(); });
            }
        }
        // Called when a step moves the elements to the place that is not the target.
        void left_start() noexcept { from_ = other(target_); }
        void finish() {
            if (const place from = std::exchange(from_, target_); from != target_) {
                places_.at(from, [this](auto begin) {
                    places_.at(target_, [&](auto to) {
                        detail::move_elements(begin + first_, begin + last_, to + first_);
                    });
                });
            }
        }
        // Called when another function has begun to move the elements.
        void release() noexcept { from_ = target_; }

    private:
        const two_places& places_;
        const difference first_;
        const difference last_;
        place from_;
        const place target_;
    };

private:
    static constexpr bool moves_surely =
        noexcept(std::ranges::iter_move(std::declval<It&>())) &&
        std::is_nothrow_constructible_v<value, std::iter_rvalue_reference_t<It>>;
    static constexpr std::align_val_t alignment{alignof(value)};

    // Releases memory in which there are no objects.
    struct release {
        void operator()(value* memory) const noexcept { ::operator delete(memory, alignment); }
    };

    // Returns memory for n objects, or nullptr.
    static value* allocate(std::size_t n) noexcept {
        return n > (std::numeric_limits<std::size_t>::max)() / sizeof(value)
                   ? nullptr
                   : static_cast<value*>(
                         ::operator new(n * sizeof(value), alignment, std::nothrow));
    }

    const It range_;
    const std::size_t size_;
    const std::unique_ptr<value, release> memory_;
    std::size_t filled_ = 0;
};

// Moves the elements of the range to other places of the range: the element that had the number
// keys[i].number comes to place i.
template <class Forker, class It, class Key>
void move_by_number(const Forker& forks, two_places<It>& places, std::size_t size,
                    const Key* keys) {
    auto* const buffer = places.buffer();
    const auto place = [&places](std::size_t n) {
        return places.range() + static_cast<std::iter_difference_t<It>>(n);
    };
    if constexpr (two_places<It>::is_plain) { // even plain elements may be move-only
        detail::for_all_parts(forks, size, [&](std::size_t first, std::size_t last) {
            detail::move_elements(place(first), place(last), buffer + first);
        });
    }
    places.bring_to_start(forks);
    detail::for_all_parts(forks, size, [&](std::size_t first, std::size_t last) {
        for (std::size_t i = first; i != last; ++i) {
            *place(i) = std::ranges::iter_move(buffer + keys[i].number);
        }
    });
}

// ---- Merges

// Merges two sorted sequences into a third place. That place already has constructed objects, which
// are overwritten. If a comparison throws, every element is still moved to the third place, in any
// order.

// The elements of two sequences that a merge has not moved yet. If an exception leaves the merge,
// the destructor moves these elements to their target.
template <class From, class To> struct merge_rest {
    merge_rest(From a_first, From a_last, From b_first, From b_last, To into)
        : left(a_first), left_end(a_last), right(b_first), right_end(b_last), to(into) {}
    merge_rest(const merge_rest&) = delete;
    merge_rest& operator=(const merge_rest&) = delete;
    ~merge_rest() {
        if (!finished) {
            ignore_exceptions([this] { finish(); });
        }
    }
    void finish() {
        finished = true;
        detail::move_elements(right, right_end, detail::move_elements(left, left_end, to));
    }
    From left;
    From left_end;
    From right;
    From right_end;
    To to;
    bool finished = false;
};

// Merges from the front and from the back while both sequences have at least 32 elements. A round
// has so few steps that neither sequence can run out. If a whole block of one sequence comes before
// the next element of the other sequence, the block is copied. So sequences that are nearly in
// order are merged quickly.
template <class From, class To, class Compare>
void merge_both_ends(merge_rest<From, To>& rest, Compare& less) {
    constexpr std::iter_difference_t<From> block = 16;
    for (;;) {
        const auto n = rest.left_end - rest.left;
        const auto others = rest.right_end - rest.right;
        auto steps = (std::min)(n, others) / 2;
        if (steps < block) {
            return;
        }
        From left_back = rest.left_end - 1;
        From right_back = rest.right_end - 1;
        To back = detail::ahead(rest.to, n + others - 1);
        for (; steps >= block; steps -= block) {
            const bool copies_left = !less(*rest.right, rest.left[block - 1]);
            const bool copies_right = !less(right_back[1 - block], *left_back);
            if (!copies_left && !copies_right) {
                for (auto i = block; i != 0; --i) {
                    detail::merge_first(rest.left, rest.right, rest.to, less);
                    detail::merge_last(left_back, right_back, back, less);
                }
                continue;
            }
            if (copies_left) {
                rest.to = std::copy_n(rest.left, block, rest.to);
                rest.left += block;
            } else {
                for (auto i = block; i != 0; --i) {
                    detail::merge_first(rest.left, rest.right, rest.to, less);
                }
            }
            if (copies_right) {
                std::copy_n(right_back + (1 - block), block, back + (1 - block));
                right_back -= block;
                back -= block;
            } else {
                for (auto i = block; i != 0; --i) {
                    detail::merge_last(left_back, right_back, back, less);
                }
            }
        }
        rest.left_end = left_back + 1;
        rest.right_end = right_back + 1;
    }
}

// Merges the elements that remain after merge_both_ends(). One sequence has few elements, the other
// one any number. If a block of the larger sequence comes before the next element of the smaller
// one, the block is copied.
template <class From, class To, class Compare>
void merge_few_with_many(merge_rest<From, To>& rest, Compare& less) {
    constexpr std::iter_difference_t<From> block = 16;
    while (rest.left != rest.left_end && rest.right != rest.right_end) {
        const auto n = rest.left_end - rest.left;
        const auto others = rest.right_end - rest.right;
        if (n >= block && !less(*rest.right, rest.left[block - 1])) {
            rest.to = std::copy_n(rest.left, block, rest.to);
            rest.left += block;
        } else if (others >= block && less(rest.right[block - 1], *rest.left)) {
            rest.to = std::copy_n(rest.right, block, rest.to);
            rest.right += block;
        } else {
            for (auto i = (std::min)({n, others, block}); i != 0; --i) {
                detail::merge_first(rest.left, rest.right, rest.to, less);
            }
        }
    }
}

// Merges stably: of equal elements, the left ones come first.
template <class From, class To, class Compare>
void merge(From left, From left_end, From right, From right_end, To to, Compare& less) {
    merge_rest<From, To> rest(left, left_end, right, right_end, to);
    if constexpr (moves_branchless<From> && moves_branchless<To>) {
        detail::merge_both_ends(rest, less);
        detail::merge_few_with_many(rest, less);
    } else {
        while (rest.left != rest.left_end && rest.right != rest.right_end) {
            // Here a branch is faster: the processor predicts the result of the comparison and need
            // not wait for it.
            if (less(*rest.right, *rest.left)) {
                *rest.to = std::ranges::iter_move(rest.right);
                ++rest.right;
            } else {
                *rest.to = std::ranges::iter_move(rest.left);
                ++rest.left;
            }
            ++rest.to;
        }
    }
    rest.finish();
}

// ---- The sort

// A stable merge sort with a buffer of the same size as the range. Each step moves the elements
// from the range to the buffer or back. Both halves are sorted in parallel and merged in parallel.
// If both halves together are already in order, they are not merged.
template <class Forker, class It, class Compare> class merge_sort {
    using difference = std::iter_difference_t<It>;
    using places = two_places<It>;
    using place = typename places::place;
    using transfer = typename places::transfer;

public:
    merge_sort(Forker forks, It begin, It end, Compare& less,
               basic_loop_state<typename Forker::platform>& shared) noexcept
        : forks_(forks), size_(end - begin), less_(less), state_(shared),
          places_(begin, static_cast<std::size_t>(size_)) {}

    // Returns true if the buffer has memory. All other functions require that.
    explicit operator bool() const noexcept { return static_cast<bool>(places_); }

    void run() {
        places_.bring_to_start(forks_);
        sort(0, size_, place::range);
    }

    // Sorts a range that consists of the given runs, at least two.
    void run(const long_runs<It>& runs) {
        for (int i = 0; i != runs.size(); ++i) {
            if (runs.descends(i)) {
                detail::reverse_in_parallel(forks_, runs.begin_of(i), runs.end_of(i));
            }
        }
        places_.bring_to_start(forks_);
        merge_runs(runs, 0, runs.size(), place::range);
    }

private:
    static constexpr difference small_size = sorts_branchless<It> ? small_sort_size : 16;

    // Returns true if a part before `first` has thrown, or if a stop was requested. The caller then
    // moves the elements to their target without sorting them.
    bool leaves_out(difference first) noexcept {
        return state_.leaves_out(static_cast<std::uint64_t>(first));
    }

    // If [first, last) is the whole range, counts `merged` elements as done.
    void settle(difference first, difference last, std::ptrdiff_t merged) noexcept {
        if (last - first == size_) {
            state_.count(static_cast<std::uint64_t>(merged));
        }
    }

    // Sorts [first, last), whose elements are in the start place, into the target.
    void sort(difference first, difference last, place target) {
        transfer elements(places_, first, last, places::start, target);
        if (leaves_out(first)) {
            return;
        }
        if (last - first <= small_size) {
            places_.at(places::start,
                       [&](auto from) { detail::sort_small(from + first, from + last, less_); });
            elements.finish();
            return settle(first, last, last - first);
        }
        const difference middle = first + (last - first) / 2;
        sort_halves(
            elements, first, middle, last, target, [&](place to) { sort(first, middle, to); },
            [&](place to) { sort(middle, last, to); });
    }

    void merge_runs(const long_runs<It>& runs, int from, int to, place target) {
        const difference first = runs.begin_of(from) - places_.range();
        const difference last = runs.end_of(to - 1) - places_.range();
        if (!runs.is_sorted(from)) {
            return sort(first, last, target);
        }
        transfer elements(places_, first, last, places::start, target);
        if (leaves_out(first)) {
            return;
        }
        if (to - from == 1) {
            return elements.finish();
        }
        const int half = from + (to - from) / 2;
        sort_halves(
            elements, first, runs.begin_of(half) - places_.range(), last, target,
            [&](place other) { merge_runs(runs, from, half, other); },
            [&](place other) { merge_runs(runs, half, to, other); });
    }

    // Sorts both halves into the place that is not the target, by sort_first(place) and
    // sort_second(place), in parallel if they are large. Then merges them into the target.
    template <class F, class G>
    void sort_halves(transfer& elements, difference first, difference middle, difference last,
                     place target, const F& sort_first, const G& sort_second) {
        const place between = places::other(target);
        const auto f = [&] {
            elements.left_start(); // from now on, both halves move their elements
            sort_first(between);
        };
        const auto g = [&] { sort_second(between); };
        if (last - first < sort_fork_size) {
            detail::call_both(f, g);
        } else {
            forks_.both([&] { state_.run(static_cast<std::uint64_t>(first), 0, f); },
                        [&] { state_.run(static_cast<std::uint64_t>(middle), 0, g); });
        }
        places_.at(between, [&](auto from) {
            if (leaves_out(first)) {
                return elements.finish();
            }
            if (!less_(from[middle], from[middle - 1])) {
                elements.finish();
                return settle(first, last, last - first);
            }
            elements.release(); // merge_parts() moves all elements
            places_.at(target, [&](auto to) {
                merge_rest halves(from + first, from + middle, from + middle, from + last,
                                  to + first);
                merge_parts(halves, first, last);
            });
        });
    }

    // [first, last) has two sorted halves, and `rest` contains a part of each. Merges these two
    // parts, in parallel: cuts the larger part in the middle, and the smaller part where the middle
    // element of the larger part belongs. If leaves_out(first) is true, moves the elements without
    // merging them.
    template <class From, class To>
    void merge_parts(merge_rest<From, To>& rest, difference first, difference last) {
        const auto n = rest.left_end - rest.left;
        const auto others = rest.right_end - rest.right;
        if (leaves_out(first)) {
            return rest.finish();
        }
        if (n + others < 16'384) {
            rest.finished = true;
            detail::merge(rest.left, rest.left_end, rest.right, rest.right_end, rest.to, less_);
            return settle(first, last, n + others);
        }
        From left = rest.left + n / 2;
        From right = rest.right + others / 2;
        if (n >= others) {
            right = std::ranges::partition_point(
                rest.right, rest.right_end, [&](auto&& element) -> bool {
                    return less_(std::forward<decltype(element)>(element), *left);
                });
        } else {
            left =
                std::ranges::partition_point(rest.left, rest.left_end, [&](auto&& element) -> bool {
                    return !less_(*right, std::forward<decltype(element)>(element));
                });
        }
        const To to = detail::ahead(rest.to, (left - rest.left) + (right - rest.right));
        forks_.both(
            [&] {
                rest.finished = true; // the two calls have begun, and move the elements
                merge_rest part(rest.left, left, rest.right, right, rest.to);
                merge_parts(part, first, last);
            },
            [&] {
                merge_rest part(left, rest.left_end, right, rest.right_end, to);
                merge_parts(part, first, last);
            });
    }

    const Forker forks_;
    const difference size_;
    Compare& less_;
    basic_loop_state<typename Forker::platform>& state_;
    places places_;
};

// Returns how many of the first n elements of the merged sequence come from the left range. Of
// equal elements, those of the left range come first. comes_first(r, l) returns true if the right
// element `r` comes before the left element `l`.
template <class Left, class Right, class ComesFirst>
std::uint64_t taken_from_left(const elements<Left>& left, const elements<Right>& right,
                              std::uint64_t n, const ComesFirst& comes_first) {
    std::uint64_t low = n > right.size ? n - right.size : 0;
    std::uint64_t high = lesser_of(n, left.size);
    while (low != high) {
        const std::uint64_t middle = low + (high - low) / 2;
        // The left element at `middle` is one of the first n, unless the right element at n -
        // middle - 1 comes before it.
        if (comes_first(*right.at(n - middle - 1), *left.at(middle))) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

// Does the same, if the first `from` elements have `before` elements of the left range. The result
// is possible even if comparisons contradict each other, and the search finds any place.
template <class Left, class Right, class ComesFirst>
std::uint64_t taken_from_left(const elements<Left>& left, const elements<Right>& right,
                              std::uint64_t n, const ComesFirst& comes_first, std::uint64_t from,
                              std::uint64_t before) {
    return std::clamp(detail::taken_from_left(left, right, n, comes_first), before,
                      lesser_of(before + (n - from), left.size));
}

// True if the ranges are merged without branches that depend on the elements.
template <class Left, class Right>
inline constexpr bool merges_branchless =
    is_trivial_to_copy<std::iter_value_t<Left>> &&
    sizeof(std::iter_value_t<Left>) <= largest_plain_copy &&
    std::is_same_v<std::iter_value_t<Left>, std::iter_value_t<Right>> &&
    std::is_same_v<std::remove_cvref_t<std::iter_reference_t<Left>>, std::iter_value_t<Left>> &&
    std::is_lvalue_reference_v<std::iter_reference_t<Left>> &&
    std::is_same_v<std::iter_reference_t<Left>, std::iter_reference_t<Right>>;

// What a merge of elements that are copied has not copied yet, and the places for it. There are no
// branches that depend on the elements.
template <class Left, class Right, class Out> struct copying_merge {
    using left_difference = std::iter_difference_t<Left>;
    using right_difference = std::iter_difference_t<Right>;

    Left left;
    Left left_end;
    Right right;
    Right right_end;
    Out to;
    Out to_end;

    // The number of elements of the shorter range.
    std::uint64_t least() const {
        return lesser_of(static_cast<std::uint64_t>(left_end - left),
                         static_cast<std::uint64_t>(right_end - right));
    }
    static void put(std::ptrdiff_t from_right, const Left& l, const Right& r, const Out& out) {
        const auto zero = reinterpret_cast<std::uintptr_t>(std::addressof(*l));
        const auto one = reinterpret_cast<std::uintptr_t>(std::addressof(*r));
        const std::uintptr_t chosen =
            zero + ((one - zero) & (0 - static_cast<std::uintptr_t>(from_right)));
        *out = *reinterpret_cast<const std::iter_value_t<Left>*>(chosen);
    }
    template <class ComesFirst> BIDE_INLINE void copy_first(const ComesFirst& comes_first) {
        const std::ptrdiff_t from_right = detail::as_number(comes_first(*right, *left));
        put(from_right, left, right, to);
        ++to;
        right += static_cast<right_difference>(from_right);
        left += static_cast<left_difference>(1 - from_right);
    }
    template <class ComesFirst> BIDE_INLINE void copy_last(const ComesFirst& comes_first) {
        const Left l = left_end - 1;
        const Right r = right_end - 1;
        const std::ptrdiff_t from_left = detail::as_number(comes_first(*r, *l));
        put(1 - from_left, l, r, --to_end);
        left_end -= static_cast<left_difference>(from_left);
        right_end -= static_cast<right_difference>(1 - from_left);
    }
};

// Merges `one` and `two`, both from both ends at once, which gives the processor four independent
// chains of loads. A round is so short that no range can end before its last step.
template <class Merge, class ComesFirst>
void merge_copies(Merge one, Merge two, const ComesFirst& comes_first) {
    while (const auto steps = lesser_of(one.least(), two.least()) / 2) {
        for (auto i = steps; i != 0; --i) {
            one.copy_first(comes_first);
            two.copy_first(comes_first);
            one.copy_last(comes_first);
            two.copy_last(comes_first);
        }
    }
    for (Merge* const at : {&one, &two}) {
        Merge rest = *at; // its address is not known elsewhere
        while (const auto least = rest.least()) {
            rest.copy_first(comes_first);
            for (auto i = (least - 1) / 2; i != 0; --i) {
                rest.copy_last(comes_first);
                rest.copy_first(comes_first);
            }
        }
        std::ranges::copy(rest.right, rest.right_end,
                          std::ranges::copy(rest.left, rest.left_end, rest.to).out);
    }
}

// Merges the places [begin, end) of the merged sequence, by copies if that is possible, and else by
// leaf(left, left_end, right, right_end, out).
template <class Left, class Right, class Out, class ComesFirst, class Leaf>
void merge_places(const elements<Left>& left, const elements<Right>& right, const elements<Out>& to,
                  std::uint64_t begin, std::uint64_t end, const ComesFirst& comes_first,
                  const Leaf& leaf) {
    const auto from = detail::taken_from_left(left, right, begin, comes_first);
    const auto until = detail::taken_from_left(left, right, end, comes_first, begin, from);
    if constexpr (merges_branchless<Left, Right>) {
        const auto part = [&](std::uint64_t b, std::uint64_t l, std::uint64_t e, std::uint64_t m) {
            return copying_merge<Left, Right, Out>{left.at(l),      left.at(m), right.at(b - l),
                                                   right.at(e - m), to.at(b),   to.at(e)};
        };
        const std::uint64_t middle = begin + (end - begin) / 2;
        const auto half =
            std::clamp(detail::taken_from_left(left, right, middle, comes_first, begin, from),
                       greater_of(from + (end - middle), until) - (end - middle), until);
        detail::merge_copies(part(begin, from, middle, half), part(middle, half, end, until),
                             comes_first);
    } else {
        leaf(left.at(from), left.at(until), right.at(begin - from), right.at(end - until),
             to.at(begin));
    }
}

} // namespace detail

/// Merges the sorted ranges `left` and `right` by copying their elements to consecutive places from
/// `out` on, in order. Of equal elements, those of `left` come first, and elements of one range
/// keep their order. Returns the iterator behind the last place. The places must not overlap the
/// ranges. Elements are compared by less(project_right(r), project_left(l)).
/// Blocks: until all places are written. Meanwhile the caller writes parts of them.
/// Throws: the exception of a comparison or a copy. If several parts of the loop threw, the
/// exception of the first part. After an exception or a stop, some of the places are written. Other
/// exceptions are those of parallel_for().
/// Requires: each range is sorted by less; otherwise each place gets an arbitrary element of the
/// ranges. less and the projections may be called by several threads at once.
/// Cancellation: see fork_options::stop. fork_options::progress counts the places that are written.
template <parallel_range Left, parallel_range Right, class Out, class Compare = std::ranges::less,
          class ProjectLeft = std::identity, class ProjectRight = std::identity>
    requires std::random_access_iterator<Out> && (!detail::packs_bits<Out>) &&
             std::mergeable<std::ranges::iterator_t<Left>, std::ranges::iterator_t<Right>, Out,
                            Compare, ProjectLeft, ProjectRight>
Out parallel_merge(const fork_policy& on, Left&& left, Right&& right, Out out, Compare less = {},
                   ProjectLeft project_left = {}, ProjectRight project_right = {}) {
    const auto l = detail::elements_of(left);
    const auto r = detail::elements_of(right);
    const auto comes_first = [&](auto&& b, auto&& a) -> bool {
        return std::invoke(less, std::invoke(project_right, std::forward<decltype(b)>(b)),
                           std::invoke(project_left, std::forward<decltype(a)>(a)));
    };
    const detail::elements<Out> to{std::move(out), l.size + r.size};
    fork_options options = on.options();
    if (options.grain == 0) {
        options.grain = 4'096; // the two searches of a part cost little beside its copies
    }
    const auto merge_leaf = [&](auto... of) {
        std::ranges::merge(of..., std::ref(less), std::ref(project_left), std::ref(project_right));
    };
    const auto merge_part = [&](std::uint64_t begin, std::uint64_t end) {
        detail::merge_places(l, r, to, begin, end, comes_first, merge_leaf);
    };
    detail::loop_over(fork_policy(on.where(), std::move(options)), to.numbers(), merge_part);
    return to.end();
}

/// Merges [left, left_end) and [right, right_end) in the same way.
template <class Left, detail::parallel_end<Left> LeftEnd, class Right,
          detail::parallel_end<Right> RightEnd, class... Args>
auto parallel_merge(const fork_policy& on, Left left, LeftEnd left_end, Right right,
                    RightEnd right_end, Args&&... args) {
    return bide::parallel_merge(on, detail::elements_of(left, left_end),
                                detail::elements_of(right, right_end), std::forward<Args>(args)...);
}

/// Merges two sorted parts of a range: the elements before `middle` and the elements from `middle`
/// on. Compares by less(projection(a), projection(b)). Of equal elements, those of the first part
/// come first, and those of one part keep their order. Allocates a buffer of the size of the range.
/// Blocks, requires: as parallel_stable_sort().
/// Throws: as parallel_stable_sort(). If there is no memory for the buffer, throws std::bad_alloc
/// with nothing changed; std::inplace_merge would work without a buffer.
/// Cancellation: as parallel_stable_sort().
template <parallel_range Range, class Compare = std::less<>, class Projection = std::identity>
    requires std::sortable<std::ranges::iterator_t<Range>, Compare, Projection>
void parallel_inplace_merge(const fork_policy& on, Range&& range,
                            std::ranges::iterator_t<Range> middle, Compare less = {},
                            Projection projection = {}) {
    auto&& call = detail::callable(less, projection);
    const auto all = detail::elements_of(range);
    const auto begin = detail::unwrap(all.first);
    const auto cut = detail::unwrap(middle);
    const auto end = detail::unwrap(all.end());
    detail::in_one_fork(on, all.size, all.size, [&](auto& state) {
        if (begin == cut || cut == end || !call(*cut, *(cut - 1))) {
            return state.count(all.size);
        }
        detail::merge_sort merging(on.forks(), begin, end, call, state);
        if (!merging) {
            BIDE_THROW(std::bad_alloc());
        }
        detail::long_runs<std::remove_const_t<decltype(begin)>> runs;
        runs.assign(begin, cut, end);
        merging.run(runs);
    });
}

/// Does the same in [first, last).
template <class It, detail::parallel_end<It> End, class... Args>
    requires detail::sortable_by<It, std::decay_t<Args>...>
void parallel_inplace_merge(const fork_policy& on, It first, It middle, End last, Args&&... args) {
    bide::parallel_inplace_merge(on, detail::elements_of(first, last), middle,
                                 std::forward<Args>(args)...);
}

}} // namespace bide::BIDE_ABI

#endif
