// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_RUNS_HPP
#define BIDE_PARALLEL_DETAIL_RUNS_HPP

#include <bide/core/config.hpp>
#include <bide/parallel/detail/fork_each.hpp>
#include <bide/parallel/detail/sort_parts.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// Finds out whether a sequence consists of few long runs. Each run ascends, or descends strictly.
// If the runs cover at least half of the sequence, the rest may be in any order, and only the rest
// has to be sorted. A random sequence is rejected after a few comparisons.
//
// When a run has turned out to be long, the next step examines as many elements as all steps
// before, in parallel. So no sequence costs more than two comparisons for each element.
template <class It> class long_runs {
    using difference = std::iter_difference_t<It>;

public:
    static constexpr int most = 8;

    // Finds the runs and changes nothing. Returns false if there are more than `most` runs, or if
    // one of them is short.
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

    // Takes two runs that ascend, without a look at them.
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
    // Returns the first element that does not continue the run that begins at `at`, or `end`.
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
        if constexpr (sorts_branchless<It>) {
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

    // Tests a block at a time, with one branch for each element and none for the loop.
    template <bool descends, class Compare> static bool goes_on(It at, Compare& less) {
        return [&]<difference... is>(std::integer_sequence<difference, is...>) {
            return ((static_cast<bool>(less(at[is + 1], at[is])) == descends) && ...);
        }(std::make_integer_sequence<difference, block>());
    }

    // The least number of elements that one thread looks at: it takes some microseconds.
    static constexpr difference serial_size = 16'384;
    static constexpr difference block = 16;

    It ends_[most + 2]{}; // each run but the last is at least an eighth of the sequence
    bool descends_[most + 1]{};
    int size_ = 0;
    bool is_last_sorted_ = true;
};

// Reverses [begin, end), in parallel if it is large: each job swaps some elements with their mirror
// images.
template <class Forker, class It> void reverse_in_parallel(const Forker& forks, It begin, It end) {
    using difference = std::iter_difference_t<It>;
    constexpr difference least = 16'384;
    constexpr difference most_jobs = 256;
    const difference pairs = (end - begin) / 2;
    const difference each = (std::max)(least, (pairs - 1) / most_jobs + 1);
    if (pairs <= least) {
        return static_cast<void>(std::ranges::reverse(begin, end));
    }
    const auto jobs = static_cast<std::size_t>((pairs - 1) / each + 1);
    detail::fork_each(forks, 0, jobs, [=](std::size_t job) {
        const difference first = static_cast<difference>(job) * each;
        const difference last = (std::min)(first + each, pairs);
        It right = end - first;
        for (It left = begin + first; left != begin + last; ++left) {
            std::ranges::iter_swap(left, --right);
        }
    });
}

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
