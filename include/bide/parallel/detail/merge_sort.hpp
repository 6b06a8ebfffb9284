// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_MERGE_SORT_HPP
#define BIDE_PARALLEL_DETAIL_MERGE_SORT_HPP

// A stable merge sort that moves the elements back and forth between the range and a buffer of the
// same size. Both halves are sorted in parallel and merged in parallel. Halves that are in order
// already are not merged.
//
// Both places hold living objects all the time. Each element is in one of them, and the object in
// the other place was moved from. A step moves all its elements from one place to the other, in
// order; if a comparison throws, in any order. So the caller of a step knows where the elements
// are.

#include <bide/core/config.hpp>
#include <bide/parallel/detail/buffer.hpp>
#include <bide/parallel/detail/loop_state.hpp>
#include <bide/parallel/detail/merge.hpp>
#include <bide/parallel/detail/runs.hpp>
#include <bide/parallel/detail/small_sort.hpp>
#include <bide/parallel/detail/sort_parts.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <type_traits>

namespace bide::inline BIDE_ABI {
namespace detail {

// Memory for the elements of a range, which may be moved there. Empty if there was no memory.
template <class It> class sort_buffer {
    using value = std::iter_value_t<It>;

public:
    // If true, the objects exist without a constructor as soon as there is memory.
    static constexpr bool is_plain = std::is_trivially_copyable_v<value>;

    explicit sort_buffer(std::size_t elements) noexcept : memory_(elements), size_(elements) {}
    sort_buffer(const sort_buffer&) = delete;
    sort_buffer& operator=(const sort_buffer&) = delete;
    ~sort_buffer() { std::destroy(begin(), begin() + filled_); }

    explicit operator bool() const noexcept { return static_cast<bool>(memory_); }

    // Moves the elements in. If a move throws, moves back what was moved.
    void fill(It from) {
        struct unfill {
            ~unfill() {
                if (buffer != nullptr) {
                    ignore_exceptions([this]() noexcept(is_nothrow_element_move<value*, It>) {
                        detail::move_elements(buffer->begin(), buffer->begin() + buffer->filled_,
                                              from);
                    });
                }
            }
            sort_buffer* buffer;
            It from;
        } otherwise{this, from};
        for (It at = from; filled_ != size_; ++filled_, ++at) {
            std::construct_at(begin() + filled_, std::ranges::iter_move(at));
        }
        otherwise.buffer = nullptr;
    }

    value* begin() const noexcept { return memory_.begin(); }

private:
    const raw_buffer<value> memory_;
    const std::size_t size_;
    std::size_t filled_ = 0;
};

template <class Forker, class It, class Compare> class merge_sort {
    using value = std::iter_value_t<It>;
    using difference = std::iter_difference_t<It>;
    static constexpr bool is_plain = sort_buffer<It>::is_plain;
    using state = basic_loop_state<typename Forker::platform>;
    enum class place { range, buffer };
    // Where the elements are at the start.
    static constexpr place home = is_plain ? place::range : place::buffer;

public:
    merge_sort(Forker forks, It begin, It end, Compare& less, state& shared) noexcept
        : forks_(forks), range_(begin), size_(end - begin), less_(less), state_(shared),
          memory_(static_cast<std::size_t>(size_)), buffer_(memory_.begin()) {}

    // Returns true if there is a buffer. All other functions require that.
    explicit operator bool() const noexcept { return static_cast<bool>(memory_); }

    void run() {
        bring_home();
        sort(0, size_, place::range);
    }

    // Sorts a range that consists of these runs, two or more.
    void run(const long_runs<It>& runs) {
        for (int i = 0; i != runs.size(); ++i) {
            if (runs.descends(i)) {
                detail::reverse_in_parallel(forks_, runs.begin_of(i), runs.end_of(i));
            }
        }
        bring_home();
        merge_runs(runs, 0, runs.size(), place::range);
    }

private:
    static constexpr difference small_size = sorts_branchless<It> ? small_sort_size : 16;
    static constexpr difference fork_size = sort_fork_size;

    void bring_home() {
        if constexpr (!is_plain) {
            memory_.fill(range_);
        }
    }

    static constexpr place other(place p) noexcept {
        return p == place::range ? place::buffer : place::range;
    }

    // If an exception leaves the scope, the destructor moves [first, last) to `target`. So the
    // elements are at `target` in every case.
    class transfer {
    public:
        transfer(merge_sort& whose, difference first, difference last, place where) noexcept
            : sort_(whose), first_(first), last_(last), target_(where) {}
        transfer(const transfer&) = delete;
        transfer& operator=(const transfer&) = delete;
        ~transfer() {
            if (!is_over_ && from_ != target_) {
                ignore_exceptions(
                    [this]() noexcept(
                        is_nothrow_element_move<It, value*>&& is_nothrow_element_move<value*, It>) {
                        finish();
                    });
            }
        }
        void left_home() noexcept { from_ = other(target_); }
        void finish() {
            is_over_ = true;
            sort_.at(from_, [this](auto from) {
                sort_.at(target_, [&](auto to) {
                    detail::move_elements(from + first_, from + last_, to + first_);
                });
            });
        }
        void release() noexcept { is_over_ = true; }

    private:
        merge_sort& sort_;
        const difference first_;
        const difference last_;
        const place target_;
        place from_ = home;
        bool is_over_ = false;
    };

    // Calls f with the begin of that place.
    template <class F> void at(place p, F&& f) {
        if (p == place::range) {
            f(range_);
        } else {
            f(buffer_);
        }
    }

    // Calls f, which sorts [first, middle), and g, which sorts [middle, last). Calls them in
    // parallel if the part is large enough.
    template <class F, class G>
    void both(difference first, difference middle, difference last, const F& f, const G& g) {
        if (last - first < fork_size) {
            detail::call_both(f, g);
        } else {
            forks_.both([&] { state_.run(static_cast<std::uint64_t>(first), 0, f); },
                        [&] { state_.run(static_cast<std::uint64_t>(middle), 0, g); });
        }
    }

    // Returns true if a part before `first` has thrown, or after a stop. Then the sort only moves the
    // elements to their target, in any order.
    bool leaves_out(difference first) noexcept {
        return state_.leaves_out(static_cast<std::uint64_t>(first));
    }

    // Counts the elements of a merge if it is the last one.
    void settle(difference first, difference last, std::ptrdiff_t merged) noexcept {
        if (last - first == size_) {
            state_.count(static_cast<std::uint64_t>(merged));
        }
    }

    // What a parallel merge of [first, last) asks and tells.
    struct merge_watch {
        bool leaves_out() const noexcept { return sort.leaves_out(first); }
        void count(std::ptrdiff_t merged) const noexcept { sort.settle(first, last, merged); }
        merge_sort& sort;
        const difference first;
        const difference last;
    };

    // Sorts [first, last), which is at home, into the target.
    void sort(difference first, difference last, place target) {
        transfer elements(*this, first, last, target);
        if (leaves_out(first)) {
            return;
        }
        if (last - first <= small_size) {
            at(home, [&](auto from) { sort_small(from + first, from + last); });
            if (home != target) {
                elements.finish();
            }
            settle(first, last, last - first);
            return elements.release();
        }
        const difference middle = first + (last - first) / 2;
        const place between = other(target);
        both(
            first, middle, last,
            [&] {
                elements.left_home(); // both halves begin
                sort(first, middle, between);
            },
            [&] { sort(middle, last, between); });
        merge_into(elements, first, middle, last, target);
    }

    // Merges the runs [from, to) into the target.
    void merge_runs(const long_runs<It>& runs, int from, int to, place target) {
        const difference first = runs.begin_of(from) - range_;
        const difference last = runs.end_of(to - 1) - range_;
        if (!runs.is_sorted(from)) {
            return sort(first, last, target);
        }
        transfer elements(*this, first, last, target);
        if (leaves_out(first)) {
            return;
        }
        if (to - from == 1) {
            if (home != target) {
                elements.finish();
            }
            return elements.release();
        }
        const int half = from + (to - from) / 2;
        const difference middle = runs.begin_of(half) - range_;
        const place between = other(target);
        both(
            first, middle, last,
            [&] {
                elements.left_home();
                merge_runs(runs, from, half, between);
            },
            [&] { merge_runs(runs, half, to, between); });
        merge_into(elements, first, middle, last, target);
    }

    // Merges two sorted halves from the other place into the target.
    void merge_into(transfer& elements, difference first, difference middle, difference last,
                    place target) {
        at(other(target), [&](auto from) {
            if (leaves_out(first)) {
                return elements.finish();
            }
            if (!less_(from[middle], from[middle - 1])) {
                elements.finish();
                return settle(first, last, last - first);
            }
            elements.release(); // merge_parts() moves all of them
            at(target, [&](auto to) {
                detail::merge_parts(forks_, from + first, from + middle, from + middle, from + last,
                                    to + first, less_, merge_watch{*this, first, last});
            });
        });
    }

    template <class I> void sort_small(I begin, I end) {
        if constexpr (sorts_branchless<I>) {
            detail::small_sort(begin, end, less_);
        } else {
            detail::insertion_sort(begin, end, less_);
        }
    }

    const Forker forks_;
    const It range_;
    const difference size_;
    Compare& less_;
    state& state_;
    sort_buffer<It> memory_;
    value* const buffer_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
