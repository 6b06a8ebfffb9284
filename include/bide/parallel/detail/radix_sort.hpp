// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_PARALLEL_DETAIL_RADIX_SORT_HPP
#define BIDE_PARALLEL_DETAIL_RADIX_SORT_HPP

// A stable radix sort from the highest digit on, by way of a buffer of the same size. A part whose
// keys differ is divided into up to 256 buckets by the highest bits in which they differ, and each
// bucket is a part. Parts of few elements are sorted by comparisons of their keys.
//
// Each element is in the range or in the buffer, as in merge_sort.hpp. A step first notes the digit
// of each element, and then moves all elements of the part to the other place. So the projection is
// called before anything is moved, and elements end up within the part even if the projection returns
// another key each time.

#include <bide/core/config.hpp>
#include <bide/parallel/detail/buffer.hpp>
#include <bide/parallel/detail/fork_each.hpp>
#include <bide/parallel/detail/loop_state.hpp>
#include <bide/parallel/detail/merge_sort.hpp>
#include <bide/parallel/detail/sort_parts.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

// `Key` is called as key(element), and returns an unsigned number.
template <class Forker, class It, class Key> class radix_sort {
    using value = std::iter_value_t<It>;
    using difference = std::iter_difference_t<It>;
    using state = basic_loop_state<typename Forker::platform>;
    enum class place { range, buffer };

public:
    radix_sort(Forker forks, It begin, It end, Key& key, state& shared) noexcept
        : forks_(forks), range_(begin), size_(static_cast<std::size_t>(end - begin)), key_(key),
          state_(shared), memory_(size_), digits_(size_),
          counts_((size_ / chunk_size + 1) * most_buckets) {}

    // Returns true if there is memory. All other functions require that.
    explicit operator bool() const noexcept { return memory_ && digits_ && counts_; }

    void run() {
        if constexpr (!sort_buffer<It>::is_plain) {
            memory_.fill(range_);
            return sort(0, size_, place::buffer);
        }
        sort(0, size_, place::range);
    }

private:
    static constexpr std::size_t most_buckets = 256;
    static constexpr std::size_t small_size = 32;
    static constexpr std::size_t chunk_size = 16'384;
    static constexpr std::size_t fork_size = static_cast<std::size_t>(sort_fork_size);

    // A part, and its chunks, which threads take one by one.
    struct part {
        std::size_t size() const noexcept { return last - first; }
        std::size_t chunks() const noexcept {
            return (std::max)(size() / chunk_size, std::size_t{1});
        }
        std::size_t begin_of(std::size_t chunk) const noexcept {
            const std::size_t all = chunks();
            const std::size_t rest = size() % all;
            return first + size() / all * chunk + (std::min)(chunk, rest);
        }
        // Where its counts begin. Parts that do not overlap have counts that do not overlap.
        std::size_t first_chunk() const noexcept { return (first + chunk_size - 1) / chunk_size; }
        std::size_t first;
        std::size_t last;
    };

    // Brings the part to the range when the scope is left, sorted or not.
    struct at_home {
        at_home(const radix_sort& whose, part what, place from) noexcept
            : sort(whose), all(what), is_in_buffer(from == place::buffer) {}
        at_home(const at_home&) = delete;
        at_home& operator=(const at_home&) = delete;
        ~at_home() {
            if (is_in_buffer) {
                ignore_exceptions(
                    [this]() noexcept(is_nothrow_element_move<value*, It>) { move(); });
            }
        }
        void move() {
            if (std::exchange(is_in_buffer, false)) {
                value* const buffer = sort.memory_.begin();
                detail::move_elements(buffer + all.first, buffer + all.last,
                                      sort.range_ + static_cast<difference>(all.first));
            }
        }
        const radix_sort& sort;
        const part all;
        bool is_in_buffer;
    };

    template <class F> decltype(auto) at(place p, const F& f) const {
        if (p == place::range) {
            return f(range_);
        }
        return f(memory_.begin());
    }

    // Sorts a part that is at `from` into the range. A part that is left out is only moved there.
    void sort(std::size_t first, std::size_t last, place from) {
        const part all{first, last};
        at_home elements(*this, all, from);
        if (state_.leaves_out(first)) {
            return;
        }
        state_.run(first, 0, [&] {
            std::uint64_t differences = 0;
            if (all.size() <= small_size) {
                at(from, [&](auto begin) { sort_small(begin, all); });
            } else if (!at(from,
                           [&](auto begin) { return find_differences(begin, all, differences); })) {
                return;
            }
            if (differences != 0) {
                return divide(all, from, elements, differences);
            }
            elements.move();
            state_.count(all.size());
        });
    }

    // Moves the elements to their buckets, and sorts the buckets.
    void divide(part all, place from, at_home& elements, std::uint64_t differences) {
        const int highest = static_cast<int>(std::bit_width(differences));
        const int digit_bits =
            (std::min)({8, highest, static_cast<int>(std::bit_width(all.size())) - 4});
        const int shift = highest - digit_bits;
        const std::size_t buckets = std::size_t{1} << digit_bits;
        std::size_t small_counts[most_buckets];
        std::size_t* const counts =
            all.chunks() == 1 ? small_counts : counts_.begin() + all.first_chunk() * most_buckets;
        const bool is_complete =
            at(from, [&](auto begin) { return note_digits(begin, all, shift, buckets, counts); });
        if (!is_complete) {
            return;
        }
        std::size_t starts[most_buckets + 1];
        add_up(all, buckets, counts, starts);
        const place to = from == place::range ? place::buffer : place::range;
        elements.is_in_buffer = false;
        move_to_buckets(all, from, to, counts);
        sort_buckets(starts, 0, buckets, to);
    }

    // Calls f for each chunk of the part, in parallel if there are several. Returns false if a chunk
    // was left out.
    template <class F> bool for_chunks(part all, const F& f) const {
        if (all.chunks() == 1) {
            return f(0), true;
        }
        typename Forker::platform::template atomic<bool> is_complete{true};
        detail::fork_each(forks_, 0, all.chunks(), [&](std::size_t chunk) {
            if (!state_.leaves_out(all.first)) {
                return f(chunk);
            }
            // Order: relaxed; the joins of the chunks order it before the reader.
            is_complete.store(false, std::memory_order_relaxed);
        });
        // Order: relaxed; as above.
        return is_complete.load(std::memory_order_relaxed);
    }

    // Finds the bits in which the keys differ. If the highest of them is in the digit, the part has
    // at least two buckets. Returns false if a chunk was left out.
    template <class I> bool find_differences(I begin, part all, std::uint64_t& differences) const {
        typename Forker::platform::template atomic<std::uint64_t> found{0};
        const std::uint64_t one = key_(begin[static_cast<difference>(all.first)]);
        const bool is_complete = for_chunks(all, [&](std::size_t chunk) {
            std::uint64_t here = 0;
            const std::size_t end = all.begin_of(chunk + 1);
            for (std::size_t i = all.begin_of(chunk); i != end; ++i) {
                here |= key_(begin[static_cast<difference>(i)]) ^ one;
            }
            // Order: relaxed; the joins of the chunks order it before the reader.
            found.fetch_or(here, std::memory_order_relaxed);
        });
        // Order: relaxed; as above.
        differences = found.load(std::memory_order_relaxed);
        return is_complete;
    }

    template <class I>
    bool note_digits(I begin, part all, int shift, std::size_t buckets, std::size_t* counts) const {
        return for_chunks(all, [&](std::size_t chunk) {
            std::size_t* const mine = counts + chunk * most_buckets;
            unsigned char* const digits = digits_.begin();
            std::fill_n(mine, buckets, std::size_t{0});
            const std::size_t end = all.begin_of(chunk + 1);
            for (std::size_t i = all.begin_of(chunk); i != end; ++i) {
                const std::uint64_t key = key_(begin[static_cast<difference>(i)]);
                const auto digit = static_cast<unsigned char>((key >> shift) & (buckets - 1));
                digits[i] = digit;
                ++mine[digit];
            }
        });
    }

    // Replaces the counts by the places where each chunk's part of each bucket begins.
    static void add_up(part all, std::size_t buckets, std::size_t* counts, std::size_t* starts) {
        std::size_t sum = all.first;
        for (std::size_t bucket = 0; bucket != buckets; ++bucket) {
            starts[bucket] = sum;
            for (std::size_t chunk = 0; chunk != all.chunks(); ++chunk) {
                std::size_t& count = counts[chunk * most_buckets + bucket];
                sum += std::exchange(count, sum);
            }
        }
        starts[buckets] = sum;
    }

    void move_to_buckets(part all, place from, place to, std::size_t* counts) const {
        const auto move_chunk = [&](std::size_t chunk) {
            std::size_t* const next = counts + chunk * most_buckets;
            const std::size_t end = all.begin_of(chunk + 1);
            at(from, [&](auto source) {
                at(to, [&](auto target) {
                    for (std::size_t i = all.begin_of(chunk); i != end; ++i) {
                        const std::size_t place_of = next[digits_.begin()[i]]++;
                        target[static_cast<difference>(place_of)] =
                            std::ranges::iter_move(source + static_cast<difference>(i));
                    }
                });
            });
        };
        if (all.chunks() == 1) {
            return move_chunk(0);
        }
        detail::fork_each_surely(forks_, 0, all.chunks(), move_chunk);
    }

    // Sorts the buckets [first, last), which are at `from`, into the range.
    void sort_buckets(const std::size_t* starts, std::size_t first, std::size_t last, place from) {
        if (starts[first] == starts[last]) {
            return;
        }
        if (last - first == 1) {
            return sort(starts[first], starts[last], from);
        }
        const std::size_t middle = first + (last - first) / 2;
        at_home elements(*this, {starts[first], starts[last]}, from);
        const auto sort_first = [&] {
            elements.is_in_buffer = false; // both calls begin
            sort_buckets(starts, first, middle, from);
        };
        const auto sort_second = [&] { sort_buckets(starts, middle, last, from); };
        if (starts[last] - starts[first] >= fork_size) {
            forks_.both(sort_first, sort_second);
        } else {
            detail::call_both(sort_first, sort_second);
        }
    }

    template <class I> void sort_small(I begin, part all) const {
        auto less = [this](auto&& a, auto&& b) -> bool { return key_(a) < key_(b); };
        const I first = begin + static_cast<difference>(all.first);
        const I last = begin + static_cast<difference>(all.last);
        if constexpr (sorts_branchless<I>) {
            detail::small_sort(first, last, less);
        } else {
            detail::insertion_sort(first, last, less);
        }
    }

    const Forker forks_;
    const It range_;
    const std::size_t size_;
    Key& key_;
    state& state_;
    sort_buffer<It> memory_;
    const raw_buffer<unsigned char> digits_;
    const raw_buffer<std::size_t> counts_;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
